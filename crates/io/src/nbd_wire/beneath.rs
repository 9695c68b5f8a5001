//! The arrays beneath an export, as its description lists them: `restripe:beneath=UUID,...`.
//!
//! An array whose member is an export that the array itself is beneath would wait for itself. So an export
//! lists its own array, and all arrays beneath the members of that array.

use restripe_array::Uuid;
use std::fmt::Write;

const MARK: &str = "restripe:beneath=";
/// No more are read or written.
pub const BENEATH_MAX: usize = 64;

/// The description with the list behind it.
pub fn describe(description: &str, beneath: &[Uuid]) -> String {
    let mut text = description.to_owned();
    for (nth, array) in beneath.iter().take(BENEATH_MAX).enumerate() {
        let before = match (nth, text.is_empty()) {
            (0, true) => MARK,
            (0, false) => &format!(" {MARK}"),
            _ => ",",
        };
        // Writing to a string does not fail.
        let _ = write!(text, "{before}{array}");
    }
    text
}

/// The list in a description; what is no list of identifiers is none.
pub fn listed(description: &str) -> Vec<Uuid> {
    let Some((_, list)) = description.rsplit_once(MARK) else {
        return Vec::new();
    };
    let list = list.split_whitespace().next().unwrap_or_default();
    list.split(',').take(BENEATH_MAX).filter_map(uuid).collect()
}

fn uuid(text: &str) -> Option<Uuid> {
    let digits: String = text.chars().filter(|&one| one != '-').collect();
    let plain = digits.len() == 32 && digits.bytes().all(|one| one.is_ascii_hexdigit());
    let number = plain.then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some(Uuid(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_a_description_and_hostile_ones_are_none() {
        let arrays: Vec<Uuid> = (0..9).map(|number| Uuid([number; 16])).collect();
        for description in ["", "a lease of the array t"] {
            let text = describe(description, &arrays);
            assert!(text.starts_with(description));
            assert_eq!(listed(&text), arrays);
            assert_eq!(describe(description, &[]), description);
        }
        for text in ["", "restripe:beneath=", "restripe:beneath=x,,+1", MARK, "ä"] {
            assert_eq!(listed(text), []);
        }
        let many = vec![Uuid([1; 16]); 1000];
        assert_eq!(listed(&describe("", &many)).len(), BENEATH_MAX);
        let long = format!("{MARK}{}", "0".repeat(4000));
        assert_eq!(listed(&long), []);
    }
}
