//! One place in line: a key of this process, which exists or may exist until it is given up.

use super::error::{EtcdError, Sent};
use super::link::RANGE;
use super::messages::{
    Compare, KeyValue, Op, PutRequest, RangeRequest, RangeResponse, SortOrder, SortTarget, TxnRequest, TxnResponse,
    after,
};
use super::session::{REPEAT, Session};
use firstcome_core::id::{LockName, OwnerName};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Returns the prefix of the places of a lock.
pub(crate) fn places(prefix: &str, name: &LockName) -> Vec<u8> {
    // A name has no `/`, so no lock's prefix covers places of another lock.
    format!("{prefix}lock/{name}/").into_bytes()
}

/// Makes the value of a place: the length of its lease and the holder's name.
fn card(owner: &OwnerName, ttl: Duration) -> Vec<u8> {
    format!("{} {owner}", ttl.as_millis()).into_bytes()
}

/// Reads the holder's name from the value of a place, and how long its lease lasts without a renewal.
pub(crate) fn read_card(value: &[u8]) -> (String, Duration) {
    let text = String::from_utf8_lossy(value);
    match text.split_once(' ').and_then(|(ms, owner)| Some((ms.parse().ok()?, owner))) {
        Some((ms, owner)) => (owner.to_owned(), Duration::from_millis(ms)),
        // A key of another program under the same prefix.
        None => ("another client".to_owned(), Duration::MAX),
    }
}

/// Whether to join the line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Only if the lock is free and has no waiters.
    Try,
    Wait,
}

/// The result of a try to join.
pub(crate) enum Entered {
    /// First in line: the lock is ours.
    First,
    /// Behind this place, which existed at this revision.
    After { before: Vec<u8>, at_revision: i64 },
    /// Not in line: another request has the lock.
    Taken(Occupied),
    /// Not in line: the barrier moved in the meantime. Try again.
    Again,
    /// Not in line any more: the lease is over, or an operator deleted the key.
    Gone,
}

/// A lock that another request has.
pub(crate) struct Occupied {
    pub(crate) holder: String,
    pub(crate) lasts: Duration,
    pub(crate) waiters: u32,
}

impl Occupied {
    /// Makes it from the places of a lock, which must begin with the first one.
    pub(crate) fn of(places: &RangeResponse) -> Option<(Self, &KeyValue)> {
        let first = places.kvs.first()?;
        let (holder, lasts) = read_card(&first.value);
        let waiters = u32::try_from(places.count - 1).unwrap_or(0);
        Some((Self { holder, lasts, waiters }, first))
    }
}

/// Makes a request for the first place of a lock and the number of places.
pub(crate) fn first_place(places: &[u8]) -> RangeRequest {
    RangeRequest {
        key: places.to_vec(),
        range_end: after(places),
        limit: 1,
        sort_order: SortOrder::Ascend as i32,
        sort_target: SortTarget::Create as i32,
        ..RangeRequest::default()
    }
}

/// A transaction under way. It lives in a `Mutex` that is never locked, which makes the claim `Sync`.
type Flight = Pin<Box<dyn Future<Output = Result<TxnResponse, EtcdError>> + Send>>;

/// The known state of the key.
enum Known {
    /// The key was never requested, or is given up.
    Absent,
    /// The request for the key is under way.
    Pending(Mutex<Flight>),
    /// The key may exist, or a delayed request may still create it.
    Perhaps,
    /// This revision created the key.
    There(i64),
}

/// Whether an earlier try may have succeeded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    No,
    Perhaps,
}

/// One place in line. Its drop gives it up in the background.
pub(crate) struct Claim {
    session: Arc<Session>,
    places: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    known: Known,
    /// Whether a try without an answer may still take effect.
    strays: bool,
}

/// The result of giving up a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// The key existed until then.
    Held,
    /// Unknown: the key is gone, but a try without an answer may have deleted it.
    Perhaps,
    /// The key was gone before.
    NotHeld,
}

impl Claim {
    pub(crate) fn new(session: &Arc<Session>, places: &[u8], owner: &OwnerName, number: u64) -> Self {
        let mut key = places.to_vec();
        key.extend_from_slice(format!("{:016x}-{number:x}", session.lease()).as_bytes());
        let (session, places, value) = (Arc::clone(session), places.to_vec(), card(owner, session.ttl()));
        Self { session, places, key, value, known: Known::Absent, strays: false }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the revision that created the key.
    pub(crate) const fn revision(&self) -> Option<i64> {
        match self.known {
            Known::There(revision) => Some(revision),
            _ => None,
        }
    }

    /// Joins the line; repeatable. One round trip, and one more after a try whose answer was lost.
    ///
    /// A dropped future does not cancel the request: a known answer is easier to undo.
    pub(crate) async fn enter(&mut self, mode: Mode) -> Result<Entered, EtcdError> {
        if !matches!(self.known, Known::Pending(_)) {
            let (link, entry) = (self.session.link().clone(), self.entry(mode));
            self.known = Known::Pending(Mutex::new(Box::pin(async move { link.transact(entry).await })));
        }
        let Known::Pending(flight) = &mut self.known else { return Ok(Entered::Again) };
        let told = flight.get_mut().await;
        self.landed(&told);
        let told = match told {
            Ok(told) => told,
            Err(EtcdError::LeaseOver) => return Ok(self.lease_over()),
            Err(error) => return Err(error),
        };
        let (succeeded, at_revision) = (told.succeeded, told.revision());
        let mut found = told.ranges();
        if succeeded {
            let before = found.next().and_then(|found| found.kvs.into_iter().find(|place| place.key != self.key));
            return Ok(before.map_or(Entered::First, |place| Entered::After { before: place.key, at_revision }));
        }
        if self.revision().is_some() {
            return self.look().await;
        }
        let (_, barrier, first) = (found.next(), found.next(), found.next());
        let Some(barrier) = barrier.and_then(|barrier| barrier.kvs.into_iter().next()) else {
            return Ok(self.lease_over());
        };
        if mode == Mode::Try
            && let Some((occupied, _)) = first.as_ref().and_then(Occupied::of)
        {
            return Ok(Entered::Taken(occupied));
        }
        self.session.barrier_seen(barrier.mod_revision);
        Ok(Entered::Again)
    }

    /// Notes that the lease is over, so that it can create no more places.
    fn lease_over(&self) -> Entered {
        self.session.lose();
        Entered::Gone
    }

    /// Makes the transaction that creates the place.
    fn entry(&self, mode: Mode) -> TxnRequest {
        let mut compare = vec![Compare::created(&self.key, 0), self.session.barrier_is_unchanged()];
        let lease = self.session.lease();
        let mut success = vec![Op::Put(PutRequest { key: self.key.clone(), value: self.value.clone(), lease }).into()];
        match mode {
            Mode::Try => compare.push(Compare::none_within(&self.places)),
            Mode::Wait => success.push(Op::Range(self.latest(0)).into()),
        }
        let one = |key: &[u8]| Op::Range(RangeRequest { key: key.to_vec(), ..RangeRequest::default() });
        let failure =
            [one(&self.key), one(self.session.barrier_key()), Op::Range(first_place(&self.places))].map(Into::into);
        TxnRequest { compare, success, failure: failure.into() }
    }

    /// Makes a request for the last two places that were created up to this revision; 0 means now.
    fn latest(&self, until_revision: i64) -> RangeRequest {
        RangeRequest {
            key: self.places.clone(),
            range_end: after(&self.places),
            limit: 2,
            sort_order: SortOrder::Descend as i32,
            sort_target: SortTarget::Create as i32,
            keys_only: true,
            max_create_revision: until_revision,
        }
    }

    /// Updates the known state of the key after a try.
    fn landed(&mut self, told: &Result<TxnResponse, EtcdError>) {
        self.strays |= matches!(told, Err(EtcdError::Unknown { .. }));
        let unseen = if self.strays { Known::Perhaps } else { Known::Absent };
        self.known = match told {
            Ok(told) if told.succeeded => Known::There(told.revision()),
            Ok(told) => match told.clone().ranges().next().and_then(|own| own.kvs.into_iter().next()) {
                Some(own) => Known::There(own.create_revision),
                None => unseen,
            },
            // The end of the lease deletes every key that a try created.
            Err(EtcdError::LeaseOver) => Known::Absent,
            Err(_) => unseen,
        };
    }

    /// Looks which place is ahead now. One round trip, which changes nothing.
    pub(crate) async fn look(&self) -> Result<Entered, EtcdError> {
        let Some(own) = self.revision() else { return Ok(Entered::Gone) };
        let link = self.session.link();
        let found: RangeResponse = link.call(RANGE, self.latest(own), Sent::Read, link.answer_timeout()).await?;
        let at_revision = found.header.map_or(0, |header| header.revision);
        let mut places = found.kvs.into_iter();
        match (places.next(), places.next()) {
            (Some(place), before) if place.key == self.key && place.create_revision == own => {
                Ok(before.map_or(Entered::First, |place| Entered::After { before: place.key, at_revision }))
            }
            _ => Ok(Entered::Gone),
        }
    }

    /// Gives the place up. One round trip, repeated until there is an answer or the lease is over.
    ///
    /// A dropped future continues in the background.
    pub(crate) async fn leave(mut self) -> Result<Left, EtcdError> {
        if let Known::Pending(flight) = &mut self.known {
            let told = flight.get_mut().await;
            self.landed(&told);
        }
        let left = self.delete().await;
        if self.strays && left.is_ok() {
            // A delayed try would find the key absent, and create it for no caller.
            let _ = self.until_told(|| self.session.move_barrier(&self.key)).await;
        }
        self.known = Known::Absent;
        left
    }

    async fn delete(&self) -> Result<Left, EtcdError> {
        let revision = match self.known {
            Known::There(revision) => revision,
            Known::Perhaps => return Ok(Left::Perhaps),
            Known::Absent | Known::Pending(_) => return Ok(Left::NotHeld),
        };
        let (deleted, again) = self.until_told(|| self.session.link().delete(&self.key, revision)).await?;
        Ok(match (deleted, again) {
            (true, _) => Left::Held,
            (false, Again::Perhaps) => Left::Perhaps,
            (false, Again::No) => Left::NotHeld,
        })
    }

    /// Repeats a request until there is an answer, or until the lease is over, which deletes the keys.
    async fn until_told<T, A: Future<Output = Result<T, EtcdError>>>(
        &self,
        ask: impl Fn() -> A,
    ) -> Result<(T, Again), EtcdError> {
        let mut again = Again::No;
        loop {
            let error = match ask().await {
                Ok(told) => return Ok((told, again)),
                Err(error) => error,
            };
            if matches!(error, EtcdError::Unknown { .. }) {
                again = Again::Perhaps;
            }
            if self.session.is_lost() || !error.may_pass() {
                return Err(error);
            }
            sleep(REPEAT).await;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if matches!(self.known, Known::Absent) {
            return;
        }
        let known = std::mem::replace(&mut self.known, Known::Absent);
        let (session, places) = (Arc::clone(&self.session), std::mem::take(&mut self.places));
        let (key, value, strays) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value), self.strays);
        let runtime = session.runtime().clone();
        runtime.spawn(async move {
            // No caller is left to use the outcome.
            let _ = Self { session, places, key, value, known, strays }.leave().await;
        });
    }
}
