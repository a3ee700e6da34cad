//! The conformance suites: the promises of every adapter, as tests that any adapter can run.
//!
//! An adapter runs a suite in a test of its own, on a runtime with several threads:
//!
//! ```text
//! conformance::coupon(|clock: Arc<ManualClock>| async move { MyStore::open(clock) }).await;
//! ```
//!
//! The rules of `firstcome-core` are the oracle: the suite does not repeat a rule, it compares with it. It panics at
//! the first difference. The message names the command, the reply and, for random commands, the seed.
//!
//! # What it needs
//! - A store on the [`ManualClock`](crate::edge::ManualClock) that the suite passes in: boundaries are tested to the
//!   microsecond, and no test waits for time to pass. For locks and auctions a way to let time pass, see [`LetPass`]:
//!   their store may be a server with its own clock.
//! - Capacity for 1 000 commands at once: a store that replies `Overloaded` below that fails. For auctions see
//!   [`AuctionSizes`].
//! - Nothing of the machine: no file, no clock, no network. The test that runs a suite must stop it if it hangs.

mod auction;
mod coupon;
mod erase;
mod lock;
mod receipt;
mod records;
mod room;

pub use auction::{AuctionSizes, auction_by_the_clock, auction_reopens, auctions};
pub use coupon::{coupon, coupon_reopens};
pub use erase::{
    ErasesMembers, ErasesPlaces, erasures, erasures_reopen, member_erasures, member_erasures_by_the_clock,
};
pub use lock::{LetPass, lock};
pub use receipt::{Published, head_purges, receipts, receipts_reopen};
pub use records::record_purges;
pub use room::{room, room_reopens};

use crate::edge::ManualClock;
use crate::edge::rng::Rng;
use firstcome_core::time::Timestamp;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// The most commands that the suite has under way at once.
const COMMANDS_AT_ONCE: usize = 1_000;

/// Makes a clock that a test moves by hand, beginning in 2027, and the function by which the suite moves it.
pub fn manual_clock() -> (Arc<ManualClock>, LetPass) {
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(1_800_000_000_000_000)));
    let moved = Arc::clone(&clock);
    let pass: LetPass = Arc::new(move |ms| {
        moved.pass_ms(ms);
        Box::pin(async {})
    });
    (clock, pass)
}

/// Runs each future in its own task, all at once, and returns their results in the order of the futures.
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

/// Polls a future at most `polls` times, and then drops it.
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
