//! Facts that hold for the tumbling and the decaying count alike.

use crate::decision::Reason;

/// The causes of a decision, for either count.
pub(super) const REASONS: [Reason; 2] = [Reason::Bump, Reason::BumpMinimum];

/// A count's batch is 2^(log2(count) - this): x / 1024 over 2 * shards.
pub(super) fn batch_bits(shards: u32) -> u32 {
    11 + shards.ilog2()
}
