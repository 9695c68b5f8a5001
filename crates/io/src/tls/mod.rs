//! TLS over the bytes of a connection, below its protocol (RFC 8446, RFC 5246), with certificates of X.509.
//!
//! A [`Channel`] is one end of a TLS connection without a socket: the owner of the socket feeds it the
//! ciphertext that was received and gets the plaintext, and has plaintext sealed into ciphertext to send.
//! Clients' connections ([`crate::front`]) and members ([`crate::member::nbd`]) use it alike. The library is
//! rustls; it has no keys that were agreed on before (PSK).
//!
//! The memory of a connection is bounded: [`CIPHERTEXT_BYTES`] each way, and 64 KiB of handshake messages
//! that wait to be sent. There are no session tickets, so each connection verifies its peer anew.
//!
//! | module | owns |
//! |---|---|
//! | [`names`] | names in a peer's certificate, and rules that admit some of them |
//! | `folder` | certificates, keys and revocation lists in a folder |
//! | `channel` | one end of a connection |
//!
//! Without the feature `tls` of this crate the types are there and cannot be made: reading a folder of
//! certificates is an error that says how to build.

#[cfg(feature = "tls")]
mod channel;
#[cfg(feature = "tls")]
mod der;
mod event;
#[cfg(feature = "tls")]
mod folder;
pub mod names;
#[cfg(not(feature = "tls"))]
mod without;

#[cfg(feature = "tls")]
pub use channel::Channel;
pub use event::{CIPHERTEXT_BYTES, CertificateError, Event, Going};
#[cfg(feature = "tls")]
pub use folder::{ClientSide, ServerSide};
#[cfg(not(feature = "tls"))]
pub use without::{Channel, ClientSide, ServerSide};
