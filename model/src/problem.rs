//! What can be wrong with a recording: named, placed and counted, never silent.

use std::fmt;
use std::sync::Arc;

/// A position in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, with the archive that it lies in: `run.tar.xz/spans/nn.json`.
    pub file: Arc<str>,
    /// The line, from 1; 0 if the format has none (protobuf).
    pub line: u64,
    /// The byte in the file after decompression, from 0.
    pub byte: u64,
}

impl Place {
    /// The start of a file.
    pub fn start_of(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), line: 1, byte: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, " (byte {})", self.byte)
    }
}

/// Something wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// Where.
    pub place: Place,
    /// The particulars: a parser's reason, a span's id.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.kind.describe())?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $name:ident $slug:literal $lost:ident $text:literal,)*) => {
        /// The kinds of problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ProblemKind {
            $($(#[$doc])* $name,)*
        }

        impl ProblemKind {
            /// Every kind, in order of severity.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// A stable name for machines.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// A phrase for people.
            pub fn describe(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// True if part of the input could not be used; false for oddities of a trace that was kept.
            /// Strict reading fails on the former.
            pub fn loses_data(self) -> bool {
                match self { $(Self::$name => problem_kinds!(@lost $lost),)* }
            }
        }
    };
    (@lost lost) => { true };
    (@lost kept) => { false };
}

problem_kinds! {
    /// The file or archive could not be read to its end.
    Unreadable "unreadable" lost "can't be read further",
    /// Data ended in the middle of a record, a compressed stream or an archive.
    Truncated "truncated" lost "ends too early",
    /// A configured limit was met: expanded bytes, nesting, the size of one record.
    Limit "limit" lost "is over a limit",
    /// A record is not what its format asks for.
    BadRecord "bad_record" lost "bad record",
    /// An id is not a hexadecimal number of the right size; a hash of its text stands for it.
    ForeignId "foreign_id" kept "an id is not hexadecimal, a hash of it is used",
    /// A span was written twice byte for byte; it counts once.
    DuplicateSpan "duplicate_span" kept "span written twice, counted once",
    /// Two different spans of a trace have one id; both are kept.
    DuplicateId "duplicate_id" kept "two different spans with one id",
    /// A span without trace id whose parent is not in the recording either.
    NoTraceId "no_trace_id" kept "no trace id, and the parent is not in the recording",
    /// A span whose parents are not in the recording.
    Orphan "orphan" kept "orphan: the parent is not in the recording",
    /// A trace none of whose spans is a root.
    NoRoot "no_root" kept "trace without a root span",
    /// A trace with more than one root.
    SeveralRoots "several_roots" kept "trace with several root spans",
    /// Parents that form a circle; it was cut above its earliest span.
    Cycle "cycle" kept "parents form a cycle, cut at its earliest span",
    /// A span without a start; it was given its parent's, or its trace's.
    NoStart "no_start" kept "span without a start",
    /// A span that never ended; it counts with duration 0.
    NoEnd "no_end" kept "span without an end",
    /// A span that ended before it started; it counts with duration 0.
    EndBeforeStart "end_before_start" kept "span ends before it starts",
    /// A child that starts before its parent: two machines' clocks differ, or one stepped back.
    ClockSkew "clock_skew" kept "child starts before its parent (clock skew)",
}

/// Problems counted by kind, with the first few of each kept as examples.
#[derive(Clone, Debug)]
pub struct Problems {
    counts: Vec<u64>,
    examples: Vec<Problem>,
    examples_per_kind: usize,
}

impl Default for Problems {
    fn default() -> Self {
        Self::with_examples(20)
    }
}

impl Problems {
    /// A list that keeps up to `per_kind` examples of each kind and counts the rest.
    pub fn with_examples(per_kind: usize) -> Self {
        Self { counts: vec![0; ProblemKind::ALL.len()], examples: Vec::new(), examples_per_kind: per_kind }
    }

    /// Counts a problem; keeps it if it is among the first of its kind.
    pub fn push(&mut self, problem: Problem) {
        self.push_with(problem.kind, || problem);
    }

    /// Counts a problem of a kind, making its text only if it will be kept.
    pub fn push_with(&mut self, kind: ProblemKind, make: impl FnOnce() -> Problem) {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        if *count <= self.examples_per_kind as u64 {
            self.examples.push(make());
        }
    }

    /// How many of one kind there were.
    pub fn count(&self, kind: ProblemKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Kinds that occurred, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (ProblemKind, u64)> + '_ {
        ProblemKind::ALL.iter().map(|&kind| (kind, self.count(kind))).filter(|&(_, count)| count > 0)
    }

    /// The examples that were kept, in the order in which they were found.
    pub fn examples(&self) -> &[Problem] {
        &self.examples
    }

    /// True if there were none.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: ProblemKind, line: u64) -> Problem {
        let place = Place { file: "a.json".into(), line, byte: 7 };
        Problem { kind, place, detail: "x".to_owned() }
    }

    #[test]
    fn examples_are_bounded_and_counts_are_not() {
        let mut problems = Problems::with_examples(2);
        for line in 1..=5 {
            problems.push(problem(ProblemKind::Orphan, line));
        }
        problems.push(problem(ProblemKind::BadRecord, 9));
        assert_eq!(problems.count(ProblemKind::Orphan), 5);
        assert_eq!(problems.examples().len(), 3);
        let counts: Vec<_> = problems.counts().collect();
        assert_eq!(counts, [(ProblemKind::BadRecord, 1), (ProblemKind::Orphan, 5)]);
    }

    #[test]
    fn a_problem_names_file_line_byte_and_reason() {
        assert_eq!(problem(ProblemKind::BadRecord, 3).to_string(), "a.json:3 (byte 7): bad record: x");
    }

    #[test]
    fn kinds_index_their_counters() {
        for (index, &kind) in ProblemKind::ALL.iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
