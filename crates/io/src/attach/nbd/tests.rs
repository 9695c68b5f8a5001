//! What is done when, against a model of the kernel.

use super::attachment::Attachment;
use super::dial::Dialer;
use super::kernel::{Kernel, Setup};
use crate::attach::hold::{Devices, Seen, no_other_device};
use crate::attach::machine::{self, SIZE, UUID};
use crate::attach::node::Node;
use crate::attach::record::Places;
use crate::attach::served::{Attachment as _, Tended};
use crate::control::{AttachOptions, Driver, Refusal};
use crate::nbd_wire::client::ExportInfo;
use crate::nbd_wire::transmission_flags as flags;
use restripe_array::Uuid;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const OPTIONS: AttachOptions = AttachOptions {
    driver: Driver::Nbd,
    connections: 3,
    timeout_seconds: 30,
    grace_seconds: 300,
    read_only: false,
    block_bytes: 4096,
};

/// A device of the model: what it was made of, and the connections that it holds.
struct Made {
    setup: Setup,
    sockets: Vec<OwnedFd>,
}

/// A kernel with three devices. It holds copies of sockets as the kernel does.
#[derive(Default)]
struct Model {
    devices: RefCell<BTreeMap<u32, Made>>,
    /// A device that something has mounted.
    mounted: Cell<Option<u32>>,
    /// Refuses everything with this error.
    refuses: Cell<Option<i32>>,
    /// Gives no answer to a connection that it makes.
    is_silent: Cell<bool>,
    refuses_end: Cell<bool>,
}

impl Model {
    /// The daemon dies: all its ends of connections are gone.
    fn lose_connections(&self) {
        for made in self.devices.borrow_mut().values_mut() {
            made.sockets.clear();
        }
    }

    fn setup(&self, device: u32) -> Setup {
        self.devices.borrow()[&device].setup.clone()
    }

    fn sockets(&self, device: u32) -> usize {
        self.devices.borrow()[&device].sockets.len()
    }

    fn change(
        &self,
        device: u32,
        backend: &str,
        change: impl FnOnce(&mut Made) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut devices = self.devices.borrow_mut();
        match devices.get_mut(&device) {
            Some(made) if made.setup.backend == backend => change(made),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

impl Kernel for Model {
    fn connect(&self, device: u32, setup: &Setup, sockets: &[OwnedFd]) -> io::Result<()> {
        if let Some(errno) = self.refuses.get() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let mut devices = self.devices.borrow_mut();
        if devices.contains_key(&device) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let made = Made {
            setup: setup.clone(),
            sockets: copies(sockets)?,
        };
        devices.insert(device, made);
        match self.is_silent.get() {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(()),
        }
    }

    fn reconnect(&self, device: u32, backend: &str, sockets: &[OwnedFd]) -> io::Result<()> {
        self.change(device, backend, |made| {
            made.sockets.extend(copies(sockets)?);
            Ok(())
        })
    }

    fn resize(&self, device: u32, backend: &str, bytes: u64) -> io::Result<()> {
        self.change(device, backend, |made| {
            made.setup.size_bytes = bytes;
            Ok(())
        })
    }
}

impl Devices for Model {
    fn driver(&self) -> Driver {
        Driver::Nbd
    }

    fn shown(&self) -> Vec<(u32, Seen)> {
        [0, 1, 2].map(|device| (device, self.seen(device))).into()
    }

    fn disconnect(&self, device: u32, _held: Option<File>) -> io::Result<()> {
        if self.refuses_end.get() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.devices.borrow_mut().remove(&device);
        Ok(())
    }

    fn seen(&self, device: u32) -> Seen {
        match self.devices.borrow().get(&device) {
            Some(made) => Seen::Connected(Some(made.setup.backend.clone())),
            None if device < 3 => Seen::Idle,
            None => Seen::Missing,
        }
    }

    fn hold(&self, device: u32) -> io::Result<Option<File>> {
        match self.mounted.get() == Some(device) {
            true => Err(ErrorKind::ResourceBusy.into()),
            false => Ok(None),
        }
    }

    fn users(&self, _device: u32) -> Vec<String> {
        vec!["mounted at /mnt".into()]
    }
}

fn node(number: u32) -> Node {
    Node::new(Driver::Nbd, number)
}

fn copies(sockets: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    sockets.iter().map(OwnedFd::try_clone).collect()
}

/// The export gives connections. The model says which of them live.
impl Dialer for World {
    fn dial(&self, _read_only: bool) -> io::Result<(OwnedFd, ExportInfo)> {
        let (client, _server) = UnixStream::pair()?;
        let info = ExportInfo {
            size_bytes: SIZE,
            flags: self.flags,
            block_minimum: self.block_minimum,
            block_preferred: 4096,
            payload_maximum: 1 << 25,
        };
        Ok((client.into(), info))
    }

    fn alive(&self) -> usize {
        let devices = self.model.devices.borrow();
        devices.values().map(|made| made.sockets.len()).sum()
    }
}

/// A kernel, and an array with these properties.
struct World {
    model: Model,
    flags: u16,
    block_minimum: u32,
}

impl Default for World {
    fn default() -> World {
        World {
            model: Model::default(),
            flags: flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_FUA | flags::CAN_MULTI_CONN,
            block_minimum: 1,
        }
    }
}

impl machine::World for World {
    type Attachment = Attachment;

    fn kernel(&self) -> &(dyn Kernel + 'static) {
        &self.model
    }

    fn server(&self) -> &(dyn Dialer + 'static) {
        self
    }
}

type Machine = machine::Machine<World>;

/// It may be a living one of another daemon, that serves a copy of the array.
#[test]
fn a_device_without_a_record_is_named_and_not_ended() {
    let machine = Machine::new("lost-record");
    machine.begin(Some(1), OPTIONS).expect("a free device");
    let other = |uuid, own| no_other_device(&machine.model, &Attachment::backend(uuid), own);
    for living in [true, false] {
        if !living {
            machine
                .places
                .clear(node(1))
                .expect("its record and link go");
            machine.model.lose_connections();
        }
        for own in [None, Some(0)] {
            let refused = other(UUID, own).expect_err("it may be another daemon's");
            assert_eq!(refused.at, "/dev/nbd1");
        }
        assert_eq!(other(UUID, Some(1)), Ok(()), "its own");
        assert_eq!(other(Uuid([8; 16]), None), Ok(()), "another array's");
        assert_eq!(machine.model.sockets(1), if living { 3 } else { 0 });
    }
    for device in [None, Some(2)] {
        let second = machine.begin(device, OPTIONS).err();
        assert!(second.is_some_and(|why| why.contains("has the array's identifier")));
    }
    assert!(machine.is_clear() && machine.model.devices.borrow().len() == 1);
    machine.model.disconnect(1, None).expect("a person ends it");
    assert_eq!(other(UUID, None), Ok(()));
}

#[test]
fn the_first_free_device_is_connected_with_all_that_it_needs() {
    let machine = Machine::new("first");
    machine.begin(None, OPTIONS).expect("the first is free");
    let mut other = Machine::new("second");
    other.uuid = Uuid([8; 16]);
    // The same kernel, and another array.
    other.model.devices.swap(&machine.model.devices);
    let attachment = other.begin(None, OPTIONS).expect("the second is free");
    assert_eq!(attachment.record.device, 1);
    let setup = other.model.setup(1);
    assert_eq!((setup.size_bytes, setup.block_bytes), (SIZE, 4096));
    assert_eq!((setup.timeout.as_secs(), setup.grace.as_secs()), (30, 300));
    assert_eq!(setup.flags, other.flags);
    assert_eq!(setup.backend, format!("restripe:{}", other.uuid));
    assert_eq!(other.model.sockets(1), 3);
    assert_eq!(other.places.read(), Ok(Some(attachment.record)));
    assert_eq!(other.places.linked(), Ok(Some(node(1))));
}

#[test]
fn devices_are_made_where_none_is_free() {
    let machine = Machine::new("more");
    for number in 0..3 {
        let other = format!("restripe:{number}");
        let setup = Setup {
            backend: other,
            ..setup()
        };
        machine
            .model
            .connect(number, &setup, &[])
            .expect("it is free");
    }
    let attachment = machine
        .begin(None, OPTIONS)
        .expect("the kernel makes a fourth");
    assert_eq!(attachment.record.device, 3);
}

fn setup() -> Setup {
    Setup {
        size_bytes: SIZE,
        block_bytes: 512,
        flags: 1,
        timeout: OPTIONS.timeout(),
        grace: OPTIONS.grace(),
        backend: "other".into(),
    }
}

#[test]
fn a_refused_attachment_leaves_nothing() {
    let machine = Machine::new("refused");
    machine.model.connect(1, &setup(), &[]).expect("it is free");
    let busy = machine.begin(Some(1), OPTIONS).err();
    assert!(busy.is_some_and(|why| why.contains("another client")));
    assert!(machine.is_clear());
    machine.model.refuses.set(Some(libc::EPERM));
    let no_right = machine.begin(None, OPTIONS).err();
    assert!(no_right.is_some_and(|why| why.contains("CAP_SYS_ADMIN")));
    machine.model.refuses.set(None);
    for options in [
        AttachOptions {
            connections: 0,
            ..OPTIONS
        },
        AttachOptions {
            connections: 17,
            ..OPTIONS
        },
        AttachOptions {
            block_bytes: 256,
            ..OPTIONS
        },
        AttachOptions {
            block_bytes: 8192,
            ..OPTIONS
        },
        AttachOptions {
            block_bytes: 1000,
            ..OPTIONS
        },
        AttachOptions {
            timeout_seconds: 0,
            ..OPTIONS
        },
        AttachOptions {
            grace_seconds: 0,
            ..OPTIONS
        },
        AttachOptions {
            timeout_seconds: 42_949_673,
            ..OPTIONS
        },
    ] {
        assert!(machine.begin(None, options).is_err(), "{options:?}");
    }
    let mut coarse = Machine::new("coarse");
    coarse.block_minimum = 4096;
    assert!(
        coarse
            .begin(
                None,
                AttachOptions {
                    block_bytes: 512,
                    ..OPTIONS
                }
            )
            .is_err()
    );
    assert!(machine.is_clear() && coarse.is_clear());
}

/// Only the record leads back to a device that the kernel may still have.
#[test]
fn a_half_attached_device_keeps_its_record_until_it_is_gone() {
    let silent = Machine::new("silent");
    silent.model.is_silent.set(true);
    assert!(silent.begin(None, OPTIONS).is_err());
    let unlinked = Machine::new("no-link");
    fs::create_dir_all(unlinked.folder.join("dev/.tank")).expect("a folder in the way");
    unlinked.model.refuses_end.set(true);
    let why = unlinked.begin(None, OPTIONS).err().expect("it has no link");
    assert!(why.contains("and the device is not gone"), "{why}");
    unlinked.model.refuses_end.set(false);
    for machine in [silent, unlinked] {
        let ended = machine.end_unserved();
        assert!(ended.is_ok_and(|found| found.is_some()) && machine.is_clear());
        assert!(machine.model.devices.borrow().is_empty());
    }
}

#[test]
fn what_is_in_the_place_of_the_link_is_not_replaced() {
    let machine = Machine::new("link");
    let link = machine.folder.join("dev/tank");
    fs::create_dir_all(&link).expect("a folder");
    assert!(machine.begin(None, OPTIONS).is_err());
    fs::remove_dir(&link).expect("ours");
    machine
        .places
        .make_link(node(2))
        .expect("a link to a free device");
    machine.model.connect(2, &setup(), &[]).expect("it is free");
    assert!(
        machine.begin(None, OPTIONS).is_err(),
        "the link leads to another's device"
    );
    machine.model.disconnect(2, None).expect("it is connected");
    machine
        .begin(None, OPTIONS)
        .expect("a stale link is replaced");
}

#[test]
fn making_a_link_leaves_the_links_of_other_arrays() {
    let machine = Machine::new("names");
    let link = |name: &str| {
        let places = Places::within(&machine.folder, &machine.folder.join("dev"), name, "boot");
        places.make_link(node(1)).expect("a folder of ours");
        places
    };
    let others = ["tank.new", "tank-new", "tank.tmp", "tank.0", "tan"].map(link);
    machine.places.make_link(node(2)).expect("a folder of ours");
    for other in others {
        assert_eq!(other.linked(), Ok(Some(node(1))), "{}", other.link());
    }
    let links = fs::read_dir(machine.folder.join("dev")).expect("a folder");
    assert_eq!(links.count(), 6, "nothing else is left there");
}

#[test]
fn the_next_daemon_reconnects_the_device_and_passes_the_size_on() {
    let machine = Machine::new("resume");
    let first = machine.begin(Some(2), OPTIONS).expect("it is free");
    machine.model.lose_connections();
    machine
        .model
        .resize(2, &first.record.backend, SIZE / 2)
        .expect("ours");
    let mut second = machine.resume().expect("ours").expect("the kernel has it");
    assert_eq!(second.record, first.record);
    assert_eq!(
        (machine.model.sockets(2), machine.model.setup(2).size_bytes),
        (3, SIZE)
    );
    assert_eq!(machine.tend(&mut second, SIZE), Ok(Tended::Well));
    assert_eq!(
        machine.tend(&mut second, 2 * SIZE),
        Ok(Tended::Resized(2 * SIZE))
    );
    assert_eq!(machine.model.setup(2).size_bytes, 2 * SIZE);
    machine.model.lose_connections();
    assert_eq!(machine.tend(&mut second, 0), Ok(Tended::Reconnected(3)));
    assert_eq!(machine.tend(&mut second, 2 * SIZE), Ok(Tended::Well));
    machine
        .model
        .disconnect(2, None)
        .expect("another program does that");
    assert_eq!(machine.tend(&mut second, SIZE), Ok(Tended::Gone));
    assert!(machine.is_clear());
}

#[test]
fn a_device_that_is_not_this_arrays_is_left_alone() {
    let none = Machine::new("none");
    assert!(none.resume().is_ok_and(|found| found.is_none()));
    let mut machine = Machine::new("other");
    machine.begin(None, OPTIONS).expect("it is free");
    machine.model.lose_connections();
    machine.uuid = Uuid([9; 16]);
    assert!(
        machine.resume().is_err(),
        "an array that was created anew with the old name"
    );
    machine.uuid = UUID;
    machine.model.disconnect(0, None).expect("it is connected");
    machine.model.connect(0, &setup(), &[]).expect("it is free");
    assert!(
        machine.resume().is_ok_and(|found| found.is_none()),
        "it is another program's now"
    );
    assert_eq!(machine.model.sockets(0), 0);
    assert!(machine.is_clear());
}

/// The link of a device is a help, and may be missing.
#[test]
fn a_connected_device_is_found_by_its_record_without_its_link() {
    let machine = Machine::new("unlinked");
    machine.begin(Some(1), OPTIONS).expect("it is free");
    machine.model.lose_connections();
    fs::remove_file(machine.folder.join("dev/tank")).expect("the link");
    let refused = machine.begin(None, OPTIONS).err();
    assert!(refused.is_some_and(|why| why.contains("still connected")));
    let found = machine.places.read().expect("it can be read");
    assert_eq!(found.map(|record| record.device), Some(1));
    assert!(machine.resume().is_ok_and(|found| found.is_some()));
}

#[test]
fn a_record_that_cannot_be_read_is_an_error_and_is_kept() {
    let machine = Machine::new("unreadable");
    machine.begin(None, OPTIONS).expect("it is free");
    machine.model.lose_connections();
    let path = machine.folder.join("tank.attached");
    fs::remove_file(machine.folder.join("dev/tank")).expect("the link");
    let good = fs::read_to_string(&path).expect("a record");
    for bad in [
        "",
        "{}",
        &good[..good.len() - 1],
        &good.replace("300", "\"5m\""),
    ] {
        fs::write(&path, bad).expect("a file");
        for refused in [
            machine.begin(None, OPTIONS).err(),
            machine.resume().err(),
            machine.end_unserved().err().map(|refusal| refusal.what),
        ] {
            assert!(
                refused.is_some_and(|why| why.contains("cannot be read")),
                "{bad}"
            );
        }
        assert_eq!(fs::read_to_string(&path).expect("a file"), bad);
        assert_eq!(machine.model.devices.borrow().len(), 1);
    }
    fs::remove_file(&path).expect("ours");
    fs::create_dir(&path).expect("what is no file cannot be read either");
    assert!(machine.begin(None, OPTIONS).is_err() && machine.resume().is_err());
}

/// After an update and a step back the device must not be lost.
#[test]
fn the_record_of_a_later_version_with_more_fields_is_read() {
    let machine = Machine::new("later");
    let first = machine.begin(None, OPTIONS).expect("it is free");
    machine.model.lose_connections();
    let path = machine.folder.join("tank.attached");
    let record = fs::read_to_string(&path).expect("a record");
    let later = record.replace("{", "{\"new\":1,");
    assert_eq!(
        later.matches("new").count(),
        2,
        "in the record and in its options"
    );
    fs::write(&path, later).expect("a file");
    let second = machine.resume().expect("ours").expect("the kernel has it");
    assert_eq!(second.record, first.record);
}

#[test]
fn a_record_of_an_earlier_boot_counts_for_nothing() {
    let mut machine = Machine::new("boot");
    machine.begin(None, OPTIONS).expect("it is free");
    machine.model.lose_connections();
    machine.places.boot = "next".into();
    assert!(machine.resume().is_ok_and(|found| found.is_none()));
    assert!(machine.is_clear() && machine.model.sockets(0) == 0);
}

/// The kernel would make I/O errors of what the array refuses now; in the grace the operator can mend it.
#[test]
fn an_array_that_offers_less_than_before_is_not_reconnected() {
    let mut machine = Machine::new("less");
    machine.begin(None, OPTIONS).expect("it is free");
    machine.model.lose_connections();
    let before = machine.flags;
    for now in [before & !flags::SEND_FLUSH, before | flags::READ_ONLY] {
        machine.flags = now;
        assert!(machine.resume().is_err() && machine.model.sockets(0) == 0);
    }
    machine.flags = before | flags::SEND_TRIM | flags::SEND_DF;
    assert!(
        machine.resume().is_ok_and(|found| found.is_some()),
        "more is no harm"
    );
}

#[test]
fn a_device_in_use_is_not_detached() {
    let machine = Machine::new("busy");
    let attachment = machine.begin(None, OPTIONS).expect("it is free");
    machine.model.mounted.set(Some(0));
    let refused = machine.end(&attachment);
    assert!(refused.is_err_and(|why| why.contains("mounted at /mnt")));
    assert!(machine.end_unserved().is_err());
    assert!(machine.model.sockets(0) == 3 && !machine.is_clear());
    machine.model.mounted.set(None);
    machine.end(&attachment).expect("nothing uses it");
    assert!(machine.is_clear() && machine.model.devices.borrow().is_empty());
}

/// A reason to serve on that begins while the cache is written out.
#[test]
fn a_device_whose_end_is_refused_after_the_flush_is_as_before() {
    let machine = Machine::new("late");
    let attachment = machine.begin(None, OPTIONS).expect("it is free");
    let late = || Err(Refusal::new("a lease is in use"));
    let refused = machine.end_if(&attachment, &late);
    assert_eq!(refused, Err("a lease is in use".to_owned()));
    assert!(machine.model.sockets(0) == 3 && !machine.is_clear());
}

#[test]
fn a_device_without_a_daemon_is_detached_and_a_stale_record_removed() {
    let machine = Machine::new("unserved");
    let none = machine.end_unserved();
    assert!(none.is_ok_and(|found| found.is_none()));
    for gone in [false, true] {
        machine.begin(None, OPTIONS).expect("it is free");
        if gone {
            machine
                .model
                .disconnect(0, None)
                .expect("another program does that");
            machine.model.connect(0, &setup(), &[]).expect("it is free");
        }
        let ended = machine.end_unserved();
        assert!(ended.is_ok_and(|found| found.is_some()) && machine.is_clear());
        assert_eq!(machine.model.devices.borrow().len(), usize::from(gone));
    }
}

#[test]
fn a_device_is_named_by_its_path() {
    assert_eq!(Node::of_path("/dev/nbd5"), Ok(node(5)));
    for path in ["nbd5", "/dev/sda", "/dev/nbd5p1", "/tmp/nbd5", ""] {
        assert!(Node::of_path(path).is_err(), "{path}");
    }
}
