//! Options of `serve` about logs, mirrors that sleep and their spindles, held against the arrays that are served: one that can never
//! mean anything to any of them is refused, and one that does nothing now is named.
//!
//! Several arrays of one daemon share these options, so one that means something to one array is no reason to refuse the
//! others. What a configuration says is named and not refused: it may be kept for an array that is to come.

use crate::arrays::preflight::Preview;
use crate::arrays::setup::{Form, GivenOption, Setup, Subject};
use crate::failure::{Failure, Outcome};
use crate::print::terminal::warn;
use restripe_array::Slot;
use restripe_array::layout::{Layout, Level};
use restripe_tier::Redirect;

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

/// Refuses what can never mean anything to any of these arrays, and names what does nothing now.
pub(crate) fn judge(previews: &[&Preview], setup: &Setup) -> Outcome {
    let verdicts = |option: &GivenOption| -> Vec<Verdict> {
        let verdict = |one: &&Preview| verdict(one, option.subject, setup);
        previews.iter().map(verdict).collect()
    };
    for option in setup.given.iter().filter(|option| !option.by_file) {
        let mut never = None;
        for verdict in verdicts(option) {
            let Verdict::Never { why, hint } = verdict else {
                never = None;
                break;
            };
            never = never.or(Some((why, hint)));
        }
        if let Some((why, hint)) = never {
            let names: Vec<&str> = previews.iter().map(|one| one.name.as_str()).collect();
            let what = format!("{} would have no effect here: {why}", option.word);
            return Err(Failure::usage(what).at(names.join(", ")).hint(hint));
        }
    }
    for preview in previews {
        tell_idle(preview, setup);
    }
    Ok(())
}

/// One line for each reason.
fn tell_idle(preview: &Preview, setup: &Setup) {
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for option in &setup.given {
        let found = verdict(preview, option.subject, setup);
        let (Verdict::Idle(why) | Verdict::Never { why, .. }) = found else {
            continue;
        };
        match told.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, words)) => words.push(&option.word),
            None => told.push((why, vec![&option.word])),
        }
    }
    for (why, words) in told {
        let does = if words.len() == 1 { "has" } else { "have" };
        let (name, words) = (&preview.name, words.join(", "));
        warn(format_args!("{name}: {words} {does} no effect: {why}"));
    }
}

/// Whether mirrors of this array may sleep by this set-up.
pub(crate) fn lets_sleep(preview: &Preview, setup: &Setup) -> bool {
    setup.destage.sleep.is_some() && verdict(preview, Subject::Sleep, setup) == Verdict::Works
}

fn verdict(preview: &Preview, subject: Subject, setup: &Setup) -> Verdict {
    let found = match subject {
        Subject::Redirect => of_redirect(preview, setup),
        Subject::Destage => of_constant(preview, setup),
        Subject::CodeCache => of_code_cache(preview),
        Subject::Sleep => of_sleep(preview, setup),
        Subject::OfSleep if setup.destage.sleep.is_none() => {
            let why = "secondary copies are not put in standby";
            Verdict::never(why, "pass --standby-after TIME as well")
        }
        Subject::OfSleep => of_sleep(preview, setup),
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
fn of_redirect(preview: &Preview, setup: &Setup) -> Verdict {
    let log = matches!(setup.redirect, Some(Redirect::Reraid | Redirect::Graid));
    match preview.form {
        None if log => without_surrogate(preview, setup),
        _ => Verdict::Works,
    }
}

/// Every write is to go to a log, and there is none here.
fn without_surrogate(preview: &Preview, setup: &Setup) -> Verdict {
    const NONE: &str = "it has no surrogate";
    const HINT: &str = "use --redirect eraid without a surrogate (docs/how-to/code-cache.md describes the risk), or create the array with `restripe create --code-cache` or --log-disk";
    let level = preview.geometry.level;
    match setup.redirect {
        _ if preview.lacks_surrogate => Verdict::Idle(NOT_HERE),
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

const ONLY_WHILE_REBUILT: &str = "its surrogate takes writes only while a member is rebuilt";

/// Of what goes to a log at all times, or to first copies.
fn of_constant(preview: &Preview, setup: &Setup) -> Verdict {
    const HINT: &str =
        "pass --redirect reraid (or graid for mirrors), which redirects all writes at all times";
    let usual = preview.form.map(Form::usual_redirect);
    let redirect = setup.redirect.or(usual).unwrap_or_default();
    match (redirect, preview.form) {
        (Redirect::Eraid, _) => Verdict::Works,
        (redirect, Some(_)) if redirect.is_constant() => Verdict::Works,
        (_, Some(_)) => Verdict::never(ONLY_WHILE_REBUILT, HINT),
        (_, None) => without_surrogate(preview, setup),
    }
}

fn of_code_cache(preview: &Preview) -> Verdict {
    match preview.form {
        Some(Form::CodeCache) => Verdict::Works,
        None if preview.lacks_surrogate => Verdict::Idle(NOT_HERE),
        _ => Verdict::never(
            "it requires a code cache, and this array has none",
            "omit it; `restripe create --code-cache` creates an array with a code cache",
        ),
    }
}

fn of_sleep(preview: &Preview, setup: &Setup) -> Verdict {
    let geometry = preview.geometry;
    if !geometry.level.mirrors() {
        let why = "only secondary copies of a raid1 or raid10 enter standby";
        return Verdict::never(why, "omit it");
    }
    let has_firsts =
        |layout: &Layout| (0..geometry.slots).all(|slot| layout.has_firsts(Slot(slot)));
    match of_constant(preview, setup) {
        Verdict::Works if Layout::new(geometry).is_ok_and(|layout| has_firsts(&layout)) => {
            Verdict::Idle("every member holds primary copies, so none may enter standby")
        }
        verdict => verdict,
    }
}
