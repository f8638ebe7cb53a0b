//! Traffic that differs from the recorded one: at another speed, or with one key far more frequent.
//! Parameters that are right only for the recorded traffic fail on it.

use crate::random::Random;
use crate::stop::Stop;
use crate::workload::Workload;

/// The stream of random numbers for the times of added calls.
const STREAM: u64 = 3;
/// A burst lasts this long, ns.
const BURST_NS: f64 = 1e9;

/// The workload with the calls of one key this many times as frequent: copies come at random times
/// of the recording, or within a second after each of the key's traces. `None` if asked to stop.
pub fn grown(workload: &Workload, key: u32, times: u64, in_bursts: bool, stop: Stop<'_>) -> Option<Workload> {
    let mut random = Random::new(STREAM, u64::from(key));
    let length_ns = workload.length_ns() as f64;
    let mut order = Vec::new();
    for (arrival, index) in workload.arrivals().iter().zip(0..) {
        order.push((arrival.at_ns, index));
        for _ in 1..if arrival.key == key { times } else { 1 } {
            let at_ns = match in_bursts {
                true => arrival.at_ns + (random.uniform() * BURST_NS) as u64,
                false => (random.uniform() * length_ns) as u64,
            };
            order.push((at_ns, index));
        }
    }
    order.sort_by_key(|&(at_ns, _)| at_ns);
    workload.arranged(&order, stop)
}

/// The workload with all times divided by `speed`. `None` if asked to stop.
pub fn at_speed(workload: &Workload, speed: f64, stop: Stop<'_>) -> Option<Workload> {
    let order = workload.arrivals().iter().zip(0..);
    let order: Vec<_> =
        order.map(|(arrival, index)| ((arrival.at_ns as f64 / speed) as u64, index)).collect();
    workload.arranged(&order, stop)
}
