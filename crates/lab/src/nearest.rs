//! The name that somebody who mistyped may have meant.

/// The known name that fewest single changes make of this one, if they are few for its length. Of equals the first.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let few = name.chars().count() / 3 + 1;
    let measured = known
        .into_iter()
        .map(|other| (distance(name, other), other));
    let best = measured.min_by_key(|(distance, _)| *distance)?;
    (best.0 <= few).then_some(best.1)
}

/// A sentence about a name that is not there: what may have been meant, and what there is.
pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let all = known.join(", ");
    match nearest(name, known) {
        Some(meant) => {
            format!("there is no {what} '{name}'; the nearest is {meant}; there are {all}")
        }
        None => format!("there is no {what} '{name}'; there are {all}"),
    }
}

/// The same of one of several names, without all that there are; these only where nothing is near.
pub fn unknown_one<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    match nearest(name, known.clone()) {
        Some(meant) => format!("there is no {what} '{name}'; the nearest is {meant}"),
        None => unknown(what, name, known),
    }
}

/// Insertions, deletions and exchanges of single letters (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = index + 1;
        for (place, other) in to.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[place + 1];
            row[place + 1] = changed.min(corner + 1).min(row[place] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_nonsense_none() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        let known = ["wd1600aajs", "st3500320as", "ssd-sata"];
        assert_eq!(nearest("wd1600ajs", known), Some("wd1600aajs"));
        assert_eq!(nearest("ssd", known), None);
        assert_eq!(nearest("floppy", known), None);
        assert_eq!(
            unknown("drive", "sdd-sata", ["ssd-sata"]),
            "there is no drive 'sdd-sata'; the nearest is ssd-sata; there are ssd-sata"
        );
    }
}
