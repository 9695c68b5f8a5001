//! `heat`: what users read, by zones, as the engine has learned it.

use crate::failure::{Failure, Outcome, failed};
use crate::print::terminal::{out, outln};
use crate::units::Exact;
use crate::verbs::status::everything;
use clap::Args;
use restripe_array::shown;
use restripe_io::control::{ClientError, HeatView, Reply, Request, ask};
use std::fmt::Write;

#[derive(Args, Debug)]
#[command(
    after_help = "A read is counted in every zone that it touches; counts are halved after each epoch (`serve --heat-zone, --heat-epoch`).\n\
    The members store the counts: at the end of an epoch with reads, and at a clean stop. A crash loses the reads of\n\
    its epoch. Arrays created by early versions have no space for the counts, which then start at zero."
)]
pub(crate) struct Heat {
    /// Name of the array
    pub name: String,
    /// Number of zones to show, hottest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Signs of the longest bar.
const BAR: f64 = 40.0;

pub(crate) fn run(verb: &Heat) -> Outcome {
    let view = match ask(&verb.name, &Request::Heat { most: verb.top }) {
        Ok(Reply::Heat(view)) => view,
        Ok(Reply::Refused(refusal)) => return Err(refusal.into()),
        Ok(_) => return Err(Failure::unexpected("heat")),
        Err(error @ ClientError::NotRunning { .. }) => {
            return Err(Failure::from(error).hint(served()?));
        }
        Err(error) => return Err(error.into()),
    };
    if verb.json {
        let json = serde_json::to_string_pretty(&view);
        outln!("{}", json.map_err(failed("the heat cannot be printed"))?);
    } else {
        out!("{}", text(&view));
    }
    Ok(())
}

/// Only a daemon tells heat: what members keep may be an epoch old.
fn served() -> Outcome<String> {
    let answering = everything()?.into_iter().flatten();
    let names: Vec<String> = answering.map(|view| view.name).collect();
    Ok(match names.is_empty() {
        true => "no array is served; start it with `restripe serve`".into(),
        false => format!("the served arrays are {}", names.join(", ")),
    })
}

fn text(view: &HeatView) -> String {
    let (name, zones, read) = (shown(&view.name), view.zones, view.zones_read);
    let size = Exact(view.zone_bytes);
    let mut out = format!("{name}: {zones} zones of {size}, {read} of them read\n");
    if read == 0 {
        return out;
    }
    let hot = view.hot_share * 100.0;
    let _ = writeln!(
        out,
        "{hot:.0}% of the reads are in the hottest fifth of all zones\n"
    );
    let _ = writeln!(out, "{:>10} {:>10} {:>7}", "offset", "reads", "share");
    let most = view.hottest.first().map_or(1.0, |zone| zone.reads);
    for zone in &view.hottest {
        let bar = "#".repeat((zone.reads / most * BAR).ceil() as usize);
        let (offset, reads) = (Exact(zone.offset_bytes).to_string(), zone.reads);
        let share = reads / view.reads * 100.0;
        let _ = writeln!(out, "{offset:>10} {reads:>10.1} {share:>6.1}% {bar}");
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
            zones_read: 3,
            reads: 40.0,
            hot_share: 1.0,
            hottest: vec![zone(24 << 20, 32.0), zone(1152 << 10, 7.0), zone(0, 1.0)],
            ..HeatView::default()
        };
        let shown = "\
tank: 20 zones of 12M, 3 of them read
100% of the reads are in the hottest fifth of all zones

    offset      reads   share
       24M       32.0   80.0% ########################################
     1152K        7.0   17.5% #########
         0        1.0    2.5% ##
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
