//! What is taken from a certificate in DER (RFC 5280, section 4.1).
//!
//! - Its subject as a string of RFC 4514, in the form of `openssl x509 -subject -nameopt RFC2253`: with bytes
//!   above 0x7f and control characters as `\XX`. An attribute that is not known, or is no text, becomes
//!   hexadecimal digits, so that two names never become the same string.
//! - Within which time it is valid.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const NUMERIC: u8 = 0x12;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VISIBLE: u8 = 0x1a;
const VERSION: u8 = 0xa0;

const COMMON_NAME: &str = "CN";

/// Attribute types with a short name: those of RFC 4514, section 3, and openssl's.
const SHORT_NAMES: [(&str, &str); 31] = [
    ("2.5.4.3", COMMON_NAME),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.16", "postalAddress"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.18", "postOfficeBox"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.45", "x500UniqueIdentifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// A value with its tag, and the rest.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            (length, rest)
        }
        _ => return None,
    };
    let (inner, rest) = rest.split_at_checked(length)?;
    Some((tag, inner, rest))
}

fn expected(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, inner, rest) = value(bytes)?;
    (found == tag).then_some((inner, rest))
}

/// The subject as a string, and its common names. `rest` is the content of the outer sequence. `None`: it is
/// no name.
pub fn subject(mut rest: &[u8]) -> Option<(String, Vec<String>)> {
    let (mut parts, mut common) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (set, after) = expected(SET, rest)?;
        parts.push(relative_name(set, &mut common)?);
        rest = after;
    }
    parts.reverse();
    Some((parts.join(","), common))
}

/// One part of a name: usually one attribute.
fn relative_name(mut set: &[u8], common: &mut Vec<String>) -> Option<String> {
    let mut attributes = Vec::new();
    while !set.is_empty() {
        let (pair, after) = expected(SEQUENCE, set)?;
        let (kind, encoded) = expected(OBJECT, pair)?;
        attributes.push(attribute(kind, encoded, common)?);
        set = after;
    }
    // The last first, as the parts.
    attributes.reverse();
    (!attributes.is_empty()).then(|| attributes.join("+"))
}

fn attribute(kind: &[u8], encoded: &[u8], common: &mut Vec<String>) -> Option<String> {
    let (tag, inner, rest) = value(encoded)?;
    if !rest.is_empty() {
        return None;
    }
    let text = match tag {
        UTF8 => std::str::from_utf8(inner).ok(),
        PRINTABLE | IA5 | NUMERIC | VISIBLE => std::str::from_utf8(inner)
            .ok()
            .filter(|text| text.is_ascii()),
        _ => None,
    };
    let number = dotted(kind)?;
    let short = SHORT_NAMES.iter().find(|(known, _)| *known == number);
    let name = short.map(|(_, name)| *name);
    if name == Some(COMMON_NAME) {
        // One that is no text counts and equals nothing.
        common.push(text.unwrap_or_default().to_owned());
    }
    let value = text.filter(|_| name.is_some()).map(escaped);
    let value = value.unwrap_or_else(|| hexadecimal(encoded));
    Some(format!("{}={value}", name.unwrap_or(&number)))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = "#".to_owned();
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

/// An object identifier in numbers and dots.
fn dotted(kind: &[u8]) -> Option<String> {
    let (mut text, mut number, mut first) = (String::new(), 0u64, true);
    for &byte in kind {
        number = number.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if first {
            let root = (number / 40).min(2);
            text = format!("{root}.{}", number - 40 * root);
            first = false;
        } else {
            let _ = write!(text, ".{number}");
        }
        number = 0;
    }
    (!first).then_some(text)
}

/// Within which all these certificates are valid. Of one that is not understood, without an end.
pub(super) fn validity(chain: &[impl AsRef<[u8]>]) -> (SystemTime, SystemTime) {
    let known = chain.iter().filter_map(|one| times(one.as_ref()));
    let end = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    known.fold((UNIX_EPOCH, end), |(from, until), (first, last)| {
        (from.max(first), until.min(last))
    })
}

/// The times of a certificate (RFC 5280, section 4.1.2.5).
fn times(certificate: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let (certificate, _) = expected(SEQUENCE, certificate)?;
    let (mut rest, _) = expected(SEQUENCE, certificate)?;
    if rest.first() == Some(&VERSION) {
        rest = value(rest)?.2;
    }
    // The serial number, the algorithm of the signature, and the authority.
    for _ in 0..3 {
        rest = value(rest)?.2;
    }
    let (both, _) = expected(SEQUENCE, rest)?;
    let (tag, first, rest) = value(both)?;
    let first = time(tag, first)?;
    let (tag, last, _) = value(rest)?;
    Some((first, time(tag, last)?))
}

/// `YYMMDDHHMMSSZ`, from 1950 on, or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let digits = text.strip_suffix(b"Z")?;
    let known = matches!((tag, digits.len()), (UTC_TIME, 12) | (GENERALIZED_TIME, 14));
    if !known || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let pairs: Vec<u64> = digits
        .chunks(2)
        .map(|pair| u64::from(pair[0] - b'0') * 10 + u64::from(pair[1] - b'0'))
        .collect();
    let (year, rest) = match (tag, &pairs[..]) {
        (UTC_TIME, [year, rest @ ..]) if *year >= 50 => (1900 + year, rest),
        (UTC_TIME, [year, rest @ ..]) => (2000 + year, rest),
        (_, [century, year, rest @ ..]) => (century * 100 + year, rest),
        _ => return None,
    };
    let &[month @ 1..=12, day @ 1..=31, hour, minute, second] = rest else {
        return None;
    };
    // From March on, so that a leap day ends a year.
    let year = year.checked_sub(u64::from(month <= 2))?;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + of_year;
    let seconds = (days.checked_sub(719_468)? * 24 + hour) * 3600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// RFC 4514, section 2.4, and nothing but printable ASCII.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (nth, one) in text.chars().enumerate() {
        let special = matches!(one, '"' | '+' | ',' | ';' | '<' | '>' | '\\');
        let edge = (one == ' ' && (nth == 0 || nth == last)) || (one == '#' && nth == 0);
        match one {
            _ if special || edge => escaped.extend(['\\', one]),
            ' '..='~' => escaped.push(one),
            _ => one.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| {
                let _ = write!(escaped, "\\{byte:02X}");
            }),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const CN: [u8; 3] = [0x55, 0x04, 0x03];

    fn tlv(tag: u8, inner: &[u8]) -> Vec<u8> {
        [&[tag, inner.len() as u8], inner].concat()
    }

    fn part(kind: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        let pair = [tlv(OBJECT, kind), tlv(tag, text)].concat();
        tlv(SET, &tlv(SEQUENCE, &pair))
    }

    #[test]
    fn names_are_printed_last_part_first_and_escaped() {
        let name = [
            part(&[0x55, 0x04, 0x06], PRINTABLE, b"NL"),
            part(&[0x55, 0x04, 0x0a], UTF8, "Müller, S\\A".as_bytes()),
            part(&CN, UTF8, b" #x "),
        ]
        .concat();
        let expected = (
            "CN=\\ #x\\ ,O=M\\C3\\BCller\\, S\\\\A,C=NL".to_owned(),
            vec![" #x ".to_owned()],
        );
        assert_eq!(subject(&name), Some(expected));
    }

    /// Else a value could be written so that it reads as another name.
    #[test]
    fn what_is_no_text_stays_apart_from_text() {
        let unknown = [0x2a, 3, 4, 5];
        let (name, common) = subject(&part(&unknown, IA5, b"a@b")).expect("a name");
        assert_eq!((name.as_str(), common.len()), ("1.2.3.4.5=#1603614062", 0));
        let wide = part(&CN, 0x1e, &[0, b'a']);
        let (name, common) = subject(&wide).expect("a name");
        assert_eq!(
            (name.as_str(), &common[..]),
            ("CN=#1E020061", &[String::new()][..])
        );
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let seconds = |tag, text: &[u8]| {
            let since = time(tag, text)?.duration_since(UNIX_EPOCH);
            Some(since.expect("later").as_secs())
        };
        for (tag, text, expected) in [
            (UTC_TIME, &b"700101000000Z"[..], Some(0)),
            (UTC_TIME, b"000229235959Z", Some(951_868_799)),
            (UTC_TIME, b"491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, b"20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, b"99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, b"500101000000Z", None),
            (UTC_TIME, b"20500101000000Z", None),
            (GENERALIZED_TIME, b"00000101000000Z", None),
            (UTC_TIME, b"701301000000Z", None),
            (UTC_TIME, b"7001010000Z", None),
            (UTC_TIME, b"7001010000+1Z", None),
        ] {
            assert_eq!(seconds(tag, text), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_taken() {
        let name = [
            part(&CN, UTF8, b"alice"),
            part(&[0x55, 0x04, 0x0a], UTF8, b"x"),
        ]
        .concat();
        for cut in 0..name.len() {
            let _ = subject(&name[..cut]);
            for bit in 0..8 {
                let mut broken = name.clone();
                broken[cut] ^= 1 << bit;
                let _ = subject(&broken);
            }
        }
        assert_eq!(subject(&name[..name.len() - 1]), None);
        assert_eq!(subject(&[]), Some((String::new(), Vec::new())));
    }
}
