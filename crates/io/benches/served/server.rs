//! The servers that are measured: a new RAID-5, in a process of its own, on the ordinary path in all but its members.

use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Content, CreateOptions, create};
use restripe_array::{Command, Limits, Nanos, StartMode, Uuid};
use restripe_io::front::Protocol;
use restripe_io::front::Report;
use restripe_io::front::listen::Listener;
use restripe_io::front::nbd::{Connection, Guard};
use restripe_io::plain::Plain;
use restripe_io::tls::ServerSide;
use restripe_io::{ArraySpec, BackendChoice, OpenMember, Running, Shell, ShellOptions};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Names the folder of certificates of a server behind TLS.
pub const CERTIFICATES: &str = "RESTRIPE_BENCH_CERTIFICATES";

const CHUNK_SECTORS: u32 = 128;

/// Serves a new array on these members until standard input ends.
pub fn serve(socket: &Path, names: &[String]) -> Result<(), Box<dyn Error>> {
    let running = start(make(names)?)?;
    let guard = match std::env::var_os(CERTIFICATES) {
        None => None,
        Some(folder) => Some(Arc::new(Guard {
            tls: ServerSide::read(Path::new(&folder), false)?,
            required: true,
            clients: Vec::new(),
            report: Report::new(|_| {}),
        })),
    };
    let maker = move || -> Box<dyn Protocol> {
        Box::new(match &guard {
            Some(guard) => Connection::guarded(Arc::clone(guard)),
            None => Connection::new(),
        })
    };
    let listener = Listener::unix(socket)?;
    running.remote.listen(listener, Arc::new(maker))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    running.remote.shutdown()?;
    running.join()?;
    Ok(())
}

/// A reactor with the array that these members carry.
fn start(members: Vec<OpenMember>) -> Result<Running, Box<dyn Error>> {
    let backend = std::env::var("RESTRIPE_BACKEND")
        .map_or(Ok(BackendChoice::Automatic), |text| text.parse())?;
    let options = ShellOptions {
        backend,
        ..ShellOptions::default()
    };
    let spec = ArraySpec {
        members,
        limits: Limits::default(),
        surrogate: None,
        io_timeout: Nanos::from_secs(30),
        probe: Nanos::from_secs(10),
        record: None,
    };
    let running = Shell::spawn(options, move |shell| shell.host(spec).map(drop))?;
    let started = running
        .remote
        .command(0, Command::Start(StartMode::default()))?;
    started.map_err(|error| format!("the array does not start: {error:?}"))?;
    Ok(running)
}

/// Members opened through the page cache, or in memory.
fn make(names: &[String]) -> Result<Vec<OpenMember>, Box<dyn Error>> {
    let members = names
        .iter()
        .map(|name| Plain::open(name, false))
        .collect::<Result<Vec<_>, _>>()?;
    let level = Level::Raid5(Rotation::LeftSymmetric);
    let mut options = CreateOptions::new("bench", Uuid([7; 16]), level, CHUNK_SECTORS);
    options.members = members.iter().map(Plain::info).collect();
    options.uuids = (1..=names.len()).map(|i| Uuid([i as u8; 16])).collect();
    let creation = create(&options).map_err(|error| error.to_string())?;
    for (member, at, content) in &creation.writes {
        match content {
            Content::Page(page) => members[*member].write(*at, &page[..])?,
            Content::Zero(sectors) => members[*member].zero(*at, *sectors)?,
        }
    }
    Ok(members.into_iter().map(Plain::into_member).collect())
}
