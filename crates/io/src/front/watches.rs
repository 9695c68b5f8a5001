//! Descriptors of a connection that are polled until they can be read.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    New,
    Polled,
    /// Given up while a poll is in flight, which is to be cancelled.
    Unwanted,
    Cancelled,
}

struct Watch {
    number: u16,
    /// Open for as long as the poll is in flight.
    fd: Arc<OwnedFd>,
    stage: Stage,
}

/// What is to be done about one watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Watching {
    Begin(u16, RawFd),
    End(u16),
}

/// The watches of one connection.
#[derive(Default)]
pub(crate) struct Watches {
    list: Vec<Watch>,
    last: u16,
    /// Something of the list is to be done.
    due: bool,
}

impl Watches {
    /// A new watch, with a number that no poll in flight has.
    pub(crate) fn add(&mut self, fd: &Arc<OwnedFd>) -> u16 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.list.iter().all(|watch| watch.number != self.last) {
                break;
            }
        }
        self.list.push(Watch {
            number: self.last,
            fd: Arc::clone(fd),
            stage: Stage::New,
        });
        self.due = true;
        self.last
    }

    pub(crate) fn give_up(&mut self, number: u16) {
        self.list
            .retain(|watch| watch.number != number || watch.stage != Stage::New);
        let mut watches = self.list.iter_mut();
        if let Some(watch) = watches.find(|watch| watch.number == number)
            && watch.stage == Stage::Polled
        {
            watch.stage = Stage::Unwanted;
            self.due = true;
        }
    }

    /// The next thing to do. `dead`: nothing is watched any more.
    pub(crate) fn next(&mut self, dead: bool) -> Option<Watching> {
        if dead {
            self.list.retain(|watch| watch.stage != Stage::New);
        } else if !self.due {
            return None;
        }
        for watch in &mut self.list {
            match watch.stage {
                Stage::New => {
                    watch.stage = Stage::Polled;
                    return Some(Watching::Begin(watch.number, watch.fd.as_raw_fd()));
                }
                Stage::Polled if !dead => {}
                Stage::Polled | Stage::Unwanted => {
                    watch.stage = Stage::Cancelled;
                    return Some(Watching::End(watch.number));
                }
                Stage::Cancelled => {}
            }
        }
        self.due = false;
        None
    }

    /// A poll is back. Whether its watch is still wanted.
    pub(crate) fn over(&mut self, number: u16) -> bool {
        let at = self.list.iter().position(|watch| watch.number == number);
        at.is_some_and(|at| self.list.swap_remove(at).stage == Stage::Polled)
    }

    pub(crate) fn any_in_flight(&self) -> bool {
        !self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Arc<OwnedFd> {
        let (ours, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
        Arc::new(ours.into())
    }

    #[test]
    fn a_watch_is_polled_once_and_given_back() {
        let (mut watches, fd) = (Watches::default(), descriptor());
        let first = watches.add(&fd);
        assert_eq!(
            watches.next(false),
            Some(Watching::Begin(first, fd.as_raw_fd()))
        );
        assert_eq!(watches.next(false), None);
        assert!(watches.over(first) && !watches.any_in_flight());
        assert!(!watches.over(first), "it was given back");
    }

    #[test]
    fn an_unwanted_watch_is_cancelled_and_keeps_its_descriptor() {
        let (mut watches, fd) = (Watches::default(), descriptor());
        let early = watches.add(&fd);
        watches.give_up(early);
        assert!(watches.next(false).is_none() && !watches.any_in_flight());
        let late = watches.add(&fd);
        watches.next(false);
        watches.give_up(late);
        assert_eq!(watches.next(false), Some(Watching::End(late)));
        assert_eq!(watches.next(false), None);
        assert_eq!(Arc::strong_count(&fd), 2, "the kernel still polls it");
        assert!(!watches.over(late));
        assert_eq!(Arc::strong_count(&fd), 1);
    }

    #[test]
    fn the_end_of_a_connection_ends_all_watches() {
        let (mut watches, fd) = (Watches::default(), descriptor());
        let polled = watches.add(&fd);
        watches.next(false);
        watches.add(&fd);
        assert_eq!(watches.next(true), Some(Watching::End(polled)));
        assert_eq!(watches.next(true), None);
        assert!(watches.any_in_flight(), "the poll has yet to come back");
        assert!(!watches.over(polled) && !watches.any_in_flight());
    }
}
