//! What `serve` makes sure of before it touches a member, and whom it goes without.

use crate::harness::{Daemon, Place, THREE, bare, line_of, raid5, skipped};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread;

/// An address that somebody has was noticed only when the members were marked as in service.
#[test]
fn an_address_that_cannot_be_had_is_noticed_before_the_members_are_touched() {
    let place = raid5("taken");
    let before = THREE.map(|name| place.bytes(name));
    let _unix = UnixListener::bind(place.path("taken.sock")).expect("a socket");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("it is bound").port().to_string();
    place.write("file.sock", 0, 0, b"precious");
    for (option, address) in [
        ("--unix", "taken.sock"),
        ("--unix", "file.sock"),
        ("--unix", "nowhere/x.sock"),
        ("--tcp", &port),
    ] {
        let refused = place.run(&[&["serve", option, address][..], &THREE].concat());
        assert!(
            refused.status == 1
                && refused.stderr.contains("cannot listen: ")
                && refused.stderr.contains(address),
            "{option} {address}: {}",
            refused.stderr
        );
    }
    assert!(before == THREE.map(|name| place.bytes(name)), "untouched");
    assert_eq!(place.bytes("file.sock"), b"precious");
    let left = place.shell("ls -A restripe").stdout;
    assert_eq!(left, "", "no control socket is left");
}

#[test]
fn a_read_only_array_is_not_said_to_be_marked_clean() {
    let place = raid5("read-only-end");
    let ended = place.shell(
        "exec 3< <(exec restripe serve --read-only --unix nbd.sock a.img b.img c.img 2>journal)
         id=$!; read -u 3 uri; restripe stop tank; wait $id; cat journal",
    );
    assert_eq!(
        bare(&ended.stdout),
        "stopped, nothing was written\n\
         restripe: tank: serving, generation 1, 0 rows recovered\n\
         restripe: tank: stopped, nothing was written\n",
        "{}",
        ended.stderr
    );
}

/// A terminal that closes ends its daemons; one started to outlive it goes on.
#[test]
fn a_hang_up_ends_a_daemon_cleanly_unless_it_was_to_outlive_it() {
    let place = raid5("hang-up");
    let serve = |prefix: &str| {
        place.shell(&format!(
            "exec 3< <({prefix} exec restripe serve --unix nbd.sock a.img b.img c.img 2>journal)
             id=$!; read -u 3 uri; kill -HUP $id; kill -TERM $id; wait $id; echo \"status $?\"
             tail -n 1 journal; grep -c 'on a signal' journal"
        ))
    };
    let clean = "status 0\nrestripe: tank: stopped and marked clean\n1\n";
    assert_eq!(bare(&serve("").stdout), clean);
    assert_eq!(bare(&serve("trap '' HUP;").stdout), clean);
    let alone = place.shell(
        "exec 3< <(exec restripe serve --unix nbd.sock a.img b.img c.img 2>journal)
         id=$!; read -u 3 uri; kill -HUP $id; wait $id; echo \"status $?\"",
    );
    assert_eq!(alone.stdout, "status 0\n");
}

/// Whether all the members say that they were shut down cleanly.
fn all_clean(place: &Place) -> bool {
    let examined = place.run(&[&["examine"][..], &THREE].concat()).stdout;
    examined.matches("\n  clean, ").count() == THREE.len()
}

/// Serves before the eyes of nobody: who read the addresses is gone before they are told, who read the journal after its
/// first line.
fn serve_unread(place: &Place) -> Daemon {
    let (_, addresses) = io::pipe().expect("a pipe");
    let arguments = [&["serve", "--unix", "nbd.sock"][..], &THREE].concat();
    let mut command = place.command(&arguments);
    let unread = command.stdout(addresses).stderr(Stdio::piped());
    let mut child = unread.spawn().expect("the command runs");
    let journal = child.stderr.take().expect("it is piped");
    let daemon = Daemon::of(child);
    let mut line = String::new();
    BufReader::new(journal)
        .read_line(&mut line)
        .expect("it says that it serves");
    assert!(line.contains(" info restripe: tank: serving"), "{line:?}");
    daemon
}

/// A word that nobody read any more ended a daemon before it had marked its members clean.
#[test]
fn a_daemon_whose_words_nobody_reads_ends_cleanly() {
    let place = raid5("unread");
    let daemon = serve_unread(&place);
    let scrubbed = place.run(&["scrub", "tank"]);
    let told = &scrubbed.stdout;
    assert!(told.starts_with("scrub started\n"), "{told}");
    assert!(told.ends_with("every row agrees\n"), "{told}");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
    assert!(all_clean(&place));
    let daemon = serve_unread(&place);
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
    assert!(all_clean(&place));
}

/// The hang-up comes when there is no terminal any more on which to say that it has come.
#[test]
fn a_terminal_that_closes_ends_its_daemon_cleanly() {
    if Command::new("script").arg("--version").output().is_err() {
        return skipped("a_terminal_that_closes", "there is no script(1)");
    }
    let place = raid5("terminal");
    // The daemon alone outlives the terminal with the pipe open, so the pipe ends when the daemon does.
    let ended = place.shell(
        "mkfifo alive
         exec 3< <(exec script -qfc 'exec restripe serve --unix nbd.sock a.img b.img c.img' /dev/null 5<>alive)
         terminal=$!; read -u 3 uri; echo \"$uri\"; exec 4<alive
         kill -KILL $terminal; cat <&4",
    );
    assert!(
        ended.stdout.starts_with("nbd+unix:///?socket="),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    assert!(all_clean(&place));
}

#[test]
fn orders_are_taken_from_the_owner_alone() {
    let place = raid5("owner");
    let daemon = place.serve(&THREE);
    let modes = place.shell("stat -c %a restripe/tank.sock");
    assert_eq!(modes.stdout, "600\n", "{}", modes.stderr);
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

/// Agrees on an export the oldest way, and hangs up at the first request.
fn agree_and_hang_up(mut stream: UnixStream) -> io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x02")?;
    stream.read_exact(&mut [0; 20])?;
    stream.write_all(&(64u64 << 20).to_be_bytes())?;
    // It has flags, and takes flushes.
    stream.write_all(&5u16.to_be_bytes())?;
    stream.read_exact(&mut [0; 28])
}

/// A member that opens and cannot be read, for the rest of the test.
fn mute_member(place: &Place) -> String {
    let socket = place.path("mute.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The command may hang up first.
            let _ = agree_and_hang_up(stream);
        }
    });
    format!("nbd+unix:///?socket={socket}")
}

/// The loss of one disk had been accepted, and what another held was declared lost because it was slow.
#[test]
fn a_member_that_does_not_answer_is_not_accepted_as_lost() {
    let place = raid5("slow");
    let mute = mute_member(&place);
    let gone = format!("nbd+unix:///?socket={}", place.path("gone.sock"));
    let before = THREE.map(|name| place.bytes(name));
    for (nth, named) in [&mute, &gone].into_iter().enumerate() {
        let config = format!("[[array]]\nname='tank'\nmembers=['a.img','{named}']\n");
        let file = format!("tank{nth}.toml");
        place.write(&file, 0, 0, config.as_bytes());
        for verb in [
            &["serve", "--accept-loss", "a.img", named][..],
            &["serve", "--accept-loss", "--config", &file],
            &["assemble", "--accept-loss", "a.img", "c.img", named],
        ] {
            let refused = place.run(verb);
            assert!(
                refused.status == 1
                    && refused.stderr.contains("error: a member does not respond")
                    && refused.stderr.contains(&format!("at: {named}\n"))
                    && refused.stderr.contains("or start without naming it"),
                "{verb:?}: {}",
                refused.stderr
            );
        }
    }
    let lossy = ["assemble", "--accept-loss", "--from-minority", "a.img"];
    let looked = place.run(&[&lossy[..], &["--read-only", &mute]].concat());
    assert_eq!(looked.status, 0, "{}", looked.stderr);
    assert!(before == THREE.map(|name| place.bytes(name)), "untouched");
    let left_out = place.run(&lossy);
    assert_eq!(left_out.status, 0, "{}", left_out.stderr);
}

/// A member that opens and cannot be read failed the whole start, though redundancy made up for it.
#[test]
fn a_member_that_cannot_be_read_is_taken_for_missing() {
    let place = raid5("mute");
    let uri = mute_member(&place);
    let members = ["a.img", &uri, "c.img"];
    let before = THREE.map(|name| place.bytes(name));
    let config = format!("[[array]]\nname='tank'\nmembers=['a.img','{uri}','c.img']\n");
    place.write("tank.toml", 0, 0, config.as_bytes());
    for verb in [
        &["serve", "a.img", &uri, "c.img"][..],
        &["serve", "--config", "tank.toml"],
        &["scrub", "tank", "--offline", "a.img", &uri, "c.img"],
    ] {
        let refused = place.run(verb);
        assert!(
            refused.status == 1
                && refused.stderr.contains("warning: nbd+unix:")
                && refused.stderr.contains("cannot be read")
                && refused.stderr.contains("slot 1 is missing"),
            "{verb:?}: {}",
            refused.stderr
        );
    }
    assert!(before == THREE.map(|name| place.bytes(name)), "untouched");
    let alone = place.run(&["serve", "--degraded", &uri]);
    assert!(
        alone.status == 1 && alone.stderr.contains("cannot be read"),
        "{}",
        alone.stderr
    );
    let daemon = place.serve(&[&["--degraded"][..], &members].concat());
    let status = place.run(&["status", "tank"]).stdout;
    assert!(
        status.starts_with("tank: degraded") && line_of(&status, "a.img").contains("active"),
        "{status}"
    );
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

/// Numbers go by the order in which members are named, slots by the metadata.
#[test]
fn members_are_shown_in_the_order_of_their_slots_and_told_by_name() {
    let place = raid5("slots");
    let daemon = place.serve(&["c.img", "a.img", "b.img"]);
    assert_eq!(place.run(&["fail", "tank", "b.img"]).status, 0);
    let status = place.run(&["status", "tank"]).stdout;
    let slots: Vec<&str> = status.lines().rev().take(4).collect();
    for (line, (is, of)) in slots.iter().rev().zip([
        ("1     0  active", "a.img"),
        ("-     1  missing", "-"),
        ("0     2  active", "c.img"),
        ("2     -  failed", "b.img"),
    ]) {
        assert!(line.contains(is) && line.ends_with(of), "{status}");
    }
    let mut control = UnixStream::connect(place.path("restripe/tank.sock")).expect("it listens");
    control
        .write_all(b"{\"verb\":\"facts\"}\n")
        .expect("it reads");
    let mut facts = String::new();
    BufReader::new(control)
        .read_line(&mut facts)
        .expect("it answers");
    assert!(facts.contains("member 2 (b.img) failed"), "{facts}");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn what_users_read_is_shown_by_zones() {
    let place = raid5("heat");
    let shown = place.shell(
        "exec 3< <(exec restripe serve --heat-zone 1M --order ido --unix nbd.sock a.img b.img c.img)
         id=$!; read -u 3 uri
         printf '0,0,4096,w,0.0\n0,8192,4096,r,0.1\n0,8200,4096,r,0.2\n0,0,4096,r,0.3\n' > four.spc
         restripe replay four.spc --overwrite --nbd $uri
         restripe heat tank --json > heat.json; restripe heat tank --top 1
         restripe rebuild tank --order pro; restripe rebuild tank --order fifo
         restripe stop tank; wait $id",
    );
    let heat: serde_json::Value =
        serde_json::from_slice(&place.bytes("heat.json")).expect("it is JSON");
    assert_eq!(heat["zone_bytes"], 1 << 20, "{heat}");
    assert_eq!(
        (&heat["zones_read"], &heat["reads"]),
        (&2.into(), &3.0.into())
    );
    let hottest = &heat["hottest"][0];
    assert_eq!(
        (&hottest["offset_bytes"], &hottest["reads"]),
        (&(4 << 20).into(), &2.0.into())
    );
    assert!(
        shown.stdout.contains("4M        2.0   66.7%"),
        "{}",
        shown.stdout
    );
    assert!(!shown.stdout.contains("33.3%"), "{}", shown.stdout);
    assert!(shown.stdout.contains("order: pro\n"), "{}", shown.stdout);
    assert!(
        shown
            .stderr
            .contains("possible values: pr, pro, ido, sor, dor"),
        "{}",
        shown.stderr
    );
}

/// A stop keeps all that was read; a crash takes back what was read in its epoch, and nothing else.
#[test]
fn what_was_hot_is_known_after_a_restart() {
    let place = raid5("remembered");
    let serve = "exec 3< <(exec restripe serve --heat-zone 1M --unix nbd.sock a.img b.img c.img)
         id=$!; read -u 3 uri";
    let ended = place.shell(&format!(
        "{serve}
         printf '0,0,4096,w,0.0\n0,8192,4096,r,0.1\n0,8200,4096,r,0.2\n0,0,4096,r,0.3\n' > reads.spc
         restripe replay reads.spc --overwrite --nbd $uri
         restripe heat tank --json > first.json; restripe stop tank; wait $id
         {serve}; restripe heat tank --json > stopped.json
         printf '0,0,4096,r,0.0\n0,0,4096,r,0.1\n0,0,4096,r,0.2\n' > more.spc
         restripe replay more.spc --overwrite --nbd $uri
         restripe heat tank --json > more.json; kill -KILL $id; wait $id
         {serve}; restripe heat tank --json > killed.json; restripe stop tank; wait $id"
    ));
    let heat = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&place.bytes(name)).unwrap_or_else(|_| panic!("{}", ended.stderr))
    };
    let first = heat("first.json");
    assert_eq!(first["hottest"][0]["offset_bytes"], 4 << 20, "{first}");
    assert_eq!(first["reads"], 3.0, "{first}");
    assert_eq!(heat("stopped.json"), first);
    assert_eq!(heat("more.json")["hottest"][0]["offset_bytes"], 0);
    assert_eq!(heat("killed.json"), first);
}

/// A resynchronisation that waits for a start that writes was shown as one that runs, and waited for without end.
#[test]
fn what_a_read_only_start_leaves_undone_is_told() {
    let place = raid5("read-only");
    let written = place.shell(
        "exec 3< <(exec restripe serve --unix nbd.sock a.img b.img c.img)
         id=$!; read -u 3 uri; printf '0,0,65536,w,0.0\\n' > one.spc
         restripe replay one.spc --overwrite --nbd $uri; kill -KILL $id; wait $id",
    );
    assert!(!written.stderr.contains("error"), "{}", written.stderr);
    let before = THREE.map(|name| place.bytes(name));
    let daemon = place.serve(&["--read-only", "a.img", "b.img", "c.img"]);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(
        line_of(&status, "resync").contains("waits for a start that may write"),
        "{status}"
    );
    let waits = place.run(&["rebuild", "tank", "--watch"]);
    assert!(
        waits.status == 1 && waits.stderr.contains("is read-only: its tasks wait"),
        "{}",
        waits.stderr
    );
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
    let told = place.shell(
        "exec 3< <(exec restripe serve --read-only --unix nbd.sock a.img c.img 2>journal)
         id=$!; read -u 3 uri; restripe stop tank; wait $id; cat journal",
    );
    assert!(
        told.stdout.contains("rows that were being written")
            && told
                .stdout
                .contains("resync waits for a start that may write"),
        "{} {}",
        told.stdout,
        told.stderr
    );
    assert!(before == THREE.map(|name| place.bytes(name)), "untouched");
}

#[test]
fn a_rule_without_a_cache_is_refused() {
    let place = raid5("no-cache");
    let serve = ["serve", "--cache-policy", "lru", "a.img", "b.img", "c.img"];
    let run = place.run(&serve);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(
        run.stderr.contains("hint: pass --cache SIZE as well"),
        "{}",
        run.stderr
    );
}

/// A VMM asks for no name, so each array has a socket of its own, which only the file can name for several.
#[test]
fn each_array_of_a_configuration_has_the_socket_of_its_own_machine() {
    let place = Place::new("machines");
    let config = |second: &str| {
        format!(
            "[[array]]\nname='tank'\nmembers=['a.img','b.img']\nlevel='raid1'\nimage-size='64M'\n\
             vhost-user='tank.sock'\n\
             [[array]]\nname='vault'\nmembers=['c.img','d.img']\nlevel='raid1'\nimage-size='64M'\n\
             vhost-user='{second}'\n[serve]\nunix='nbd.sock'\n"
        )
    };
    place.write("two.toml", 0, 0, config("machines").as_bytes());
    place.write("same.toml", 0, 0, config("tank.sock").as_bytes());
    assert_eq!(place.shell("mkdir machines").status, 0);
    for name in ["tank", "vault"] {
        let made = place.run(&["create", "--config", "two.toml", name]);
        assert_eq!(made.status, 0, "{}", made.stderr);
    }
    let refused = place.run(&["serve", "--config", "same.toml"]);
    assert!(
        refused.status != 0 && refused.stderr.contains("two arrays, tank and vault"),
        "{}",
        refused.stderr
    );
    let daemon = place.await_service(&mut place.command(&["serve", "--config", "two.toml"]));
    assert!(place.exists("tank.sock") && place.exists("machines/vault.vhost"));
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
    let elsewhere = ["serve", "--config", "two.toml", "--unix", "other.sock"];
    let daemon = place.await_service(&mut place.command(&elsewhere));
    assert!(!place.exists("tank.sock") && !place.exists("machines/vault.vhost"));
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
}
