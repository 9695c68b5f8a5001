//! The images that a power cut may leave: on each disk the durable image, and any subset of the writes since
//! then, each whole or torn.
//!
//! A death of the daemon leaves the disks with their caches, and any subset of the writes in flight.

use crate::disk::{Disk, Pending};
use crate::image::Image;
use crate::rng::{Rng, mix};
use restripe_array::SECTOR_BYTES;

/// What became of one write whose fate was open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Kept,
    Lost,
    /// Some of its units of `unit_sectors`, chosen by `seed`.
    Torn {
        seed: u64,
        unit_sectors: u64,
    },
}

/// What became of every open write of every disk, in the order of [`Site::open`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut(pub Vec<Vec<Fate>>);

/// An array at the moment that power goes: what is durable on each disk, and the writes since.
#[derive(Clone)]
pub struct Site {
    durable: Vec<Image>,
    /// Sectors in each disk's logical block.
    blocks: Vec<u64>,
    open: Vec<Vec<Pending>>,
}

impl Site {
    /// `under_way` are the writes that each disk has not completed.
    pub fn new(disks: &[Disk], under_way: Vec<Vec<Pending>>) -> Site {
        assert_eq!(disks.len(), under_way.len(), "one list of writes a disk");
        let open = disks
            .iter()
            .zip(under_way)
            .map(|(disk, under_way)| disk.pending().cloned().chain(under_way).collect());
        Site {
            durable: disks.iter().map(|disk| disk.durable().clone()).collect(),
            blocks: disks
                .iter()
                .map(|disk| u64::from(disk.info().logical_block) / SECTOR_BYTES)
                .collect(),
            open: open.collect(),
        }
    }

    /// The writes of one disk whose fate is open, oldest first.
    pub fn open(&self, disk: usize) -> &[Pending] {
        &self.open[disk]
    }

    /// All writes whose fate is open.
    pub fn open_count(&self) -> usize {
        let open = |writes: &Vec<Pending>| writes.iter().filter(|write| !write.durable).count();
        self.open.iter().map(open).sum()
    }

    /// What one disk holds after the cut.
    pub fn image(&self, disk: usize, fates: &[Fate]) -> Image {
        assert_eq!(fates.len(), self.open[disk].len(), "one fate a write");
        let mut image = self.durable[disk].clone();
        for (write, fate) in self.open[disk].iter().zip(fates) {
            match fate {
                Fate::Kept => write.apply(&mut image),
                Fate::Lost if write.durable => write.apply(&mut image),
                Fate::Lost => {}
                Fate::Torn { .. } if write.durable => write.apply(&mut image),
                Fate::Torn { seed, unit_sectors } => {
                    write.apply_torn(&mut image, *unit_sectors, |unit| {
                        mix(seed ^ mix(unit)) & 1 == 1
                    });
                }
            }
        }
        image
    }

    /// All images of a cut.
    pub fn images(&self, cut: &Cut) -> Vec<Image> {
        let fates = cut.0.iter().enumerate();
        let images = fates.map(|(disk, fates)| self.image(disk, fates));
        images.collect()
    }

    /// The same disks after the cut.
    pub fn restart(&self, disks: Vec<Disk>, cut: &Cut) -> Vec<Disk> {
        let images = self.images(cut);
        let restart = |(disk, image): (Disk, Image)| disk.restart(image);
        disks.into_iter().zip(images).map(restart).collect()
    }

    /// What was under way on a disk when the daemon died, and was done all the same.
    fn late(&self, disk: usize, cut: &Cut) -> Vec<Pending> {
        let fates = self.open[disk].iter().zip(&cut.0[disk]);
        let late = fates.filter(|(write, fate)| write.is_under_way() && **fate == Fate::Kept);
        late.map(|(write, _)| write.clone()).collect()
    }

    /// The same disks for another daemon: their caches live on, and the cut says what of the writes under way was done.
    pub fn outlive(&self, disks: Vec<Disk>, cut: &Cut) -> Vec<Disk> {
        let outlive = |(index, disk): (usize, Disk)| disk.outlive(self.late(index, cut));
        disks.into_iter().enumerate().map(outlive).collect()
    }

    /// The same disks after the death of the daemon, or after the cut.
    pub fn next(&self, disks: Vec<Disk>, cut: &Cut, dies: bool) -> Vec<Disk> {
        match dies {
            true => self.outlive(disks, cut),
            false => self.restart(disks, cut),
        }
    }

    /// The same for disks made anew: what is durable, and what the cache of each has beyond that.
    pub fn caches(&self, cut: &Cut) -> Vec<(Image, Vec<Pending>)> {
        let cache = |disk: usize| {
            let cached = self.open[disk].iter().filter(|write| !write.is_under_way());
            let mut cached: Vec<Pending> = cached.cloned().collect();
            cached.extend(self.late(disk, cut));
            (self.durable[disk].clone(), cached)
        };
        (0..self.open.len()).map(cache).collect()
    }

    /// The cut that nothing survives which was not durable.
    pub fn nothing(&self) -> Cut {
        let lost = |writes: &Vec<Pending>| vec![Fate::Lost; writes.len()];
        Cut(self.open.iter().map(lost).collect())
    }

    /// The cut that everything survives but what was on its way to where metadata lie, below this sector.
    pub fn without_metadata(&self, data_start: u64) -> Cut {
        let fate = |write: &Pending| match write.at < data_start {
            true => Fate::Lost,
            false => Fate::Kept,
        };
        let fates = |writes: &Vec<Pending>| writes.iter().map(fate).collect();
        Cut(self.open.iter().map(fates).collect())
    }

    /// A random cut. Its temper is random as well: all, none, most or few of the writes survive.
    pub fn sample(&self, rng: &mut Rng) -> Cut {
        let keep = *rng.pick(&[0, 4, 16, 28, 32]);
        let tear = *rng.pick(&[0, 0, 4, 12]);
        let disks = 0..self.open.len();
        let fates = disks.map(|disk| self.sample_disk(disk, keep, tear, rng));
        Cut(fates.collect())
    }

    fn sample_disk(&self, disk: usize, keep: u64, tear: u64, rng: &mut Rng) -> Vec<Fate> {
        let unit = self.tear_unit(disk, rng);
        let fate = |_: &Pending| match rng.chance(tear, 32) {
            true => Fate::Torn {
                seed: rng.word(),
                unit_sectors: unit,
            },
            false if rng.chance(keep, 32) => Fate::Kept,
            false => Fate::Lost,
        };
        self.open[disk].iter().map(fate).collect()
    }

    /// What a disk never tears: its logical block, or, often, a physical block of 4096 bytes.
    fn tear_unit(&self, disk: usize, rng: &mut Rng) -> u64 {
        let block = self.blocks[disk];
        if rng.chance(1, 2) { block } else { 8 }
    }

    /// Cut number `subset` of all those without tears: bit `i` keeps the `i`th open write, counted over all disks.
    pub fn subset(&self, subset: u64) -> Cut {
        let mut bits = subset;
        let mut fates = |writes: &Vec<Pending>| -> Vec<Fate> {
            let fate = |write: &Pending| {
                if write.durable {
                    return Fate::Kept;
                }
                let kept = bits & 1 == 1;
                bits >>= 1;
                if kept { Fate::Kept } else { Fate::Lost }
            };
            writes.iter().map(fate).collect()
        };
        Cut(self.open.iter().map(&mut fates).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskConfig, Part, Simple};
    use crate::payload::Payload;
    use restripe_array::{MemberInfo, Nanos};
    use std::collections::BTreeSet;

    fn write(number: u64, at: u64, sectors: u64, value: u8, durable: bool) -> Pending {
        let parts = vec![Part::Data {
            sectors,
            bytes: vec![value; sectors as usize * 8].into(),
        }];
        Pending {
            number,
            at,
            sectors,
            parts: parts.into(),
            durable,
        }
    }

    fn site(open: Vec<Vec<Pending>>) -> Site {
        let info = MemberInfo {
            sectors: 64,
            logical_block: 512,
            trim_zeroes: false,
            fast_zero: false,
            volatile: false,
        };
        let config = DiskConfig {
            info,
            volatile: true,
            depth: 1,
        };
        let disk = |_| {
            let device = Box::new(Simple::new(Nanos(1), 1, Nanos(0)));
            Disk::new(config, Image::new(Payload::Tokens, 64), device, Rng::new(0))
        };
        let disks: Vec<Disk> = (0..open.len()).map(disk).collect();
        Site::new(&disks, open)
    }

    fn values(image: &Image) -> Vec<u8> {
        let mut data = vec![0; 64 * 8];
        image.read_data(0, 64, &mut data);
        data.chunks(8).map(|sector| sector[0]).collect()
    }

    #[test]
    fn subsets_are_all_different_and_ordered() {
        let site = site(vec![
            vec![write(0, 0, 1, 1, false), write(1, 0, 1, 2, false)],
            vec![write(0, 5, 1, 3, false)],
        ]);
        assert_eq!(site.open_count(), 3);
        let seen: BTreeSet<(u8, u8)> = (0..8)
            .map(|subset| site.images(&site.subset(subset)))
            .map(|images| (values(&images[0])[0], values(&images[1])[5]))
            .collect();
        // Both writes of the first sector kept is the same as the later one kept.
        let all = [(0, 0), (1, 0), (2, 0), (0, 3), (1, 3), (2, 3)];
        assert_eq!(seen, BTreeSet::from(all));
    }

    #[test]
    fn durable_writes_stay_whatever_is_chosen() {
        let writes = vec![write(0, 0, 1, 1, false), write(1, 0, 1, 2, true)];
        let site = site(vec![writes]);
        let (seed, unit_sectors) = (1, 1);
        for fate in [Fate::Lost, Fate::Torn { seed, unit_sectors }, Fate::Kept] {
            assert_eq!(values(&site.image(0, &[fate; 2]))[0], 2);
        }
    }

    #[test]
    fn samples_tear_at_unit_edges() {
        let site = site(vec![vec![write(0, 4, 24, 9, false)]]);
        let mut rng = Rng::new(1);
        let mut shapes = BTreeSet::new();
        for _ in 0..200 {
            let kept = values(&site.images(&site.sample(&mut rng))[0]);
            shapes.insert(kept);
        }
        assert!(shapes.len() > 10);
        let (seed, unit_sectors) = (3, 8);
        let kept = values(&site.image(0, &[Fate::Torn { seed, unit_sectors }]));
        for unit in kept.chunks(8) {
            let inside: BTreeSet<u8> = unit.iter().copied().collect();
            assert!(inside.len() == 1 || unit[..4] == [0; 4] || unit[4..] == [0; 4]);
        }
    }
}
