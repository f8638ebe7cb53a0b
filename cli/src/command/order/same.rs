//! `--same A B`: two records of one moment state the offset between their hosts' clocks.

use std::collections::HashMap;

use astracer_causality::points::Points;

use super::ask::{EventName, find_by_time};
use crate::failure::Failure;
use crate::output::escaped;

/// The offsets of hosts that the user states, with those that pairs of events state. The first host
/// of a pair counts as right if nothing is known of either.
pub(super) fn offsets(
    given: &[(String, i64)],
    pairs: &[EventName],
    events: &Points,
) -> Result<Vec<(String, i64)>, Failure> {
    let mut offsets: HashMap<String, i64> = given.iter().cloned().collect();
    for pair in pairs.chunks_exact(2) {
        let [one, other] = [find_by_time(events, &pair[0])?, find_by_time(events, &pair[1])?].map(|found| {
            let row = &events.rows()[found.event as usize];
            (events.host(row).to_owned(), row.time, events.clock(row))
        });
        if one.2 == other.2 {
            let host = escaped(&one.0);
            return Err(Failure::Usage(format!(
                "--same: both events are of host '{host}', which has one clock; name the host of each file \
                 as in HOST=PATH"
            )));
        }
        let later = i64::try_from(i128::from(other.1) - i128::from(one.1))
            .map_err(|_| Failure::Usage("--same: the two events are more than 292 years apart".to_owned()))?;
        match (offsets.get(&one.0).copied(), offsets.get(&other.0).copied()) {
            (Some(_), Some(_)) => {
                return Err(Failure::Usage(format!(
                    "--same: the clocks of '{}' and '{}' are stated already",
                    escaped(&one.0),
                    escaped(&other.0)
                )));
            }
            (None, Some(known)) => {
                offsets.insert(one.0, known.saturating_sub(later));
            }
            (known, None) => {
                let ahead = known.unwrap_or(0);
                offsets.insert(one.0, ahead);
                offsets.insert(other.0, ahead.saturating_add(later));
            }
        }
    }
    let mut offsets: Vec<_> = offsets.into_iter().collect();
    offsets.sort();
    Ok(offsets)
}
