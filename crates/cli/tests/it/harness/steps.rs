//! What tests do with an array called `tank` that is served: verbs and their words, looks at its status, patterns and
//! fio through its socket.

use super::{Daemon, Place, Run, skipped};
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// The longest that a test waits for something that must come, on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Where [`Place::serve`] serves.
pub const URI: &str = "nbd+unix:///?socket=nbd.sock";

/// What a run that succeeded printed.
pub fn good(run: Run) -> String {
    assert_eq!(run.status, 0, "{} {}", run.stdout, run.stderr);
    run.stdout
}

/// What a run that was refused said.
pub fn refused(run: Run) -> String {
    assert_eq!(run.status, 1, "{} {}", run.stdout, run.stderr);
    run.stderr
}

pub fn status(place: &Place) -> Value {
    let told = good(place.run(&["status", "tank", "--json"]));
    serde_json::from_str(&told).expect("it is JSON")
}

/// Looks at the status until it is as wanted.
pub fn wait_until(place: &Place, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = status(place);
        if wanted(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// A number that tells of what lies in the array's surrogate.
pub fn overlay(status: &Value, what: &str) -> u64 {
    number(&status["surrogate"]["overlay"][what])
}

/// Serves mirrors that sleep soon.
pub fn serve_sleepers(place: &Place, options: &[&str], members: &[&str]) -> Daemon {
    let mut words = vec!["serve", "--unix", "nbd.sock", "--standby-after", "1s"];
    words.extend(options);
    words.extend(members);
    place.await_service(&mut place.command(&words))
}

/// What is not everywhere at home comes there when asked, and all of it.
pub fn comes_home(place: &Place) -> Value {
    good(place.run(&["surrogate", "destage", "tank"]));
    let left = |status: &Value| overlay(status, "away_bytes") + overlay(status, "ahead_bytes");
    wait_until(place, |status| left(status) == 0)
}

pub fn stop(place: &Place, daemon: &Daemon) {
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

/// Whether these programs are here; if not, the test is noted as skipped.
pub fn has(place: &Place, test: &str, tools: &[&str]) -> bool {
    let missing = tools
        .iter()
        .find(|tool| place.shell(&format!("command -v {tool}")).status != 0);
    if let Some(tool) = missing {
        skipped(test, &format!("{tool} is missing"));
    }
    missing.is_none()
}

/// A write of a pattern through qemu-io, which the daemon has acknowledged.
pub fn write_pattern(place: &Place, pattern: u8, at: &str, length: &str) {
    let script = format!("qemu-io -f raw -c 'write -P {pattern} {at} {length}' '{URI}'");
    good(place.shell(&script));
}

/// A read of it, and whether it was as written.
pub fn read_pattern(place: &Place, pattern: u8, at: &str, length: &str) -> Run {
    let script = format!(
        "qemu-io -r -f raw -c 'read -P {pattern} {at} {length}' '{URI}' > read.txt 2>&1
         told=$?; cat read.txt; ! grep -Eiq 'fail|error' read.txt && exit $told; exit 1"
    );
    place.shell(&script)
}

/// The array's whole content.
pub fn content(place: &Place, name: &str) -> Vec<u8> {
    good(place.shell(&format!("nbdcopy '{URI}' {name}")));
    place.bytes(name)
}

/// fio's blocks, of which those in flight at a kill may be missing and nothing else.
pub struct Fio<'a> {
    pub place: &'a Place,
}

impl Fio<'_> {
    pub const DEPTH: usize = 8;
    /// Bytes from the start of the array on.
    pub const SIZE: usize = 24 << 20;

    fn script(&self, options: &str) -> String {
        format!(
            "timeout -k 5 180 fio --name=load --ioengine=nbd --uri='{URI}' --size={} --rw=randwrite --bs=4k \
             --verify=crc32c --iodepth={} {options}",
            Fio::SIZE,
            Fio::DEPTH
        )
    }

    pub fn run(&self, options: &str) -> Run {
        self.place.shell(&self.script(options))
    }

    /// The blocks that are not as written, at most so many.
    pub fn verify(&self, wrong_at_most: usize) {
        let run = self.run(
            "--verify_only --verify_state_load=1 --verify_state_save=0 --continue_on_error=verify",
        );
        let told: Vec<&str> = run
            .stderr
            .lines()
            .filter(|line| line.starts_with("verify:"))
            .collect();
        assert!(told.len() <= wrong_at_most, "{}", run.stderr);
        let missing = |line: &&str| line.contains("bad magic header 0");
        assert!(told.iter().all(missing), "{}", run.stderr);
    }
}

/// The member of a list of the status whose path ends with this.
pub fn member_named<'a>(members: &'a Value, name: &str) -> Option<&'a Value> {
    let ends = |member: &&Value| {
        let path = member["path"].as_str();
        path.is_some_and(|path| path.ends_with(name))
    };
    members.as_array().expect("a list").iter().find(ends)
}
