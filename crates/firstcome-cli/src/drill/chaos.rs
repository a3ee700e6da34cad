//! Kills under load: at random moments, and only while requests are in flight.

use super::crowd::{Crowd, Players};
use super::record::Restart;
use super::server::{Server, wait_ready};
use crate::rng::Rng;
use anyhow::{Context, anyhow};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The child, which a blocking thread restarts while the crowd goes on.
pub(crate) type SharedServer = Arc<Mutex<Server>>;

/// When the kills are: random, in the thick of it, in order.
pub(crate) fn moments_us(seed: u64, kills: u32, opens_us: u64, ends_us: u64) -> Vec<u64> {
    let mut rng = Rng::from_seed(seed ^ 0x6B69_6C6C);
    let span_us = ends_us.saturating_sub(opens_us) * 45 / 100;
    let mut moments: Vec<u64> = (0..kills).map(|_| opens_us + 500_000 + rng.below(span_us.max(1))).collect();
    moments.sort_unstable();
    moments
}

/// Kills and restarts. A moment without anything in flight is no kill: it is waited for one.
pub(crate) async fn kill_at<P: Players>(
    crowd: Rc<Crowd<P>>,
    server: SharedServer,
    moments_us: Vec<u64>,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for moment_us in moments_us {
        while crowd.clock.now_us() < moment_us || crowd.in_flight() == 0 {
            ticks.tick().await;
        }
        let in_flight = crowd.in_flight();
        let killed_us = crowd.clock.now_us();
        crowd.set_up(false);
        let server = Arc::clone(&server);
        let restart = move || {
            let mut server = server.lock().map_err(|_| anyhow!("a thread panicked"))?;
            server.kill();
            server.restart()?;
            anyhow::Ok(server.address)
        };
        let address = tokio::task::spawn_blocking(restart).await?.context("after a kill")?;
        wait_ready(address).await?;
        crowd.set_up(true);
        let ready_us = crowd.clock.now_us();
        crowd.restarted(Restart { killed_us, ready_us, in_flight });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn kills_are_in_the_thick_of_it() {
        let moments = super::moments_us(5, 20, 9_000_000, 60_000_000);
        assert!(moments.is_sorted() && moments.len() == 20);
        assert!(moments.iter().all(|moment| (9_500_000..32_500_000).contains(moment)), "{moments:?}");
    }
}
