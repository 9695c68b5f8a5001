//! Random 4 KiB reads (or writes) of an NBD export over a Unix socket, as many in flight as asked for, batched as the
//! replies come: a client that is cheaper than the server it measures. `nbd_load SOCKET DEPTH SECONDS [write] [BYTES]`.

use restripe_io::nbd_wire::Command;
use restripe_io::nbd_wire::client::{Client, ClientEvent, ClientRequest, Replies};
use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

struct Load {
    stream: UnixStream,
    client: Client,
    inbox: Vec<u8>,
    start: usize,
    out: Vec<u8>,
    payload: Vec<u8>,
    command: Command,
    bytes: u32,
    blocks: u64,
    state: u64,
    answered: u64,
}

impl Load {
    fn connect(path: &str, command: Command, bytes: u32) -> Result<Load, Box<dyn Error>> {
        let stream = UnixStream::connect(path)?;
        let client = Client::new("", Replies::Simple);
        let (inbox, out) = (Vec::new(), Vec::new());
        let payload = vec![0x5a; bytes as usize];
        let mut load = Load {
            stream,
            client,
            inbox,
            start: 0,
            out,
            payload,
            command,
            bytes,
            blocks: 0,
            state: 1,
            answered: 0,
        };
        while load.client.info().is_none() {
            load.receive()?;
        }
        let size = load.client.info().map_or(0, |info| info.size_bytes);
        load.blocks = size / u64::from(bytes);
        Ok(load)
    }

    fn request(&mut self) -> Result<(), Box<dyn Error>> {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let offset = (self.state >> 20) % self.blocks * u64::from(self.bytes);
        let request = ClientRequest {
            tag: 0,
            command: self.command,
            offset,
            bytes: self.bytes,
            flags: 0,
        };
        self.client
            .request(request, &mut self.out)
            .map_err(|error| error.to_string())?;
        if self.command == Command::Write {
            self.out.extend_from_slice(&self.payload);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Box<dyn Error>> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Receives once and takes everything in. Gives the number of answers.
    fn receive(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut buffer = [0; 256 * 1024];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 {
            return Err("the server hung up".into());
        }
        self.inbox.extend_from_slice(&buffer[..count]);
        let before = self.answered;
        while self.step()? {}
        self.inbox.drain(..self.start);
        self.start = 0;
        self.flush()?;
        Ok(self.answered - before)
    }

    fn step(&mut self) -> Result<bool, Box<dyn Error>> {
        let step = self
            .client
            .received(&self.inbox[self.start..], &mut self.out)?;
        match step.event {
            ClientEvent::Payload { bytes, .. } => {
                let end = self.start + step.consumed + bytes as usize;
                while self.inbox.len() < end {
                    let mut more = vec![0; end - self.inbox.len()];
                    self.stream.read_exact(&mut more)?;
                    self.inbox.extend_from_slice(&more);
                }
                self.start = end;
                self.client.filled();
                return Ok(true);
            }
            ClientEvent::Reply { result, .. } => {
                result.map_err(|errno| format!("a request failed: {errno:?}"))?;
                self.answered += 1;
            }
            ClientEvent::More | ClientEvent::Ready | ClientEvent::Zeroes { .. } => {}
        }
        self.start += step.consumed;
        Ok(step.consumed > 0 || !matches!(step.event, ClientEvent::More))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, depth, seconds, rest @ ..] = &arguments[..] else {
        return Err("usage: nbd_load SOCKET DEPTH SECONDS [read|write] [BYTES]".into());
    };
    let write = rest.first().is_some_and(|word| word == "write");
    let bytes = rest.get(1).map_or(Ok(4096), |text| text.parse())?;
    let mut load = Load::connect(
        socket,
        if write { Command::Write } else { Command::Read },
        bytes,
    )?;
    let depth: u64 = depth.parse()?;
    let (begin, time) = (Instant::now(), Duration::from_secs_f64(seconds.parse()?));
    let mut free = depth;
    while begin.elapsed() < time {
        for _ in 0..free {
            load.request()?;
        }
        load.flush()?;
        free = load.receive()?;
    }
    let (counted, elapsed) = (load.answered, begin.elapsed().as_secs_f64());
    // A client that hangs up on answers makes some servers fall over.
    while load.client.in_flight() > 0 {
        load.receive()?;
    }
    load.client.disconnect(&mut load.out);
    load.flush()?;
    let rate = counted as f64 / elapsed;
    println!(
        "{counted} requests, {rate:.0} a second, {:.2} GB/s",
        rate * f64::from(bytes) / 1e9
    );
    Ok(())
}
