//! Groups and partitions of a new array (S2-RAID): what is asked for, what is filled in, and how they are told.

use crate::args::config::ArrayConfig;
use crate::failure::{Failure, Outcome};
use restripe_array::layout::{GeometryError, Skew};

/// What is asked for, with the most partitions if none are. Whether it is sound is the engine's to say.
pub(crate) fn skew(wanted: &ArrayConfig) -> Outcome<Option<Skew>> {
    let Some(groups) = wanted.groups else {
        return match wanted.partitions {
            None => Ok(None),
            Some(_) => Err(Failure::usage("--partitions requires --groups")
                .hint("pass --groups as well, or omit --partitions")),
        };
    };
    let spares = wanted.spares.unwrap_or(0);
    let slots = wanted.members.len().saturating_sub(spares);
    let slots = u16::try_from(slots).unwrap_or(u16::MAX);
    let most = Skew::with_most_partitions(groups, slots).partitions;
    let partitions = wanted.partitions.unwrap_or(most);
    Ok(Some(Skew { groups, partitions }))
}

/// Where two partitions are too many, one is left.
pub(crate) fn hint_at(error: &GeometryError, failure: Failure) -> Failure {
    match error {
        GeometryError::Colliding { skew, size, .. }
            if *size > 1
                && Skew::partitions_max(skew.groups, *size) == 1
                && skew.partitions > 1 =>
        {
            failure.hint("--partitions 1 stripes over the groups, and rebuilds in one stream")
        }
        _ => failure,
    }
}
