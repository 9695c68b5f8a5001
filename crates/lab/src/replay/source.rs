//! Requests in the form that an array accepts: one address space, whole sectors, within its size, and of a
//! limited length.
//!
//! A trace's devices follow each other by number. If the whole does not fit, zones without requests are
//! removed, in order. Addresses are never folded onto each other. A trace that still does not fit is
//! refused.

use super::stage::REQUEST_BYTES_MAX;
use crate::trace::{Op, Request, Requests, TraceError};
use restripe_array::SECTOR_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What is kept or left out as a whole when a trace is squeezed.
pub const ZONE_BYTES: u64 = 1 << 20;

/// What a round of a trace without a length lasts.
const ROUND_NS: u64 = 1_000_000_000;

/// Which zones a trace touches, and how many requests go to each device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    pub requests: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    zones: BTreeSet<(u32, u64)>,
    extents: BTreeMap<u32, u64>,
}

impl Survey {
    pub fn of(
        requests: impl Iterator<Item = Result<Request, TraceError>>,
    ) -> Result<Survey, TraceError> {
        let mut survey = Survey {
            start_ns: u64::MAX,
            ..Survey::default()
        };
        for request in requests {
            survey.add(&request?);
        }
        survey.start_ns = survey.start_ns.min(survey.end_ns);
        Ok(survey)
    }

    fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.start_ns = self.start_ns.min(request.time);
        self.end_ns = self.end_ns.max(request.time);
        if request.op == Op::Flush || request.length == 0 {
            return;
        }
        let end = self.extents.entry(request.device).or_insert(0);
        *end = request.end().max(*end);
        for zone in request.offset / ZONE_BYTES..=(request.end() - 1) / ZONE_BYTES {
            self.zones.insert((request.device, zone));
        }
    }

    /// How long the trace lasts, with a mean gap behind its last request: after so long it may begin again. A trace whose
    /// times are all one begins again every second.
    pub fn period_ns(&self) -> u64 {
        match self.end_ns - self.start_ns {
            0 => ROUND_NS,
            length => length.saturating_add(length / self.requests.saturating_sub(1).max(1)),
        }
    }

    /// Bytes of all devices, end to end; the largest number there is if they are more than that.
    pub fn bytes(&self) -> u64 {
        self.extents
            .values()
            .fold(0, |sum, extent| sum.saturating_add(whole_zones(*extent)))
    }

    /// Bytes of the zones that are touched.
    pub fn touched_bytes(&self) -> u64 {
        self.zones.len() as u64 * ZONE_BYTES
    }

    /// Where every zone goes in an array of `size` bytes.
    pub fn placed(&self, size: u64) -> Result<Placing, TooLarge> {
        if self.bytes() <= size {
            return Ok(self.end_to_end());
        }
        let needs = self.touched_bytes();
        if needs > size {
            return Err(TooLarge { needs, size });
        }
        let zones = self.zones.iter().copied();
        Ok(Placing::Squeezed(
            zones.zip((0..).step_by(ZONE_BYTES as usize)).collect(),
        ))
    }

    fn end_to_end(&self) -> Placing {
        let mut next = 0;
        let mut starts = BTreeMap::new();
        for (device, extent) in &self.extents {
            starts.insert(*device, next);
            next = whole_zones(*extent).saturating_add(next);
        }
        Placing::EndToEnd(starts)
    }
}

/// Up to the end of the zone, as far as numbers go.
fn whole_zones(extent: u64) -> u64 {
    extent
        .checked_next_multiple_of(ZONE_BYTES)
        .unwrap_or(u64::MAX)
}

/// A trace that touches more than an array has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge {
    pub needs: u64,
    pub size: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        write!(
            f,
            "the trace touches {} MiB and the array has {} MiB: it needs larger members",
            mib(self.needs),
            mib(self.size)
        )
    }
}

/// From a trace's addresses to an array's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placing {
    /// By device, where it begins.
    EndToEnd(BTreeMap<u32, u64>),
    /// By device and zone.
    Squeezed(BTreeMap<(u32, u64), u64>),
}

impl Placing {
    /// Devices of these lengths, end to end.
    pub fn of_devices(bytes: impl Iterator<Item = u64>, size: u64) -> Result<Placing, TooLarge> {
        let survey = Survey {
            extents: (0..).zip(bytes).collect(),
            ..Survey::default()
        };
        match survey.bytes() {
            needs if needs > size => Err(TooLarge { needs, size }),
            _ => Ok(survey.end_to_end()),
        }
    }

    fn place(&self, device: u32, offset: u64) -> u64 {
        match self {
            Placing::EndToEnd(starts) => {
                let start = starts.get(&device).copied().unwrap_or(0);
                start.saturating_add(offset)
            }
            Placing::Squeezed(zones) => {
                let zone = zones.get(&(device, offset / ZONE_BYTES));
                zone.copied().unwrap_or(0) + offset % ZONE_BYTES
            }
        }
    }
}

/// Requests placed in an array. Those longer than an array takes at once are cut; neighbouring zones that are touched by
/// one request stay neighbours, so a request stays in one piece.
pub struct Placed {
    requests: Requests,
    placing: Placing,
    size: u64,
    rest: Option<Request>,
}

impl Placed {
    pub fn new(requests: Requests, placing: Placing, size: u64) -> Placed {
        Placed {
            requests,
            placing,
            size,
            rest: None,
        }
    }

    /// `None`: it ends beyond the array, so this is not the trace that was surveyed.
    fn shaped(&self, mut request: Request) -> Option<Request> {
        if request.op == Op::Flush {
            return Some(request);
        }
        let start = self.placing.place(request.device, request.offset);
        let end = start.saturating_add(request.length);
        request.offset = start / SECTOR_BYTES * SECTOR_BYTES;
        let end = end.checked_next_multiple_of(SECTOR_BYTES)?.min(self.size);
        request.length = end.checked_sub(request.offset).filter(|left| *left > 0)?;
        request.device = 0;
        Some(request)
    }

    fn cut(&mut self, mut request: Request) -> Request {
        let most = u64::from(REQUEST_BYTES_MAX);
        if request.op != Op::Flush && request.length > most {
            self.rest = Some(Request {
                offset: request.offset + most,
                length: request.length - most,
                ..request
            });
            request.length = most;
        }
        request
    }
}

impl Iterator for Placed {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(rest) = self.rest.take() {
            return Some(Ok(self.cut(rest)));
        }
        loop {
            match self.requests.next()? {
                Ok(request) if request.is_void() => {}
                Ok(request) => {
                    let shaped = self.shaped(request).ok_or_else(TraceError::changed);
                    return Some(shaped.map(|request| self.cut(request)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::END_MAX;

    fn request(device: u32, offset: u64, length: u64) -> Request {
        Request::new(0, device, Op::Read, offset, length)
    }

    fn placed(requests: &[Request], size: u64) -> Vec<(u64, u64)> {
        let items = || requests.iter().copied().map(Ok);
        let survey = Survey::of(items()).expect("sound");
        let placing = survey.placed(size).expect("it fits");
        let all: Vec<_> = items().collect();
        let placed = Placed::new(Box::new(all.into_iter()), placing, size);
        let placed = placed.map(|item| item.expect("sound"));
        placed.map(|r| (r.offset, r.length)).collect()
    }

    #[test]
    fn devices_follow_each_other_and_sectors_are_whole() {
        let requests = [request(0, 100, 100), request(3, 0, 4096)];
        assert_eq!(placed(&requests, 10 << 20), [(0, 512), (1 << 20, 4096)]);
    }

    #[test]
    fn what_is_never_touched_is_squeezed_out_in_order() {
        let requests = [
            request(0, 9 << 30, 512),
            request(0, (5 << 20) + 512, 512),
            request(1, 0, 512),
        ];
        let found = placed(&requests, 3 << 20);
        assert_eq!(found, [(1 << 20, 512), (512, 512), (2 << 20, 512)]);
        let survey = Survey::of(requests.into_iter().map(Ok)).expect("sound");
        let refused = survey.placed(2 << 20).expect_err("three zones in two");
        assert_eq!((refused.needs, refused.size), (3 << 20, 2 << 20));
    }

    #[test]
    fn devices_beyond_what_numbers_reach_are_squeezed_and_do_not_overflow() {
        let far: Vec<Request> = (0..8)
            .map(|device| request(device, END_MAX - 512, 512))
            .collect();
        let found = placed(&far, 8 << 20);
        assert_eq!(found[7], ((8 << 20) - 512, 512));
        let survey = Survey::of(far.into_iter().map(Ok)).expect("sound");
        assert_eq!(survey.bytes(), u64::MAX);
        assert!(survey.placed(7 << 20).is_err());
        let endless = [u64::MAX, 1].into_iter();
        assert!(Placing::of_devices(endless, 1 << 40).is_err());
    }

    #[test]
    fn a_trace_that_has_grown_since_its_survey_is_an_error() {
        let survey = Survey::of([Ok(request(0, 0, 512))].into_iter()).expect("sound");
        let placing = survey.placed(1 << 20).expect("it fits");
        let grown = vec![Ok(request(0, 9 << 20, 512))];
        let mut placed = Placed::new(Box::new(grown.into_iter()), placing, 1 << 20);
        let error = placed.next().expect("an item").expect_err("beyond the end");
        assert!(error.to_string().contains("changed while it was read"));
    }

    #[test]
    fn a_trace_of_one_moment_begins_again_after_a_second() {
        let survey = Survey::of((0..3).map(|_| Ok(request(0, 0, 512)))).expect("sound");
        assert_eq!(survey.period_ns(), ROUND_NS);
    }

    #[test]
    fn long_requests_are_cut() {
        let most = u64::from(REQUEST_BYTES_MAX);
        let found = placed(&[request(0, 0, 2 * most + 512)], 64 << 20);
        assert_eq!(found, [(0, most), (most, most), (2 * most, 512)]);
    }
}
