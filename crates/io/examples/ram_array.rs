//! Serves a new RAID-5 in this process's memory over NBD, for measurements: `ram_array SOCKET [MEMBERS [SIZE]]`.
//!
//! The ordinary path in all but its members. Ends when standard input does, and then tells the CPU time that it took.

use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Content, CreateOptions, create};
use restripe_array::{Command, Limits, Nanos, StartMode, Uuid};
use restripe_io::front::listen::Listener;
use restripe_io::front::nbd::Connection;
use restripe_io::plain::Plain;
use restripe_io::{ArraySpec, BackendChoice, OpenMember, Shell, ShellOptions};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

const CHUNK_SECTORS: u32 = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let socket = arguments
        .first()
        .ok_or("usage: ram_array SOCKET [MEMBERS [SIZE]]")?;
    let count = arguments.get(1).map_or(Ok(5), |text| text.parse())?;
    let size = arguments.get(2).map_or("128M", |text| text);
    let members = make(count, &format!("ram:{size}"))?;
    let backend = std::env::var("RESTRIPE_BACKEND")
        .map_or(Ok(BackendChoice::Automatic), |text| text.parse())?;
    let options = ShellOptions {
        backend,
        ..ShellOptions::default()
    };
    let spec = ArraySpec {
        members,
        limits: Limits::default(),
        io_timeout: Nanos::from_secs(30),
        record: None,
    };
    let running = Shell::spawn(options, move |shell| shell.host(spec).map(drop))?;
    let started = running
        .remote
        .command(0, Command::Start(StartMode::default()))?;
    started.map_err(|error| format!("the array does not start: {error:?}"))?;
    let listener = Listener::unix(Path::new(socket))?;
    running
        .remote
        .listen(listener, Arc::new(|| Box::new(Connection::new())))?;
    println!("nbd+unix:///?socket={socket}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    running.remote.shutdown()?;
    running.join()?;
    println!("{}", cpu_times()?);
    Ok(())
}

fn make(count: usize, name: &str) -> Result<Vec<OpenMember>, Box<dyn Error>> {
    let members = (0..count)
        .map(|_| Plain::open(name, false))
        .collect::<Result<Vec<_>, _>>()?;
    let mut options = CreateOptions::new(
        "ram",
        Uuid([7; 16]),
        Level::Raid5(Rotation::LeftSymmetric),
        CHUNK_SECTORS,
    );
    options.members = members.iter().map(Plain::info).collect();
    options.uuids = (1..=count).map(|i| Uuid([i as u8; 16])).collect();
    let creation = create(&options).map_err(|error| error.to_string())?;
    for (member, at, content) in &creation.writes {
        match content {
            Content::Page(page) => members[*member].write(*at, &page[..])?,
            Content::Zero(sectors) => members[*member].zero(*at, *sectors)?,
        }
    }
    Ok(members.into_iter().map(Plain::into_member).collect())
}

/// User and system time of this process so far, in clock ticks of 10 ms, as /proc tells them.
fn cpu_times() -> Result<String, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Ok(format!(
        "cpu: user {} ms, system {} ms",
        ticks(11) * 10,
        ticks(12) * 10
    ))
}
