//! What a refused start says beyond the engine's refusal.

use restripe_array::{CommandError, StartMode};
use restripe_io::control::Refusal;
use std::time::Duration;

/// What a refused start that took this long tells, of the engine's refusal in words. The engine takes a member for
/// missing that does not answer in time, and it may be asked to accept losses then: a refusal that may come of that says
/// so.
pub(super) fn start_refusal(
    refused: Refusal,
    error: &CommandError,
    mode: StartMode,
    took: Duration,
    io_timeout: Duration,
) -> Refusal {
    let refused = of_start(refused, error, mode);
    match took >= io_timeout && is_for_want_of_members(error) {
        true => too_late(refused, error, io_timeout),
        false => refused,
    }
}

/// A start can do without a set beside the array's own, at a price.
fn of_start(refused: Refusal, error: &CommandError, mode: StartMode) -> Refusal {
    match error {
        CommandError::OfSurrogate(why) | CommandError::OfBuffer(why)
            if *why.innermost() == CommandError::NoSpace =>
        {
            refused.hint(NO_SPACE_BESIDE)
        }
        CommandError::OfBuffer(why)
            if **why == CommandError::Metadata && mode.accept_loss && mode.read_only =>
        {
            refused.hint(GIVES_NOTHING_UP)
        }
        _ => refused,
    }
}

const NO_SPACE_BESIDE: &str = "nothing is lost: free space and start again; or omit its members and pass --accept-loss, which loses data that only they hold";

const GIVES_NOTHING_UP: &str = "attach its missing members; or start without --read-only: only a start that may write can discard unreadable data";

/// Whether one member more might have been enough.
fn is_for_want_of_members(error: &CommandError) -> bool {
    use CommandError::{
        BufferMissing, LogDamaged, Metadata, Minority, NoArray, SurrogateMissing, TooFew, WouldLose,
    };
    let error = error.innermost();
    let of_array = matches!(error, NoArray | Minority { .. } | TooFew { .. } | Metadata);
    of_array
        || matches!(error, WouldLose { .. } | SurrogateMissing { .. })
        || matches!(error, LogDamaged { .. } | BufferMissing)
}

fn too_late(refused: Refusal, error: &CommandError, time: Duration) -> Refusal {
    let what = match error {
        // Their superblocks were read before the start.
        CommandError::NoArray => "none of these members responded in time".to_string(),
        _ => refused.what,
    };
    let late = format!(
        "members that do not respond within --io-timeout ({time:?} here) count as missing: increase it"
    );
    let hint = match error {
        CommandError::NoArray => late,
        _ if refused.hint.is_empty() => late,
        _ => format!("{late}; otherwise: {}", refused.hint),
    };
    Refusal { what, ..refused }.hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrays::refusals::refusal;

    #[test]
    fn only_a_start_is_told_to_do_without_what_has_no_space() {
        let full = |why| CommandError::OfSurrogate(Box::new(why));
        for error in [
            full(CommandError::NoSpace),
            full(CommandError::OfBuffer(Box::new(CommandError::NoSpace))),
        ] {
            let refused = refusal(&error, &[]);
            assert!(refused.hint.contains("then retry"), "{}", refused.hint);
            let refused = of_start(refused, &error, StartMode::default());
            assert_eq!(refused.hint, NO_SPACE_BESIDE);
        }
    }

    #[test]
    fn a_start_that_may_not_write_is_not_told_to_accept_losses_again() {
        let error = CommandError::OfBuffer(Box::new(CommandError::Metadata));
        for read_only in [false, true] {
            let mode = StartMode {
                accept_loss: true,
                read_only,
                ..StartMode::default()
            };
            let hint = of_start(refusal(&error, &[]), &error, mode).hint;
            assert_eq!(hint.contains("without --read-only"), read_only, "{hint}");
            assert_eq!(hint.contains("pass --accept-loss"), !read_only, "{hint}");
        }
    }

    #[test]
    fn a_time_out_is_told_before_losses_are_accepted() {
        let refused = Refusal::new("too few").hint("--accept-loss");
        let error = CommandError::OfSurrogate(Box::new(CommandError::Metadata));
        assert!(is_for_want_of_members(&error));
        assert!(!is_for_want_of_members(&CommandError::LogIsOld));
        let Refusal { what, hint, .. } = too_late(refused, &error, Duration::from_millis(1));
        assert_eq!(what, "too few");
        assert!(hint.contains("--io-timeout (1ms here)"), "{hint}");
        assert!(hint.ends_with("; otherwise: --accept-loss"), "{hint}");
    }
}
