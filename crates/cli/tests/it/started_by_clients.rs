//! The daemon as libnbd starts it: over its standard input and output, and with a socket that is handed to it as
//! systemd hands one over.

use crate::harness::Place;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

const MEMBERS: [&str; 3] = ["m0", "m1", "m2"];

const CLIENTS: &str = r#"
PATH=/usr/bin:/bin nbdsh -n -c "
import nbd
serve = ['$RESTRIPE', 'serve']
members = ['m0', 'm1', 'm2']

h = nbd.NBD()
h.connect_command(serve + ['--stdio'] + members)
h.pwrite(b'by way of a pipe', 4000, nbd.CMD_FLAG_FUA)
assert h.pread(16, 4000) == b'by way of a pipe'
h.shutdown()
del h

h = nbd.NBD()
h.connect_systemd_socket_activation(serve + members)
assert h.get_size() > 0
assert h.pread(16, 4000) == b'by way of a pipe'
h.shutdown()
print('served both ways')
"
"#;

#[test]
fn libnbd_starts_a_daemon_over_a_pipe_and_with_a_socket() {
    if !Path::new("/usr/bin/nbdsh").exists() {
        return skip("nbdsh is not installed");
    }
    let place = Place::new("started-by-clients");
    let created = place.create(&MEMBERS, &["--level", "raid5"]);
    assert_eq!(created.status, 0, "{}", created.stderr);
    let program = env!("CARGO_BIN_EXE_restripe");
    let run = place.shell(&CLIENTS.replace("$RESTRIPE", program));
    assert!(
        run.stdout.contains("served both ways"),
        "{}\n{}",
        run.stdout,
        run.stderr
    );
}

/// Tells that the test is skipped, also in the file that gathers all skips.
fn skip(reason: &str) {
    let line = format!("started_by_clients: {reason}");
    eprintln!("skipped: {line}");
    if let Some(list) = std::env::var_os("RESTRIPE_SKIPS") {
        let file = OpenOptions::new().append(true).create(true).open(list);
        let mut file = file.expect("the list of skips takes a line");
        writeln!(file, "{line}").expect("the list of skips takes a line");
    }
}
