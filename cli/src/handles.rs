//! Handles of files and connections, of which a shell gives a process few: 1,024 in most, as many
//! as `receive` has connections.

/// Handles for files, folders, the standard streams, and connections that end slowly.
const OTHERS: u64 = 64;

/// Raises the limit as far as the system lets this process, and returns the number of connections
/// for which handles are there: the one that is wanted, or fewer.
pub(crate) fn connections(wanted: u32) -> u32 {
    let left =
        limit(2 * u64::from(wanted) + OTHERS).map_or(u64::from(wanted), |limit| limit.saturating_sub(OTHERS));
    // With very few it still has to try.
    wanted.min(u32::try_from(left).unwrap_or(u32::MAX)).max(1)
}

/// The limit on handles, raised toward this number as far as it may be; none for no limit.
#[cfg(unix)]
fn limit(wanted: u64) -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let before = getrlimit(Resource::Nofile);
    let soft = before.current?;
    if soft >= wanted {
        return Some(soft);
    }
    let raised = before.maximum.map_or(wanted, |hard| hard.min(wanted));
    let after = rustix::process::Rlimit { current: Some(raised), maximum: before.maximum };
    Some(setrlimit(Resource::Nofile, after).map_or(soft, |()| raised))
}

#[cfg(not(unix))]
fn limit(_wanted: u64) -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn connections_have_handles() {
        assert_eq!(connections(1), 1);
        // No system gives this many.
        let most = connections(u32::MAX);
        assert!((1..u32::MAX).contains(&most), "{most}");
        assert!(limit(0).is_none_or(|limit| limit >= u64::from(most)));
    }
}
