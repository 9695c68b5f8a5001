//! An outbox's bytes through a channel: what was pushed before TLS began goes out as it is, and all that
//! comes later as ciphertext.

use super::outbox::Outbox;
use crate::memory::{Piece, advance};
use crate::tls::Channel;
use restripe_array::BufRef;

pub(crate) struct SecureWire {
    pub channel: Channel,
    /// What was pushed before the handshake is sent.
    begun: bool,
    /// The rest of an outbox's batch that is not sealed yet.
    batch: Option<Vec<Piece>>,
    /// Buffers that were sealed: what is sent is a copy.
    released: Vec<BufRef>,
}

/// What to send next of an outbox, in clear text or through TLS, if nothing is on its way.
pub(crate) fn next_send(tls: Option<&mut SecureWire>, outbox: &mut Outbox) -> Option<Vec<Piece>> {
    match tls {
        Some(tls) => tls.next_send(outbox),
        None => outbox.has_waiting().then(|| outbox.launch()),
    }
}

/// `count` bytes of `pieces` are sent, in clear text or through TLS: what to send next.
pub(crate) fn sent(
    tls: Option<&mut SecureWire>,
    count: u64,
    pieces: Vec<Piece>,
    outbox: &mut Outbox,
    release: &mut Vec<BufRef>,
) -> Option<Vec<Piece>> {
    match tls {
        Some(tls) => tls.sent(count, pieces, outbox, release),
        None => outbox.sent(count, pieces, release),
    }
}

impl SecureWire {
    /// `begun`: nothing of the outbox goes out in clear text.
    pub fn new(channel: Channel, begun: bool) -> SecureWire {
        SecureWire {
            channel,
            begun,
            batch: None,
            released: Vec::new(),
        }
    }

    fn next_send(&mut self, outbox: &mut Outbox) -> Option<Vec<Piece>> {
        if !self.begun && outbox.has_waiting() {
            return Some(outbox.launch());
        }
        self.begun = true;
        self.seal(outbox);
        Some(vec![self.channel.launch()?])
    }

    fn seal(&mut self, outbox: &mut Outbox) {
        loop {
            let batch = match self.batch.take() {
                Some(batch) => batch,
                None if outbox.has_waiting() => outbox.launch(),
                None => return,
            };
            let sealed = self.channel.seal(&batch);
            if sealed == 0 {
                self.batch = Some(batch);
                return;
            }
            self.batch = outbox.sent(sealed, batch, &mut self.released);
        }
    }

    fn sent(
        &mut self,
        count: u64,
        mut pieces: Vec<Piece>,
        outbox: &mut Outbox,
        release: &mut Vec<BufRef>,
    ) -> Option<Vec<Piece>> {
        if !self.begun {
            return outbox.sent(count, pieces, release);
        }
        advance(&mut pieces, count);
        if !pieces.is_empty() {
            return Some(pieces);
        }
        self.channel.sent();
        release.append(&mut self.released);
        self.next_send(outbox)
    }

    /// Whether nothing waits to be sent, or nothing more can be.
    pub fn is_drained(&self, outbox: &Outbox) -> bool {
        let sealed = self.channel.has_failed() || outbox.bytes() == 0;
        sealed && self.channel.unsent() == 0
    }
}
