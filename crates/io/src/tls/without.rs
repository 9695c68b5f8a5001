//! The same types in a build without TLS: there is no way to make one.

use super::event::{CertificateError, Event, Going};
use crate::memory::Piece;
use std::convert::Infallible;
use std::path::Path;
use std::time::SystemTime;

const WHY: &str = "this restripe was built without TLS: build it with `cargo build --features tls`";

fn refused(at: &Path) -> CertificateError {
    CertificateError {
        at: at.to_path_buf(),
        why: WHY.to_owned(),
    }
}

/// A server's certificate, and how it verifies clients.
#[derive(Clone, Debug)]
pub struct ServerSide(Infallible);

impl ServerSide {
    pub fn read(folder: &Path, _verify_peer: bool) -> Result<ServerSide, CertificateError> {
        Err(refused(folder))
    }

    pub fn begin(&self) -> Channel {
        match self.0 {}
    }

    pub fn look(&self) -> Option<Result<(), CertificateError>> {
        match self.0 {}
    }

    pub fn valid(&self) -> (SystemTime, SystemTime) {
        match self.0 {}
    }
}

/// A client's certificate, and how it verifies servers.
#[derive(Clone, Debug)]
pub struct ClientSide(Infallible);

impl ClientSide {
    pub fn read(folder: &Path, _verify_peer: bool) -> Result<ClientSide, CertificateError> {
        Err(refused(folder))
    }

    pub fn begin(&self, _host: &str) -> Result<Channel, String> {
        match self.0 {}
    }
}

/// One end of a connection.
pub struct Channel(Infallible);

impl Channel {
    pub fn receive(&mut self, _capacity: usize) -> Option<Piece> {
        match self.0 {}
    }

    pub(crate) fn take_in(&mut self, _bytes: &[u8]) -> bool {
        match self.0 {}
    }

    pub fn received(&mut self, _count: usize) {
        match self.0 {}
    }

    pub fn open(&mut self, _sink: &mut dyn FnMut(Event<'_>)) -> Going {
        match self.0 {}
    }

    pub(crate) fn is_secured(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn has_failed(&self) -> bool {
        match self.0 {}
    }

    pub fn seal(&mut self, _pieces: &[Piece]) -> u64 {
        match self.0 {}
    }

    pub fn close(&mut self) {
        match self.0 {}
    }

    pub(crate) fn unsent(&self) -> usize {
        match self.0 {}
    }

    pub fn launch(&mut self) -> Option<Piece> {
        match self.0 {}
    }

    pub fn sent(&mut self) {
        match self.0 {}
    }
}
