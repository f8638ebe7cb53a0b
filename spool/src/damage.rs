//! Damage, and files that are not part of a spool.

/// A part of a file without a good frame, missing records, or a file that is not part of the spool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The name of the file.
    pub file: String,
    /// The offset of the first byte.
    pub offset: u64,
    /// The length in bytes; 0 where records are missing.
    pub bytes: u64,
    /// The number of spans that this cost, if it is known. It is 0 for foreign files, and for the
    /// frame that was being written when a process ended, because it was not acknowledged.
    pub spans: Option<u64>,
    /// Description of the damage.
    pub description: &'static str,
}

impl Damage {
    pub(crate) fn new(file: &str, (offset, bytes): (u64, u64), description: &'static str) -> Self {
        Damage { file: file.to_owned(), offset, bytes, spans: None, description }
    }

    /// True if the number of lost spans is not known yet. An empty file may be a segment that never
    /// had a record, or one that was cut off.
    fn is_open(&self) -> bool {
        self.spans.is_none() || self.bytes == 0 && self.spans == Some(0)
    }

    /// True if nothing that was acknowledged is missing.
    pub fn is_harmless(&self) -> bool {
        self.spans == Some(0)
    }
}

/// The description of records that are missing without a damaged part in their file.
const MISSING: &str = "records before or after this place are missing";

/// Segments without a file: the name of the first, and the description of the damage.
pub(crate) type Gone = Option<(String, &'static str)>;

/// The maximum number of damaged places that are listed.
const PLACES_MAX: usize = 1_000;

/// A bounded list without repetitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damages {
    pub(crate) places: Vec<Damage>,
}

impl Damages {
    pub(crate) fn push(&mut self, damage: Damage) {
        let is_same = |known: &Damage| (&known.file, known.offset) == (&damage.file, damage.offset);
        if self.places.len() < PLACES_MAX && !self.places.iter().any(is_same) {
            self.places.push(damage);
        }
    }

    /// Notes that `spans` spans before `offset` are lost: in the damaged part that was found last,
    /// or without a trace.
    pub(crate) fn lost(&mut self, file: &str, offset: u64, spans: u64) {
        match self.places.last_mut() {
            Some(last) if last.file == file && last.offset <= offset && last.is_open() => {
                last.spans = Some(spans);
            }
            _ if spans == 0 => {}
            _ => self.push(Damage { spans: Some(spans), ..Damage::new(file, (offset, 0), MISSING) }),
        }
    }

    /// Like [`Self::lost`], where segments before `offset` of `file`, or after it, may be gone. The
    /// first of them is then the place of what is lost without a trace.
    pub(crate) fn lost_with(&mut self, (file, offset): (&str, u64), gone: Gone, spans: u64) {
        self.lost(file, offset, spans);
        self.name_gone((file, offset), gone);
    }

    /// Replaces the place of records that are missing without a trace by the segments that are
    /// gone there.
    pub(crate) fn name_gone(&mut self, (file, offset): (&str, u64), gone: Gone) {
        let place = self
            .places
            .last_mut()
            .filter(|place| place.description == MISSING && (&*place.file, place.offset) == (file, offset));
        if let (Some(place), Some((name, description))) = (place, gone) {
            (place.file, place.offset, place.description) = (name, 0, description);
        }
    }

    /// Notes that `spans` spans of dead letters are missing, in the damaged parts that were found
    /// or without a trace. `end` is the name and the length of their last file.
    pub(crate) fn missing_letters(&mut self, end: (&str, u64), spans: u64) {
        let is_letter = |place: &&Damage| place.file.starts_with("dead");
        let noted: u64 = self.places.iter().filter(is_letter).filter_map(|place| place.spans).sum();
        let left = spans.saturating_sub(noted);
        match self
            .places
            .iter_mut()
            .rev()
            .find(|place| place.file.starts_with("dead") && place.spans.is_none())
        {
            Some(place) => place.spans = Some(left),
            None => self.lost(end.0, end.1, left),
        }
    }
}
