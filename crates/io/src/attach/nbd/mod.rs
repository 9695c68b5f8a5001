//! Arrays as devices of the kernel's NBD client.
//!
//! The daemon makes connections to its own export and gives their other ends to the kernel ([`dial`]) by
//! generic netlink ([`netlink`], [`kernel`]). [`attachment`] has what is done when.
//!
//! The messages are written here and not by a crate: they are 150 lines over `libc`, which is used anyway.
//! The crates for generic netlink (neli, netlink-packet-generic) would bring several more for three commands.

mod attachment;
mod dial;
mod kernel;
mod netlink;
#[cfg(test)]
mod tests;

pub(super) use attachment::Attachment;
