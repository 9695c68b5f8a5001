//! Groups and partitions of an array (S2-RAID) in words.

use restripe_array::layout::Skew;

/// As `3 groups of 3, 3 partitions, `, in front of more about the same array; nothing where nothing is skewed.
pub(crate) fn skew_words(slots: u16, skew: Option<Skew>) -> String {
    let Some(Skew { groups, partitions }) = skew else {
        return String::new();
    };
    let size = slots.checked_div(groups).unwrap_or(0);
    let plural = if partitions == 1 { "" } else { "s" };
    format!("{groups} groups of {size}, {partitions} partition{plural}, ")
}
