//! Members behind links that can be cut: network namespaces of a test's own, a hub where the daemon runs, and a place at
//! the end of each link that exports one image over NBD. Nothing of it reaches this machine's network.

use super::steps::{PATIENCE, good};
use super::{Daemon, Place, skipped};
use std::process::{Command, Stdio};
use std::time::Instant;

const PORT: u16 = 10809;

/// The hub and so many links. All goes with it.
pub struct Links {
    name: String,
    exports: Vec<Daemon>,
}

impl Links {
    /// Nothing where a namespace may not be made, which is noted as a test skipped.
    pub fn new(test: &str, name: &str) -> Option<Links> {
        let links = Links {
            name: format!("rs{}{name}", std::process::id()),
            exports: Vec::new(),
        };
        if !ip(&format!("netns add {}", links.hub())) {
            skipped(test, "needs root, and network namespaces");
            return None;
        }
        Some(links)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    fn end(&self, link: usize) -> String {
        format!("{}-{link}", self.name)
    }

    /// A network interface's name has 15 letters at most.
    fn interface(&self, link: usize) -> String {
        format!("{}l{link}", self.name)
    }

    /// Lays a link, and exports an image of 64 MiB at its end: where the hub finds it.
    pub fn export(&mut self, place: &Place, image: &str) -> String {
        let link = self.exports.len();
        let (hub, end, interface) = (self.hub(), self.end(link), self.interface(link));
        for step in [
            format!("netns add {end}"),
            format!("-n {hub} link add {interface} type veth peer name far netns {end}"),
            format!("-n {hub} addr add 10.0.{link}.1/24 dev {interface}"),
            format!("-n {end} addr add 10.0.{link}.2/24 dev far"),
            format!("-n {hub} link set {interface} up"),
            format!("-n {end} link set far up"),
        ] {
            assert!(ip(&step), "ip {step}");
        }
        place.write(image, 64 << 20, 0, &[]);
        let serving = ["-f", "-p", &PORT.to_string(), "file", image].map(String::from);
        let child = place
            .within(&end, "nbdkit", &serving)
            .stdout(Stdio::null())
            .spawn();
        self.exports.push(Daemon::of(child.expect("it runs")));
        let host = format!("10.0.{link}.2");
        let reached = format!("exec 3<>/dev/tcp/{host}/{PORT}");
        let deadline = Instant::now() + PATIENCE;
        while !run(Command::new("ip").args(["netns", "exec", &hub, "bash", "-c", &reached])) {
            assert!(Instant::now() < deadline, "nbdkit does not serve");
        }
        format!("nbd://{host}:{PORT}/")
    }

    pub fn cut(&self, link: usize) {
        self.set(link, "down");
    }

    pub fn mend(&self, link: usize) {
        self.set(link, "up");
    }

    /// At the far end: this one's routes stay, and nothing comes back.
    fn set(&self, link: usize, state: &str) {
        let end = self.end(link);
        assert!(ip(&format!("-n {end} link set far {state}")));
    }

    /// Runs a verb where the exports can be reached.
    pub fn verb(&self, place: &Place, arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(|word| word.to_string()).collect();
        good(place.finish(&mut place.within(&self.hub(), place.binary(), &arguments)))
    }

    /// A daemon where the exports can be reached.
    pub fn serve(&self, place: &Place, arguments: &[&str]) -> Daemon {
        let arguments = [&["serve", "--unix", "nbd.sock"], arguments].concat();
        let arguments: Vec<String> = arguments.iter().map(|word| word.to_string()).collect();
        place.await_service(&mut place.within(&self.hub(), place.binary(), &arguments))
    }

    /// What the hub's connections to exports have not been rid of: bytes that a peer has not acknowledged.
    pub fn unsent(&self) -> u64 {
        let shown = Command::new("ip")
            .args(["netns", "exec", &self.hub(), "cat", "/proc/net/tcp"])
            .output();
        let shown = String::from_utf8(shown.expect("ip runs").stdout).expect("text");
        let far = format!(":{PORT:04X}");
        let queue = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let queue = words.get(4)?.split(':').next()?;
            words.get(2)?.ends_with(&far).then_some(queue.to_string())
        };
        let queues = shown.lines().skip(1).filter_map(queue);
        queues
            .map(|bytes| u64::from_str_radix(&bytes, 16).expect("a number"))
            .sum()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let ends = (0..self.exports.len()).map(|link| self.end(link));
        let all: Vec<String> = ends.chain([self.hub()]).collect();
        self.exports.clear();
        for namespace in all {
            ip(&format!("netns del {namespace}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    run(Command::new("ip").args(arguments.split(' ')))
}

fn run(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
