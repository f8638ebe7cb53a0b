//! The ledger of a spool, as every command prints it.

use std::fmt::Write as _;

use astracer_exporters::spool::Ledger;
use serde::Serialize;

use crate::output;

/// Acknowledged spans by their end, in all runs that used the folder.
#[derive(Serialize)]
pub(crate) struct Sums {
    acknowledged: u64,
    passed_on: u64,
    dead: u64,
    queued_again: u64,
    expired: u64,
    damaged: u64,
    thrown_away: u64,
    unrecorded: u64,
    waiting: u64,
}

impl From<Ledger> for Sums {
    fn from(ledger: Ledger) -> Self {
        Sums {
            acknowledged: ledger.acknowledged,
            passed_on: ledger.passed_on,
            dead: ledger.dead,
            queued_again: ledger.queued_again,
            expired: ledger.expired,
            damaged: ledger.damaged,
            thrown_away: ledger.thrown_away,
            unrecorded: ledger.unrecorded,
            waiting: ledger.waiting,
        }
    }
}

impl Sums {
    /// The ends with at least one span.
    fn ends(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let all = [
            (self.passed_on, "passed on"),
            (self.dead, "dead letters"),
            (self.queued_again, "queued again"),
            (self.expired, "expired"),
            (self.damaged, "damaged"),
            (self.thrown_away, "thrown away"),
            (self.unrecorded, "ended before the ledger began"),
            (self.waiting, "waiting"),
        ];
        all.into_iter().filter(|(spans, _)| *spans > 0)
    }

    /// The sum in one line: "ledger: 12 spans acknowledged: 9 passed on, 3 waiting".
    pub(crate) fn line(&self) -> String {
        let ends: Vec<_> =
            self.ends().map(|(spans, end)| format!("{} {end}", output::count(spans))).collect();
        let acknowledged = output::plural(self.acknowledged, "span");
        match ends.is_empty() {
            true => format!("ledger: {acknowledged} acknowledged"),
            false => format!("ledger: {acknowledged} acknowledged: {}", ends.join(", ")),
        }
    }

    /// The sum as a table.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{:>14}  acknowledged\n", output::count(self.acknowledged));
        for (spans, end) in self.ends() {
            let _ = writeln!(text, "{:>14}  {end}", output::count(spans));
        }
        text
    }

    /// A sentence about the spans that were lost; `None` if there are none.
    pub(super) fn lost(&self) -> Option<String> {
        let lost = [
            (self.expired, "too old"),
            (self.damaged, "damaged"),
            (self.thrown_away, "thrown away to free space"),
        ];
        let all: u64 = lost.iter().map(|(spans, _)| spans).sum();
        let parts = lost.iter().filter(|(spans, _)| *spans > 0);
        let parts: Vec<_> = parts.map(|(spans, why)| format!("{} {why}", output::count(*spans))).collect();
        let spans = output::plural(all, "acknowledged span");
        (all > 0).then(|| format!("{spans} lost for good: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_ends_that_occurred() {
        let mut sums = Sums::from(Ledger::default());
        assert_eq!(sums.line(), "ledger: 0 spans acknowledged");
        assert_eq!(sums.lost(), None);
        (sums.acknowledged, sums.passed_on, sums.thrown_away, sums.waiting) = (1_204, 1_200, 3, 1);
        assert_eq!(
            sums.line(),
            "ledger: 1,204 spans acknowledged: 1,200 passed on, 3 thrown away, 1 waiting"
        );
        assert_eq!(
            sums.lost().as_deref(),
            Some("3 acknowledged spans lost for good: 3 thrown away to free space")
        );
    }
}
