//! Locks over several independent servers: a client holds a lock when a majority of the servers granted it, with a
//! fence. This is Redlock with the fence and the restart rules that it lacks.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::Locks;
//! use std::time::Duration;
//!
//! let locks = Locks::quorum(["redis://a", "redis://b", "redis://c"]).await?;
//! let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).lease(Duration::from_secs(3)).acquire().await?;
//! println!("ours, with fence {}", guard.fence()?);
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Promises
//! - One holder at a time, as long as the holder respects its deadline. This needs clocks that all run alike within 1
//!   %, and servers that do not lose what they have acknowledged except by a restart.
//! - Fences that grow: a fence is above that of every grant that was reported before its attempt began. This holds for
//!   all clocks, except in the last row of the table. Let the guarded store refuse a smaller one: see
//!   [`fence`](crate::fence).
//! - Service while a majority answers. A server that lost its memory does not vote until every lock that it forgot is
//!   over. It then continues from the counter of other servers.
//! - Repair: a renewal restores the lock on a server that lost it, or that was away at the grant.
//! - A hold is renewed as long as its guard lives, unless the request is [`fixed`](super::LockRequest::fixed).
//! - Dropping a future or a guard releases the lock on all servers in the background, even when a grant comes late.
//!
//! | what happens | holders | fences |
//! |---|---|---|
//! | a holder is paused past its deadline | the next holder is alone; the paused one finds its lock lost | grow |
//! | a holder dies | the next one comes after its lease | grow |
//! | a minority is away, stands still or is cut off | one | grow |
//! | a majority is away | no new holder, and no client is told otherwise | grow |
//! | a minority restarts empty or with an older memory | one | grow |
//! | a majority restarts | no new holder for `rejoin_after` | grow |
//! | the clock of a server jumps | **two may believe it**, if that server granted the lock and enough others did not | grow between grants that follow each other |
//! | the clock of a server that lost its memory jumps ahead while it waits to vote | **two may believe it** | may fall, if the grant before was requested before the server lost its memory |
//!
//! # Not promised
//! - An order. The servers notify waiters in the order in which they began to wait, and mostly grant in that order.
//! - That a hold lasts. It ends when this process cannot reach a majority for a lease, or stands still for one.
//! - Leases above [`rejoin_after`](QuorumOptions::rejoin_after).
//!
//! # Costs
//! An acquisition and a release each cost one message to every server. An acquisition costs a second one if the
//! counters of the servers differ. A waiter sends one more to every server when it arrives, when it is notified, and
//! after each pause. In a [cohort](super::LockRequest::cohort) a hold passes on within the process without a message.

use super::Locks;
use super::keyed::KeyLocks;
use firstcome_redis::QuorumStore;

pub use firstcome_redis::{NodeSet, QuorumCounts, QuorumOptions, ReplicaAck};

/// Returns how much work was done so far; `None` for locks of another kind of store. No request.
pub fn counts(locks: &Locks) -> Option<QuorumCounts> {
    locks.as_other().map(|locks: &KeyLocks<QuorumStore>| locks.store().counts())
}
