//! TLS as the manual page has it: its certificates, a daemon behind them, and an array with a member through it.

use crate::harness::steps::has;
use crate::harness::{Daemon, Place};
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A place with the certificates of the page, and an array on two images.
fn place(name: &str) -> Option<Place> {
    let place = Place::new(name);
    if !has(&place, name, &["openssl", "nbdinfo", "nbdcopy"]) {
        return None;
    }
    let manual = include_str!("../../../../docs/how-to/tls.md");
    let (_, rest) = manual.split_once("```sh\n").expect("it has a session");
    let (session, _) = rest.split_once("```").expect("it ends");
    let made = place.shell(session);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let made = place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    Some(place)
}

/// A daemon through TLS, once clients can connect, and the URI that it says.
fn serve(place: &Place, arguments: &[&str]) -> (Daemon, String) {
    place.first_line(&mut place.command(&[&["serve"], arguments].concat()))
}

fn succeeds(place: &Place, program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place.path(""));
    place.finish(&mut command).status == 0
}

#[test]
fn a_served_array_is_for_its_clients_alone() {
    let Some(place) = place("tls-served") else {
        return;
    };
    let pki = place.path("pki");
    let terms = [
        "--tls-certificates",
        "pki",
        "--tls-verify-peer",
        "--tls-client",
        "cn:client",
    ];
    let arguments = [
        &["--tcp", "0", "--unix", "nbd.sock"],
        &terms[..],
        &["a.img", "b.img"],
    ]
    .concat();
    let (daemon, uri) = serve(&place, &arguments);
    assert!(uri.starts_with("nbds+unix:///?socket="), "{uri}");
    let secure = format!("{uri}&tls-certificates={pki}");
    assert!(succeeds(&place, "nbdinfo", &["--size", &secure]));
    assert!(!succeeds(
        &place,
        "nbdinfo",
        &["--size", &uri.replacen("nbds", "nbd", 1)]
    ));
    // A verb of the control socket needs no certificate: it is of this host.
    assert_eq!(place.run(&["status", "tank"]).status, 0);
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);

    // Another list, from a file, for the same array.
    let file = "[[array]]\nname = \"tank\"\nmembers = [\"a.img\", \"b.img\"]\ntls-clients = [\"dns:elsewhere\"]\n\
                [serve]\nunix = \"nbd.sock\"\ntls-certificates = \"pki\"\ntls-verify-peer = true\n";
    fs::write(place.path("tank.toml"), file).expect("room");
    let (daemon, _) = serve(&place, &["--config", "tank.toml"]);
    assert!(!succeeds(&place, "nbdinfo", &["--size", &secure]));
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
}

/// Each array's list is its own, in whatever order the arrays are named; a list on the command line is that of all.
#[test]
fn each_array_is_for_the_clients_of_its_own_list() {
    let Some(place) = place("tls-lists") else {
        return;
    };
    for image in ["c.img", "d.img"] {
        place.write(image, 56 << 20, 0, b"");
    }
    let made = place.run(&["create", "pool", "--level", "raid1", "c.img", "d.img"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let array = |name: &str, members: &str, client: &str| {
        format!(
            "[[array]]\nname = \"{name}\"\nmembers = [{members}]\ntls-clients = [\"cn:{client}\"]\n"
        )
    };
    let (tank, pool) = ("\"a.img\", \"b.img\"", "\"c.img\", \"d.img\"");
    let serve_section =
        "[serve]\nunix = \"nbd.sock\"\ntls-certificates = \"pki\"\ntls-verify-peer = true\n";
    let (socket, pki) = (place.path("nbd.sock"), place.path("pki"));
    let admits = |name: &str| {
        let uri = format!("nbds+unix:///{name}?socket={socket}&tls-certificates={pki}");
        succeeds(&place, "nbdinfo", &["--size", &uri])
    };
    let orders = [
        [array("tank", tank, "client"), array("pool", pool, "other")],
        [array("pool", pool, "other"), array("tank", tank, "client")],
    ];
    for order in orders {
        let file = format!("{}{serve_section}", order.concat());
        fs::write(place.path("both.toml"), file).expect("room");
        let (daemon, _) = serve(&place, &["--config", "both.toml"]);
        assert!(admits("tank") && !admits("pool"));
        daemon.terminate();
        assert_eq!(daemon.wait(), 0);
    }
    for (client, admitted) in [("cn:client", true), ("cn:other", false)] {
        let (daemon, _) = serve(&place, &["--config", "both.toml", "--tls-client", client]);
        assert_eq!([admits("tank"), admits("pool")], [admitted; 2], "{client}");
        daemon.terminate();
        assert_eq!(daemon.wait(), 0);
    }
}

/// A certificate that ends soon is warned of, and one that takes its place is used without a restart.
#[test]
fn a_certificate_is_renewed_while_the_daemon_serves() {
    let Some(place) = place("tls-renewed") else {
        return;
    };
    let sign = |days: u32| {
        let signed = place.shell(&format!(
            "cd pki && openssl x509 -req -days {days} -in server.csr -CA ca-cert.pem -CAkey ca-key.pem \
             -CAcreateserial -extfile server.ext -out server-cert.pem"
        ));
        assert_eq!(signed.status, 0, "{}", signed.stderr);
    };
    sign(3);
    let log = || fs::read_to_string(place.path("log")).expect("it is there");
    let logs = |wanted: &str| {
        let begun = Instant::now();
        while !log().contains(wanted) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", log());
            sleep(Duration::from_millis(50));
        }
    };
    let mut command = place.command(&[
        "serve",
        "--unix",
        "nbd.sock",
        "--tls-certificates",
        "pki",
        "a.img",
        "b.img",
    ]);
    command.stderr(fs::File::create(place.path("log")).expect("room"));
    let (daemon, _) = place.first_line(&mut command);
    logs("the server's certificate expires at");
    sign(90);
    logs("new certificates are used");
    let before = log();
    fs::write(place.path("pki/server-cert.pem"), "no certificate").expect("room");
    logs("the certificates from before are still used");
    assert_eq!(before.matches("expires at").count(), 1, "{before}");
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn what_would_not_hold_is_refused_before_anything_is_started() {
    let Some(place) = place("tls-refused") else {
        return;
    };
    let refused = |arguments: &[&str], why: &str| {
        let run = place.run(&[&["serve", "--unix", "s"], arguments, &["a.img", "b.img"]].concat());
        assert!(
            run.status != 0 && run.stderr.contains(why),
            "{arguments:?}: {}",
            run.stderr
        );
    };
    let pki = ["--tls-certificates", "pki"];
    refused(&["--tls", "require"], "needs certificates");
    refused(&["--tls-verify-peer"], "no effect");
    refused(
        &[&pki[..], &["--tls-client", "cn:client"]].concat(),
        "clients are verified",
    );
    refused(
        &[&pki[..], &["--tls-client", "client"]].concat(),
        "dns:NAME",
    );
    refused(
        &[
            &pki[..],
            &["--tls", "on", "--tls-verify-peer", "--tls-client", "cn:x"],
        ]
        .concat(),
        "TLS is required",
    );
    refused(
        &["--tls-certificates", "nowhere"],
        "nowhere/server-cert.pem",
    );
    let listed = [
        "--tls-verify-peer",
        "--tls-client",
        "cn:client",
        "--iscsi",
        "0",
    ];
    refused(&[&pki[..], &listed].concat(), "iSCSI serves it to others");
    let key = place.path("pki/server-key.pem");
    assert!(succeeds(&place, "chmod", &["0644", &key]));
    refused(&pki, "chmod 0600");
    assert!(!place.exists("s"), "no socket was made");
}

#[test]
fn a_member_through_tls_fails_with_its_server_and_no_byte_is_lost() {
    let Some(place) = place("tls-member") else {
        return;
    };
    let pki = place.path("pki");
    let terms = ["--tls-certificates", "pki", "--tls-verify-peer"];
    let remote = [&["--unix", "far.sock"], &terms[..], &["a.img", "b.img"]].concat();
    let (far, uri) = serve(&place, &remote);
    // The path has no name that a certificate could have.
    let member = format!("{uri}&tls-certificates={pki}&tls-hostname=localhost");
    place.write("near.img", 56 << 20, 0, b"");
    let level = ["--level", "raid1", "near.img", &member];
    let made = place.run(&[&["create", "pool"], &level[..]].concat());
    assert_eq!(made.status, 0, "{}", made.stderr);
    let near = place.await_service(&mut place.command(&[
        "serve",
        "--unix",
        "near.sock",
        "near.img",
        &member,
    ]));
    let bytes: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
    fs::write(place.path("source"), &bytes).expect("room");
    let uri = format!("nbd+unix:///?socket={}", place.path("near.sock"));
    assert!(succeeds(&place, "nbdcopy", &["--flush", "source", &uri]));
    far.kill();
    assert!(succeeds(&place, "nbdcopy", &["--flush", "source", &uri]));
    assert!(succeeds(&place, "nbdcopy", &[&uri, "back"]));
    assert!(
        fs::read(place.path("back"))
            .expect("copied")
            .starts_with(&bytes)
    );
    let status = place.run(&["status", "pool"]);
    assert!(status.stdout.contains("degraded"), "{}", status.stdout);
    near.terminate();
    assert_eq!(near.wait(), 0);
}
