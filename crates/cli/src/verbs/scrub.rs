//! `scrub`: compares all copies and parity with the data, and says what came of it.

use crate::args::{Pace, Target};
use crate::arrays::origin::Whose;
use crate::failure::{Failure, Outcome};
use crate::print::terminal::print;
use crate::verbs::session::Session;
use crate::verbs::watch::{Ended, begun_at, is_scrub, pace, watch};
use clap::Args;
use restripe_io::control::{LastScrubView, Request, StatusView, TaskView};

#[derive(Args, Debug)]
pub(crate) struct Scrub {
    #[command(flatten)]
    pub target: Target,
    /// Repair what is unreadable, and what a second parity or a majority of copies proves wrong; leave other
    /// rows unchanged
    #[arg(long)]
    pub repair: bool,
    /// With --repair: also bring rows in sync where no second parity or third copy shows what is wrong; their
    /// data may stay wrong
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Return when the scrub has started
    #[arg(long)]
    pub no_wait: bool,
    /// Watch the running scrub instead of starting one
    #[arg(long, conflicts_with_all = ["repair", "no_wait", "offline", "Pace"])]
    pub watch: bool,
    /// Cancel the running scrub
    #[arg(long, conflicts_with_all = ["repair", "no_wait", "offline", "watch", "Pace"])]
    pub cancel: bool,
    #[command(flatten)]
    pub pace: Pace,
}

pub(crate) fn run(verb: &Scrub) -> Outcome {
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
    let (one, many) = (
        "had a finding and is repaired",
        "had findings and are repaired",
    );
    print_rows(last.rows_repaired, one, many);
    let one = "is brought in sync, but its data is not verified";
    let many = "are brought in sync, but their data is not verified";
    print_rows(last.rows_in_sync_unverified, one, many);
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
        let (one, many) = ("was not compared", "were not compared");
        let said = rows_said(last.rows_not_compared, one, many);
        let hint = "a member was missing, or a resync was running: repeat the scrub when the array is healthy";
        return Err(Failure::new(said).hint(hint));
    }
    if last.mismatches == 0 {
        print("every row agrees");
    }
    Ok(())
}

fn print_rows(count: u64, one: &str, many: &str) {
    if count > 0 {
        print(rows_said(count, one, many));
    }
}

fn rows_said(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 row {one}"),
        count => format!("{count} rows {many}"),
    }
}

fn compared(last: &LastScrubView) -> String {
    let (rows, total, unwritten) = (last.rows_compared, last.rows_total, last.rows_unwritten);
    format!("{rows} of {total} rows compared, {unwritten} never written")
}

/// What to do about the rows that a scrub left with findings.
fn way_to_repair(last: &LastScrubView, verb: &Scrub) -> String {
    let (name, how) = (&verb.target.name, &verb.target.without_daemon);
    match last.mode.as_str() {
        "check" => format!(
            "`restripe scrub {name} --repair{how}` repairs what is unreadable or proven wrong"
        ),
        "repair" => format!(
            "the wrong member is unknown: compare the rows with a backup, then bring them in sync with `restripe scrub {name} --repair --yes{how}`; their data may stay wrong"
        ),
        _ => format!(
            "these rows cannot be recovered: `restripe status {name}{how}` lists the first of them; rewrite them from a backup"
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
        let (name, how) = (&verb.target.name, &verb.target.without_daemon);
        let hint = format!("restripe scrub {name} --resume{how}");
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
