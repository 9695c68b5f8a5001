//! A subject in DER (RFC 5280, section 4.1.2.4) as a string of RFC 4514. What is not understood becomes
//! hexadecimal digits, as the RFC asks for, so that two names never become the same string.

use std::fmt::Write;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Attribute types with a short name (RFC 4514, section 3).
const SHORT_NAMES: [(&[u8], &str); 9] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x09], "STREET"),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19],
        "DC",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01],
        "UID",
    ),
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
    (!attributes.is_empty()).then(|| attributes.join("+"))
}

fn attribute(kind: &[u8], encoded: &[u8], common: &mut Vec<String>) -> Option<String> {
    let (tag, inner, rest) = value(encoded)?;
    if !rest.is_empty() {
        return None;
    }
    let text = match tag {
        UTF8 => std::str::from_utf8(inner).ok(),
        PRINTABLE | IA5 => std::str::from_utf8(inner)
            .ok()
            .filter(|text| text.is_ascii()),
        _ => None,
    };
    if kind == COMMON_NAME {
        // One that is no text counts and equals nothing.
        common.push(text.unwrap_or_default().to_owned());
    }
    let short = SHORT_NAMES.iter().find(|(known, _)| *known == kind);
    Some(match (short, text) {
        (Some((_, name)), Some(text)) => format!("{name}={}", escaped(text)),
        (Some((_, name)), None) => format!("{name}={}", hexadecimal(encoded)),
        (None, _) => format!("{}={}", dotted(kind)?, hexadecimal(encoded)),
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = "#".to_owned();
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
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

/// RFC 4514, section 2.4.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (nth, one) in text.chars().enumerate() {
        let special = matches!(one, '"' | '+' | ',' | ';' | '<' | '>' | '\\');
        let edge = (one == ' ' && (nth == 0 || nth == last)) || (one == '#' && nth == 0);
        match one {
            '\0' => escaped.push_str("\\00"),
            _ if special || edge => escaped.extend(['\\', one]),
            _ => escaped.push(one),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

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
            part(COMMON_NAME, UTF8, b" #x "),
        ]
        .concat();
        let expected = (
            "CN=\\ #x\\ ,O=Müller\\, S\\\\A,C=NL".to_owned(),
            vec![" #x ".to_owned()],
        );
        assert_eq!(subject(&name), Some(expected));
    }

    /// Else a value could be written so that it reads as another name.
    #[test]
    fn what_is_no_text_stays_apart_from_text() {
        let mail = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01];
        let (name, common) = subject(&part(&mail, IA5, b"a@b")).expect("a name");
        assert_eq!(
            (name.as_str(), common.len()),
            ("1.2.840.113549.1.9.1=#1603614062", 0)
        );
        let wide = part(COMMON_NAME, 0x1e, &[0, b'a']);
        let (name, common) = subject(&wide).expect("a name");
        assert_eq!(
            (name.as_str(), &common[..]),
            ("CN=#1e020061", &[String::new()][..])
        );
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_taken() {
        let name = [
            part(COMMON_NAME, UTF8, b"alice"),
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
