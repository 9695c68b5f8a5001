//! `heat`: what users read, by zones, as the engine has learned it.

use crate::command::Heat;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::units::Size;
use restripe_io::control::{HeatView, Reply, Request};
use std::fmt::Write;

/// Signs of the longest bar.
const BAR: f64 = 40.0;

pub fn run(verb: &Heat) -> Outcome {
    let session = Session::open_to_look(&verb.name, &[])?;
    let Reply::Heat(view) = session.ask(&Request::Heat { most: verb.top })? else {
        return Err(Failure::new(
            "the daemon answered `heat` with something else",
        ));
    };
    if verb.json {
        let json = serde_json::to_string_pretty(&view)
            .map_err(|error| Failure::new(format!("the heat cannot be shown: {error}")))?;
        println!("{json}");
    } else {
        print!("{}", text(&view));
    }
    Ok(())
}

fn text(view: &HeatView) -> String {
    let mut out = format!(
        "{}: {} zones of {}, {} of them read\n",
        view.name,
        view.zones,
        Size(view.zone_bytes),
        view.zones_read
    );
    if view.zones_read == 0 {
        return out;
    }
    let _ = writeln!(
        out,
        "{:.0}% of the reads are of the hottest fifth of all zones\n\n{:>10} {:>10} {:>7}",
        view.hot_share * 100.0,
        "offset",
        "reads",
        "share"
    );
    let most = view.hottest.first().map_or(1.0, |zone| zone.reads);
    for zone in &view.hottest {
        let bar = "#".repeat((zone.reads / most * BAR).ceil() as usize);
        let _ = writeln!(
            out,
            "{:>10} {:>10.1} {:>6.1}% {bar}",
            Size(zone.offset_bytes).to_string(),
            zone.reads,
            zone.reads / view.reads * 100.0
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_io::control::ZoneView;

    #[test]
    fn the_hottest_zones_stand_in_a_table() {
        let zone = |offset_bytes, reads| ZoneView {
            offset_bytes,
            reads,
        };
        let view = HeatView {
            name: "tank".into(),
            zone_bytes: 12 << 20,
            zones: 20,
            zones_read: 2,
            reads: 40.0,
            hot_share: 1.0,
            hottest: vec![zone(24 << 20, 32.0), zone(0, 8.0)],
            ..HeatView::default()
        };
        let shown = "\
tank: 20 zones of 12M, 2 of them read
100% of the reads are of the hottest fifth of all zones

    offset      reads   share
       24M       32.0   80.0% ########################################
         0        8.0   20.0% ##########
";
        assert_eq!(text(&view), shown);
    }

    #[test]
    fn an_array_that_nobody_reads_has_no_table() {
        let view = HeatView {
            name: "tank".into(),
            zone_bytes: 12 << 20,
            zones: 20,
            ..HeatView::default()
        };
        assert_eq!(text(&view), "tank: 20 zones of 12M, 0 of them read\n");
    }
}
