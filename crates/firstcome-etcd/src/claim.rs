//! One place in line: a key that is ours, or may be, until it is given up.

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

/// Where the places of a lock are.
pub(crate) fn places(prefix: &str, name: &LockName) -> Vec<u8> {
    // A name has no `/`, so no lock's places are among another's.
    format!("{prefix}lock/{name}/").into_bytes()
}

/// What a place says of who has it.
fn card(owner: &OwnerName, ttl: Duration) -> Vec<u8> {
    format!("{} {owner}", ttl.as_millis()).into_bytes()
}

/// Who has a place, and how long that lasts at most unless it is renewed.
pub(crate) fn read_card(value: &[u8]) -> (String, Duration) {
    let text = String::from_utf8_lossy(value);
    match text.split_once(' ').and_then(|(ms, owner)| Some((ms.parse().ok()?, owner))) {
        Some((ms, owner)) => (owner.to_owned(), Duration::from_millis(ms)),
        // Another process's lock under the same name.
        None => ("somebody".to_owned(), Duration::MAX),
    }
}

/// Whether to get in line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Only if no process has it or wants it.
    Try,
    Wait,
}

/// What became of an attempt to get in.
pub(crate) enum Entered {
    /// First: the lock is ours.
    First,
    /// After this one, which was there at this revision.
    After { before: Vec<u8>, at_revision: i64 },
    /// Not in: a process has it.
    Taken(Occupied),
    /// Not in: the barrier was moved meanwhile. To be tried again.
    Again,
    /// Not in, and not any more: the lease is over, or a process has deleted the key.
    Gone,
}

/// A lock that a process has.
pub(crate) struct Occupied {
    pub(crate) holder: String,
    pub(crate) lasts: Duration,
    pub(crate) waiters: u32,
}

impl Occupied {
    /// Out of the places, of which the first must be among those that were read.
    pub(crate) fn of(places: &RangeResponse) -> Option<(Self, &KeyValue)> {
        let first = places.kvs.first()?;
        let (holder, lasts) = read_card(&first.value);
        let waiters = u32::try_from(places.count - 1).unwrap_or(0);
        Some((Self { holder, lasts, waiters }, first))
    }
}

/// The first place of a lock and how many there are.
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

/// In a lock that no process takes: so everything that has a place may be shared.
type Flight = Pin<Box<dyn Future<Output = Result<TxnResponse, EtcdError>> + Send>>;

/// What is known of the key.
enum Known {
    /// It was never asked for, or is given up.
    Absent,
    /// It is asked for just now.
    Asked(Mutex<Flight>),
    /// It may be there, or come yet.
    Perhaps,
    /// It was made by this revision.
    There(i64),
}

/// Whether a try before this one may have done it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    No,
    Perhaps,
}

/// One place. Dropped, it is given up in the background.
pub(crate) struct Claim {
    session: Arc<Session>,
    places: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    known: Known,
    /// Whether an attempt without an answer may yet come.
    strays: bool,
}

/// What became of a place that was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// It was there until then.
    Held,
    /// Not there, or given up by a try that had no answer.
    Perhaps,
    /// Gone before.
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

    /// By which revision it was made.
    pub(crate) const fn revision(&self) -> Option<i64> {
        match self.known {
            Known::There(revision) => Some(revision),
            _ => None,
        }
    }

    /// Gets in; repeatable. One round trip, and one more after an attempt whose answer was lost.
    ///
    /// Dropping the future lets what was sent go on: an answer that is known is easier to undo.
    pub(crate) async fn enter(&mut self, mode: Mode) -> Result<Entered, EtcdError> {
        if !matches!(self.known, Known::Asked(_)) {
            let (link, entry) = (self.session.link().clone(), self.entry(mode));
            self.known = Known::Asked(Mutex::new(Box::pin(async move { link.transact(entry).await })));
        }
        let Known::Asked(flight) = &mut self.known else { return Ok(Entered::Again) };
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

    /// Nothing gets in by this lease any more.
    fn lease_over(&self) -> Entered {
        self.session.lose();
        Entered::Gone
    }

    /// The transaction by which it gets in.
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

    /// The last two places that were made until this revision; until now without one.
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

    /// What an attempt has taught about the key.
    fn landed(&mut self, told: &Result<TxnResponse, EtcdError>) {
        self.strays |= matches!(told, Err(EtcdError::Unknown { .. }));
        let unseen = if self.strays { Known::Perhaps } else { Known::Absent };
        self.known = match told {
            Ok(told) if told.succeeded => Known::There(told.revision()),
            Ok(told) => match told.clone().ranges().next().and_then(|own| own.kvs.into_iter().next()) {
                Some(own) => Known::There(own.create_revision),
                None => unseen,
            },
            // The lease takes along what was made before.
            Err(EtcdError::LeaseOver) => Known::Absent,
            Err(_) => unseen,
        };
    }

    /// Who is before it now. One round trip, which changes nothing.
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

    /// Gives it up. One round trip, repeated until there is an answer or the lease is over.
    ///
    /// Dropping the future leaves it to the background.
    pub(crate) async fn leave(mut self) -> Result<Left, EtcdError> {
        if let Known::Asked(flight) = &mut self.known {
            let told = flight.get_mut().await;
            self.landed(&told);
        }
        let left = self.delete().await;
        if self.strays && left.is_ok() {
            // One that comes now would find the key absent, and make it for no process.
            let _ = self.until_told(|| self.session.move_barrier(&self.key)).await;
        }
        self.known = Known::Absent;
        left
    }

    async fn delete(&self) -> Result<Left, EtcdError> {
        let revision = match self.known {
            Known::There(revision) => revision,
            Known::Perhaps => return Ok(Left::Perhaps),
            Known::Absent | Known::Asked(_) => return Ok(Left::NotHeld),
        };
        let (deleted, again) = self.until_told(|| self.session.link().delete(&self.key, revision)).await?;
        Ok(match (deleted, again) {
            (true, _) => Left::Held,
            (false, Again::Perhaps) => Left::Perhaps,
            (false, Again::No) => Left::NotHeld,
        })
    }

    /// Asks again and again until there is an answer, or the lease is over, which takes along what is left.
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
            // The outcome does not matter: no caller is left.
            let _ = Self { session, places, key, value, known, strays }.leave().await;
        });
    }
}
