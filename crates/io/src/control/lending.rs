//! What a client is told of an array's leases.

use crate::shell::{BorrowerIs, LeaseUse, export_name};
use restripe_array::SECTOR_BYTES;
use restripe_array::report::{Lease, Parcel};
use restripe_tier::report::Status;
use serde::{Deserialize, Serialize};

/// What an array has set aside for others.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LendingView {
    pub bytes: u64,
    pub free_bytes: u64,
    /// The largest lease that can be had.
    pub largest_free_bytes: u64,
    /// In the order of their places.
    pub leases: Vec<LeaseView>,
}

view! {
    LeaseView: fn new(status: &Status, parcel: &Parcel, lease: &Lease) => {
        name: String = lease.name.to_string(),
        bytes: u64 = bytes(parcel),
        /// By which name it is served.
        export: String = export_name(&status.name, lease.name.as_str()),
        /// The array that has it on its own record.
        borrower: Option<String> = lease.borrower.map(|array| array.to_string()),
        /// It cannot be told who has: the record may be wrong.
        #[serde(default)]
        borrower_unknown: bool = false,
        /// Somebody has it attached.
        in_use: bool = false,
    }
}

impl LendingView {
    /// Of an array that lends.
    pub(super) fn of(status: &Status) -> Option<LendingView> {
        if status.lent.is_empty() {
            return None;
        }
        let free = || status.lent.iter().filter(|parcel| parcel.lease.is_none());
        let lease = |parcel: &Parcel| Some(LeaseView::new(status, parcel, &parcel.lease?));
        Some(LendingView {
            bytes: status.lent.iter().map(bytes).sum(),
            free_bytes: free().map(bytes).sum(),
            largest_free_bytes: free().map(bytes).max().unwrap_or(0),
            leases: status.lent.iter().filter_map(lease).collect(),
        })
    }

    /// Notes what only the reactor knows.
    pub fn note_uses(&mut self, uses: &[LeaseUse]) {
        for lease in &mut self.leases {
            let of_it = uses.iter().find(|one| one.name.as_str() == lease.name);
            lease.in_use = of_it.is_some_and(|one| one.attached);
            lease.borrower_unknown = of_it.is_some_and(|one| one.borrower == BorrowerIs::Unknown);
        }
    }
}

fn bytes(parcel: &Parcel) -> u64 {
    parcel.sectors * SECTOR_BYTES
}
