//! The Challenge Handshake Authentication Protocol (RFC 1994) as iSCSI uses it (RFC 7143 section 12.1.3),
//! with MD5 (algorithm 5) or SHA-256 (algorithm 7).
//!
//! Each side that must prove who it is answers a random challenge with the digest of an identifier, a secret
//! and the challenge. Secrets never travel. The secret of each direction must differ, and a challenge that is
//! our own sent back is refused.

use super::keys::number;
use md5::Md5;
use sha2::{Digest, Sha256};
use std::fmt;

/// Bytes of the challenges that we send, and most of those that we answer.
const CHALLENGE_BYTES: usize = 32;
const CHALLENGE_BYTES_MAX: usize = 1024;
/// Most bytes of a response: a digest of SHA-256.
const RESPONSE_BYTES_MAX: usize = 32;

/// Shortest secret that is accepted: 96 bits (RFC 7143 section 9.2.1).
const SECRET_BYTES_MIN: usize = 12;
const SECRET_BYTES_MAX: usize = 256;

/// A name and its secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) name: String,
    pub(crate) secret: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.name)
    }
}

/// What initiators prove who they are by, and what the target does.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Secrets {
    pub(crate) initiators: Vec<Credential>,
    pub(crate) target: Option<Credential>,
}

impl Secrets {
    /// Reads a file of secrets: a line `initiator NAME SECRET` for each initiator, and at most one `target
    /// NAME SECRET`. Empty lines and those that begin with `#` are ignored. The error says which line is
    /// wrong, and not what it has.
    pub fn parse(text: &str) -> Result<Secrets, String> {
        let mut secrets = Secrets::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                secrets
                    .add(line)
                    .map_err(|why| format!("line {}: {why}", number + 1))?;
            }
        }
        let target = secrets.target.as_ref();
        let shared = |one: &Credential| target.is_some_and(|it| it.secret == one.secret);
        match (
            secrets.initiators.is_empty(),
            secrets.initiators.iter().any(shared),
        ) {
            (true, _) => Err("it has no line \"initiator NAME SECRET\"".to_owned()),
            (_, true) => Err("the target has the secret of an initiator".to_owned()),
            _ => Ok(secrets),
        }
    }

    fn add(&mut self, line: &str) -> Result<(), &'static str> {
        let wrong = "use \"initiator NAME SECRET\" or \"target NAME SECRET\"";
        let (kind, rest) = line.split_once(char::is_whitespace).ok_or(wrong)?;
        let (name, secret) = rest.trim().split_once(char::is_whitespace).ok_or(wrong)?;
        let credential = Credential {
            name: name.to_owned(),
            secret: secret.trim().to_owned(),
        };
        match credential.secret.len() {
            ..SECRET_BYTES_MIN => return Err("a secret has 12 characters or more"),
            SECRET_BYTES_MIN..=SECRET_BYTES_MAX => {}
            _ => return Err("a secret has 256 characters at most"),
        }
        match kind {
            "initiator" if self.initiators.iter().any(|one| one.name == name) => {
                Err("this initiator has a secret already")
            }
            "initiator" => {
                self.initiators.push(credential);
                Ok(())
            }
            "target" if self.target.is_none() => {
                self.target = Some(credential);
                Ok(())
            }
            "target" => Err("the target has a secret already"),
            _ => Err(wrong),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    /// The first of the initiator's list that is known.
    pub(crate) fn choose(list: &str) -> Option<Algorithm> {
        list.split(',').find_map(|one| match number(one.trim()) {
            Some(5) => Some(Algorithm::Md5),
            Some(7) => Some(Algorithm::Sha256),
            _ => None,
        })
    }

    pub(crate) fn number(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha256 => "7",
        }
    }

    pub(crate) fn response(self, identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Md5 => digest::<Md5>(identifier, secret, challenge),
            Algorithm::Sha256 => digest::<Sha256>(identifier, secret, challenge),
        }
    }
}

fn digest<D: Digest>(identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    let mut digest = D::new();
    digest.update([identifier]);
    digest.update(secret.as_bytes());
    digest.update(challenge);
    digest.finalize().to_vec()
}

/// What we asked the initiator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Challenge {
    pub(crate) algorithm: Algorithm,
    pub(crate) identifier: u8,
    pub(crate) bytes: Vec<u8>,
}

impl Challenge {
    pub(crate) fn new(algorithm: Algorithm, random: fn(&mut [u8])) -> Challenge {
        let mut bytes = vec![0; CHALLENGE_BYTES + 1];
        random(&mut bytes);
        let identifier = bytes.pop().unwrap_or(0);
        Challenge {
            algorithm,
            identifier,
            bytes,
        }
    }

    /// Whether the owner of `name` has answered with its secret, and may log in as `initiator`. The time that
    /// this takes does not depend on how much of the answer is right.
    pub(crate) fn is_met(
        &self,
        secrets: &Secrets,
        initiator: &str,
        name: &str,
        response: &str,
    ) -> bool {
        if is_iscsi_name(name) && !name.eq_ignore_ascii_case(initiator) {
            return false;
        }
        let Some(given) = decode(response, RESPONSE_BYTES_MAX) else {
            return false;
        };
        let mut initiators = secrets.initiators.iter();
        let Some(known) = initiators.find(|one| one.name == name) else {
            return false;
        };
        let right = self
            .algorithm
            .response(self.identifier, &known.secret, &self.bytes);
        let differs = right
            .iter()
            .zip(&given)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        right.len() == given.len() && differs == 0
    }

    /// The target's response to the initiator's own challenge. `None`: it is malformed, or ours sent back.
    pub(crate) fn answer(
        &self,
        target: &Credential,
        identifier: &str,
        challenge: &str,
    ) -> Option<String> {
        let identifier = number(identifier)?.try_into().ok()?;
        let bytes = decode(challenge, CHALLENGE_BYTES_MAX)?;
        if bytes == self.bytes || bytes.is_empty() {
            return None;
        }
        let response = self.algorithm.response(identifier, &target.secret, &bytes);
        Some(encode(&response))
    }
}

/// Whether a name of CHAP is one of an initiator: then it is proof of no other.
fn is_iscsi_name(name: &str) -> bool {
    let kind = name.get(..4).unwrap_or_default();
    ["iqn.", "eui.", "naa."]
        .iter()
        .any(|one| kind.eq_ignore_ascii_case(one))
}

/// Bytes as a text value: hexadecimal.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

/// The bytes of a text value, hexadecimal (`0x`) or in base 64 (`0b`). `None`: malformed, or too many.
fn decode(value: &str, most: usize) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => decode_hex(digits.as_bytes())?,
        "0b" | "0B" => decode_base64(digits.as_bytes())?,
        _ => return None,
    };
    (bytes.len() <= most).then_some(bytes)
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| Some((value(high)? << 4 | value(low)?) as u8);
    pairs.iter().map(byte).collect()
}

fn decode_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let (quads, rest) = digits.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(quads.len() * 3);
    for (place, quad) in quads.iter().enumerate() {
        let pads = quad
            .iter()
            .rev()
            .take_while(|digit| **digit == b'=')
            .count();
        if pads > 2 || (pads > 0 && place + 1 < quads.len()) {
            return None;
        }
        let mut sum = 0_u32;
        for digit in &quad[..4 - pads] {
            sum = sum << 6 | base64_value(*digit)?;
        }
        sum <<= 6 * pads;
        bytes.extend_from_slice(&sum.to_be_bytes()[1..4 - pads]);
    }
    Some(bytes)
}

fn base64_value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let text = "# who may\ninitiator alice  wonderland-1865\n\ntarget tank looking-glass\n";
        Secrets::parse(text).expect("they are right")
    }

    fn seven(bytes: &mut [u8]) {
        bytes.fill(7);
    }

    #[test]
    fn who_has_the_secret_is_known() {
        let secrets = secrets();
        for list in ["5", "6,7,5", "7", "0x7"] {
            let algorithm = Algorithm::choose(list).expect("one is known");
            let challenge = Challenge::new(algorithm, seven);
            let response = algorithm.response(7, "wonderland-1865", &[7; CHALLENGE_BYTES]);
            assert!(challenge.is_met(&secrets, "iqn.x:y", "alice", &encode(&response)));
            assert!(!challenge.is_met(&secrets, "iqn.x:y", "bob", &encode(&response)));
            assert!(!challenge.is_met(&secrets, "iqn.x:y", "alice", &encode(&response[1..])));
            assert!(!challenge.is_met(&secrets, "iqn.x:y", "alice", "0x"));
            assert!(!challenge.is_met(&secrets, "iqn.x:y", "alice", "wonderland-1865"));
        }
        assert_eq!(Algorithm::choose("56"), None);
        assert_eq!(Algorithm::choose(""), None);
    }

    #[test]
    fn the_digest_is_that_of_md5() {
        // MD5 of one byte, the secret and the challenge: of "abc" here.
        let response = Algorithm::Md5.response(b'a', "b", b"c");
        assert_eq!(encode(&response), "0x900150983cd24fb0d6963f7d28e17f72");
    }

    /// Computed by Python: `hashlib.sha256(b"\x2a" + b"wonderland-1865" + bytes(range(16)))`, and `md5`.
    #[test]
    fn the_digest_of_each_algorithm_is_that_of_another_implementation() {
        let challenge: Vec<u8> = (0..16).collect();
        for (algorithm, expected) in [
            (Algorithm::Md5, "0xd47c6c5dcdf00f0492a391076650212d"),
            (
                Algorithm::Sha256,
                "0xa1235b3e09a25e52685c132491b83bc0740509412c1117102de9c1e3304afeff",
            ),
        ] {
            let response = algorithm.response(0x2a, "wonderland-1865", &challenge);
            assert_eq!(encode(&response), expected);
        }
    }

    #[test]
    fn our_own_challenge_is_not_answered() {
        let secrets = secrets();
        let target = secrets.target.as_ref().expect("it has one");
        let challenge = Challenge::new(Algorithm::Md5, seven);
        let ours = encode(&challenge.bytes);
        assert_eq!(challenge.answer(target, "1", &ours), None);
        assert_eq!(challenge.answer(target, "256", "0x01"), None);
        let right = Algorithm::Md5.response(1, "looking-glass", &[1, 2]);
        assert_eq!(challenge.answer(target, "1", "0b AQI="), None);
        // An identifier is a number, which base 64 is not a form of (section 6.1).
        assert_eq!(challenge.answer(target, "0bAQ==", "0bAQI="), None);
        for identifier in ["1", "0x01", "0X1"] {
            let answer = challenge.answer(target, identifier, "0bAQI=");
            assert_eq!(answer, Some(encode(&right)));
        }
    }

    #[test]
    fn values_are_hexadecimal_or_base_64() {
        assert_eq!(decode("0x00fF", 2), Some(vec![0, 255]));
        assert_eq!(decode("0bTWFu", 3), Some(b"Man".to_vec()));
        assert_eq!(decode("0bTWE=", 3), Some(b"Ma".to_vec()));
        assert_eq!(decode("0bTQ==", 3), Some(b"M".to_vec()));
        for wrong in [
            "",
            "0",
            "0x0",
            "0xgg",
            "0bTQ=",
            "0bTQ==TWFu",
            "0b====",
            "00ff",
            "\u{e9}\u{e9}",
        ] {
            assert_eq!(decode(wrong, 8), None, "{wrong}");
        }
        assert_eq!(decode("0x0000", 1), None);
    }

    #[test]
    fn a_file_of_secrets_is_refused_by_its_line() {
        let wrong = |text: &str| Secrets::parse(text).expect_err("it is wrong");
        assert!(wrong("initiator alice short").starts_with("line 1: a secret has 12"));
        assert!(wrong("\nuser alice wonderland-1865").starts_with("line 2"));
        assert!(wrong("target a looking-glass").contains("no line"));
        assert!(wrong("initiator a looking-glass\ntarget b looking-glass").contains("secret of"));
        let text = format!("{:?}", secrets());
        assert!(!text.contains("wonderland-1865"), "secrets are not shown");
    }
}
