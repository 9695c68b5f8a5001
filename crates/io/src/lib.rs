//! The surroundings of the engine on a real system: a reactor over io_uring or threads, members on files,
//! block devices and NBD exports, buffers, front ends and the control socket.
//!
//! One reactor thread owns all state: the engines, their members, their memory and the connections. It
//! collects events (a completion, a client's bytes, a call from another thread), passes them to the engines,
//! carries out their actions, and sleeps until the next completion or timer. Other threads call it through a
//! [`Remote`].
//!
//! | module | owns |
//! |---|---|
//! | [`memory`] | aligned memory, handles and their reference counts, the clients' budget |
//! | [`backend`] | submitting operations to the kernel: io_uring, or threads where it is refused |
//! | [`member`] | devices: opening, probing, and how each operation of the engine is done on them |
//! | [`plain`] | blocking access to members, to create and to examine arrays |
//! | [`host`] | one engine with its members: carries out actions, collects events |
//! | [`shell`] | the loop: hosts, connections, calls from other threads, time |
//! | [`front`] | the interface between the reactor and a protocol's connection |
//! | [`tls`] | TLS over a connection's bytes |
//! | [`remote`] | calls to a reactor from other threads, and requests of this process |
//! | [`attach`] | arrays as block devices of the kernel |
//! | [`record`] | a run's events in a file, and their replay |

pub mod attach;
pub mod backend;
mod compute;

pub mod control;
mod fleet;
pub mod front;
pub mod host;
pub mod member;
pub mod memory;
pub mod metrics;
pub mod nbd_wire;
pub mod plain;
pub mod record;
pub mod regular;
pub mod remote;
pub mod shell;
pub mod signals;
pub mod tls;
#[doc(hidden)]
pub mod tokens;

pub use backend::{Backend, BackendChoice};
pub use member::{MemberSource, OpenMember, OpenOptions};
pub use remote::Remote;
pub use shell::{ArraySpec, Running, Shell, ShellOptions};
