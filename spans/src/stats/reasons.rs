//! Losses, and spans that were given up, by reason.

use std::fmt;

use super::Pair;

/// Defines an enum of reasons, and the struct that has a count for each.
macro_rules! reasons {
    ($(#[$about:meta])* $Counts:ident by $Reason:ident { $($(#[$doc:meta])* $field:ident: $Variant:ident,)+ }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Reason { $($Variant),+ }

        impl $Reason {
            pub(super) const ALL: &[Self] = &[$(Self::$Variant),+];
        }

        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $Counts { $($(#[$doc])* pub $field: u64),+ }

        impl $Counts {
            /// The sum of all reasons.
            pub fn total(&self) -> u64 {
                // Saturates, because an exporter may report any number.
                self.iter().fold(0, |sum, (_, count)| sum.saturating_add(count))
            }

            /// Iterates over the reasons, named as the fields.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),+].into_iter()
            }

            /// The counts of spans, and those of local roots.
            pub(super) fn read(counted: &[Pair; $Reason::ALL.len()]) -> [Self; 2] {
                let [$($field),+] = counted.each_ref().map(Pair::read);
                [Self { $($field: $field.spans),+ }, Self { $($field: $field.roots),+ }]
            }
        }
    };
}

reasons! {
    /// Losses by reason. Of the reasons of an export, an
    /// exporter (`Builder::with_exporter`) that is not a
    /// destination (`Builder::with_destination`) reports only `export_failed`.
    Losses by Loss {
        /// The span did not fit the memory of open spans, or is below one that did not. Processes
        /// called from there drop their part of the trace.
        open_spans: OpenSpans,
        /// The global allocator made the span while its thread held a lock that the span needs. Its
        /// events in that situation are not counted.
        nested: Nested,
        /// The queue to the exporter was full.
        queue_full: QueueFull,
        /// The destination rejected a request permanently.
        rejected: Rejected,
        /// The destination rejected spans of a request that it otherwise accepted.
        partially_rejected: PartiallyRejected,
        /// A request, or one span, was larger than a limit.
        too_large: TooLarge,
        /// The destination accepted nothing until the batch reached its maximum age or number of
        /// attempts.
        expired: Expired,
        /// The spool, or the files, had reached their limit in bytes.
        spool_full: SpoolFull,
        /// The exporter returned another error, or panicked.
        export_failed: ExportFailed,
        /// The shutdown's deadline passed before the span was exported.
        deadline: Deadline,
        /// The span ended after the shutdown.
        shut_down: ShutDown,
        /// The cap on exported bytes was used up: see
        /// [`Cap::bytes`](astracer_samplers::Cap::bytes).
        capped: Capped,
    }
}

reasons! {
    /// Recorded traces or spans that were given up, by reason.
    GivenUpTraces by GivenUp {
        /// Its stratum dropped the trace or no policy wanted it, and it was not requested while it
        /// was held.
        unwanted: Unwanted,
        /// A policy wanted the trace, or had kept it before the span ended, but its budget was used
        /// up.
        refused: Refused,
        /// The ring was full.
        ring_full: RingFull,
        /// The trace had already reached its maximum size when the span ended.
        cut: Cut,
        /// The trace had already been given up when the span ended.
        late: Late,
        /// The service was shut down.
        shut_down: ShutDown,
    }
}

impl Losses {
    /// The reasons with at least one loss.
    pub fn reasons(&self) -> impl Iterator<Item = (Loss, u64)> {
        let counts = self.iter().map(|(_, spans)| spans);
        Loss::ALL.iter().copied().zip(counts).filter(|(_, spans)| *spans > 0)
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lost", self.total())?;
        write_reasons(f, self.iter())
    }
}

/// Writes the reasons that occurred, with their counts, in brackets.
pub(super) fn write_reasons(
    f: &mut fmt::Formatter<'_>,
    reasons: impl Iterator<Item = (&'static str, u64)>,
) -> fmt::Result {
    let mut sign = " (";
    for (name, count) in reasons.filter(|(_, count)| *count > 0) {
        write!(f, "{sign}{name} {count}")?;
        sign = ", ";
    }
    if sign == ", " { f.write_str(")") } else { Ok(()) }
}
