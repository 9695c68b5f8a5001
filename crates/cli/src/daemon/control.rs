//! Answers the control requests of one array: from the socket of a daemon, or from a verb that works offline.
//!
//! A member is named as the operator knows it: by the path under which it was opened, by its number in `status`, or by
//! its UUID. Whatever comes back from the engine is turned into words here, in one place.

mod devices;
mod grow;
mod start;
pub(crate) mod stop;
mod surrogate;

use crate::arrays::member::{VOLATILE, open_failure, same_file};
use crate::arrays::origin::Whose;
use crate::arrays::refusals::refusal;
use crate::arrays::setup::Setup;
use crate::daemon::running::date;
use crate::failure::Failure;
use crate::print::surrogate::WITHOUT_LOG;
use crate::units::{Rate, Size, parse_order, parse_throttle};
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{ArrayOwner, Command, CommandError, Fact, Halt, Member, Nanos, ScrubMode};
use restripe_io::control::{
    Answer, FactView, HeatView, Refusal, Reply, Request, StatusView, Telling, member_name,
};
use restripe_io::member::disk::whole_disk;
use restripe_io::member::{MemberSource, OpenOptions};
use restripe_io::metrics;
use restripe_io::remote::{MemberName, NotTaken, Remote};
use restripe_tier::report::Status;
use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

mod leases;

/// Entries of the log of facts that are kept for whoever asks.
const FACTS_KEPT: usize = 4096;
/// Why a daemon might end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// SIGTERM or SIGINT.
    Signal,
    /// An operator stopped this array.
    Stopped(usize),
}

pub(crate) struct Desk {
    remote: Remote,
    array: usize,
    epoch: Instant,
    setup: Setup,
    open: OpenOptions,
    /// The last word about each pace, for an engine that takes the place of this one.
    paces: Mutex<Vec<Command>>,
    /// As whose the array was started.
    owner: Mutex<Option<ArrayOwner>>,
    /// Held while the engine is exchanged, or leases are changed.
    changing: Mutex<()>,
    /// The surrogate is being taken away: as long as it takes to bring home what is there, which nobody waits for.
    removing: AtomicBool,
    facts: Mutex<FactLog>,
    /// The array has been started, and not stopped since.
    serves: AtomicBool,
    /// Why an end by command was not all that it should be.
    unclean: Mutex<Option<Refusal>>,
    /// Told when the array has stopped.
    ends: Sender<End>,
}

/// The log of facts. Every look at it takes in first what has come since the last one.
struct FactLog {
    facts: Facts,
    teller: Teller,
    /// Unbounded: facts pile up here until the next look. An array that runs for long is looked at now and then, as
    /// `serve` does.
    source: Option<Receiver<(Nanos, Fact)>>,
}

impl FactLog {
    fn take_in(&mut self) {
        for (at, fact) in self.source.iter().flat_map(Receiver::try_iter) {
            self.facts.take(fact, |fact| self.teller.tell(at, fact));
        }
    }

    fn since(&mut self, since: u64) -> (Vec<FactView>, u64) {
        self.take_in();
        self.facts.since(since)
    }
}

#[derive(Default)]
struct Facts {
    /// The sequence number of the first entry kept.
    first: u64,
    kept: VecDeque<FactView>,
    /// What the last entry is about, as long as it may grow: nobody has it yet.
    growing: Option<Fact>,
}

impl Facts {
    /// Takes a fact in. One that goes on where the last ended, in the same words, makes that one longer: a loss of 8 KiB
    /// is one entry, also where it was found sector by sector.
    fn take(&mut self, fact: Fact, tell: impl FnOnce(&Fact) -> FactView) {
        let whole = self.growing.take().and_then(|last| joined(&last, &fact));
        let told = tell(whole.as_ref().unwrap_or(&fact));
        if whole.is_some() {
            self.kept.pop_back();
        }
        self.push(told);
        self.growing = Some(whole.unwrap_or(fact));
    }

    fn push(&mut self, fact: FactView) {
        let sequence = self.first + self.kept.len() as u64;
        self.kept.push_back(FactView { sequence, ..fact });
        if self.kept.len() > FACTS_KEPT {
            self.kept.pop_front();
            self.first += 1;
        }
    }

    fn since(&mut self, since: u64) -> (Vec<FactView>, u64) {
        self.growing = None;
        let facts = self
            .kept
            .iter()
            .filter(|fact| fact.sequence >= since)
            .cloned()
            .collect();
        (facts, self.first + self.kept.len() as u64)
    }
}

/// Two facts about neighbouring ranges as one.
fn joined(last: &Fact, next: &Fact) -> Option<Fact> {
    match (last, next) {
        (
            Fact::Lost { lba, sectors },
            Fact::Lost {
                lba: next,
                sectors: more,
            },
        ) if lba + sectors == *next => Some(Fact::Lost {
            lba: *lba,
            sectors: sectors + more,
        }),
        (
            Fact::Repaired {
                member,
                at,
                sectors,
                rotten,
            },
            Fact::Repaired {
                member: other,
                at: next,
                sectors: more,
                rotten: was,
            },
        ) if (member, rotten) == (other, was) && at + sectors == *next => Some(Fact::Repaired {
            member: *member,
            at: *at,
            sectors: sectors + more,
            rotten: *rotten,
        }),
        (Fact::OfSurrogate(last), Fact::OfSurrogate(next)) => {
            Some(Fact::OfSurrogate(Box::new(joined(last, next)?)))
        }
        _ => None,
    }
}

/// What the engine said, or that there is none any more.
pub(crate) type Said = Result<(), Refusal>;

impl Desk {
    /// `epoch` is when the reactor began: the zero of its clock. `ends` is told when the array has stopped.
    pub fn new(
        remote: Remote,
        array: usize,
        epoch: Instant,
        setup: Setup,
        ends: Sender<End>,
    ) -> Desk {
        let open = setup.open_options();
        let facts = FactLog {
            facts: Facts::default(),
            teller: Teller {
                remote: remote.clone(),
                array,
                read_only: open.read_only,
                names: Vec::new(),
            },
            source: remote.facts(array).ok(),
        };
        Desk {
            remote,
            array,
            epoch,
            setup,
            open,
            paces: Mutex::default(),
            owner: Mutex::default(),
            changing: Mutex::default(),
            removing: AtomicBool::default(),
            facts: Mutex::new(facts),
            serves: AtomicBool::default(),
            unclean: Mutex::default(),
            ends,
        }
    }

    /// The log of facts from a sequence number on, and where it goes on.
    pub(crate) fn facts_since(&self, since: u64) -> (Vec<FactView>, u64) {
        self.fact_log().since(since)
    }

    /// Returns when the log has every fact that precedes the reactor's last answer.
    pub(crate) fn wait_for_facts(&self) {
        let _ = self.remote.connections();
    }

    fn fact_log(&self) -> MutexGuard<'_, FactLog> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn status(&self) -> Result<StatusView, Refusal> {
        let (status, names) = self.look()?;
        let now = Nanos(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let path_of = |number: u16| {
            names
                .get(usize::from(number))
                .map_or(String::new(), |member| member.name.clone())
        };
        let mut view = StatusView::new(&status, now, path_of);
        if let Some(rating) = self.setup.rating() {
            let disk_of = |member: Member| whole_disk(&path_of(member.0));
            view.estimate(&status, now, &rating, disk_of);
        }
        self.tell_leases(&mut view)?;
        Ok(view)
    }

    /// What users read, with so many of the hottest zones at most.
    fn heat(&self, most: usize) -> Result<HeatView, Refusal> {
        let name = self.status()?.name;
        let heat = self.remote.heat(self.array).map_err(ended)?;
        Ok(HeatView::new(&name, &heat.unwrap_or_default(), most))
    }

    fn look(&self) -> Result<(Status, Vec<MemberName>), Refusal> {
        let status = self
            .remote
            .status(self.array)
            .map_err(ended)?
            .ok_or_else(|| Refusal::new("no such array"))?;
        let names = self.remote.member_names(self.array).map_err(ended)?;
        let mut log = self.fact_log();
        log.teller.names.clone_from(&names);
        log.take_in();
        Ok((without_ghosts(status, &names), names))
    }

    fn serve(&self, request: Request) -> Result<Reply, Refusal> {
        match request {
            Request::Status => Ok(Reply::Status(Box::new(self.status()?))),
            Request::Metrics => Ok(Reply::Metrics {
                text: metrics::render(&self.status()?, &self.heat(0)?),
            }),
            Request::Heat { most } => Ok(Reply::Heat(Box::new(self.heat(most as usize)?))),
            Request::Facts { since } => {
                let (facts, next) = self.facts_since(since);
                Ok(Reply::Facts { facts, next })
            }
            Request::Which { member } => Ok(done(&self.resolve(&member)?.1)),
            Request::Fail {
                member,
                accept_loss,
                dry_run,
            } => self.fail(&member, accept_loss, dry_run),
            Request::Remove { member } => self.remove(&member),
            Request::Add {
                path,
                force,
                to_surrogate,
                to_buffer,
            } => self.add(&path, force, set_named(to_surrogate, to_buffer)),
            Request::Replace { old, path, force } => self.replace(&old, &path, force),
            Request::Grow {
                members,
                force,
                dry_run,
            } => self.grow(&members, force, dry_run),
            Request::AddSurrogate {
                members,
                level,
                force,
            } => self.add_surrogate(&members, level.as_deref(), force),
            Request::RemoveSurrogate => self.remove_surrogate(),
            Request::Destage => self.simple(Command::Destage, "destage started"),
            Request::Scrub { repair, sync } => self.scrub(repair, sync),
            Request::Pause => self.simple(Command::Pause(true), "paused"),
            Request::Resume => self.simple(Command::Pause(false), "resumed"),
            Request::Cancel => self.simple(Command::Cancel, "the scrub is cancelled"),
            Request::Rate {
                min_bytes: min,
                max_bytes: max,
            } => {
                let rate = Rate { min, max }.checked();
                let note = format!("rate: {}", rate.map_err(Refusal::new)?);
                self.simple(Command::Rate { min, max }, &note)
            }
            Request::Throttle { name } => {
                let throttle = parse_throttle(&name).map_err(Refusal::new)?;
                self.simple(Command::Throttle(throttle), &format!("throttle: {name}"))
            }
            Request::Order { name } => {
                let order = parse_order(&name).map_err(Refusal::new)?;
                self.simple(Command::Order(order), &format!("order: {name}"))
            }
            Request::OnDemand { on } => {
                let whether = if on { "on" } else { "off" };
                self.simple(Command::OnDemand(on), &format!("on demand: {whether}"))
            }
            Request::CopyBack { on } => {
                let whether = if on { "on" } else { "off" };
                self.simple(Command::CopyBack(on), &format!("copy back: {whether}"))
            }
            Request::Lend { lease, bytes } => self.lend(&lease, bytes),
            Request::TakeBack { lease, force } => self.take_back(&lease, force),
            Request::Stop => self.stop(),
        }
    }

    /// Sends a command, and says what an error means in this array.
    pub fn command(&self, command: Command) -> Said {
        let pace = is_pace(&command).then_some(command);
        let answer = self.ask(command)?;
        answer.map_err(|error| self.refused(&error))?;
        if let Some(pace) = pace {
            let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
            paces.retain(|other| discriminant(other) != discriminant(&pace));
            paces.push(pace);
        }
        Ok(())
    }

    /// Sends a command; what the engine says of it.
    fn ask(&self, command: Command) -> Result<Result<(), CommandError>, Refusal> {
        self.remote.command(self.array, command).map_err(ended)
    }

    fn refused(&self, error: &CommandError) -> Refusal {
        let names = self.remote.member_names(self.array).unwrap_or_default();
        let refused = refusal(error, &names);
        match error.innermost() {
            CommandError::NoSpace => self.at_full_members(refused),
            _ => refused,
        }
    }

    fn at_full_members(&self, refused: Refusal) -> Refusal {
        let Ok((status, names)) = self.look() else {
            return refused;
        };
        let full = status.all_members().filter(|member| member.full);
        let full = full.filter_map(|member| names.get(usize::from(member.member.0)));
        let full: Vec<&str> = full.map(|found| found.name.as_str()).collect();
        refused.at(full.join(", "))
    }

    fn simple(&self, command: Command, note: &str) -> Result<Reply, Refusal> {
        self.command(command)?;
        Ok(done(note))
    }

    fn scrub(&self, repair: bool, sync: bool) -> Result<Reply, Refusal> {
        let mode = match (repair, sync) {
            (false, _) => ScrubMode::Check,
            (true, false) => ScrubMode::Repair,
            (true, true) => ScrubMode::Sync,
        };
        // Its dates are those of a clock that may have been set since the start.
        self.command(date())?;
        self.simple(Command::Scrub(mode), "scrub started")
    }

    fn fail(&self, text: &str, accept_loss: bool, dry_run: bool) -> Result<Reply, Refusal> {
        let (member, name) = self.resolve(text)?;
        let view = self.status()?;
        let exposed = view.members.iter().find(|one| one.member == member.0);
        let exposed = exposed.map_or(0, |one| one.exposed_bytes);
        if exposed > 0 && !accept_loss {
            let what = format!(
                "up to {} would be lost: only this member holds the current data",
                Size(exposed)
            );
            let hint = format!(
                "run `restripe surrogate destage {} --wait` first",
                view.name
            );
            return Err(Refusal::new(what).at(name).hint(hint));
        }
        if self.state_of(member)? == Some(MemberState::Failed) {
            return Ok(done(&format!(
                "{name} has failed already: `restripe add` adds it again, `restripe remove` removes it"
            )));
        }
        if dry_run {
            let may = self.remote.may_fail(self.array, member).map_err(ended)?;
            let may = may.map_err(|error| self.refused(&error));
            return may.map(|()| done(&format!("{name} may be failed")));
        }
        self.command(Command::Fail(member))?;
        Ok(done(&format!("{name} failed")))
    }

    fn remove(&self, text: &str) -> Result<Reply, Refusal> {
        let (member, name) = self.resolve(text)?;
        self.command(Command::Remove(member))?;
        self.remote.close(self.array, member).map_err(ended)?;
        Ok(done(&format!("{name} is removed and closed")))
    }

    /// The member that is meant, and its name.
    fn resolve(&self, text: &str) -> Result<(Member, String), Refusal> {
        let (status, names) = self.look()?;
        let name_of = |member: &MemberStatus| {
            names
                .get(usize::from(member.member.0))
                .map_or("", |m| m.name.as_str())
        };
        let found = status
            .all_members()
            .find(|member| is_meant(text, member, name_of(member)));
        let listed = || {
            status
                .all_members()
                .map(name_of)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match found {
            Some(member) => Ok((member.member, name_of(member).to_string())),
            None => Err(Refusal::new("the array has no such member")
                .at(text)
                .hint(format!("the members are {}", listed()))),
        }
    }
}

impl Answer for Desk {
    fn answer(&self, request: Request) -> Reply {
        self.serve(request).unwrap_or_else(Reply::Refused)
    }
}

/// The set that a device is to go into, where one is named.
fn set_named(to_surrogate: bool, to_buffer: bool) -> Option<Whose> {
    match (to_surrogate, to_buffer) {
        (_, true) => Some(Whose::Buffer),
        (true, false) => Some(Whose::Surrogate),
        (false, false) => None,
    }
}

fn not_taken(why: NotTaken) -> Refusal {
    match why {
        NotTaken::NoArray => Refusal::new("the array accepts no more devices"),
        NotTaken::Promised => Refusal::new(VOLATILE)
            .hint("connected clients were offered FLUSH: disconnect them first"),
    }
}

fn is_remote(path: &str) -> bool {
    matches!(MemberSource::parse(path), Ok(MemberSource::Nbd(_)))
}

fn is_pace(command: &Command) -> bool {
    use Command::{CopyBack, OnDemand, Order, Rate, Throttle};
    matches!(
        command,
        Rate { .. } | Throttle(_) | Order(_) | OnDemand(_) | CopyBack(_)
    )
}

fn in_the_array(name: &str, state: &str) -> Refusal {
    Refusal::new(format!(
        "this device is in the array already, and is {state}"
    ))
    .at(name)
}

fn of_absent_surrogate(path: &str) -> Refusal {
    Refusal::new("this device is a member of the array's surrogate, which is not served")
        .at(path)
        .hint("stop the array and start `serve` with the surrogate's members as well; --force makes the device a member of the array itself")
}

/// Puts facts into words.
struct Teller {
    remote: Remote,
    array: usize,
    read_only: bool,
    /// By number, as far as they were asked for.
    names: Vec<MemberName>,
}

impl Teller {
    fn tell(&mut self, at: Nanos, fact: &Fact) -> FactView {
        let telling = Telling {
            read_only: self.read_only,
            name_of: |member| self.name_of(member),
        };
        let mut told = FactView::new(at, fact, telling);
        match fact {
            Fact::SurrogateAbsent { why } => {
                told.text = absent_text("the surrogate", why, &self.names);
            }
            Fact::BufferAbsent { why, forgone } => {
                told.text = buffer_text(why, *forgone, &self.names);
            }
            Fact::OfSurrogate(fact)
                if **fact == Fact::Halted(Halt::TooFew) && self.goes_on_without_log() =>
            {
                told.text = format!("surrogate: the log disk is missing: {WITHOUT_LOG}");
            }
            _ => {}
        }
        told
    }

    fn goes_on_without_log(&self) -> bool {
        let status = self.remote.status(self.array).ok().flatten();
        let surrogate = status.and_then(|status| status.surrogate);
        let overlay = surrogate.and_then(|surrogate| surrogate.overlay);
        overlay.is_some_and(|overlay| overlay.without_log)
    }

    /// A number is given once, so a name that is known stays right. The reactor has better to do than to answer for each
    /// fact, and the log would trail what it tells of.
    fn name_of(&mut self, member: Member) -> String {
        let number = usize::from(member.0);
        if number >= self.names.len() {
            // After the reactor's end there are only numbers.
            self.names = self.remote.member_names(self.array).unwrap_or_default();
        }
        let found = self.names.get(number);
        member_name(member, found.map(|found| found.name.as_str()))
    }
}

fn absent_text(what: &str, why: &CommandError, names: &[MemberName]) -> String {
    let refused = refusal(why, names);
    let at = match refused.at.is_empty() {
        true => String::new(),
        false => format!(" ({})", refused.at),
    };
    format!("continues without {what}: {}{at}", refused.what)
}

fn buffer_text(why: &CommandError, forgone: bool, names: &[MemberName]) -> String {
    let told = match why {
        CommandError::BufferMissing => {
            "continues without its NVRAM buffer, which is missing".into()
        }
        CommandError::OfBuffer(inner) if forgone && **inner == CommandError::Metadata => {
            "the contents of its NVRAM buffer cannot be read".into()
        }
        CommandError::OfBuffer(inner) => absent_text("its NVRAM buffer", inner, names),
        why => absent_text("its NVRAM buffer", why, names),
    };
    let then = match forgone {
        true => "THE LAST FLUSHED WRITES ARE DISCARDED, the array returns to the state of the log",
        false => "flushes seal records early",
    };
    format!("{told}: {then}")
}

fn done(note: &str) -> Reply {
    Reply::Done { note: note.into() }
}

fn ended(error: restripe_io::remote::Ended) -> Refusal {
    Refusal::new(error.to_string())
}

fn refusal_of(failure: Failure) -> Refusal {
    let (what, at, hint) = failure.into_parts();
    Refusal {
        at,
        hint,
        ..Refusal::new(what)
    }
}

/// A device that was closed, and that the array does not know any more, keeps its number and nothing else. Nor does one
/// that went over to the surrogate leave anything behind.
fn without_ghosts(mut status: Status, names: &[MemberName]) -> Status {
    let moved: Vec<Member> = match &status.surrogate {
        Some(surrogate) => {
            let buffer = surrogate.buffer.iter().flat_map(|one| &one.set.members);
            let members = surrogate.set.members.iter().chain(buffer);
            members.map(|one| one.member).collect()
        }
        None => Vec::new(),
    };
    let is_open = |member: &MemberStatus| {
        names
            .get(usize::from(member.member.0))
            .is_some_and(|name| name.open)
    };
    let stays = |member: &MemberStatus| member.state != MemberState::Foreign || is_open(member);
    status
        .members
        .retain(|member| stays(member) && !moved.contains(&member.member));
    if let Some(surrogate) = &mut status.surrogate {
        surrogate.set.members.retain(stays);
        if let Some(buffer) = &mut surrogate.buffer {
            buffer.set.members.retain(stays);
        }
    }
    status
}

fn is_meant(text: &str, member: &MemberStatus, name: &str) -> bool {
    let by_number = text
        .parse::<u16>()
        .is_ok_and(|number| number == member.member.0);
    let by_uuid = text.eq_ignore_ascii_case(&member.uuid.to_string());
    by_number || by_uuid || (!name.is_empty() && (text == name || same_file(text, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    use restripe_array::Uuid;

    #[test]
    fn a_member_is_meant_by_path_number_or_uuid() {
        let uuid = Uuid([0xab; 16]);
        let member = MemberStatus {
            volatile: false,
            full: false,
            member: Member(3),
            uuid,
            slot: None,
            has_firsts: true,
            hosts: Vec::new(),
            state: MemberState::Active,
            replaced: false,
            read_errors: 0,
            spent: restripe_array::energy::Spent::default(),
        };
        for text in ["3", "d.img", "ABABABAB-ABAB-ABAB-ABAB-ABABABABABAB"] {
            assert!(is_meant(text, &member, "d.img"), "{text}");
        }
        for text in ["4", "e.img", "", "abab"] {
            assert!(!is_meant(text, &member, "d.img"), "{text}");
        }
    }

    #[test]
    fn refusals_name_members_as_the_operator_does() {
        let names = ["a.img", "b.img"].map(|name| MemberName {
            name: name.into(),
            open: true,
        });
        let told = refusal(&CommandError::Clone(Member(0), Member(1)), &names);
        assert_eq!(told.at, "a.img and b.img");
        assert_eq!(
            refusal(&CommandError::Foreign(Member(9)), &names).at,
            "member 9"
        );
        assert!(
            refusal(
                &CommandError::Minority {
                    present: 1,
                    current: 3
                },
                &names
            )
            .hint
            // Not every verb that starts an array has that option.
            .contains("serve --from-minority")
        );
    }

    #[test]
    fn an_absent_surrogate_is_told_with_its_reason() {
        let why = CommandError::Minority {
            present: 1,
            current: 2,
        };
        let told = absent_text("the surrogate", &why, &[]);
        let expected =
            "continues without the surrogate: only 1 of the 2 current members are present";
        assert_eq!(told, expected);
    }

    #[test]
    fn the_log_of_facts_keeps_the_newest() {
        let mut facts = Facts::default();
        for _ in 0..FACTS_KEPT + 10 {
            facts.push(FactView::default());
        }
        let (told, next) = facts.since(0);
        assert_eq!(
            (told.len(), told[0].sequence, next),
            (FACTS_KEPT, 10, FACTS_KEPT as u64 + 10)
        );
        assert!(facts.since(next).0.is_empty());
    }
}
