//! The wire of locks: one method is one call of the service. Renewals in the background are the library's.

use crate::call::{Call, CallReply, draw_key};
use crate::coupon::segment;
use crate::options::{HttpOptions, OpenHttpError};
use crate::{Link, Service};
use firstcome_store::StoreError;
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::Fence;
use firstcome_tls::Trust;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the holder of a lock shows to renew and release it. A secret of its holder: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct LockHandle(Box<str>);

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockHandle(secret)")
    }
}

/// A request for a lock. All copies of it are one request to the service: it carries one idempotency key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    name: LockName,
    owner: OwnerName,
    wait: Duration,
    lease: Duration,
    permits: Option<u32>,
    key: String,
}

impl Acquire {
    /// Makes a request, with a key that is drawn for it.
    ///
    /// `wait` is at most an hour, and zero for one try. `lease` is 100 ms to 8 days. Both count in whole milliseconds.
    /// Fails if the operating system gives no random bytes.
    pub fn new(name: LockName, owner: OwnerName, wait: Duration, lease: Duration) -> Result<Self, StoreError> {
        Ok(Self { name, owner, wait, lease, permits: None, key: draw_key()? })
    }

    /// Asks for a hold that up to `permits` requests may have together, 1 to 1000.
    pub fn sharing(self, permits: u32) -> Self {
        Self { permits: Some(permits), ..self }
    }

    /// The name of the lock.
    pub const fn name(&self) -> &LockName {
        &self.name
    }
}

/// The answer to a request for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acquired {
    /// The lock is granted.
    Granted {
        /// Larger than that of every grant of this lock before.
        fence: Fence,
        /// What renews and releases it.
        handle: LockHandle,
    },
    /// Another request has the lock, and the wait is over.
    Contended {
        /// The holder's name as other clients see it.
        holder: String,
        /// How many requests wait for the lock.
        waiters: u32,
        /// How long the hold lasts unless it is renewed.
        ttl: Duration,
        /// After a wait: how many requests were still ahead.
        position: Option<u32>,
    },
}

/// What the service says of a hold that was to be renewed or released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoldReply {
    /// The hold stood.
    Yes,
    /// The hold was over.
    No,
    /// The hold is over: it ended before, or an earlier copy of this very release ended it.
    Perhaps,
}

/// A lock as the service shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockShown {
    /// The holder's name, its fence, and how long it lasts unless it is renewed.
    pub held: Option<(OwnerName, Fence, Duration)>,
    /// How many requests hold it: above 1 only if they share it.
    pub holders: u32,
    /// How many requests wait.
    pub waiters: u32,
}

#[derive(Serialize)]
struct AcquireBody<'a> {
    owner: &'a str,
    wait_ms: u64,
    lease_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
}

#[derive(Deserialize)]
struct GrantShown {
    fence: u64,
    handle: String,
}

#[derive(Serialize)]
struct RenewBody<'a> {
    handle: &'a str,
    lease_ms: u64,
}

#[derive(Serialize)]
struct ReleaseBody<'a> {
    handle: &'a str,
}

#[derive(Deserialize)]
struct LockBody {
    holder: Option<String>,
    fence: Option<u64>,
    ttl_ms: Option<u64>,
    holders: u32,
    waiters: u32,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn path(name: &LockName, action: &str) -> String {
    format!("/v1/locks/{}{action}", segment(name.as_str()))
}

/// The locks of a service, as single calls. The key needs the scope of a service.
///
/// Whether the answer to a grant reached the client is known to the service: a grant whose answer could not be written
/// is released there.
#[derive(Debug)]
pub struct HttpLocks {
    service: Arc<Service>,
}

impl HttpLocks {
    /// Prepares a client of the service at `url`, as [`HttpStore::new`](crate::HttpStore::new) does. Sends nothing.
    pub fn new(url: &str, key: &str) -> Result<Self, OpenHttpError> {
        Self::with(url, key, HttpOptions::default())
    }

    /// Prepares a client like [`Self::new`], with options. Fails also if one is out of its range.
    pub fn with(url: &str, key: &str, options: HttpOptions) -> Result<Self, OpenHttpError> {
        Self::trusting(url, key, options, &Trust::default())
    }

    /// Prepares a client like [`Self::with`] that trusts an authority of its own, and shows a certificate of its own if it has one.
    pub fn trusting(url: &str, key: &str, options: HttpOptions, trust: &Trust) -> Result<Self, OpenHttpError> {
        Ok(Self { service: Arc::new(Service::new(Link::new(url, key, &options, trust)?, options)) })
    }

    /// Asks for a lock, and waits in line as long as the request says. Repeats a request that had no answer, within its
    /// wait and [`HttpOptions::retry_for`]: at the same node a repeat goes on with the same wait. A waiting request holds
    /// a connection of its own.
    ///
    /// Dropping the future closes the connection, which gives up the place in line. A grant that was on its way then
    /// stands; [`Self::take_back`] ends it.
    pub async fn acquire(&self, acquire: &Acquire) -> Result<Acquired, StoreError> {
        acquired(&self.service.call(&acquire.call()).await?)
    }

    /// Ends what a dropped [`Self::acquire`] of this request may have got: asks once more under its key, for at most
    /// `within`, and releases what the answer grants. At most two round trips. Leaves the rest to the end of the lease.
    pub async fn take_back(&self, acquire: &Acquire, within: Duration) {
        let call = acquire.call().within(within, Duration::ZERO);
        let told = tokio::time::timeout(within, self.service.call(&call)).await;
        if let Ok(Ok(told)) = told
            && let Ok(Acquired::Granted { handle, .. }) = acquired(&told)
        {
            // If this fails, the lease ends the hold.
            drop(self.release(&acquire.name, &handle, Duration::ZERO).await);
        }
    }

    /// Lets a hold last `lease` from when the service gets this, and never shorter than before. One request, without a
    /// repeat, with an answer within `within`: the caller knows best when to try again.
    pub async fn renew(
        &self,
        name: &LockName,
        handle: &LockHandle,
        lease: Duration,
        within: Duration,
    ) -> Result<HoldReply, StoreError> {
        let body = RenewBody { handle: &handle.0, lease_ms: millis(lease) };
        let call = Call::post(path(name, "/renew"), &body).within(within, Duration::ZERO);
        held(&self.service.call(&call).await?)
    }

    /// Releases a hold. Repeats a request that had no answer for at most `retry_for`; if a repeat finds the hold over,
    /// the answer is [`HoldReply::Perhaps`].
    pub async fn release(
        &self,
        name: &LockName,
        handle: &LockHandle,
        retry_for: Duration,
    ) -> Result<HoldReply, StoreError> {
        let call = Call::post(path(name, "/release"), &ReleaseBody { handle: &handle.0 });
        let told = self.service.call(&call.within(self.service.options().answer_timeout, retry_for)).await?;
        match held(&told)? {
            HoldReply::No if told.is_perhaps_second() => Ok(HoldReply::Perhaps),
            held => Ok(held),
        }
    }

    /// Shows a lock. One request.
    pub async fn show(&self, name: &LockName) -> Result<LockShown, StoreError> {
        let told = self.service.call(&Call::get(path(name, ""))).await?;
        if !told.is_yes() {
            return Err(told.refused());
        }
        let LockBody { holder, fence, ttl_ms, holders, waiters } = told.read()?;
        let held = match (holder, fence, ttl_ms) {
            (Some(holder), Some(fence), Some(ttl_ms)) => {
                let (owner, fence) = (OwnerName::parse(&holder).ok(), Fence::new(fence));
                let (owner, fence) = owner.zip(fence).ok_or_else(|| told.strange())?;
                Some((owner, fence, Duration::from_millis(ttl_ms)))
            }
            _ => None,
        };
        Ok(LockShown { held, holders, waiters })
    }
}

impl Acquire {
    fn call(&self) -> Call {
        let Self { name, owner, wait, lease, permits, key } = self;
        let (wait_ms, lease_ms) = (millis(*wait), millis(*lease));
        let body = AcquireBody { owner: owner.as_str(), wait_ms, lease_ms, permits: *permits };
        Call::post(path(name, "/acquire"), &body).under(key).waiting(*wait)
    }
}

fn acquired(told: &CallReply) -> Result<Acquired, StoreError> {
    if told.is_yes() {
        let GrantShown { fence, handle } = told.read()?;
        let fence = Fence::new(fence).ok_or_else(|| told.strange())?;
        return Ok(Acquired::Granted { fence, handle: LockHandle(handle.into()) });
    }
    let Some(problem) = told.problem().filter(|problem| problem.code() == "contended") else {
        return Err(told.refused());
    };
    let count = |member: &str| problem.number(member).and_then(|number| u32::try_from(number).ok());
    Ok(Acquired::Contended {
        holder: problem.word("holder").unwrap_or_default().to_owned(),
        waiters: count("waiters").unwrap_or(0),
        ttl: problem.number("ttl_ms").map_or(Duration::MAX, Duration::from_millis),
        position: count("position"),
    })
}

fn held(told: &CallReply) -> Result<HoldReply, StoreError> {
    match told.problem() {
        _ if told.is_yes() => Ok(HoldReply::Yes),
        Some(problem) if problem.code() == "lock_lost" => Ok(HoldReply::No),
        _ => Err(told.refused()),
    }
}
