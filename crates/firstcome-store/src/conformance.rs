//! What every adapter promises, as tests that any adapter can run.
//!
//! An adapter proves itself in a test of its own, on a runtime with several threads:
//!
//! ```text
//! conformance::coupon(|clock: Arc<ManualClock>| async move { MyStore::open(clock) }).await;
//! ```
//!
//! The rules of `firstcome-core` are the oracle: the suite never says twice what a rule is, it compares. It panics at
//! the first breach and names what was asked, what came back and, where chance chose the commands, the seed.
//!
//! # What it needs
//! - A store whose clock is the [`ManualClock`](crate::edge::ManualClock) that the suite hands over: boundaries are
//!   tested to the microsecond, and no test waits for time to pass. For locks and auctions a way to let time pass, see
//!   [`LetPass`]: their store may be a server with a clock of its own.
//! - Room for 1 000 commands at once: a store that answers `Overloaded` below that fails. For auctions see [`AuctionSizes`].
//! - Nothing of the machine: no file, no clock, no network. A suite that hangs is stopped by the test that runs it.

mod auction;
mod coupon;
mod lock;
mod room;

pub use auction::{AuctionSizes, auction_by_the_clock, auction_reopens, auctions};
pub use coupon::{coupon, coupon_reopens};
pub use lock::{LetPass, lock};
pub use room::{room, room_reopens};

use crate::edge::ManualClock;
use crate::edge::rng::Rng;
use firstcome_core::time::Timestamp;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Commands that the suite has under way at once at most.
const COMMANDS_AT_ONCE: usize = 1_000;

/// A clock that a test moves by hand, from an instant in 2027 on, and the way in which the suite moves it.
pub fn manual_clock() -> (Arc<ManualClock>, LetPass) {
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(1_800_000_000_000_000)));
    let moved = Arc::clone(&clock);
    let pass: LetPass = Arc::new(move |ms| {
        moved.pass_ms(ms);
        Box::pin(async {})
    });
    (clock, pass)
}

/// Runs all futures at once, each in a task of its own, and gives their results in the order of the futures.
async fn all<T: Send + 'static>(futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let tasks: Vec<_> = futures.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(result) => results.push(result),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    results
}

/// Polls a future a few times and then drops it, wherever it stands.
async fn give_up_after<T>(polls: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let told = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(told) => Poll::Ready(Some(told)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(told) = told.await {
            return Some(told);
        }
        tokio::task::yield_now().await;
    }
    None
}
