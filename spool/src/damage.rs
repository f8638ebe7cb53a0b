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

    /// True if nothing that was acknowledged is missing.
    pub fn is_harmless(&self) -> bool {
        self.spans == Some(0)
    }
}

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
            Some(last) if last.file == file && last.offset <= offset && last.spans.is_none() => {
                last.spans = Some(spans);
            }
            _ if spans == 0 => {}
            _ => self.push(Damage {
                spans: Some(spans),
                ..Damage::new(file, (offset, 0), "records before this place are missing")
            }),
        }
    }
}
