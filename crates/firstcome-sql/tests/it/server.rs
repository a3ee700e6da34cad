//! How tests wait for servers, as the tests on Redis do.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than anything here takes on a slow machine; a test that waits so long has found a fault.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again, at most [`PATIENCE`] long, until there is something to see.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < until, "timed out waiting for {what}");
        sleep(Duration::from_millis(2)).await;
    }
}
