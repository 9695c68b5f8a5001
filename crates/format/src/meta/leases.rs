//! The lease table of a superblock: which parts of the array's address space are lent to other arrays.
//!
//! An array that lends has a stretch at its end set aside for leases. *Parcels* cover it from end to end, each lent or
//! free, so that nothing can overlap, nothing can lie beyond the array, and users' own space is what lies before the
//! first. Parcels begin and end with whole rows.
//!
//! An array that lends has no partner. So no array both lends and borrows, chains of leases have one link, and no array
//! can come to wait for itself.

use super::bytes::{get, get_u64, get_uuid, put, put_u64};
use super::rules::check_name;
use super::superblock::{NAME_BYTES_MAX, Superblock, at};
use super::{MetaError, field};
use crate::layout::Layout;
use crate::units::Uuid;
use alloc::vec::Vec;
use core::fmt;

pub const PARCELS_MAX: usize = 32;
pub const PARCEL_BYTES: usize = 64;

/// What a lease is called: 1 to 32 bytes without control characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseName([u8; NAME_BYTES_MAX]);

impl LeaseName {
    pub fn new(name: &str) -> Result<LeaseName, MetaError> {
        check_name(name)?;
        if name.is_empty() {
            return field("lease name", 0);
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(LeaseName(bytes))
    }

    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0);
        let name = &self.0[..length.unwrap_or(NAME_BYTES_MAX)];
        core::str::from_utf8(name).expect("made of a text")
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Space that another array may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    pub name: LeaseName,
    /// The array that has it on its own record, as far as it is known.
    pub borrower: Option<Uuid>,
}

/// A part of the stretch set aside for leases, in sectors of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parcel {
    pub start: u64,
    pub sectors: u64,
    /// `None`: it is free.
    pub lease: Option<Lease>,
}

impl Parcel {
    pub fn end(&self) -> u64 {
        self.start + self.sectors
    }
}

/// Why the table was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseError {
    /// Nothing was set aside when the array was made.
    NotLending,
    /// Something was, and so the array may not borrow.
    Lends,
    Unknown(LeaseName),
    Taken(LeaseName),
    /// The largest free parcel has so many sectors.
    NoRoom {
        largest: u64,
    },
    /// There are as many parcels as a superblock lists.
    TableFull,
    /// Another array has it on record.
    Borrowed {
        name: LeaseName,
        by: Uuid,
    },
    /// Somebody may have it on record: it cannot be told who.
    BorrowerUnknown(LeaseName),
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseError::NotLending => f.write_str("the array has no space reserved for leases"),
            LeaseError::Lends => f.write_str(
                "an array with space for leases cannot have a surrogate, to exclude cyclic dependencies",
            ),
            LeaseError::Unknown(name) => write!(f, "there is no lease {name}"),
            LeaseError::Taken(name) => write!(f, "the lease {name} exists already"),
            LeaseError::NoRoom { largest } => {
                write!(f, "the largest free part has {largest} sectors")
            }
            LeaseError::TableFull => {
                write!(f, "the maximum of {PARCELS_MAX} parts is reached")
            }
            LeaseError::Borrowed { name, by } => write!(f, "the array {by} uses the lease {name}"),
            LeaseError::BorrowerUnknown(name) => {
                write!(f, "the borrower of the lease {name} is unknown")
            }
        }
    }
}

/// What an operator, or a shell, wants of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseCommand {
    /// Lends so many sectors, rounded up to whole rows.
    Add { name: LeaseName, sectors: u64 },
    /// Takes them back. `force`: also from an array that has them on record.
    Remove { name: LeaseName, force: bool },
    /// Who has it on record has changed.
    Bind {
        name: LeaseName,
        borrower: Option<Uuid>,
    },
}

/// The last rows of an array, at least so many sectors, set aside and free. `None` if users would have nothing left, and of a
/// grown array, whose end lies in all its rows.
pub fn set_aside(layout: &Layout, sectors: u64) -> Option<Parcel> {
    if !layout.rows_are_runs() {
        return None;
    }
    let sectors = sectors.checked_next_multiple_of(layout.row_sectors())?;
    let start = layout.size_sectors().checked_sub(sectors)?;
    (start > 0 && sectors > 0).then_some(Parcel {
        start,
        sectors,
        lease: None,
    })
}

/// Lends a part of the smallest free parcel that has so many sectors, a multiple of the row's.
pub fn lend(parcels: &mut Vec<Parcel>, name: LeaseName, sectors: u64) -> Result<(), LeaseError> {
    if parcels.is_empty() {
        return Err(LeaseError::NotLending);
    }
    if place_of(parcels, name).is_some() {
        return Err(LeaseError::Taken(name));
    }
    let free = |parcel: &&Parcel| parcel.lease.is_none();
    let largest = parcels.iter().filter(free).map(|parcel| parcel.sectors);
    let largest = largest.max().unwrap_or(0);
    let fits = |(_, parcel): &(usize, &Parcel)| free(parcel) && parcel.sectors >= sectors;
    let fitting = parcels.iter().enumerate().filter(fits);
    let Some((place, parcel)) = fitting.min_by_key(|(_, parcel)| parcel.sectors) else {
        return Err(LeaseError::NoRoom { largest });
    };
    let rest = Parcel {
        start: parcel.start + sectors,
        sectors: parcel.sectors - sectors,
        lease: None,
    };
    if rest.sectors > 0 && parcels.len() >= PARCELS_MAX {
        return Err(LeaseError::TableFull);
    }
    let borrower = None;
    parcels[place].sectors = sectors;
    parcels[place].lease = Some(Lease { name, borrower });
    if rest.sectors > 0 {
        parcels.insert(place + 1, rest);
    }
    Ok(())
}

/// Frees a lease, and joins the space with free space beside it.
pub fn take_back(
    parcels: &mut Vec<Parcel>,
    name: LeaseName,
    force: bool,
) -> Result<(), LeaseError> {
    let place = place_of(parcels, name).ok_or(LeaseError::Unknown(name))?;
    let borrower = parcels[place].lease.and_then(|lease| lease.borrower);
    if let Some(by) = borrower.filter(|_| !force) {
        return Err(LeaseError::Borrowed { name, by });
    }
    parcels[place].lease = None;
    parcels.dedup_by(|next, parcel| {
        let both_free = next.lease.is_none() && parcel.lease.is_none();
        if both_free {
            parcel.sectors += next.sectors;
        }
        both_free
    });
    Ok(())
}

/// Notes who has a lease on record.
pub fn bind(
    parcels: &mut [Parcel],
    name: LeaseName,
    borrower: Option<Uuid>,
) -> Result<(), LeaseError> {
    let place = place_of(parcels, name).ok_or(LeaseError::Unknown(name))?;
    parcels[place].lease = Some(Lease { name, borrower });
    Ok(())
}

fn place_of(parcels: &[Parcel], name: LeaseName) -> Option<usize> {
    let is_it = |parcel: &Parcel| parcel.lease.is_some_and(|lease| lease.name == name);
    parcels.iter().position(is_it)
}

// ------------------------------------------------------------------------------------------------------- the codec

pub(super) fn put_parcel(bytes: &mut [u8], parcel: &Parcel) {
    put_u64(bytes, at::PARCEL_START, parcel.start);
    put_u64(bytes, at::PARCEL_SECTORS, parcel.sectors);
    if let Some(lease) = &parcel.lease {
        let borrower = lease.borrower.unwrap_or(Uuid::NIL);
        put(bytes, at::PARCEL_BORROWER, borrower.0);
        put(bytes, at::PARCEL_NAME, lease.name.0);
    }
}

/// A parcel without a name is free, and has no borrower.
pub(super) fn get_parcel(bytes: &[u8]) -> Result<Parcel, MetaError> {
    let borrower = get_uuid(bytes, at::PARCEL_BORROWER);
    let borrower = (borrower != Uuid::NIL).then_some(borrower);
    let start = get_u64(bytes, at::PARCEL_START);
    let lease = get_name(bytes)?.map(|name| Lease { name, borrower });
    if lease.is_none() && borrower.is_some() {
        return field("borrower of free space", start);
    }
    Ok(Parcel {
        start,
        sectors: get_u64(bytes, at::PARCEL_SECTORS),
        lease,
    })
}

fn get_name(bytes: &[u8]) -> Result<Option<LeaseName>, MetaError> {
    let padded: [u8; NAME_BYTES_MAX] = get(bytes, at::PARCEL_NAME);
    let length = padded.iter().position(|byte| *byte == 0);
    let (name, padding) = padded.split_at(length.unwrap_or(NAME_BYTES_MAX));
    if padding.iter().any(|byte| *byte != 0) {
        return field("lease name", name.len() as u64);
    }
    match core::str::from_utf8(name) {
        Ok("") => Ok(None),
        Ok(name) => LeaseName::new(name).map(Some),
        Err(error) => field("lease name", error.valid_up_to() as u64),
    }
}

// ------------------------------------------------------------------------------------------------------- the rules

/// Parcels of whole rows cover the end of the array without gap or overlap, users have something before them, no name
/// is there twice, and the array is nobody's partner.
pub(super) fn check(superblock: &Superblock, layout: &Layout) -> Result<(), MetaError> {
    let parcels = &superblock.lent;
    let (Some(first), Some(last)) = (parcels.first(), parcels.last()) else {
        return Ok(());
    };
    if superblock.partner.is_some() {
        return field("partner of an array that lends", parcels.len() as u64);
    }
    if !layout.rows_are_runs() {
        return field("leases of a grown array", parcels.len() as u64);
    }
    let mut end = first.start;
    for (place, parcel) in parcels.iter().enumerate() {
        check_parcel(parcel, end, layout)?;
        end = parcel.end();
        let named = parcel.lease.map(|lease| lease.name);
        if named.is_some_and(|name| place_of(&parcels[..place], name).is_some()) {
            return field("lease named twice", parcel.start);
        }
    }
    if first.start == 0 || last.end() != layout.size_sectors() {
        return field("end of leases", last.end());
    }
    Ok(())
}

fn check_parcel(parcel: &Parcel, start: u64, layout: &Layout) -> Result<(), MetaError> {
    let row = layout.row_sectors();
    let whole = parcel.start.is_multiple_of(row) && parcel.sectors.is_multiple_of(row);
    if parcel.start != start || !whole {
        return field("lease start", parcel.start);
    }
    let end = parcel.start.checked_add(parcel.sectors);
    if parcel.sectors == 0 || end.is_none_or(|end| end > layout.size_sectors()) {
        return field("lease sectors", parcel.sectors);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::create::create;
    use super::super::testing::{Random, options, uuid};
    use super::*;
    use crate::layout::Level;
    use alloc::format;
    use alloc::vec;

    fn name(text: &str) -> LeaseName {
        LeaseName::new(text).expect("a name")
    }

    /// A mirror of 8-sector rows that lends its last 800 sectors.
    fn lender() -> Superblock {
        let mut options = options(Level::Raid1, 2, 40_000);
        options.lend_sectors = Some(797);
        create(&options).expect("sound options").superblock
    }

    fn layout(superblock: &Superblock) -> Layout {
        Layout::new(superblock.geometry).expect("a sound geometry")
    }

    fn checked(superblock: &Superblock) -> Result<(), MetaError> {
        check(superblock, &layout(superblock))
    }

    #[test]
    fn space_is_set_aside_in_whole_rows() {
        let made = lender();
        let size = layout(&made).size_sectors();
        let aside = Parcel {
            start: size - 800,
            sectors: 800,
            lease: None,
        };
        assert_eq!(made.lent, [aside]);
        for too_much in [size, size - 7, u64::MAX] {
            assert_eq!(set_aside(&layout(&made), too_much), None);
        }
        assert_eq!(set_aside(&layout(&made), 0), None);
    }

    #[test]
    fn leases_are_lent_and_taken_back_in_any_order() {
        let mut random = Random::new(20);
        let mut held: Vec<LeaseName> = Vec::new();
        let mut superblock = lender();
        for number in 0..2000 {
            if held.is_empty() || random.flag() {
                let lent = name(&format!("l{number}"));
                match lend(&mut superblock.lent, lent, 8 * (1 + random.below(20))) {
                    Ok(()) => held.push(lent),
                    Err(LeaseError::NoRoom { .. } | LeaseError::TableFull) => {}
                    Err(error) => unreachable!("{error}"),
                }
            } else {
                let lent = held.swap_remove(random.below(held.len() as u64) as usize);
                take_back(&mut superblock.lent, lent, false).expect("nobody has it");
            }
            checked(&superblock).expect("it stays sound");
            let free_beside = |pair: &[Parcel]| pair.iter().all(|one| one.lease.is_none());
            assert!(!superblock.lent.windows(2).any(free_beside));
        }
        for lent in held {
            take_back(&mut superblock.lent, lent, false).expect("nobody has it");
        }
        assert_eq!(superblock.lent, lender().lent);
    }

    #[test]
    fn no_more_is_lent_than_there_is() {
        let mut parcels = lender().lent;
        let largest = 800;
        assert_eq!(
            lend(&mut parcels, name("a"), 808),
            Err(LeaseError::NoRoom { largest })
        );
        lend(&mut parcels, name("a"), 800).expect("all of it");
        assert_eq!(
            lend(&mut parcels, name("a"), 8),
            Err(LeaseError::Taken(name("a")))
        );
        let largest = 0;
        assert_eq!(
            lend(&mut parcels, name("b"), 8),
            Err(LeaseError::NoRoom { largest })
        );
        assert_eq!(
            lend(&mut Vec::new(), name("b"), 8),
            Err(LeaseError::NotLending)
        );
    }

    #[test]
    fn what_is_borrowed_is_taken_back_by_force_only() {
        let mut parcels = lender().lent;
        lend(&mut parcels, name("a"), 8).expect("room");
        bind(&mut parcels, name("a"), Some(uuid(3))).expect("it is there");
        let by = uuid(3);
        let borrowed = LeaseError::Borrowed {
            name: name("a"),
            by,
        };
        assert_eq!(take_back(&mut parcels, name("a"), false), Err(borrowed));
        take_back(&mut parcels, name("a"), true).expect("by force");
        assert_eq!(parcels, lender().lent);
        let unknown = Err(LeaseError::Unknown(name("a")));
        assert_eq!(take_back(&mut parcels, name("a"), true), unknown);
        assert_eq!(bind(&mut parcels, name("a"), None), unknown);
    }

    #[test]
    fn unsound_tables_are_refused() {
        let mut sound = lender();
        lend(&mut sound.lent, name("a"), 80).expect("room");
        lend(&mut sound.lent, name("b"), 80).expect("room");
        checked(&sound).expect("it is sound");
        type Change = (&'static str, fn(&mut Superblock));
        let changes: [Change; 9] = [
            ("overlap", |s| s.lent[1].start -= 8),
            ("gap", |s| s.lent[1].start += 8),
            ("half a row", |s| {
                s.lent.iter_mut().for_each(|one| one.start += 4)
            }),
            ("beyond the end", |s| s.lent[2].sectors += 8),
            ("far beyond the end", |s| s.lent[2].sectors = u64::MAX - 7),
            ("short of the end", |s| s.lent.truncate(2)),
            ("empty", |s| s.lent[1].sectors = 0),
            ("all of it", |s| {
                s.lent[0].sectors += s.lent[0].start;
                s.lent[0].start = 0;
            }),
            ("named twice", |s| s.lent[1].lease = s.lent[0].lease),
        ];
        for (what, change) in changes {
            let mut unsound = sound.clone();
            change(&mut unsound);
            assert!(checked(&unsound).is_err(), "{what}");
            assert!(unsound.encode().is_err(), "{what}");
        }
    }

    #[test]
    fn hostile_names_and_borrowers_are_refused() {
        let parcel = Parcel {
            start: 8,
            sectors: 8,
            lease: Some(Lease {
                name: name("log"),
                borrower: None,
            }),
        };
        let mut bytes = vec![0; PARCEL_BYTES];
        put_parcel(&mut bytes, &parcel);
        assert_eq!(get_parcel(&bytes), Ok(parcel));
        for (place, byte) in [(1, 7), (1, 0x7f), (1, 0xff), (1, 0), (20, b'x')] {
            let mut hostile = bytes.clone();
            hostile[at::PARCEL_NAME + place] = byte;
            assert!(get_parcel(&hostile).is_err(), "byte {place} is {byte}");
        }
        bytes[at::PARCEL_NAME..].fill(0);
        bytes[at::PARCEL_BORROWER] = 1;
        assert!(get_parcel(&bytes).is_err(), "free, and borrowed");
        for text in ["", "a\tb", &"x".repeat(33)] {
            assert!(LeaseName::new(text).is_err(), "{text:?}");
        }
        assert_eq!(name(&"x".repeat(32)).as_str().len(), 32);
    }

    #[test]
    fn who_lends_has_no_partner() {
        let mut superblock = lender();
        superblock.partner = Some(super::super::Partner::new(
            super::super::PartnerRole::Main,
            uuid(7),
        ));
        assert!(superblock.encode().is_err());
    }
}
