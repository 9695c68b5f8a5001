//! What a device already carries: enough marks of file systems, volumes and arrays to keep `create` from overwriting
//! one by mistake. Not a complete list; an unknown content is still content, so `create` names its members first.

/// Bytes from the start of a device in which all marks of [`found_in_head`] lie.
pub(crate) const HEAD_BYTES: usize = 256 * 1024;
/// Bytes at its end in which those of [`found_in_tail`] lie.
pub(crate) const TAIL_BYTES: usize = 256 * 1024;

/// A mark: these bytes at this offset.
struct Mark {
    name: &'static str,
    offset: usize,
    bytes: &'static [u8],
}

const fn mark(name: &'static str, offset: usize, bytes: &'static [u8]) -> Mark {
    Mark {
        name,
        offset,
        bytes,
    }
}

/// Little-endian 0xa92b4efc, the magic of Linux md.
const MD: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];

/// The most telling first: a Restripe member may still show what was there before it.
const HEAD: &[Mark] = &[
    mark("a restripe array", 0, b"Restripe"),
    mark("a Linux md array (1.2)", 4096, MD),
    mark("a Linux md array (1.1)", 0, MD),
    mark("a LUKS volume", 0, b"LUKS\xba\xbe"),
    mark("an LVM volume", 512, b"LABELONE"),
    mark("an ext2/3/4 file system", 1080, &[0x53, 0xef]),
    mark("an XFS file system", 0, b"XFSB"),
    mark("a btrfs file system", 65600, b"_BHRfS_M"),
    mark("a ZFS pool", 131_072, &[0x0c, 0xb1, 0xba, 0]),
    mark("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    mark("an NTFS file system", 3, b"NTFS    "),
    mark("a FAT file system", 82, b"FAT32   "),
    mark("a FAT file system", 54, b"FAT"),
    mark("an exFAT file system", 3, b"EXFAT   "),
    mark("an ISO 9660 file system", 32769, b"CD001"),
    mark("a squashfs file system", 0, b"hsqs"),
    mark("swap space", 4086, b"SWAPSPACE2"),
    mark("a bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    mark("a qcow2 image", 0, b"QFI\xfb"),
    mark("a GPT partition table", 512, b"EFI PART"),
    mark("a GPT partition table", 4096, b"EFI PART"),
    mark("an MBR partition table or boot sector", 510, &[0x55, 0xaa]),
];

/// What the first bytes of a device are the mark of.
pub(crate) fn found_in_head(head: &[u8]) -> Option<&'static str> {
    HEAD.iter()
        .find(|mark| has(head, mark.offset, mark.bytes))
        .map(|mark| mark.name)
}

/// What the last bytes of a device are the mark of. `tail` ends where the device ends.
pub(crate) fn found_in_tail(tail: &[u8]) -> Option<&'static str> {
    let length = tail.len();
    // md 1.0: at least 8 KiB from the end, on a 4 KiB boundary.
    let one_zero = (8192..=12288)
        .step_by(512)
        .filter_map(|back| length.checked_sub(back));
    // md 0.90: the last whole 64 KiB block but one.
    let mut zero_ninety = (65536..=131_072)
        .step_by(512)
        .filter_map(|back| length.checked_sub(back));
    if one_zero.into_iter().any(|at| has(tail, at, MD)) {
        return Some("a Linux md array (1.0)");
    }
    if zero_ninety.any(|at| has(tail, at, MD)) {
        return Some("a Linux md array (0.90)");
    }
    (1..=8)
        .filter_map(|sectors| length.checked_sub(sectors * 512))
        .find_map(|at| {
            has(tail, at, b"EFI PART").then_some("a GPT partition table (its second copy)")
        })
}

fn has(bytes: &[u8], offset: usize, mark: &[u8]) -> bool {
    bytes.get(offset..offset + mark.len()) == Some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_devices_carry_nothing() {
        assert_eq!(found_in_head(&vec![0; HEAD_BYTES]), None);
        assert_eq!(found_in_tail(&vec![0; TAIL_BYTES]), None);
        assert_eq!((found_in_head(&[]), found_in_tail(&[])), (None, None));
    }

    #[test]
    fn every_mark_is_found_and_lies_in_the_head() {
        for mark in HEAD {
            let mut head = vec![0; HEAD_BYTES];
            head[mark.offset..mark.offset + mark.bytes.len()].copy_from_slice(mark.bytes);
            assert_eq!(found_in_head(&head), Some(mark.name));
        }
    }

    #[test]
    fn marks_at_the_end_are_found() {
        for (back, name) in [
            (8192, "a Linux md array (1.0)"),
            (65536, "a Linux md array (0.90)"),
            (131_072, "a Linux md array (0.90)"),
        ] {
            let mut tail = vec![0; TAIL_BYTES];
            tail[TAIL_BYTES - back..][..4].copy_from_slice(MD);
            assert_eq!(found_in_tail(&tail), Some(name));
        }
        let mut tail = vec![0; TAIL_BYTES];
        tail[TAIL_BYTES - 512..][..8].copy_from_slice(b"EFI PART");
        assert!(found_in_tail(&tail).is_some());
    }
}
