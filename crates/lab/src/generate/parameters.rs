//! The parameters of a synthetic workload: every number of the model, with its unit, its bounds, and its
//! source.
//!
//! `docs/reference/workloads.md` describes them. They are read from TOML and written as TOML.

use super::arrivals::burst_share_min;
use crate::trace::LENGTH_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// More zones than this have no place in memory.
pub const ZONES_MAX: u64 = 1 << 22;
pub const DEVICES_MAX: usize = 256;
pub const SIZES_MAX: usize = 4096;
/// The deepest re-read.
pub const DISTANCE_MAX: u64 = 1 << 20;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Part of the requests; all shares together are the whole, whatever their sum.
    pub share: f64,
    /// Its extent; a last zone of less than [`Parameters::zone_bytes`] is left out.
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    pub name: String,
    pub summary: String,
    /// Requests a second, on average.
    pub rate: f64,
    /// Coefficient of variation of the times between requests; at least 1, which is Poisson.
    pub gap_cv: f64,
    /// Part of the requests that come in bursts.
    pub burst_share: f64,
    /// Requests of a burst, on average.
    pub burst_requests: f64,
    /// Part of the requests that write.
    pub write_share: f64,
    /// Bytes and their weights.
    pub read_sizes: Vec<(u64, f64)>,
    pub write_sizes: Vec<(u64, f64)>,
    /// Requests begin at multiples of this.
    pub align_bytes: u64,
    pub zone_bytes: u64,
    /// Part of all zones that are in use at a time.
    pub active_share: f64,
    /// The n-th most popular zone gets n to the power of minus theta of the visits.
    pub theta: f64,
    /// Part of the zones in use that is called hot.
    pub hot_share: f64,
    /// How much of the hot zones an hour is replaced by others; above 1 all of them more than once an hour.
    pub drift: f64,
    /// Requests of a visit to a zone, on average.
    pub run_requests: f64,
    /// Chance that a request of a visit begins where the one before ended.
    pub sequential: f64,
    /// Part of the reads that repeat a recent read.
    pub reread_share: f64,
    /// Least and largest depth of what is repeated, in the stack of different recent reads.
    pub reread_distance: (u64, u64),
    /// The same for writes.
    pub rewrite_share: f64,
    pub rewrite_distance: (u64, u64),
    /// Part of the requests that belong to scans: long sequential reads from anywhere.
    pub scan_share: f64,
    /// Requests of a scan, on average.
    pub scan_requests: f64,
    /// Part of the requests that belong to the scan while there is one.
    pub scan_weight: f64,
    /// Bytes of each request of a scan.
    pub scan_bytes: u64,
    pub devices: Vec<Device>,
    /// Where each number is from, by its name.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// A parameter that makes no workload, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// The names of all parameters that need a source.
pub fn numbers() -> impl Iterator<Item = &'static str> {
    "rate gap_cv burst_share burst_requests write_share read_sizes write_sizes align_bytes zone_bytes \
     active_share theta hot_share drift run_requests sequential reread_share reread_distance \
     rewrite_share rewrite_distance scan_share scan_requests scan_weight scan_bytes devices.share devices.bytes"
        .split(' ')
}

impl Parameters {
    pub fn from_toml(text: &str) -> Result<Parameters, Invalid> {
        let read = toml::from_str::<Parameters>(text);
        let parameters = read.map_err(|error| Invalid(error.to_string()))?;
        parameters.check()?;
        Ok(parameters)
    }

    /// As [`Parameters::from_toml`] reads it.
    pub fn to_toml(&self) -> String {
        let (name, summary) = (quoted(&self.name), quoted(&self.summary));
        let mut text = format!("name = {name}\nsummary = {summary}\n");
        for (number, value) in self.written() {
            let _ = writeln!(text, "{number} = {value}");
        }
        text.push_str("devices = [\n");
        for Device { share, bytes } in &self.devices {
            let _ = writeln!(text, "    {{ share = {share:?}, bytes = {bytes} }},");
        }
        text.push_str("]\n");
        if !self.sources.is_empty() {
            text.push_str("\n[sources]\n");
        }
        for (number, source) in &self.sources {
            let _ = writeln!(text, "{} = {}", quoted(number), quoted(source));
        }
        text
    }

    /// All numbers but those of the devices, as TOML.
    fn written(&self) -> Vec<(&'static str, String)> {
        let float = |value: f64| format!("{value:?}");
        let pair = |(near, far): (u64, u64)| format!("[{near}, {far}]");
        let sizes = |sizes: &[(u64, f64)]| {
            let shown = |(bytes, weight): &(u64, f64)| format!("[{bytes}, {weight:?}]");
            let shown: Vec<String> = sizes.iter().map(shown).collect();
            format!("[{}]", shown.join(", "))
        };
        vec![
            ("rate", float(self.rate)),
            ("gap_cv", float(self.gap_cv)),
            ("burst_share", float(self.burst_share)),
            ("burst_requests", float(self.burst_requests)),
            ("write_share", float(self.write_share)),
            ("read_sizes", sizes(&self.read_sizes)),
            ("write_sizes", sizes(&self.write_sizes)),
            ("align_bytes", self.align_bytes.to_string()),
            ("zone_bytes", self.zone_bytes.to_string()),
            ("active_share", float(self.active_share)),
            ("theta", float(self.theta)),
            ("hot_share", float(self.hot_share)),
            ("drift", float(self.drift)),
            ("run_requests", float(self.run_requests)),
            ("sequential", float(self.sequential)),
            ("reread_share", float(self.reread_share)),
            ("reread_distance", pair(self.reread_distance)),
            ("rewrite_share", float(self.rewrite_share)),
            ("rewrite_distance", pair(self.rewrite_distance)),
            ("scan_share", float(self.scan_share)),
            ("scan_requests", float(self.scan_requests)),
            ("scan_weight", float(self.scan_weight)),
            ("scan_bytes", self.scan_bytes.to_string()),
        ]
    }

    /// Zones of all devices.
    pub fn zones(&self) -> u64 {
        let whole = |device: &Device| device.bytes / self.zone_bytes;
        self.devices.iter().map(whole).sum()
    }

    /// Mean size in bytes of fresh reads or writes.
    pub fn mean_bytes(sizes: &[(u64, f64)]) -> f64 {
        let whole: f64 = sizes.iter().map(|(_, weight)| weight).sum();
        let bytes = sizes.iter().map(|(size, weight)| *size as f64 * weight);
        bytes.sum::<f64>() / whole
    }

    /// Whether a generator can be made of it.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_times()?;
        self.check_sizes("read_sizes", &self.read_sizes)?;
        self.check_sizes("write_sizes", &self.write_sizes)?;
        self.check_places()?;
        self.check_repeats()?;
        self.check_scans()
    }

    fn check_times(&self) -> Result<(), Invalid> {
        within("rate", self.rate, 1e-6, 1e9)?;
        within("gap_cv", self.gap_cv, 1.0, 1000.0)?;
        let least = burst_share_min(self.gap_cv).max(0.001);
        within("burst_share", self.burst_share, least, 1.0 - 1e-9)?;
        let least = 1f64.max(self.burst_share / (1.0 - self.burst_share));
        within("burst_requests", self.burst_requests, least, 1e12)
    }

    fn check_sizes(&self, name: &str, sizes: &[(u64, f64)]) -> Result<(), Invalid> {
        let invalid = |reason: &str| Err(Invalid(format!("{name}{reason}")));
        if sizes.is_empty() || sizes.len() > SIZES_MAX {
            return invalid(&format!(" has no sizes, or more than {SIZES_MAX}"));
        }
        for (bytes, weight) in sizes {
            if *bytes == 0 || *bytes > LENGTH_MAX.min(self.zone_bytes) {
                return invalid(&format!(
                    ": {bytes} bytes are none, or more than a zone or 1 GiB"
                ));
            }
            within(name, *weight, 0.0, 1e15)?;
        }
        let sum: f64 = sizes.iter().map(|(_, weight)| weight).sum();
        within(name, sum, f64::MIN_POSITIVE, 1e18)
    }

    fn check_places(&self) -> Result<(), Invalid> {
        within("theta", self.theta, 0.0, 8.0)?;
        within("hot_share", self.hot_share, 0.0, 1.0)?;
        within("drift", self.drift, 0.0, 1e6)?;
        within("active_share", self.active_share, f64::MIN_POSITIVE, 1.0)?;
        let align = self.align_bytes;
        if align == 0 || self.zone_bytes == 0 || !self.zone_bytes.is_multiple_of(align) {
            return Err(Invalid("zone_bytes is no multiple of align_bytes".into()));
        }
        if self.zone_bytes / align > u64::from(u32::MAX) {
            return Err(Invalid("a zone has more than 2^32 places".into()));
        }
        if self.devices.len() > DEVICES_MAX {
            return Err(Invalid(format!("more than {DEVICES_MAX} devices")));
        }
        for device in &self.devices {
            within("devices.share", device.share, 0.0, 1e15)?;
            if device.bytes > 1 << 62 {
                return Err(Invalid("a device of more than 2^62 bytes".into()));
            }
        }
        let zones = self.zones();
        if zones == 0 || zones > ZONES_MAX {
            return Err(Invalid(format!("{zones} zones: 1 to {ZONES_MAX} can be")));
        }
        let shares: f64 = self.devices.iter().map(|device| device.share).sum();
        within("devices.share", shares, f64::MIN_POSITIVE, 1e18)
    }

    fn check_repeats(&self) -> Result<(), Invalid> {
        within("write_share", self.write_share, 0.0, 1.0)?;
        within("run_requests", self.run_requests, 1.0, 1e9)?;
        within("sequential", self.sequential, 0.0, 1.0)?;
        within("reread_share", self.reread_share, 0.0, 1.0)?;
        within("rewrite_share", self.rewrite_share, 0.0, 1.0)?;
        let distances = [self.reread_distance, self.rewrite_distance];
        for (name, (near, far)) in ["reread_distance", "rewrite_distance"]
            .into_iter()
            .zip(distances)
        {
            if near == 0 || near > far || far > DISTANCE_MAX {
                let reason = format!("{name}: {near} to {far} is not within 1 to {DISTANCE_MAX}");
                return Err(Invalid(reason));
            }
        }
        Ok(())
    }

    fn check_scans(&self) -> Result<(), Invalid> {
        within("scan_weight", self.scan_weight, 0.0, 1.0)?;
        within("scan_share", self.scan_share, 0.0, self.scan_weight)?;
        within("scan_requests", self.scan_requests, 1.0, 1e12)?;
        let bytes = self.scan_bytes;
        if bytes == 0 || bytes > LENGTH_MAX.min(self.zone_bytes) {
            let reason = format!("scan_bytes: {bytes} are none, or more than a zone");
            return Err(Invalid(reason));
        }
        Ok(())
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn within(name: &str, value: f64, low: f64, high: f64) -> Result<(), Invalid> {
    let reason = format!("{name} is {value}, not within {low} to {high}");
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(Invalid(reason)),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Nothing special: a device of 100 zones of 1 MiB, all alike.
    pub fn plain() -> Parameters {
        Parameters {
            name: "plain".into(),
            summary: String::new(),
            rate: 100.0,
            gap_cv: 1.0,
            burst_share: 0.5,
            burst_requests: 10.0,
            write_share: 0.25,
            read_sizes: vec![(4096, 1.0)],
            write_sizes: vec![(8192, 1.0)],
            align_bytes: 4096,
            zone_bytes: 1 << 20,
            active_share: 1.0,
            theta: 0.0,
            hot_share: 0.2,
            drift: 0.0,
            run_requests: 1.0,
            sequential: 0.0,
            reread_share: 0.0,
            reread_distance: (1, 1000),
            rewrite_share: 0.0,
            rewrite_distance: (1, 1000),
            scan_share: 0.0,
            scan_requests: 100.0,
            scan_weight: 0.5,
            scan_bytes: 65_536,
            devices: vec![Device {
                share: 1.0,
                bytes: 100 << 20,
            }],
            sources: BTreeMap::new(),
        }
    }

    #[test]
    fn every_field_is_documented_and_the_documents_file_is_one() {
        let document = include_str!("../../../../docs/reference/workloads.md");
        let file = document.split("<!-- parameters -->\n```toml\n").nth(1);
        let file = file.and_then(|rest| rest.split("```").next());
        let file = file.expect("the document has it");
        let parameters = Parameters::from_toml(file).expect("sound");
        assert_eq!(parameters.sources, BTreeMap::new());
        for name in numbers() {
            let field = name.split('.').next().unwrap_or(name);
            assert!(document.contains(&format!("`{field}`")), "{name}");
            // None may be left out.
            let without = file.lines().filter(|line| !line.starts_with(field));
            let without: Vec<&str> = without.collect();
            let refused = Parameters::from_toml(&without.join("\n")).expect_err(name);
            assert!(refused.0.contains(field), "{refused}");
        }
    }

    #[test]
    fn toml_there_and_back() {
        let mut parameters = plain();
        parameters.name = "a \"b\\ \n\u{7f}ü".into();
        parameters.sources.insert("rate".into(), "a guess".into());
        assert_eq!(Parameters::from_toml(&parameters.to_toml()), Ok(parameters));
        let unknown = format!("bogus = 1\n{}", plain().to_toml());
        assert!(Parameters::from_toml(&unknown).is_err());
    }

    #[test]
    fn what_makes_no_workload_is_refused_by_name() {
        let refused = |change: fn(&mut Parameters), name: &str| {
            let mut parameters = plain();
            change(&mut parameters);
            let reason = parameters.check().expect_err(name).to_string();
            assert!(reason.contains(name), "{reason}");
        };
        refused(|p| p.gap_cv = 0.5, "gap_cv");
        refused(|p| p.gap_cv = 3.5, "burst_share");
        refused(|p| p.rate = f64::NAN, "rate");
        refused(|p| p.burst_requests = 0.5, "burst_requests");
        refused(|p| p.read_sizes.clear(), "read_sizes");
        refused(|p| p.write_sizes[0].0 = 2 << 20, "write_sizes");
        refused(|p| p.theta = -1.0, "theta");
        refused(|p| p.align_bytes = 3000, "align_bytes");
        refused(|p| p.devices.clear(), "zones");
        refused(|p| p.devices[0].bytes = 1 << 60, "zones");
        refused(|p| p.devices[0].share = 0.0, "devices.share");
        refused(|p| p.reread_distance = (5, 4), "reread_distance");
        refused(|p| p.scan_share = 0.9, "scan_share");
        refused(|p| p.scan_bytes = 0, "scan_bytes");
    }
}
