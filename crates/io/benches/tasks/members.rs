//! The kinds of members that are measured.

use crate::paced::Paced;
use crate::process::Folder;
use crate::{MEMBERS, Outcome};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FAST_BYTES: u64 = 48 << 20;
const SLOW_BYTES: u64 = 192 << 20;
/// Slow enough that six of them leave the processor idle.
const SLOW_RATE: u64 = 100_000_000;

/// Members of one kind.
pub struct Kind {
    pub name: &'static str,
    pub names: Vec<String>,
    /// Of each member.
    pub bytes: u64,
    disks: Vec<Disk>,
    _paced: Vec<Paced>,
}

impl Kind {
    /// Whether they are behind NBD, with a speed of their own.
    pub fn remote(&self) -> bool {
        self.names[0].starts_with("nbd")
    }

    /// A connection to a remote member.
    pub fn connect(&self, index: usize) -> Outcome<UnixStream> {
        if let Some(disk) = self.disks.get(index) {
            let stream = TcpStream::connect(("127.0.0.1", disk.port))?;
            stream.set_nodelay(true)?;
            // Nothing that a load does depends on the family of its socket.
            return Ok(UnixStream::from(OwnedFd::from(stream)));
        }
        let path = self.names[index].rsplit('=').next().unwrap_or_default();
        Ok(UnixStream::connect(path)?)
    }
}

/// Makes members of a kind, if that can be had here.
type Maker = fn(&Folder) -> Outcome<Option<Kind>>;

/// All kinds with this word in their name that can be had here.
pub fn kinds(folder: &Folder, word: &str) -> Outcome<Vec<Kind>> {
    let makers: [(&str, Maker); 4] = [
        ("memory", memory),
        ("page cache", page_cache),
        ("paced, 100 MB/s", paced),
        ("disks of 7200 rpm, 100 MB/s, simulated", disks),
    ];
    let mut kinds = Vec::new();
    for (name, make) in makers {
        if !name.contains(word) {
            continue;
        }
        match make(folder)? {
            Some(kind) => kinds.push(Kind { name, ..kind }),
            None => println!("skipped: {name}: needs cc and rig/hddsim.c below $RESTRIPE_SHARED"),
        }
    }
    Ok(kinds)
}

fn local(names: Vec<String>) -> Kind {
    Kind {
        name: "",
        names,
        bytes: FAST_BYTES,
        disks: Vec::new(),
        _paced: Vec::new(),
    }
}

fn memory(_folder: &Folder) -> Outcome<Option<Kind>> {
    Ok(Some(local(vec![format!("ram:{FAST_BYTES}"); MEMBERS])))
}

fn page_cache(folder: &Folder) -> Outcome<Option<Kind>> {
    let mut names = Vec::new();
    for index in 0..MEMBERS {
        let path = folder.file(&format!("image{index}"));
        File::create(&path)?.set_len(FAST_BYTES)?;
        names.push(path.display().to_string());
    }
    Ok(Some(local(names)))
}

fn paced(folder: &Folder) -> Outcome<Option<Kind>> {
    let (mut paced, mut names) = (Vec::new(), Vec::new());
    for index in 0..MEMBERS {
        let socket = folder.file(&format!("paced{index}"));
        paced.push(Paced::start(&socket, SLOW_BYTES, SLOW_RATE)?);
        names.push(format!("nbd+unix:///?socket={}", socket.display()));
    }
    Ok(Some(Kind {
        name: "",
        names,
        bytes: SLOW_BYTES,
        disks: Vec::new(),
        _paced: paced,
    }))
}

// ------------------------------------------------------------------------------------------------- simulated disks

/// A process that takes the time of a disk.
struct Disk {
    child: Child,
    port: u16,
}

fn disks(folder: &Folder) -> Outcome<Option<Kind>> {
    let Some(program) = simulator(folder) else {
        return Ok(None);
    };
    let mut disks = Vec::new();
    for index in 0..MEMBERS {
        disks.push(Disk::start(
            &program,
            &folder.file(&format!("port{index}")),
        )?);
    }
    let name = |disk: &Disk| format!("nbd://127.0.0.1:{}", disk.port);
    Ok(Some(Kind {
        name: "",
        names: disks.iter().map(name).collect(),
        bytes: SLOW_BYTES,
        disks,
        _paced: Vec::new(),
    }))
}

/// Builds the simulator, where its source and a compiler are.
fn simulator(folder: &Folder) -> Option<PathBuf> {
    let shared = std::env::var_os("RESTRIPE_SHARED").map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = shared.unwrap_or_else(|| root.join("../shared"));
    let source = source.join("rig/hddsim.c");
    let program = folder.file("hddsim");
    let built = Command::new("cc")
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source])
        .arg("-lm")
        .stderr(Stdio::null())
        .status();
    built
        .is_ok_and(|status| status.success())
        .then_some(program)
}

impl Disk {
    fn start(program: &Path, port_file: &Path) -> Outcome<Disk> {
        let child = Command::new(program)
            .args(["--listen", "127.0.0.1:0", "--port-file"])
            .arg(port_file)
            .args(["--size", &SLOW_BYTES.to_string()])
            .args(["--rate", &(SLOW_RATE / 1_000_000).to_string()])
            .stderr(Stdio::null())
            .spawn()?;
        let mut disk = Disk { child, port: 0 };
        let begin = Instant::now();
        while disk.port == 0 {
            let text = std::fs::read_to_string(port_file).unwrap_or_default();
            disk.port = text.trim().parse().unwrap_or(0);
            if begin.elapsed() > Duration::from_secs(10) {
                return Err("a simulated disk does not come up".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
