//! A surrogate that is taken away while users write: what was under way is waited for, nothing goes there behind the last look, and
//! home alone has everything when it is off the record. And what is told of one that fails.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use restripe_array::layout::Level;
use restripe_array::meta::{Partner, PartnerRole, WriteHole};
use restripe_array::{Command, CommandError, Member, Nanos, RequestOp, Uuid};
use restripe_tier::report::OverlayStatus;
use restripe_tier::{Destage, Redirect};

const REMOVE: Command = Command::LogSet(None);
const HOME: Uuid = Uuid([7; 16]);
const LOG: Uuid = Uuid([9; 16]);

pub struct Made {
    pub array: Array,
    /// Members of the log: those behind home's.
    log: std::ops::Range<u16>,
}

/// With a log disk, a code cache, or a mirror that takes what a rebuild is in the way of.
pub fn made(redirect: Redirect) -> Made {
    let partner = |role, array| Some(Partner::new(role, array));
    let ahead = Setup::new(Level::Raid10 { copies: 2 }, 4);
    let (mut home, log) = match redirect {
        Redirect::Graid => (ahead, Setup::new(Level::Raid0, 1).hole(WriteHole::None)),
        Redirect::Reraid => (ahead, raid5(3).hole(WriteHole::WholeRows)),
        _ => (raid5(4).spares(1), raid1(2)),
    };
    let mut log = log.info(|info| info.sectors = 8192);
    log.rows = 256;
    let members = log.options.members.len() as u16;
    log.options.array = LOG;
    log.options.uuids = (0..members as u8).map(|n| Uuid([100 + n; 16])).collect();
    log.options.partner = partner(PartnerRole::Surrogate, HOME);
    home.options.partner = partner(PartnerRole::Main, LOG);
    let first = home.options.members.len() as u16;
    let mut array = home.made();
    array.join(log.made(), redirect, Destage::default());
    Made {
        array,
        log: first..first + members,
    }
}

/// It serves, and its writes are redirected: none is before that is on record. One has come home again.
fn redirecting(redirect: Redirect) -> Made {
    let mut made = made(redirect);
    let array = &mut made.array;
    array.start().expect("both are whole");
    array.run();
    array.written(0, CHUNK).expect("written");
    let done = overlay(array).counters.redirected_writes;
    assert_eq!(done, 1, "{redirect:?}");
    array.command(Command::Destage).expect("asked for");
    array.pass(Nanos::from_secs(2));
    assert_eq!(away(array), 0, "{redirect:?}");
    made
}

/// The first chunk was written while a rebuild waits for what it reads.
fn redirected_by_a_rebuild() -> Made {
    let mut made = made(Redirect::Ido);
    let array = &mut made.array;
    array.start().expect("both are whole");
    array.run();
    array.order(Command::Fail(Member(1)));
    // The rebuild waits for what it reads.
    array.run_but("read data");
    let before = array.write(0, CHUNK);
    array.run_but("read data");
    assert_eq!(array.reply(before), Some(Ok(())));
    assert_eq!(away(array), CHUNK);
    made
}

fn overlay(array: &Array) -> OverlayStatus {
    let surrogate = array.engine.status().surrogate;
    surrogate.and_then(|one| one.overlay).expect("there is one")
}

fn away(array: &Array) -> u64 {
    overlay(array).sectors.iter().sum()
}

fn is_busy(answer: Option<Result<(), CommandError>>) -> bool {
    matches!(answer, Some(Err(CommandError::Busy(_))))
}

impl Made {
    /// Nothing is written there any more, and without it everything is there and nothing in doubt.
    fn stands_alone(mut self) {
        let array = &mut self.array;
        assert_eq!(array.engine.status().log_set, None);
        assert_eq!(away(array), 0);
        array.listing();
        array.written(6 * CHUNK, CHUNK).expect("written");
        array.flushed();
        array.pass(Nanos::from_secs(60));
        let listing = array.listing();
        let of_log = self.log.clone().map(|member| format!("m{member} write "));
        for begins in of_log {
            assert!(!listing.contains(&begins), "{listing}");
        }
        array.command(Command::Stop).expect("stopped");
        array.part(self.log.len());
        array.start().expect("home has everything");
        assert!(array.engine.status().tasks.is_empty());
        array.verify();
        array.consistent();
    }
}

/// A write has just been asked for when the command comes: a status tells of nothing away.
#[test]
fn what_is_on_its_way_into_the_log_is_waited_for() {
    for redirect in [Redirect::Graid, Redirect::Reraid] {
        let mut made = redirecting(redirect);
        let array = &mut made.array;
        let under_way = array.write(2 * CHUNK, CHUNK);
        // A code cache has it in memory, and tells of that.
        let told = array.reply(under_way).is_some();
        assert_eq!(told, redirect == Redirect::Reraid);
        assert_eq!(away(array), if told { CHUNK } else { 0 });
        let removal = array.order(REMOVE);
        assert_eq!(array.answer(removal), None, "{redirect:?}");
        let again = array.order(REMOVE);
        assert!(is_busy(array.answer(again)), "it waits already");
        let later = array.write(4 * CHUNK, CHUNK);
        let over_it = array.write(2 * CHUNK + 8, 8);
        array.run();
        array.pass(Nanos::from_secs(10));
        for tag in [under_way, later, over_it] {
            assert_eq!(array.reply(tag), Some(Ok(())), "{redirect:?}");
        }
        assert_eq!(array.answer(removal), Some(Ok(())), "{redirect:?}");
        made.stands_alone();
    }
}

/// A rebuild redirects what comes before the command, and nothing that comes after it.
#[test]
fn nothing_is_redirected_out_of_a_rebuild_s_way_any_more() {
    let mut made = redirected_by_a_rebuild();
    let array = &mut made.array;
    let removal = array.order(REMOVE);
    array.write(4 * CHUNK, CHUNK);
    array.run_but("read data");
    assert_eq!(overlay(array).counters.redirected_writes, 1);
    assert_eq!(array.answer(removal), None);
    array.run_tasks();
    array.pass(Nanos::from_secs(10));
    assert_eq!(array.answer(removal), Some(Ok(())));
    made.stands_alone();
}

/// Wherever the power goes meanwhile, what was flushed is there: with the log while that is on record, and without it from then on.
#[test]
fn a_removal_may_be_cut_short_anywhere() {
    for redirect in [Redirect::Graid, Redirect::Reraid] {
        let (mut before, mut after) = (0, 0);
        for steps in 0.. {
            let Made { mut array, log } = redirecting(redirect);
            array.written(2 * CHUNK, 2 * CHUNK).expect("written");
            array.flushed();
            let removal = array.order(REMOVE);
            for _ in 0..steps {
                if !array.held.is_empty() {
                    array.end_first(Ok(()));
                    array.turn();
                }
            }
            let answered = array.answer(removal);
            let over = answered.is_some() && array.held.is_empty();
            assert!(!over || answered == Some(Ok(())), "{answered:?}");
            array.crash(|_| steps % 2 == 0);
            match array.start() {
                Ok(()) => {
                    assert_eq!(answered, None, "{redirect:?}, {steps} steps");
                    before += 1;
                }
                Err(_) => {
                    array.part(log.len());
                    array.start().expect("home has everything");
                    assert_eq!(array.engine.status().log_set, None);
                    after += 1;
                }
            }
            array.run();
            array.verify();
            if over {
                break;
            }
        }
        assert!(before > 4 && after > 4, "{before} before, {after} after");
    }
}

/// What users write over and over would be there again at the end of each way home: the second holds them up.
#[test]
fn users_that_never_pause_do_not_hold_a_removal_up() {
    const PLACES: u64 = 80;
    for redirect in [Redirect::Graid, Redirect::Reraid] {
        let mut made = redirecting(redirect);
        let array = &mut made.array;
        let place = |nth: u64| nth % PLACES * 3;
        for nth in 0..PLACES {
            array.written(place(nth), 1).expect("written");
        }
        let removal = array.order(REMOVE);
        let mut writes = std::collections::VecDeque::new();
        for nth in 0..100_000 {
            if array.answer(removal).is_some() {
                break;
            }
            writes.retain(|tag| array.reply(*tag).is_none());
            if writes.len() < 4 {
                writes.push_back(array.write(place(nth), 1));
            }
            match array.held.is_empty() {
                true => array.pass(Nanos::from_secs(1)),
                false => array.end_first(Ok(())),
            }
            array.turn();
        }
        assert_eq!(array.answer(removal), Some(Ok(())), "{redirect:?}");
        array.run();
        // The log calls its own regions clean.
        array.pass(Nanos::from_secs(10));
        made.stands_alone();
    }
}

/// A first copy is read while the log fails and is let go: the read has what it asked for.
#[test]
fn a_read_under_way_outlasts_its_log() {
    let mut made = redirecting(Redirect::Graid);
    let array = &mut made.array;
    array.written(2 * CHUNK, CHUNK).expect("written");
    let removal = array.order(REMOVE);
    array.run_but("write data");
    assert_eq!(array.answer(removal), None, "it is on its way home");
    array.depart(made.log.start);
    let read = array.request(RequestOp::Read, 2 * CHUNK, CHUNK);
    array.run_but("read data");
    assert_eq!(array.answer(removal), Some(Ok(())));
    assert_eq!(array.reply(read), None, "it is held");
    array.run();
    assert_eq!(array.reply(read), Some(Ok(())));
    made.stands_alone();
}

/// The log itself is read, and let go and lost meanwhile: home has everything by then.
#[test]
fn a_read_of_the_log_outlasts_it() {
    let mut made = redirected_by_a_rebuild();
    let array = &mut made.array;
    let read = array.request(RequestOp::Read, 3, 1);
    let held = String::from(*array.labels().last().expect("it is read"));
    let of_log = |member: u16| held.starts_with(&format!("m{member} read data"));
    assert!(made.log.clone().any(of_log), "{held}");
    let removal = array.order(REMOVE);
    for _ in 0..1000 {
        array.run_but(&held);
        if array.answer(removal).is_some() {
            break;
        }
        array.wait(Nanos::from_millis(200));
    }
    assert_eq!(array.answer(removal), Some(Ok(())));
    assert_eq!(array.reply(read), None, "it is held");
    for member in made.log.clone() {
        array.depart(member);
    }
    array.run();
    assert_eq!(array.reply(read), Some(Ok(())));
    made.stands_alone();
}

#[test]
fn a_stop_ends_a_removal_and_the_surrogate_stays() {
    for redirect in [Redirect::Graid, Redirect::Reraid] {
        let mut made = redirecting(redirect);
        let array = &mut made.array;
        array.written(2 * CHUNK, CHUNK).expect("written");
        let removal = array.order(REMOVE);
        let stop = array.order(Command::Stop);
        array.run();
        assert!(is_busy(array.answer(removal)), "{redirect:?}");
        assert_eq!(array.answer(stop), Some(Ok(())), "{redirect:?}");
        array.crash(|_| false);
        array.start().expect("both are whole");
        assert_eq!(array.engine.status().log_set, Some(LOG));
        array.run();
        array.verify();
    }
}

/// First copies are believed, or home has everything: then a log that fails is not missed. One that alone had something is.
#[test]
fn a_log_that_fails_is_missed_if_it_alone_has_something() {
    for (something, believed) in [(true, true), (false, false), (true, false)] {
        let mut made = redirecting(Redirect::Graid);
        let array = &mut made.array;
        if something {
            array.written(2 * CHUNK, CHUNK).expect("written");
        }
        if !believed {
            // Without a first copy the log alone counts: what it has goes home, which waits for home's mirrors here.
            array.depart(0);
            array.run_but("write data");
        }
        assert_eq!(overlay(array).ahead, believed, "{something}");
        let missed = something && !believed;
        assert!(!overlay(array).without_log, "it is there");
        array.depart(made.log.start);
        let told = overlay(array);
        assert!(told.broken, "{something}, {believed}");
        assert_eq!(told.without_log, !missed, "{something}, {believed}");
        assert_eq!(told.alone, believed, "{something}, {believed}");
    }
}
