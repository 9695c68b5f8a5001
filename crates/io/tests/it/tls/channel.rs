//! Both ends of a channel in memory: every byte arrives as it was sent or not at all, however the stream is
//! cut and broken.

use crate::nbd_protocol::world::Random;
use crate::tls::certificates::{ALICE, Authority, SERVER, Says};
use restripe_io::memory::{Memory, Piece};
use restripe_io::tls::names::PeerNames;
use restripe_io::tls::{CIPHERTEXT_BYTES, Channel, ClientSide, Event, Going, ServerSide};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    let refusal = |server: &ServerSide, client: &ClientSide| {
        let (mut server, mut client) = ends(server, client);
        shake_hands(&mut server, &mut client, 1 << 20);
        assert!(server.came.is_empty() && client.came.is_empty());
        format!("{:?} {:?}", server.going, client.going)
    };
    let both_on = format!("{:?} {:?}", Going::On, Going::On);
    assert_eq!(refusal(&server, &client), both_on);
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
    assert_eq!(refusal(&other, &trusting.expect("certificates")), both_on);
    // A client's certificate is no server's.
    let posing = authority.folder("posing", &[("client", ALICE)]);
    for (client, server) in [("client-cert", "server-cert"), ("client-key", "server-key")] {
        let path = |name: &str| posing.join(format!("{name}.pem"));
        fs::rename(path(client), path(server)).expect("it is there");
    }
    let posing = ServerSide::read(&posing, false).expect("certificates");
    assert_ne!(refusal(&posing, &client), both_on);
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
