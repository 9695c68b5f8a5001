//! The list of all formats.

use super::format::Format;
use super::{binary, blkparse, blktrace, rtrace, text};

/// Every format that can be read, in the order in which formats are listed and tried. If two formats fit a text
/// equally well, the first is taken.
pub static FORMATS: [&Format; 16] = [
    &rtrace::FORMAT,
    &text::SPC,
    &text::MSR,
    &text::MSR_CUT,
    &text::DISKSIM,
    &text::SSDSIM,
    &blktrace::FORMAT,
    &blkparse::FORMAT,
    &binary::VSCSI,
    &binary::SRT,
    &text::FIU,
    &text::DISKMON,
    &text::FTLSIM,
    &text::LIS,
    &binary::U32LE,
    // Behind all other texts: the file names of an iolog may hold anything.
    &text::FIO,
];

impl Format {
    /// The format of a name.
    pub fn of_name(name: &str) -> Option<&'static Format> {
        FORMATS.into_iter().find(|format| format.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_leads_to_its_format_alone() {
        for (index, format) in FORMATS.into_iter().enumerate() {
            let found = FORMATS.iter().position(|other| other.name == format.name);
            assert_eq!(found, Some(index), "{}", format.name);
            assert_eq!(Format::of_name(format.name), Some(format));
        }
    }
}
