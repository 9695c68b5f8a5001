//! The power of a drive, state by state, and its energy ledger, in whole nanojoules.
//!
//! | state | event | next |
//! |---|---|---|
//! | idle | a command | active |
//! | active | its completion | idle |
//! | idle | [`Power::spin_down`], or the timer set at construction | spinning down, then standby |
//! | standby, spinning down | a command | spinning up (after the spin-down has ended), then active |
//!
//! The ledger is updated lazily: arithmetic replaces all steps between commands.

use restripe_array::energy::{Rating, energy_nj, nanojoules};

/// Watts in milliwatts, energies in millijoules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerModel {
    pub active_mw: u32,
    /// While the arm moves.
    pub seek_mw: u32,
    pub idle_mw: u32,
    pub standby_mw: u32,
    pub spin_up_ns: u64,
    pub spin_up_mj: u64,
    pub spin_down_ns: u64,
    pub spin_down_mj: u64,
    /// Spins down after so long without a command.
    pub timer_ns: Option<u64>,
}

/// Energies in nanojoules, times in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ledger {
    pub active_nj: u128,
    pub seek_nj: u128,
    pub idle_nj: u128,
    pub standby_nj: u128,
    pub spin_nj: u128,
    pub active_ns: u64,
    pub seek_ns: u64,
    pub idle_ns: u64,
    pub standby_ns: u64,
    pub spin_ns: u64,
    pub spin_ups: u64,
    pub spin_downs: u64,
}

impl Ledger {
    pub fn total_nj(&self) -> u128 {
        self.active_nj + self.seek_nj + self.idle_nj + self.standby_nj + self.spin_nj
    }

    pub fn total_ns(&self) -> u64 {
        self.active_ns + self.seek_ns + self.idle_ns + self.standby_ns + self.spin_ns
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Spinning,
    /// Standby from the given time on; the spindle is slowing down before.
    Stopped {
        from: u64,
    },
}

/// What was drawn in the course of time, step by step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Course {
    from: u64,
    step_ns: u64,
    drawn_nj: Vec<u128>,
}

impl Course {
    /// Of the time from here on.
    ///
    /// # Panics
    /// If steps take no time.
    pub fn new(from: u64, step_ns: u64) -> Course {
        assert!(step_ns > 0, "a step takes time");
        Course {
            from,
            step_ns,
            drawn_nj: Vec::new(),
        }
    }

    /// What was drawn in each step that has begun, in nanojoules.
    pub fn drawn_nj(&self) -> &[u128] {
        &self.drawn_nj
    }

    /// So much was drawn evenly from here to there.
    fn add(&mut self, from: u64, to: u64, drawn: u128) {
        let (ns, mut at) = (to.saturating_sub(from), from.max(self.from));
        if ns == 0 {
            if drawn > 0 && from >= self.from {
                *self.step((from - self.from) / self.step_ns) += drawn;
            }
            return;
        }
        let until = |time: u64| drawn * u128::from(time - from) / u128::from(ns);
        while at < to {
            let step = (at - self.from) / self.step_ns;
            let next = to.min(self.from + (step + 1) * self.step_ns);
            *self.step(step) += until(next) - until(at);
            at = next;
        }
    }

    fn step(&mut self, step: u64) -> &mut u128 {
        let step = step as usize;
        if self.drawn_nj.len() <= step {
            self.drawn_nj.resize(step + 1, 0);
        }
        &mut self.drawn_nj[step]
    }
}

pub struct Power {
    model: PowerModel,
    state: State,
    /// The ledger is complete up to here.
    at: u64,
    ledger: Ledger,
    course: Option<Course>,
}

impl PowerModel {
    /// What is known of such a drive without its model: one figure for all that it does while it is active.
    pub fn rating(&self) -> Rating {
        Rating {
            active_mw: self.active_mw,
            idle_mw: self.idle_mw,
            standby_mw: self.standby_mw,
            start_mj: self.spin_up_mj,
            stop_mj: self.spin_down_mj,
        }
    }
}

impl Power {
    pub fn new(model: PowerModel) -> Power {
        Power {
            model,
            state: State::Spinning,
            at: 0,
            ledger: Ledger::default(),
            course: None,
        }
    }

    /// Keeps what is drawn from now on step by step, too.
    pub fn chart(&mut self, now: u64, step_ns: u64) {
        self.rest(now);
        self.course = Some(Course::new(now, step_ns));
    }

    /// The same as the ledger, step by step, if it is kept.
    pub fn course(&mut self, now: u64) -> Option<&Course> {
        self.rest(now);
        self.course.as_ref()
    }

    pub fn model(&self) -> PowerModel {
        self.model
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The ledger, complete up to `now`.
    pub fn ledger(&mut self, now: u64) -> Ledger {
        self.rest(now);
        self.ledger
    }

    /// A command arrives: when the drive is ready for it.
    pub fn wake(&mut self, now: u64) -> u64 {
        self.rest(now);
        let State::Stopped { from } = self.state else {
            return now;
        };
        let begin = now.max(from);
        self.rest(begin);
        self.ledger.spin_ups += 1;
        self.state = State::Spinning;
        self.spin(begin, self.model.spin_up_ns, self.model.spin_up_mj);
        self.at
    }

    /// A command was served from `start` to `end`, `seek_ns` of which the arm moved.
    pub fn worked(&mut self, start: u64, end: u64, seek_ns: u64) {
        self.rest(start);
        let from = self.at.max(start);
        let busy = end.saturating_sub(from);
        let seek = seek_ns.min(busy);
        let seek_nj = energy_nj(self.model.seek_mw, seek);
        let active_nj = energy_nj(self.model.active_mw, busy - seek);
        self.ledger.seek_ns += seek;
        self.ledger.seek_nj += seek_nj;
        self.ledger.active_ns += busy - seek;
        self.ledger.active_nj += active_nj;
        self.went_by(from, end, seek_nj + active_nj);
    }

    /// Stops the spindle now. Nothing happens if it stands.
    pub fn spin_down(&mut self, now: u64) {
        self.rest(now);
        if self.state != State::Spinning {
            return;
        }
        let begin = self.at.max(now);
        self.ledger.spin_downs += 1;
        self.spin(begin, self.model.spin_down_ns, self.model.spin_down_mj);
        self.state = State::Stopped { from: self.at };
    }

    /// Accounts for the time without commands up to `now`.
    fn rest(&mut self, now: u64) {
        if self.state == State::Spinning
            && let Some(timer) = self.model.timer_ns
            && now.saturating_sub(self.at) > timer
        {
            let due = self.at + timer;
            self.idle(due);
            self.spin_down_at(due);
        }
        match self.state {
            State::Spinning => self.idle(now),
            State::Stopped { .. } => self.stand(now),
        }
    }

    fn spin_down_at(&mut self, due: u64) {
        debug_assert!(self.at == due, "all time before is accounted for");
        self.spin_down(due);
    }

    fn idle(&mut self, now: u64) {
        let ns = now.saturating_sub(self.at);
        let drawn = energy_nj(self.model.idle_mw, ns);
        self.ledger.idle_ns += ns;
        self.ledger.idle_nj += drawn;
        self.went_by(self.at, now, drawn);
    }

    fn stand(&mut self, now: u64) {
        let ns = now.saturating_sub(self.at);
        let drawn = energy_nj(self.model.standby_mw, ns);
        self.ledger.standby_ns += ns;
        self.ledger.standby_nj += drawn;
        self.went_by(self.at, now, drawn);
    }

    /// The spindle starts or stops.
    fn spin(&mut self, begin: u64, ns: u64, mj: u64) {
        let drawn = nanojoules(mj);
        self.ledger.spin_ns += ns;
        self.ledger.spin_nj += drawn;
        self.went_by(begin, begin + ns, drawn);
    }

    fn went_by(&mut self, from: u64, to: u64, drawn: u128) {
        if let Some(course) = &mut self.course {
            course.add(from, to, drawn);
        }
        self.at = self.at.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn model(timer_ns: Option<u64>) -> PowerModel {
        PowerModel {
            active_mw: 8_000,
            seek_mw: 9_000,
            idle_mw: 6_000,
            standby_mw: 1_000,
            spin_up_ns: 10 * SECOND,
            spin_up_mj: 160_000,
            spin_down_ns: 2 * SECOND,
            spin_down_mj: 4_000,
            timer_ns,
        }
    }

    #[test]
    fn every_nanosecond_is_in_one_state() {
        let mut power = Power::new(model(None));
        assert_eq!(power.wake(5 * SECOND), 5 * SECOND);
        power.worked(5 * SECOND, 7 * SECOND, SECOND);
        let ledger = power.ledger(10 * SECOND);
        assert_eq!(ledger.total_ns(), 10 * SECOND);
        let joules = 5 * 6 + 9 + 8 + 3 * 6;
        assert_eq!(ledger.total_nj(), joules * u128::from(SECOND));
    }

    #[test]
    fn a_timer_stops_the_spindle_and_a_command_starts_it() {
        let mut power = Power::new(model(Some(30 * SECOND)));
        let ready = power.wake(100 * SECOND);
        assert_eq!(ready, 110 * SECOND);
        power.worked(ready, ready + SECOND, 0);
        let ledger = power.ledger(ready + SECOND);
        assert_eq!(ledger.total_ns(), 111 * SECOND);
        assert_eq!((ledger.spin_ups, ledger.spin_downs), (1, 1));
        assert_eq!(ledger.standby_ns, 68 * SECOND);
        let joules = 30 * 6 + 4 + 68 + 160 + 8;
        assert_eq!(ledger.total_nj(), joules * u128::from(SECOND));
    }

    /// Whatever a drive does, and wherever it is cut into steps: their sum is what the ledger has.
    #[test]
    fn steps_add_up_to_the_ledger() {
        for step_ns in [SECOND / 3, SECOND, 7 * SECOND, 1000 * SECOND] {
            let mut power = Power::new(model(Some(30 * SECOND)));
            power.worked(0, SECOND, 0);
            power.chart(2 * SECOND, step_ns);
            let before = power.ledger(2 * SECOND).total_nj();
            let ready = power.wake(5 * SECOND);
            power.worked(ready, ready + 3 * SECOND, SECOND);
            let ready = power.wake(100 * SECOND);
            power.worked(ready, ready + SECOND / 7, 0);
            power.spin_down(120 * SECOND);
            let all = power.ledger(150 * SECOND).total_nj();
            let course = power.course(150 * SECOND).expect("kept").drawn_nj();
            assert_eq!(course.iter().sum::<u128>(), all - before);
            assert_eq!(course.len() as u64, (148 * SECOND).div_ceil(step_ns));
        }
    }

    #[test]
    fn a_step_has_what_was_drawn_in_it() {
        let mut power = Power::new(model(None));
        power.chart(0, 2 * SECOND);
        power.worked(SECOND, 3 * SECOND, 0);
        power.spin_down(4 * SECOND);
        let steps = [6 + 8, 8 + 6, 4, 2].map(|joules| joules * u128::from(SECOND));
        let course = power.course(8 * SECOND).expect("kept");
        assert_eq!(course.drawn_nj(), steps);
    }

    #[test]
    fn a_command_during_spin_down_waits_for_both() {
        let mut power = Power::new(model(None));
        power.spin_down(SECOND);
        assert_eq!(power.wake(2 * SECOND), 13 * SECOND);
        let ledger = power.ledger(13 * SECOND);
        assert_eq!((ledger.total_ns(), ledger.standby_ns), (13 * SECOND, 0));
    }
}
