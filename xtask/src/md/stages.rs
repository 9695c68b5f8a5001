//! The life that every array of the comparison leads, whoever runs it, and what it must hold at each stage.
//!
//! Written whole and scribbled over; then, for each loss that it bears, one member taken away and scribbled over; then
//! rebuilt onto fresh members and scribbled over.

use super::cases::Case;
use super::content::{Extent, Numbers, SECTOR, scribble};

/// What is done, and what the array holds afterwards.
pub struct Stage {
    pub name: String,
    /// A slot that is lost at the beginning.
    pub loses: Option<u64>,
    /// Slots that are vacant in this stage, the one that it loses included.
    pub vacant: Vec<u64>,
    /// Vacant slots are filled at the beginning.
    pub rebuilds: bool,
    /// Where it writes; the bytes are those of `image`.
    pub writes: Vec<Extent>,
    pub image: Vec<u8>,
}

pub fn stages(case: &Case, nth_case: usize) -> Vec<Stage> {
    let mut numbers = Numbers::new(nth_case as u64 + 1);
    let mut image = numbers.noise(case.array_bytes());
    let chunk_sectors = case.chunk_kib as usize * 1024 / SECTOR;
    let mut stage = |name: String, loses: Option<u64>, vacant: &[u64], rebuilds: bool| Stage {
        name,
        loses,
        vacant: vacant.to_vec(),
        rebuilds,
        writes: scribble(&mut image, chunk_sectors, &mut numbers),
        image: image.clone(),
    };
    let mut stages = vec![stage("healthy".into(), None, &[], false)];
    // The first writes fill the array.
    let whole = stages[0].image.len() / SECTOR;
    stages[0].writes.insert(
        0,
        Extent {
            at: 0,
            sectors: whole,
        },
    );
    let victims = case.victims(nth_case);
    for (nth, victim) in victims.iter().enumerate() {
        let name = format!("{}-lost", nth + 1);
        stages.push(stage(name, Some(*victim), &victims[..=nth], false));
    }
    if !victims.is_empty() {
        stages.push(stage("rebuilt".into(), None, &[], true));
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::cases;

    #[test]
    fn a_life_ends_whole() {
        for (nth, case) in cases::all().iter().enumerate() {
            let stages = stages(case, nth);
            assert_eq!(stages[0].writes[0].sectors * SECTOR, case.array_bytes());
            let last = stages.last().expect("at least the first");
            assert!(last.vacant.is_empty(), "{}", case.name);
            assert_eq!(last.rebuilds, case.tolerance() > 0);
        }
    }
}
