//! `grow`: an array takes further members and spreads over them while it serves.

use crate::args::{Pace, Target, WithoutDaemon};
use crate::arrays::member::check_distinct;
use crate::arrays::origin::Whose;
use crate::failure::{Failure, Outcome};
use crate::print::terminal::print;
use crate::units::{Size, seconds};
use crate::verbs::members::confirm_overwriting;
use crate::verbs::session::{Session, absolute};
use crate::verbs::watch::{begun_at, check_moves, is_growth, pace, watch};
use clap::Args;
use clap::builder::PossibleValuesParser;
use restripe_array::{Moves, shown};
use restripe_io::control::{GrowthView, Reply, Request, StatusView, TaskView};

#[derive(Args, Debug)]
#[command(
    after_help = "Level 0 and 4: only the new members' share of the data is moved, each chunk within its row; parity is not moved.
With --moves parity-outsourced (level 4), the growth also copies parity to a spare, which replaces the parity member at
the end; that member becomes a spare. Until then writes go to both, so either may fail. Add the spare first.
Level 5 and 6: every chunk is moved into the new layout. This requires `ppl`, and neither a read cache nor a surrogate.
Level 1 and 10, and arrays with groups: no growth.
Users are served during a growth. If the daemon ends, the growth resumes at the next start; while a member is missing
it waits. The new capacity is available at the end and reads as zeros; NBD clients see it when they reconnect.

Example: restripe grow tank --add e.img --dry-run"
)]
pub(crate) struct Grow {
    #[command(flatten)]
    pub target: Target,
    /// The devices to add: new ones, or spares of the array
    #[arg(long, value_name = "MEMBER", num_args = 1.., conflicts_with_all = ["pause", "resume"])]
    pub add: Vec<String>,
    /// Print what would be moved, how long it takes and what is at risk; change nothing
    #[arg(long, requires = "add", conflicts_with_all = ["force", "no_wait", "Pace"])]
    pub dry_run: bool,
    /// How chunks are moved: best; or parity-outsourced, which also moves the parity of a level 4 to a spare
    /// [default: best]
    #[arg(long, value_name = "NAME", requires = "add", value_parser = moves_names(), hide_possible_values = true)]
    pub moves: Option<String>,
    /// Return when the growth has started
    #[arg(long, requires = "add")]
    pub no_wait: bool,
    /// Overwrite what the devices contain; lists what will be lost and asks
    #[arg(long, requires = "add")]
    pub force: bool,
    /// Do not ask
    #[arg(long, requires = "add")]
    pub yes: bool,
    #[command(flatten)]
    pub pace: Pace,
}

fn moves_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Moves::SERVED.map(Moves::name))
}

pub(crate) fn run(verb: &Grow) -> Outcome {
    let members: Vec<String> = verb.add.iter().map(|name| absolute(name)).collect();
    check_distinct(&members)?;
    let name = &verb.target.name;
    if verb.dry_run {
        let session = Session::open_to_look(name, &verb.target.without_daemon.offline)?;
        let moves = verb.moves.clone();
        return session.end_after(|session| tell(session, members, moves));
    }
    let session = Session::open(name, &verb.target.without_daemon)?;
    session.end_after(|session| match members.is_empty() {
        true => pace_or_watch(session, verb),
        false => grow(session, verb, members),
    })
}

fn grow(session: &Session, verb: &Grow, members: Vec<String>) -> Outcome {
    for member in &members {
        confirm_overwriting(session, member, verb.force, verb.yes)?;
    }
    let (_, since) = session.facts(u64::MAX)?;
    session.order(&Request::Grow {
        members,
        moves: verb.moves.clone(),
        force: verb.force,
        dry_run: false,
    })?;
    if let Some(request) = pace(&verb.pace) {
        session.order(&request)?;
    }
    if verb.no_wait && session.is_served() {
        return Ok(());
    }
    watch_growth(session, since)
}

/// Gives the growth that runs its orders, or waits for its end.
fn pace_or_watch(session: &Session, verb: &Grow) -> Outcome {
    let status = session.status()?;
    let task = the_growth(&status, &verb.target.without_daemon)?;
    if let Some(request) = pace(&verb.pace) {
        session.order(&request)?;
        if session.is_served() || verb.pace.is_kept() {
            return Ok(());
        }
    } else if task.paused {
        let members = &verb.target.without_daemon;
        let hint = format!("restripe grow {} --resume{members}", status.name);
        return Err(Failure::new("the growth is paused").hint(hint));
    }
    check_moves(&status)?;
    watch_growth(session, begun_at(session, is_growth)?)
}

fn the_growth<'a>(status: &'a StatusView, members: &WithoutDaemon) -> Outcome<&'a TaskView> {
    let found = status.tasks.iter().find(|task| is_growth(&task.kind));
    found.ok_or_else(|| {
        let name = &status.name;
        let hint = format!("start one with: restripe grow {name} --add DEVICE{members}");
        Failure::new("no growth is running").hint(hint)
    })
}

fn watch_growth(session: &Session, since: u64) -> Outcome {
    let ended = watch(session, since, Whose::Array, is_growth);
    let ended = ended.map_err(|failure| match session.status() {
        Err(_) => {
            Failure::new("the daemon has ended: the growth resumes when the array is served again")
        }
        Ok(_) => failure,
    });
    ended?.succeed("the growth")?;
    let status = session.status()?;
    print(format_args!(
        "{} now has {} members and {}; clients see the new size when they reconnect",
        shown(&status.name),
        status.slots,
        Size(status.size_bytes)
    ));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------- dry run

fn tell(session: &Session, members: Vec<String>, moves: Option<String>) -> Outcome {
    // Offline nothing is written while only this is asked for.
    if session.is_served() {
        check_moves(&session.status()?)?;
    }
    let request = Request::Grow {
        members,
        moves,
        force: false,
        dry_run: true,
    };
    match session.ask(&request)? {
        Reply::Growth(plan) => {
            let status = session.status()?;
            print(text(&plan, &status).trim_end());
            Ok(())
        }
        _ => Err(Failure::unexpected("grow")),
    }
}

fn text(plan: &GrowthView, status: &StatusView) -> String {
    let redundant = status.level != "raid0";
    let risk = match redundant {
        true => {
            "none: a member may fail and power may be cut at any time; a growth waits while a member is missing"
        }
        false => {
            "no more than usual for a raid0, which does not tolerate a failed member; power may be cut at any time"
        }
    };
    format!(
        "{}: from {} to {} members, from {} to {}; nothing is changed yet\n  \
           moves    about {}: {}\n{}  \
           takes    {}\n  \
           at risk  {risk}\n  \
           then     the new capacity reads as zeros; clients see it when they reconnect\n",
        shown(&status.name),
        plan.slots,
        plan.slots_after,
        Size(plan.size_bytes),
        Size(plan.size_bytes_after),
        Size(plan.moved_bytes),
        what_moves(plan, redundant),
        parity(plan),
        duration(plan),
    )
}

/// A line about parity that moves to a spare.
fn parity(plan: &GrowthView) -> String {
    match (&plan.parity_from, &plan.parity_to) {
        (Some(from), Some(to)) => {
            let (from, to) = (shown(from), shown(to));
            format!("  parity   from {from} to {to}, which replaces it; {from} becomes a spare\n")
        }
        _ => String::new(),
    }
}

fn what_moves(plan: &GrowthView, redundant: bool) -> &'static str {
    match (plan.least_moves, redundant) {
        (true, true) => {
            "the new members' share of written data, each chunk within its row; no parity"
        }
        (true, false) => "the new members' share of written data, each chunk within its row",
        (false, _) => {
            "all written data and parity; requests to rows that are being moved wait, and at the start all writes wait"
        }
    }
}

/// At the minimum rate, to which clients may hold it, and at the maximum.
fn duration(plan: &GrowthView) -> String {
    let at = |rate: u64| plan.member_bytes.div_ceil(rate.max(1));
    let least = match plan.rate_min_bytes {
        0 => "no upper bound: it waits while clients leave no bandwidth".into(),
        rate => format!("{} at {}/s, the minimum", seconds(at(rate)), Size(rate)),
    };
    let most = plan.rate_max_bytes.map_or(String::new(), |rate| {
        format!("; {} at {}/s, the maximum", seconds(at(rate)), Size(rate))
    });
    format!("{least}{most}; between these limits, as fast as the members allow")
}
