//! Issues a limited number of coupons, first come, first served, one each.
//!
//! A pure state machine. Its caller applies commands one at a time and passes in `now`; the order of application *is* the
//! order of arrival.
//!
//! # Invariants
//! - No oversell: `issued ≤ limit`. No undersell: no user is told "sold out" while `issued < limit`.
//! - One each: a user holds at most one coupon, and its serial never changes.
//! - Gapless: the serials in use are exactly `1..=issued`, in the order in which claims were accepted, and their
//!   instants never fall.
//! - Some refusals rest on claims ([`Rejection::SoldOut`], [`Rejection::AlreadyIssued`]). [`Coupon::rests_on`] returns on how
//!   many. The caller reports such a refusal only once these claims are durable.

mod answers;
mod book;
mod purge;
mod standing;
pub mod stream;
#[cfg(test)]
mod tests;

use crate::erase::Pseudonym;
use crate::id::{RequestId, RoomName, UserId};
use crate::limits::{ATTRIBUTES_BYTES_MAX, COUPON_LIMIT_MAX, TITLE_BYTES_MAX};
use crate::revision::Revision;
use crate::time::Timestamp;
pub use answers::{CouponState, Rejection};
use book::{Book, Keys};
use hashbrown::HashMap;
pub use purge::{KeyPage, KeyWalk, KeyedEffect, KeyedRequest, PurgedClaims, is_over};
pub use standing::CouponStanding;
use std::hash::RandomState;

/// The number of a claim in its coupon: 1 for the first one, without gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Serial(u32);

impl Serial {
    /// Makes a serial from its number; `None` outside `1..=`[`COUPON_LIMIT_MAX`].
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 || COUPON_LIMIT_MAX < number { None } else { Some(Self(number)) }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The limit of a coupon: 1 to [`COUPON_LIMIT_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CouponLimit(u32);

impl CouponLimit {
    /// Makes a limit from its number; `None` outside `1..=`[`COUPON_LIMIT_MAX`].
    pub const fn new(count: u32) -> Option<Self> {
        if count == 0 || COUPON_LIMIT_MAX < count { None } else { Some(Self(count)) }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

macro_rules! bounded_text {
    ($(#[$doc:meta])* $name:ident, $bytes_max:expr, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes the text; `None` if it has too many bytes or a character that is not allowed.
            pub fn new(text: &str) -> Option<Self> {
                let allowed: fn(char) -> bool = $allowed;
                (text.len() <= $bytes_max && text.chars().all(allowed)).then(|| Self(text.into()))
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

bounded_text!(
    /// A title for people, on one line: at most [`TITLE_BYTES_MAX`] bytes, and no control character.
    Title,
    TITLE_BYTES_MAX,
    |character| !character.is_control()
);
bounded_text!(
    /// JSON that a claim carries along, at most [`ATTRIBUTES_BYTES_MAX`] bytes. The rules never look inside.
    Attributes,
    ATTRIBUTES_BYTES_MAX,
    |_| true
);

/// When a store acknowledges a claim.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Acknowledge {
    /// Once the claim is stored: an acknowledged claim cannot be lost.
    #[default]
    Stored,
    /// Once the place of the claim is certain. If one server orders claims and another one stores them, a loss of the first
    /// can still lose the claim. It has no serial and no code until it is stored.
    Placed,
}

/// The settings of a coupon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CouponSettings {
    /// How many coupons there are.
    pub limit: CouponLimit,
    /// Issuing begins at this instant (inclusive). Without it, the coupon is open until [`Self::expires_at`].
    pub opens_at: Option<Timestamp>,
    /// Issuing ends at this instant (exclusive).
    pub expires_at: Option<Timestamp>,
    /// Redeeming ends at this instant (exclusive).
    pub redeem_until: Option<Timestamp>,
    /// The title for people.
    pub title: Option<Title>,
    /// The room whose pass a public claim needs.
    pub room: Option<RoomName>,
    /// When claims are acknowledged. Has no effect in stores that order and store claims in one step.
    pub acknowledge: Acknowledge,
}

impl CouponSettings {
    /// Makes settings with a limit and nothing else.
    pub const fn with_limit(limit: CouponLimit) -> Self {
        Self {
            limit,
            opens_at: None,
            expires_at: None,
            redeem_until: None,
            title: None,
            room: None,
            acknowledge: Acknowledge::Stored,
        }
    }
}

/// One request for one coupon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The user who claims.
    pub user: UserId,
    /// JSON to keep with the claim; the rules ignore it.
    pub attributes: Option<Attributes>,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// A claim that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Issued {
    /// The number of the claim.
    pub serial: Serial,
    /// When it was accepted, by the store's clock.
    pub issued_at: Timestamp,
}

/// One request to redeem a coupon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redeem {
    /// The serial of the voucher code; `None` if the code is not a valid one.
    pub serial: Option<Serial>,
    /// The user who redeems; if present, it must be the user of the claim.
    pub user: Option<UserId>,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// A redemption that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redeemed {
    /// The serial of the redeemed claim.
    pub serial: Serial,
    /// When it was redeemed, by the store's clock.
    pub redeemed_at: Timestamp,
}

/// The effect of a request, and whether a repeat caused it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect<T> {
    /// It happened now.
    New(T),
    /// It happened at an earlier copy of the same request (same key, same body). Nothing happened now.
    Again(T),
}

impl<T> Effect<T> {
    /// Converts the value of the effect.
    pub fn map<U>(self, tell: impl FnOnce(T) -> U) -> Effect<U> {
        match self {
            Self::New(value) => Effect::New(tell(value)),
            Self::Again(value) => Effect::Again(tell(value)),
        }
    }

    /// Returns the value of the effect.
    pub fn into_inner(self) -> T {
        match self {
            Self::New(value) | Self::Again(value) => value,
        }
    }
}

/// What is wrong with stored rows: see [`Coupon::restore_claim`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// A serial is missing or occurs twice.
    Gap,
    /// A user has two claims.
    UserTwice,
    /// More claims than the limit allows.
    Oversold,
    /// A later claim has an earlier instant.
    TimeFell,
    /// An idempotency key has two claims.
    KeyTwice,
    /// A redemption without its claim, before its claim, or a second one.
    StrayRedemption,
}

impl Damage {
    /// Describes the damage in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "serials are not exactly 1..issued",
            Self::UserTwice => "a user holds two claims",
            Self::Oversold => "more claims than the limit",
            Self::TimeFell => "a later claim has an earlier instant",
            Self::KeyTwice => "an idempotency key made two claims",
            Self::StrayRedemption => "a redemption without its claim, before it, or a second one",
        }
    }
}

/// One coupon with all its claims.
pub struct Coupon {
    settings: CouponSettings,
    deleted: bool,
    /// When a purge began to remove the claims.
    purged_at: Option<Timestamp>,
    book: Book,
    claim_keys: Keys,
    redemptions: HashMap<Serial, Timestamp, RandomState>,
    redemption_keys: Keys,
}

crate::debug_by_name!(Coupon);

impl Coupon {
    /// Makes a coupon without claims. `hasher` carries the seed that protects the index against chosen collisions.
    pub fn new(settings: CouponSettings, hasher: RandomState) -> Self {
        Self {
            settings,
            deleted: false,
            purged_at: None,
            book: Book::new(hasher.clone()),
            claim_keys: Keys::new(),
            redemptions: HashMap::with_hasher(hasher),
            redemption_keys: Keys::new(),
        }
    }

    /// Returns the settings in force.
    pub const fn settings(&self) -> &CouponSettings {
        &self.settings
    }

    /// Returns whether the coupon is deleted.
    pub const fn is_deleted(&self) -> bool {
        self.deleted
    }

    /// Returns how many coupons are issued.
    pub const fn issued(&self) -> u32 {
        self.book.issued()
    }

    /// Returns the coupon's state as if it had `issued` claims.
    pub fn state(&self, issued: u32, now: Timestamp) -> CouponState {
        CouponStanding { issued, ..self.standing() }.state(now)
    }

    /// Returns the rules of the coupon that need no claim.
    pub const fn standing(&self) -> CouponStanding<'_> {
        CouponStanding {
            settings: &self.settings,
            deleted: self.deleted,
            purged_at: self.purged_at,
            issued: self.book.issued(),
        }
    }

    /// Returns whether a refusal depends on the time. If not, a reader need not read the clock.
    pub const fn is_timed(&self) -> bool {
        self.settings.opens_at.is_some() || self.settings.expires_at.is_some()
    }

    /// Judges one claim and changes nothing.
    ///
    /// Order of checks: idempotency key, already issued, deleted, not open, expired, sold out. A user's earlier claim comes
    /// before the window: a user who retries after the end must still see the coupon.
    pub fn judge_claim(&self, claim: &Claim, now: Timestamp) -> Result<Effect<Issued>, Rejection> {
        if let Some(request) = claim.request
            && let Some((body, serial)) = self.claim_keys.find(request.key)
        {
            return if body == request.body {
                Ok(Effect::Again(self.issued_as(serial)))
            } else {
                Err(Rejection::KeyReused(serial))
            };
        }
        if let Some(issued) = self.claim_of(claim.user.as_str()) {
            return Err(Rejection::AlreadyIssued(issued));
        }
        self.standing().judge_newcomer(now)?;
        Ok(Effect::New(Issued { serial: self.next_serial(), issued_at: now.max(self.last_issued_at()) }))
    }

    /// Returns on how many durable claims an answer of [`Self::judge_claim`] rests: the caller may report it once so many are
    /// durable. `None` for a new claim, which must be written first.
    pub fn rests_on(&self, answer: &Result<Effect<Issued>, Rejection>) -> Option<u32> {
        match answer {
            Ok(Effect::New(_)) => None,
            Ok(Effect::Again(issued)) | Err(Rejection::AlreadyIssued(issued)) => Some(issued.serial.get()),
            Err(Rejection::KeyReused(serial)) => Some(serial.get()),
            #[cfg(feature = "planted-bugs")]
            Err(Rejection::SoldOut) if crate::planted::is(crate::planted::Bug::SoldOutTooEarly) => Some(0),
            Err(Rejection::SoldOut) => Some(self.book.issued()),
            Err(_) => Some(0),
        }
    }

    /// Judges one claim like [`Self::judge_claim`] and, if it is new, records it.
    pub fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Effect<Issued>, Rejection> {
        let answer = self.judge_claim(claim, now);
        if let Ok(Effect::New(issued)) = answer {
            assert!(self.book.issued() < self.standing().sellable(), "oversold");
            let serial = self.book.append(&claim.user, issued.issued_at);
            #[cfg(not(feature = "planted-bugs"))]
            assert_eq!(serial, issued.serial, "a serial was left out");
            if let Some(request) = claim.request {
                let fresh = self.claim_keys.insert(request, serial);
                assert!(fresh, "a key that was judged new is known");
            }
        }
        answer
    }

    /// Judges one redemption and changes nothing.
    ///
    /// Order of checks: purged, idempotency key, unknown code, wrong user, already redeemed, expired. Claims of a deleted, sold-out
    /// or expired coupon can still be redeemed.
    pub fn judge_redeem(&self, redeem: &Redeem, now: Timestamp) -> Result<Effect<Redeemed>, Rejection> {
        self.standing().judge_redemptions(now)?;
        if let Some(request) = redeem.request
            && let Some((body, serial)) = self.redemption_keys.find(request.key)
        {
            return match self.redeemed(serial) {
                Some(redeemed) if body == request.body => Ok(Effect::Again(redeemed)),
                _ => Err(Rejection::KeyReused(serial)),
            };
        }
        let Some(serial) = redeem.serial.filter(|serial| self.has_claim(*serial)) else {
            return Err(Rejection::UnknownCode);
        };
        if let Some(user) = &redeem.user
            && user.as_str() != self.book.user(serial)
        {
            return Err(Rejection::WrongUser);
        }
        if let Some(redeemed) = self.redeemed(serial) {
            return Err(Rejection::AlreadyRedeemed(redeemed));
        }
        if let Some(until) = self.settings.redeem_until
            && until <= now
        {
            return Err(Rejection::Expired(until));
        }
        Ok(Effect::New(Redeemed { serial, redeemed_at: now.max(self.book.issued_at(serial)) }))
    }

    /// Judges one redemption like [`Self::judge_redeem`] and, if it is new, records it.
    pub fn redeem(&mut self, redeem: &Redeem, now: Timestamp) -> Result<Effect<Redeemed>, Rejection> {
        let answer = self.judge_redeem(redeem, now);
        if let Ok(Effect::New(redeemed)) = answer {
            let before = self.redemptions.insert(redeemed.serial, redeemed.redeemed_at);
            assert!(before.is_none(), "redeemed twice");
            if let Some(request) = redeem.request {
                let fresh = self.redemption_keys.insert(request, redeemed.serial);
                assert!(fresh, "a key that was judged new is known");
            }
        }
        answer
    }

    /// Takes back the newest claim, which [`Self::claim`] recorded and which could not be stored. Take claims back in reverse
    /// order; then the coupon is as if they had never come.
    pub fn take_back_claim(&mut self, issued: Issued, request: Option<RequestId>) {
        assert_eq!(self.book.issued(), issued.serial.get(), "only the newest claim can be taken back");
        assert!(self.redeemed(issued.serial).is_none(), "its redemption is taken back first");
        self.book.remove_last();
        if let Some(request) = request {
            self.claim_keys.remove(request.key);
        }
    }

    /// Takes back a redemption, which [`Self::redeem`] recorded and which could not be stored.
    pub fn take_back_redemption(&mut self, redeemed: Redeemed, request: Option<RequestId>) {
        let before = self.redemptions.remove(&redeemed.serial);
        assert!(before.is_some(), "there is no redemption to take back");
        if let Some(request) = request {
            self.redemption_keys.remove(request.key);
        }
    }

    /// Judges new settings and changes nothing: see [`CouponStanding::judge_settings`].
    pub fn judge_settings(&self, revision: &Revision<CouponSettings>) -> Result<(), Rejection> {
        self.standing().judge_settings(revision)
    }

    /// Puts settings in force that [`Self::judge_settings`] accepted.
    pub fn replace_settings(&mut self, settings: CouponSettings) {
        assert!(!self.deleted, "a deleted coupon has no new settings");
        assert!(self.book.issued() <= settings.limit.get(), "limit below issued");
        self.settings = settings;
    }

    /// Deletes the coupon for good. Claims stay readable and redeemable. A second call has no effect.
    pub const fn delete(&mut self) {
        self.deleted = true;
    }

    /// Returns the claim of a user.
    pub fn claim_of(&self, user: &str) -> Option<Issued> {
        let serial = self.book.find(user)?;
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::OneUserTwice) {
            return None;
        }
        Some(self.issued_as(serial))
    }

    /// Erases the user of a claim: a pseudonym takes its place, and the idempotency keys of the claim and of its redemption are
    /// forgotten. Serial, instant and redemption stay. A code that covers the user is no code any more. The user counts as
    /// one who never claimed.
    pub fn erase(&mut self, serial: Serial, pseudonym: &Pseudonym) {
        assert!(serial.get() <= self.book.issued(), "only a claim that exists is erased");
        let user = pseudonym.user();
        assert!(self.book.find(user.as_str()).is_none(), "a pseudonym is drawn once");
        self.book.rename(serial, &user);
        self.claim_keys.remove_of(serial);
        self.redemption_keys.remove_of(serial);
    }

    /// Returns the user and the claim of a serial of this coupon; `None` if its claims were purged.
    pub fn claim_at(&self, serial: Serial) -> Option<(&str, Issued)> {
        self.has_claim(serial).then(|| (self.book.user(serial), self.issued_as(serial)))
    }

    /// Returns the redemption of a serial.
    pub fn redeemed(&self, serial: Serial) -> Option<Redeemed> {
        self.redemptions.get(&serial).map(|&redeemed_at| Redeemed { serial, redeemed_at })
    }

    /// Restores a stored claim, in serial order, and checks what [`Self::claim`] would have asserted.
    pub fn restore_claim(&mut self, issued: Issued, user: &UserId, request: Option<RequestId>) -> Result<(), Damage> {
        if issued.serial.get() != self.book.issued() + 1 {
            return Err(Damage::Gap);
        }
        if self.settings.limit.get() < issued.serial.get() {
            return Err(Damage::Oversold);
        }
        if issued.issued_at < self.last_issued_at() {
            return Err(Damage::TimeFell);
        }
        // A start restores millions of claims, and to hash a name takes a good part of the time of one.
        let tag = self.book.tag(user.as_str());
        if self.book.find_tagged(tag, user.as_str()).is_some() {
            return Err(Damage::UserTwice);
        }
        if let Some(request) = request
            && !self.claim_keys.insert(request, issued.serial)
        {
            return Err(Damage::KeyTwice);
        }
        self.book.append_tagged(tag, user, issued.issued_at);
        Ok(())
    }

    /// Restores a stored redemption.
    pub fn restore_redemption(&mut self, redeemed: Redeemed, request: Option<RequestId>) -> Result<(), Damage> {
        let serial = redeemed.serial;
        let stray = !self.has_claim(serial) || self.redeemed(serial).is_some();
        if stray || redeemed.redeemed_at < self.book.issued_at(serial) {
            return Err(Damage::StrayRedemption);
        }
        if let Some(request) = request
            && !self.redemption_keys.insert(request, redeemed.serial)
        {
            return Err(Damage::KeyTwice);
        }
        self.redemptions.insert(redeemed.serial, redeemed.redeemed_at);
        Ok(())
    }

    /// Returns a serial with its instant. The serial must be one of `1..=issued`, and its claim not purged.
    pub fn issued_as(&self, serial: Serial) -> Issued {
        Issued { serial, issued_at: self.book.issued_at(serial) }
    }

    fn last_issued_at(&self) -> Timestamp {
        Serial::new(self.book.issued()).map_or(Timestamp::MIN, |serial| self.book.issued_at(serial))
    }

    fn next_serial(&self) -> Serial {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::GapInSerials) && 0 < self.book.issued() {
            return Serial(self.book.issued() + 2);
        }
        Serial(self.book.issued() + 1)
    }
}
