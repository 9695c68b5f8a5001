//! Leases over real sockets: windows of their own, memory of their own, one client each, and who borrows on
//! record.

use super::*;
use crate::front::nbd::{self, KernelPeer};
use crate::host::Delivery;
use crate::nbd_wire::option::{encode_info_query, encode_option};
use restripe_array::meta::{Partner, PartnerRole};
use restripe_array::{Class, CommandError, Event, LeaseCommand, LeaseError, LeaseName};

const LENT: u64 = 8 * MIB;
const LEASE: u64 = 2 * MIB;
const ENOSPC: u32 = 28;
/// An answer that does not come in this time will never come.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// A mirror that lends, its socket, and the leases `a` and `b` of two mebibytes each.
struct Lender {
    running: Running,
    path: PathBuf,
}

impl Lender {
    /// In memory.
    fn new(test: &str, backend: BackendChoice) -> Lender {
        let members = plain(&["ram:24M".to_owned(), "ram:24M".to_owned()]);
        make(&members);
        let members = members.into_iter().map(Plain::into_member).collect();
        let lender = Lender::serve(test, backend, members);
        lender.add("a").expect("room");
        lender.add("b").expect("room");
        lender
    }

    fn serve(test: &str, backend: BackendChoice, members: Vec<OpenMember>) -> Lender {
        let running = serve_within(backend, 32 * MIB, [spec(members, None)]);
        let name = format!("restripe-lease-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = Listener::unix(&path).expect("a free path");
        running.remote.listen(listener, nbd()).expect("it lives");
        Lender { running, path }
    }

    fn order(&self, command: LeaseCommand) -> Result<(), CommandError> {
        let answer = self.running.remote.command(0, Command::Lease(command));
        answer.expect("it lives")
    }

    fn add(&self, text: &str) -> Result<(), CommandError> {
        let sectors = LEASE / 512;
        let name = name(text);
        self.order(LeaseCommand::Add { name, sectors })
    }

    fn remove(&self, text: &str, force: bool) -> Result<(), CommandError> {
        let name = name(text);
        self.order(LeaseCommand::Remove { name, force })
    }

    fn remove_when_looked_up(&self, text: &str) -> Result<(), CommandError> {
        loop {
            match self.remove(text, false) {
                Err(CommandError::Busy(_)) => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    /// Where a lease starts in the array, and who borrows it.
    fn find(&self, text: &str) -> Option<(u64, Option<Uuid>)> {
        status(&self.running).set.lent.iter().find_map(|parcel| {
            let lease = parcel.lease.filter(|lease| lease.name == name(text))?;
            Some((parcel.start * 512, lease.borrower))
        })
    }

    fn wait_for_borrower(&self, text: &str, borrower: Option<Uuid>) {
        while self.find(text).expect("it is there").1 != borrower {
            std::thread::yield_now();
        }
    }

    fn attach(&self, export: &str) -> Result<Client, u32> {
        Client::attach(&self.path, export)
    }

    /// Attaches when the one before has left.
    fn attach_next(&self, export: &str) -> Client {
        loop {
            if let Ok(client) = self.attach(export) {
                return client;
            }
            std::thread::yield_now();
        }
    }
}

fn name(text: &str) -> LeaseName {
    LeaseName::new(text).expect("a name")
}

fn make(members: &[Plain]) {
    create_with(members, Level::Raid1, |options| {
        options.lend_sectors = Some(LENT / 512);
    });
}

/// A client that asks for one thing at a time.
pub(super) struct Client {
    pub(super) stream: UnixStream,
    size: u64,
}

impl Client {
    /// Attaches, or gives the kind of the refusal.
    pub(super) fn attach(path: &Path, export: &str) -> Result<Client, u32> {
        Client::on(UnixStream::connect(path).expect("it listens"), export)
    }

    pub(super) fn on(mut stream: UnixStream, export: &str) -> Result<Client, u32> {
        stream.set_read_timeout(PATIENCE).expect("a socket");
        stream.read_exact(&mut [0; 18]).expect("it greets");
        let mut hello = b"\0\0\0\x03".to_vec();
        encode_option(7, &[&encode_info_query(export, &[])], &mut hello);
        stream.write_all(&hello).expect("room");
        let mut size = 0;
        loop {
            let mut header = [0; 20];
            stream.read_exact(&mut header).expect("it answers");
            let word = |at: usize| {
                let word = header[at..].first_chunk().expect("a header has it");
                u32::from_be_bytes(*word)
            };
            let mut data = vec![0; word(16) as usize];
            stream.read_exact(&mut data).expect("it answers");
            match word(12) {
                1 => return Ok(Client { stream, size }),
                3 if data[..2] == [0, 0] => {
                    size = u64::from_be_bytes(*data[2..].first_chunk().expect("a size"));
                }
                3 => {}
                refused => return Err(refused),
            }
        }
    }

    pub(super) fn ask(&mut self, command: u16, offset: u64, bytes: u32, payload: &[u8]) {
        let request = Request {
            flags: 0,
            command,
            cookie: 1,
            offset,
            bytes,
        };
        self.stream.write_all(&request.encode()).expect("room");
        self.stream.write_all(payload).expect("room");
    }

    /// The error of a simple reply, 0 for none.
    fn error(&mut self) -> u32 {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).expect("it answers");
        u32::from_be_bytes(*reply[4..].first_chunk().expect("a reply has it"))
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> u32 {
        self.ask(1, offset, bytes.len() as u32, bytes);
        self.error()
    }

    pub(super) fn read(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>, u32> {
        self.ask(0, offset, bytes, &[]);
        match self.error() {
            0 => {
                let mut data = vec![0; bytes as usize];
                self.stream.read_exact(&mut data).expect("it follows");
                Ok(data)
            }
            error => Err(error),
        }
    }
}

#[test]
fn a_lease_is_a_window_of_its_own() {
    for backend in backends() {
        let lender = Lender::new("window", backend);
        let mut users = lender.attach("").expect("the array is the default");
        let [mut a, mut b] = ["lease/test/a", "lease/test/b"]
            .map(|export| lender.attach(export).expect("it is served"));
        assert_eq!((a.size, b.size), (LEASE, LEASE));
        let start_of = |lease| lender.find(lease).expect("it is there").0;
        assert!(start_of("a") >= users.size && start_of("b") >= start_of("a") + LEASE);
        for (client, seed) in [(&mut a, 1), (&mut b, 2)] {
            assert_eq!(client.write(LEASE - 8192, &pattern(seed, 8192)), 0);
            assert_eq!(client.write(LEASE - 4096, &pattern(seed, 8192)), ENOSPC);
            assert!(client.read(LEASE, 512).is_err() && client.read(u64::MAX - 511, 512).is_err());
        }
        assert_eq!(users.write(users.size - 4096, &pattern(3, 4096)), 0);
        let lent = users.read(users.size, 512);
        assert!(lent.is_err(), "it is no user's");
        for (client, seed) in [(&mut a, 1), (&mut b, 2)] {
            assert_eq!(client.read(LEASE - 8192, 8192), Ok(pattern(seed, 8192)));
        }
        let mut local = lender.running.remote.client(0);
        let there = local.read(start_of("b") + LEASE - 8192, 8192);
        assert!(there.expect("it is read") == pattern(2, 8192));
        drop((users, a, b));
        stop(lender.running);
    }
}

#[test]
fn a_lease_has_one_client_at_a_time() {
    let lender = Lender::new("one-client", BackendChoice::Automatic);
    let first = lender.attach("lease/test/a").expect("it is free");
    let policy = (1 << 31) | 2;
    assert_eq!(lender.attach("lease/test/a").err(), Some(policy));
    let removed = lender.remove("a", false);
    assert!(matches!(removed, Err(CommandError::Busy(_))));
    let uses = lender.running.remote.lease_uses(0).expect("it lives");
    let attached = |one: &LeaseUse| one.attached.then_some(one.name);
    assert!(uses.iter().filter_map(attached).eq([name("a")]));
    drop(first);
    let mut next = lender.attach_next("lease/test/a");
    assert_eq!(next.write(0, &pattern(1, 4096)), 0);
    lender.remove("a", true).expect("by force");
    let end = next.stream.read(&mut [0; 16]);
    assert!(matches!(end, Ok(0) | Err(_)), "it is hung up on");
    let unknown = (1 << 31) | 6;
    assert_eq!(lender.attach("lease/test/a").err(), Some(unknown));
    assert!(lender.attach("lease/test/b").is_ok());
    while matches!(lender.add("a"), Err(CommandError::Busy(_))) {
        std::thread::yield_now();
    }
    assert!(lender.attach("lease/test/a").is_ok());
    stop(lender.running);
}

/// Users who have taken all memory there is, and give none back, keep no borrower waiting; nor do borrowers each other.
#[test]
fn borrowers_go_on_while_users_have_all_the_memory() {
    for backend in backends() {
        let lender = Lender::new("memory", backend);
        let attach = |export| lender.attach(export).expect("it is served");
        let mut users: Vec<Client> = (0..17).map(|_| attach("")).collect();
        for user in &mut users {
            // The payload never comes; the memory for it is held.
            user.ask(1, 0, 2 << 20, &[0; 512]);
        }
        let mut a = attach("lease/test/a");
        let mut b = attach("lease/test/b");
        // It never takes the replies, and so holds all that a borrower may.
        for _ in 0..100 {
            a.ask(0, 0, 1 << 20, &[]);
        }
        for seed in 0..64 {
            let data = pattern(seed, 1 << 20);
            assert_eq!(b.write(0, &data), 0);
            assert!(b.read(0, 1 << 20).expect("it is read") == data);
        }
        let connections = lender.running.remote.connections().expect("it lives");
        assert_eq!(connections, 19, "nobody had to be hung up on for that");
        drop((users, a, b));
        stop(lender.running);
    }
}

#[test]
fn users_leave_borrowers_their_connections() {
    let lender = Lender::new("connections", BackendChoice::Automatic);
    let users = |_| lender.attach("").expect("the array is the default");
    let users: Vec<Client> = (0..CONNECTIONS_MAX).map(users).collect();
    let mut one_more = UnixStream::connect(&lender.path).expect("it listens");
    one_more.set_read_timeout(PATIENCE).expect("a socket");
    let mut hello = b"\0\0\0\x03".to_vec();
    encode_option(7, &[&encode_info_query("", &[])], &mut hello);
    one_more.write_all(&hello).expect("room");
    let end = one_more.read_to_end(&mut Vec::new());
    end.expect("it is hung up on");
    for lease in ["a", "b"] {
        let mut borrower = lender.attach_next(&format!("lease/test/{lease}"));
        assert_eq!(borrower.write(0, &pattern(1, 4096)), 0);
    }
    drop(users);
    stop(lender.running);
}

/// A device that is mounted must not depend on how many clients there are.
#[test]
fn clients_leave_the_kernel_its_connections() {
    let lender = Lender::new("kernel", BackendChoice::Automatic);
    let users = |_| lender.attach("").expect("the array is the default");
    let users: Vec<Client> = (0..CONNECTIONS_MAX).map(users).collect();
    // These never attach, and fill the table with those that did.
    let strangers = |_| UnixStream::connect(&lender.path).expect("it listens");
    let strangers: Vec<UnixStream> = (0..8).map(strangers).collect();
    let remote = &lender.running.remote;
    while remote.connections().expect("it lives") < CONNECTIONS_MAX + 2 {
        std::thread::yield_now();
    }
    let kernel: ProtocolMaker = Arc::new(|| {
        Box::new(nbd::Connection::for_kernel(KernelPeer {
            read_only: false,
            alive: None,
        }))
    });
    for _ in 0..16 {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let wire = Wire::socket(ours.into());
        let adopted = remote.adopt(wire, Arc::clone(&kernel));
        adopted.expect("it lives");
        let mut device = Client::on(theirs, "").expect("the array is the default");
        assert_eq!(device.write(0, &pattern(1, 4096)), 0);
    }
    drop((users, strangers));
    stop(lender.running);
}

/// The superblock of a surrogate, as its `create` writes it.
fn surrogates_head(of: Uuid) -> Vec<u8> {
    surrogate_up_to(16384, of)
}

/// So many bytes of its member.
fn surrogate_up_to(bytes: usize, of: Uuid) -> Vec<u8> {
    let members = plain(&["ram:8M".to_owned()]);
    create_with(&members, Level::Raid0, |options| {
        options.partner = Some(Partner::new(PartnerRole::Surrogate, of));
    });
    let mut head = vec![0; bytes];
    members[0].read(0, &mut head).expect("it is read");
    head
}

#[test]
fn who_borrows_is_what_lies_at_the_start() {
    let images = Images::new("borrower", 2, 24 * MIB);
    make(&plain(&images.names()));
    let lender = Lender::serve("borrower", BackendChoice::Automatic, open(&images.names()));
    lender.add("a").expect("room");
    let (one, other) = (Uuid([1; 16]), Uuid([2; 16]));
    let mut client = lender.attach("lease/test/a").expect("it is free");
    // Page by page, as `create` does: half a superblock is nobody's.
    for (page, bytes) in surrogates_head(one).chunks(4096).enumerate() {
        assert_eq!(client.write(page as u64 * 4096, bytes), 0);
    }
    lender.wait_for_borrower("a", Some(one));
    assert_eq!(client.write(0, &[0; 4096]), 0);
    lender.wait_for_borrower("a", None);
    assert_eq!(client.write(0, &surrogates_head(other)), 0);
    lender.wait_for_borrower("a", Some(other));
    client.ask(3, 0, 0, &[]);
    assert_eq!(client.error(), 0);
    drop(client);
    lender.running.remote.abandon().expect("it lives");
    lender.running.join().expect("it ends");
    let lender = Lender::serve("borrower", BackendChoice::Automatic, open(&images.names()));
    lender.wait_for_borrower("a", Some(other));
    let refused = lender.remove_when_looked_up("a");
    let (name, by) = (name("a"), other);
    let borrowed = LeaseError::Borrowed { name, by };
    assert_eq!(refused, Err(CommandError::Lease(borrowed)));
    // A table that says something else is put right when the array starts.
    let borrower = Some(one);
    let wrong = LeaseCommand::Bind { name, borrower };
    lender.order(wrong).expect("it is there");
    stop(lender.running);
    let lender = Lender::serve("borrower", BackendChoice::Automatic, open(&images.names()));
    lender.wait_for_borrower("a", Some(other));
    stop(lender.running);
}

/// A reactor that the test turns by hand, with an array that lends; completions of its members come when it says so.
pub(super) struct Bench {
    pub(super) shell: Shell,
    pub(super) path: PathBuf,
}

impl Bench {
    pub(super) fn new(test: &str) -> Bench {
        let members = plain(&["ram:24M".to_owned(), "ram:24M".to_owned()]);
        make(&members);
        let members = members.into_iter().map(Plain::into_member).collect();
        let mut shell = Shell::new(ShellOptions::default()).expect("a reactor");
        shell.host(spec(members, None)).expect("it is taken in");
        let name = format!("restripe-bench-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        shell.listen(Listener::unix(&path).expect("a free path"), nbd());
        let mut bench = Bench { shell, path };
        let started = bench.done(Command::Start(StartMode::default()));
        started.expect("it starts");
        bench.lend();
        bench.turn_until(|bench| bench.borrower() != BorrowerIs::LookedUp);
        bench
    }

    pub(super) fn turn(&mut self) {
        let shell = &mut self.shell;
        shell.turn().expect("it turns");
        let moment = Some(Duration::from_millis(1));
        let waited = shell.backend.wait(moment, &mut shell.done);
        waited.expect("it waits");
    }

    pub(super) fn turn_until(&mut self, wanted: impl Fn(&Bench) -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !wanted(self) {
            assert!(std::time::Instant::now() < deadline, "it never comes");
            self.turn();
        }
    }

    /// Turns while something else goes on, on a thread of its own.
    pub(super) fn during<T: Send + 'static>(
        &mut self,
        other: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let other = std::thread::spawn(other);
        self.turn_until(|_| other.is_finished());
        other.join().expect("it went well")
    }

    fn order(&mut self, command: Command) -> mpsc::Receiver<Result<(), CommandError>> {
        let (reply, answer) = mpsc::channel();
        self.shell.call(Call::Command(0, command, reply));
        answer
    }

    pub(super) fn done(&mut self, command: Command) -> Result<(), CommandError> {
        let answer = self.order(command);
        loop {
            if let Ok(answer) = answer.try_recv() {
                return answer;
            }
            self.turn();
        }
    }

    fn lease(&mut self, command: LeaseCommand) -> Result<(), CommandError> {
        self.done(Command::Lease(command))
    }

    fn lend(&mut self) {
        let (name, sectors) = (name("a"), LEASE / 512);
        let lent = self.lease(LeaseCommand::Add { name, sectors });
        lent.expect("room");
    }

    fn take_back(&mut self, force: bool) -> Result<(), CommandError> {
        let name = name("a");
        self.lease(LeaseCommand::Remove { name, force })
    }

    fn borrower(&self) -> BorrowerIs {
        self.shell.lease_uses(0)[0].borrower
    }

    /// Where the lease starts in the array, in bytes.
    fn start(&self) -> u64 {
        self.shell.hosts[0].status().lent[0].start * 512
    }

    /// What is done to the members from now on waits, or does so no longer.
    pub(super) fn hold(&mut self, held: bool) {
        let host = &mut self.shell.hosts[0];
        host.deliver(match held {
            true => Delivery::Held,
            false => Delivery::Prompt,
        });
        while !held && !host.held().is_empty() {
            host.release(0);
        }
        self.shell.quiet = false;
    }

    /// A client writes to the lease, and is cut off while that is under way.
    fn writes_and_is_cut(&mut self, offset: u64, bytes: Vec<u8>) {
        self.hold(true);
        let path = self.path.clone();
        let client = self.during(move || {
            let mut client = Client::attach(&path, "lease/test/a").expect("it is free");
            client.ask(1, offset, bytes.len() as u32, &bytes);
            client
        });
        self.turn_until(|bench| !bench.shell.hosts[0].held().is_empty());
        let first = self.shell.connections.iter_mut().next();
        let (number, connection) = first.expect("it is here");
        connection.kill();
        self.shell.dirty.push(number);
        drop(client);
        self.turn_until(|bench| !bench.shell.lease_uses(0)[0].attached);
    }
}

/// From the write that changes who borrows to the table that says so.
#[test]
fn a_lease_is_not_taken_back_while_it_is_looked_up_who_borrows_it() {
    let mut bench = Bench::new("pending");
    let by = Uuid([1; 16]);
    bench.writes_and_is_cut(0, surrogates_head(by));
    let name = name("a");
    let remove = Command::Lease(LeaseCommand::Remove { name, force: false });
    let mut why = Vec::new();
    let noted = |bench: &Bench| {
        let status = bench.shell.hosts[0].status();
        let lease = status.lent[0].lease.expect("it is lent");
        lease.borrower == Some(by)
    };
    while !noted(&bench) {
        match bench.order(remove).try_recv() {
            Ok(Err(CommandError::Busy(busy))) => why.push(busy),
            other => panic!("{other:?} after {why:?}"),
        }
        if !bench.shell.hosts[0].held().is_empty() {
            bench.shell.hosts[0].release(0);
        }
        bench.turn();
    }
    why.dedup();
    let write = "requests through the lease are still in flight";
    assert_eq!(why, [write, "the borrower of the lease is being looked up"]);
    bench.hold(false);
    let borrowed = LeaseError::Borrowed { name, by };
    assert_eq!(bench.take_back(false), Err(CommandError::Lease(borrowed)));
}

#[test]
fn a_lease_with_a_write_under_way_is_not_taken_back() {
    let mut bench = Bench::new("under-way");
    bench.writes_and_is_cut(1 << 19, pattern(1, 4096));
    let why = "requests through the lease are still in flight";
    assert_eq!(bench.take_back(false), Err(CommandError::Busy(why)));
    bench.hold(false);
    bench.turn_until(|bench| !bench.shell.hosts[0].busy() && bench.shell.hosts[0].in_flight() == 0);
    assert_eq!(bench.take_back(false), Ok(()));
}

/// However often space is lent and taken back, what is kept of it has a bound.
#[test]
fn a_lease_leaves_its_place_to_the_next() {
    let mut bench = Bench::new("places");
    let path = bench.path.clone();
    for _ in 0..20 {
        // Taken back with a client attached, who goes on for a while, and while it is looked at.
        let path = path.clone();
        let client = bench.during(move || {
            loop {
                if let Ok(client) = Client::attach(&path, "lease/test/a") {
                    return client;
                }
            }
        });
        bench.shell.look_at(bench.shell.exposed.len() - 1);
        bench.take_back(true).expect("by force");
        drop(client);
        bench.lend();
    }
    let kept = bench.shell.exposed.len();
    assert!(kept <= 3, "{kept}");
}

/// Who takes a lease back wipes it: a write that was under way must not land behind that.
#[test]
fn a_lease_is_taken_back_when_its_last_write_is_over() {
    let mut bench = Bench::new("late-write");
    let start = bench.start();
    bench.writes_and_is_cut(0, pattern(1, 4096));
    let name = name("a");
    let answer = bench.order(Command::Lease(LeaseCommand::Remove { name, force: true }));
    // All that is done to the members for the command itself is let go, and the write is not.
    while bench.shell.exposed.iter().any(|one| !one.gone) {
        bench.turn();
        let host = &mut bench.shell.hosts[0];
        let of_write = |event: &Event| match event {
            Event::Device(io, _) => io.class != Class::Metadata,
            _ => false,
        };
        let command = host.held().iter().position(|event| !of_write(event));
        if let Some(index) = command {
            host.release(index);
        }
    }
    bench.turn();
    assert_eq!(answer.try_recv(), Err(mpsc::TryRecvError::Empty));
    assert!(!bench.shell.hosts[0].held().is_empty(), "the write");
    bench.hold(false);
    bench.turn_until(|bench| bench.shell.taken_back.is_empty());
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    let remote = bench.shell.remote();
    bench.during(move || {
        let mut client = remote.client(0);
        client.zero(start, 16384, false).expect("it is wiped");
        let there = client.read(start, 4096).expect("it is read");
        assert!(there.iter().all(|byte| *byte == 0));
    });
}

#[test]
fn a_borrower_that_cannot_be_told_keeps_its_lease() {
    let images = Images::new("unknown", 2, 24 * MIB);
    make(&plain(&images.names()));
    let lender = Lender::serve("unknown", BackendChoice::Automatic, open(&images.names()));
    lender.add("a").expect("room");
    let borrower = |lender: &Lender| {
        let uses = lender.running.remote.lease_uses(0).expect("it lives");
        uses[0].borrower
    };
    let wait_for = |lender: &Lender, wanted| {
        while borrower(lender) != wanted {
            std::thread::yield_now();
        }
    };
    wait_for(&lender, BorrowerIs::OnRecord);
    // A damaged superblock says that somebody is here, and not who.
    let mut client = lender.attach("lease/test/a").expect("it is free");
    let mut damaged = surrogates_head(Uuid([1; 16]));
    damaged[100] ^= 1;
    assert_eq!(client.write(0, &damaged), 0);
    drop(client);
    wait_for(&lender, BorrowerIs::Unknown);
    assert_eq!(lender.find("a").expect("it is there").1, None);
    let doubtful = || Err(CommandError::Lease(LeaseError::BorrowerUnknown(name("a"))));
    assert_eq!(lender.remove_when_looked_up("a"), doubtful());
    // It is looked up again whenever somebody asks for the lease.
    wait_for(&lender, BorrowerIs::Unknown);
    lender.remove("a", true).expect("by force");
    stop(lender.running);
}

/// What could not be put on record is not known to be nobody's.
#[test]
fn a_borrower_that_could_not_be_noted_keeps_its_lease() {
    let mut bench = Bench::new("not-noted");
    bench.shell.exposed[0].look = super::super::borrowers::Look::Noting;
    bench.shell.noted(0, false);
    assert_eq!(bench.borrower(), BorrowerIs::Unknown);
    let doubtful = Err(CommandError::Lease(LeaseError::BorrowerUnknown(name("a"))));
    assert_eq!(bench.take_back(false), doubtful);
    bench.turn_until(|bench| bench.borrower() == BorrowerIs::OnRecord);
    assert_eq!(bench.take_back(false), Ok(()));
}

#[test]
fn the_second_superblock_tells_who_borrows_when_the_first_is_damaged() {
    let lender = Lender::new("second-copy", BackendChoice::Automatic);
    let one = Uuid([1; 16]);
    let mut client = lender.attach("lease/test/a").expect("it is free");
    // Up to the end of the second superblock.
    assert_eq!(client.write(0, &surrogate_up_to(1 << 20, one)), 0);
    lender.wait_for_borrower("a", Some(one));
    // Its first copy does not count any more, then says nothing at all.
    let mut damaged = surrogates_head(one);
    damaged[100] ^= 1;
    for first in [damaged, vec![0; 16384]] {
        assert_eq!(client.write(0, &first), 0);
        drop(client);
        let refused = lender.remove_when_looked_up("a");
        let (name, by) = (name("a"), one);
        let borrowed = LeaseError::Borrowed { name, by };
        assert_eq!(refused, Err(CommandError::Lease(borrowed)));
        client = lender.attach_next("lease/test/a");
    }
    // Both gone, it is nobody's.
    assert_eq!(client.write(0, &vec![0; 1 << 20]), 0);
    lender.wait_for_borrower("a", None);
    drop(client);
    stop(lender.running);
}
