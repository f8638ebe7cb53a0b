//! The limit on open files, which also limits connections. Shells often allow 1,024, as many as
//! `receive` accepts by default.

/// Handles reserved for files, folders, the standard streams, and connections that are still
/// closing.
const OTHERS: u64 = 64;

/// Raises the open-file limit as far as allowed, and returns how many of the `wanted` connections
/// fit.
pub(crate) fn connections(wanted: u32) -> u32 {
    let left =
        limit(2 * u64::from(wanted) + OTHERS).map_or(u64::from(wanted), |limit| limit.saturating_sub(OTHERS));
    // Even with very few handles, try to serve one connection.
    wanted.min(u32::try_from(left).unwrap_or(u32::MAX)).max(1)
}

/// The open-file limit, raised toward `wanted` as far as allowed; `None` if there is no limit.
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
        // No system allows this many.
        let most = connections(u32::MAX);
        assert!((1..u32::MAX).contains(&most), "{most}");
        assert!(limit(0).is_none_or(|limit| limit >= u64::from(most)));
    }
}
