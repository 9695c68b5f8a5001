//! How long the arm moves, by distance: a measured table, or the usual square root that turns into a line.

use serde::{Deserialize, Serialize};

/// Time by distance in cylinders.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub enum SeekCurve {
    /// Measured points `(distance, ns)`, by distance; straight lines between them and beyond the last.
    Table(Vec<(u32, u64)>),
    /// `base + factor * sqrt(d)` below `knee`, from there a line of `slope` a cylinder that continues it (Ruemmler and
    /// Wilkes 1994, section 3).
    RootLine {
        base_ns: f64,
        root_ns: f64,
        knee: u32,
        slope_ns: f64,
    },
}

/// A curve made fast to ask: one entry a distance.
pub struct SeekTable {
    times: Vec<u32>,
}

impl SeekCurve {
    fn at(&self, distance: u32) -> f64 {
        match self {
            SeekCurve::Table(points) => between(points, distance),
            SeekCurve::RootLine {
                base_ns,
                root_ns,
                knee,
                slope_ns,
            } => {
                let bent = base_ns + root_ns * f64::from(distance.min(*knee)).sqrt();
                bent + slope_ns * f64::from(distance.saturating_sub(*knee))
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        match self {
            SeekCurve::Table(points) if points.is_empty() => {
                Err("a seek table needs a point".into())
            }
            SeekCurve::Table(points) if points.windows(2).any(|pair| pair[0].0 >= pair[1].0) => {
                Err("a seek table is sorted by distance".into())
            }
            _ => Ok(()),
        }
    }
}

fn between(points: &[(u32, u64)], distance: u32) -> f64 {
    let after = points.partition_point(|(at, _)| *at < distance);
    let (left, right) = match after {
        0 => return points[0].1 as f64,
        n if n == points.len() && n == 1 => return points[0].1 as f64,
        n if n == points.len() => (points[n - 2], points[n - 1]),
        n => (points[n - 1], points[n]),
    };
    let share = (f64::from(distance) - f64::from(left.0)) / f64::from(right.0 - left.0);
    left.1 as f64 + share * (right.1 as f64 - left.1 as f64)
}

impl SeekTable {
    /// `cylinders` bounds the distances that will be asked for.
    pub fn new(curve: &SeekCurve, cylinders: u32) -> Result<SeekTable, String> {
        curve.check()?;
        let mut times = vec![0];
        for distance in 1..cylinders.max(2) {
            let time = curve.at(distance).round();
            if !(0.0..4e9).contains(&time) {
                return Err(format!(
                    "a seek over {distance} cylinders would take {time} ns"
                ));
            }
            times.push(time as u32);
        }
        Ok(SeekTable { times })
    }

    /// Nothing for no distance.
    pub fn ns(&self, distance: u32) -> u64 {
        let last = self.times.len() - 1;
        u64::from(self.times[(distance as usize).min(last)])
    }
}
