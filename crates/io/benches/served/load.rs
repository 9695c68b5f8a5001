//! The clients that measure: as many requests in flight as asked for, batched as the replies come. Cheaper than the
//! servers, so that these are what is measured.

use crate::rounds::{Addresses, Workload};
use crate::secure::Wire;
use restripe_io::nbd_wire::Command;
use restripe_io::nbd_wire::client::{Client, ClientEvent, ClientRequest, Replies};
use restripe_io::tls::ClientSide;
use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

pub struct Load {
    stream: Wire,
    client: Client,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    out: Vec<u8>,
    payload: Vec<u8>,
    workload: Workload,
    addresses: Addresses,
    answered: u64,
    /// TLS is due.
    secure: bool,
}

impl Load {
    pub fn connect(path: &Path, tls: Option<&ClientSide>, workload: Workload) -> Outcome<Load> {
        let stream = UnixStream::connect(path)?;
        match tls {
            Some(_) => Load::through(stream, tls, workload),
            None => Load::over(stream, workload),
        }
    }

    /// Over a connection that is there already.
    pub fn over(stream: UnixStream, workload: Workload) -> Outcome<Load> {
        Load::through(stream, None, workload)
    }

    fn through(stream: UnixStream, tls: Option<&ClientSide>, workload: Workload) -> Outcome<Load> {
        let client = match tls {
            Some(_) => Client::through_tls("", Replies::Simple),
            None => Client::new("", Replies::Simple),
        };
        let mut load = Load {
            stream: Wire::new(stream),
            client,
            inbox: vec![0; 256 * 1024],
            start: 0,
            end: 0,
            out: Vec::new(),
            payload: vec![workload.byte; workload.bytes as usize],
            workload,
            addresses: Addresses::new(workload, 0),
            answered: 0,
            secure: false,
        };
        while load.client.info().is_none() {
            load.receive()?;
            if let Some(tls) = tls.filter(|_| load.secure) {
                // The server says nothing behind its answer to STARTTLS.
                load.stream.secure(tls)?;
                load.client.secured(&mut load.out);
                load.flush()?;
                load.secure = false;
            }
        }
        let size = load.client.info().map_or(0, |info| info.size_bytes);
        load.addresses = Addresses::new(workload, size);
        Ok(load)
    }

    /// Keeps the server busy for so long. Gives the requests answered a second.
    pub fn run(mut self, time: Duration) -> Outcome<f64> {
        let begin = Instant::now();
        let mut free = self.workload.depth;
        while begin.elapsed() < time {
            for _ in 0..free {
                self.request()?;
            }
            self.flush()?;
            free = self.receive()?;
        }
        let rate = self.answered as f64 / begin.elapsed().as_secs_f64();
        self.hang_up()?;
        Ok(rate)
    }

    /// Goes over every block once.
    pub fn fill(mut self) -> Outcome<()> {
        for _ in 0..self.addresses.blocks() {
            while self.client.in_flight() as u64 >= self.workload.depth {
                self.receive()?;
            }
            self.request()?;
            self.flush()?;
        }
        self.hang_up()
    }

    /// A client that hangs up on answers makes some servers fall over.
    fn hang_up(&mut self) -> Outcome<()> {
        while self.client.in_flight() > 0 {
            self.receive()?;
        }
        self.client.disconnect(&mut self.out);
        self.flush()
    }

    fn request(&mut self) -> Outcome<()> {
        let (offset, bytes) = (self.addresses.next(), self.workload.bytes);
        let command = if self.workload.write {
            Command::Write
        } else {
            Command::Read
        };
        let request = ClientRequest {
            tag: 0,
            command,
            offset,
            bytes,
            flags: 0,
        };
        self.client
            .request(request, &mut self.out)
            .map_err(|error| error.to_string())?;
        if self.workload.write {
            self.out.extend_from_slice(&self.payload);
        }
        Ok(())
    }

    fn flush(&mut self) -> Outcome<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Receives once and takes everything in. Gives the number of answers.
    fn receive(&mut self) -> Outcome<u64> {
        self.inbox.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let count = self.stream.read(&mut self.inbox[self.end..])?;
        if count == 0 {
            return Err("the server hung up".into());
        }
        self.end += count;
        let before = self.answered;
        while self.step()? {}
        self.flush()?;
        Ok(self.answered - before)
    }

    fn step(&mut self) -> Outcome<bool> {
        let step = self
            .client
            .received(&self.inbox[self.start..self.end], &mut self.out)?;
        self.start += step.consumed;
        match step.event {
            ClientEvent::Payload { bytes, .. } => self.take_payload(bytes as usize)?,
            ClientEvent::Reply { result, .. } => {
                result.map_err(|errno| format!("a request failed: {errno:?}"))?;
                self.answered += 1;
            }
            ClientEvent::More => return Ok(step.consumed > 0),
            ClientEvent::Secure => {
                self.secure = true;
                return Ok(false);
            }
            ClientEvent::Ready | ClientEvent::Zeroes { .. } => {}
        }
        Ok(true)
    }

    fn take_payload(&mut self, bytes: usize) -> Outcome<()> {
        let here = bytes.min(self.end - self.start);
        self.payload[..here].copy_from_slice(&self.inbox[self.start..self.start + here]);
        self.start += here;
        self.stream.read_exact(&mut self.payload[here..bytes])?;
        self.client.filled();
        Ok(())
    }
}

/// The floor: round trips a second of a header there and a block back between two threads over a socket pair.
pub fn ping_pong(bytes: usize, time: Duration) -> Outcome<f64> {
    let (mut here, mut there) = UnixStream::pair()?;
    let echo = std::thread::spawn(move || {
        let (mut header, answer) = ([0; 28], vec![0; bytes + 16]);
        while there
            .read_exact(&mut header)
            .and_then(|()| there.write_all(&answer))
            .is_ok()
        {}
    });
    let (begin, mut count, mut answer) = (Instant::now(), 0u64, vec![0; bytes + 16]);
    while begin.elapsed() < time {
        here.write_all(&[0; 28])?;
        here.read_exact(&mut answer)?;
        count += 1;
    }
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    drop(here);
    echo.join().map_err(|_| "the echo panicked")?;
    Ok(rate)
}
