//! Receipts: signed proof of a visitor's number, which a client can check without the service.
//!
//! A store publishes signed heads of each room and coupon ([`firstcome_core::receipt`]). A receipt is a signed statement of a
//! number with the heads around it. Each room and each coupon signs with an Ed25519 key of its own, made from the secret of its
//! tickets or codes. So a receipt can be checked for as long as a client keeps the public key, and no key is stored for it.
//!
//! ```text
//! key 3f0c…                             the public key
//!
//! firstcome receipt 1                   the statement
//! room sale
//! number 4711
//! ticket 9b1d…                          SHA-256 of the ticket
//! by 17 c4e8…                           the head that covers the number, and its SHA-256
//! signature 77aa…
//!
//! firstcome head 1                      the head before that one, and that one
//! room sale
//! sequence 16
//! at_us 1795756611000123
//! first 1
//! given 4700
//! front 889
//! previous 5d20…
//! signature 0b4e…
//! …
//! ```

mod document;
mod stored;

use crate::error::StoreError;
use crate::port::Answer;
use crate::room::RoomAnswer;
use ed25519_compact::{KeyPair, PublicKey, Seed, Signature as Bytes};
use firstcome_core::id::{CouponName, RoomName};
use firstcome_core::receipt::{Admission, Breach, Cover, Figures, Head, Link, Object, Statement, Subject, TextError};
use firstcome_core::time::Timestamp;
use std::fmt;
use std::future::Future;
pub use stored::{Standing, StoredHeads, removable_to};

/// The most heads that one page has.
pub const HEADS_PER_PAGE_MAX: usize = 100;

/// The key that signs the heads and the statements of one room or coupon.
#[derive(Clone)]
pub struct HeadKey(KeyPair);

impl fmt::Debug for HeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeadKey(secret)")
    }
}

impl HeadKey {
    /// Makes a key from 32 secret random bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(KeyPair::from_seed(Seed::new(secret)))
    }

    /// Returns the public key.
    pub fn public(&self) -> HeadPublicKey {
        HeadPublicKey(*self.0.pk)
    }

    /// Signs a head.
    pub fn head(&self, head: Head) -> SignedHead {
        let signature = self.sign(&head.text());
        SignedHead { head, signature }
    }

    fn sign(&self, text: &str) -> Signature {
        Signature(*self.0.sk.sign(text, None))
    }
}

/// The public key of the heads and the statements of one room or coupon. Written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HeadPublicKey([u8; 32]);

impl HeadPublicKey {
    fn has_signed(&self, text: &str, signature: &Signature) -> bool {
        PublicKey::new(self.0).verify(text, &Bytes::new(signature.0)).is_ok()
    }
}

/// An Ed25519 signature (RFC 8032). Written as 128 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    /// Makes a signature of its bytes. Only a verification shows that it is one.
    pub const fn new(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

/// A head, as its store published it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedHead {
    /// The head.
    pub head: Head,
    /// The signature over its text.
    pub signature: Signature,
}

impl SignedHead {
    /// Returns whether a key has signed the head.
    pub fn is_signed_by(&self, key: &HeadPublicKey) -> bool {
        key.has_signed(&self.head.text(), &self.signature)
    }
}

/// Which head a store looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadWanted {
    /// The first one whose last number is this one, or a later one.
    Number(u32),
    /// The first one after this instant whose front is past this turn.
    Admitted {
        /// The turn.
        turn: u32,
        /// The instant of the admission.
        at: Timestamp,
    },
}

impl HeadWanted {
    /// Returns whether a head is the wanted one or a later one. In a chain no such head comes before one that is not.
    pub fn is_reached(self, head: &Head) -> bool {
        match (self, head.figures) {
            (Self::Number(number), figures) => number <= figures.given(),
            (Self::Admitted { turn, at }, Figures::Room { front, .. }) => turn < front && at < head.at,
            (Self::Admitted { .. }, Figures::Coupon { .. }) => false,
        }
    }
}

/// Some heads of a chain in their order, with the key that signed them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeadPage {
    /// The key.
    pub key: HeadPublicKey,
    /// The heads, at most [`HEADS_PER_PAGE_MAX`].
    pub heads: Vec<SignedHead>,
}

/// A head and the head before it, as their store published them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedLink {
    /// The head before; the first head of a chain has none.
    pub before: Option<SignedHead>,
    /// The head.
    pub by: SignedHead,
}

impl SignedLink {
    fn link(&self) -> Link {
        Link { before: self.before.as_ref().map(|before| before.head.clone()), by: self.by.head.clone() }
    }

    fn heads(&self) -> impl Iterator<Item = &SignedHead> {
        self.before.iter().chain([&self.by])
    }
}

/// A signed statement with the heads that it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The key that signed all of it.
    pub key: HeadPublicKey,
    /// The statement.
    pub statement: Statement,
    /// The signature over its text.
    pub signature: Signature,
    /// The head that covers the number, and the head before it.
    pub by: SignedLink,
    /// The first head after the admission, and the head before it. Present if the statement names an admission.
    pub admitted: Option<SignedLink>,
}

impl Receipt {
    /// Signs a statement with the heads that it names.
    fn signed(key: &HeadKey, statement: Statement, by: SignedLink, admitted: Option<SignedLink>) -> Self {
        let signature = key.sign(&statement.text());
        Self { key: key.public(), statement, signature, by, admitted }
    }

    /// Returns all its heads, in the order in which it names them.
    pub fn heads(&self) -> impl Iterator<Item = &SignedHead> {
        self.by.heads().chain(self.admitted.iter().flat_map(SignedLink::heads))
    }

    /// Checks all signatures, and that statement and heads fit together. Needs no service.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn verify(&self) -> Result<(), ReceiptError> {
        if !self.key.has_signed(&self.statement.text(), &self.signature) {
            return Err(ReceiptError::Forged);
        }
        if !self.heads().all(|signed| signed.is_signed_by(&self.key)) {
            return Err(ReceiptError::Forged);
        }
        let admitted = self.admitted.as_ref().map(SignedLink::link);
        Ok(self.statement.judge(&self.by.link(), admitted.as_ref())?)
    }
}

impl HeadPage {
    /// Checks all signatures, and that the heads are a chain without a gap. Needs no service.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn verify(&self) -> Result<(), ReceiptError> {
        if !self.heads.iter().all(|signed| signed.is_signed_by(&self.key)) {
            return Err(ReceiptError::Forged);
        }
        for pair in self.heads.windows(2) {
            pair[1].head.follows(&pair[0].head)?;
        }
        Ok(())
    }

    /// Returns up to which sequence a purge removed heads that a caller asked for who has those up to `after`. `None` if the page
    /// follows without a gap.
    pub fn removed_to(&self, after: u64) -> Option<u64> {
        let before = self.heads.first()?.head.sequence.saturating_sub(1);
        (after < before).then_some(before)
    }

    /// Checks a receipt against these heads: the same key, and the same head wherever both have one of a sequence. Returns
    /// how many heads of the receipt are among these.
    ///
    /// # Errors
    /// [`ReceiptError::OtherKey`]; [`ReceiptError::TwoChains`] if a service signed two heads of one sequence.
    pub fn confirm(&self, receipt: &Receipt) -> Result<usize, ReceiptError> {
        if receipt.key != self.key {
            return Err(ReceiptError::OtherKey);
        }
        let mut confirmed = 0;
        for theirs in receipt.heads() {
            let ours = self.heads.binary_search_by_key(&theirs.head.sequence, |signed| signed.head.sequence);
            match ours.map(|at| &self.heads[at].head) {
                Ok(ours) if *ours == theirs.head => confirmed += 1,
                Ok(ours) => return Err(ReceiptError::TwoChains(ours.sequence)),
                Err(_) => {}
            }
        }
        Ok(confirmed)
    }
}

/// Why a receipt, or a page of heads, proves nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptError {
    /// It does not have the form of one.
    #[error(transparent)]
    Malformed(#[from] TextError),
    /// A signature is not one of the key.
    #[error("a signature does not fit the key: the text was changed")]
    Forged,
    /// Signed texts contradict each other.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// The heads were signed by another key than the receipt.
    #[error("the receipt was signed by another key than the heads")]
    OtherKey,
    /// The service signed two different heads of one sequence: it told different visitors different things.
    #[error("the service signed two different heads {0}: keep both files, they prove it")]
    TwoChains(u64),
}

/// What a store answers to a caller that wants a receipt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceiptReply {
    /// The receipt.
    Ready(Box<Receipt>),
    /// No head covers the number yet. One is published within the next second or two.
    Pending,
    /// The user has no claim.
    Absent,
    /// A purge removed heads that the receipt would name.
    Removed,
}

/// The port for heads and receipts. Every adapter passes `conformance::receipt`:
///
/// - A published head is durable, and survives what the store's claims survive. No later head contradicts it.
/// - A number is covered by a head within the call of [`Self::publish_heads`] that follows its join or claim.
/// - Nothing here counts as a contact of a visitor.
/// - Cancel-safe: a caller that drops its future leaves each head published or not.
pub trait ReceiptStore: Send + Sync {
    /// Publishes the next head of each room and each coupon that needs one. Call it every second; a call that comes early
    /// publishes nothing. One commit in all, or on a cluster two round trips for each room with visitors and each coupon with
    /// new claims. Only rooms and coupons that this node has served lately count.
    fn publish_heads(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns published heads of a room after a sequence, at most [`HEADS_PER_PAGE_MAX`]. The page begins later if a purge removed
    /// heads ([`HeadPage::removed_to`]). Refused: `unknown_room`.
    fn room_heads(
        &self,
        room: &RoomName,
        after: u64,
        count: usize,
    ) -> impl Future<Output = RoomAnswer<HeadPage>> + Send;

    /// Returns published heads of a coupon after a sequence, at most [`HEADS_PER_PAGE_MAX`]. The page begins later if a purge
    /// removed heads ([`HeadPage::removed_to`]). Refused: `unknown_coupon`.
    fn coupon_heads(
        &self,
        coupon: &CouponName,
        after: u64,
        count: usize,
    ) -> impl Future<Output = Answer<HeadPage>> + Send;

    /// Returns the receipt of a ticket. It names the admission if the ticket is inside and a later head is published. Refused:
    /// `unknown_room`, `unknown_ticket`.
    fn ticket_receipt(&self, room: &RoomName, ticket: &str) -> impl Future<Output = RoomAnswer<ReceiptReply>> + Send;

    /// Returns the receipt of the claim of a user. Refused: `unknown_coupon`.
    fn claim_receipt(&self, coupon: &CouponName, user: &str) -> impl Future<Output = Answer<ReceiptReply>> + Send;
}

/// Reads the heads that a store has published.
pub trait PublishedHeads: Send + Sync {
    /// Returns the heads of an object after a sequence, at most `count`, in order. Begins later if a purge removed some.
    fn after(
        &self,
        object: &Object,
        after: u64,
        count: usize,
    ) -> impl Future<Output = Result<Vec<SignedHead>, StoreError>> + Send;

    /// Returns the first head that is the wanted one or a later one.
    fn first(
        &self,
        object: &Object,
        wanted: HeadWanted,
    ) -> impl Future<Output = Result<Option<SignedHead>, StoreError>> + Send;
}

/// Finds the head before a head. `None` if a purge removed it: then the head may not be the first one that was wanted either.
async fn link(heads: &impl PublishedHeads, object: &Object, by: SignedHead) -> Result<Option<SignedLink>, StoreError> {
    if by.head.sequence == 1 {
        return Ok(Some(SignedLink { before: None, by }));
    }
    let before = heads.after(object, by.head.sequence - 2, 1).await?.into_iter().next();
    let before = before.filter(|before| before.head.sequence < by.head.sequence);
    Ok(before.map(|before| SignedLink { before: Some(before), by }))
}

/// Makes the receipt of a ticket or a claim from published heads. `admitted` is the turn and the instant at which a ticket was
/// admitted, which the receipt names as soon as a later head is published. For adapters of stores.
///
/// # Errors
/// What the store says that reads the heads.
pub async fn receipt_of(
    heads: &impl PublishedHeads,
    key: &HeadKey,
    mut subject: Subject,
    admitted: Option<(u32, Timestamp)>,
) -> Result<ReceiptReply, StoreError> {
    let object = subject.object();
    let Some(by) = heads.first(&object, HeadWanted::Number(subject.number())).await? else {
        return Ok(ReceiptReply::Pending);
    };
    let Some(by) = link(heads, &object, by).await? else { return Ok(ReceiptReply::Removed) };
    let mut inside = None;
    if let (Subject::Ticket { admission, .. }, Some((turn, at))) = (&mut subject, admitted)
        && let Some(after) = heads.first(&object, HeadWanted::Admitted { turn, at }).await?
    {
        let Some(link) = link(heads, &object, after).await? else { return Ok(ReceiptReply::Removed) };
        // After a wall clock was set back, the store counts the time of the head before.
        let at = link.before.as_ref().map_or(at, |before| at.max(before.head.at));
        *admission = Some(Admission { turn, at, by: Cover::of(&link.by.head) });
        inside = Some(link);
    }
    let statement = Statement { subject, by: Cover::of(&by.by.head) };
    Ok(ReceiptReply::Ready(Box::new(Receipt::signed(key, statement, by, inside))))
}
