//! Reservations as text, for a file that outlives the daemon. The last line is a checksum of all before it.
//!
//! ```text
//! restripe reservations 1
//! key 000000000000abcd 8000ff000001 iqn.2026-11.org.example:one
//! holds 5 8000ff000001 iqn.2026-11.org.example:one
//! crc32c 1f2e3d4c
//! ```

use super::reserve::{Held, Initiator, Reservations, is_type};
use restripe_code::crc32c;

const FIRST_LINE: &str = "restripe reservations 1";

impl Reservations {
    pub(super) fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (who, key) in &self.keys {
            text += &format!("key {key:016x} {}\n", initiator(who));
        }
        if let Some(held) = &self.held {
            text += &format!("holds {} {}\n", held.kind, initiator(&held.holder));
        }
        let sum = crc32c(0, text.as_bytes());
        text + &format!("crc32c {sum:08x}\n")
    }

    /// What was encoded. The error says what is wrong.
    pub(super) fn decode(text: &str) -> Result<Reservations, String> {
        let cut = || "it is cut off".to_owned();
        let all = text.strip_suffix('\n').ok_or_else(cut)?;
        let (body, sum) = all.rsplit_once('\n').ok_or_else(cut)?;
        let body = &text[..body.len() + 1];
        if sum != format!("crc32c {:08x}", crc32c(0, body.as_bytes())) {
            return Err("the checksum is wrong".to_owned());
        }
        let mut lines = body.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(format!("the first line is not \"{FIRST_LINE}\""));
        }
        let mut reservations = Reservations {
            kept: true,
            ..Reservations::default()
        };
        for line in lines {
            reservations
                .add(line)
                .ok_or_else(|| format!("{line:?} is no line of it"))?;
        }
        Ok(reservations)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let (kind, number) = (words.next()?, words.next()?);
        let who = Initiator {
            isid: isid(words.next()?)?,
            name: words.next()?.to_owned(),
        };
        match (kind, words.next()) {
            ("key", None) => self.keys.push((who, u64::from_str_radix(number, 16).ok()?)),
            ("holds", None) if self.held.is_none() => {
                let kind = number.parse().ok().filter(|kind| is_type(*kind))?;
                self.held = Some(Held { holder: who, kind });
            }
            _ => return None,
        }
        Some(())
    }
}

fn initiator(who: &Initiator) -> String {
    format!("{} {}", who.isid_digits(), who.name)
}

fn isid(digits: &str) -> Option<[u8; 6]> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    let [0, 0, isid @ ..] = number.to_be_bytes() else {
        return None;
    };
    (digits.len() == 12).then_some(isid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Reservations {
        let who = |number: u8| Initiator {
            name: format!("iqn.2026-11.test:{number}"),
            isid: [0x80, 0, 0xff, 0, 0, number],
        };
        Reservations {
            keys: vec![(who(1), 0xabcd), (who(2), u64::MAX)],
            held: Some(Held {
                holder: who(2),
                kind: 5,
            }),
            kept: true,
            ..Reservations::default()
        }
    }

    #[test]
    fn what_is_kept_is_what_there_was() {
        for reservations in [Reservations::default(), some()] {
            let text = reservations.encode();
            let read = Reservations::decode(&text).expect("it is right");
            assert_eq!(
                (&read.keys, &read.held),
                (&reservations.keys, &reservations.held)
            );
            assert!(read.kept);
        }
    }

    #[test]
    fn what_was_damaged_is_refused() {
        let text = some().encode();
        for cut in 0..text.len() {
            assert!(Reservations::decode(&text[..cut]).is_err(), "{cut}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let damaged = String::from_utf8(bytes).expect("still text");
            assert!(Reservations::decode(&damaged).is_err(), "{at}");
        }
        let line = |line: &str| {
            let body = format!("{FIRST_LINE}\n{line}\n");
            let sum = crc32c(0, body.as_bytes());
            Reservations::decode(&format!("{body}crc32c {sum:08x}\n"))
        };
        let name = "8000ff000001 iqn.x:y";
        assert!(line(&format!("key 1 {name}")).is_ok());
        for wrong in [
            format!("key x {name}"),
            format!("key 1 {name} more"),
            "key 1 8000ff iqn.x:y".to_owned(),
            format!("holds 2 {name}"),
            format!("lock 1 {name}"),
            "key 1".to_owned(),
            String::new(),
        ] {
            assert!(line(&wrong).is_err(), "{wrong:?}");
        }
    }
}
