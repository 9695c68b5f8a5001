//! Options of `serve` about logs, mirrors that sleep and their spindles, held against the arrays that are served: one that can never
//! mean anything to any of them is refused, and one that does nothing now is named.
//!
//! Several arrays of one daemon share these options, so one that means something to one array is no reason to refuse the
//! others. What a configuration says is named and not refused: it may be kept for an array that is to come.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use crate::command::Serve;
use crate::config::ServeConfig;
use crate::engine::{Form, Setup};
use crate::failure::{Failure, Outcome};
use crate::print::terminal::warn;
use crate::roster::Prospect;
use restripe_array::Slot;
use restripe_array::layout::{Layout, Level};
use restripe_tier::Redirect;

/// What such an option is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    Redirect,
    Destage,
    CodeCache,
    Sleep,
    /// Of mirrors that sleep, and said beside `--sleep` alone.
    OfSleep,
}

/// An option that was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    subject: Subject,
    /// As it was written.
    word: String,
    by_file: bool,
}

/// What an option means to an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Works,
    Idle(&'static str),
    Never {
        why: &'static str,
        hint: &'static str,
    },
}

impl Verdict {
    fn never(why: &'static str, hint: &'static str) -> Verdict {
        Verdict::Never { why, hint }
    }
}

const NOT_HERE: &str = "its surrogate is missing";
const READ_ONLY: &str = "it is served read-only";

/// Those of the command line and of the file; the command line has the last word.
pub fn given(verb: &Serve, file: &ServeConfig) -> Vec<Wish> {
    let orders = (verb.destage_order.is_some(), file.destage_order.is_some());
    let memory = (verb.destage_memory.is_some(), file.destage_memory.is_some());
    let every = (verb.destage_every.is_some(), file.destage_every.is_some());
    let idle = (verb.destage_idle.is_some(), file.destage_idle.is_some());
    let starts = (verb.starts_a_day.is_some(), file.starts_a_day.is_some());
    let power = (verb.power.is_some(), file.power.is_some());
    let sleep = (verb.sleep.is_some(), file.sleep.is_some());
    let redirect = (verb.redirect.is_some(), file.redirect.is_some());
    let all = [
        (Subject::Redirect, "redirect", redirect),
        (Subject::Sleep, "sleep", sleep),
        (Subject::OfSleep, "starts-a-day", starts),
        (Subject::OfSleep, "power", power),
        (Subject::Destage, "destage-idle", idle),
        (Subject::Destage, "destage-every", every),
        (Subject::CodeCache, "destage-order", orders),
        (Subject::CodeCache, "destage-memory", memory),
    ];
    let mut wishes: Vec<Wish> = Vec::new();
    for (subject, name, by) in all {
        wishes.extend(wish(subject, by, &format!("--{name}"), name));
    }
    let unclean = (verb.no_clean_log, file.clean_log == Some(false));
    wishes.extend(wish(
        Subject::CodeCache,
        unclean,
        "--no-clean-log",
        "clean-log",
    ));
    wishes
}

/// What the command line says, or else the file, if either does.
fn wish(
    subject: Subject,
    (by_line, by_file): (bool, bool),
    option: &str,
    key: &str,
) -> Option<Wish> {
    let word = if by_line { option } else { key };
    (by_line || by_file).then(|| Wish {
        subject,
        word: word.into(),
        by_file: !by_line,
    })
}

/// Refuses what can never mean anything to any of these arrays, and names what does nothing now.
pub fn judge(prospects: &[&Prospect], setup: &Setup) -> Outcome {
    let verdicts = |wish: &Wish| -> Vec<Verdict> {
        let verdict = |one: &&Prospect| verdict(one, wish.subject, setup);
        prospects.iter().map(verdict).collect()
    };
    for wish in setup.wishes.iter().filter(|wish| !wish.by_file) {
        let mut never = None;
        for verdict in verdicts(wish) {
            let Verdict::Never { why, hint } = verdict else {
                never = None;
                break;
            };
            never = never.or(Some((why, hint)));
        }
        if let Some((why, hint)) = never {
            let names: Vec<&str> = prospects.iter().map(|one| one.name.as_str()).collect();
            let what = format!("{} would have no effect here: {why}", wish.word);
            return Err(Failure::usage(what).at(names.join(", ")).hint(hint));
        }
    }
    for prospect in prospects {
        tell_idle(prospect, setup);
    }
    Ok(())
}

/// One line for each reason.
fn tell_idle(prospect: &Prospect, setup: &Setup) {
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for wish in &setup.wishes {
        let (Verdict::Idle(why) | Verdict::Never { why, .. }) =
            verdict(prospect, wish.subject, setup)
        else {
            continue;
        };
        match told.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, words)) => words.push(&wish.word),
            None => told.push((why, vec![&wish.word])),
        }
    }
    for (why, words) in told {
        let does = if words.len() == 1 { "has" } else { "have" };
        warn(format_args!(
            "{}: {} {does} no effect: {why}",
            prospect.name,
            words.join(", ")
        ));
    }
}

/// Whether mirrors of this array may sleep by this set-up.
pub fn lets_sleep(prospect: &Prospect, setup: &Setup) -> bool {
    setup.destage.sleep.is_some() && verdict(prospect, Subject::Sleep, setup) == Verdict::Works
}

fn verdict(prospect: &Prospect, subject: Subject, setup: &Setup) -> Verdict {
    let found = match subject {
        Subject::Redirect => of_redirect(prospect, setup),
        Subject::Destage => of_constant(prospect, setup),
        Subject::CodeCache => of_code_cache(prospect),
        Subject::Sleep => of_sleep(prospect, setup),
        Subject::OfSleep if setup.destage.sleep.is_none() => Verdict::never(
            "secondary copies are not put in standby",
            "pass --sleep TIME as well",
        ),
        Subject::OfSleep => of_sleep(prospect, setup),
    };
    // What moves only out of the way of a rebuild is for another time, too.
    let is_of_now =
        subject != Subject::Redirect || setup.redirect.is_some_and(Redirect::is_constant);
    match found {
        Verdict::Works if setup.start.read_only && is_of_now => Verdict::Idle(READ_ONLY),
        found => found,
    }
}

/// What moves out of the way of a rebuild is for any array: most have a surrogate some day, and this is when it counts.
fn of_redirect(prospect: &Prospect, setup: &Setup) -> Verdict {
    let log = matches!(setup.redirect, Some(Redirect::Reraid | Redirect::Graid));
    match prospect.form {
        None if log => without_surrogate(prospect, setup),
        _ => Verdict::Works,
    }
}

/// Every write is to go to a log, and there is none here.
fn without_surrogate(prospect: &Prospect, setup: &Setup) -> Verdict {
    const NONE: &str = "it has no surrogate";
    const HINT: &str = "use --redirect eraid without a surrogate (docs/how-to/code-cache.md describes the risk), or create the array with `restripe create --code-cache` or --log-disk";
    let level = prospect.geometry.level;
    match setup.redirect {
        _ if prospect.lacks_surrogate => Verdict::Idle(NOT_HERE),
        Some(Redirect::Graid) if !level.mirrors() => {
            Verdict::never("redirect graid requires raid1 or raid10", "omit it")
        }
        _ if level == Level::Raid0 => Verdict::never("a raid0 cannot have a surrogate", "omit it"),
        Some(Redirect::Reraid | Redirect::Graid) => {
            Verdict::Idle("it has no surrogate; `restripe surrogate add` adds one")
        }
        _ => Verdict::never(NONE, HINT),
    }
}

/// Of what goes to a log at all times, or to first copies.
fn of_constant(prospect: &Prospect, setup: &Setup) -> Verdict {
    const HINT: &str =
        "pass --redirect reraid (or graid for mirrors), which redirects all writes at all times";
    let usual = prospect.form.map(Form::usual_redirect);
    let redirect = setup.redirect.or(usual).unwrap_or_default();
    match (redirect, prospect.form) {
        (Redirect::Eraid, _) => Verdict::Works,
        (redirect, Some(_)) if redirect.is_constant() => Verdict::Works,
        (_, Some(_)) => Verdict::never(
            "its surrogate takes writes only while a member is rebuilt",
            HINT,
        ),
        (_, None) => without_surrogate(prospect, setup),
    }
}

fn of_code_cache(prospect: &Prospect) -> Verdict {
    match prospect.form {
        Some(Form::CodeCache) => Verdict::Works,
        None if prospect.lacks_surrogate => Verdict::Idle(NOT_HERE),
        _ => Verdict::never(
            "it requires a code cache, and this array has none",
            "omit it; `restripe create --code-cache` creates an array with a code cache",
        ),
    }
}

fn of_sleep(prospect: &Prospect, setup: &Setup) -> Verdict {
    let geometry = prospect.geometry;
    if !geometry.level.mirrors() {
        return Verdict::never(
            "only secondary copies of a raid1 or raid10 enter standby",
            "omit it",
        );
    }
    let has_firsts =
        |layout: &Layout| (0..geometry.slots).all(|slot| layout.has_firsts(Slot(slot)));
    match of_constant(prospect, setup) {
        Verdict::Works if Layout::new(geometry).is_ok_and(|layout| has_firsts(&layout)) => {
            Verdict::Idle("every member holds primary copies, so none may enter standby")
        }
        verdict => verdict,
    }
}
