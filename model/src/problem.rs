//! Problems found in a recording. Each has a kind and a place, and all are counted.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::text::escaped;

/// A position in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, including the archive that contains it: `run.tar.xz/spans/nn.json`.
    pub file: Arc<str>,
    /// The line, from 1; 0 if the format has no lines (protobuf).
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
        f.write_str(&escaped(&self.file))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, " (byte {})", self.byte)
    }
}

/// One problem at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The position of the problem.
    pub place: Place,
    /// Details: the parser's reason, or the span's id.
    pub detail: String,
    /// The limit that was reached; `None` for other kinds of problem.
    pub limit: Option<Limit>,
}

impl Problem {
    /// A problem other than a limit.
    pub fn new(kind: ProblemKind, place: Place, detail: String) -> Self {
        Self { kind, place, detail, limit: None }
    }

    /// A problem because a limit was reached.
    pub fn over(limit: Limit, place: Place, detail: String) -> Self {
        Self { kind: ProblemKind::Limit, place, detail, limit: Some(limit) }
    }
}

/// The limits that a reader enforces. A problem of the kind [`ProblemKind::Limit`] names one of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The number of bytes that archives and compressed files expand to.
    ExpandedBytes,
    /// The number of bytes of one record.
    RecordBytes,
    /// The depth of values within values, or of archives within archives.
    Nesting,
    /// The memory that decompression needs.
    DecompressionMemory,
    /// The number of bytes in the extension of an archive's header.
    HeaderBytes,
    /// The number of spans in a recording.
    Spans,
    /// The number of log records in a recording.
    LogRecords,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.kind.describe())?;
        if !self.detail.is_empty() {
            write!(f, ": {}", escaped(&self.detail))?;
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

            /// A stable, machine-readable name.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// A short description for people.
            pub fn describe(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns true if part of the input could not be used, and false for an irregularity
            /// in a trace that was kept. Strict reading fails only for the former.
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
    /// A configured limit was reached: expanded bytes, nesting, or the size of one record.
    Limit "limit" lost "is over a limit",
    /// A record does not follow its format.
    BadRecord "bad_record" lost "bad record",
    /// An id is not a hexadecimal number of the right size; a hash of its text replaces it.
    ForeignId "foreign_id" kept "an id is not hexadecimal, a hash of it is used",
    /// A text is not Unicode; U+FFFD replaces what is not.
    BadText "bad_text" kept "text that is not Unicode, U+FFFD replaces it",
    /// A word, number or count has no meaning in the format; its field stays unset.
    UnknownWord "unknown_word" kept "a word or number without meaning, read as unset",
    /// A span was written twice, in the same or another spelling; it counts once.
    DuplicateSpan "duplicate_span" kept "span written twice, counted once",
    /// A span was written in several pieces, which are merged as Zipkin merges them.
    SpanPiece "span_piece" kept "piece of another span with its id, merged",
    /// Two different spans of a trace share one id; both are kept.
    DuplicateId "duplicate_id" kept "two different spans with one id",
    /// A span has no trace id, and its parent is not in the recording either.
    NoTraceId "no_trace_id" kept "no trace id, and the parent is not in the recording",
    /// None of a span's parents is in the recording.
    Orphan "orphan" kept "orphan: the parent is not in the recording",
    /// The parent of an orphan is in a trace whose id has the same low 64 bits: a service on the
    /// way shortened the id.
    ShortTraceId "short_trace_id" kept "the parent is in a trace whose id ends in the same 64 bits",
    /// A trace has no root span.
    NoRoot "no_root" kept "trace without a root span",
    /// A trace has several root spans.
    SeveralRoots "several_roots" kept "trace with several root spans",
    /// Parents form a cycle, which was cut above its earliest span.
    Cycle "cycle" kept "parents form a cycle, cut at its earliest span",
    /// A span has no start; it gets its parent's start, or its trace's.
    NoStart "no_start" kept "span without a start",
    /// A span has no end; its duration counts as 0.
    NoEnd "no_end" kept "span without an end",
    /// A span ends before it starts; its duration counts as 0.
    EndBeforeStart "end_before_start" kept "span ends before it starts",
    /// A span starts before its parent.
    ClockSkew "clock_skew" kept "child starts before its parent (clock skew)",
}

/// Problems, counted by kind. The first few of each kind are kept as examples.
#[derive(Clone, Debug)]
pub struct Problems {
    counts: Vec<u64>,
    examples: Vec<Problem>,
    examples_per_kind: usize,
    limits: BTreeSet<Limit>,
}

impl Default for Problems {
    fn default() -> Self {
        Self::with_examples(20)
    }
}

impl Problems {
    /// An empty list that keeps up to `per_kind` examples of each kind and counts the rest.
    pub fn with_examples(per_kind: usize) -> Self {
        Self {
            counts: vec![0; ProblemKind::ALL.len()],
            examples: Vec::new(),
            examples_per_kind: per_kind,
            limits: BTreeSet::new(),
        }
    }

    /// Counts a problem and keeps it if it is among the first of its kind.
    pub fn push(&mut self, problem: Problem) {
        self.limits.extend(problem.limit);
        self.push_with(problem.kind, || problem);
    }

    /// Counts a problem of this kind, and calls `make` only if it is kept as an example.
    pub fn push_with(&mut self, kind: ProblemKind, make: impl FnOnce() -> Problem) {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        if *count <= self.examples_per_kind as u64 {
            self.examples.push(make());
        }
    }

    /// The number of problems of this kind.
    pub fn count(&self, kind: ProblemKind) -> u64 {
        self.counts[kind as usize]
    }

    /// The kinds that occurred, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (ProblemKind, u64)> + '_ {
        ProblemKind::ALL.iter().map(|&kind| (kind, self.count(kind))).filter(|&(_, count)| count > 0)
    }

    /// The kept examples, in the order they were found.
    pub fn examples(&self) -> &[Problem] {
        &self.examples
    }

    /// The limits that were reached, including those without a kept example.
    pub fn limits(&self) -> impl Iterator<Item = Limit> + '_ {
        self.limits.iter().copied()
    }

    /// Returns true if no problem was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: ProblemKind, line: u64) -> Problem {
        let place = Place { file: "a.json".into(), line, byte: 7 };
        Problem::new(kind, place, "x".to_owned())
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
    fn limits_are_told_beyond_the_examples() {
        let mut problems = Problems::with_examples(1);
        let place = Place::start_of(&"a.json".into());
        for limit in [Limit::Nesting, Limit::Nesting, Limit::RecordBytes] {
            problems.push(Problem::over(limit, place.clone(), String::new()));
        }
        assert_eq!(problems.count(ProblemKind::Limit), 3);
        assert_eq!(problems.limits().collect::<Vec<_>>(), [Limit::RecordBytes, Limit::Nesting]);
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
