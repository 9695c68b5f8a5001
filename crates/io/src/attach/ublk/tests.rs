//! What is done when, against a model of the driver.

use super::kernel::{Kernel, Setup, identifier};
use super::server::Server;
use super::{Attachment, DEPTH, optimal, uapi};
use crate::attach::hold::{Devices, Seen};
use crate::attach::machine::{self, SIZE, UUID};
use crate::attach::node::Node;
use crate::attach::served::Tended;
use crate::control::{AttachOptions, Driver, Refusal};
use crate::front::Export;
use restripe_array::Uuid;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};

const OPTIONS: AttachOptions = AttachOptions {
    driver: Driver::Ublk,
    connections: 2,
    timeout_seconds: 30,
    grace_seconds: 300,
    read_only: false,
    block_bytes: 4096,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No block device yet.
    Added,
    Live,
    /// Its daemon is gone.
    Waits,
    Recovering,
}

struct Made {
    setup: Setup,
    state: State,
    /// Its queue is served.
    served: bool,
}

/// A kernel with the driver.
#[derive(Default)]
struct Model {
    devices: RefCell<BTreeMap<u32, Made>>,
    mounted: Cell<bool>,
    /// Calls until the kernel has cleaned up behind a dead daemon.
    cleans_up: Cell<u32>,
    cannot_resize: Cell<bool>,
    refuses_start: Cell<bool>,
    refuses_queue: Cell<bool>,
    refuses_end: Cell<bool>,
    refuses_recovery: Cell<bool>,
    refuses_removal: Cell<bool>,
    refuses_command: Cell<Option<i32>>,
    /// The daemons that made devices are gone.
    abandons: Cell<bool>,
}

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

impl Model {
    fn change(&self, device: u32, from: State, to: State, served: bool) -> io::Result<()> {
        match self.devices.borrow_mut().get_mut(&device) {
            Some(made) if made.state == from && made.served == served => made.state = to,
            _ => return errno(libc::EBUSY),
        }
        Ok(())
    }

    fn state(&self, device: u32) -> Option<State> {
        self.devices.borrow().get(&device).map(|made| made.state)
    }

    /// The daemon dies. A device that is prepared for one stays so until its queue was served.
    fn lose_daemon(&self) {
        for made in self.devices.borrow_mut().values_mut() {
            if made.state != State::Recovering || made.served {
                (made.state, made.served) = (State::Waits, false);
            }
        }
    }
}

impl Kernel for Model {
    fn add(&self, device: Option<u32>, setup: &Setup) -> io::Result<u32> {
        let mut devices = self.devices.borrow_mut();
        let free = (0..).find(|number| !devices.contains_key(number));
        let number = device.or(free).unwrap_or(0);
        if devices.contains_key(&number) {
            return errno(libc::EEXIST);
        }
        let made = Made {
            setup: *setup,
            state: State::Added,
            served: false,
        };
        devices.insert(number, made);
        Ok(number)
    }

    fn start(&self, device: u32) -> io::Result<()> {
        match self.refuses_start.get() {
            true => Err(ErrorKind::TimedOut.into()),
            false => self.change(device, State::Added, State::Live, true),
        }
    }

    fn begin_recovery(&self, device: u32) -> io::Result<()> {
        match self.cleans_up.get().checked_sub(1) {
            Some(left) => {
                self.cleans_up.set(left);
                errno(libc::EBUSY)
            }
            None if self.refuses_recovery.get() => errno(libc::EINVAL),
            None if self.state(device) == Some(State::Recovering) => errno(libc::EINVAL),
            None => self.change(device, State::Waits, State::Recovering, false),
        }
    }

    fn waits(&self, device: u32) -> bool {
        matches!(self.state(device), Some(State::Waits | State::Recovering))
    }

    fn end_recovery(&self, device: u32) -> io::Result<()> {
        if self.refuses_end.get() {
            return errno(libc::EINTR);
        }
        self.change(device, State::Recovering, State::Live, true)
    }

    fn resize(&self, device: u32, bytes: u64) -> io::Result<()> {
        if self.cannot_resize.get() {
            return Err(ErrorKind::Unsupported.into());
        }
        let mut devices = self.devices.borrow_mut();
        let made = devices.get_mut(&device).ok_or(ErrorKind::NotFound)?;
        made.setup.parameters.size_bytes = bytes;
        Ok(())
    }

    fn size(&self, device: u32) -> io::Result<u64> {
        Ok(self.devices.borrow()[&device].setup.parameters.size_bytes)
    }
}

impl Devices for Model {
    fn driver(&self) -> Driver {
        Driver::Ublk
    }

    fn shown(&self) -> Vec<(u32, Seen)> {
        let devices = self.devices.borrow();
        let numbers = devices.keys().copied();
        numbers.map(|number| (number, self.seen(number))).collect()
    }

    fn is_abandoned(&self, device: u32) -> bool {
        self.abandons.get() && self.state(device) == Some(State::Added)
    }

    fn seen(&self, device: u32) -> Seen {
        match self.devices.borrow().get(&device) {
            None => Seen::Missing,
            Some(made) if made.state == State::Added => Seen::Dead(identifier(made.setup.tag)),
            Some(made) => Seen::Connected(Some(identifier(made.setup.tag))),
        }
    }

    fn disconnect(&self, device: u32, _held: Option<File>) -> io::Result<()> {
        if self.refuses_removal.get() {
            return Err(ErrorKind::TimedOut.into());
        }
        let removed = self.devices.borrow_mut().remove(&device);
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn hold(&self, _device: u32) -> io::Result<Option<File>> {
        match self.mounted.get() {
            true => Err(ErrorKind::ResourceBusy.into()),
            false => Ok(None),
        }
    }

    fn users(&self, _device: u32) -> Vec<String> {
        vec!["mounted at /mnt".into()]
    }
}

/// The kernel, and the reactor with its array.
struct World {
    model: Model,
    export: Export,
}

impl Server for World {
    fn export(&self) -> Result<Export, Refusal> {
        Ok(self.export.clone())
    }

    fn serve(&self, device: u32, depth: u16, _read_only: bool) -> io::Result<()> {
        assert_eq!(depth, DEPTH);
        if self.model.refuses_queue.get() {
            return errno(libc::EMFILE);
        }
        let mut devices = self.model.devices.borrow_mut();
        devices.get_mut(&device).ok_or(ErrorKind::NotFound)?.served = true;
        Ok(())
    }

    fn connections(&self) -> usize {
        let devices = self.model.devices.borrow();
        devices.values().filter(|made| made.served).count()
    }

    fn refused(&self) -> Option<io::Error> {
        self.model
            .refuses_command
            .get()
            .map(io::Error::from_raw_os_error)
    }
}

impl Default for World {
    fn default() -> World {
        World {
            model: Model::default(),
            export: Export {
                name: "tank".into(),
                uuid: UUID,
                description: String::new(),
                size_bytes: SIZE,
                logical_block: 512,
                minimum_block: 1,
                preferred_block: 4096,
                row_bytes: 3 << 16,
                maximum_block: 32 << 20,
                exclusive: false,
                busy: false,
                read_only: false,
                durable: true,
                serving: true,
            },
        }
    }
}

impl machine::World for World {
    type Attachment = Attachment;

    fn kernel(&self) -> &(dyn Kernel + 'static) {
        &self.model
    }

    fn server(&self) -> &(dyn Server + 'static) {
        self
    }
}

type Machine = machine::Machine<World>;

impl Machine {
    /// Neither the daemon nor the kernel has anything of a device.
    fn is_bare(&self) -> bool {
        self.is_clear() && self.model.devices.borrow().is_empty()
    }
}

#[test]
fn an_array_is_attached_with_what_it_is_like() {
    let machine = Machine::new("attach");
    let attached = machine.begin(Some(3), OPTIONS).expect("it is free");
    assert_eq!(attached.record.node(), Node::new(Driver::Ublk, 3));
    assert_eq!(machine.model.state(3), Some(State::Live));
    let linked = machine.places.linked();
    assert_eq!(linked, Ok(Some(Node::new(Driver::Ublk, 3))));
    assert_eq!(machine.places.read(), Ok(Some(attached.record.clone())));
    let parameters = machine.model.devices.borrow()[&3].setup.parameters;
    assert_eq!(parameters.size_bytes, SIZE);
    assert_eq!(parameters.optimal_bytes, 1 << 16);
    let durable = uapi::ATTRIBUTE_CACHE | uapi::ATTRIBUTE_FUA;
    assert_eq!(parameters.attributes, durable);
    machine.end(&attached).expect("not in use");
    assert!(machine.is_bare());
}

#[test]
fn the_best_request_is_a_row_or_divides_it() {
    let cases = [
        (0, 4096),
        (512, 4096),
        (3 << 16, 1 << 16),
        (1 << 20, 1 << 20),
    ];
    for (row, expected) in cases {
        assert_eq!(optimal(row), expected, "{row}");
    }
    assert_eq!(optimal(1 << 40), 1 << 30);
}

#[test]
fn what_is_refused_leaves_nothing() {
    let mut machine = Machine::new("refused");
    machine.model.refuses_start.set(true);
    let why = machine.begin(None, OPTIONS).err();
    assert_eq!(why.as_deref(), Some("the kernel does not answer"));
    assert!(machine.is_bare());
    machine.model.refuses_start.set(false);
    let odd = AttachOptions {
        block_bytes: 1000,
        ..OPTIONS
    };
    assert!(machine.begin(None, odd).is_err() && machine.is_bare());
    machine.export.minimum_block = 4096;
    let fine = AttachOptions {
        block_bytes: 512,
        ..OPTIONS
    };
    assert!(machine.begin(None, fine).is_err() && machine.is_bare());
    machine.export.serving = false;
    let why = machine.begin(None, OPTIONS).err();
    assert_eq!(why.as_deref(), Some("the array does not serve"));
    assert!(machine.is_bare());
}

/// What is left of a device keeps its record, by which every verb and the next daemon ends it.
#[test]
fn what_the_kernel_keeps_of_a_refused_device_is_ended_later() {
    let verbs: [fn(&Machine) -> bool; 3] = [
        |machine| machine.begin(None, OPTIONS).is_ok(),
        |machine| machine.resume().is_ok_and(|found| found.is_none()),
        |machine| machine.end_unserved().is_ok_and(|found| found.is_some()),
    ];
    for (number, verb) in verbs.iter().enumerate() {
        let machine = Machine::new(&format!("kept-{number}"));
        machine.model.refuses_start.set(true);
        machine.model.refuses_removal.set(true);
        let why = machine
            .begin(Some(4), OPTIONS)
            .err()
            .expect("it does not start");
        assert!(
            why.contains("does not answer; and the device is not gone"),
            "{why}"
        );
        assert_eq!(machine.model.state(4), Some(State::Added));
        assert!(machine.begin(None, OPTIONS).is_err() && machine.resume().is_err());
        let record = machine.places.read().expect("it can be read");
        assert_eq!(record.map(|record| record.device), Some(4));
        machine.model.refuses_removal.set(false);
        machine.model.refuses_start.set(false);
        assert!(verb(&machine));
        assert_eq!(machine.model.state(4), None);
    }
}

#[test]
fn the_next_daemon_takes_the_device_over_once_the_first_is_gone() {
    let machine = Machine::new("recover");
    machine.begin(None, OPTIONS).expect("one is free");
    machine.model.lose_daemon();
    machine.model.cleans_up.set(2);
    let resumed = machine.resume().expect("it waits").expect("it is there");
    assert_eq!(machine.model.state(0), Some(State::Live));
    assert_eq!(resumed.size_bytes, SIZE);
    machine.model.devices.borrow_mut().clear();
    assert_eq!(machine.resume().map(|found| found.is_none()), Ok(true));
    assert!(machine.is_bare(), "the record of a device that is gone");
}

/// It dies, or fails at a step and tries all of them again, before each step of a recovery and after the last.
#[test]
fn a_recovery_that_ended_anywhere_is_repeated() {
    let steps: [fn(&Model) -> &Cell<bool>; 2] = [|m| &m.refuses_queue, |m| &m.refuses_end];
    for (number, step) in steps.iter().enumerate() {
        for times in 1..3 {
            let machine = Machine::new(&format!("again-{number}-{times}"));
            machine.begin(None, OPTIONS).expect("one is free");
            machine.model.lose_daemon();
            for _ in 0..times {
                step(&machine.model).set(true);
                assert!(machine.resume().is_err());
                step(&machine.model).set(false);
                machine.model.lose_daemon();
            }
            assert!(machine.resume().is_ok_and(|found| found.is_some()));
            assert_eq!(machine.model.state(0), Some(State::Live));
            machine.model.lose_daemon();
            assert!(machine.resume().is_ok_and(|found| found.is_some()));
        }
    }
}

/// The kernel refuses a recovery of a device that does not wait.
#[test]
fn a_device_that_does_not_wait_is_not_recovered() {
    let machine = Machine::new("no-wait");
    machine.begin(None, OPTIONS).expect("one is free");
    machine.model.refuses_recovery.set(true);
    let why = machine.resume().err().expect("it is live");
    assert!(why.contains("the kernel refused"), "{why}");
    assert_eq!(machine.model.state(0), Some(State::Live));
}

#[test]
fn a_device_that_is_not_this_arrays_is_left_alone() {
    let mut machine = Machine::new("other");
    machine.begin(None, OPTIONS).expect("one is free");
    machine.model.lose_daemon();
    machine.uuid = Uuid([8; 16]);
    assert!(machine.resume().is_err());
    machine.uuid = UUID;
    let tag = |tag| {
        let mut devices = machine.model.devices.borrow_mut();
        devices.get_mut(&0).expect("it is there").setup.tag = tag;
    };
    tag(1);
    assert_eq!(machine.resume().map(|found| found.is_none()), Ok(true));
    assert_eq!(machine.model.state(0), Some(State::Waits));
}

#[test]
fn an_array_that_is_not_as_before_does_not_take_its_device_over() {
    let mut machine = Machine::new("changed");
    machine.begin(None, OPTIONS).expect("one is free");
    machine.model.lose_daemon();
    machine.export.read_only = true;
    assert!(machine.resume().is_err());
    (machine.export.read_only, machine.export.durable) = (false, false);
    assert!(machine.resume().is_err());
    assert_eq!(machine.model.state(0), Some(State::Waits));
    machine.export.durable = true;
    assert!(machine.resume().is_ok_and(|found| found.is_some()));
}

#[test]
fn a_growth_is_passed_on_where_the_kernel_can() {
    let machine = Machine::new("growth");
    let mut attached = machine.begin(None, OPTIONS).expect("one is free");
    assert_eq!(machine.tend(&mut attached, SIZE), Ok(Tended::Well));
    machine.model.cannot_resize.set(true);
    // The size is not looked at each time (0); what was said of it holds meanwhile.
    for size in [2 * SIZE, 0, 0, 2 * SIZE] {
        let why = machine.tend(&mut attached, size);
        assert!(why.is_err_and(|why| why.contains("keeps its 1073741824 bytes")));
    }
    machine.model.cannot_resize.set(false);
    let resized = Ok(Tended::Resized(3 * SIZE));
    assert_eq!(machine.tend(&mut attached, 3 * SIZE), resized);
    assert_eq!(machine.tend(&mut attached, 0), Ok(Tended::Well));
    assert_eq!(machine.model.size(0).ok(), Some(3 * SIZE));
}

#[test]
fn a_device_that_another_program_removed_is_given_up() {
    let machine = Machine::new("foreign");
    let mut attached = machine.begin(None, OPTIONS).expect("one is free");
    let lose_queue = |machine: &Machine| {
        let mut devices = machine.model.devices.borrow_mut();
        devices.values_mut().for_each(|made| made.served = false);
    };
    lose_queue(&machine);
    assert!(machine.tend(&mut attached, SIZE).is_err());
    machine.model.devices.borrow_mut().clear();
    assert_eq!(machine.tend(&mut attached, SIZE), Ok(Tended::Gone));
    assert!(machine.is_bare());
}

#[test]
fn a_command_that_the_kernel_refuses_is_shown() {
    let machine = Machine::new("refuses");
    let mut attached = machine.begin(None, OPTIONS).expect("one is free");
    machine.model.refuses_command.set(Some(libc::EINVAL));
    for size in [0, SIZE] {
        let why = machine
            .tend(&mut attached, size)
            .expect_err("it is refused");
        assert!(
            why.contains("refuses a command of the device's queue: Invalid"),
            "{why}"
        );
    }
    machine.model.lose_daemon();
    machine.model.refuses_end.set(true);
    let why = machine.resume().err().expect("its queue has no commands");
    assert!(why.contains("Invalid"), "{why}");
}

#[test]
fn a_device_in_use_is_not_detached() {
    let mut machine = Machine::new("busy");
    let attached = machine.begin(None, OPTIONS).expect("one is free");
    machine.export.serving = false;
    let refused = machine.end(&attached);
    assert!(refused.is_err_and(|why| why.contains("wait for the array")));
    machine.export.serving = true;
    machine.model.mounted.set(true);
    let refused = machine.end(&attached);
    assert!(refused.is_err_and(|why| why.contains("mounted at /mnt")));
    assert_eq!(machine.model.state(0), Some(State::Live));
    machine.model.lose_daemon();
    machine.model.mounted.set(false);
    let unserved = machine.end_unserved();
    assert!(unserved.is_ok() && machine.is_bare());
}

/// A daemon died between the device and its record, or the record is lost.
#[test]
fn a_device_without_a_record_is_ended_only_if_it_is_dead_and_abandoned() {
    let machine = Machine::new("lost-record");
    machine.model.refuses_start.set(true);
    machine.model.refuses_removal.set(true);
    assert!(machine.begin(Some(5), OPTIONS).is_err());
    machine.model.refuses_start.set(false);
    machine.model.refuses_removal.set(false);
    machine
        .places
        .clear(Node::new(Driver::Ublk, 5))
        .expect("its record goes");
    let refused = |machine: &Machine| {
        let why = machine.begin(None, OPTIONS).err();
        assert!(why.is_some_and(|why| why.contains("has the array's identifier")));
    };
    refused(&machine);
    assert_eq!(
        machine.model.state(5),
        Some(State::Added),
        "its daemon may start it"
    );
    machine.model.abandons.set(true);
    machine
        .begin(Some(6), OPTIONS)
        .expect("nothing is left of the other");
    assert_eq!(
        (machine.model.state(5), machine.model.state(6)),
        (None, Some(State::Live))
    );
    for state in [State::Live, State::Waits] {
        machine
            .model
            .change(6, State::Live, state, true)
            .expect("it is live");
        machine
            .places
            .clear(Node::new(Driver::Ublk, 6))
            .expect("its record goes");
        refused(&machine);
        assert_eq!(machine.model.state(6), Some(state));
    }
}

#[test]
fn a_dead_device_of_another_array_is_left_alone() {
    let mut machine = Machine::new("others");
    machine.model.refuses_start.set(true);
    machine.model.refuses_removal.set(true);
    assert!(machine.begin(Some(5), OPTIONS).is_err());
    machine
        .places
        .clear(Node::new(Driver::Ublk, 5))
        .expect("its record goes");
    machine.model.refuses_start.set(false);
    machine.model.abandons.set(true);
    machine.uuid = Uuid([8; 16]);
    machine.begin(None, OPTIONS).expect("one is free");
    assert_eq!(machine.model.state(5), Some(State::Added));
}

#[test]
fn a_second_device_is_refused_while_the_first_is_there() {
    let machine = Machine::new("second");
    machine.begin(Some(1), OPTIONS).expect("it is free");
    let why = machine.begin(Some(2), OPTIONS).err();
    let before = "the array's device of before is still connected";
    assert_eq!(why.as_deref(), Some(before));
    assert_eq!(machine.model.state(2), None);
}
