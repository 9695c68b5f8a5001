//! The real world around the engine: a reactor over io_uring or threads, members on files, block devices and NBD
//! exports, buffers, front ends and the control socket.
//!
//! One reactor thread owns everything that moves: the engines, their members, their memory and the connections. It
//! takes what has happened (a completion, a client's bytes, a call from another thread), tells the engines, carries out
//! their actions, and sleeps until the next completion or timer. Other threads talk to it through a [`Remote`].
//!
//! | module | owns |
//! |---|---|
//! | [`memory`] | aligned memory, handles and their reference counts, the user's budget |
//! | [`backend`] | submitting operations to the kernel: io_uring, or threads where it is refused |
//! | [`member`] | devices: opening, probing, and what each operation of the engine means on them |
//! | [`plain`] | blocking access to members, for making and examining arrays |
//! | [`host`] | one engine with its members: carries out actions, gathers events |
//! | [`shell`] | the loop: hosts, connections, calls from other threads, time |
//! | [`front`] | the seam between the shell and a protocol's connection |
//! | [`remote`] | calls to a reactor from other threads, and requests of this process |
//! | [`record`] | a run's events in a file, and their replay |

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
pub mod remote;
pub mod shell;
pub mod signals;
#[doc(hidden)]
pub mod tokens;

pub use backend::{Backend, BackendChoice};
pub use member::{MemberSource, OpenMember, OpenOptions};
pub use remote::Remote;
pub use shell::{ArraySpec, Running, Shell, ShellOptions};
