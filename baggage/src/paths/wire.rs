//! Notes in messages between processes. Only path parts are sent.
//!
//! A request has the length of the longest way to the call. A response has the longest ways
//! through the callee, so that the clocks of two hosts are never compared: times are lengths.
//!
//! ```text
//! request:  version, measure, length
//! response: version, measure, flags, experiments, places, ways
//! ```
//!
//! Numbers are variable-length integers, as in Protocol Buffers.

use super::experiments::{EXPERIMENTS_MAX, Set};
use super::names::{Names, Place, cut};
use super::path::Path;
use super::way::{Part, SEGMENTS_MAX, TimeKind, Way};
use super::{CriticalPath, Measure};

const VERSION: u8 = 1;
const CUT: u8 = 1;
/// Places and parts of one response. A way has up to 64 parts, and one more for each kind.
const PARTS_MAX: u64 = 70;
const WAYS_MAX: u64 = 64;
/// A length in an experiment is at most the longest one times the largest factor.
const CHANGED_MAX: f64 = u64::MAX as f64 * 1_000.0;

/// The length of the longest way to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Request {
    pub(super) length: u64,
}

impl Request {
    pub(super) fn write(self, measure: Measure) -> Vec<u8> {
        let mut out = vec![VERSION, measure as u8];
        put(&mut out, self.length);
        out
    }

    pub(super) fn read(bytes: &[u8], measure: Measure) -> Option<Request> {
        let mut reader = Reader::of(bytes, measure)?;
        Some(Request { length: reader.number()? })
    }
}

/// The ways through a callee. The lengths in experiments are those of its own, by their ids.
#[derive(Debug)]
pub(super) struct Response {
    /// The longest first.
    pub(super) ways: Vec<Way>,
    pub(super) is_cut: bool,
    pub(super) changed: Vec<(u64, f64)>,
}

impl Response {
    /// Writes as many ways, parts and segments as fit into `limit` bytes; nothing if the longest
    /// way's length alone does not.
    pub(super) fn write(of: &CriticalPath, path: &Path, set: Option<&Set>, limit: usize) -> Vec<u8> {
        let all = usize::MAX;
        let sizes = [
            (8, all, true),
            (4, all, true),
            (2, all, true),
            (1, all, true),
            (1, all, false),
            (1, 16, false),
            (1, 8, false),
            (1, 4, false),
            (1, 0, false),
        ];
        let written = sizes.into_iter().map(|(ways, parts, segments)| {
            let mut writer = Writer { names: &of.0.names, places: Vec::new(), body: Vec::new() };
            writer.ways(path, ways, parts, segments);
            writer.finish(of.0.measure, path, set, ways)
        });
        written.into_iter().find(|bytes| bytes.len() <= limit).unwrap_or_default()
    }

    /// Reads untrusted bytes. Places are below `around`.
    pub(super) fn read(bytes: &[u8], of: &CriticalPath, around: Place) -> Option<Response> {
        let mut reader = Reader::of(bytes, of.0.measure)?;
        let is_cut = reader.byte()? & CUT != 0;
        let count = reader.up_to(EXPERIMENTS_MAX as u64)?;
        let mut changed = Vec::new();
        for _ in 0..count {
            let (id, length) = (reader.eight()?, f64::from_bits(reader.eight()?));
            if (0.0..=CHANGED_MAX).contains(&length) {
                changed.push((id, length));
            }
        }
        let mut places = vec![around];
        for _ in 0..reader.up_to(PARTS_MAX * WAYS_MAX)? {
            let above = *places.get(usize::try_from(reader.number()?).ok()?)?;
            let length = usize::try_from(reader.number()?).ok()?;
            let name = std::str::from_utf8(reader.bytes(length)?).ok()?;
            places.push(of.0.names.inside(above, name));
        }
        let mut ways = Vec::new();
        for _ in 0..reader.up_to(WAYS_MAX)? {
            ways.push(reader.way(&places)?);
        }
        ways.sort_by_key(|way| std::cmp::Reverse(way.total));
        let is_whole = reader.0.is_empty() && !ways.is_empty();
        is_whole.then_some(Response { ways, is_cut, changed })
    }
}

struct Writer<'a> {
    names: &'a Names,
    /// The places written so far.
    places: Vec<Place>,
    body: Vec<u8>,
}

impl Writer<'_> {
    fn ways(&mut self, path: &Path, ways: usize, parts: usize, segments: bool) {
        let ways = path.ways().take(ways);
        put(&mut self.body, ways.len() as u64);
        ways.for_each(|way| self.way(&way, parts, segments));
    }

    fn way(&mut self, way: &Way, parts_max: usize, segments: bool) {
        let mut parts = way.parts.clone();
        parts.sort_by_key(|(_, nanos)| std::cmp::Reverse(*nanos));
        let rest = parts.split_off(parts_max.min(parts.len()));
        let rest = rest.iter().fold(0_u64, |sum, (_, nanos)| sum.saturating_add(*nanos));
        if rest > 0 {
            parts.push((Part::new(Place::OTHERS, TimeKind::Work), rest));
        }
        put(&mut self.body, parts.len() as u64);
        for (part, nanos) in &parts {
            let place = self.place(part.place());
            put(&mut self.body, place << 3 | part.kind() as u64);
            put(&mut self.body, *nanos);
        }
        // Those whose part was written.
        let segments: Vec<(usize, u64)> = way
            .segments
            .iter()
            .filter(|_| segments)
            .filter_map(|(part, nanos)| Some((parts.iter().position(|(own, _)| own == part)?, *nanos)))
            .collect();
        put(&mut self.body, segments.len() as u64);
        for (part, nanos) in segments {
            put(&mut self.body, part as u64);
            put(&mut self.body, nanos);
        }
    }

    /// The number of a place; those around it are written before it.
    fn place(&mut self, place: Place) -> u64 {
        if place == Place::NOWHERE {
            return 0;
        }
        if let Some(known) = self.places.iter().position(|known| *known == place) {
            return known as u64 + 1;
        }
        // The innermost 8 are enough for a deep one.
        let mut missing = vec![place];
        while missing.len() < 8
            && let Some(last) = missing.last()
        {
            let around = self.names.around(*last);
            if around == Place::NOWHERE || self.places.contains(&around) {
                break;
            }
            missing.push(around);
        }
        self.places.extend(missing.into_iter().rev());
        self.places.len() as u64
    }

    fn finish(self, measure: Measure, path: &Path, set: Option<&Set>, ways: usize) -> Vec<u8> {
        let is_cut = path.is_cut || ways < path.ways().len();
        let mut out = vec![VERSION, measure as u8, if is_cut { CUT } else { 0 }];
        let set = set.map(|set| &set.0[..]).unwrap_or_default();
        put(&mut out, set.len() as u64);
        for (experiment, length) in set.iter().zip(path.changed) {
            out.extend(experiment.id.to_be_bytes());
            out.extend(length.to_bits().to_be_bytes());
        }
        put(&mut out, self.places.len() as u64);
        for place in &self.places {
            let around = self.names.around(*place);
            put(
                &mut out,
                self.places.iter().position(|known| *known == around).map_or(0, |at| at as u64 + 1),
            );
            let name = self.names.name(*place);
            let name = cut(&name);
            put(&mut out, name.len() as u64);
            out.extend(name.as_bytes());
        }
        out.extend(self.body);
        out
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads untrusted bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// `None` if the bytes are those of another version, or of another measure.
    fn of(bytes: &'a [u8], measure: Measure) -> Option<Self> {
        let mut reader = Reader(bytes);
        let is_ours = reader.byte()? == VERSION && reader.byte()? == measure as u8;
        is_ours.then_some(reader)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    fn eight(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return (bits << shift >> shift == bits).then_some(number);
            }
        }
        None
    }

    fn up_to(&mut self, max: u64) -> Option<u64> {
        self.number().filter(|number| *number <= max)
    }

    fn way(&mut self, places: &[Place]) -> Option<Way> {
        let mut way = Way::default();
        let mut parts = Vec::new();
        for _ in 0..self.up_to(PARTS_MAX)? {
            let number = self.number()?;
            let place = *places.get(usize::try_from(number >> 3).ok()?)?;
            let kind = *TimeKind::ALL.get((number & 7) as usize)?;
            let part = Part::new(place, kind);
            parts.push(part);
            // The total is that of the parts, whatever the peer says.
            way.add(part, self.number()?);
        }
        way.segments.clear();
        for _ in 0..self.up_to(SEGMENTS_MAX as u64)? {
            let part = *parts.get(usize::try_from(self.number()?).ok()?)?;
            way.segments.push(part, self.number()?);
        }
        Some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::zone;

    fn paths() -> CriticalPath {
        let paths = CriticalPath::default();
        paths.experiment("faster", zone("load"), 0.5).unwrap();
        paths
    }

    fn response(of: &CriticalPath, functions: u32) -> (Path, Vec<u8>) {
        let root = of.0.names.inside(Place::NOWHERE, "root");
        let mut path = Path::default();
        for number in 0..functions {
            let place = of.0.names.inside(root, &format!("function {number}"));
            path.tail.add(Part::new(place, TimeKind::Work), u64::from(number) * 1_000 + 1);
        }
        path.changed[0] = 17.5;
        path.settle();
        let set = of.0.running.now();
        let bytes = Response::write(of, &path, set.as_deref(), 1_024);
        (path, bytes)
    }

    #[test]
    fn a_response_comes_back() {
        let of = paths();
        let (path, bytes) = response(&of, 3);
        let call = of.0.names.inside(Place::NOWHERE, "call");
        let read = Response::read(&bytes, &of, call).unwrap();
        assert_eq!(read.ways[0].total, path.total());
        assert_eq!(read.ways[0].segments.iter().count(), 3);
        let inside = read.ways[0].parts.iter().map(|(part, _)| part.place());
        assert!(inside.clone().all(|place| of.0.names.is_within(place, "call")));
        assert!(inside.clone().all(|place| of.0.names.is_within(place, "root")));
        assert_eq!(read.changed.iter().map(|(_, length)| *length).collect::<Vec<_>>(), [17.5]);
    }

    #[test]
    fn a_response_is_cut_to_its_limit() {
        let of = paths();
        let (path, bytes) = response(&of, 60);
        assert!(bytes.len() <= 1_024, "{}", bytes.len());
        let read = Response::read(&bytes, &of, Place::NOWHERE).unwrap();
        assert_eq!(read.ways[0].total, path.total());
        assert!(read.ways[0].parts.len() >= 8);
        assert!(Response::write(&of, &path, None, 5).is_empty());
    }

    /// Other versions, other measures, prefixes, numbers that are too large, NaN.
    #[test]
    fn broken_notes_are_refused() {
        let of = paths();
        let bytes = response(&of, 3).1;
        for length in 0..bytes.len() {
            assert!(Response::read(&bytes[..length], &of, Place::NOWHERE).is_none(), "{length}");
        }
        for (at, value) in [(0, 2), (1, 1), (3, 9)] {
            let mut broken = bytes.clone();
            broken[at] = value;
            assert!(Response::read(&broken, &of, Place::NOWHERE).is_none(), "{at}");
        }
        let mut not_a_number = bytes;
        not_a_number[12..20].copy_from_slice(&f64::NAN.to_bits().to_be_bytes());
        assert_eq!(Response::read(&not_a_number, &of, Place::NOWHERE).unwrap().changed, []);
        let mut large = vec![VERSION, 0];
        put(&mut large, u64::MAX);
        assert_eq!(Request::read(&large, Measure::Wall), Some(Request { length: u64::MAX }));
        *large.last_mut().unwrap() = 2;
        assert_eq!(Request::read(&large, Measure::Wall), None);
    }
}
