//! Mode pages: what an initiator may read and set of a logical unit (SPC-4 section 7.5, SBC-3 section 6.4).

use super::answer::BLOCK_BYTES;
use super::cdb::ModeSense;
use super::sense::{self, Sense};

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
/// Every page, ascending.
const PAGES: [u8; 3] = [CACHING, CONTROL, EXCEPTIONS];

/// Writes may be acknowledged before they are durable (WCE). It cannot be changed: a setting that ends with
/// the daemon, or with a reset, is no promise.
const WRITE_CACHE: u8 = 0x04;
/// Bits that can be changed: the format of sense data (D_SENSE), and write protection (SWP).
const DESCRIPTOR_SENSE: u8 = 0x04;
const WRITE_PROTECT: u8 = 0x08;

/// What initiators have set. It holds for all of them, until the daemon ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Settings {
    pub(crate) descriptor_sense: bool,
    pub(crate) write_protect: bool,
}

impl Settings {
    fn page(self, page: u8) -> Vec<u8> {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        match page {
            CACHING => {
                let mut data = vec![0; 20];
                (data[0], data[1]) = (CACHING, 18);
                data[2] = WRITE_CACHE;
                data
            }
            CONTROL => {
                let mut data = vec![0; 12];
                (data[0], data[1]) = (CONTROL, 10);
                data[2] = flag(self.descriptor_sense, DESCRIPTOR_SENSE);
                // Commands may be reordered without restriction.
                data[3] = 0x10;
                data[4] = flag(self.write_protect, WRITE_PROTECT);
                data
            }
            _ => {
                let mut data = vec![0; 12];
                // Exceptions are not reported (DEXCPT).
                (data[0], data[1], data[2]) = (EXCEPTIONS, 10, 0x08);
                data
            }
        }
    }

    /// A page as another setting would have it, taken from the bytes of a page.
    fn set(&mut self, page: &[u8]) {
        if page[0] & 0x3f == CONTROL {
            self.descriptor_sense = page[2] & DESCRIPTOR_SENSE != 0;
            self.write_protect = page[4] & WRITE_PROTECT != 0;
        }
    }
}

/// The bits of a page that can be changed.
fn changeable(page: u8) -> Vec<u8> {
    let mut data = Settings::default().page(page);
    data[2..].fill(0);
    if page == CONTROL {
        (data[2], data[4]) = (DESCRIPTOR_SENSE, WRITE_PROTECT);
    }
    data
}

/// What mode data says of the unit apart from its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Medium {
    pub(crate) blocks: u64,
    pub(crate) read_only: bool,
    pub(crate) durable: bool,
}

/// The answer to MODE SENSE.
pub(crate) fn sense(
    query: &ModeSense,
    settings: Settings,
    medium: Medium,
) -> Result<Vec<u8>, Sense> {
    if query.control == 3 {
        return Err(sense::NO_SAVED_PAGES);
    }
    if !matches!(query.subpage, 0 | ALL_SUBPAGES) {
        return Err(sense::INVALID_FIELD);
    }
    let wanted = |page: &u8| query.page == ALL || query.page == *page;
    let pages: Vec<u8> = PAGES
        .into_iter()
        .filter(wanted)
        .flat_map(|page| match query.control {
            1 => changeable(page),
            2 => Settings::default().page(page),
            _ => settings.page(page),
        })
        .collect();
    if pages.is_empty() {
        return Err(sense::INVALID_FIELD);
    }
    let descriptor = match query.bare {
        true => Vec::new(),
        false => block_descriptor(medium.blocks),
    };
    let specific = if medium.read_only { 0x80 } else { 0 } | if medium.durable { 0x10 } else { 0 };
    let mut data = match query.long {
        true => {
            let length = (6 + descriptor.len() + pages.len()) as u16;
            let [high, low] = length.to_be_bytes();
            vec![high, low, 0, specific, 0, 0, 0, descriptor.len() as u8]
        }
        false => {
            let length = 3 + descriptor.len() + pages.len();
            vec![length as u8, 0, specific, descriptor.len() as u8]
        }
    };
    data.extend(descriptor);
    data.extend(pages);
    Ok(data)
}

fn block_descriptor(blocks: u64) -> Vec<u8> {
    let mut data = u32::try_from(blocks)
        .unwrap_or(u32::MAX)
        .to_be_bytes()
        .to_vec();
    data.extend_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
    data
}

/// The settings after a MODE SELECT with these parameters. Bits that cannot be changed must be as they are.
pub(crate) fn select(list: &[u8], long: bool, settings: Settings) -> Result<Settings, Sense> {
    if list.is_empty() {
        return Ok(settings);
    }
    let header = if long { 8 } else { 4 };
    let wrong_length = sense::PARAMETER_LIST_LENGTH;
    let head = list.get(..header).ok_or(wrong_length)?;
    let descriptors = match long {
        true => usize::from(u16::from_be_bytes([head[6], head[7]])),
        false => usize::from(head[3]),
    };
    let mut rest = list.get(header + descriptors..).ok_or(wrong_length)?;
    if !matches!(descriptors, 0 | 8) {
        return Err(sense::INVALID_PARAMETER);
    }
    let mut changed = settings;
    while let [code, length, ..] = *rest {
        let page = rest.get(..2 + usize::from(length)).ok_or(wrong_length)?;
        select_page(page, code, settings, &mut changed)?;
        rest = &rest[page.len()..];
    }
    match rest.is_empty() {
        true => Ok(changed),
        false => Err(wrong_length),
    }
}

fn select_page(page: &[u8], code: u8, now: Settings, changed: &mut Settings) -> Result<(), Sense> {
    let code = code & 0x7f;
    if !PAGES.contains(&code) {
        return Err(sense::INVALID_PARAMETER);
    }
    let (current, may) = (now.page(code), changeable(code));
    if page.len() != current.len() {
        return Err(sense::INVALID_PARAMETER);
    }
    let fixed = |at: &usize| (page[*at] ^ current[*at]) & !may[*at] == 0;
    if !(2..page.len()).all(|at| fixed(&at)) {
        return Err(sense::INVALID_PARAMETER);
    }
    changed.set(page);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(page: u8, control: u8) -> ModeSense {
        ModeSense {
            long: false,
            bare: true,
            control,
            page,
            subpage: 0,
            length: 255,
        }
    }

    const MEDIUM: Medium = Medium {
        blocks: 1 << 33,
        read_only: false,
        durable: true,
    };

    #[test]
    fn what_was_set_is_read_back() {
        let settings = Settings::default();
        let mut list = sense(&query(CONTROL, 0), settings, MEDIUM).expect("it is there");
        list[4 + 4] |= WRITE_PROTECT;
        let changed = select(&list, false, settings).expect("it can be changed");
        assert!(changed.write_protect && !changed.descriptor_sense);
        let medium = Medium {
            read_only: true,
            ..MEDIUM
        };
        let read = sense(&query(CONTROL, 0), changed, medium).expect("it is there");
        assert_eq!((read[4 + 4], read[2]), (WRITE_PROTECT, 0x90));
    }

    #[test]
    fn what_cannot_be_changed_is_refused() {
        let settings = Settings::default();
        let list = sense(&query(CACHING, 0), settings, MEDIUM).expect("it is there");
        assert_eq!(select(&list, false, settings), Ok(settings), "as it is");
        assert_eq!(list[4 + 2], WRITE_CACHE);
        // Without the write cache each write would have to be durable, also after a reset and a restart.
        for bit in [0x01, WRITE_CACHE] {
            let mut list = list.clone();
            list[4 + 2] ^= bit;
            let refused = select(&list, false, settings);
            assert_eq!(refused, Err(sense::INVALID_PARAMETER));
        }
        let may = sense(&query(CACHING, 1), settings, MEDIUM).expect("it is there");
        assert_eq!(may[4 + 2..], [0; 18]);
        let saved = sense(&query(CACHING, 3), settings, MEDIUM);
        assert_eq!(saved, Err(sense::NO_SAVED_PAGES));
    }

    #[test]
    fn any_list_cut_anywhere_is_set_or_refused() {
        let settings = Settings::default();
        let list = sense(&query(ALL, 0), settings, MEDIUM).expect("they are there");
        for cut in 0..list.len() {
            for value in [0, 1, 0xff] {
                let mut list = list[..cut].to_vec();
                list.iter_mut().step_by(3).for_each(|byte| *byte = value);
                let _ = select(&list, false, settings);
                let _ = select(&list, true, settings);
            }
        }
    }
}
