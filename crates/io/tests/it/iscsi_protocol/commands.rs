//! Commands and their data: lengths, digests, sequences, and what is refused.

use super::initiator::{Initiator, cdb_10, header, hub, put, read_10, write_10};
use crate::nbd_protocol::world::{Random, World};
use restripe_array::RequestOp;

const SIZE: usize = 4 << 20;

fn initiator(keys: &[&str]) -> Initiator {
    Initiator::logged_in(&hub(), World::new(SIZE), keys)
}

fn pattern(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Random::new(bytes as u64).fill(&mut data);
    data
}

/// Writes come with their command, unsolicited, or as they are asked for; reads in segments and bursts.
#[test]
fn data_comes_back_whatever_way_it_went() {
    for keys in [
        &["ImmediateData=No", "InitialR2T=Yes"][..],
        &[
            "ImmediateData=Yes",
            "MaxBurstLength=16384",
            "MaxRecvDataSegmentLength=1024",
        ],
        &[
            "HeaderDigest=CRC32C,None",
            "DataDigest=CRC32C,None",
            "MaxBurstLength=8192",
        ],
        &["HeaderDigest=CRC32C", "DataDigest=None"],
    ] {
        let mut one = initiator(keys);
        let immediate_allowed = !keys.contains(&"ImmediateData=No");
        for (lba, blocks, segment) in [(0, 1, 8192), (3, 64, 4096), (100, 333, 1000), (7, 8, 513)] {
            one.segment = segment;
            let data = pattern(blocks * 512);
            let immediate = if immediate_allowed {
                data.len().min(777)
            } else {
                0
            };
            let write = one.write(&write_10(lba, blocks as u16), &data, immediate);
            assert_eq!((write.status, write.residual), (0, 0), "{keys:?}");
            let read = one.read(&read_10(lba, blocks as u16), data.len());
            assert!(read.data == data && read.status == 0, "{keys:?} {lba}");
        }
        assert!(one.peer.close().buffers.is_empty());
    }
}

/// MaxRecvDataSegmentLength is declared at any time (RFC 7143 section 13.12).
#[test]
fn segments_are_as_long_as_was_declared_last() {
    let mut one = initiator(&["MaxRecvDataSegmentLength=1024"]);
    for (declared, answer, longest) in [
        ("4096", "", 4096),
        ("511", "MaxRecvDataSegmentLength=Reject", 4096),
        ("512", "", 512),
    ] {
        let declared = format!("MaxRecvDataSegmentLength={declared}\0InitiatorAlias=one");
        assert_eq!(one.text(&declared).text().trim(), answer);
        let request = one.scsi(&read_10(0, 16), 8192, 0);
        one.send(request, &[]);
        one.peer.settle();
        for _ in 0..8192 / longest {
            let piece = one.receive().expect("data");
            assert_eq!((piece.opcode(), piece.data.len()), (0x25, longest));
        }
        assert_eq!(one.receive(), None);
        one.status_number();
    }
}

/// Its number is taken all the same: without it the next command would be a gap.
#[test]
fn a_ping_that_is_too_long_is_rejected_and_the_session_goes_on() {
    let mut one = initiator(&[]);
    let mut ping = header(0x00, 0x80, 99);
    put(&mut ping, 20, u32::MAX);
    put(&mut ping, 24, one.command);
    one.command += 1;
    one.send(ping, &[5; 40_000]);
    let answer = one.receive().expect("it is answered");
    assert_eq!((answer.opcode(), answer.header[2]), (0x3f, 4));
    one.status_number();
    assert_eq!(one.read(&[0; 6], 0).status, 0);
}

#[test]
fn unsolicited_data_follows_its_command() {
    let mut one = initiator(&["InitialR2T=No", "FirstBurstLength=4096"]);
    let data = pattern(8192);
    let mut request = one.scsi(&write_10(0, 16), 0, data.len());
    request[1] &= !0x80;
    one.send(request, &data[..1000]);
    one.segment = 2000;
    one.unsolicited(&data, 1000, 4096);
    assert_eq!(one.finish(&data).status, 0);
    assert!(one.read(&read_10(0, 16), 8192).data == data);
}

#[test]
fn a_flipped_bit_ends_the_session() {
    for (digest, at) in [("HeaderDigest=CRC32C", 35), ("DataDigest=CRC32C", 60)] {
        let mut one = initiator(&[digest]);
        let data = pattern(512);
        let request = one.scsi(&write_10(0, 1), 0, 512);
        let mut bytes = one.encode(request, &data);
        bytes[at] ^= 4;
        one.peer.feed(&bytes);
        one.peer.settle();
        assert!(one.peer.ended(), "{digest}");
        let world = one.peer.close();
        assert!(world.log.is_empty(), "nothing was written");
    }
}

/// As above, of what follows a command, and of what is received whole: data that was asked for, text, pings.
#[test]
fn a_flipped_bit_of_later_data_ends_the_session() {
    for (opcode, flipped) in [(0x05, false), (0x05, true), (0x44, true), (0x40, true)] {
        let mut one = initiator(&["ImmediateData=No", "DataDigest=CRC32C"]);
        let request = one.scsi(&write_10(0, 1), 0, 512);
        one.send(request, &[]);
        let asked = one.receive().expect("data is asked for");
        let mut pdu = header(opcode, 0x80, one.tag);
        let target = if opcode == 0x05 {
            asked.number(20)
        } else {
            u32::MAX
        };
        put(&mut pdu, 20, target);
        let mut bytes = one.encode(pdu, &[b'A'; 512]);
        bytes[48 + 100] ^= if flipped { 4 } else { 0 };
        one.peer.feed(&bytes);
        one.peer.settle();
        assert_eq!(one.peer.ended(), flipped, "{opcode:#x}");
        let written = one.peer.abandon().log.len();
        assert_eq!(written, usize::from(!flipped), "{opcode:#x}");
    }
}

/// A segment may be far longer than what its command wants of it: the rest is passed over, and checked.
#[test]
fn what_a_command_does_not_want_is_passed_over_and_checked() {
    let keys = ["FirstBurstLength=262144", "DataDigest=CRC32C"];
    for flip in [None, Some(48 + 100), Some(48 + 150_000)] {
        let mut one = initiator(&keys);
        let data = pattern(200_000);
        let request = one.scsi(&write_10(0, 1), 0, data.len());
        let mut bytes = one.encode(request, &data);
        if let Some(at) = flip {
            bytes[at] ^= 4;
        }
        for piece in bytes.chunks(10_000) {
            one.peer.feed(piece);
        }
        if flip.is_some() {
            assert!(one.peer.ended(), "the digest is wrong");
            assert!(one.peer.close().log.is_empty(), "nothing was written");
            continue;
        }
        let write = one.finish(&[]);
        assert_eq!((write.status, write.residual), (0, 512 - 200_000));
        assert!(one.read(&read_10(0, 1), 512).data == data[..512]);
    }
}

#[test]
fn a_wrong_sequence_of_data_ends_its_command() {
    for (field, value) in [(36, 1), (40, 512)] {
        let mut one = initiator(&["ImmediateData=No"]);
        let request = one.scsi(&write_10(0, 2), 0, 1024);
        one.send(request, &[]);
        let asked = one.receive().expect("data is asked for");
        assert_eq!((asked.opcode(), asked.number(44)), (0x31, 1024));
        let mut pdu = header(0x05, 0x80, one.tag);
        put(&mut pdu, 20, asked.number(20));
        put(&mut pdu, field, value);
        one.send(pdu, &[1; 1024]);
        let outcome = one.finish(&[]);
        assert_eq!((outcome.status, outcome.sense), (2, Some((0x0b, 0x4b, 0))));
        // What follows is of a task that is gone.
        one.send(pdu, &[1; 1024]);
        assert_eq!(one.read(&[0; 6], 0).status, 0);
        let world = one.peer.close();
        assert!(world.log.is_empty(), "nothing was written");
    }
}

#[test]
fn lengths_that_do_not_fit_are_residuals() {
    let mut one = initiator(&[]);
    let read = one.read(&read_10(0, 2), 512);
    assert_eq!((read.status, read.data.len(), read.residual), (0, 512, 512));
    let read = one.read(&read_10(0, 1), 2048);
    assert_eq!(
        (read.status, read.data.len(), read.residual),
        (0, 512, -1536)
    );
    let write = one.write(&write_10(0, 2), &[7; 512], 512);
    assert_eq!((write.status, write.residual), (0, 512));
    assert_eq!(
        one.peer.world.disk[500..520],
        [[7; 12], [0; 12]].concat()[..20]
    );
    let write = one.write(&write_10(0, 1), &[8; 2000], 2000);
    assert_eq!((write.status, write.residual), (0, -1488));
    assert_eq!(one.peer.world.disk[511..513], [8, 0]);
}

#[test]
fn what_cannot_be_is_a_check_condition() {
    let mut one = initiator(&[]);
    let sense = |one: &mut Initiator, cdb: &[u8], bytes: usize| {
        let outcome = one.read(cdb, bytes);
        assert_eq!(outcome.status, 2, "{cdb:?}");
        outcome.sense
    };
    let blocks = (SIZE / 512) as u32;
    assert_eq!(
        sense(&mut one, &read_10(blocks, 1), 512),
        Some((5, 0x21, 0))
    );
    assert_eq!(
        sense(&mut one, &read_10(u32::MAX, 1), 512),
        Some((5, 0x21, 0))
    );
    assert_eq!(sense(&mut one, &[0x9c], 0), Some((5, 0x20, 0)));
    assert_eq!(
        sense(&mut one, &[0x12, 1, 0xcc, 0, 255], 255),
        Some((5, 0x24, 0))
    );
    let short = one.write(&write_10(0, 1), &[0; 100], 100);
    assert_eq!(short.sense, Some((5, 0x0e, 3)));
    one.peer.world.lost = Some((1024, 2048));
    let lost = one.read(&read_10(0, 8), 4096);
    assert_eq!((lost.status, lost.sense), (2, Some((3, 0x11, 0))));
    assert!(one.peer.close().buffers.is_empty());
}

#[test]
fn commands_beyond_the_window_are_ignored_and_a_gap_ends_the_session() {
    let mut one = initiator(&[]);
    let now = one.command;
    for number in [
        now.wrapping_sub(1),
        now.wrapping_add(128),
        now.wrapping_add(1 << 30),
    ] {
        one.command = number;
        let request = one.scsi(&[0; 6], 0, 0);
        one.send(request, &[]);
        assert_eq!(one.receive(), None);
    }
    one.command = now;
    assert_eq!(one.read(&[0; 6], 0).status, 0);
    one.command += 1;
    let request = one.scsi(&[0; 6], 0, 0);
    one.send(request, &[]);
    assert!(one.peer.ended());
}

#[test]
fn writes_wait_for_memory_without_stopping_the_data_of_others() {
    let mut world = World::new(SIZE);
    world.budget = 64 << 10;
    let mut one = Initiator::logged_in(&hub(), world, &["ImmediateData=No"]);
    let mut requests = Vec::new();
    for lba in 0..4 {
        let request = one.scsi(&write_10(lba * 96, 96), 0, 48 << 10);
        one.send(request, &[]);
        requests.push(one.tag);
    }
    for (lba, tag) in (0..4_u8).zip(requests) {
        one.tag = tag;
        let data = vec![lba + 1; 48 << 10];
        assert_eq!(one.finish(&data).status, 0, "one after the other");
    }
    let world = one.peer.close();
    let firsts = [0, 1, 2, 3].map(|lba| world.disk[lba * 96 * 512]);
    assert_eq!(firsts, [1, 2, 3, 4]);
    assert!(world.memory_peak <= 64 << 10);
}

/// A field of page B0 (block limits).
fn limit(one: &mut Initiator, at: usize) -> u32 {
    let page = one.read(&[0x12, 1, 0xb0, 0, 64, 0], 64).data;
    u32::from_be_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn an_unmap_beyond_the_reported_limit_is_refused() {
    let mut one = initiator(&[]);
    one.peer.world.exports[0].size_bytes = 1 << 40;
    assert_eq!(one.read(&[0; 6], 0).status, 2, "it has grown");
    let most = limit(&mut one, 20);
    assert_eq!(most, (512 << 20) / 512);
    let mut list = vec![0; 24];
    (list[1], list[3]) = (22, 16);
    list[16..20].copy_from_slice(&(most + 1).to_be_bytes());
    let refused = one.write(&cdb_10(0x42, 0, 24), &list, 24);
    assert_eq!((refused.status, refused.sense), (2, Some((5, 0x26, 0))));
    assert!(one.peer.close().log.is_empty(), "nothing was unmapped");
}

#[test]
fn each_transfer_may_be_as_long_as_is_reported() {
    let keys = ["MaxRecvDataSegmentLength=1048576"];
    let mut one = Initiator::logged_in(&hub(), World::new(16 << 20), &keys);
    let blocks = limit(&mut one, 8);
    let bytes = blocks as usize * 512;
    one.segment = 64 << 10;
    let cdb = |opcode: u8, flags: u8| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (opcode, flags);
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        cdb
    };
    let data = vec![0xc3; bytes];
    // WRITE, ORWRITE, WRITE AND VERIFY, VERIFY of all bytes.
    for (opcode, flags) in [(0x8a, 0), (0x8b, 0), (0x8e, 0x02), (0x8f, 0x02)] {
        let outcome = one.write(&cdb(opcode, flags), &data, 0);
        assert_eq!((outcome.status, outcome.sense), (0, None), "{opcode:#x}");
    }
    assert!(one.read(&cdb(0x88, 0), bytes).data == data);
    assert!(one.peer.close().buffers.is_empty());
}

/// GET LBA STATUS (16) from the first block, the first descriptor of the answer.
fn lba_status() -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x12, 24);
    cdb
}

/// Descriptors of a GET LBA STATUS from a block: first block, blocks, whether it is deallocated.
fn statuses(one: &mut Initiator, lba: u64, length: u32) -> Vec<(u64, u32, bool)> {
    let mut cdb = lba_status();
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    let outcome = one.read(&cdb, length as usize);
    assert_eq!(outcome.status, 0);
    let (list, rest) = outcome.data[8..].as_chunks::<16>();
    assert!(rest.is_empty());
    let descriptor = |one: &[u8; 16]| {
        let number = |from: usize, until: usize| {
            let bytes = one[from..until].iter();
            bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        (number(0, 8), number(8, 12) as u32, number(12, 13) == 1)
    };
    list.iter().map(descriptor).collect()
}

/// Odd pages of the medium are holes.
#[test]
fn the_status_of_blocks_is_that_of_the_map() {
    let mut one = Initiator::logged_in(&hub(), World::new(32 << 10), &[]);
    let pages = |from: u64| (from..8).map(|page| (page * 8, 8, page % 2 == 1));
    assert_eq!(statuses(&mut one, 0, 4096), pages(0).collect::<Vec<_>>());
    // From within a page: the rest of it, then the others.
    let rest = [(13, 3, true)].into_iter().chain(pages(2));
    assert_eq!(statuses(&mut one, 13, 4096), rest.collect::<Vec<_>>());
    assert_eq!(statuses(&mut one, 63, 4096), [(63, 1, true)]);
    // The list says how long it is, and is cut where the initiator asks.
    assert_eq!(statuses(&mut one, 0, 24), [(0, 8, false)]);
    let head = one.read(&lba_status(), 24).data;
    assert_eq!(head[..8], [0, 0, 0, 4 + 8 * 16, 0, 0, 0, 0]);
    let mut beyond = lba_status();
    beyond[9] = 64;
    assert_eq!(one.read(&beyond, 24).sense, Some((5, 0x21, 0)));
}

/// Each looks at 256 MiB of the map, which is one turn's work of the reactor.
#[test]
fn commands_without_memory_wait_for_their_turn() {
    let mut world = World::new(SIZE);
    world.exports[0].size_bytes = 1 << 40;
    let mut one = Initiator::logged_in(&hub(), world, &[]);
    let mut stream = Vec::new();
    for _ in 0..100 {
        let request = one.scsi(&lba_status(), 24, 0);
        stream.extend(one.encode(request, &[]));
    }
    let request = one.scsi(&write_10(0, 1), 0, 512);
    stream.extend(one.encode(request, &[7; 512]));
    one.peer.feed(&stream);
    for turn in 1..=100 {
        assert_eq!(one.peer.world.maps, turn, "one in each turn");
        let answer = one.receive().expect("one is answered");
        assert_eq!((answer.opcode(), answer.header[3]), (0x25, 0));
        one.status_number();
    }
    assert_eq!(one.finish(&[]).status, 0, "the write was not refused");
}

#[test]
fn fua_a_pattern_and_zeros_reach_the_engine() {
    let mut one = initiator(&[]);
    let mut cdb = write_10(8, 1);
    cdb[1] = 0x08;
    assert_eq!(one.write(&cdb, &[1; 512], 512).status, 0);
    assert_eq!(one.read(&cdb_10(0x35, 0, 0), 0).status, 0);
    cdb[0] = 0x28;
    assert_eq!(one.read(&cdb, 512).data, [1; 512]);
    assert_eq!(one.write(&cdb_10(0x41, 16, 4), &[9; 512], 512).status, 0);
    assert_eq!(one.write(&cdb_10(0x41, 20, 4), &[0; 512], 512).status, 0);
    // COMPARE AND WRITE, ORWRITE, with and without. WRITE AND VERIFY always has it.
    for fua in [0x08, 0] {
        let mut compare = atomic(0x89, 24, 1);
        compare[1] = fua;
        assert_eq!(one.write(&compare, &[0; 1024], 1024).status, 0);
        let mut or = atomic(0x8b, 24, 1);
        or[1] = fua;
        assert_eq!(one.write(&or, &[4; 512], 512).status, 0);
        assert_eq!(one.write(&write_10(24, 1), &[0; 512], 512).status, 0);
    }
    assert_eq!(one.write(&atomic(0x8e, 32, 1), &[5; 512], 512).status, 0);
    let zero = RequestOp::WriteZeroes { fast: false };
    let world = one.peer.close();
    let expected = [
        (RequestOp::Write, 4096, 512, true),
        (RequestOp::Flush, 0, 0, false),
        // What a read with FUA sends is durable: a flush follows it.
        (RequestOp::Read, 4096, 512, false),
        (RequestOp::Flush, 0, 0, false),
        (RequestOp::Write, 8192, 2048, false),
        (zero, 10240, 2048, false),
        (RequestOp::CompareAndWrite, 12288, 512, true),
        (RequestOp::Or, 12288, 512, true),
        (RequestOp::Write, 12288, 512, false),
        (RequestOp::CompareAndWrite, 12288, 512, false),
        (RequestOp::Or, 12288, 512, false),
        (RequestOp::Write, 12288, 512, false),
        (RequestOp::Write, 16384, 512, true),
        (RequestOp::Read, 16384, 512, false),
    ];
    assert_eq!(world.log, expected);
    assert_eq!(world.disk[8192..10240], [9; 2048]);
}

/// No command that is to make data durable is accepted and then does less.
#[test]
fn durability_is_refused_where_a_member_has_none() {
    let mut one = initiator(&[]);
    one.peer.world.exports[0].durable = false;
    let fua = |mut cdb: [u8; 16]| {
        cdb[1] |= 0x08;
        cdb
    };
    let of = |cdb: [u8; 10]| {
        let mut long = [0; 16];
        long[..10].copy_from_slice(&cdb);
        long
    };
    for (cdb, bytes) in [
        (fua(of(write_10(0, 1))), 512),
        (fua(atomic(0x8a, 0, 1)), 512),
        (fua(atomic(0x89, 0, 1)), 1024),
        (fua(atomic(0x8b, 0, 1)), 512),
        (of(cdb_10(0x2e, 0, 1)), 512),
        (atomic(0x8e, 0, 1), 512),
    ] {
        let refused = one.write(&cdb, &vec![1; bytes], bytes);
        assert_eq!(refused.sense, Some((5, 0x24, 0)), "{cdb:x?}");
    }
    for cdb in [fua(of(read_10(0, 1))), of(cdb_10(0x35, 0, 0))] {
        assert_eq!(one.read(&cdb, 512).sense, Some((5, 0x24, 0)), "{cdb:x?}");
    }
    assert!(one.peer.close().log.is_empty());
}

fn atomic(opcode: u8, lba: u8, blocks: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[9], cdb[13]) = (opcode, lba, blocks);
    cdb
}

#[test]
fn compare_and_write_writes_what_was_compared_alone() {
    let mut one = initiator(&["ImmediateData=No"]);
    let [old, new] = [1, 2].map(|seed| pattern(512 * 3 + seed)[..1536].to_vec());
    assert_eq!(one.write(&write_10(5, 3), &old, 0).status, 0);
    let cdb = atomic(0x89, 5, 3);
    let both = [&old[..], &new].concat();
    assert_eq!(one.write(&cdb, &both, 0).status, 0);
    assert!(one.read(&read_10(5, 3), 1536).data == new);
    // The same again: the medium has other bytes now.
    let again = one.write(&cdb, &both, 0);
    assert_eq!((again.status, again.sense), (2, Some((0x0e, 0x1d, 0))));
    let first = old.iter().zip(&new).position(|(a, b)| a != b);
    assert_eq!(again.information, first.map(|at| at as u32));
    assert!(
        one.read(&read_10(5, 3), 1536).data == new,
        "nothing was written"
    );
    // Without blocks there is nothing to compare; what does not fit the command is refused.
    assert_eq!(one.write(&atomic(0x89, 5, 0), &[], 0).status, 0);
    for bytes in [1536, 2048, 3584] {
        let refused = one.write(&cdb, &pattern(bytes), 0);
        assert_eq!(refused.sense, Some((5, 0x24, 0)), "{bytes} bytes");
    }
    assert!(one.read(&read_10(5, 3), 1536).data == new);
    assert!(one.peer.close().buffers.is_empty());
}

#[test]
fn or_write_sets_bits() {
    let mut one = initiator(&[]);
    let (before, given) = (pattern(1024), pattern(1025)[1..].to_vec());
    assert_eq!(one.write(&write_10(9, 2), &before, 512).status, 0);
    assert_eq!(one.write(&atomic(0x8b, 9, 2), &given, 512).status, 0);
    let after: Vec<u8> = before
        .iter()
        .zip(&given)
        .map(|(one, other)| one | other)
        .collect();
    assert!(one.read(&read_10(9, 2), 1024).data == after);
    assert!(one.peer.close().buffers.is_empty());
}

#[test]
fn verification_finds_the_byte_that_differs() {
    let mut one = initiator(&[]);
    let mut data = pattern(4096);
    assert_eq!(one.write(&cdb_10(0x2e, 0, 8), &data, 4096).status, 0);
    let mut verify = cdb_10(0x2f, 0, 8);
    verify[1] = 0x02;
    assert_eq!(one.write(&verify, &data, 0).status, 0);
    data[4000] ^= 1;
    let differs = one.write(&verify, &data, 0);
    assert_eq!((differs.status, differs.sense), (2, Some((0x0e, 0x1d, 0))));
}
