//! The reason why an array refuses writes: the cause, the members concerned, and the remedy, as every output
//! shows them.

use restripe_array::report::{Refusal, WhyRefused};
use restripe_tier::report::Status;
use serde::{Deserialize, Serialize};

/// The reason and the state of an array that writes nothing.
pub const READ_ONLY: &str = "read-only";

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RefusalView {
    /// `read-only`, `no-space`, `too-few-members`, `log-failed`, `log-full` or `other-owner`.
    pub reason: String,
    /// The members that are the cause, by their paths.
    pub members: Vec<String>,
    /// The reason and the members as a sentence.
    pub text: String,
    /// What ends it.
    pub hint: String,
}

impl RefusalView {
    pub(super) fn of(status: &Status, path_of: impl Fn(u16) -> String) -> Option<RefusalView> {
        let Refusal { why, members } = status.refusal.as_ref()?;
        let members: Vec<String> = members.iter().map(|one| path_of(one.0)).collect();
        Some(RefusalView {
            reason: why.name().into(),
            text: text_of(*why, &members),
            hint: hint_of(*why, &members, status),
            members,
        })
    }
}

/// Whether the array refuses writes though it was not asked to.
pub(super) fn had_to(status: &Status) -> bool {
    let refusal = status.refusal.as_ref();
    refusal.is_some_and(|one| one.why != WhyRefused::ReadOnly)
}

fn text_of(why: WhyRefused, members: &[String]) -> String {
    let members = members.join(", ");
    match why {
        WhyRefused::ReadOnly => "it was started read-only".into(),
        WhyRefused::NoSpace => format!("no space is left on {members}"),
        WhyRefused::TooFew if members.is_empty() => "too many members are missing".into(),
        WhyRefused::TooFew => format!("too many members are missing: {members}"),
        WhyRefused::LogFailed => format!("the surrogate's log failed with {members}"),
        WhyRefused::Owned => "another daemon has taken the array".into(),
        WhyRefused::LogFull => format!("no space is left for the surrogate's log on {members}"),
    }
}

fn hint_of(why: WhyRefused, members: &[String], status: &Status) -> String {
    let name = &status.name;
    let anew = format!("run `restripe stop {name}` and `restripe serve`");
    match (why, members) {
        (WhyRefused::Owned, _) => {
            format!("run `restripe stop {name}`: the other daemon serves the array")
        }
        (WhyRefused::ReadOnly, _) => format!(
            "run `restripe stop {name}` if a daemon serves it, then `restripe serve` without --read-only"
        ),
        (WhyRefused::NoSpace | WhyRefused::LogFull, _) if status.surrogate.is_some() => format!(
            "free space: the next write retries, without a restart; `restripe status {name}` shows when writes succeed"
        ),
        // A replace begins with a start over the others, which need space for that.
        (WhyRefused::NoSpace, [full]) => format!(
            "free space: the next write retries, without a restart; or run `restripe replace {name} {full} NEW`"
        ),
        (WhyRefused::NoSpace | WhyRefused::LogFull, _) => format!(
            "free space: the next write retries; `restripe status {name}` shows when writes succeed"
        ),
        (WhyRefused::TooFew, _) => format!("attach them again, then {anew} with every member"),
        (WhyRefused::LogFailed, _) => format!("attach the surrogate's members again, then {anew}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::StatusView;
    use super::*;
    use restripe_array::report::{ArrayState, Status as SetStatus};
    use restripe_array::{Member, Nanos};

    fn refused(why: WhyRefused) -> StatusView {
        let status = Status::from(SetStatus {
            name: "tank".into(),
            state: ArrayState::Healthy,
            refusal: Some(Refusal {
                why,
                members: vec![Member(2)],
            }),
            ..SetStatus::default()
        });
        StatusView::new(&status, Nanos::ZERO, |member| format!("/d/{member}"))
    }

    #[test]
    fn every_way_to_refuse_writes_has_a_reason_a_culprit_and_a_way_out() {
        for why in WhyRefused::ALL {
            let view = refused(why);
            let asked_for = why == WhyRefused::ReadOnly;
            assert_eq!(view.state == "healthy", asked_for, "{why:?}");
            let refusal = view.refuses_writes.expect("told");
            assert_eq!(refusal.reason, why.name());
            assert_eq!(refusal.members, ["/d/2"]);
            let of_members = !asked_for && why != WhyRefused::Owned;
            assert!(!of_members || refusal.text.contains("/d/2"), "{refusal:?}");
            let names = refusal.hint.contains("restripe ") && refusal.hint.contains("tank");
            assert!(names, "a command that can be given: {refusal:?}");
        }
    }

    #[test]
    fn an_array_that_writes_says_nothing_of_it() {
        let status = Status::from(SetStatus {
            state: ArrayState::Healthy,
            ..SetStatus::default()
        });
        let view = StatusView::new(&status, Nanos::ZERO, |_| String::new());
        assert_eq!(view.state, "healthy");
        assert_eq!(view.refuses_writes, None);
    }
}
