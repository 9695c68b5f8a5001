//! Both ends of a channel in memory: every byte arrives as it was sent or not at all, however the stream is
//! cut and broken.

use crate::nbd_clients::tools::succeed;
use crate::nbd_protocol::world::Random;
use crate::tls::certificates::{ALICE, Authority, SERVER, Says, text};
use restripe_io::memory::{Memory, Piece};
use restripe_io::tls::names::{NameRule, PeerNames};
use restripe_io::tls::{
    CIPHERTEXT_BYTES, CertificateError, Channel, ClientSide, Event, Going, ServerSide,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// One end with what came out of it.
struct End {
    channel: Channel,
    came: Vec<u8>,
    peer: Option<Option<PeerNames>>,
    going: Going,
}

impl End {
    fn new(channel: Channel) -> End {
        End {
            channel,
            came: Vec::new(),
            peer: None,
            going: Going::On,
        }
    }

    /// Takes ciphertext, at most `step` bytes at once. No more than was received comes out.
    fn take(&mut self, mut bytes: &[u8], step: usize) {
        while !bytes.is_empty() && self.going == Going::On {
            let Some(piece) = self.channel.receive(step) else {
                // Less than a record was taken.
                assert!(step < 20_000, "there is room for a record");
                let Some(piece) = self.channel.receive(CIPHERTEXT_BYTES) else {
                    self.going = Going::Failed("full".to_owned());
                    return;
                };
                bytes = &bytes[self.fill(&piece, bytes, step)..];
                continue;
            };
            bytes = &bytes[self.fill(&piece, bytes, step)..];
        }
    }

    fn fill(&mut self, piece: &Piece, bytes: &[u8], step: usize) -> usize {
        let count = bytes.len().min(piece.bytes as usize).min(step);
        piece.memory.fill(piece.offset as usize, &bytes[..count]);
        self.channel.received(count);
        self.open();
        count
    }

    fn open(&mut self) {
        let (came, peer) = (&mut self.came, &mut self.peer);
        self.going = self.channel.open(&mut |event| match event {
            Event::Secured(names) => assert!(peer.replace(names).is_none(), "once"),
            Event::Plain(bytes) => {
                assert!(peer.is_some(), "after the handshake");
                came.extend_from_slice(bytes);
            }
        });
    }

    fn give(&mut self) -> Vec<u8> {
        let sent = self.channel.launch();
        let bytes = sent.map_or_else(Vec::new, |piece| piece.slice().to_vec());
        self.channel.sent();
        bytes
    }

    /// Seals some of the bytes; how many.
    fn seal(&mut self, bytes: &[u8]) -> usize {
        let memory = Memory::new(bytes.len());
        memory.fill(0, bytes);
        let (left, right) = (bytes.len() as u32 / 3, bytes.len() as u32);
        let pieces = [
            Piece::new(memory.clone(), 0, left),
            Piece::new(memory, left, right - left),
        ];
        self.channel.seal(&pieces) as usize
    }
}

fn ends(server: &ServerSide, client: &ClientSide) -> (End, End) {
    let mut client = End::new(client.begin("localhost").expect("a name"));
    client.open();
    (End::new(server.begin()), client)
}

/// Goes on until neither has anything to say.
fn shake_hands(server: &mut End, client: &mut End, step: usize) {
    loop {
        let (up, down) = (client.give(), server.give());
        if up.is_empty() && down.is_empty() {
            return;
        }
        server.take(&up, step);
        client.take(&down, step);
    }
}

struct Parties {
    authority: Authority,
    server: ServerSide,
    client: ClientSide,
}

fn parties() -> Option<Parties> {
    let authority = Authority::new()?;
    let folder = authority.folder("server", &[("server", SERVER)]);
    let server = ServerSide::read(&folder, true).expect("certificates");
    let folder = authority.folder("alice", &[("client", ALICE)]);
    let client = ClientSide::read(&folder, true).expect("certificates");
    Some(Parties {
        authority,
        server,
        client,
    })
}

#[test]
fn bytes_come_through_in_order_however_they_are_cut() {
    let Some(Parties { server, client, .. }) = parties() else {
        return;
    };
    let mut random = Random::new(1);
    for step in [1, 7, 1000, 20_000, 1 << 20] {
        let (mut server, mut client) = ends(&server, &client);
        shake_hands(&mut server, &mut client, step);
        let names = server.peer.clone().flatten().expect("a certificate");
        assert_eq!(names.distinguished, "CN=alice,O=Example");
        assert_eq!(
            (names.common, names.dns),
            (vec!["alice".to_owned()], vec!["alice.example".to_owned()])
        );
        assert_eq!(names.uris, ["urn:example:alice"]);
        let mut bytes = vec![0; if step == 1 { 10_000 } else { 700_000 }];
        random.fill(&mut bytes);
        let mut left = &bytes[..];
        while !left.is_empty() {
            let sealed = client.seal(left);
            assert!(sealed > 0, "there is room");
            left = &left[sealed..];
            let sent = client.give();
            assert!(sent.len() <= CIPHERTEXT_BYTES);
            server.take(&sent, step);
            assert_eq!(server.going, Going::On);
        }
        assert!(server.came == bytes, "in steps of {step}");
        client.channel.close();
        server.take(&client.give(), step);
        assert_eq!(server.going, Going::Closed);
    }
}

/// Whatever a peer changes in the stream, no byte comes out that was not sent, and no panic.
#[test]
fn a_broken_stream_gives_no_wrong_byte() {
    let Some(Parties { server, client, .. }) = parties() else {
        return;
    };
    let mut random = Random::new(2);
    let deep = std::env::var_os("RESTRIPE_DEEP").is_some();
    let mut failed = 0;
    for _ in 0..if deep { 10_000 } else { 200 } {
        let (mut server, mut client) = ends(&server, &client);
        let mut bytes = vec![0; 40_000];
        random.fill(&mut bytes);
        // At which flight, and how, the stream is broken.
        let (flight, manner) = (random.below(4), random.below(4));
        for turn in 0..4 {
            if turn == 3 {
                client.seal(&bytes);
            }
            let mut up = client.give();
            if turn == flight && !up.is_empty() {
                let at = random.below(up.len());
                match manner {
                    0 => up[at] ^= 1 << random.below(8),
                    1 => up.truncate(at),
                    2 => drop(up.drain(..at)),
                    _ => {
                        let noise = random.next().to_be_bytes();
                        up.splice(at..at, noise);
                    }
                }
            }
            server.take(&up, 1 << 20);
            client.take(&server.give(), 1 << 20);
        }
        assert!(bytes.starts_with(&server.came), "what was sent");
        failed += u32::from(matches!(server.going, Going::Failed(_)));
        // Whatever happened, another turn is no matter.
        server.open();
        let _ = server.seal(b"more");
    }
    assert!(failed > 20, "{failed} were noticed");
}

#[test]
fn noise_is_refused_with_an_alert() {
    let Some(Parties { server, .. }) = parties() else {
        return;
    };
    let mut random = Random::new(4);
    for length in [5, 100, 70_000, 300_000] {
        let mut end = End::new(server.begin());
        let mut noise = vec![0; length];
        random.fill(&mut noise);
        noise[0] = 0x47;
        end.take(&noise, 1 << 20);
        assert!(matches!(end.going, Going::Failed(_)), "{length}");
        let alert = end.give();
        assert!(alert.is_empty() || alert[0] == 0x15, "{alert:?}");
    }
}

const BOTH_ON: &str = "On, On";

/// What each side thinks of the other.
fn refusal(server: &ServerSide, client: &ClientSide) -> String {
    let (mut server, mut client) = ends(server, client);
    shake_hands(&mut server, &mut client, 1 << 20);
    assert!(server.came.is_empty() && client.came.is_empty());
    format!("{:?}, {:?}", server.going, client.going)
}

/// Why each side refuses the other.
#[test]
fn certificates_that_do_not_hold_are_refused_by_either_side() {
    let Some(Parties {
        authority,
        server,
        client,
    }) = parties()
    else {
        return;
    };
    let stranger = Authority::new().expect("openssl is installed");
    let read = |folder: &Path| ClientSide::read(folder, true).expect("certificates");
    let strange = read(&stranger.folder("strange", &[]));
    assert_eq!(refusal(&server, &client), BOTH_ON);
    let said = refusal(&server, &strange);
    assert!(said.contains("UnknownIssuer"), "{said}");
    let anybody = read(&authority.folder("anybody", &[]));
    let said = refusal(&server, &anybody);
    assert!(said.contains("peer sent no certificates"), "{said}");
    let expired = Says {
        expired: true,
        ..ALICE
    };
    let expired = read(&authority.folder("expired", &[("client", expired)]));
    let said = refusal(&server, &expired);
    assert!(said.contains("expired"), "{said}");
    let elsewhere = stranger.folder("elsewhere", &[("client", ALICE)]);
    fs::copy(authority.certificate(), elsewhere.join("ca-cert.pem")).expect("it is there");
    let said = refusal(&server, &read(&elsewhere));
    assert!(said.contains("UnknownIssuer"), "{said}");
    // A server under another name.
    let other = Says {
        names: "DNS:elsewhere",
        ..SERVER
    };
    let other = authority.folder("other", &[("server", other)]);
    let other = ServerSide::read(&other, false).expect("certificates");
    let said = refusal(&other, &client);
    assert!(said.contains("not valid for name"), "{said}");
    let trusting = ClientSide::read(&authority.folder("trusting", &[]), false);
    assert_eq!(refusal(&other, &trusting.expect("certificates")), BOTH_ON);
    // A client's certificate is no server's.
    let posing = authority.folder("posing", &[("client", ALICE)]);
    for (client, server) in [("client-cert", "server-cert"), ("client-key", "server-key")] {
        let path = |name: &str| posing.join(format!("{name}.pem"));
        fs::rename(path(client), path(server)).expect("it is there");
    }
    let posing = ServerSide::read(&posing, false).expect("certificates");
    assert_ne!(refusal(&posing, &client), BOTH_ON);
}

/// A list of what an authority above has revoked counts as well, on both sides.
#[test]
fn a_revoked_authority_in_between_is_refused() {
    let Some(authority) = Authority::new() else {
        return;
    };
    for (nth, (kind, revoked)) in [
        ("client", false),
        ("client", true),
        ("server", false),
        ("server", true),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = |name: &str, holders: &[_]| authority.folder(&format!("{name}{nth}"), holders);
        let below = folder("below", &[]);
        authority.intermediate(&below, kind, revoked);
        let other = match kind {
            "client" => folder("other", &[("server", SERVER)]),
            _ => folder("other", &[("client", ALICE)]),
        };
        fs::copy(below.join("revoked.pem"), other.join("ca-crl.pem")).expect("it is there");
        let (server, client) = match kind {
            "client" => (&other, &below),
            _ => (&below, &other),
        };
        let server = ServerSide::read(server, kind == "client").expect("certificates");
        let client = ClientSide::read(client, true).expect("certificates");
        let said = refusal(&server, &client);
        assert_eq!(said.contains("Revoked"), revoked, "{kind}: {said}");
        if !revoked {
            assert_eq!(said, BOTH_ON);
        }
    }
}

/// A list that is gone, or cannot be read, does not let in those whom it refused.
#[test]
fn a_list_of_revocations_that_vanishes_is_used_on() {
    let Some(authority) = Authority::new() else {
        return;
    };
    let below = authority.folder("below", &[]);
    authority.intermediate(&below, "client", true);
    let client = ClientSide::read(&below, true).expect("certificates");
    let live = authority.folder("live", &[("server", SERVER)]);
    let (list, away) = (live.join("ca-crl.pem"), live.join("away.pem"));
    fs::copy(below.join("revoked.pem"), &list).expect("it is there");
    let server = ServerSide::read(&live, true).expect("certificates");
    let take_up = || {
        assert_eq!(server.look(), None, "they may be changing still");
        let taken = server.look();
        let said = refusal(&server, &client);
        assert!(said.contains("Revoked"), "{said}");
        taken
    };
    let error = |taken: Option<Result<(), CertificateError>>| {
        let error = taken.expect("it was changed").expect_err("it is gone");
        assert!(error.to_string().contains("ca-crl.pem"), "{error}");
    };
    assert_eq!(take_up(), None);
    fs::rename(&list, &away).expect("ours");
    error(take_up());
    assert_eq!(take_up(), None, "said once");
    fs::copy(&away, &list).expect("ours");
    assert_eq!(take_up(), Some(Ok(())));
    fs::remove_file(&list).expect("ours");
    std::os::unix::fs::symlink(live.join("nowhere.pem"), &list).expect("a free name");
    error(take_up());
    let dangling = ServerSide::read(&live, true).err();
    error(dangling.map(Err));
    // The operator's decision.
    fs::remove_file(&list).expect("ours");
    let server = ServerSide::read(&live, true).expect("certificates");
    assert_eq!(refusal(&server, &client), BOTH_ON);
}

/// The subject of a client is what openssl prints of it.
#[test]
fn a_subject_is_printed_as_openssl_prints_it() {
    let Some(authority) = Authority::new() else {
        return;
    };
    let folder = authority.folder("server", &[("server", SERVER)]);
    let server = ServerSide::read(&folder, true).expect("certificates");
    for (nth, subject) in [
        "/C=NL/ST=x/L=y/O=M\u{fc}ller, S\\\\A/OU= #b /CN=alice",
        "/CN=#a\"<>;\\+=\u{20ac}/serialNumber=7/emailAddress=a@b.c/UID=u/DC=example",
        "/SN=s/GN=g/title=t/initials=i/pseudonym=p/street=Main street 1/postalCode=1/description=d",
        "/businessCategory=b/jurisdictionC=NL/organizationIdentifier=1/telephoneNumber=31/name=n",
        "/CN=zed+OU=b/dnQualifier=q/generationQualifier=g/postOfficeBox=4/unstructuredName=u",
    ]
    .into_iter()
    .enumerate()
    {
        let holder = Says { subject, ..ALICE };
        let folder = authority.folder(&format!("holder{nth}"), &[("client", holder)]);
        let certificate = text(&folder.join("client-cert.pem"));
        let printed = succeed(
            "openssl",
            &[
                "x509",
                "-in",
                &certificate,
                "-noout",
                "-subject",
                "-nameopt",
                "RFC2253",
            ],
        );
        let printed = printed
            .trim_end_matches('\n')
            .trim_start_matches("subject=");
        let client = ClientSide::read(&folder, true).expect("certificates");
        let (mut server, mut client) = ends(&server, &client);
        shake_hands(&mut server, &mut client, 1 << 20);
        let names = server.peer.flatten().expect("it showed a certificate");
        assert_eq!(names.distinguished, printed);
        let rule: NameRule = format!("dn:{printed}")
            .parse()
            .expect("it may be asked for");
        assert_eq!(rule, NameRule::Distinguished(printed.to_owned()));
    }
}

/// New files are used once they stay as they are; broken ones leave what was read before.
#[test]
fn renewed_certificates_are_taken_up_and_broken_ones_are_not() {
    let Some(Parties { authority, .. }) = parties() else {
        return;
    };
    let live = authority.folder("live", &[("server", SERVER)]);
    let other = Says {
        subject: "/CN=renewed",
        ..SERVER
    };
    let renewed = authority.folder("renewed", &[("server", other)]);
    let before = Authority::new().expect("openssl is installed");
    let before = before.folder("before", &[("server", SERVER)]);
    for name in ["server-cert.pem", "server-key.pem"] {
        fs::copy(before.join(name), live.join(name)).expect("it is there");
    }
    let server = ServerSide::read(&live, false).expect("certificates");
    let shared = server.clone();
    let client = ClientSide::read(&authority.folder("bob", &[("client", ALICE)]), true);
    let client = client.expect("certificates");
    assert!(refusal(&shared, &client).contains("UnknownIssuer"));
    let take_up = || {
        assert_eq!(server.look(), None, "they may be changing still");
        server.look()
    };
    assert_eq!(take_up(), None);
    // A key that is not the certificate's.
    fs::copy(renewed.join("server-key.pem"), live.join("server-key.pem")).expect("it is there");
    let error = take_up()
        .expect("it was changed")
        .expect_err("they do not match");
    assert!(error.to_string().contains("server-cert.pem"), "{error}");
    assert_eq!(take_up(), None, "said once");
    assert!(
        refusal(&shared, &client).contains("UnknownIssuer"),
        "as before"
    );
    fs::copy(
        renewed.join("server-cert.pem"),
        live.join("server-cert.pem"),
    )
    .expect("it is there");
    assert_eq!(take_up(), Some(Ok(())));
    assert_eq!(refusal(&shared, &client), BOTH_ON);
    // A mode that is put right is a change as well.
    let mode = |mode| {
        let key = live.join("server-key.pem");
        fs::set_permissions(key, fs::Permissions::from_mode(mode)).expect("ours");
    };
    mode(0o644);
    let error = take_up().expect("it was changed").expect_err("all read it");
    assert!(error.to_string().contains("chmod 0600"), "{error}");
    assert_eq!(take_up(), None, "said once");
    mode(0o600);
    assert_eq!(take_up(), Some(Ok(())));
    assert_eq!(take_up(), None);
    let (from, until) = server.valid();
    let (day, now) = (Duration::from_secs(24 * 3600), SystemTime::now());
    assert!(from <= now && until > now + 29 * day && until < now + 31 * day);
}

#[test]
fn folders_with_mistakes_are_refused_by_the_file() {
    let Some(Parties { authority, .. }) = parties() else {
        return;
    };
    let server = authority.folder("mistakes", &[("server", SERVER), ("client", ALICE)]);
    let why = |verify| {
        let read = ServerSide::read(&server, verify);
        read.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let key = server.join("server-key.pem");
    let mode = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("ours");
    for (bits, fits) in [
        (0o600, true),
        (0o640, true),
        (0o400, true),
        (0o644, false),
        (0o660, false),
    ] {
        mode(bits);
        assert_eq!(why(true).is_empty(), fits, "{bits:o}");
        assert_eq!(why(true).contains("chmod 0600"), !fits, "{bits:o}");
    }
    mode(0o600);
    let of_client = fs::read(server.join("client-key.pem")).expect("it is there");
    let own = fs::read(&key).expect("it is there");
    for (wrong, said) in [
        (&of_client[..], "server-cert.pem"),
        (b"nothing", "no private key"),
        (b"", "no private key"),
    ] {
        fs::write(&key, wrong).expect("ours");
        assert!(why(false).contains(said), "{}", why(false));
    }
    fs::write(&key, own).expect("ours");
    for name in ["ca-cert.pem", "server-cert.pem"] {
        let path = server.join(name);
        let good = fs::read(&path).expect("it is there");
        fs::write(
            &path,
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .expect("ours");
        assert!(why(true).contains(name), "{}", why(true));
        fs::write(&path, b"").expect("ours");
        assert!(why(true).contains(name), "{}", why(true));
        fs::remove_file(&path).expect("ours");
        assert!(why(true).contains(name), "{}", why(true));
        fs::write(&path, good).expect("ours");
    }
    assert_eq!(why(true), "");
}
