//! Reservations that outlive the daemon.

use super::initiator::{Initiator, NAME, hub, write_10};
use crate::nbd_protocol::world::World;
use restripe_array::Uuid;
use restripe_io::front::Protocol;
use restripe_io::front::iscsi::hub::{Hub, NAME_PREFIX, StateWriter};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const BUSY: u8 = 0x08;
const CONFLICT: u8 = 0x18;

/// A folder of its own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let name = format!("restripe-kept-{test}-{}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    fn file(&self) -> PathBuf {
        self.0.join(UUID.to_string())
    }

    /// A daemon that keeps reservations there, and the connections that it wakes.
    fn daemon(&self) -> (Arc<Hub>, Receiver<u32>) {
        let (woken, wakes) = mpsc::channel();
        let wake = move |connection| woken.send(connection).unwrap_or_default();
        let writer = StateWriter::start(self.0.clone(), wake, |_, _| ()).expect("a thread");
        let hub = hub();
        hub.keep(&writer, &[(0, UUID)])
            .expect("what is there is sound");
        (hub, wakes)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(&self.0);
    }
}

const UUID: Uuid = Uuid([7; 16]);

fn log_in(hub: &Arc<Hub>, number: u32) -> Initiator {
    let mut world = World::new(1 << 20);
    world.number = number;
    let mut one = Initiator::new(hub, world);
    let names = [
        format!("InitiatorName={NAME}-{number}"),
        format!("TargetName={NAME_PREFIX}disk"),
    ];
    let answer = one.log_in(1, 3, &names.each_ref().map(String::as_str));
    assert_eq!(answer.header[36], 0);
    one.attend();
    one
}

/// Sends a PERSISTENT RESERVE OUT; `keep`: APTPL.
fn persist(one: &mut Initiator, action: u8, key: u64, new: u64, keep: bool) {
    let kind = if action == RESERVE { 5 } else { 0 };
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let mut list = [&key.to_be_bytes()[..], &new.to_be_bytes(), &[0; 8]].concat();
    list[20] = u8::from(keep);
    let request = one.scsi(&cdb, 0, 24);
    one.send(request, &list);
}

/// Wakes a connection when its change is on the disk, and gives the status.
fn kept(one: &mut Initiator, wakes: &Receiver<u32>) -> u8 {
    assert_eq!(one.receive(), None, "nothing is answered before");
    assert_eq!(wakes.recv(), Ok(one.peer.world.number));
    one.peer.connection.woken(&mut one.peer.world);
    one.finish(&[]).status
}

fn keys(one: &mut Initiator) -> Vec<u8> {
    let data = one.read(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 255, 0], 255).data;
    data[8..].chunks(8).map(|key| key[7]).collect()
}

/// PTPL_C and PTPL_A.
fn persists(one: &mut Initiator) -> (bool, bool) {
    let data = one.read(&[0x5e, 2, 0, 0, 0, 0, 0, 0, 255, 0], 255).data;
    (data[2] & 1 != 0, data[3] & 1 != 0)
}

#[test]
fn a_reservation_holds_in_the_next_daemon() {
    let folder = Folder::new("restart");
    let (hub, wakes) = folder.daemon();
    let mut one = log_in(&hub, 1);
    assert_eq!(persists(&mut one), (true, false));
    persist(&mut one, REGISTER, 0, 11, true);
    assert_eq!(kept(&mut one, &wakes), 0);
    persist(&mut one, RESERVE, 11, 0, false);
    assert_eq!(kept(&mut one, &wakes), 0);
    assert_eq!(persists(&mut one), (true, true));
    drop((one, hub));

    let (hub, wakes) = folder.daemon();
    let mut two = log_in(&hub, 2);
    assert_eq!(two.write(&write_10(0, 1), &[1; 512], 512).status, CONFLICT);
    let mut one = log_in(&hub, 1);
    assert_eq!(
        (keys(&mut one), persists(&mut one)),
        (vec![11], (true, true))
    );
    assert_eq!(one.write(&write_10(0, 1), &[1; 512], 512).status, 0);
    persist(&mut one, CLEAR, 11, 0, false);
    assert_eq!(kept(&mut one, &wakes), 0);
    drop((one, two, hub));

    let (hub, wakes) = folder.daemon();
    let mut two = log_in(&hub, 2);
    assert_eq!(two.write(&write_10(0, 1), &[1; 512], 512).status, 0);
    assert!(keys(&mut two).is_empty());
    // Without APTPL a registration ends with the daemon, and so does the file.
    persist(&mut two, REGISTER, 0, 22, false);
    assert_eq!(kept(&mut two, &wakes), 0);
    assert!(!folder.file().exists());
    persist(&mut two, RESERVE, 22, 0, false);
    assert_eq!(two.finish(&[]).status, 0, "at once");
}

#[test]
fn changes_reach_the_disk_one_after_the_other() {
    let folder = Folder::new("busy");
    let (hub, wakes) = folder.daemon();
    let (mut one, mut two) = (log_in(&hub, 1), log_in(&hub, 2));
    // The second session is refused until the change of the first is on the disk.
    persist(&mut one, REGISTER, 0, 11, true);
    let mut refused = 0;
    loop {
        persist(&mut two, REGISTER, 0, 22, true);
        match two.receive() {
            Some(pdu) => {
                two.status_number();
                assert_eq!(pdu.header[3], BUSY);
                refused += 1;
            }
            None => break,
        }
    }
    assert_eq!(kept(&mut one, &wakes), 0);
    assert_eq!(kept(&mut two, &wakes), 0);
    assert_eq!(keys(&mut one), [11, 22], "after {refused} refusals");
}

#[test]
fn what_cannot_be_kept_is_refused_and_changes_nothing() {
    let folder = Folder::new("full");
    fs::write(&folder.0, "").expect("a file in its place");
    let (woken, wakes) = mpsc::channel();
    let (failures, failed) = mpsc::channel();
    let writer = StateWriter::start(
        folder.0.join("below"),
        move |connection| woken.send(connection).unwrap_or_default(),
        move |path, _| failures.send(path.to_owned()).unwrap_or_default(),
    );
    let (writer, hub) = (writer.expect("a thread"), hub());
    let refused = hub.keep(&writer, &[(0, UUID)]);
    assert!(refused.is_err(), "it cannot even be looked at");
    fs::remove_file(&folder.0).expect("ours");
    hub.keep(&writer, &[(0, UUID)]).expect("nothing is there");
    fs::write(&folder.0, "").expect("a file in its place");
    let mut one = log_in(&hub, 1);
    persist(&mut one, REGISTER, 0, 11, true);
    assert_eq!(kept(&mut one, &wakes), 2);
    assert!(failed.recv().is_ok(), "the reason is reported");
    assert_eq!(
        (keys(&mut one), persists(&mut one)),
        (vec![], (true, false))
    );
}

#[test]
fn a_damaged_file_is_no_reservation() {
    let folder = Folder::new("damaged");
    let (hub, wakes) = folder.daemon();
    let mut one = log_in(&hub, 1);
    persist(&mut one, REGISTER, 0, 11, true);
    assert_eq!(kept(&mut one, &wakes), 0);
    let sound = fs::read_to_string(folder.file()).expect("it is there");
    fs::write(folder.file(), sound.replace("0b", "0c")).expect("ours");
    let writer = StateWriter::start(folder.0.clone(), |_| (), |_, _| ()).expect("a thread");
    let (path, why) = Hub::new(Vec::new())
        .keep(&writer, &[(0, UUID)])
        .expect_err("damaged");
    assert_eq!(
        (path, why.as_str()),
        (folder.file(), "the checksum is wrong")
    );
}

/// Where no folder is given, an initiator is not promised anything.
#[test]
fn without_a_folder_nothing_outlives_the_daemon() {
    let mut one = log_in(&hub(), 1);
    assert_eq!(persists(&mut one), (false, false));
    persist(&mut one, REGISTER, 0, 11, true);
    assert_eq!(one.finish(&[]).sense, Some((5, 0x26, 0)));
}
