//! How values are stored in a record, and back: [`Coded`] has both directions of a type in one place, and
//! macros make it from a table of the fields of a struct or the variants of an enum. Numbers are never given
//! a new meaning.

use restripe_array::{Nanos, Uuid};
use std::fmt::Debug;
use std::io::Write as _;

/// Bytes being put together.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

/// Bytes being taken apart.
#[derive(Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// Why bytes could not be read: `End` may be the end of a run that was killed, `Bad` never is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    End,
    Bad,
}

pub type Taken<T> = Result<T, Stop>;

impl Writer {
    /// Goes on behind these bytes.
    pub(super) fn over(bytes: Vec<u8>) -> Writer {
        Writer { bytes }
    }

    pub(super) fn take(self) -> Vec<u8> {
        self.bytes
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn debug(&mut self, value: &impl Debug) {
        write!(self.bytes, "{value:?}").expect("memory takes all bytes");
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Seven bits a byte, the lowest first.
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.raw(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.raw(&[value as u8]);
    }
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn raw(&mut self, count: usize) -> Taken<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Stop::End)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn word(&mut self) -> Taken<u32> {
        let bytes = self.raw(4)?.try_into();
        Ok(u32::from_le_bytes(bytes.expect("4 bytes were taken")))
    }

    pub fn number(&mut self) -> Taken<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = u8::take(self)?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Stop::Bad)?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Bad)
    }
}

/// A value that is stored, and read back.
pub(super) trait Coded: Sized {
    fn put(&self, to: &mut Writer);
    fn take(from: &mut Reader<'_>) -> Taken<Self>;
}

impl Coded for u8 {
    fn put(&self, to: &mut Writer) {
        to.raw(&[*self]);
    }

    fn take(from: &mut Reader<'_>) -> Taken<u8> {
        Ok(from.raw(1)?[0])
    }
}

impl Coded for bool {
    fn put(&self, to: &mut Writer) {
        u8::from(*self).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Taken<bool> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Stop::Bad),
        }
    }
}

impl Coded for u64 {
    fn put(&self, to: &mut Writer) {
        to.number(*self);
    }

    fn take(from: &mut Reader<'_>) -> Taken<u64> {
        from.number()
    }
}

/// A system's error number.
impl Coded for i32 {
    fn put(&self, to: &mut Writer) {
        to.raw(&self.to_le_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Taken<i32> {
        Ok(from.word()? as i32)
    }
}

impl Coded for Uuid {
    fn put(&self, to: &mut Writer) {
        to.raw(&self.0);
    }

    fn take(from: &mut Reader<'_>) -> Taken<Uuid> {
        let bytes = from.raw(16)?.first_chunk().ok_or(Stop::End)?;
        Ok(Uuid(*bytes))
    }
}

/// All bits are there, also of none.
impl Coded for Option<Uuid> {
    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        self.unwrap_or(Uuid::NIL).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Taken<Option<Uuid>> {
        let (some, uuid) = (bool::take(from)?, Uuid::take(from)?);
        Ok(some.then_some(uuid))
    }
}

/// Times that may be off.
impl Coded for Option<Nanos> {
    fn put(&self, to: &mut Writer) {
        self.map_or(u64::MAX, |time| time.0).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Taken<Option<Nanos>> {
        let time = u64::take(from)?;
        Ok((time < u64::MAX).then_some(Nanos(time)))
    }
}

/// Numbers of fewer bits are stored as long ones.
macro_rules! narrow {
    ($($number:ty),+) => {$(
        impl Coded for $number {
            fn put(&self, to: &mut Writer) {
                to.number(u64::from(*self));
            }

            fn take(from: &mut Reader<'_>) -> Taken<$number> {
                <$number>::try_from(from.number()?).map_err(|_| Stop::Bad)
            }
        }
    )+};
}
narrow!(u16, u32);

/// A type around one value is stored as the value.
macro_rules! around {
    ($($name:ident),+) => {$(
        impl Coded for $name {
            fn put(&self, to: &mut Writer) {
                self.0.put(to);
            }

            fn take(from: &mut Reader<'_>) -> Taken<$name> {
                Ok($name(Coded::take(from)?))
            }
        }
    )+};
}

/// One of a list is stored as its place there, in a byte.
macro_rules! one_of_all {
    ($($name:ty),+) => {$(
        impl Coded for $name {
            fn put(&self, to: &mut Writer) {
                let place = <$name>::ALL.iter().position(|one| one == self);
                (place.map_or(0, |place| place as u8)).put(to);
            }

            fn take(from: &mut Reader<'_>) -> Taken<$name> {
                let place = usize::from(u8::take(from)?);
                <$name>::ALL.get(place).copied().ok_or(Stop::Bad)
            }
        }
    )+};
}

/// The fields of a struct, all of them, in this order.
macro_rules! fields {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {$(
        impl Coded for $name {
            fn put(&self, to: &mut Writer) {
                let $name { $($field),+ } = self;
                $($field.put(to);)+
            }

            fn take(from: &mut Reader<'_>) -> Taken<$name> {
                $(let $field = Coded::take(from)?;)+
                Ok($name { $($field),+ })
            }
        }
    )+};
}
/// The variants of an enum, each behind its number.
macro_rules! variants {
    ($($name:ident { $($number:literal: $variant:ident
        $(($($value:ident),+))? $({$($field:ident $(= $is:literal)?),+})?,)+ })+) => {$(
        impl Coded for $name {
            fn put(&self, to: &mut Writer) {
                match self {
                    $($name::$variant $(($($value),+))? $({$($field $(: $is)?),+})? => {
                        to.raw(&[$number]);
                        $($($value.put(to);)+)?
                        $($(variants!(put to $field $($is)?);)+)?
                    })+
                }
            }

            fn take(from: &mut Reader<'_>) -> Taken<$name> {
                Ok(match u8::take(from)? {
                    $($number => $name::$variant
                        $(($({ let $value = Coded::take(from)?; $value }),+))?
                        $({$($field: variants!(take from $($is)?)),+})?,)+
                    _ => return Err(Stop::Bad),
                })
            }
        }
    )+};
    (put $to:ident $field:ident $is:literal) => {};
    (put $to:ident $field:ident) => { $field.put($to) };
    (take $from:ident $is:literal) => { $is };
    (take $from:ident) => { Coded::take($from)? };
}

pub(super) use {around, fields, one_of_all, variants};
