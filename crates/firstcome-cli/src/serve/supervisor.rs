//! Tells systemd that the service serves, that it is alive, and that it stops: `sd_notify(3)`.
//!
//! The service is alive by the rule of `/healthz`: a process whose writer has stopped after a bug tells nothing any more, and neither does
//! one whose first thread hangs, so systemd starts it again after `WatchdogSec`. Without `NOTIFY_SOCKET`, which systemd sets, nothing is
//! told.

use firstcome_server::App;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The shortest time between two signs of life.
const ROUND_MIN: Duration = Duration::from_millis(1);

/// Tells systemd one thing. Waits if systemd is behind with reading.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd cannot be told of this service at NOTIFY_SOCKET");
    }
}

/// Tells that the service serves.
pub(super) fn ready() {
    tell(NotifyState::Ready);
}

/// Tells that the service stops.
pub(super) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Tells again and again that the service is alive, while it is. Ends at once if systemd waits for nothing.
pub(super) async fn keep_alive(app: Arc<App>) {
    if let Some(within) = sd_notify::watchdog_enabled().filter(|within| !within.is_zero()) {
        rounds(within, || app.restart_needed().is_none(), || tell(NotifyState::Watchdog)).await;
    }
}

/// Tells twice in each time that systemd waits, while the service lives. Never ends.
async fn rounds(within: Duration, lives: impl Fn() -> bool, tell: impl Fn() + Copy + Send + 'static) {
    let mut rounds = interval((within / 2).max(ROUND_MIN));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        if lives() {
            // A thread of its own: a systemd that does not read must not stop the service.
            let _ = tokio::task::spawn_blocking(tell).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use tokio::time::timeout;

    static TOLD: AtomicU32 = AtomicU32::new(0);

    /// Tells for a while, until there is a sign of life or the time is over. Returns how many there were.
    async fn told(lives: &AtomicBool, at_most: Duration) -> u32 {
        let before = TOLD.load(Ordering::SeqCst);
        let lives = || lives.load(Ordering::SeqCst);
        let tell = || _ = TOLD.fetch_add(1, Ordering::SeqCst);
        let some = async {
            while TOLD.load(Ordering::SeqCst) < before + 3 {
                tokio::task::yield_now().await;
            }
        };
        let both = async {
            tokio::select! {
                () = rounds(Duration::from_millis(2), lives, tell) => {}
                () = some => {}
            }
        };
        let _ = timeout(at_most, both).await;
        TOLD.load(Ordering::SeqCst) - before
    }

    #[tokio::test]
    async fn a_service_tells_that_it_lives_only_while_it_does() {
        let lives = AtomicBool::new(true);
        assert!(3 <= told(&lives, Duration::from_secs(30)).await);
        lives.store(false, Ordering::SeqCst);
        assert_eq!(told(&lives, Duration::from_millis(100)).await, 0);
    }
}
