//! Raises the limit of file descriptors, and limits the connections to what fits.

use firstcome_server::ADMIN_CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not for connections of clients: those of operators' connections, of the stores (files, up to
/// 64 connections to a database, Redis), of listeners and of the runtime.
const RESERVE: usize = ADMIN_CONNECTIONS_MAX + 128;
/// The fewest connections. If the limit is too low for both, the reserve shrinks.
const CONNECTIONS_MIN: usize = 16;

/// Raises the soft limit of descriptors to the hard one, and returns how many of the wanted connections fit. Logs a
/// warning if fewer fit.
pub(crate) fn fitting(wanted: usize) -> usize {
    let Some(limit) = raised() else { return wanted };
    let fitting = fitting_in(limit, wanted);
    if fitting < wanted {
        tracing::warn!(
            connections_max = fitting,
            wanted,
            limit,
            reserve = RESERVE,
            "fewer connections than wanted fit into the limit of file descriptors: raise the hard limit (ulimit -Hn)"
        );
    }
    fitting
}

fn fitting_in(limit: usize, wanted: usize) -> usize {
    wanted.min(limit.saturating_sub(RESERVE).max(CONNECTIONS_MIN))
}

/// Raises the limit, and returns the one in force; `None` for no limit.
fn raised() -> Option<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: maximum, maximum };
    let is_raised = current == maximum || setrlimit(Resource::Nofile, wanted).is_ok();
    let limit = if is_raised { maximum } else { current };
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_reserve_of_descriptors() {
        let rows = [(20_000, 10_000, 10_000), (1_024, 10_000, 864), (256, 10_000, 96), (256, 50, 50), (64, 10_000, 16)];
        for (limit, wanted, fits) in rows {
            assert_eq!(fitting_in(limit, wanted), fits, "{limit} descriptors, {wanted} wanted");
        }
    }
}
