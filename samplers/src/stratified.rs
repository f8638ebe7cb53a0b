//! Stratified randomness: the randomness of a key's traces is spread evenly over all values.
//!
//! A sampler keeps a trace if its randomness reaches a threshold. With independent randomness, the
//! number of kept traces among n varies like a binomial. Here the randomness of a key's successive
//! traces is a scrambled [`net`], and the number of kept traces is off by about the root of log n.
//! Each single value is still uniform, because each sequence starts at a random place: thresholds
//! stay true, and estimates unbiased.

use crate::mix::mix;
use crate::nanos::Nanos;
use crate::net::net;
use crate::randomness::Randomness;
use crate::request::Request;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Limits;
use crate::thread;

/// The number of sequences, a power of two. Keys whose hashes collide share one.
const SEQUENCES: usize = 1 << 10;
/// The high bits of a value, which are those of the net; the bits below are random.
const STRATIFIED_BITS: u32 = 32;
const RANDOM_BITS: u32 = Randomness::BITS - STRATIFIED_BITS;

/// The source of randomness for traces that begin in this service. As text: `independent` or
/// `stratified`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RandomSource {
    /// The trace id's last seven bytes, which are random.
    #[default]
    Independent,
    /// [`Stratified`] randomness, passed on as `rv`: counts by weight are more exact.
    Stratified,
}

impl RandomSource {
    /// The source with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [RandomSource::Independent, RandomSource::Stratified].into_iter().find(|source| source.name() == name)
    }

    /// The name used in parameters files.
    pub const fn name(self) -> &'static str {
        match self {
            RandomSource::Independent => "independent",
            RandomSource::Stratified => "stratified",
        }
    }
}

/// A source of randomness for traces that begin here. Use it for traces without a parent, in place
/// of the randomness of their ids, and pass the value on as `rv`
/// ([`OtMember::randomness`](crate::tracestate::OtMember::randomness)).
///
/// The value goes into `rv` and not into the trace id. W3C's random flag promises that the id's
/// last seven bytes were selected at random; these values are not, because those of one key depend
/// on each other. OpenTelemetry's TraceState specification provides `rv` for randomness that is not
/// the id's, and gives it precedence.
///
/// # Predictability
///
/// Sequences start at a secret place, and the low 24 bits of a value are random. But the scramble
/// is no cipher. Of each pair of a key's calls, one has a value below a half and the other above:
/// the only caller of a key, who knows how many of its traces the same process has begun, can infer
/// half of that from the values it has seen. From more values it can compute the start. Where that
/// matters, use independent randomness.
#[derive(Debug)]
pub struct Stratified {
    secret: u64,
    /// For each shard, the number of values that each sequence has produced. Shards have separate
    /// sequences, so that threads do not contend.
    given: Box<[Box<[AtomicU64]>]>,
    /// The number of shards that belong to one thread each.
    own: usize,
}

impl Stratified {
    /// `secret` must be 64 unguessable bits, new for each process; in a replay, the seed. Of the
    /// limits only the number of shards is used: each takes 8 kB.
    pub fn new(secret: u64, limits: Limits) -> Self {
        let shard = || (0..SEQUENCES).map(|_| AtomicU64::new(0)).collect();
        let shards = limits.shards();
        Stratified { secret, given: (0..shards).map(|_| shard()).collect(), own: shards as usize / 2 }
    }

    /// The randomness of a trace that begins with a root of this key. `random` must have at least
    /// 24 random low bits; the others are ignored.
    #[inline]
    pub fn next(&self, key: &str, random: u64) -> Randomness {
        let sequence = crate::table::hash(key.as_bytes()) as usize % SEQUENCES;
        let number = thread::number() as usize;
        let (shard, given) = if number < self.own {
            // Only the thread with this number writes here, so a load and a store suffice. Relaxed:
            // claiming the number made the writes of its earlier owners visible, and no other
            // memory depends on the count.
            let count = &self.given[number][sequence];
            let given = count.load(Ordering::Relaxed);
            count.store(given.wrapping_add(1), Ordering::Relaxed);
            (number, given)
        } else {
            let shard = self.own + (number & (self.given.len() - self.own - 1));
            // Shared with other threads: `fetch_add` gives each number out once.
            (shard, self.given[shard][sequence].fetch_add(1, Ordering::Relaxed))
        };
        let place = (shard * SEQUENCES + sequence) as u64;
        value(mix(self.secret ^ mix(place)), given, random)
    }

    /// A request for a trace that begins with a root of this key.
    pub fn request<'a>(&self, key: &'a str, random: u64, now: Nanos) -> Request<'a> {
        Request::new(key, self.next(key, random), now)
    }
}

/// The value at this place of the sequence that begins at `start`, with the low 24 bits of
/// `random`.
#[inline]
pub(crate) fn value(start: u64, number: u64, random: u64) -> Randomness {
    let high = net(start, number) >> (u64::BITS - STRATIFIED_BITS);
    Randomness::from_low_bits(high << RANDOM_BITS | random & ((1 << RANDOM_BITS) - 1))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn single(secret: u64) -> Stratified {
        Stratified::new(secret, Limits::single_threaded())
    }

    /// A value as a number between 0 and 1.
    fn unit(randomness: Randomness) -> f64 {
        randomness.get() as f64 / 2f64.powi(56)
    }

    /// The first n numbers of a net are one aligned block for each bit that is 1 in n, and each
    /// block is off by less than 1. Independent values would be off by more: at a threshold of a
    /// half their standard deviation is 27 of 3,000.
    #[test]
    fn any_share_of_a_keys_traces_is_kept_to_within_a_logarithm() {
        for secret in 1..=20 {
            let source = single(secret);
            let values: Vec<f64> = (0..3_000).map(|n| unit(source.next("a", n * 7_919))).collect();
            for n in [10usize, 100, 1_000, 3_000] {
                for threshold in [0.001, 0.1, 0.5, 0.9, 0.99, 0.999] {
                    let kept = values[..n].iter().filter(|&&value| value >= threshold).count() as f64;
                    let off = (kept - n as f64 * (1.0 - threshold)).abs();
                    assert!(off < f64::from(n.count_ones()), "secret {secret}: {off} of {n} at {threshold}");
                }
            }
        }
    }

    /// This pins the function: the tuner replays with the same one.
    #[test]
    fn values_are_those_of_the_net() {
        let source = single(3);
        // With one shard of its own and one shared, the key's place is below 2 * SEQUENCES.
        let values: Vec<u64> = (0..200).map(|n| source.next("a", n * 7_919).get() >> RANDOM_BITS).collect();
        let of = |place: u64| (0..200).map(move |n| net(mix(3 ^ mix(place)), n) >> STRATIFIED_BITS);
        assert!((0..2 * SEQUENCES as u64).any(|place| of(place).eq(values.iter().copied())));
    }

    /// The n-th value over many secrets: 4,000 values in 16 cells, so a mean of 250 with a standard
    /// deviation of 15.3.
    #[test]
    fn each_value_is_uniform() {
        for nth in [0, 1, 7] {
            let mut cells = [0i32; 16];
            for secret in 0..4_000 {
                let source = single(mix(secret));
                for _ in 0..nth {
                    source.next("a", 0);
                }
                let value = source.next("a", 0);
                cells[(value.get() >> 52) as usize] += 1;
            }
            assert!(cells.iter().all(|cell| (cell - 250).abs() < 5 * 16), "{nth}: {cells:?}");
        }
    }

    #[test]
    fn the_low_bits_are_those_that_were_given_and_the_others_are_not() {
        let (first, second) = (single(1), single(1));
        let [a, b] = [first.next("a", 0), second.next("a", u64::MAX)].map(Randomness::get);
        assert_eq!((a >> 24, a & 0xff_ffff, b & 0xff_ffff), (b >> 24, 0, 0xff_ffff));
        assert_ne!(single(2).next("a", 0), single(1).next("a", 0), "another secret, another start");
        // Keys have separate sequences that start elsewhere, and one does not advance the other.
        assert_ne!(first.next("b", 0).get() >> 24, a >> 24);
        let _ = (first.next("b", 0), first.next("b", 0));
        assert_eq!(first.next("a", 0), second.next("a", 0));
    }

    /// Threads that live at once have separate sequences that start elsewhere: each is spread
    /// evenly, and none repeats another.
    #[test]
    fn threads_with_shards_of_their_own_begin_elsewhere() {
        let source = Stratified::new(7, Limits::default().with_shards(256));
        let met = std::sync::Barrier::new(2);
        let take = || {
            // Waits for the other thread, so that both hold their numbers at once.
            let values: Vec<u64> = (0..100).map(|_| source.next("a", 0).get() >> RANDOM_BITS).collect();
            met.wait();
            values
        };
        let (first, second) = std::thread::scope(|scope| {
            let handles = [scope.spawn(take), scope.spawn(take)];
            let [first, second] = handles.map(|handle| handle.join().unwrap());
            (first, second)
        });
        assert!(first.iter().all(|value| !second.contains(value)));
        for values in [first, second] {
            let kept = values.iter().filter(|&&value| value >> (STRATIFIED_BITS - 1) == 1).count();
            assert!(kept.abs_diff(50) <= 3, "{kept} of 100 at a half");
        }
    }

    /// No value is taken twice: with one shard all threads take from one sequence.
    #[test]
    fn threads_share_a_sequence() {
        let source = single(7);
        let mut values: Vec<u64> = std::thread::scope(|scope| {
            let take = || (0..500).map(|_| source.next("a", 0).get()).collect::<Vec<_>>();
            let handles: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
        });
        let one = single(7);
        let mut expected: Vec<u64> = (0..2_000).map(|_| one.next("a", 0).get()).collect();
        values.sort_unstable();
        expected.sort_unstable();
        assert_eq!(values, expected);
    }
}
