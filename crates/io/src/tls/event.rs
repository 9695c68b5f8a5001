//! What comes of ciphertext, and of certificates.

use super::names::PeerNames;
use std::fmt;
use std::path::PathBuf;

/// Ciphertext that a connection holds in each direction.
pub const CIPHERTEXT_BYTES: usize = 128 * 1024;

/// What a channel made of the ciphertext that it was fed.
#[derive(Debug)]
pub enum Event<'a> {
    /// The handshake is over. `None`: the peer showed no certificate.
    Secured(Option<PeerNames>),
    /// The next bytes of the peer.
    Plain(&'a [u8]),
}

/// Whether a channel can go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Going {
    On,
    /// The peer said that it sends nothing more.
    Closed,
    /// The peer broke the protocol, or one side refused the other. An alert may wait to be sent.
    Failed(String),
}

/// Certificates that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateError {
    /// The file or folder.
    pub at: PathBuf,
    pub why: String,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at.display(), self.why)
    }
}

impl std::error::Error for CertificateError {}
