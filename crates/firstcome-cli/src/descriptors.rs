//! File descriptors: as many as the system lets this process have, and as many connections as fit.

use firstcome_server::ADMIN_CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that no client's connection takes: those of operators' connections, and those of the stores (files, up to 64
/// connections to a database, Redis), of listeners and of the runtime.
const RESERVE: usize = ADMIN_CONNECTIONS_MAX + 128;
/// With fewer connections than this nothing is served well. Then the reserve has to do with less.
const CONNECTIONS_MIN: usize = 16;

/// Raises the soft limit of descriptors to the hard one, and says how many of the wanted connections fit. Logs a warning if
/// those are fewer.
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

/// The limit that holds now; `None` if there is none.
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
