//! Arrays that lend and arrays that borrow, by the command alone: leases made and refused, two borrowers on one lender
//! through failures under load, and kill -9 of either side.

use crate::harness::{Daemon, Place, Run, skipped};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const POOL: [&str; 2] = ["p0.img", "p1.img"];
/// A rebuild of an image of 64 MiB takes half a minute.
const SLOW: &str = "2M..2M";
/// The longest that a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn good(run: Run) -> String {
    assert_eq!(run.status, 0, "{} {}", run.stdout, run.stderr);
    run.stdout
}

fn refused(run: Run) -> String {
    assert_eq!(run.status, 1, "{} {}", run.stdout, run.stderr);
    run.stderr
}

/// A mirror that lends 96 MiB, not yet served.
fn lender(name: &str) -> Place {
    let place = Place::new(name);
    let options = ["--level", "raid1", "--image-size", "128M", "--lend", "96M"];
    good(place.run(&[&["create", "pool"][..], &options, &POOL].concat()));
    place
}

/// A daemon on a socket of its array's name.
fn serve(place: &Place, array: &str, members: &[&str]) -> Daemon {
    let socket = format!("{array}.nbd");
    let mut child = place
        .command(&[&["serve", "--unix", &socket], members].concat())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let stdout = child.stdout.take().expect("it is piped");
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line);
    read.expect("it says when it serves");
    assert!(line.starts_with("nbd+unix:///?socket="), "{line:?}");
    Daemon::of(child)
}

fn serve_pool(place: &Place) -> Daemon {
    serve(place, "pool", &POOL)
}

fn lease(name: &str) -> String {
    format!("nbd+unix:///lease/pool/{name}?socket=pool.nbd")
}

/// An array that borrows the lease of its own name.
struct Borrower<'a> {
    place: &'a Place,
    name: &'static str,
}

impl Borrower<'_> {
    fn members(&self) -> Vec<String> {
        let image = |number| format!("{}{number}.img", self.name);
        (0..4).map(image).collect()
    }

    fn create(&self) {
        good(
            self.place
                .run(&["lease", "add", "pool", self.name, "--size", "40M"]),
        );
        let (members, lease) = (self.members(), lease(self.name));
        let options = ["--level", "raid5", "--init", "zero", "--spares", "1"];
        let options = [
            &options[..],
            &["--image-size", "64M", "--surrogate", &lease],
        ]
        .concat();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        good(
            self.place
                .run(&[&["create", self.name][..], &options, &members].concat()),
        );
    }

    fn serve(&self) -> Daemon {
        let mut members = self.members();
        members.push(lease(self.name));
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        serve(
            self.place,
            self.name,
            &[&["--rate", SLOW], &members[..]].concat(),
        )
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}.nbd", self.name)
    }

    fn status(&self) -> Value {
        let told = good(self.place.run(&["status", self.name, "--json"]));
        serde_json::from_str(&told).expect("it is JSON")
    }

    fn wait_until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.status();
            if wanted(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{found}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn fail(&self) {
        good(self.place.run(&["fail", self.name, &self.members()[1]]));
    }

    fn come_home(&self) -> Value {
        good(
            self.place
                .run(&["rebuild", self.name, "--rate", "100M..2G"]),
        );
        self.wait_until(|status| {
            let idle = status["tasks"].as_array().expect("a list").is_empty();
            idle && status["state"] == "healthy" && away(status) == 0
        })
    }

    /// A load whose every block is read back and held against its checksum.
    fn load(&self) -> Run {
        self.place.shell(&format!(
            "timeout -k 5 100 fio --name={} --ioengine=nbd --uri='{}' --size=16m --rw=randwrite --bs=4k \
             --verify=crc32c --verify_fatal=1 --iodepth=8",
            self.name,
            self.uri()
        ))
    }

    fn content(&self, name: &str) -> Vec<u8> {
        good(
            self.place
                .shell(&format!("nbdcopy '{}' {name}", self.uri())),
        );
        self.place.bytes(name)
    }

    /// Whether this command of qemu-io on the array went well.
    fn qemu_io(&self, command: &str) -> Run {
        self.place.shell(&format!(
            "qemu-io -f raw -c '{command}' '{}' > told.txt 2>&1
             told=$?; cat told.txt; ! grep -Eiq 'fail|error' told.txt && exit $told; exit 1",
            self.uri()
        ))
    }
}

fn overlay(status: &Value) -> &Value {
    &status["surrogate"]["overlay"]
}

fn away(status: &Value) -> u64 {
    overlay(status)["away_bytes"].as_u64().expect("a number")
}

fn leases(place: &Place) -> Value {
    let told = good(place.run(&["lease", "list", "pool", "--json"]));
    serde_json::from_str(&told).expect("it is JSON")
}

fn has(place: &Place, test: &str, tools: &[&str]) -> bool {
    let missing = tools
        .iter()
        .find(|tool| place.shell(&format!("command -v {tool}")).status != 0);
    if let Some(tool) = missing {
        skipped(test, &format!("{tool} is missing"));
    }
    missing.is_none()
}

/// A session that fails ends its daemons, too.
const ENDED: &str = "set -e; trap '[ -z \"$(jobs -p)\" ] || kill $(jobs -p)' EXIT";

// --------------------------------------------------------------------------------------------------------- by hand

/// What `docs/how-to/leases.md` has people paste, as it stands there.
#[test]
fn the_session_of_the_manual_can_be_pasted() {
    let manual = include_str!("../../../../docs/how-to/leases.md");
    let (_, rest) = manual.split_once("```sh\n").expect("it has a session");
    let (session, _) = rest.split_once("```").expect("the session ends");
    let ran = Place::new("leases-session").shell(&format!("{ENDED}\n{session}wait"));
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    for told in [
        "served as lease/pool/tank",
        " in log",
        "tank is healthy",
        "log empty",
    ] {
        assert!(ran.stdout.contains(told), "{told}: {}", ran.stdout);
    }
    let alarm = ran.stderr.contains("too many members");
    assert!(!alarm, "a clean stop is no failure: {}", ran.stderr);
}

#[test]
fn leases_are_lent_listed_and_taken_back() {
    let place = lender("leases-lent");
    let offline = |words: &[&str]| {
        let members = ["--offline", POOL[0], POOL[1]];
        place.run(&[&["lease"], words, &members].concat())
    };
    good(offline(&["add", "pool", "one", "--size", "32M"]));
    let told = refused(offline(&["add", "pool", "one", "--size", "8M"]));
    assert!(told.contains("the lease one exists already"), "{told}");
    let daemon = serve_pool(&place);
    let run = |words: &[&str]| place.run(&[&["lease"], words].concat());
    good(run(&["add", "pool", "two", "--size", "10000000"]));
    let told = refused(run(&["add", "pool", "three", "--size", "64M"]));
    assert!(told.contains("the largest possible lease"), "{told}");
    for name in ["a/b", "", "x y", "-x"] {
        let told = refused(run(&["add", "pool", "--size", "8M", "--", name]));
        assert!(
            told.contains("is not a name for a lease"),
            "{name:?}: {told}"
        );
    }
    let told = refused(run(&["add", "pool", "tiny", "--size", "1M"]));
    assert!(told.contains("too small"), "{told}");
    let listed = leases(&place);
    assert_eq!(listed["bytes"], 96 << 20);
    assert_eq!(listed["leases"][0]["export"], "lease/pool/one");
    assert_eq!(listed["leases"][1]["bytes"], 153 << 16);
    assert_eq!(listed["leases"][1]["borrower"], Value::Null);
    let told = good(place.run(&["status", "pool"]));
    assert!(told.contains("lends 96M: 2 leases, "), "{told}");
    good(run(&["remove", "pool", "one"]));
    let told = refused(run(&["remove", "pool", "one"]));
    assert!(told.contains("there is no lease one"), "{told}");
    good(place.run(&["stop", "pool"]));
    assert_eq!(daemon.wait(), 0);
    let told = good(place.run(&["examine", "p0.img"]));
    assert!(told.contains("32M free for leases"), "{told}");
    assert!(told.contains("lent as two, borrower: none"), "{told}");
    let told = good(offline(&["list", "pool"]));
    assert!(told.contains("lease/pool/two  none"), "{told}");
}

/// Space that changes hands reads as zeros: after a lease was taken back, and after a crash left old bytes in free space.
#[test]
fn space_of_a_former_lease_reads_as_zeros_in_the_next() {
    let place = lender("leases-zeroed");
    if !has(
        &place,
        "space_of_a_former_lease_reads_as_zeros_in_the_next",
        &["qemu-io"],
    ) {
        return;
    }
    let run = |words: &[&str]| good(place.run(&[&["lease"], words].concat()));
    let io = |name: &str, command: &str| {
        let script = format!("qemu-io -f raw -c '{command}' -c flush '{}'", lease(name));
        good(place.shell(&script));
    };
    let daemon = serve_pool(&place);
    run(&["add", "pool", "former", "--size", "40M"]);
    io("former", "write -P 0xa7 0 40M");
    run(&["remove", "pool", "former"]);
    let holds_old = |member: &str| {
        let bytes = place.bytes(member);
        let mut pages = bytes.chunks(4096);
        pages.any(|page| page.iter().all(|byte| *byte == 0xa7))
    };
    let unwiped: Vec<&str> = POOL
        .into_iter()
        .filter(|member| holds_old(member))
        .collect();
    assert!(
        unwiped.is_empty(),
        "the former lease's bytes are on {unwiped:?}"
    );
    run(&["add", "pool", "next", "--size", "24M"]);
    io("next", "read -P 0 0 24M");
    run(&["remove", "pool", "next"]);
    good(place.run(&["stop", "pool"]));
    assert_eq!(daemon.wait(), 0);

    // A crash before the wipe leaves the former bytes in free space.
    let told: Value = serde_json::from_str(&good(place.run(&["examine", "--json", POOL[0]])))
        .expect("it is JSON");
    let start = told[0]["array"]["data_sector"].as_u64().expect("a number") * 512 + (32 << 20);
    for member in POOL {
        place.write(member, 0, start, &[0xa7; 1 << 20]);
    }
    let daemon = serve_pool(&place);
    run(&["add", "pool", "next", "--size", "40M"]);
    io("next", "read -P 0 0 40M");
    good(place.run(&["stop", "pool"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn who_lends_does_not_borrow_and_who_borrows_does_not_lend() {
    let place = lender("leases-cycles");
    let daemon = serve_pool(&place);
    good(place.run(&["lease", "add", "pool", "log", "--size", "40M"]));
    let lease = lease("log");
    let create = |options: &[&str]| {
        let all = ["create", "tank", "--level", "raid5", "--image-size", "64M"];
        place.run(&[&all[..], options, &["a.img", "b.img", "c.img"]].concat())
    };
    for (options, word) in [
        (
            &["--lend", "8M", "--surrogate", &lease][..],
            "cannot be used with",
        ),
        (
            &["--surrogate", &lease, "--surrogate-level", "raid1"],
            "has the redundancy of the array",
        ),
        (&[lease.as_str()], "can be a surrogate, not a member"),
    ] {
        let run = create(options);
        assert_eq!(run.status, 2, "{options:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{options:?}: {}", run.stderr);
    }
    let config = format!(
        "[[array]]\nname = \"tank\"\nlevel = \"raid5\"\nimage-size = \"64M\"\nlend = \"8M\"
         members = [\"a.img\", \"b.img\", \"c.img\"]\nsurrogate = [\"{lease}\"]\n"
    );
    place.write("both.toml", 0, 0, config.as_bytes());
    let run = place.run(&["create", "--config", "both.toml"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(
        run.stderr.contains("exclude cyclic dependencies"),
        "{}",
        run.stderr
    );
    let told = refused(place.run(&["add", "pool", &lease]));
    assert!(told.contains("can be a surrogate, not a member"), "{told}");
    let told = refused(create(&["--lend", "1T"]));
    assert!(told.contains("cannot be reserved for leases"), "{told}");
    good(create(&["--surrogate", &lease]));
    let told = refused(place.run(&[
        "lease",
        "add",
        "tank",
        "x",
        "--size",
        "8M",
        "--offline",
        "a.img",
        "b.img",
        "c.img",
    ]));
    assert!(told.contains("no space reserved for leases"), "{told}");
    // A second borrower finds what the first has there.
    let told = refused(place.run(&[
        "create",
        "bank",
        "--level",
        "raid1",
        "--image-size",
        "64M",
        "--surrogate",
        &lease,
        "x.img",
        "y.img",
    ]));
    assert!(told.contains("already contains"), "{told}");
    drop(daemon);
}

/// An array that serves takes a lease, and leaves it to others.
#[test]
fn a_lease_is_taken_and_left_while_the_array_serves() {
    let place = lender("leases-served");
    let pool = serve_pool(&place);
    good(place.run(&["lease", "add", "pool", "log", "--size", "40M"]));
    let lease = lease("log");
    let told = refused(place.run(&["surrogate", "add", "pool", "x.img", "y.img"]));
    assert!(told.contains("exclude cyclic dependencies"), "{told}");
    good(place.create(&["a.img", "b.img", "c.img"], &["--level", "raid5"]));
    let tank = Borrower {
        place: &place,
        name: "tank",
    };
    let daemon = serve(&place, "tank", &["a.img", "b.img", "c.img"]);
    good(place.run(&["surrogate", "add", "tank", &lease]));
    let found = tank.status();
    assert_eq!(found["surrogate"]["level"], "raid0", "{found}");
    let borrower = || leases(&place)["leases"][0]["borrower"].clone();
    let deadline = Instant::now() + PATIENCE;
    while borrower() != found["uuid"] {
        assert!(Instant::now() < deadline, "the lender does not know of it");
        thread::sleep(Duration::from_millis(50));
    }
    let told = good(place.run(&["surrogate", "remove", "tank"]));
    assert!(told.ends_with("its members are free\n"), "{told}");
    while borrower() != Value::Null {
        assert!(Instant::now() < deadline, "the lender still knows of it");
        thread::sleep(Duration::from_millis(50));
    }
    good(place.run(&["lease", "remove", "pool", "log"]));
    drop((pool, daemon));
}

// ------------------------------------------------------------------------------------------------------ under load

/// One RAID-1 pair, two arrays with a log each: both lose a member while they and the pair's own users write.
#[test]
fn two_arrays_borrow_from_one_through_failures_under_load() {
    let place = lender("leases-load");
    let test = "two_arrays_borrow_from_one_through_failures_under_load";
    if !has(&place, test, &["fio", "nbdcopy"]) {
        return;
    }
    let pool = serve_pool(&place);
    let borrower = |name| Borrower {
        place: &place,
        name,
    };
    let both = [borrower("tank"), borrower("bank")];
    both.iter().for_each(Borrower::create);
    let daemons: Vec<Daemon> = both.iter().map(Borrower::serve).collect();
    both.iter().for_each(Borrower::fail);
    let users = Borrower {
        place: &place,
        name: "pool",
    };
    thread::scope(|scope| {
        let loads = both.iter().chain([&users]);
        let loads: Vec<_> = loads.map(|one| scope.spawn(|| one.load())).collect();
        for one in &both {
            one.wait_until(|status| overlay(status)["redirected_writes"].as_u64() > Some(50));
        }
        for load in loads {
            good(load.join().expect("no panic there"));
        }
    });
    let listed = leases(&place);
    for (lease, one) in listed["leases"]
        .as_array()
        .expect("a list")
        .iter()
        .zip(&both)
    {
        assert_eq!(lease["borrower"], one.status()["uuid"]);
        assert_eq!(lease["in_use"], true);
    }
    let before = both.each_ref().map(|one| one.content("before.raw"));
    for (one, before) in both.iter().zip(before) {
        assert!(away(&one.status()) > 0, "nothing is away");
        let home = one.come_home();
        assert!(overlay(&home)["home_bytes"].as_u64() > Some(0), "{home}");
        assert!(
            before == one.content("home.raw"),
            "bytes changed on their way home"
        );
        good(place.run(&["scrub", one.name]));
        good(place.run(&["stop", one.name]));
    }
    assert!(daemons.iter().all(|daemon| daemon.wait() == 0));
    good(place.run(&["scrub", "pool"]));
    good(place.run(&["stop", "pool"]));
    assert_eq!(pool.wait(), 0);
}

#[test]
fn a_kill_of_either_side_loses_nothing() {
    let place = lender("leases-kill");
    if !has(&place, "a_kill_of_either_side_loses_nothing", &["qemu-io"]) {
        return;
    }
    let pool = serve_pool(&place);
    let tank = Borrower {
        place: &place,
        name: "tank",
    };
    tank.create();
    let daemon = tank.serve();
    good(tank.qemu_io("write -P 1 0 4M"));
    tank.fail();
    good(tank.qemu_io("write -P 2 1M 2M"));
    assert!(away(&tank.status()) > 0, "nothing is away");
    // The borrower alone.
    daemon.kill();
    let daemon = tank.serve();
    good(tank.qemu_io("read -P 2 1M 2M"));
    good(tank.qemu_io("write -P 3 2M 512k"));
    // The lender: what is away cannot be read, and nothing is made up.
    pool.kill();
    assert_eq!(tank.qemu_io("read 1M 1M").status, 1);
    good(tank.qemu_io("read -P 1 0 512k"));
    daemon.kill();
    let mut members = tank.members();
    members.push(lease("tank"));
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let told = refused(place.run(&[&["serve", "--unix", "tank.nbd"], &members[..]].concat()));
    assert!(told.contains("may have the only current copies"), "{told}");
    let told = refused(
        place.run(
            &[
                &["serve", "--unix", "tank.nbd", "--accept-loss"],
                &members[..],
            ]
            .concat(),
        ),
    );
    assert!(told.contains("would be permanently lost"), "{told}");
    // Both again.
    let pool = serve_pool(&place);
    let listed = leases(&place);
    let told = refused(place.run(&["lease", "remove", "pool", "tank"]));
    assert!(told.contains("records this lease"), "{told} {listed}");
    let daemon = tank.serve();
    let told = refused(place.run(&["lease", "remove", "pool", "tank"]));
    assert!(told.contains("a client has the lease attached"), "{told}");
    let told = refused(place.run(&["stop", "pool"]));
    assert!(told.contains("in use by other arrays"), "{told}");
    let all = [
        "read -P 1 0 1M",
        "read -P 2 1M 1M",
        "read -P 3 2M 512k",
        "read -P 2 2560k 512k",
    ];
    for command in all {
        good(tank.qemu_io(command));
    }
    tank.come_home();
    for command in all {
        good(tank.qemu_io(command));
    }
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    good(place.run(&["lease", "remove", "pool", "tank", "--force", "--yes"]));
    assert_eq!(leases(&place)["free_bytes"], 96 << 20);
    // What it held is gone: another may have the space without a question.
    Borrower {
        place: &place,
        name: "bank",
    }
    .create();
    good(place.run(&["stop", "pool"]));
    assert_eq!(pool.wait(), 0);
}
