//! Curves of rebuild speed against users' latency: the table, the data and the picture, and whose curve lies above.

use super::house::Outcome;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The least speed asked for, KiB a second.
    pub least_kib: u64,
    /// Of the rebuild, MiB a second.
    pub rate: f64,
    pub reads: f64,
    pub writes: f64,
    pub read_p99_us: f64,
    /// Zero without writes.
    pub write_p99_us: f64,
}

impl Point {
    /// From fio's line of results, third version.
    pub fn new(least_kib: u64, rate: f64, terse: &str) -> Option<Point> {
        let fields: Vec<&str> = terse.split(';').collect();
        let iops = |index: usize| fields.get(index).and_then(|field| field.parse().ok());
        let mut p99 = fields
            .iter()
            .filter_map(|field| field.strip_prefix("99.000000%=")?.parse().ok());
        Some(Point {
            least_kib,
            rate,
            reads: iops(7)?,
            writes: iops(48).unwrap_or(0.0),
            read_p99_us: p99.next()?,
            write_p99_us: p99.next().unwrap_or(0.0),
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reads_ms, writes_ms) = (self.read_p99_us / 1000.0, self.write_p99_us / 1000.0);
        write!(f, "rebuilds {:.1} MiB/s, ", self.rate)?;
        write!(f, "{:.0} reads/s p99 {reads_ms:.0} ms, ", self.reads)?;
        write!(f, "{:.0} writes/s p99 {writes_ms:.0} ms", self.writes)
    }
}

/// The points of one array at several settings.
pub struct Series {
    load: &'static str,
    hole: String,
    who: String,
    pub points: Vec<Point>,
}

impl Series {
    pub fn new(load: &'static str, hole: &str, who: &str) -> Series {
        Series {
            load,
            hole: hole.into(),
            who: who.into(),
            points: Vec::new(),
        }
    }

    fn ours(&self) -> bool {
        self.who == "restripe"
    }

    fn rivals<'a>(&self, all: &'a [Series]) -> impl Iterator<Item = &'a Series> {
        let (load, hole) = (self.load, self.hole.clone());
        all.iter()
            .filter(move |other| other.load == load && other.hole == hole && !other.ours())
    }

    /// The speed that this curve has at a p99: of points no worse than that the best, and between it and the next point
    /// a straight line. None where even the gentlest setting has a worse p99.
    fn rate_at(&self, p99_us: f64) -> Option<f64> {
        let no_worse = self.points.iter().filter(|p| p.read_p99_us <= p99_us);
        let best = no_worse.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        let slope = |p: &&Point| (p.rate - best.rate) / (p.read_p99_us - best.read_p99_us);
        let faster = self
            .points
            .iter()
            .filter(|p| p.read_p99_us > p99_us && p.rate > best.rate);
        let gain = faster
            .max_by(|a, b| slope(a).total_cmp(&slope(b)))
            .map_or(0.0, |next| slope(&next) * (p99_us - best.read_p99_us));
        Some(best.rate + gain)
    }
}

/// Prints everything, and leaves the data and the picture in a folder.
pub fn tell(all: &[Series], folder: &Path) -> Outcome<()> {
    let (mut csv, mut table) = (
        String::from(
            "load,write_hole,who,least_kib,rate_mib,reads,writes,read_p99_us,write_p99_us\n",
        ),
        String::new(),
    );
    for series in all {
        let (load, hole, who) = (series.load, &series.hole, &series.who);
        let _ = writeln!(table, "\n{load}, {hole}: {who}");
        for p in &series.points {
            let _ = writeln!(table, "  from {:>7} KiB/s: {p}", p.least_kib);
            let _ = writeln!(
                csv,
                "{load},{hole},\"{who}\",{},{:.2},{},{},{},{}",
                p.least_kib, p.rate, p.reads, p.writes, p.read_p99_us, p.write_p99_us
            );
        }
    }
    println!("{table}{}", verdicts(all));
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    super::write(&folder.join("curves.csv"), csv.as_bytes())?;
    super::write(&folder.join("curves.svg"), picture(all).as_bytes())?;
    println!("data and picture: {}", folder.display());
    Ok(())
}

/// At each point of md's: how fast Restripe rebuilds with users no worse off.
fn verdicts(all: &[Series]) -> String {
    let mut text = String::from(
        "\nrestripe's rebuild over md's, at the p99 of reads of each of md's points\n",
    );
    for series in all.iter().filter(|series| series.ours()) {
        for rival in series.rivals(all) {
            let _ = write!(text, "  {}, {}, {}:", rival.load, rival.hole, rival.who);
            for p in &rival.points {
                let _ = match series.rate_at(p.read_p99_us) {
                    Some(rate) => write!(text, " {:.2}", rate / p.rate),
                    None => write!(text, " (never so gentle)"),
                };
            }
            text.push('\n');
        }
    }
    text
}

// --------------------------------------------------------------------------------------------------------- picture

const PANEL: f64 = 320.0;
const MARGIN: f64 = 56.0;
const COLOURS: [&str; 3] = ["#c0392b", "#2471a3", "#7d8a97"];

/// A panel for every load and guarantee: rebuild speed upwards, p99 of reads to the right.
fn picture(all: &[Series]) -> String {
    let ours: Vec<&Series> = all.iter().filter(|series| series.ours()).collect();
    let (width, height) = (
        ours.len() as f64 * (PANEL + MARGIN) + MARGIN,
        PANEL + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (nth, series) in ours.iter().enumerate() {
        let group: Vec<&Series> = std::iter::once(*series).chain(series.rivals(all)).collect();
        panel(&group, MARGIN + nth as f64 * (PANEL + MARGIN), &mut out);
    }
    out + "</svg>\n"
}

fn panel(group: &[&Series], left: f64, out: &mut String) {
    let most = |pick: fn(&Point) -> f64| {
        let values = group.iter().flat_map(|series| &series.points).map(pick);
        values.fold(1.0, f64::max) * 1.05
    };
    let (widest, highest) = (most(|p| p.read_p99_us), most(|p| p.rate));
    let place = |p: &Point| {
        let x = left + p.read_p99_us / widest * PANEL;
        (x, MARGIN + PANEL - p.rate / highest * PANEL)
    };
    let bottom = MARGIN + PANEL;
    let _ = write!(
        out,
        "<path d=\"M{left} {MARGIN}V{bottom}h{PANEL}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{left}\" y=\"20\">{}, {}: MiB/s rebuilt, to {highest:.0}</text>\n\
         <text x=\"{left}\" y=\"{}\">p99 of reads, to {:.0} ms</text>\n",
        group[0].load,
        group[0].hole,
        bottom + 20.0,
        widest / 1000.0
    );
    for (nth, (series, colour)) in group.iter().zip(COLOURS).enumerate() {
        let mut line = String::new();
        for p in &series.points {
            let (x, y) = place(p);
            let _ = write!(line, "{x:.1},{y:.1} ");
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let _ = write!(
            out,
            "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}</text>\n",
            left + 8.0,
            MARGIN + 14.0 * (nth + 1) as f64,
            series.who
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(f64, f64)]) -> Series {
        let mut series = Series::new("reads", "ppl", "restripe");
        series.points = points
            .iter()
            .map(|&(rate, read_p99_us)| Point {
                least_kib: 0,
                rate,
                reads: 1.0,
                writes: 0.0,
                read_p99_us,
                write_p99_us: 0.0,
            })
            .collect();
        series
    }

    #[test]
    fn a_curve_is_read_between_its_points_and_not_before_them() {
        let curve = series(&[(10.0, 100.0), (30.0, 200.0), (20.0, 300.0)]);
        assert_eq!(curve.rate_at(50.0), None);
        assert_eq!(curve.rate_at(100.0), Some(10.0));
        assert_eq!(curve.rate_at(150.0), Some(20.0));
        assert_eq!(
            curve.rate_at(1000.0),
            Some(30.0),
            "a worse setting is not chosen"
        );
    }

    #[test]
    fn a_line_of_fio_gives_both_percentiles() {
        let mut fields = vec!["0"; 60];
        (fields[7], fields[48]) = ("28", "12");
        (fields[30], fields[58]) = ("99.000000%=700", "99.000000%=900");
        let point = Point::new(1000, 5.0, &fields.join(";")).expect("a result");
        assert_eq!((point.reads, point.writes), (28.0, 12.0));
        assert_eq!((point.read_p99_us, point.write_p99_us), (700.0, 900.0));
        assert!(Point::new(1000, 5.0, "3;fio").is_none());
    }

    #[test]
    fn a_picture_shows_every_series() {
        let mut rival = series(&[(5.0, 150.0)]);
        rival.who = "md".into();
        let text = picture(&[series(&[(10.0, 100.0)]), rival]);
        assert_eq!(text.matches("<polyline").count(), 2);
    }
}
