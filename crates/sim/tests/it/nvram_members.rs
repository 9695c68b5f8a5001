//! Members of a code cache's NVRAM buffer that fail one after the other. What was flushed after the first
//! failure, that member lacks, and the other member alone has it on record. Started alone, the first is
//! refused or has everything.

use crate::sets::{ACCEPTING, FROM_MINORITY, PLAIN, Pair, Rest, Start};
use restripe_array::report::MemberState;
use restripe_array::{Command, CommandError, Member, StartMode};
use restripe_sim::array::superblock_of;
use restripe_sim::fault::Fault;
use restripe_sim::image::Image;
use restripe_sim::oracle::WriteKind;
use restripe_sim::payload::Payload;
use restripe_sim::session::PATIENCE;

const BUFFER: usize = 2;

/// How the first member fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Command,
    Writes,
    Flush,
    /// It was failed and rebuilt, and then the other one failed: it is that which is stale.
    AfterReturn,
}

const LOSSES: [Loss; 4] = [Loss::Command, Loss::Writes, Loss::Flush, Loss::AfterReturn];

struct Case {
    pair: Pair,
    loss: Loss,
    stale: usize,
    other: usize,
}

impl Case {
    fn all() -> Vec<Case> {
        let mut cases = Vec::new();
        for loss in LOSSES {
            let [first, second] = [0, 1].map(|nth| Pair::buffered().members(BUFFER).start + nth);
            for (stale, other) in [(first, second), (second, first)] {
                let pair = Pair::buffered();
                cases.push(Case {
                    pair,
                    loss,
                    stale,
                    other,
                });
            }
        }
        cases
    }

    /// An array that serves, and whose buffer is about to lose a member or has lost it.
    fn begin(&self) -> Start {
        let mut start = Start::ask(&self.pair, self.pair.created(), PLAIN);
        assert_eq!(start.go_on(), Ok(()));
        for nth in 0..3 {
            ask_for(&mut start, nth);
            assert!(start.session.settle(PATIENCE));
        }
        let stale = self.stale..self.stale + 1;
        match self.loss {
            Loss::Command => self.fail(&mut start, self.stale),
            Loss::Writes => start.inject(stale, Fault::Death),
            Loss::Flush => start.inject(stale, Fault::FlushError { flushes: 1 }),
            Loss::AfterReturn => {
                self.fail(&mut start, self.other);
                ask_for(&mut start, 3);
                assert!(start.session.settle(PATIENCE));
                let add = Command::Add(Member(self.other as u16));
                assert_eq!(start.session.answer(add, 100_000), Some(Ok(())));
                while !self.is_whole(&start) {
                    assert!(start.session.step(), "it is rebuilt");
                }
                assert!(start.session.settle(PATIENCE));
                start.inject(stale, Fault::Death);
            }
        }
        start
    }

    fn fail(&self, start: &mut Start, member: usize) {
        let fail = Command::Fail(Member(member as u16));
        assert_eq!(start.session.answer(fail, 100_000), Some(Ok(())));
    }

    fn is_whole(&self, start: &Start) -> bool {
        let status = start.session.world.status();
        let buffer = status.surrogate.and_then(|one| one.buffer);
        let members = buffer.expect("it has one").set.members;
        members.iter().all(|one| one.state == MemberState::Active)
    }

    /// Asks for a flush, and cuts power after this many steps. Returns what the disks have then, and whether
    /// all work had ended before.
    fn crashed_after(&self, steps: u64) -> (Rest, bool) {
        let mut start = self.begin();
        ask_for(&mut start, 4);
        let mut over = false;
        for _ in 0..steps {
            over = start.session.outstanding() == 0 && !start.is_under_way(|_| true);
            if over {
                break;
            }
            start.session.step();
        }
        assert!(start.session.violations().next().is_none());
        (start.power_goes(), over)
    }

    /// The rest, with that member's device blank.
    fn without(&self, rest: &Rest, gone: usize) -> Rest {
        let mut rest = rest.clone();
        rest.images[gone] = Image::new(Payload::Bytes, rest.images[gone].sectors());
        rest
    }
}

/// A write, and a flush of it that is under way.
fn ask_for(start: &mut Start, nth: u64) {
    let session = &mut start.session;
    session.write(nth * 24, 16, WriteKind::Data, false, false);
    assert!(session.settle(PATIENCE));
    session.flush();
}

/// Power goes at each step of the first flush after the loss. The stale member alone is refused or has what was flushed. A start
/// that is refused writes nothing to it, so that both members serve afterwards.
#[test]
fn a_member_that_lacks_a_flush_is_not_taken_for_the_buffer() {
    for case in Case::all() {
        let (mut refused, mut served) = (0, 0);
        for steps in 0.. {
            let (rest, over) = case.crashed_after(steps);
            let what = format!("{:?} of {}, {steps} steps", case.loss, case.stale);
            let mut start = Start::ask(&case.pair, case.without(&rest, case.other), FROM_MINORITY);
            match start.go_on() {
                Ok(()) => {
                    start.reads_all(&what);
                    served += 1;
                }
                Err(error) => {
                    let old = CommandError::OfBuffer(Box::new(CommandError::BufferIsOld));
                    assert_eq!(error, old, "{what}");
                    let mut after = start.power_goes();
                    let [old, new] =
                        [&rest, &after].map(|one| superblock_of(&one.images[case.stale]));
                    assert_eq!(old, new, "{what}: a refused start has written");
                    after.images[case.other] = rest.images[case.other].clone();
                    case.pair.has_all(&after, PLAIN, &what);
                    refused += 1;
                }
            }
            if over {
                break;
            }
        }
        assert!(
            refused > 0 && served > 0,
            "{:?}: {refused} {served}",
            case.loss
        );
    }
}

/// The member that has everything serves alone.
#[test]
fn a_member_that_was_flushed_serves_without_the_one_before() {
    for case in Case::all() {
        let (rest, over) = case.crashed_after(100_000);
        assert!(over, "{:?}", case.loss);
        let rest = case.without(&rest, case.stale);
        case.pair
            .has_all(&rest, FROM_MINORITY, &format!("{:?}", case.loss));
    }
}

/// A start that accepts the loss reports it, and serves what the log has.
#[test]
fn what_a_stale_member_lacks_is_given_up_only_on_request() {
    let accepting = StartMode {
        from_minority: true,
        ..ACCEPTING
    };
    for case in Case::all() {
        let (rest, _) = case.crashed_after(100_000);
        let rest = case.without(&rest, case.other);
        let mut start = Start::ask(&case.pair, rest, accepting);
        assert_eq!(
            (start.go_on(), start.forgone()),
            (Ok(()), 1),
            "{:?}",
            case.loss
        );
    }
}
