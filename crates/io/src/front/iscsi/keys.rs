//! Text keys: how they are written, and what two sides agree on (RFC 7143 sections 6 and 13).

/// Longest data segment that we receive, as we declare it.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 256 * 1024;
/// Most keys of one negotiation.
const KEYS_MAX: usize = 128;
/// Longest name of a key.
const KEY_BYTES_MAX: usize = 63;

/// What two sides have agreed on. Begins as the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parameters {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// No data without being asked for, but what comes with the command.
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    /// The longest data segment that the initiator receives.
    pub(crate) peer_segment: u32,
    pub(crate) max_burst: u32,
    pub(crate) first_burst: u32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            peer_segment: 8192,
            max_burst: 262_144,
            first_burst: 65_536,
        }
    }
}

/// Ours: what a session has if the initiator agrees.
const MAX_BURST: u32 = 1 << 20;
const FIRST_BURST: u32 = SEGMENT_BYTES_MAX;
const LARGEST: u32 = (1 << 24) - 1;

/// The keys of a text segment: `key=value` and a zero byte, again and again. `None`: it is no such text.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let text = match text.split_last() {
        None => return Some(Vec::new()),
        Some((0, text)) => text,
        Some(_) => text,
    };
    let mut pairs = Vec::new();
    for pair in text
        .split(|byte| *byte == 0)
        .filter(|pair| !pair.is_empty())
    {
        let (key, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX || pairs.len() >= KEYS_MAX {
            return None;
        }
        pairs.push((key, value));
    }
    Some(pairs)
}

pub(crate) fn append(text: &mut Vec<u8>, key: &str, value: &str) {
    for part in [key.as_bytes(), b"=", value.as_bytes(), b"\0"] {
        text.extend_from_slice(part);
    }
}

/// A number, decimal or hexadecimal.
pub(crate) fn number(value: &str) -> Option<u32> {
    let lower = value.strip_prefix("0x").or(value.strip_prefix("0X"));
    match lower {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// The longest data segment that a peer declares to receive. It may, at any time.
pub(crate) fn segment_bytes(value: &str) -> Option<u32> {
    number(value).filter(|it| (512..=LARGEST).contains(it))
}

fn yes(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn word(value: bool) -> String {
    if value { "Yes" } else { "No" }.to_owned()
}

pub(crate) const REJECT: &str = "Reject";
const IRRELEVANT: &str = "Irrelevant";
pub(crate) const NOT_UNDERSTOOD: &str = "NotUnderstood";

/// The operational keys of one login.
#[derive(Default)]
pub(crate) struct Negotiation {
    pub(crate) parameters: Parameters,
    seen: Vec<String>,
    declared: bool,
}

impl Negotiation {
    /// Notes that a key came. Whether it was the first time: a key is negotiated once.
    pub(crate) fn first_time(&mut self, key: &str) -> bool {
        let new = self.seen.len() < KEYS_MAX && !self.seen.iter().any(|seen| seen == key);
        if new {
            self.seen.push(key.to_owned());
        }
        new
    }

    /// Takes up a key, and gives its answer, if it has one.
    pub(crate) fn negotiate(&mut self, key: &str, value: &str, discovery: bool) -> Option<String> {
        if discovery && is_of_transfers(key) {
            return Some(IRRELEVANT.to_owned());
        }
        match key {
            "HeaderDigest" => Some(choose_digest(value, &mut self.parameters.header_digest)),
            "DataDigest" => Some(choose_digest(value, &mut self.parameters.data_digest)),
            "MaxRecvDataSegmentLength" => {
                let Some(bytes) = segment_bytes(value) else {
                    return Some(REJECT.to_owned());
                };
                self.parameters.peer_segment = bytes;
                None
            }
            "InitialR2T" => Some(boolean(value, &mut self.parameters.initial_r2t)),
            "ImmediateData" => Some(boolean(value, &mut self.parameters.immediate_data)),
            "MaxBurstLength" => Some(least(value, MAX_BURST, 512, &mut self.parameters.max_burst)),
            "FirstBurstLength" => {
                // No longer than a burst (section 13.14).
                let ours = FIRST_BURST.min(self.parameters.max_burst);
                let agreed = &mut self.parameters.first_burst;
                Some(least(value, ours, 512, agreed))
            }
            _ => Some(constant(key, value)),
        }
    }

    /// What we declare of ourselves, once.
    pub(crate) fn declare(&mut self, text: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.declared, true) {
            append(
                text,
                "MaxRecvDataSegmentLength",
                &SEGMENT_BYTES_MAX.to_string(),
            );
        }
    }

    /// What was agreed on, at the end.
    pub(crate) fn end(&self) -> Parameters {
        let mut parameters = self.parameters.clone();
        parameters.first_burst = parameters.first_burst.min(parameters.max_burst);
        parameters
    }
}

/// Keys that mean nothing to a discovery session.
fn is_of_transfers(key: &str) -> bool {
    matches!(
        key,
        "MaxConnections"
            | "InitialR2T"
            | "ImmediateData"
            | "MaxBurstLength"
            | "FirstBurstLength"
            | "MaxOutstandingR2T"
            | "DataPDUInOrder"
            | "DataSequenceInOrder"
    )
}

/// The first of the initiator's list that is known.
fn choose_digest(value: &str, wanted: &mut bool) -> String {
    let known = |word: &&str| matches!(*word, "None" | "CRC32C");
    match value.split(',').find(known) {
        Some(word) => {
            *wanted = word == "CRC32C";
            word.to_owned()
        }
        None => REJECT.to_owned(),
    }
}

fn boolean(value: &str, agreed: &mut bool) -> String {
    match yes(value) {
        Some(theirs) => {
            *agreed = theirs;
            word(*agreed)
        }
        None => REJECT.to_owned(),
    }
}

/// The lesser of both sides' numbers.
fn least(value: &str, ours: u32, lowest: u32, agreed: &mut u32) -> String {
    match number(value).filter(|it| (lowest..=LARGEST).contains(it)) {
        Some(theirs) => {
            *agreed = theirs.min(ours);
            agreed.to_string()
        }
        None => REJECT.to_owned(),
    }
}

/// Keys whose result is the same for all sessions.
fn constant(key: &str, value: &str) -> String {
    let lesser = |ours: u32, lowest: u32| {
        let mut agreed = 0;
        least(value, ours, lowest, &mut agreed)
    };
    match key {
        "MaxConnections" | "MaxOutstandingR2T" => lesser(1, 1),
        "ErrorRecoveryLevel" => lesser(0, 0),
        "DefaultTime2Retain" => lesser(0, 0),
        "iSCSIProtocolLevel" => lesser(1, 0),
        "DefaultTime2Wait" => match number(value).filter(|it| *it <= 3600) {
            Some(theirs) => theirs.max(2).to_string(),
            None => REJECT.to_owned(),
        },
        "DataPDUInOrder" | "DataSequenceInOrder" => match yes(value) {
            Some(_) => word(true),
            None => REJECT.to_owned(),
        },
        "IFMarker" | "OFMarker" => word(false),
        "TaskReporting" => match value.split(',').any(|word| word == "RFC3720") {
            true => "RFC3720".to_owned(),
            false => REJECT.to_owned(),
        },
        // Those of markers are obsolete, and this is their only answer (section 13.25).
        "SendTargets" | "IFMarkInt" | "OFMarkInt" => REJECT.to_owned(),
        _ => NOT_UNDERSTOOD.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_pairs_and_nothing_else() {
        let pairs = parse(b"A=1\0B=x=y\0").expect("it is text");
        assert_eq!(pairs, [("A", "1"), ("B", "x=y")]);
        assert_eq!(parse(b""), Some(Vec::new()));
        assert_eq!(parse(b"A=1"), Some(vec![("A", "1")]));
        assert!(parse(b"A\0").is_none() && parse(b"=1\0").is_none());
        assert!(parse(b"A=\xff\0").is_none());
        assert!(parse(&b"A=1\0".repeat(KEYS_MAX + 1)).is_none());
    }

    #[test]
    fn each_key_has_the_result_of_its_function() {
        let answer = |key: &str, value: &str| {
            Negotiation::default()
                .negotiate(key, value, false)
                .unwrap_or_default()
        };
        for (key, value, expected) in [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("DataDigest", "X-own,None", "None"),
            ("DataDigest", "X-own", "Reject"),
            ("InitialR2T", "No", "No"),
            ("ImmediateData", "Maybe", "Reject"),
            ("MaxBurstLength", "16776192", "1048576"),
            ("FirstBurstLength", "0x1000", "4096"),
            ("FirstBurstLength", "511", "Reject"),
            ("MaxConnections", "8", "1"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("DefaultTime2Wait", "0", "2"),
            ("DataPDUInOrder", "No", "Yes"),
            ("IFMarker", "Yes", "No"),
            ("IFMarkInt", "2048~8192", "Reject"),
            ("OFMarkInt", "Irrelevant", "Reject"),
            ("X-com.example", "1", "NotUnderstood"),
            ("MaxRecvDataSegmentLength", "1", "Reject"),
            ("MaxRecvDataSegmentLength", "4096", ""),
        ] {
            assert_eq!(answer(key, value), expected, "{key}={value}");
        }
    }

    #[test]
    fn a_discovery_session_transfers_nothing() {
        let mut negotiation = Negotiation::default();
        let answer = negotiation.negotiate("InitialR2T", "No", true);
        assert_eq!(answer.as_deref(), Some("Irrelevant"));
        assert!(negotiation.end().initial_r2t);
    }
}
