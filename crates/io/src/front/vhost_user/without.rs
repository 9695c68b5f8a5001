//! The same in a build without vhost-user: no socket can be opened.

use crate::front::{Protocol, Report};

/// Says how to build with it.
pub fn disk(_array: usize, _report: Report) -> Result<fn() -> Box<dyn Protocol>, String> {
    Err(
        "this restripe was built without vhost-user: build it with `cargo build --features vhost-user`"
            .to_owned(),
    )
}
