//! Loss within a time: its probability, and its expected number if a new array follows each loss.
//!
//! The transition matrix of a short step comes from uniformisation. Squaring it doubles the step, and is
//! repeated until the step is the mission. All terms are positive, so no figure suffers from cancellation,
//! however small it is. Rounding errors grow with each squaring. Rows are scaled back to the correct sum,
//! which keeps the error near that of a single step.

use super::chain::{Chain, Target};
use super::quantity::to_float;

/// Matrices are dense: time grows with the cube of the states.
pub const STATES_MAX: usize = 400;

/// Terms of the exponential series for a step in which at most one transition is expected: the rest is below 1e-19.
const TERMS: usize = 22;

/// Most doublings of a step; beyond lies no mission that a float can tell from forever.
const DOUBLINGS_MAX: u32 = 200;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mission {
    /// That data is lost within the mission.
    pub probability: f64,
    /// Losses expected within the mission if an array that lost its data is replaced by a new one at once.
    pub losses: f64,
}

/// None where the chain has too many states.
pub fn mission(chain: &Chain, hours: f64) -> Option<Mission> {
    if chain.states() > STATES_MAX || chain.states() == 0 {
        return None;
    }
    let probability = Step::after(chain, hours, AfterLoss::Stays).lost[0].min(1.0);
    let losses = Step::after(chain, hours, AfterLoss::StartsAnew).lost[0];
    Some(Mission {
        probability,
        losses,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterLoss {
    Stays,
    StartsAnew,
}

/// What a span of time does, by the state at its start.
struct Step {
    /// The probability of each state at the end, row by row.
    moves: Vec<Vec<f64>>,
    /// Losses expected meanwhile.
    lost: Vec<f64>,
    after_loss: AfterLoss,
}

impl Step {
    fn after(chain: &Chain, hours: f64, after_loss: AfterLoss) -> Step {
        let (generator, loss) = generator(chain, after_loss);
        let rows = generator.iter().zip(&loss);
        let rates = rows.map(|(row, loss)| row.iter().sum::<f64>() + loss);
        let fastest = rates.fold(f64::MIN_POSITIVE, f64::max);
        let mut doublings = 0;
        let mut span = hours;
        while span * fastest > 1.0 && doublings < DOUBLINGS_MAX {
            span /= 2.0;
            doublings += 1;
        }
        let mut step = short_step(generator, loss, fastest, span, after_loss);
        for _ in 0..doublings {
            step = step.doubled();
        }
        step
    }

    fn doubled(&self) -> Step {
        let rows = || self.moves.iter();
        let lost = rows().zip(&self.lost);
        let lost = lost.map(|(row, first)| first + dot(row, &self.lost));
        let mut step = Step {
            moves: rows().map(|row| combine(row, &self.moves)).collect(),
            lost: lost.collect(),
            after_loss: self.after_loss,
        };
        step.scale();
        step
    }

    /// Every row ends somewhere: in a state, or in loss where that is for good.
    fn scale(&mut self) {
        for (row, lost) in self.moves.iter_mut().zip(&mut self.lost) {
            let sum: f64 = row.iter().sum();
            let whole = match self.after_loss {
                AfterLoss::Stays => {
                    *lost = lost.min(1.0);
                    1.0 - *lost
                }
                AfterLoss::StartsAnew => 1.0,
            };
            if sum > 0.0 {
                row.iter_mut().for_each(|entry| *entry *= whole / sum);
            }
        }
    }
}

/// Rates between states, without those from a state to itself, and rates to loss.
fn generator(chain: &Chain, after_loss: AfterLoss) -> (Vec<Vec<f64>>, Vec<f64>) {
    let states = chain.states();
    let mut rates = vec![vec![0.0; states]; states];
    let mut loss = vec![0.0; states];
    for transition in chain.transitions() {
        let rate = to_float(&transition.rate);
        match transition.to {
            Target::State(to) => rates[transition.from][to] += rate,
            Target::Loss => loss[transition.from] += rate,
        }
    }
    if after_loss == AfterLoss::StartsAnew {
        for (row, loss) in rates.iter_mut().zip(&loss) {
            row[0] += loss;
        }
    }
    (rates, loss)
}

/// Uniformisation: jumps arrive at the rate `fastest`, and each moves by the jump matrix, perhaps nowhere.
fn short_step(
    mut jump: Vec<Vec<f64>>,
    loss: Vec<f64>,
    fastest: f64,
    span: f64,
    after_loss: AfterLoss,
) -> Step {
    let states = jump.len();
    for (state, row) in jump.iter_mut().enumerate() {
        row.iter_mut().for_each(|rate| *rate /= fastest);
        let leaves: f64 = row.iter().sum::<f64>()
            + match after_loss {
                AfterLoss::Stays => loss[state] / fastest,
                AfterLoss::StartsAnew => 0.0,
            };
        row[state] += (1.0 - leaves).max(0.0);
    }
    let weights = poisson(fastest * span);
    let mut power: Vec<Vec<f64>> = (0..states).map(|row| unit_row(row, states)).collect();
    let mut moves = vec![vec![0.0; states]; states];
    let mut lost = vec![0.0; states];
    for (number, weight) in weights.iter().enumerate() {
        let more: f64 = weights[number + 1..].iter().rev().sum();
        for state in 0..states {
            lost[state] += more * dot(&power[state], &loss) / fastest;
            for (sum, entry) in moves[state].iter_mut().zip(&power[state]) {
                *sum += weight * entry;
            }
        }
        power = power.iter().map(|row| combine(row, &jump)).collect();
    }
    let mut step = Step {
        moves,
        lost,
        after_loss,
    };
    step.scale();
    step
}

/// Probabilities of 0, 1, 2 and more events where `mean`, at most 1, are expected.
fn poisson(mean: f64) -> Vec<f64> {
    let mut weights = vec![1.0];
    for number in 1..TERMS {
        let last = weights[number - 1];
        weights.push(last * mean / number as f64);
    }
    let sum: f64 = weights.iter().rev().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

fn unit_row(place: usize, length: usize) -> Vec<f64> {
    let mut row = vec![0.0; length];
    row[place] = 1.0;
    row
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// A row times a matrix.
fn combine(row: &[f64], matrix: &[Vec<f64>]) -> Vec<f64> {
    let mut sum = vec![0.0; row.len()];
    for (weight, line) in row.iter().zip(matrix).filter(|(weight, _)| **weight != 0.0) {
        for (total, entry) in sum.iter_mut().zip(line) {
            *total += weight * entry;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::chain;
    use super::*;

    /// One disk of rate a fails; from the second state it is repaired at rate m, or lost at rate b.
    fn pair(a: usize, m: usize, b: usize) -> Chain {
        use Target::{Loss, State};
        chain(2, &[(0, State(1), a), (1, State(0), m), (1, Loss, b)])
    }

    /// The textbook's survival of two states: (s1 e^(s2 t) - s2 e^(s1 t)) / (s1 - s2).
    fn survival(a: f64, m: f64, b: f64, t: f64) -> f64 {
        let sum = a + m + b;
        let root = (sum * sum - 4.0 * a * b).sqrt();
        let near = -2.0 * a * b / (sum + root);
        let far = -(sum + root) / 2.0;
        (far * (near * t).exp() - near * (far * t).exp()) / (far - near)
    }

    #[test]
    fn two_states_have_their_closed_form() {
        for (a, m, b) in [(2, 1000, 1), (5, 1, 4), (8, 100_000, 7)] {
            for hours in [0.001, 0.5, 3.0, 100.0, 10_000.0] {
                let found = mission(&pair(a, m, b), hours).expect("two states");
                let right = 1.0 - survival(a as f64, m as f64, b as f64, hours);
                let error = (found.probability - right).abs();
                let small = error < 1e-11 + 1e-9 * right;
                assert!(small, "{a} {m} {b} {hours}: {found:?} {right}");
            }
        }
    }

    #[test]
    fn small_probabilities_keep_their_digits() {
        // a b t^2 / 2 for a t so small that nothing else counts.
        let found = mission(&pair(1, 1, 1), 1e-9).expect("two states");
        let near = (found.probability / 0.5e-18 - 1.0).abs() < 1e-8;
        assert!(near, "{found:?}");
    }

    #[test]
    fn losses_over_a_long_time_come_at_the_rate_of_the_mean() {
        let chain = pair(2, 50, 3);
        let mean = chain.expect::<f64>().expect("it ends").hours;
        let hours = mean * 1e6;
        let found = mission(&chain, hours).expect("two states");
        assert!((found.losses / 1e6 - 1.0).abs() < 1e-5, "{found:?}");
        assert_eq!(found.probability, 1.0);
    }
}
