//! The servers that are measured: a new array, in a process of its own, on the ordinary path in all but its members.

use restripe_array::layout::Level;
use restripe_array::meta::{Content, CreateOptions, create};
use restripe_array::{Command, Limits, Nanos, StartMode, Uuid};
use restripe_io::front::Protocol;
use restripe_io::front::listen::Listener;
use restripe_io::plain::Plain;
use restripe_io::{ArraySpec, BackendChoice, OpenMember, Running, Shell, ShellOptions};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

const CHUNK_SECTORS: u32 = 128;

/// Makes the connections of a socket.
pub type Maker = Arc<dyn Fn() -> Box<dyn Protocol> + Send + Sync>;

/// Serves a new array on these members until standard input ends.
pub fn serve(
    level: Level,
    names: &[String],
    socket: &Path,
    maker: Maker,
) -> Result<(), Box<dyn Error>> {
    let running = start(make(level, names)?)?;
    running.remote.listen(Listener::unix(socket)?, maker)?;
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
fn make(level: Level, names: &[String]) -> Result<Vec<OpenMember>, Box<dyn Error>> {
    let members = names
        .iter()
        .map(|name| Plain::open(name, false))
        .collect::<Result<Vec<_>, _>>()?;
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
