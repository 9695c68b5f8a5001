//! The claims of a former run, as `lab verify --json` wrote them.

use super::claims::Line;
use super::inventory::source;
use crate::experiment::claim::Claim;
use crate::experiment::judged::{Lack, with_side};
use crate::experiment::outcome::short;
use crate::experiment::runner::program;
use crate::experiment::verdict::{Verdict, side};
use crate::nearest;
use crate::report::Provenance;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Wall time by paper, in seconds.
pub type Seconds = BTreeMap<String, u64>;

/// The run in JSON: where it comes from, its scale, how long each paper took, and its claims.
pub fn written(lines: &[Line], scale: &str, provenance: &Provenance, seconds: &Seconds) -> Value {
    let commit = Some(&provenance.commit).filter(|commit| !commit.is_empty());
    json!({
        "command": provenance.command,
        "version": provenance.version,
        "commit": commit,
        "program": program(),
        "machine": provenance.machine,
        "date": provenance.date,
        "seconds": seconds,
        "scale": scale,
        "claims": lines.iter().map(to_json).collect::<Vec<_>>(),
    })
}

/// Everything that is known of a line.
fn to_json(line: &Line) -> Value {
    let judged = &line.judged;
    let (paper, at) = source(&judged.printed);
    let point = judged.at.iter();
    let point: serde_json::Map<_, _> = point.map(|(path, v)| (path.clone(), v.to())).collect();
    let ours = judged.ours.ok();
    let interval = ours.filter(|ours| !ours.is_single());
    json!({
        "paper": paper,
        "place": at,
        "what": judged.printed.what,
        "scenario": line.scenario,
        "at": point,
        "claim": judged.printed.claim.name(),
        "printed": judged.printed.value,
        "ours": ours.map(|ours| ours.mean),
        "low": interval.map(|ours| ours.low),
        "high": interval.map(|ours| ours.high),
        "seeds": ours.map(|ours| ours.count),
        "p": judged.tested.map(|tested| tested.raw),
        "corrected": judged.tested.map(|tested| tested.corrected),
        "cut": judged.is_cut || judged.ours == Err(Lack::Cut),
        "verdict": judged.decided(),
        "side": judged.side(),
        "note": judged.printed.note,
    })
}

/// Scales of a run, as its file names them.
const SCALES: [&str; 4] = ["whole", "quick", "verify", "short"];

/// What a former run said of each claim.
#[derive(Debug)]
pub struct Former {
    /// Version, commit and day, as far as the file has them.
    source: String,
    scale: String,
    said: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    version: String,
    #[serde(default)]
    commit: Option<String>,
    #[serde(default)]
    date: String,
    scale: String,
    claims: Vec<Value>,
}

#[derive(Deserialize)]
struct Said {
    ours: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: String,
    /// Older files have none: it follows from the claim, the printed number and ours.
    side: Option<String>,
    claim: Option<Claim>,
    printed: Option<f64>,
}

impl Former {
    /// Reads what [`written`] gives. An error says what is wrong with the text.
    pub fn read(text: &str) -> Result<Former, String> {
        let file: File = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if !SCALES.contains(&file.scale.as_str()) {
            return Err(nearest::unknown("scale", &file.scale, SCALES));
        }
        let mut said = BTreeMap::new();
        for claim in &file.claims {
            let one = Said::deserialize(claim).map_err(|e| format!("a claim: {e}"))?;
            let key = key(claim);
            one.check().map_err(|error| format!("{error}: {key}"))?;
            if said.insert(key.clone(), one.cell()).is_some() {
                return Err(format!("it has a claim twice: {key}"));
            }
        }
        match said.is_empty() {
            true => Err("it has no claims".into()),
            false => Ok(Former {
                source: source_of(&file.version, file.commit.as_deref(), &file.date),
                scale: file.scale,
                said,
            }),
        }
    }

    /// What a document says of it.
    pub(super) fn source(&self) -> String {
        let Former { source, scale, .. } = self;
        format!("at scale {scale}, by {source}")
    }

    /// The head of a column of it.
    pub(super) fn head(&self) -> String {
        format!("at scale {}", self.scale)
    }

    /// A cell of that column: a dash of a claim that it has not.
    pub(super) fn cell(&self, line: &Line) -> String {
        self.of(line).unwrap_or("-").to_string()
    }

    /// Its number with the interval, and its verdict, if it has the claim.
    pub(super) fn of(&self, line: &Line) -> Option<&str> {
        self.said.get(&key(&to_json(line))).map(String::as_str)
    }
}

/// The program and the day of a run: `restripe 0.1.0, commit 64a4f7c0, on 2026-11-28`.
pub(super) fn source_of(version: &str, commit: Option<&str>, date: &str) -> String {
    let mut out = match version {
        "" => "a version that is not known".to_string(),
        version => version.to_string(),
    };
    if let Some(commit) = commit.filter(|commit| !commit.is_empty()) {
        out += &format!(", commit {commit}");
    }
    match date.split_once('T').map_or(date, |(day, _)| day) {
        "" => out,
        day => format!("{out}, on {day}"),
    }
}

/// What distinguishes a claim from others. Scales that sweep different values have different claims.
fn key(claim: &Value) -> String {
    let parts = [
        "paper", "place", "what", "claim", "printed", "scenario", "at",
    ];
    json!(parts.map(|part| &claim[part])).to_string()
}

impl Said {
    /// Whether it is what a run can have said.
    fn check(&self) -> Result<(), String> {
        let verdict = self.verdict.split(": ").next().unwrap_or_default();
        if verdict != "shown" && !Verdict::ALL.iter().any(|one| one.to_string() == verdict) {
            return Err(format!("{verdict:?} is no verdict"));
        }
        let ours = self.ours.unwrap_or(1.0);
        let (low, high) = (self.low.unwrap_or(ours), self.high.unwrap_or(ours));
        match low <= ours && ours <= high {
            true => Ok(()),
            false => Err(format!("{ours} is not from {low} to {high}")),
        }
    }

    fn side(&self) -> Option<&str> {
        let computed = || side(&self.verdict, self.claim?, self.printed?, self.ours?);
        self.side.as_deref().or_else(computed)
    }

    fn cell(&self) -> String {
        let verdict = with_side(&self.verdict, self.side());
        match (self.ours, self.low, self.high) {
            (Some(ours), Some(low), Some(high)) => format!(
                "{} ({} to {}), {verdict}",
                short(ours),
                short(low),
                short(high),
            ),
            (Some(ours), ..) => format!("{}, {verdict}", short(ours)),
            (None, ..) => verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::lines;
    use super::*;
    use crate::cache::grid;
    use crate::experiment::claim::Printed;
    use crate::experiment::scenario;

    #[test]
    fn what_is_written_is_read_again() {
        let lines = lines();
        let provenance = Provenance {
            version: "restripe 0.1.0".into(),
            commit: "64a4f7c0".into(),
            date: "2026-11-28T07:35:00Z".into(),
            ..Provenance::default()
        };
        let seconds: Seconds = [("IDO".to_string(), 3046)].into();
        let json = written(&lines, "whole", &provenance, &seconds);
        assert_eq!(json["seconds"]["IDO"], 3046);
        assert_eq!(json["program"], program());
        let unknown = written(&lines, "whole", &Provenance::default(), &Seconds::new());
        assert!(unknown["commit"].is_null() && unknown["seconds"] == json!({}));
        let of = |json: &Value| Former::read(&json.to_string()).expect("a run");
        assert_eq!(
            of(&unknown).source(),
            "at scale whole, by a version that is not known"
        );
        let former = of(&json);
        let source = "at scale whole, by restripe 0.1.0, commit 64a4f7c0, on 2026-11-28";
        assert_eq!(former.source(), source);
        assert_eq!(former.scale, "whole");
        assert_eq!(former.of(&lines[0]), Some("2.010 (1.985 to 2.035), holds"));
        assert_eq!(former.of(&lines[1]), Some("not run: not run at this scale"));
        assert_eq!(
            former.of(&lines[3]),
            Some("0.5000, one run (differs): smaller")
        );
        // Before there was a key for it.
        let text = json.to_string();
        let older = text.replace("\"side\":\"smaller\"", "\"side\":null");
        assert_ne!(older, text);
        let former = Former::read(&older).expect("a run");
        assert_eq!(
            former.of(&lines[3]),
            Some("0.5000, one run (differs): smaller")
        );
    }

    #[test]
    fn what_no_run_can_have_said_is_refused() {
        let json = written(&lines(), "whole", &Provenance::default(), &Seconds::new());
        let changes: [fn(&mut Value); 5] = [
            |json| json["scale"] = "a|b".into(),
            |json| json["claims"][0]["verdict"] = "maybe".into(),
            |json| json["claims"][0]["ours"] = (-3.0).into(),
            |json| json["claims"][0]["low"] = 1e9.into(),
            |json| json["claims"][1] = json["claims"][0].clone(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut changed = json.clone();
            change(&mut changed);
            assert!(
                Former::read(&changed.to_string()).is_err(),
                "change {number}"
            );
        }
        let mut other = json;
        other["claims"][0]["printed"] = 99.into();
        let former = Former::read(&other.to_string()).expect("of another printed number");
        assert_eq!(former.of(&lines()[0]), None);
    }

    #[test]
    fn a_line_without_a_number_says_why() {
        let json = to_json(&lines()[1]);
        assert_eq!(json["verdict"], "not run: not run at this scale");
        assert!(json["ours"].is_null() && json["place"] == "figure 9");
        let json = to_json(&lines()[0]);
        assert_eq!(
            (json["verdict"].as_str(), json["seeds"].as_u64()),
            (Some("holds"), Some(3))
        );
        assert!(json["side"].is_null());
        let json = to_json(&lines()[3]);
        assert!(json["low"].is_null());
        assert_eq!(
            (&json["verdict"], &json["side"]),
            (&"one run (differs)".into(), &"smaller".into())
        );
    }

    /// Claims that are kept as data are those of scenarios.
    #[test]
    fn what_is_kept_at_the_papers_sizes_is_what_scenarios_claim() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/data/papers-whole.json"
        );
        let text = std::fs::read_to_string(path).expect("kept");
        let former = Former::read(&text).expect("a run");
        assert!(former.source().contains("commit "), "{}", former.source());
        let file: File = serde_json::from_str(&text).expect("a run");
        for claim in file.claims {
            let said = |key: &str| claim[key].as_str().unwrap_or_default().to_string();
            let name = said("scenario");
            let known = scenario::named(&name).or_else(|| grid::named(&name));
            let known = scenario::parse(known.expect(&name)).expect(&name);
            let source = format!("{}, {}", said("paper"), said("place"));
            let same = |line: &Printed| {
                let place = line.what == said("what") && line.source == source;
                place && line.headline && claim["printed"] == line.value
            };
            assert!(known.printed.iter().any(same), "{name} claims no {claim}");
        }
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let claim = r#"{"scale": "whole", "claims": [{"paper": "IDO"}]}"#;
        let none = r#"{"scale": "whole", "claims": []}"#;
        for (text, says) in [
            ("[]", "invalid length"),
            ("{}", "scale"),
            (claim, "a claim: missing field `verdict`"),
            (none, "no claims"),
        ] {
            let refused = Former::read(text).expect_err(text);
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
