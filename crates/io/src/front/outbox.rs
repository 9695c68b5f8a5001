//! Data that waits to be sent to one peer: small bytes copied into chunks, and clients' buffers by
//! reference, in order.

use crate::backend::VECTORS_MAX;
use crate::memory::{Memory, Piece, advance};
use restripe_array::BufRef;

/// Bytes of a chunk that small messages are gathered in.
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks kept for reuse.
const CHUNKS_KEPT: usize = 4;

#[derive(Default)]
pub struct Outbox {
    /// Not yet handed to the kernel.
    waiting: Vec<Piece>,
    waiting_buffers: Vec<BufRef>,
    waiting_bytes: u64,
    /// Of the waiting bytes, those copied into chunks.
    waiting_small: u64,
    /// Of the batch on its way: what did not fit into one call, and the buffers to release when it is through.
    rest: Vec<Piece>,
    flying_buffers: Vec<BufRef>,
    flying_bytes: u64,
    chunk: Option<Memory>,
    used: usize,
    full_chunks: Vec<Memory>,
}

impl Outbox {
    /// Bytes not yet sent.
    pub fn bytes(&self) -> u64 {
        self.waiting_bytes + self.flying_bytes
    }

    /// Bytes that wait in chunks: headers and short answers.
    pub fn small_bytes(&self) -> u64 {
        self.waiting_small
    }

    /// Something waits that is not on its way.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn push(&mut self, mut bytes: &[u8]) {
        self.waiting_bytes += bytes.len() as u64;
        self.waiting_small += bytes.len() as u64;
        while !bytes.is_empty() {
            let chunk = self.open_chunk();
            let count = bytes.len().min(CHUNK_BYTES - self.used);
            chunk.fill(self.used, &bytes[..count]);
            self.extend(chunk, count);
            bytes = &bytes[count..];
        }
    }

    /// A chunk with room.
    fn open_chunk(&mut self) -> Memory {
        if let Some(chunk) = &self.chunk
            && self.used < CHUNK_BYTES
        {
            return chunk.clone();
        }
        let fresh = self.next_chunk();
        if let Some(full) = self.chunk.replace(fresh.clone())
            && self.full_chunks.len() < CHUNKS_KEPT
        {
            self.full_chunks.push(full);
        }
        self.used = 0;
        fresh
    }

    fn next_chunk(&mut self) -> Memory {
        match self.full_chunks.iter().position(Memory::alone) {
            Some(index) => self.full_chunks.swap_remove(index),
            None => Memory::new(CHUNK_BYTES),
        }
    }

    /// Adds the next `count` bytes of the chunk to the last piece, if that is what they follow.
    fn extend(&mut self, chunk: Memory, count: usize) {
        let start = chunk.at(self.used, count);
        match self.waiting.last_mut() {
            Some(last)
                if last.start().wrapping_add(last.bytes as usize) == start
                    && last.memory.same(&chunk) =>
            {
                last.bytes += count as u32;
            }
            _ => self
                .waiting
                .push(Piece::new(chunk, self.used as u32, count as u32)),
        }
        self.used += count;
    }

    /// `piece` is the buffer's memory; the buffer is released when it is sent.
    pub fn push_buffer(&mut self, buf: BufRef, piece: Piece) {
        self.waiting_bytes += u64::from(piece.bytes);
        self.waiting.push(piece);
        self.waiting_buffers.push(buf);
    }

    /// Memory that needs no release.
    pub fn push_piece(&mut self, piece: Piece) {
        self.waiting_bytes += u64::from(piece.bytes);
        self.waiting.push(piece);
    }

    /// Starts a batch of everything that waits: what to hand to the kernel first.
    pub fn launch(&mut self) -> Vec<Piece> {
        assert_eq!(self.flying_bytes, 0, "one batch at a time");
        self.flying_bytes = std::mem::take(&mut self.waiting_bytes);
        self.waiting_small = 0;
        std::mem::swap(&mut self.flying_buffers, &mut self.waiting_buffers);
        let empty = std::mem::take(&mut self.rest);
        let pieces = std::mem::replace(&mut self.waiting, empty);
        self.limited(pieces)
    }

    fn limited(&mut self, mut pieces: Vec<Piece>) -> Vec<Piece> {
        if pieces.len() > VECTORS_MAX {
            self.rest = pieces.split_off(VECTORS_MAX);
        }
        pieces
    }

    /// So many bytes of the batch are sent: what to hand to the kernel next, or the buffers to release.
    pub fn sent(
        &mut self,
        bytes: u64,
        mut pieces: Vec<Piece>,
        release: &mut Vec<BufRef>,
    ) -> Option<Vec<Piece>> {
        self.flying_bytes -= bytes;
        advance(&mut pieces, bytes);
        pieces.append(&mut self.rest);
        if !pieces.is_empty() {
            return Some(self.limited(pieces));
        }
        self.rest = pieces;
        release.append(&mut self.flying_buffers);
        if self.waiting.is_empty() {
            // Nothing refers to the chunk any more.
            self.used = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::Buf;

    fn gather(pieces: &[Piece]) -> Vec<u8> {
        let bytes = pieces.iter().flat_map(|piece| piece.slice());
        bytes.copied().collect()
    }

    #[test]
    fn small_bytes_join_and_buffers_keep_their_place() {
        let mut outbox = Outbox::default();
        let buf = BufRef::new(Buf(Buf::USER), 0, 3);
        let memory = Memory::new(3);
        memory.fill(0, b"XYZ");
        outbox.push(b"ab");
        outbox.push(b"cd");
        outbox.push_buffer(buf, Piece::new(memory, 0, 3));
        outbox.push(b"ef");
        let pieces = outbox.launch();
        assert_eq!((pieces.len(), gather(&pieces)), (3, b"abcdXYZef".to_vec()));
        let mut release = Vec::new();
        let left = outbox.sent(5, pieces, &mut release);
        let left = left.expect("4 bytes are left");
        assert_eq!((gather(&left), release.len()), (b"YZef".to_vec(), 0));
        assert!(outbox.sent(4, left, &mut release).is_none());
        assert_eq!((release, outbox.bytes()), (vec![buf], 0));
    }

    #[test]
    fn more_than_a_chunk_and_more_than_a_call_takes() {
        let mut outbox = Outbox::default();
        let sent: Vec<u8> = (0..3 * CHUNK_BYTES).map(|i| i as u8).collect();
        outbox.push(&sent);
        for _ in 0..VECTORS_MAX {
            let piece = Piece::new(Memory::new(1), 0, 1);
            outbox.push_buffer(BufRef::new(Buf(Buf::USER), 0, 1), piece);
        }
        let (mut pieces, mut got, mut release) = (outbox.launch(), Vec::new(), Vec::new());
        loop {
            assert!(pieces.len() <= VECTORS_MAX);
            got.extend(gather(&pieces));
            let bytes = crate::memory::total_bytes(&pieces);
            match outbox.sent(bytes, pieces, &mut release) {
                Some(more) => pieces = more,
                None => break,
            }
        }
        assert_eq!(got.len(), sent.len() + VECTORS_MAX);
        assert_eq!(release.len(), VECTORS_MAX);
        assert_eq!(got[..sent.len()], sent);
    }
}
