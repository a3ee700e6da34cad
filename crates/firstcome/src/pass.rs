//! Verifies passes of a waiting room without a call within a request.
//!
//! A [`PassVerifier`] asks a service for its public keys and for the admissions that have not ended, about once a second
//! and in the background. [`PassVerifier::check`] then answers from memory. With the feature `tower`, [`PassLayer`] puts
//! that before a service of tower or axum.
//!
//! # What it promises
//! - A text is a pass only if a key that the service has now signed it for this room, before its end, and if its
//!   admission has not ended as far as the last list says.
//! - A release, an idle time-out and a new key have their effect at most [`REFRESH`] and the round trips of one refresh
//!   after the asked node has heard of them. A release within the first 2 s of an admission has it 2 s after the admission
//!   at the earliest: until then the admission may be younger than the list.
//! - A signature is verified once, as long as the pass is among the last 8 192 that were used, and at most 16 384 are
//!   kept. Only valid passes are kept, so no client can fill the memory with other texts.
//! - "No" and "unknown" are never mixed: a service that has not answered for the grace is [`PassError::Away`].
//! - The background task ends with the last clone of the verifier.
//!
//! # What it does not promise
//! - That an admission that ended within the last second is refused. A resource of which exactly N exist needs the check
//!   of the service: [`WaitingRoom::check`](crate::WaitingRoom::check).
//! - A contact for the idle time-out: set `idle_ttl_ms` of such a room to 0.
//! - Which clock is right: this machine compares the end of a pass with its own wall clock.

#[cfg(feature = "tower")]
mod arrival;
#[cfg(feature = "tower")]
mod layer;
mod signers;

#[cfg(all(feature = "tower", feature = "axum"))]
pub use layer::PassMissing;
#[cfg(feature = "tower")]
pub use layer::{PassLayer, PassService, WhenAway};

use crate::InputError;
use crate::error::{RoomError, flat};
use firstcome_client::{AdmissionsChange, AdmissionsTag, HttpOptions, HttpStore, OpenHttpError, PassClaims};
use firstcome_store::core::id::{NameError, RoomName};
use firstcome_store::core::room::{RenewalKey, TicketNumber};
use firstcome_store::core::time::{Now, Steady, Timestamp};
use firstcome_store::edge::{Clock, SystemClock};
use firstcome_store::{Fault, FaultKind, StoreError};
use parking_lot::Mutex;
use signers::Signers;
use std::collections::HashSet;
use std::fmt;
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

/// How often a verifier asks the service. Below a second, so that with the round trips a change has its effect within
/// one.
pub const REFRESH: Duration = Duration::from_millis(750);
/// How long a verifier waits for one answer of the service.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a hand-off code is redeemed again while the answer is lost. A visitor waits meanwhile.
const REDEEM_FOR: Duration = Duration::from_secs(5);
/// By how much the clocks of two nodes may differ. A list that is at least so much younger than an admission has it.
/// Milliseconds.
const SPREAD_MS: u64 = 2_000;
/// The graces that are allowed.
const GRACE: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3_600);

/// A pass that was verified. Cheap to clone. See [`PassVerifier`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass(Arc<PassClaims>);

impl Deref for Pass {
    type Target = PassClaims;

    fn deref(&self) -> &PassClaims {
        &self.0
    }
}

/// Why a text is not a pass that lets its visitor in: see [`PassVerifier`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassRefusal {
    /// It does not have the form of a pass.
    #[error("the text is not a pass")]
    Malformed,
    /// It names a key that the service does not have, or that it has made since the last refresh.
    #[error("the key of the pass is unknown")]
    UnknownKey,
    /// It is not signed by the key that it names.
    #[error("the pass is forged")]
    Forged,
    /// It is a pass of another room.
    #[error("the pass is of another room")]
    OtherRoom,
    /// Its time is over.
    #[error("the pass has expired")]
    Expired,
    /// Its admission ended before its time: by a release, the visitor, the idle time-out, or a closed room.
    #[error("the admission of the pass has ended")]
    Ended,
}

impl PassRefusal {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::Forged => "forged",
            Self::OtherRoom => "other_room",
            Self::Expired => "expired",
            Self::Ended => "ended",
        }
    }
}

/// Why a check of a [`PassVerifier`] did not say yes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassError {
    /// The pass is not valid.
    #[error(transparent)]
    Refused(#[from] PassRefusal),
    /// Unknown: the service has not answered for the grace, or not at all yet. See [`PassVerifier::status`].
    #[error("the service has not said for too long which passes are valid")]
    Away,
}

/// Why a [`PassVerifier`] could not be started. Nothing was sent.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartPassError {
    /// The address or the key cannot be one.
    #[error(transparent)]
    Http(#[from] OpenHttpError),
    /// The name of the room is invalid.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The grace is out of range.
    #[error("grace must be 2 s to 1 hour")]
    Grace,
    /// There is no Tokio runtime around the call, so no task can ask the service.
    #[error("start a verifier within a Tokio runtime")]
    NoRuntime,
}

/// How a [`PassVerifier`] judges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassOptions {
    /// How long the last answer of the service counts: 2 s to 1 hour, 30 s by default. A release within a longer grace
    /// is not heeded while the service is away.
    pub grace: Duration,
}

impl Default for PassOptions {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30) }
    }
}

/// A pass that a visitor has brought by a hand-off code: see [`PassVerifier::redeem_handoff`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandoffPass {
    /// The text of the pass.
    pub text: Box<str>,
    /// When the slot ends without a further contact, by the wall clock.
    pub expires_at: Timestamp,
}

/// What a [`PassVerifier`] knows, for metrics and logs.
#[derive(Clone, Debug)]
pub struct PassStatus {
    /// The age of the last answer; `None` before the first one.
    pub age: Option<Duration>,
    /// The admissions of the last list.
    pub admissions: usize,
    /// Why the last question had no answer; `None` if it had one.
    pub fault: Option<StoreError>,
}

/// What the service said last.
#[derive(Debug)]
struct Snapshot {
    signers: Arc<Signers>,
    admissions: Arc<HashSet<(TicketNumber, u64)>>,
    tag: Option<AdmissionsTag>,
    /// When the list was true, by the clock of the service.
    as_of: Timestamp,
    /// When this process asked.
    asked_at: Steady,
}

impl Snapshot {
    /// Judges a pass. Order of checks: form, key, signature, room, end, admission.
    fn judge(&self, room: &RoomName, text: &str, now: Timestamp) -> Result<Pass, PassRefusal> {
        let pass = self.signers.read(text)?;
        if pass.room != *room {
            return Err(PassRefusal::OtherRoom);
        }
        if pass.expires_at <= now {
            return Err(PassRefusal::Expired);
        }
        // An admission that the list does not have is over, unless it may have come after the list.
        let may_be_later = self.as_of < pass.issued_at.plus_ms(SPREAD_MS);
        if may_be_later || self.admissions.contains(&(pass.number, pass.admission)) {
            return Ok(pass);
        }
        Err(PassRefusal::Ended)
    }

    fn age(&self, now: Steady) -> Duration {
        Duration::from_micros(now.since_us(self.asked_at))
    }
}

/// Verifies passes of one room; see the [module](self). Cheap to clone.
///
/// ```no_run
/// # async fn example(shown: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::pass::PassVerifier;
///
/// let passes = PassVerifier::start("https://queue.example.org", "a service key", "sale")?;
/// passes.ready().await;
/// match passes.check(shown) {
///     Ok(pass) => println!("welcome, number {}", pass.number.get()),
///     Err(error) => println!("please wait: {error}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PassVerifier(Arc<Running>);

/// The state and its task, which ends when this is dropped.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    /// Redeems hand-off codes. A lost answer is repeated: only the repeat finds the place.
    redeeming: HttpStore,
    refreshing: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.refreshing.abort();
    }
}

struct Shared {
    room: RoomName,
    grace: Duration,
    clock: SystemClock,
    snapshot: watch::Sender<Option<Arc<Snapshot>>>,
    fault: Mutex<Option<StoreError>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passes").field("room", &self.room).field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl PassVerifier {
    /// Starts to ask the service at `url` about a room, with a service key. Sends nothing before it returns.
    ///
    /// Must be called within a Tokio runtime. Costs the service two small requests each [`REFRESH`], and the list of
    /// admissions whenever it has changed.
    pub fn start(url: &str, key: &str, room: &str) -> Result<Self, StartPassError> {
        Self::start_with(url, key, room, PassOptions::default())
    }

    /// Starts as [`Self::start`] does, with options.
    pub fn start_with(url: &str, key: &str, room: &str, options: PassOptions) -> Result<Self, StartPassError> {
        let room = RoomName::parse(room);
        let room = room.map_err(|error: NameError| InputError::Name { field: "room", error })?;
        if !GRACE.contains(&options.grace) {
            return Err(StartPassError::Grace);
        }
        let (connect_timeout, answer_timeout) = (ANSWER_TIMEOUT, ANSWER_TIMEOUT);
        // The next refresh is the repeat.
        let http = HttpOptions { connect_timeout, answer_timeout, retry_for: Duration::ZERO, requests_max: 1 };
        let client = HttpStore::with(url, key, http)?;
        let redeeming = HttpStore::with(url, key, HttpOptions { retry_for: REDEEM_FOR, ..HttpOptions::default() })?;
        let runtime = Handle::try_current().map_err(|_| StartPassError::NoRuntime)?;
        let (clock, snapshot) = (SystemClock::default(), watch::Sender::new(None));
        let shared = Arc::new(Shared { room, grace: options.grace, clock, snapshot, fault: Mutex::new(None) });
        let refreshing = runtime.spawn(refresh_forever(Arc::clone(&shared), client)).abort_handle();
        Ok(Self(Arc::new(Running { shared, redeeming, refreshing })))
    }

    /// The name of the room.
    pub fn room(&self) -> &RoomName {
        &self.0.shared.room
    }

    /// Returns the pass of a text, or says why it lets no visitor in. Does no IO and does not wait.
    ///
    /// Order of checks: the age of what the service said, the form of the text, its key, its signature, its room, its
    /// end, its admission. The first check of a pass costs one Ed25519 verification, each
    /// further one a look-up in memory.
    pub fn check(&self, text: &str) -> Result<Pass, PassError> {
        let now = self.0.shared.clock.both();
        let snapshot = self.snapshot_in_time(now).ok_or(PassError::Away)?;
        Ok(snapshot.judge(&self.0.shared.room, text, now.wall)?)
    }

    /// Waits until the service has answered for the first time. Dropping the future has no effect.
    pub async fn ready(&self) {
        let mut snapshot = self.0.shared.snapshot.subscribe();
        // An error would mean that the sender is gone, which this verifier holds.
        let _ = snapshot.wait_for(Option::is_some).await;
    }

    /// Redeems the hand-off code with which a visitor came from the page of the room on another host, and returns the pass; `None` if
    /// the slot has ended meanwhile. A code counts once: keep the pass in the visitor's session. `key` are 128 random bits:
    /// after [`RoomError::Unknown`] and [`RoomError::Unavailable`] call again with the same ones, within the minute that a code lives.
    ///
    /// Must be called within a Tokio runtime. One request, which is repeated for 5 s while its answer is lost. Dropping the future
    /// leaves the code redeemed or not redeemed. Refused: `unknown_room`, `invalid_handoff`, `handoff_used`.
    pub async fn redeem_handoff(&self, code: &str, key: RenewalKey) -> Result<Option<HandoffPass>, RoomError> {
        let (place, text) = flat(self.0.redeeming.redeem_pass(self.room(), code, key).await)?;
        Ok(text.zip(place.until).map(|(text, expires_at)| HandoffPass { text, expires_at }))
    }

    /// Returns how fresh the list is and what went wrong last. Does no IO.
    pub fn status(&self) -> PassStatus {
        let shared = &self.0.shared;
        let snapshot = shared.snapshot.borrow().clone();
        let age = snapshot.as_ref().map(|snapshot| snapshot.age(shared.clock.steady()));
        let admissions = snapshot.map_or(0, |snapshot| snapshot.admissions.len());
        PassStatus { age, admissions, fault: shared.fault.lock().clone() }
    }

    /// Returns what the service said, unless that is older than the grace.
    fn snapshot_in_time(&self, now: Now) -> Option<Arc<Snapshot>> {
        let snapshot = self.0.shared.snapshot.borrow().clone()?;
        (snapshot.age(now.steady) <= self.0.shared.grace).then_some(snapshot)
    }

    /// Whether the service has answered once, and gives no answer now. A refusal of the key or the room is an answer.
    #[cfg(feature = "tower")]
    fn is_lost(&self) -> bool {
        let refuses =
            |fault: &StoreError| matches!(fault, StoreError::Faulted(fault) if fault.kind == FaultKind::Unfit);
        self.0.shared.snapshot.borrow().is_some() && !self.0.shared.fault.lock().as_ref().is_some_and(refuses)
    }

    /// Judges a pass by what the service said last, however long ago.
    #[cfg(feature = "tower")]
    fn check_by_last_list(&self, text: &str) -> Option<Pass> {
        let snapshot = self.0.shared.snapshot.borrow().clone()?;
        snapshot.judge(&self.0.shared.room, text, self.0.shared.clock.now()).ok()
    }
}

/// Asks the service again and again. The age of the last answer says how long it has failed.
async fn refresh_forever(shared: Arc<Shared>, client: HttpStore) {
    let mut ticks = interval(REFRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let fault = shared.refresh(&client).await.err();
        *shared.fault.lock() = fault;
    }
}

impl Shared {
    async fn refresh(&self, client: &HttpStore) -> Result<(), StoreError> {
        let (asked_at, last) = (self.clock.steady(), self.snapshot.borrow().clone());
        let keys = client.pass_keys().await?;
        let signers = match &last {
            Some(last) if *last.signers.keys() == keys => Arc::clone(&last.signers),
            // Passes of a key that is gone are void, and so is what was verified with it.
            _ => Arc::new(Signers::new(keys).map_err(|paserk| strange(format!("{paserk} is not a key of passes")))?),
        };
        let known = last.as_ref().and_then(|last| last.tag.as_ref());
        let change = client.admissions_since(&self.room, known).await?;
        let change = change.map_err(|why| strange(format!("{}: {}", self.room, why.code())))?;
        let (admissions, tag, as_of) = match (change, last) {
            (AdmissionsChange::Same { as_of }, Some(last)) => (Arc::clone(&last.admissions), last.tag.clone(), as_of),
            (AdmissionsChange::Same { .. }, None) => return Err(strange("a list that was never sent is unchanged")),
            (AdmissionsChange::New { admissions, tag }, _) => {
                (Arc::new(admissions.admissions.into_iter().collect()), tag, admissions.as_of)
            }
        };
        self.snapshot.send_replace(Some(Arc::new(Snapshot { signers, admissions, tag, as_of, asked_at })));
        Ok(())
    }
}

fn strange(says: impl Into<String>) -> StoreError {
    StoreError::Faulted(Arc::new(Fault::new(FaultKind::Unfit, says.into())))
}

#[cfg(test)]
mod tests;
