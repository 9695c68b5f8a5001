//! Old copies after a clean stop: a member, or a whole set, is put back as it was at some moment of service or of the stop. It never wins:
//! the start is refused, or goes on without what is old. And power that goes at any moment of a stop costs nothing.

use crate::sets::{FROM_MINORITY, PLAIN, Pair, Rest, Start};
use restripe_array::layout::{Level, Rotation};
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{Command, CommandError, Member};
use restripe_sim::array::superblock_of;
use restripe_sim::image::Image;
use restripe_sim::oracle::WriteKind;
use restripe_sim::rng::Rng;
use restripe_sim::session::PATIENCE;
use std::collections::BTreeSet;

/// What the members held at one moment.
struct Moment {
    images: Vec<Image>,
    /// The command to stop had been given.
    stopping: bool,
}

/// An array that served and was stopped, and copies of its members on the way.
struct Stopped {
    rest: Rest,
    moments: Vec<Moment>,
    /// What power leaves that goes at some moment of the stop.
    cuts: Vec<Rest>,
}

fn live(start: &Start) -> Vec<Image> {
    let world = &start.session.world;
    let image = |member: Member| world.disk(member).live().clone();
    world.members().map(image).collect()
}

fn age(image: &Image) -> (u64, u64) {
    superblock_of(image).map_or((0, 0), |found| (found.generation, found.sequence))
}

const BLOCKS: u64 = 6;

fn write_all(start: &mut Start) {
    for nth in 0..BLOCKS {
        start
            .session
            .write(nth * 24, 16, WriteKind::Data, false, false);
    }
}

/// Steps until nothing waits, with a copy of all members after each step.
fn watch(start: &mut Start, moments: &mut Vec<Moment>) {
    while !start.session.world.quiescent() {
        start.session.step();
        let (images, stopping) = (live(start), false);
        moments.push(Moment { images, stopping });
    }
}

fn stopped(pair: &Pair) -> Stopped {
    let mut start = Start::ask(pair, pair.created(), PLAIN);
    assert_eq!(start.go_on(), Ok(()));
    write_all(&mut start);
    assert!(start.session.settle(PATIENCE));
    start.session.flush();
    assert!(start.session.settle(PATIENCE));
    let mut moments = Vec::new();
    write_all(&mut start);
    watch(&mut start, &mut moments);
    start.session.flush();
    watch(&mut start, &mut moments);
    start.result = None;
    start.session.command(Command::Stop);
    let (mut cuts, mut rng) = (Vec::new(), Rng::new(5));
    while start.step() {
        let (images, stopping) = (live(&start), true);
        moments.push(Moment { images, stopping });
        let site = start.session.world.site();
        for cut in [site.nothing(), site.sample(&mut rng), site.sample(&mut rng)] {
            let mut oracle = start.session.oracle.clone();
            oracle.crash();
            let images = site.images(&cut);
            cuts.push(Rest { images, oracle });
        }
    }
    assert_eq!(start.result, Some(Ok(())));
    let images = live(&start);
    let mut oracle = start.session.oracle;
    oracle.crash();
    let rest = Rest { images, oracle };
    Stopped {
        rest,
        moments,
        cuts,
    }
}

#[derive(Default, Debug)]
struct Tally {
    refused: u64,
    rebuilt: u64,
    same: u64,
}

impl Stopped {
    /// With these members as they were at a moment.
    fn with(&self, moment: &Moment, old: &[usize]) -> Rest {
        let mut rest = self.rest.clone();
        for &member in old {
            rest.images[member] = moment.images[member].clone();
        }
        rest
    }

    /// Of each different state of these members, the first moment.
    fn states(&self, old: &[usize]) -> Vec<&Moment> {
        let mut seen = BTreeSet::new();
        let state = |moment: &&Moment| {
            let digests = old.iter().map(|member| moment.images[*member].digest());
            seen.insert((moment.stopping, digests.collect::<Vec<u64>>()))
        };
        self.moments.iter().filter(state).collect()
    }

    /// Puts each state back; whatever starts then has all that was flushed, also once another member is gone.
    fn put_back(&self, pair: &Pair, old: &[usize], tally: &mut Tally) {
        for moment in self.states(old) {
            let rest = self.with(moment, old);
            let what = format!("{old:?} of {:?}", age(&moment.images[old[0]]));
            let mut start = Start::ask(pair, rest.clone(), PLAIN);
            match start.go_on() {
                Ok(()) => {
                    tally.note(&start, moment, old, &what);
                    has_all(&mut start, old, &what);
                }
                Err(error) => {
                    tally.refused += 1;
                    self.force(pair, rest, &error, &what);
                }
            }
        }
    }

    /// A refusal for want of a majority is overruled: what starts then is the newest.
    fn force(&self, pair: &Pair, rest: Rest, error: &CommandError, what: &str) {
        if !matches!(error, CommandError::Minority { .. }) {
            return;
        }
        let mut start = Start::ask(pair, rest, FROM_MINORITY);
        match start.go_on() {
            Ok(()) => start.reads_all(what),
            Err(CommandError::TooFew { .. }) => {}
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
}

impl Tally {
    fn note(&mut self, start: &Start, moment: &Moment, old: &[usize], what: &str) {
        let status = start.session.world.status();
        let left_out = |member: &usize| {
            let mut lines = status.all_members();
            let line = lines.find(|line| usize::from(line.member.0) == *member);
            line.is_none_or(|line| line.state != MemberState::Active)
        };
        match old.iter().all(left_out) {
            true => self.rebuilt += 1,
            false => {
                // Of a whole set nothing may be needed any more.
                let whole = old.len() > 1 && status.surrogate.is_some();
                assert!(
                    moment.stopping || whole,
                    "{what}: an old copy counts as current"
                );
                self.same += 1;
            }
        }
    }
}

/// All that was flushed is there, and again without any one member that is not old.
fn has_all(start: &mut Start, old: &[usize], what: &str) {
    start.reads_all(what);
    let count = start.session.world.members().count();
    let other = (0..count).find(|member| !old.contains(member));
    if let Some(member) = other {
        start.session.command(Command::Fail(Member(member as u16)));
        assert!(start.session.settle(PATIENCE), "{what}");
        start.reads_all(what);
    }
}

fn levels() -> Vec<(Level, u16)> {
    let rotation = Rotation::default();
    vec![
        (Level::Raid0, 2),
        (Level::Raid1, 2),
        (Level::Raid1, 3),
        (Level::Raid4, 3),
        (Level::Raid5(rotation), 3),
        (Level::Raid6(rotation), 4),
        (Level::Raid10 { copies: 2 }, 4),
        (Level::ReedSolomon { parities: 3 }, 5),
    ]
}

#[test]
fn an_old_copy_of_members_never_wins_after_a_clean_stop() {
    for (level, slots) in levels() {
        let pair = Pair::single(level, slots);
        let stopped = stopped(&pair);
        let mut tally = Tally::default();
        for bits in 1..(1usize << slots) - 1 {
            let old: Vec<usize> = (0..usize::from(slots))
                .filter(|member| bits >> member & 1 == 1)
                .collect();
            if old.len() <= 2 || old.len() + 1 == usize::from(slots) {
                stopped.put_back(&pair, &old, &mut tally);
            }
        }
        assert!(tally.refused + tally.rebuilt > 10, "{level:?}: {tally:?}");
    }
}

/// Each set as a whole, each member of each, and the sets beside the main one together.
#[test]
fn an_old_copy_of_a_set_never_wins_after_a_clean_stop() {
    for pair in [Pair::buffered(), Pair::log_disk()] {
        let stopped = stopped(&pair);
        let mut tally = Tally::default();
        let sets: Vec<Vec<usize>> = (0..pair.specs.len())
            .map(|set| pair.members(set).collect())
            .collect();
        let aside: Vec<usize> = sets[1..].concat();
        let members = sets.concat();
        let each = members.iter().map(|member| vec![*member]);
        for old in sets.iter().cloned().chain([aside]).chain(each) {
            stopped.put_back(&pair, &old, &mut tally);
        }
        assert!(tally.refused > 20, "{tally:?}");
    }
}

#[test]
fn power_that_goes_amid_a_stop_costs_nothing() {
    let single = levels()
        .into_iter()
        .map(|(level, slots)| Pair::single(level, slots));
    for pair in single.chain([Pair::buffered(), Pair::log_disk()]) {
        let stopped = stopped(&pair);
        for cut in &stopped.cuts {
            let mut start = Start::ask(&pair, cut.clone(), PLAIN);
            assert_eq!(start.go_on(), Ok(()));
            let state = start.session.world.status().state;
            assert_eq!(state, ArrayState::Healthy);
            start.reads_all("after a stop that was cut short");
        }
    }
}

/// The tests above find an array that is stopped with one version of its superblocks, and a log without a number.
#[test]
fn a_stop_that_writes_one_version_is_found() {
    let sets = [Pair::single(Level::Raid1, 2), Pair::buffered()];
    for (mut pair, old) in sets.into_iter().zip([vec![1], vec![2, 3, 4]]) {
        pair.bug = Some(restripe_array::Bug::StopWritesOnce);
        let stopped = stopped(&pair);
        let found = std::panic::catch_unwind(|| {
            stopped.put_back(&pair, &old, &mut Tally::default());
        });
        assert!(found.is_err(), "{old:?}");
    }
}
