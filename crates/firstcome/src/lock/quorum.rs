//! Locks over several servers that know nothing of each other.

use super::Fence;
use super::keyed::{KeyGuard, KeyLocks, KeyRequest};
use firstcome_redis::{QuorumCounts, QuorumStore};

/// Locks over several servers that know nothing of each other: a lock belongs to whom a majority of them has given it, and
/// comes with a fence. Redlock, with what it lacks.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::Locks;
/// use std::time::Duration;
///
/// let locks = Locks::quorum(["redis://a", "redis://b", "redis://c"]).await?;
/// let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).lease(Duration::from_secs(3)).acquire().await?;
/// println!("ours, with fence {}", guard.fence());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Promises
/// - While the clocks of all run alike within 1 %, and no server loses what it has said without a restart: one holder at a time,
///   as long as it minds its deadline.
/// - No matter what clocks do, except for the last line below: a fence that is above that of every grant told before its attempt
///   began. Let the guarded store refuse a smaller one: see [`fence`](crate::fence).
/// - It goes on while a majority answers. A server that has forgotten does not vote until every lock that it forgot is over, and comes
///   back with a counter that others have told it.
/// - A renewal repairs: a server that lost the lock, or was away when it was taken, has it again.
/// - Dropping a future or a guard gives the lock back on all servers in the background, also where a grant comes late.
///
/// | what happens | holders | fences |
/// |---|---|---|
/// | a holder is paused past its deadline | the next one is alone, the paused one finds itself lost | grow |
/// | a holder dies | the next one comes after its lease | grow |
/// | a minority is away, stands still or is cut off | one | grow |
/// | a majority is away | no process new, and no process is told otherwise | grow |
/// | a minority restarts empty or with an older memory | one | grow |
/// | a majority restarts | no process new for `rejoin_after` | grow |
/// | the clock of a server jumps | **two may believe it**, if it gave the lock and enough others did not | grow in the order of grants that follow each other |
/// | the clock of a server jumps ahead while it waits, since it has forgotten | **two may believe it** | may fall, if the grant before was asked for before the server forgot |
///
/// # Not promised
/// - An order. Who waits is told when it is his turn, by when he began to wait, and mostly served so.
/// - That a hold lasts. It ends when a majority cannot be reached for a lease, or this process stands still for one.
/// - Leases above [`rejoin_after`](super::QuorumOptions::rejoin_after).
///
/// # Costs
/// An acquisition and a release are one message to each server each, an acquisition two where they have counted differently. A
/// waiter sends one more to each when it comes, when it is told, and after each pause.
/// In a [cohort](super::KeyRequest::cohort) a hold is passed on within the process, for no message at all.
pub type QuorumLocks = KeyLocks<QuorumStore>;

/// A lock over several servers that is about to be asked for.
pub type QuorumRequest = KeyRequest<QuorumStore>;

/// A lock over several servers that is held.
pub type QuorumGuard = KeyGuard<QuorumStore>;

impl KeyLocks<QuorumStore> {
    /// What has been done so far. No request.
    pub fn counts(&self) -> QuorumCounts {
        self.store().counts()
    }
}

impl KeyGuard<QuorumStore> {
    /// The fence of this hold. The same after renewals.
    pub const fn fence(&self) -> Fence {
        self.grant()
    }
}
