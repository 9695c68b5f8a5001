//! Leases as `status` and `lease list` print them.

use crate::units::Size;
use restripe_array::shown;
use restripe_io::control::LendingView;
use std::fmt::Write;

/// In the status of its array: `lends 4G: 2 leases, 1G free`.
pub(crate) fn line(lends: &LendingView) -> String {
    let word = if lends.leases.len() == 1 {
        "lease"
    } else {
        "leases"
    };
    let (bytes, free) = (Size(lends.bytes), Size(lends.free_bytes));
    format!("lends {bytes}: {} {word}, {free} free", lends.leases.len())
}

pub(crate) fn table(lends: &LendingView) -> String {
    let mut out = line(lends);
    // Writing to a string cannot fail.
    let _ = match lends.largest_free_bytes {
        largest if largest < lends.free_bytes => {
            writeln!(out, ", {} at once", Size(largest))
        }
        _ => writeln!(out),
    };
    if lends.leases.is_empty() {
        return out;
    }
    let _ = writeln!(out, "      size  used  export, and its borrower");
    for lease in &lends.leases {
        let size = Size(lease.bytes).to_string();
        let used = if lease.in_use { "yes" } else { "no" };
        let borrower = match (&lease.borrower, lease.borrower_unknown) {
            (None, false) => "none".to_string(),
            (None, true) => "unknown".to_string(),
            (Some(array), false) => array.clone(),
            (Some(array), true) => format!("unknown, {array} is recorded"),
        };
        let _ = writeln!(
            out,
            "  {size:>8}  {used:<4}  {}  {}",
            shown(&lease.export),
            shown(&borrower)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_io::control::LeaseView;

    #[test]
    fn leases_stand_in_a_table() {
        let lends = LendingView {
            bytes: 48 << 20,
            free_bytes: 16 << 20,
            largest_free_bytes: 12 << 20,
            leases: vec![LeaseView {
                name: "one".into(),
                bytes: 32 << 20,
                export: "lease/pool/one".into(),
                borrower: Some("abcd".into()),
                borrower_unknown: false,
                in_use: true,
            }],
        };
        let shown = "\
lends 48M: 1 lease, 16M free, 12M at once
      size  used  export, and its borrower
       32M  yes   lease/pool/one  abcd
";
        assert_eq!(table(&lends), shown);
        let mut doubtful = lends;
        doubtful.leases[0].borrower_unknown = true;
        assert!(table(&doubtful).ends_with("/one  unknown, abcd is recorded\n"));
        doubtful.leases[0].borrower = None;
        assert!(table(&doubtful).ends_with("/one  unknown\n"));
    }
}
