//! The verbs that ask a running array: about members, tasks, and its end.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use crate::command::{
    Add, AddSurrogate, DestageNow, FailMember, Metrics, OnMember, Pace, Rebuild, Replace, Scrub,
    Stop, Target, WithoutDaemon,
};
use crate::desk::{is_rebuild, is_scrub};
use crate::failure::{Failure, Outcome};
use crate::member::{content, open};
use crate::print::terminal::{Lost, Progress, confirm, print, print_note, task_line};
use crate::session::{Session, absolute};
use crate::tie::Whose;
use crate::units::Size;
use clap::ValueEnum;
use restripe_io::control::{
    FactView, LastScrubView, MemberView, OverlayView, Reply, Request, StatusView, TaskView,
    wait_until_free,
};
use std::thread;
use std::time::Duration;

/// How long a daemon that has stopped its array may take to give up the array's name.
const FREE_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks at a running task.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn fail(fails: &FailMember) -> Outcome {
    let verb = &fails.of;
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let member = session.which(&verb.member)?;
        let status = session.status()?;
        let serves = |view: &MemberView| {
            view.path == member && matches!(view.state.as_str(), "active" | "rebuilding")
        };
        let surrogate = status.surrogate.as_deref();
        let buffer = surrogate.and_then(|one| one.buffer.as_ref());
        // What is refused in any case is refused before a question.
        session.ask(&Request::Fail {
            member: member.clone(),
            accept_loss: true,
            dry_run: true,
        })?;
        let accept_loss = confirm_exposed(&status, &member, fails.accept_loss)?;
        if status.members.iter().any(serves) {
            warn_of_thin_redundancy("array", &status.own_state, &status.name, &member, verb.yes)?;
        } else if let Some(set) = surrogate.filter(|set| set.members.iter().any(serves)) {
            warn_of_thin_redundancy("surrogate", &set.state, &set.name, &member, verb.yes)?;
        } else if let Some(set) = buffer.filter(|set| set.members.iter().any(serves)) {
            warn_of_thin_redundancy("NVRAM buffer", &set.state, &set.name, &member, verb.yes)?;
        }
        session.order(&Request::Fail {
            member,
            accept_loss,
            dry_run: false,
        })
    })
}

/// What nobody else has is lost with a first copy, which is a decision of its own: `--yes` does not make it. Whether it was made.
fn confirm_exposed(status: &StatusView, member: &str, accept_loss: bool) -> Outcome<bool> {
    let mut members = status.members.iter();
    let exposed = members.find(|view| view.path == member);
    let bytes = exposed.map_or(0, |view| view.exposed_bytes);
    if bytes == 0 || accept_loss {
        return Ok(accept_loss);
    }
    let what = format!(
        "up to {} that no other member holds; `restripe surrogate destage {} --wait` copies them to the other members first",
        Size(bytes),
        status.name
    );
    let losses = [Lost {
        at: member.into(),
        what,
    }];
    confirm("Data would be lost:", &losses, false)
        .map_err(|failure| failure.hint("pass --accept-loss to confirm the loss"))?;
    Ok(true)
}

/// A second failed member is a decision of its own.
fn warn_of_thin_redundancy(set: &str, state: &str, name: &str, member: &str, yes: bool) -> Outcome {
    if state != "degraded" || yes {
        return Ok(());
    }
    let what =
        format!("the {set} is degraded already; without {member} it may have no redundancy left");
    confirm(
        "Redundancy would be lost:",
        &[Lost {
            at: name.into(),
            what,
        }],
        false,
    )
}

pub fn remove(verb: &OnMember) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let member = session.which(&verb.member)?;
        session.order(&Request::Remove { member })
    })
}

pub fn add(verb: &Add) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let path = absolute(&verb.member);
        confirm_overwriting(session, &path, verb.force, verb.yes)?;
        session.order(&Request::Add {
            path,
            force: verb.force,
            to_surrogate: verb.to_surrogate,
            to_buffer: verb.to_buffer,
        })
    })
}

pub fn add_surrogate(verb: &AddSurrogate) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let members: Vec<String> = verb.members.iter().map(|name| absolute(name)).collect();
        for member in &members {
            confirm_overwriting(session, member, verb.force, verb.yes)?;
        }
        let level = verb.level.as_ref().and_then(ValueEnum::to_possible_value);
        session.order(&Request::AddSurrogate {
            members,
            level: level.map(|level| level.get_name().into()),
            force: verb.force,
        })
    })
}

pub fn remove_surrogate(verb: &Target) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    session.end_after(|session| session.order(&Request::RemoveSurrogate))
}

pub fn destage(verb: &DestageNow) -> Outcome {
    let DestageNow { target, wait } = verb;
    let session = Session::open(&target.name, &target.without_daemon)?;
    session.end_after(|session| {
        if !wait && session.is_served() {
            return session.order(&Request::Destage);
        }
        let status = session.status()?;
        let resyncs = status.tasks.iter().any(|task| task.kind == "resync");
        match overlay_of(&status) {
            // Further copies are being brought in step with the first ones, which went ahead without a log.
            None if resyncs => {
                let since = begun_at(session, is_rebuild)?;
                watch(session, since, Whose::Array, is_rebuild)?.succeed("the resync")?;
                print("all copies are in sync");
                Ok(())
            }
            overlay => {
                let begun = overlay.map_or(0, |overlay| overlay.destages);
                session.ask(&Request::Destage)?;
                wait_for_home(session, begun)
            }
        }
    })
}

fn overlay_of(status: &StatusView) -> Option<&OverlayView> {
    status.surrogate.as_ref()?.overlay.as_ref()
}

/// Waits until a way home that began after so many others has ended, or nothing is away.
fn wait_for_home(session: &Session, begun: u64) -> Outcome {
    let mut progress = Progress::new();
    loop {
        let status = session.status()?;
        let Some(overlay) = overlay_of(&status) else {
            return Err(Failure::new("the log is no longer served"));
        };
        let left = overlay.away_bytes + overlay.ahead_bytes;
        let ended = overlay.destages > begun && !overlay.going_home;
        // Users go on to write.
        if left == 0 || ended && session.is_served() {
            drop(progress);
            print("destage complete");
            return Ok(());
        }
        let fails = overlay.broken || !["healthy", "degraded"].contains(&status.state.as_str());
        if fails || ended {
            let what = format!("{} cannot be destaged", Size(left));
            return Err(Failure::new(what).hint("`restripe status` shows the failure"));
        }
        progress.show(&format!("{} to destage", Size(left)));
        thread::sleep(LOOK_EVERY);
    }
}

pub fn replace(verb: &Replace) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    session.end_after(|session| replace_in(session, verb))
}

fn replace_in(session: &Session, verb: &Replace) -> Outcome {
    let old = session.which(&verb.old)?;
    let path = absolute(&verb.new);
    confirm_overwriting(session, &path, verb.force, verb.yes)?;
    let (_, since) = session.facts(u64::MAX)?;
    let request = Request::Replace {
        old: old.clone(),
        path,
        force: verb.force,
    };
    session.order(&request)?;
    if !verb.no_wait || !session.is_served() {
        let whose = Whose::of(&session.status()?, &old);
        watch(session, since, whose, is_rebuild)?.succeed("the replacement")?;
        print_note(&format!("{old} is replaced"));
    }
    Ok(())
}

/// The daemon refuses to overwrite without `force`; with it, the person is asked here, where there is a terminal. What
/// is in the array already is not overwritten, and the daemon has it open. `path` is the very text that the request
/// will name: the daemon's folder may have another file under a relative one.
pub fn confirm_overwriting(session: &Session, path: &str, force: bool, yes: bool) -> Outcome {
    if !force || session.which_exactly(path).is_ok() {
        return Ok(());
    }
    match content(&open(path, true)?)? {
        None => Ok(()),
        Some(what) => confirm(
            "This device will be overwritten:",
            &[Lost {
                at: path.into(),
                what,
            }],
            yes,
        ),
    }
}

// ------------------------------------------------------------------------------------------------------------ tasks

pub fn rebuild(verb: &Rebuild) -> Outcome {
    let session = Session::open(&verb.target.name, &verb.target.without_daemon)?;
    let Some(status) = session.end_after(|session| pace_or_watch(session, verb))? else {
        return Ok(());
    };
    let Target {
        name,
        without_daemon,
    } = &verb.target;
    if status.own_state != "healthy" {
        let said = format!(
            "the array is {} and no rebuild is running",
            status.own_state
        );
        let hint = match &status.refuses_writes {
            Some(refusal) => refusal.hint.clone(),
            None => format!("add a spare: restripe add {name} DEVICE{without_daemon}"),
        };
        return Err(Failure::new(said).hint(hint));
    }
    match status.state == status.own_state {
        true => print(format_args!("{name} is healthy")),
        // The surrogate's members are no rebuild of the array's.
        false => print(format_args!(
            "the array's own members are healthy; {name} is {}: `restripe status {name}` shows the cause",
            status.state
        )),
    }
    Ok(())
}

/// Gives a rebuild its orders, or waits for its end: how the array is then. Offline it waits also with orders, except
/// with one that the members keep: a pace would end with this command.
fn pace_or_watch(session: &Session, verb: &Rebuild) -> Outcome<Option<StatusView>> {
    let order = verb.order.map(|order| Request::Order {
        name: order.name().into(),
    });
    let on_demand = verb.on_demand.map(|on| Request::OnDemand { on });
    let copy_back = verb.copy_back.map(|on| Request::CopyBack { on });
    let asked = pace(&verb.pace).or(order).or(on_demand).or(copy_back);
    if let Some(request) = asked {
        session.order(&request)?;
        if session.is_served() || verb.pace.is_kept() {
            return Ok(None);
        }
    }
    watch_rebuild(session, &verb.target.without_daemon).map(Some)
}

/// Waits for the rebuild that runs, if one does, and says how the array is then.
fn watch_rebuild(session: &Session, members: &WithoutDaemon) -> Outcome<StatusView> {
    let status = session.status()?;
    let mut rebuilds = status
        .tasks
        .iter()
        .filter(|task| is_rebuild(&task.kind))
        .peekable();
    if rebuilds.peek().is_none() {
        return Ok(status);
    }
    check_moves(&status)?;
    if rebuilds.all(|task| task.paused) {
        let hint = format!("restripe rebuild {} --resume{members}", status.name);
        return Err(Failure::new("the rebuild is paused").hint(hint));
    }
    let since = begun_at(session, is_rebuild)?;
    watch(session, since, Whose::Array, is_rebuild)?.succeed("the rebuild")?;
    session.status()
}

pub fn pace(pace: &Pace) -> Option<Request> {
    let rate = pace.rate.map(|rate| Request::Rate {
        min_bytes: rate.min,
        max_bytes: rate.max,
    });
    let throttle = pace.throttle.map(|throttle| Request::Throttle {
        name: throttle.to_string(),
    });
    match pace {
        Pace { pause: true, .. } => Some(Request::Pause),
        Pace { resume: true, .. } => Some(Request::Resume),
        _ => rate.or(throttle),
    }
}

pub fn scrub(verb: &Scrub) -> Outcome {
    let session = Session::open(&verb.target.name, &verb.target.without_daemon)?;
    let Some((ended, status)) = session.end_after(|session| watch_scrub(session, verb))? else {
        return Ok(());
    };
    ended.tell_mismatches();
    ended.succeed("the scrub")?;
    if status.own_state != "healthy" {
        let state = status.own_state;
        let said = format!("the array is {state}: not every row could be compared");
        return Err(Failure::new(said).hint("`restripe status` lists the missing members"));
    }
    judge_scrub(&status, verb)?;
    if status.surrogate.is_some() {
        print("a scrub does not check the surrogate's log");
    }
    Ok(())
}

/// Starts a scrub or finds the one that runs, and waits for its end: how it ended, and how the array is then. Nothing
/// if nobody waits: one that runs already is only given its orders.
fn watch_scrub(session: &Session, verb: &Scrub) -> Outcome<Option<(Ended, StatusView)>> {
    if verb.cancel {
        session.order(&Request::Cancel)?;
        return Ok(None);
    }
    if let Some(request) = pace(&verb.pace) {
        session.order(&request)?;
        if verb.pace.is_kept() || session.is_served() && running(session)?.is_some() {
            return Ok(None);
        }
    }
    let (_, end) = session.facts(u64::MAX)?;
    let since = match verb.watch || goes_on(session, verb)? {
        true => watched_from(session)?,
        false => {
            session.order(&Request::Scrub {
                repair: verb.repair,
                sync: verb.yes,
            })?;
            end
        }
    };
    if verb.no_wait && session.is_served() {
        return Ok(None);
    }
    let ended = watch(session, since, Whose::Array, is_scrub)?;
    Ok(Some((ended, session.status()?)))
}

/// Rows with a finding make a scrub fail, unless it repaired them, or was told to bring them in sync.
fn judge_scrub(status: &StatusView, verb: &Scrub) -> Outcome {
    let Some(last) = &status.last_scrub else {
        return Err(Failure::new("the array has no record of a scrub"));
    };
    print(compared(last));
    for (count, one, many) in [
        (
            last.rows_repaired,
            "had a finding and is repaired",
            "had findings and are repaired",
        ),
        (
            last.rows_in_sync_unverified,
            "is brought in sync, but its data is not verified",
            "are brought in sync, but their data is not verified",
        ),
    ] {
        if count > 0 {
            print(rows_said(count, one, many));
        }
    }
    if last.rows_left > 0 {
        let (one, many) = match (last.rows_wrong, last.rows_unreadable) {
            (0, _) => ("is unreadable", "are unreadable"),
            (_, 0) => ("disagrees", "disagree"),
            _ => ("is left with findings", "are left with findings"),
        };
        let said = rows_said(last.rows_left, one, many);
        return Err(Failure::new(said).hint(way_to_repair(last, verb)));
    }
    if last.rows_not_compared > 0 {
        let said = rows_said(
            last.rows_not_compared,
            "was not compared",
            "were not compared",
        );
        let hint = "a member was missing, or a resync was running: repeat the scrub when the array is healthy";
        return Err(Failure::new(said).hint(hint));
    }
    if last.mismatches == 0 {
        print("every row agrees");
    }
    Ok(())
}

fn rows_said(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 row {one}"),
        count => format!("{count} rows {many}"),
    }
}

fn compared(last: &LastScrubView) -> String {
    format!(
        "{} of {} rows compared, {} never written",
        last.rows_compared, last.rows_total, last.rows_unwritten
    )
}

/// What to do about the rows that a scrub left with findings.
fn way_to_repair(last: &LastScrubView, verb: &Scrub) -> String {
    let Target {
        name,
        without_daemon,
    } = &verb.target;
    match last.mode.as_str() {
        "check" => format!(
            "`restripe scrub {name} --repair{without_daemon}` repairs what is unreadable or proven wrong"
        ),
        "repair" => format!(
            "the wrong member is unknown: compare the rows with a backup, then bring them in sync with `restripe scrub {name} --repair --yes{without_daemon}`; their data may stay wrong"
        ),
        _ => format!(
            "these rows cannot be recovered: `restripe status {name}{without_daemon}` lists the first of them; rewrite them from a backup"
        ),
    }
}

/// The scrub that there is already.
fn running(session: &Session) -> Outcome<Option<TaskView>> {
    let tasks = session.status()?.tasks;
    Ok(tasks.into_iter().find(|task| is_scrub(&task.kind)))
}

/// Offline, a scrub of this kind that was under way goes on as soon as the array starts: this verb's own.
fn goes_on(session: &Session, verb: &Scrub) -> Outcome<bool> {
    let kind = if verb.repair { "repair" } else { "check" };
    let ours = |task: &TaskView| !session.is_served() && task.kind == kind;
    let Some(task) = running(session)?.filter(ours) else {
        return Ok(false);
    };
    if task.paused {
        let Target {
            name,
            without_daemon,
        } = &verb.target;
        let hint = format!("restripe scrub {name} --resume{without_daemon}");
        return Err(Failure::new("the scrub is paused").hint(hint));
    }
    Ok(true)
}

/// Where the log tells of the scrub that runs: what it found before is told too.
fn watched_from(session: &Session) -> Outcome<u64> {
    if running(session)?.is_none() {
        let hint = match session.status()? {
            status if status.last_scrub.is_some() => format!(
                "`restripe status {}` shows the result of the last scrub; `restripe scrub` without --watch starts one",
                status.name
            ),
            _ => "`restripe scrub` without --watch starts one".to_owned(),
        };
        return Err(Failure::new("no scrub is running").hint(hint));
    }
    begun_at(session, is_scrub)
}

/// Where the log tells that the last task of this kind began: how an older one ended is not asked.
pub fn begun_at(session: &Session, of_kind: fn(&str) -> bool) -> Outcome<u64> {
    let (facts, _) = session.facts(0)?;
    let begins = |fact: &&FactView| {
        fact.kind == "task-started" && of_kind(&fact.task) && Whose::Array.is_told(fact)
    };
    let begun = facts.iter().rev().find(begins);
    Ok(begun.map_or(0, |fact| fact.sequence))
}

/// So many rows that disagree are named, and the others counted.
const NAMED: usize = 50;

/// How a watched task ended.
pub struct Ended {
    outcome: String,
    mismatches: u64,
    facts: Vec<FactView>,
}

impl Ended {
    fn tell_mismatches(&self) {
        let told = || self.facts.iter().filter(|fact| fact.kind == "mismatch");
        for mismatch in told().take(NAMED) {
            print_note(&mismatch.text);
        }
        let more = told().count().saturating_sub(NAMED);
        if more > 0 {
            print(format_args!("and {more} more"));
        }
    }

    pub fn succeed(&self, what: &str) -> Outcome {
        match self.outcome.as_str() {
            "done" => Ok(()),
            "" => Err(Failure::new(format!("{what} ended without an outcome"))),
            other => Err(Failure::new(format!(
                "{what} {}",
                if other == "failed" {
                    "failed"
                } else {
                    "was cancelled"
                }
            ))),
        }
    }
}

/// Whose task is watched.
impl Whose {
    /// Of the member of this path.
    fn of(status: &StatusView, path: &str) -> Whose {
        let has = |members: &[MemberView]| members.iter().any(|member| member.path == path);
        let Some(surrogate) = &status.surrogate else {
            return Whose::Array;
        };
        match &surrogate.buffer {
            Some(buffer) if has(&buffer.members) => Whose::Buffer,
            _ if has(&surrogate.members) => Whose::Surrogate,
            _ => Whose::Array,
        }
    }

    fn tasks(self, status: &StatusView) -> &[TaskView] {
        let surrogate = status.surrogate.as_deref();
        let buffer = surrogate.and_then(|one| one.buffer.as_ref());
        match self {
            Whose::Array => &status.tasks,
            Whose::Surrogate => surrogate.map_or(&[], |one| &one.tasks),
            Whose::Buffer => buffer.map_or(&[], |one| &one.tasks),
        }
    }

    fn is_told(self, fact: &FactView) -> bool {
        let sets = (fact.of_surrogate, fact.of_buffer);
        sets == (self == Whose::Surrogate, self == Whose::Buffer)
    }
}

/// Shows the progress of a task until it has ended: no task of its kind is left, and the log says how it went.
pub fn watch(
    session: &Session,
    since: u64,
    whose: Whose,
    of_kind: fn(&str) -> bool,
) -> Outcome<Ended> {
    let mut progress = Progress::new();
    let mut ended = Ended {
        outcome: String::new(),
        mismatches: 0,
        facts: Vec::new(),
    };
    let mut next = since;
    let mut gone = false;
    loop {
        let (facts, following) = session.facts(next)?;
        next = following;
        for fact in facts.into_iter().filter(|fact| whose.is_told(fact)) {
            if fact.kind == "task-ended" && of_kind(&fact.task) {
                ended.outcome = fact.outcome.clone();
            }
            ended.facts.push(fact);
        }
        let status = session.status()?;
        check_moves(&status)?;
        let tasks = whose.tasks(&status);
        match tasks.iter().find(|task| of_kind(&task.kind)) {
            Some(task) => {
                gone = false;
                check_its_turn_comes(task, tasks, &status.name)?;
                ended.mismatches = task.mismatches;
                progress.show(&task_line(task));
            }
            None if !ended.outcome.is_empty() => return Ok(counted(ended)),
            // Its end is in the log soon after, or was before the log's beginning.
            None if gone => return Ok(counted(ended)),
            None => gone = true,
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Nothing is waited for in an array that only reads.
pub fn check_moves(status: &StatusView) -> Outcome {
    if !status.read_only {
        return Ok(());
    }
    let what = "this array is read-only: its tasks wait";
    Err(Failure::new(what)
        .hint("it was started read-only, or halted for lack of space or members: the daemon's log contains the cause"))
}

/// Nor for a task behind one that is paused: who waits here may be the only one who could let that go on.
fn check_its_turn_comes(task: &TaskView, tasks: &[TaskView], name: &str) -> Outcome {
    let goes = |other: &TaskView| !other.paused && other.waits.is_empty();
    if task.waits == "members" && !tasks.iter().any(goes) {
        let hint = format!(
            "add a device with `restripe add {name} DEVICE`; the task resumes when the device is rebuilt"
        );
        let said = format!("the {} waits until no member is missing", task.kind);
        return Err(Failure::new(said).hint(hint));
    }
    if task.waits != "another-task" || tasks.iter().any(goes) {
        return Ok(());
    }
    let Some(first) = tasks.iter().find(|other| other.paused) else {
        return Ok(());
    };
    let said = format!(
        "the {} waits for the {}, which is paused",
        task.kind, first.kind
    );
    let hint = format!(
        "run `restripe rebuild {name} --resume` (with --offline and the members if it is not served)"
    );
    Err(Failure::new(said).hint(hint))
}

/// The last look may have missed the last rows: the log has them.
fn counted(mut ended: Ended) -> Ended {
    let logged = ended
        .facts
        .iter()
        .filter(|fact| fact.kind == "mismatch")
        .count() as u64;
    ended.mismatches = ended.mismatches.max(logged);
    ended
}

// --------------------------------------------------------------------------------------------------- the daemon itself

pub fn stop(verb: &Stop) -> Outcome {
    let session = Session::open_to_look(&verb.name, &[])?;
    // The usual hint, to work on the members, leads nowhere: there is nothing to stop.
    let hint =
        "`restripe status` lists the served arrays; an array that is not served needs no stop";
    session
        .status()
        .map_err(|failure| match failure.is_not_running() {
            true => failure.hint(hint),
            false => failure,
        })?;
    let stopped = session.order(&Request::Stop);
    let ended = stopped.as_ref().err().is_none_or(Failure::is_of_ended);
    if ended && !wait_until_free(&verb.name, FREE_WITHIN)? {
        let name = &verb.name;
        print_note(&format!(
            "the name {name} is still in use: the daemon has not ended, or another daemon has started"
        ));
    }
    stopped
}

pub fn metrics(target: &Metrics) -> Outcome {
    let session = Session::open_to_look(&target.name, &target.offline)?;
    match session.end_after(|session| session.ask(&Request::Metrics))? {
        Reply::Metrics { text } => {
            print(text.trim_end());
            Ok(())
        }
        _ => Err(Failure::new(
            "the daemon sent an unexpected reply to `metrics`",
        )),
    }
}
