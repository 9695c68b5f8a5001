//! A Markov chain that ends in data loss, and what is expected until then.
//!
//! States are eliminated one by one, the last first, and each takes its share of time with it (Grassmann,
//! Taksar and Heyman, 1985, "Regenerative analysis and steady state distributions for Markov chains"). For a
//! state i with rates r_ij, a rate to loss l_i and a reward w_i a unit of time, the expectation m obeys
//! `sum_j r_ij (m_i - m_j) + l_i m_i = w_i`; putting in the equation of a state k leaves the same form with
//! `r_ij += r_ik r_kj / t_k`, `l_i += r_ik l_k / t_k`, `w_i += r_ik w_k / t_k`, `t_k = sum_j r_kj + l_k`.
//! Nothing is subtracted, so floats keep their relative precision however far apart the rates lie; rationals
//! are exact.

use super::quantity::{Exact, Number};
use std::collections::BTreeMap;
use std::fmt;

/// Where a transition leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    State(usize),
    Loss,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A disk failed.
    Failure,
    /// A spare arrived; repair may begin.
    Spare,
    /// A repair came to its end, well or not.
    Repair,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Transition {
    pub from: usize,
    pub to: Target,
    /// An hour.
    pub rate: Exact,
    pub cause: Cause,
}

/// States, of which 0 is a new array, and what leads from each.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Chain {
    names: Vec<String>,
    transitions: Vec<Transition>,
}

/// Expectations from a new array until its data is lost.
#[derive(Clone, PartialEq, Debug)]
pub struct Expected<N> {
    /// Mean time to data loss.
    pub hours: N,
    /// The one that loses the data included.
    pub failures: N,
    pub repairs: N,
}

/// The chain can stay without loss forever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endless;

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this array can last forever: no mean time to its loss exists")
    }
}

const REWARDS: usize = 3;

/// A state during the elimination.
struct Row<N> {
    rates: BTreeMap<usize, N>,
    loss: N,
    rewards: [N; REWARDS],
}

impl Chain {
    pub fn add_state(&mut self, name: String) -> usize {
        self.names.push(name);
        self.names.len() - 1
    }

    /// A rate of zero adds nothing.
    pub fn add_transition(&mut self, from: usize, to: Target, rate: Exact, cause: Cause) {
        let known = |state| state < self.names.len();
        assert!(known(from), "a transition leaves a state");
        if let Target::State(to) = to {
            assert!(known(to) && to != from, "and goes to another");
        }
        if rate != Exact::default() {
            self.transitions.push(Transition {
                from,
                to,
                rate,
                cause,
            });
        }
    }

    pub fn states(&self) -> usize {
        self.names.len()
    }

    pub fn name(&self, state: usize) -> &str {
        &self.names[state]
    }

    pub fn transitions(&self) -> &[Transition] {
        &self.transitions
    }

    /// Solved in rationals this is exact; in floats each figure is right to about 1e-13 of itself.
    pub fn expect<N: Number>(&self) -> Result<Expected<N>, Endless> {
        let mut rows = self.rows::<N>();
        while rows.len() > 1 {
            let last = rows.pop().expect("more than one");
            eliminate(&mut rows, &last)?;
        }
        let start = rows.pop().ok_or(Endless)?;
        if start.loss.is_zero() {
            return Err(Endless);
        }
        let [hours, failures, repairs] = start.rewards.map(|reward| reward / start.loss.clone());
        Ok(Expected {
            hours,
            failures,
            repairs,
        })
    }

    fn rows<N: Number>(&self) -> Vec<Row<N>> {
        let one = N::of(&Exact::from_integer(1.into()));
        let row = |_| Row {
            rates: BTreeMap::new(),
            loss: N::zero(),
            rewards: [one.clone(), N::zero(), N::zero()],
        };
        let mut rows: Vec<Row<N>> = (0..self.states()).map(row).collect();
        for transition in &self.transitions {
            let row = &mut rows[transition.from];
            let rate = N::of(&transition.rate);
            match transition.to {
                Target::State(to) => add_rate(&mut row.rates, to, rate.clone()),
                Target::Loss => row.loss = row.loss.clone() + rate.clone(),
            }
            let reward = match transition.cause {
                Cause::Failure => 1,
                Cause::Repair => 2,
                Cause::Spare => continue,
            };
            row.rewards[reward] = row.rewards[reward].clone() + rate;
        }
        rows
    }
}

fn add_rate<N: Number>(rates: &mut BTreeMap<usize, N>, to: usize, rate: N) {
    let old = rates.remove(&to).unwrap_or_else(N::zero);
    rates.insert(to, old + rate);
}

/// Gives what the state after all of `rows` was to those that lead into it.
fn eliminate<N: Number>(rows: &mut [Row<N>], gone: &Row<N>) -> Result<(), Endless> {
    let index = rows.len();
    let rates = gone.rates.values().cloned();
    let total = rates.fold(gone.loss.clone(), |sum, rate| sum + rate);
    for (from, row) in rows.iter_mut().enumerate() {
        let Some(into) = row.rates.remove(&index) else {
            continue;
        };
        if total.is_zero() {
            return Err(Endless);
        }
        let share = into / total.clone();
        row.loss = row.loss.clone() + share.clone() * gone.loss.clone();
        for (sum, reward) in row.rewards.iter_mut().zip(&gone.rewards) {
            *sum = sum.clone() + share.clone() * reward.clone();
        }
        for (to, rate) in gone.rates.iter().filter(|(to, _)| **to != from) {
            add_rate(&mut row.rates, *to, share.clone() * rate.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::quantity::whole;
    use super::*;

    /// States by number, and transitions of whole rates.
    pub fn chain(states: usize, edges: &[(usize, Target, usize)]) -> Chain {
        let mut chain = Chain::default();
        for state in 0..states {
            chain.add_state(state.to_string());
        }
        for &(from, to, rate) in edges {
            chain.add_transition(from, to, whole(rate), Cause::Failure);
        }
        chain
    }

    #[test]
    fn a_birth_and_death_chain_has_its_closed_form() {
        use Target::{Loss, State};
        let edges = [(0, State(1), 8), (1, State(0), 100), (1, Loss, 7)];
        let expected = chain(2, &edges).expect::<Exact>().expect("it ends");
        // (a + b + mu) / (a b)
        assert_eq!(expected.hours, Exact::new(115.into(), 56.into()));
    }

    #[test]
    fn loops_among_states_are_unwound() {
        use Target::{Loss, State};
        // From 0 to 1 or 2 with equal odds, from 1 always to 2, from 2 to 0 or loss with equal odds; rates 1 each.
        let edges = [
            (0, State(1)),
            (0, State(2)),
            (1, State(2)),
            (2, State(0)),
            (2, Loss),
        ];
        let edges = edges.map(|(from, to)| (from, to, 1));
        let expected = chain(3, &edges).expect::<Exact>().expect("it ends");
        // A round takes 1/2 + 1/2 + 1/2, and two rounds are expected.
        assert_eq!(expected.hours, whole(3));
        // Transitions: 1 + 1/2 + 1 a round.
        assert_eq!(expected.failures, whole(5));
    }

    #[test]
    fn an_endless_chain_is_told() {
        use Target::State;
        let edges = [(0, State(1), 1), (1, State(0), 1)];
        for (states, edges) in [(2, &edges[..]), (2, &edges[..1]), (0, &[])] {
            assert_eq!(
                chain(states, edges).expect::<f64>(),
                Err(Endless),
                "{edges:?}"
            );
        }
    }
}
