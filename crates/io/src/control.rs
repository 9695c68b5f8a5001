//! The control socket: the way from a command to a running daemon.
//!
//! Each array has one Unix stream socket, in the user's runtime folder. A client sends one JSON object a
//! line and gets one JSON object a line back. [`Request`] and [`Reply`] are the whole schema, and the server
//! and the command share them.
//!
//! Only the owner can reach the socket (folder 0700, socket 0600), and both ends ask the kernel for the
//! other's user ([`folder`]). Input from it is bounded all the same: in bytes a line, in connections, and in
//! time. So a broken client takes no resources from the array's clients.

/// A view, and how it is made: a struct, and a function that gives each field the value behind it. What stands
/// before `=>` goes first.
macro_rules! view {
    ($(#[$about:meta])* $name:ident: $reach:vis fn $new:ident($($from:ident: $of:ty),+) $({ $($first:tt)* })? => {
        $($(#[$field_about:meta])* $field:ident: $type:ty = $value:expr,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)+
        }

        impl $name {
            $reach fn $new($($from: $of),+) -> $name {
                $($($first)*)?
                $name { $($field: $value,)+ }
            }
        }
    };
}

mod attached;
mod client;
mod energy;
mod facts;
mod folder;
mod lending;
mod place;
mod refusal;
mod request;
mod schema;
mod scrub;
mod server;
mod surrogate;

pub use attached::{AttachOptions, AttachedView, CONNECTIONS_MAX, Driver};
pub use client::{ANSWER_TIMEOUT, ClientError, ask, ask_at};
pub use energy::{EnergyView, NamedRating, SpindleView};
pub use facts::{FactView, Telling};
pub use folder::{runtime_folder, state_folder};
pub use lending::{LeaseView, LendingView};
pub use place::{Claim, PlaceError, is_name, running, socket_path, wait_until_free};
pub use refusal::{READ_ONLY, RefusalView};
pub use request::{Refusal, Reply, Request};
pub use schema::{
    AimView, CountersView, DroppedView, GrowthView, HeatView, HostedView, LostView, MemberView,
    SCHEMA, StatusView, TaskView, ZoneView, member_name,
};
pub use scrub::{LastScrubView, ScrubbedMemberView};
pub use server::{Answer, Server};
pub use surrogate::{BufferView, OverlayView, SurrogateView};

/// Bytes in a request or a reply line, at most. A status of 32 members and the longest list of losses fits.
pub const LINE_BYTES_MAX: usize = 1 << 20;
