//! How an array is shown to clients, kept for a while: to find it out anew costs more than a small request.

use crate::front::Export;
use restripe_array::Nanos;
use std::cell::RefCell;
use std::sync::Arc;

/// After this long it is found out anew, also if nothing is known to have changed.
const AGE_MAX: Nanos = Nanos::from_millis(100);

#[derive(Default)]
pub(super) struct View {
    seen: RefCell<Option<Arc<Export>>>,
    forgotten: Nanos,
}

impl View {
    pub(super) fn get(&self, find_out: impl FnOnce() -> Export) -> Arc<Export> {
        let mut seen = self.seen.borrow_mut();
        Arc::clone(seen.get_or_insert_with(|| Arc::new(find_out())))
    }

    /// It may have changed.
    pub(super) fn forget(&mut self) {
        self.seen.get_mut().take();
    }

    pub(super) fn age(&mut self, now: Nanos) {
        if now.since(self.forgotten) > AGE_MAX {
            self.forgotten = now;
            self.forget();
        }
    }
}
