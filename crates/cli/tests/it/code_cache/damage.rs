//! Members of the log that hold other bytes than they were given, and do not say so.

use super::{CACHE, HOME, flushed, of_mirrors, serve};
use crate::harness::Place;
use crate::harness::steps::{good, has, read_pattern, refused, stop};

const PAGE: usize = 4096;

/// Where the last header lies that tells of writes to this sector: in each member at the same place.
fn header_of(place: &Place, lba: u64) -> usize {
    let header = |page: &[u8]| page.starts_with(b"RstrpOvl") && page[96..104] == lba.to_le_bytes();
    let places = CACHE.iter().filter_map(|member| {
        let bytes = place.bytes(member);
        bytes.chunks_exact(PAGE).rposition(header)
    });
    PAGE * places.max().expect("the write lies in the log")
}

/// Zeros in place of a header are what is there where the log ends. With two parities any two members may have them.
#[test]
fn a_header_that_two_members_have_lost_is_made_anew() {
    let place = of_mirrors("code-cache-header");
    let test = "a_header_that_two_members_have_lost_is_made_anew";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let daemon = serve(&place, &[], &[]);
    for nth in 1..9 {
        flushed(&place, nth, &format!("{}K", u32::from(nth) * 64), "16K");
    }
    daemon.kill();
    good(place.shell("mkdir kept && cp --sparse=always [abcd][01] c[abcd] kept"));
    let lost = [2, 8].map(|nth| header_of(&place, nth * 128) as u64);
    for (nth, first) in CACHE.iter().enumerate() {
        for second in &CACHE[nth + 1..] {
            good(place.shell("cp --sparse=always kept/* ."));
            for member in [first, second] {
                for at in lost {
                    place.write(member, 0, at, &[0; PAGE]);
                }
            }
            let daemon = serve(&place, &[], &[]);
            for nth in 1..9 {
                let at = format!("{}K", u32::from(nth) * 64);
                good(read_pattern(&place, nth, &at, "16K"));
            }
            stop(&place, &daemon);
        }
    }
}

/// Members that are all there, with a log that tells nothing any more: it is called damaged, and not missing.
#[test]
fn a_damaged_log_is_not_called_missing() {
    let place = of_mirrors("code-cache-damaged");
    let test = "a_damaged_log_is_not_called_missing";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let daemon = serve(&place, &[], &[]);
    flushed(&place, 1, "0", "1M");
    daemon.kill();
    for member in CACHE {
        let anchors = place.bytes(member);
        let anchors = anchors.chunks_exact(PAGE).enumerate();
        for (nth, _) in anchors.filter(|(_, page)| page.starts_with(b"RstrpAnc")) {
            place.write(member, 0, (nth * PAGE) as u64, &[0xff; PAGE]);
        }
    }
    let all = [&HOME[..], &CACHE].concat();
    let told = refused(place.run(&[&["assemble"][..], &all].concat()));
    assert!(told.contains("the log of the surrogate "), "{told}");
    assert!(
        told.contains(" is damaged, and may have the only current copies of "),
        "{told}"
    );
    let daemon = serve(&place, &["--accept-loss"], &[]);
    refused(read_pattern(&place, 1, "0", "64K"));
    flushed(&place, 2, "0", "1M");
    daemon.kill();
    let daemon = serve(&place, &[], &[]);
    good(read_pattern(&place, 2, "0", "1M"));
    stop(&place, &daemon);
}
