//! The arrays that are compared: every level and rotation that md and Restripe share, in several shapes.

/// Where data starts on every member, for both.
pub const DATA_OFFSET_KIB: u64 = 1024;
/// What each array uses of a member: an odd number of chunks of 64 KiB, so that RAID-10 on an odd number of members
/// ends with a chunk that has no partner, and enough for every rotation to come round.
const SIZE_KIB: u64 = 1088;
/// With chunks of 128 KiB: 9 of them.
const SIZE_LARGE_CHUNKS_KIB: u64 = 1152;
pub const MEMBER_KIB: u64 = 2560;

const ROTATIONS: [&str; 6] = [
    "left-symmetric",
    "left-asymmetric",
    "right-symmetric",
    "right-asymmetric",
    "parity-first",
    "parity-last",
];

/// One array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    /// 0, 1, 4, 5, 6 or 10.
    pub level: u64,
    /// For levels 5 and 6.
    pub rotation: Option<&'static str>,
    /// Of each chunk: above 1 for levels 1 and 10.
    pub copies: u64,
    pub members: u64,
    pub chunk_kib: u64,
    pub size_kib: u64,
    /// As `restripe create --init` takes it.
    pub init: &'static str,
    /// As `restripe create --write-hole` takes it; its own choice otherwise.
    pub write_hole: Option<&'static str>,
}

impl Case {
    fn new(level: u64, members: u64, chunk_kib: u64) -> Case {
        let size_kib = match chunk_kib {
            ..=64 => SIZE_KIB,
            _ => SIZE_LARGE_CHUNKS_KIB,
        };
        let copies = if level == 1 { members } else { 1 };
        Case {
            name: format!("raid{level}-{members}-{chunk_kib}k"),
            level,
            rotation: None,
            copies,
            members,
            chunk_kib,
            size_kib,
            init: "zero",
            write_hole: None,
        }
    }

    fn rotation(mut self, rotation: &'static str) -> Case {
        self.name = format!("{}-{rotation}", self.name);
        self.rotation = Some(rotation);
        self
    }

    fn copies(mut self, copies: u64) -> Case {
        self.name = format!("{}-near{copies}", self.name);
        self.copies = copies;
        self
    }

    fn init(mut self, init: &'static str) -> Case {
        self.name = format!("{}-{init}", self.name);
        self.init = init;
        self
    }

    fn write_hole(mut self, write_hole: &'static str) -> Case {
        self.name = format!("{}-{write_hole}", self.name);
        self.write_hole = Some(write_hole);
        self
    }

    /// What users see.
    pub fn array_bytes(&self) -> usize {
        let slot_chunks = self.size_kib / self.chunk_kib;
        let chunks = match self.level {
            0 => slot_chunks * self.members,
            1 => slot_chunks,
            4 | 5 => slot_chunks * (self.members - 1),
            6 => slot_chunks * (self.members - 2),
            _ => slot_chunks * self.members / self.copies,
        };
        let bytes = chunks * self.chunk_kib * 1024;
        usize::try_from(bytes).expect("a few MiB")
    }

    /// How many members may be lost, whichever they are.
    pub fn tolerance(&self) -> u64 {
        match self.level {
            0 => 0,
            4 | 5 => 1,
            6 => 2,
            _ => self.copies - 1,
        }
    }

    /// What `mdadm --layout` takes, `-` for none.
    pub fn md_layout(&self) -> String {
        match (self.level, self.rotation) {
            (10, _) => format!("n{}", self.copies),
            (_, Some(rotation)) => rotation.into(),
            _ => "-".into(),
        }
    }

    /// The slots that are lost one after the other, different from case to case.
    pub fn victims(&self, nth_case: usize) -> Vec<u64> {
        let first = nth_case as u64 % self.members;
        (0..self.tolerance())
            .map(|nth| (first + nth) % self.members)
            .collect()
    }
}

/// Every case, in the order in which they run.
pub fn all() -> Vec<Case> {
    let mut cases = vec![
        Case::new(0, 4, 64),
        Case::new(1, 2, 64),
        Case::new(1, 3, 64),
        Case::new(4, 5, 64),
        Case::new(4, 3, 16),
    ];
    for level in [5, 6] {
        cases.extend(ROTATIONS.map(|rotation| Case::new(level, 5, 64).rotation(rotation)));
    }
    let symmetric = |level, members, chunk| Case::new(level, members, chunk).rotation(ROTATIONS[0]);
    cases.extend([
        symmetric(5, 3, 4),
        symmetric(5, 4, 128),
        symmetric(5, 8, 32),
        symmetric(5, 5, 64).init("sync"),
        symmetric(5, 5, 64).init("lazy"),
        symmetric(5, 5, 64).write_hole("bitmap"),
        symmetric(6, 4, 4),
        symmetric(6, 8, 128),
        symmetric(6, 7, 16).init("sync"),
        symmetric(6, 6, 64).init("lazy"),
        symmetric(6, 5, 64).write_hole("bitmap"),
        Case::new(10, 2, 64).copies(2),
        Case::new(10, 3, 4).copies(2),
        Case::new(10, 4, 64).copies(2),
        Case::new(10, 5, 64).copies(2),
        Case::new(10, 7, 128).copies(2),
        Case::new(10, 5, 64).copies(3),
        Case::new(10, 5, 64).copies(2).init("lazy"),
    ]);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_tell_the_cases_apart() {
        let cases = all();
        let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn every_array_fits_its_members() {
        for case in all() {
            assert_eq!(case.size_kib % case.chunk_kib, 0, "{}", case.name);
            assert!(
                DATA_OFFSET_KIB + case.size_kib <= MEMBER_KIB,
                "{}",
                case.name
            );
            assert!(case.victims(3).len() as u64 == case.tolerance());
        }
    }

    #[test]
    fn sizes_are_those_of_the_levels() {
        let bytes = |case: Case| case.array_bytes() as u64 / 1024;
        assert_eq!(bytes(Case::new(5, 5, 64)), 4 * SIZE_KIB);
        assert_eq!(bytes(Case::new(6, 5, 64)), 3 * SIZE_KIB);
        assert_eq!(bytes(Case::new(1, 3, 64)), SIZE_KIB);
        // 17 chunks on each of 5 members: 42 pairs, and a chunk that has no partner.
        assert_eq!(bytes(Case::new(10, 5, 64).copies(2)), 42 * 64);
    }
}
