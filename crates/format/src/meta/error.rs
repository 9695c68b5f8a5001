//! Why a structure on a member is refused.

use crate::layout::GeometryError;
use core::fmt;

/// Why bytes from a member are not the structure that was looked for, or a structure cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaError {
    /// The magic is not there: blank, or something else.
    NotFound,
    /// Fewer bytes than the structure has.
    Truncated { bytes: u64, needs: u64 },
    /// The checksum does not match: torn, rotten or scribbled on.
    Checksum { stored: u32, computed: u32 },
    /// Written by a version that this one cannot read.
    Version { major: u16, supported: u16 },
    /// Uses features that this version does not know and must not ignore.
    Features { unknown: u64 },
    /// It belongs to another array.
    OtherArray,
    /// A good page in the wrong place: of another map, or of another part of it.
    Misplaced,
    /// A field holds what it never may.
    Field { name: &'static str, value: u64 },
    /// No layout can be made of its geometry.
    Geometry(GeometryError),
    /// The structure does not fit into its place.
    TooLarge {
        what: &'static str,
        count: u64,
        limit: u64,
    },
}

impl fmt::Display for MetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaError::NotFound => f.write_str("no Restripe metadata here"),
            MetaError::Truncated { bytes, needs } => {
                write!(f, "{bytes} bytes of metadata where {needs} are needed")
            }
            MetaError::Checksum { stored, computed } => {
                write!(f, "checksum is {stored:08x}, contents give {computed:08x}")
            }
            MetaError::Version { major, supported } => {
                write!(f, "format version {major}; ")?;
                write!(f, "this program reads version {supported}")
            }
            MetaError::Features { unknown } => {
                f.write_str("uses features this program does not know ")?;
                write!(f, "(bits {unknown:#x})")
            }
            MetaError::OtherArray => f.write_str("metadata of another array"),
            MetaError::Misplaced => f.write_str("a metadata page of another location"),
            MetaError::Field { name, value } => write!(f, "field {name} cannot be {value}"),
            MetaError::Geometry(error) => error.fmt(f),
            MetaError::TooLarge { what, count, limit } => {
                write!(f, "{count} {what}; at most {limit} fit")
            }
        }
    }
}

/// Shorthand for the commonest refusal.
pub fn field<T>(name: &'static str, value: u64) -> Result<T, MetaError> {
    Err(MetaError::Field { name, value })
}
