//! nbdinfo, nbdcopy and qemu-img over TLS, and what becomes of those that should not come in.

use crate::nbd_clients::tools::{Folder, installed, run, succeed};
use crate::nbd_protocol::world::Random;
use crate::tls::certificates::{ALICE, Authority, Says, text};
use crate::tls::served::{FOR_ALL, FOR_CERTIFIED, Served, Terms, served};
use std::fs;
use std::path::Path;

fn refused(uri: &str) {
    assert!(!run("nbdinfo", &[uri]).status.success(), "{uri} is let in");
}

#[test]
fn nbdinfo_sees_the_export_through_tls() {
    if !installed(&["nbdinfo"]) {
        return;
    }
    let Some((authority, served)) = served(&FOR_ALL) else {
        return;
    };
    let ca_only = authority.folder("ca-only", &[]);
    for uri in [served.uri(&ca_only), served.unix_uri(&ca_only)] {
        let info = succeed("nbdinfo", &["--json", &uri]);
        let size = format!("\"export-size\": {}", served.size());
        for line in ["\"TLS\": true", "\"structured\": true", &size] {
            assert!(info.contains(line), "{line} is missing in {info}");
        }
        let list = succeed("nbdinfo", &["--list", &uri]);
        assert!(list.contains("export=\"disk\""), "{list}");
    }
}

/// Random bytes in, over four connections, and the same bytes out, over TLS and without.
#[test]
fn nbdcopy_copies_both_ways_through_tls() {
    if !installed(&["nbdcopy"]) {
        return;
    }
    let Some((authority, served)) = served(&FOR_CERTIFIED) else {
        return;
    };
    let alice = authority.folder("alice", &[("client", ALICE)]);
    let folder = Folder::new();
    let (source, back) = (folder.file("source"), folder.file("back"));
    let mut bytes = vec![0; served.size()];
    Random::new(7).fill(&mut bytes);
    bytes[served.size() / 4..served.size() / 2].fill(0);
    fs::write(&source, &bytes).expect("room for a file");
    for uri in [served.uri(&alice), served.unix_uri(&alice)] {
        let parallel = ["--connections=4", "--requests=64", "--flush"];
        succeed(
            "nbdcopy",
            &[&parallel[..], &[&text(&source), &uri]].concat(),
        );
        for uri in [uri, served.array.target().uri()] {
            succeed("nbdcopy", &[&parallel[..], &[&uri, &text(&back)]].concat());
            assert!(fs::read(&back).expect("copied") == bytes, "what came back");
        }
    }
}

fn qemu_options(served: &Served, certificates: &Path) -> [String; 2] {
    let folder = text(certificates);
    let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={folder}");
    let port = served.port();
    let image =
        "driver=raw,file.driver=nbd,file.host=localhost,file.export=disk,file.tls-creds=tls0";
    [object, format!("{image},file.port={port}")]
}

#[test]
fn qemu_writes_and_finds_its_patterns_through_tls() {
    if !installed(&["qemu-img", "qemu-io"]) {
        return;
    }
    let Some((authority, served)) = served(&FOR_CERTIFIED) else {
        return;
    };
    let alice = authority.folder("alice", &[("client", ALICE)]);
    let [object, image] = qemu_options(&served, &alice);
    let place = ["--object", &object, "--image-opts"];
    let commands = [
        "write -P 0x5a 0 3M",
        "read -P 0x5a 1234 2M",
        "write -z 64k 64k",
        "flush",
    ];
    let mut arguments = place.to_vec();
    commands
        .iter()
        .for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&image);
    succeed("qemu-io", &arguments);
    let info = succeed("qemu-img", &[&["info"], &place[..], &[&image]].concat());
    assert!(
        info.contains(&format!("({} bytes)", served.size())),
        "{info}"
    );
    let stranger = Authority::new().expect("openssl is installed");
    let wrong = stranger.folder("wrong", &[("client", ALICE)]);
    let [object, image] = qemu_options(&served, &wrong);
    let output = run(
        "qemu-img",
        &["info", "--object", &object, "--image-opts", &image],
    );
    assert!(!output.status.success(), "a server of another authority");
}

#[test]
fn clear_text_gets_nothing_where_tls_is_required() {
    if !installed(&["nbdinfo"]) {
        return;
    }
    let Some((_authority, served)) = served(&FOR_ALL) else {
        return;
    };
    refused(&served.clear_uri());
    let list = run("nbdinfo", &["--list", &served.clear_uri()]);
    let printed = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(!printed.contains("disk"), "{printed}");
}

#[test]
fn clear_text_is_served_where_tls_is_offered_only() {
    if !installed(&["nbdinfo"]) {
        return;
    }
    let offered = Terms {
        required: false,
        ..FOR_ALL
    };
    let Some((authority, served)) = served(&offered) else {
        return;
    };
    let ca_only = authority.folder("ca-only", &[]);
    for (uri, tls) in [(served.clear_uri(), false), (served.uri(&ca_only), true)] {
        let info = succeed("nbdinfo", &["--json", &uri]);
        assert!(info.contains(&format!("\"TLS\": {tls}")), "{info}");
    }
}

#[test]
fn clients_without_a_good_certificate_are_refused() {
    if !installed(&["nbdinfo"]) {
        return;
    }
    let Some((authority, served)) = served(&FOR_CERTIFIED) else {
        return;
    };
    let good = authority.folder("good", &[("client", ALICE)]);
    succeed("nbdinfo", &["--size", &served.uri(&good)]);
    let expired = authority.folder(
        "expired",
        &[(
            "client",
            Says {
                expired: true,
                ..ALICE
            },
        )],
    );
    refused(&served.uri(&expired));
    served.expect_refused("expired");
    refused(&served.uri(&authority.folder("none", &[])));
    served.expect_refused("peer sent no certificates");
    // It trusts the server, and has nothing of an authority that the server trusts.
    let stranger = Authority::new().expect("openssl is installed");
    let strange = stranger.folder("strange", &[("client", ALICE)]);
    fs::copy(authority.certificate(), strange.join("ca-cert.pem")).expect("it is there");
    refused(&served.uri(&strange));
    served.expect_refused("peer sent no certificates");
    succeed("nbdinfo", &["--size", &served.uri(&good)]);
}

#[test]
fn an_export_is_for_the_clients_on_its_list() {
    if !installed(&["nbdinfo"]) {
        return;
    }
    let rules = ["dns:carol.example", "cn:alice"];
    let listed = Terms {
        clients: &rules,
        ..FOR_CERTIFIED
    };
    let Some((authority, served)) = served(&listed) else {
        return;
    };
    let alice = authority.folder("alice", &[("client", ALICE)]);
    let bob = Says {
        subject: "/CN=bob/O=alice",
        names: "DNS:alice",
        ..ALICE
    };
    let bob = authority.folder("bob", &[("client", bob)]);
    let carol = Says {
        subject: "/O=x",
        names: "DNS:carol.example",
        ..ALICE
    };
    let carol = authority.folder("carol", &[("client", carol)]);
    for uri in [served.uri(&alice), served.uri(&carol)] {
        succeed("nbdinfo", &["--size", &uri]);
        assert!(succeed("nbdinfo", &["--list", &uri]).contains("export=\"disk\""));
    }
    refused(&served.uri(&bob));
    let why = "disk: this export's list of clients does not have O=alice,CN=bob";
    served.expect_refused(why);
    let list = run("nbdinfo", &["--list", &served.uri(&bob)]);
    let printed = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(!printed.contains("disk"), "{printed}");
}
