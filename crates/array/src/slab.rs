//! A list with holes: values keep their index for as long as they live, and indexes are reused.

use alloc::vec::Vec;

pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(value);
            return index;
        }
        self.entries.push(Some(value));
        u32::try_from(self.entries.len() - 1).expect("limits keep lists far below 2^32")
    }

    pub fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    pub fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In order of index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let entries = (0..).zip(&mut self.entries);
        entries.filter_map(|(i, entry)| Some((i, entry.as_mut()?)))
    }

    /// In order of index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let entries = (0..).zip(&self.entries);
        entries.filter_map(|(i, entry)| Some((i, entry.as_ref()?)))
    }
}
