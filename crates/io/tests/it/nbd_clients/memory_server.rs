//! The smallest shell that a connection runs in: a thread for each, a disk in memory shared by all.

use crate::nbd_clients::tools::{Folder, Target};
use crate::nbd_protocol::world::{Peer, World};
use restripe_io::front::Then;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub struct MemoryServer {
    folder: Folder,
    size: usize,
}

/// What clients may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    All,
    ReadOnly,
}

impl MemoryServer {
    /// Serves until the process ends: a thread waits in `accept`.
    pub fn start(size: usize, access: Access) -> MemoryServer {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.file("socket")).expect("a new socket");
        let disk = Arc::new(Mutex::new(vec![0; size]));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let disk = Arc::clone(&disk);
                thread::spawn(move || serve(stream, &disk, size, access));
            }
        });
        MemoryServer { folder, size }
    }

    pub fn target(&self) -> Target {
        Target {
            socket: self.folder.file("socket"),
            export: "disk".to_owned(),
            size: self.size,
        }
    }
}

/// One connection: reads, does everything that was asked for, sends. The disk is in this connection's world meanwhile.
fn serve(mut stream: UnixStream, disk: &Mutex<Vec<u8>>, size: usize, access: Access) {
    let mut world = World::new(size);
    world.disk = Vec::new();
    world.exports[0].read_only = access == Access::ReadOnly;
    let mut peer = Peer::new(world);
    let mut bytes = vec![0; 256 << 10];
    loop {
        let sent = peer.take();
        if stream.write_all(&sent).is_err() || peer.ended() {
            return;
        }
        let Ok(count @ 1..) = stream.read(&mut bytes) else {
            return;
        };
        let mut disk = disk.lock().expect("no server thread panics");
        std::mem::swap(&mut *disk, &mut peer.world.disk);
        peer.feed(&bytes[..count]);
        peer.settle();
        while peer.then == Then::Hold {
            // What waits to be sent is in the way.
            let sent = std::mem::take(&mut peer.world.sent);
            if stream.write_all(&sent).is_err() {
                break;
            }
            peer.pump();
            peer.settle();
        }
        std::mem::swap(&mut *disk, &mut peer.world.disk);
    }
}
