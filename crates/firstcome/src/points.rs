//! The points of members, on any store.

use crate::AnyStore;
use crate::auction::amount;
use crate::error::{AuctionError, Error, InputError, flat};
use crate::request::{checked_key, request_id};
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::id::MemberName;
use firstcome_store::core::points::{Amount, Balance, Record};
use firstcome_store::{AuctionStore, MovePoints, Numbered, Transfer};
use std::fmt;
use std::sync::Arc;

/// One member of a store, with the points that back bids and pay for things. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::core::auction::Rejection;
/// use firstcome::{Error, Store};
///
/// let ann = Store::memory().member("ann")?;
/// for _ in 0..2 {
///     // Sent twice, charged once.
///     let balance = ann.charge(500)?.idempotency_key("payment-4711")?.send().await?;
///     assert_eq!(balance.available(), 500);
/// }
/// assert_eq!(ann.refund(501)?.send().await, Err(Error::Refused(Rejection::InsufficientPoints(500))));
/// assert_eq!(ann.refund(200)?.send().await?.total(), 300);
/// assert_eq!(ann.records(None, 10).await?.items.len(), 2);
/// # Ok(()) }
/// ```
///
/// # What it promises
/// - No member ever owes points: `0 ≤ held ≤ total`.
/// - Every movement has a record that never changes. A balance is the sum of the member's records, which are a chain of
///   hashes.
/// - The sum of all totals is what was charged less what was refunded: a sale only moves points.
/// - Every reply is durable, refusals included: in the embedded store as its [`crate::Durability`] says, in a database
///   always.
///
/// # Errors and refusals
/// As for [`ListingHandle`](crate::ListingHandle). After [`Error::Unknown`] a charge without an idempotency
/// key may have happened, and a repeat would charge again: give every charge a key.
///
/// Dropping a future leaves its request done or not done, never half done.
pub struct MemberHandle<S = AnyStore> {
    pub(crate) store: Arc<S>,
    pub(crate) name: MemberName,
}

impl<S> fmt::Debug for MemberHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberHandle({})", self.name)
    }
}

impl<S> Clone for MemberHandle<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), name: self.name.clone() }
    }
}

impl<S: AuctionStore> MemberHandle<S> {
    /// The name of the member.
    pub const fn name(&self) -> &MemberName {
        &self.name
    }

    /// Returns the member's points, and how many of them back bids. An unknown member has none. The embedded store
    /// needs no file access for it, a database one query.
    pub async fn balance(&self) -> Result<Balance, AuctionError> {
        self.store.balance(&self.name).await.map_err(Error::from)
    }

    /// Returns the member's records in order: at most `count`, beginning after number `after`. An unknown member has
    /// none. The read runs beside the writer.
    pub async fn records(&self, after: Option<u64>, count: usize) -> Result<Numbered<Record>, AuctionError> {
        self.store.records(&self.name, after, count).await.map_err(Error::from)
    }

    /// Begins to add points that come from outside; nothing happens before [`MovementRequest::send`].
    pub fn charge(&self, points: u64) -> Result<MovementRequest<'_, S>, InputError> {
        self.movement(Transfer::Charge, points)
    }

    /// Begins to take out points that are paid back; nothing happens before [`MovementRequest::send`].
    pub fn refund(&self, points: u64) -> Result<MovementRequest<'_, S>, InputError> {
        self.movement(Transfer::Refund, points)
    }

    fn movement(&self, transfer: Transfer, points: u64) -> Result<MovementRequest<'_, S>, InputError> {
        Ok(MovementRequest { member: self, transfer, amount: amount("amount", points)?, key: None })
    }
}

/// A charge or a refund, before it is sent.
///
/// Dropping the future of [`Self::send`] leaves it done or not done, never half done. To learn which, send the same
/// request with the same idempotency key again.
#[must_use = "nothing is sent before `send`"]
pub struct MovementRequest<'a, S = AnyStore> {
    member: &'a MemberHandle<S>,
    transfer: Transfer,
    amount: Amount,
    key: Option<String>,
}

firstcome_store::core::debug_by_name!(['a, S] MovementRequest<'a, S>);

impl<S: AuctionStore> MovementRequest<'_, S> {
    /// Makes a repeat of this request recognisable for 30 days. The repeat returns the balance after the original
    /// request. The same key with another amount is refused as `idempotency_key_reused`. Charges and refunds have
    /// separate keys.
    pub fn idempotency_key(mut self, key: &str) -> Result<Self, InputError> {
        self.key = Some(checked_key(key)?);
        Ok(self)
    }

    /// Moves the points, and returns the balance after it. One step of the store: one disk sync or one transaction,
    /// shared with all other requests that have arrived.
    ///
    /// Refused, in this order: `idempotency_key_reused`, `insufficient_points`, `balance_too_large`.
    pub async fn send(self) -> Result<Balance, AuctionError> {
        let Self { member, transfer, amount, key } = self;
        let what: &[u8] = match transfer {
            Transfer::Charge => b"charge",
            Transfer::Refund => b"refund",
        };
        let scope: [&[u8]; 3] = [b"library", what, member.name.as_str().as_bytes()];
        let request = key.map(|key| request_id(&scope, &key, &[&amount.get().to_be_bytes()]));
        let movement = MovePoints { transfer, amount, request };
        flat(member.store.move_points(&member.name, movement).await).map(Effect::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use firstcome_store::core::auction::Rejection;

    #[tokio::test]
    async fn a_key_belongs_to_its_member_and_its_direction() {
        let store = Store::memory();
        let [ann, bob] = ["ann", "bob"].map(|name| store.member(name).unwrap());
        let total = async |request: MovementRequest<'_>| {
            let answer = request.idempotency_key("k1").unwrap().send().await;
            answer.map(|balance| balance.total())
        };
        for _ in 0..2 {
            assert_eq!(total(ann.charge(70).unwrap()).await, Ok(70));
        }
        assert_eq!(total(ann.charge(71).unwrap()).await, Err(Error::Refused(Rejection::KeyReused)));
        assert_eq!(total(bob.charge(5).unwrap()).await, Ok(5));
        for _ in 0..2 {
            assert_eq!(total(ann.refund(20).unwrap()).await, Ok(50));
        }
        let records = ann.records(None, 1).await.unwrap();
        assert_eq!((records.items[0].amount.get(), records.next), (70, Some(1)));
        let records = ann.records(records.next, 1).await.unwrap();
        assert_eq!((records.items[0].amount.get(), records.next), (20, None));
    }

    #[tokio::test]
    async fn what_is_no_amount_or_no_name_is_refused_before_the_store_is_asked() {
        let store = Store::memory();
        assert!(matches!(store.member("-"), Err(InputError::Name { field: "member", .. })));
        let ann = store.member("ann").unwrap();
        for amount in [0, 1_000_000_000_001, u64::MAX] {
            assert!(matches!(ann.charge(amount), Err(InputError::Value { field: "amount", .. })));
            assert!(matches!(ann.refund(amount), Err(InputError::Value { field: "amount", .. })));
        }
        assert!(matches!(ann.charge(1).unwrap().idempotency_key(""), Err(InputError::Value { .. })));
        assert_eq!(ann.balance().await.unwrap(), Balance::default());
        assert!(ann.records(None, 9).await.unwrap().items.is_empty());
    }
}
