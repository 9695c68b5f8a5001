//! The lines of `status` about spindles: how long each stood still, how often it started, and joules by a rating.

use crate::units::seconds;
use restripe_io::control::{EnergyView, MemberView, OverlayView, SpindleView, StatusView};
use std::fmt::Write;

/// Nothing where no rating is: of an array whose mirrors never sleep, unless one was given.
pub(crate) fn text(view: &StatusView) -> String {
    let Some(energy) = &view.energy else {
        return String::new();
    };
    let members: Vec<&MemberView> = view.disks().collect();
    let spindles: Vec<&SpindleView> = members.iter().flat_map(|one| &one.spindle).collect();
    // Writing to a string cannot fail.
    let mut out = String::new();
    let _ = writeln!(out, "  {}", sum_line(energy));
    let overlay = view.surrogate.as_ref().and_then(|one| one.overlay.as_ref());
    if let Some(line) = overlay.and_then(|overlay| starts_line(overlay, &spindles)) {
        let _ = writeln!(out, "  {line}");
    }
    out.push_str("  number    active      idle   standby  changing  starts  a day    joules\n");
    for member in members {
        if let Some(spindle) = &member.spindle {
            let _ = writeln!(out, "  {:>6}  {}", member.member, spindle_line(spindle));
        }
    }
    out
}

/// `energy, estimated from wd1003fbyx (7.9 W active, ..., 88 J per start): 1234 J, 23.6 W on average, 4 drives`
fn sum_line(energy: &EnergyView) -> String {
    let EnergyView {
        rating,
        active_watts,
        idle_watts,
        standby_watts,
        start_joules,
        stop_joules,
        drives,
        joules,
        watts,
    } = energy;
    let stop = match *stop_joules > 0.0 {
        true => format!(", {stop_joules} J per stop"),
        false => String::new(),
    };
    let s = if *drives == 1 { "" } else { "s" };
    format!(
        "energy, estimated from {rating} ({active_watts} W active, {idle_watts} W idle, {standby_watts} W standby, {start_joules} J per start{stop}): {joules} J, {watts:.1} W on average, {drives} drive{s}"
    )
}

/// `starts: 3 by the member with the most, 3 per day; limit 27 per day, 24 left now`
fn starts_line(overlay: &OverlayView, spindles: &[&SpindleView]) -> Option<String> {
    let (most, left) = (overlay.starts_a_day_max?, overlay.starts_left?);
    let by_starts = spindles.iter().max_by_key(|one| one.starts)?;
    let (starts, a_day) = (by_starts.starts, by_starts.starts_a_day);
    Some(format!(
        "starts: {starts} by the member with the most, {a_day} per day; limit {most} per day, {left} left now"
    ))
}

fn spindle_line(spindle: &SpindleView) -> String {
    let turning = spindle.starting_ms + spindle.stopping_ms;
    let times = [
        spindle.active_ms,
        spindle.idle_ms,
        spindle.standby_ms,
        turning,
    ];
    let [active, idle, standby, changing] = times.map(|ms| seconds(ms / 1000));
    let joules = spindle.joules.map_or("-".into(), |one| one.to_string());
    let (starts, a_day) = (spindle.starts, spindle.starts_a_day);
    format!(
        "{active:>8}  {idle:>8}  {standby:>8}  {changing:>8}  {starts:>6}  {a_day:>5}  {joules:>8}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_io::control::SurrogateView;

    #[test]
    fn a_status_tells_joules_as_an_estimate_and_starts_beside_their_budget() {
        let spindle = SpindleView {
            active_ms: 1_000,
            idle_ms: 59_000,
            standby_ms: 7_140_000,
            starting_ms: 6_000,
            starts: 3,
            starts_a_day: 3.0,
            joules: Some(5_618),
            ..SpindleView::default()
        };
        let (mut view, mut member) = (StatusView::default(), MemberView::default());
        (member.member, member.spindle) = (1, Some(spindle));
        view.members.push(member);
        assert_eq!(text(&view), "");
        view.energy = Some(EnergyView {
            rating: "wd1003fbyx".into(),
            active_watts: 7.9,
            idle_watts: 5.9,
            standby_watts: 0.7,
            start_joules: 88.0,
            drives: 1,
            joules: 5_618,
            watts: 0.78,
            ..EnergyView::default()
        });
        let (mut surrogate, mut overlay) = (SurrogateView::default(), OverlayView::default());
        (overlay.starts_a_day_max, overlay.starts_left) = (Some(27), Some(24));
        surrogate.overlay = Some(overlay);
        view.surrogate = Some(Box::new(surrogate));
        let wanted = "  energy, estimated from wd1003fbyx (7.9 W active, 5.9 W idle, 0.7 W standby, 88 J per start): 5618 J, 0.8 W on average, 1 drive
  starts: 3 by the member with the most, 3 per day; limit 27 per day, 24 left now
  number    active      idle   standby  changing  starts  a day    joules
       1        1s       59s    1h 59m        6s       3      3      5618
";
        assert_eq!(text(&view), wanted);
    }
}
