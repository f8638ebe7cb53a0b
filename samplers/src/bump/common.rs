//! Shared by the tumbling and the decaying count.

use crate::decision::Reason;

/// The reasons for decisions, for either count.
pub(super) const REASONS: [Reason; 2] = [Reason::Bump, Reason::BumpMinimum];

/// The batch of a count x is 2^(floor(log2(x)) - `batch_bits`): at most x / 1024, divided by 2 *
/// shards.
pub(super) fn batch_bits(shards: u32) -> u32 {
    11 + shards.ilog2()
}
