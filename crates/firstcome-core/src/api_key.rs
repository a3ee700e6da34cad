//! The rules of API keys: names, scopes, expiry, rotation and revocation.
//!
//! A book holds digests only: no key can be recovered from it.
//!
//! # Invariants
//! - A name has one current key. At most one further key of the name is accepted: the one before the last rotation, until its
//!   time is over.
//! - A revoked key is never accepted again.
//! - There are at most [`API_KEYS_MAX`] names.

use crate::coupon::Effect;
use crate::id::{KeyName, RequestId};
use crate::limits::{API_KEY_MS_MAX, API_KEYS_MAX};
use crate::time::Timestamp;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// The digest of a key. The key itself is never kept.
#[derive(Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Returns the digest of a key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Wraps a digest that was stored.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the digest for storage.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(..)")
    }
}

/// What the calls of a key may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyScope {
    /// Look at what an operator sees, and change nothing.
    View,
    /// Act for any user, as a back end.
    Service,
    /// Everything.
    Admin,
}

impl KeyScope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::View, Self::Service, Self::Admin];

    /// Returns the scope as clients and stores write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Service => "service",
            Self::Admin => "admin",
        }
    }

    /// Reads what [`Self::as_str`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// Where a key comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOrigin {
    /// The first start of the service made it.
    FirstStart,
    /// An admin created or rotated it.
    Made,
}

/// The number of a key in its store. Never reused; a later key has a greater one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyNumber(pub u32);

/// The identity of a caller, which scopes idempotency keys and holds of locks. A rotation keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallerId(pub [u8; 16]);

/// Whether a key is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyState {
    /// It is accepted.
    Active,
    /// Its time is over.
    Expired,
    /// An admin has revoked it.
    Revoked,
}

impl KeyState {
    /// Returns the state as clients read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// A key of a store.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Its number.
    pub number: KeyNumber,
    /// Its name, which a rotation keeps.
    pub name: KeyName,
    /// What its calls may do; fixed for a name.
    pub scope: KeyScope,
    /// Where it comes from.
    pub origin: KeyOrigin,
    /// Its digest.
    pub digest: KeyDigest,
    /// Whom it identifies.
    pub caller: CallerId,
    /// When it was created.
    pub created_at: Timestamp,
    /// From when on it is not accepted; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// The request that created it, if that carried a key.
    pub request: Option<RequestId>,
}

impl ApiKey {
    /// Returns whether the key is accepted at this instant. At `expires_at` it is not.
    pub fn state(&self, now: Timestamp) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(end)) if end <= now => KeyState::Expired,
            (None, _) => KeyState::Active,
        }
    }
}

/// Whether an admin key exists that is not in the book, such as one of the environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherAdmins {
    /// There is none.
    Absent,
    /// There is one.
    Present,
}

/// What an admin asks of a book.
#[derive(Clone, Debug)]
pub enum KeyCommand {
    /// Adds a key. Refused, in this order: `IdempotencyKeyReused`, `KeyExists`, `TooManyKeys`. The name of keys that are all
    /// expired or revoked is free again.
    Create {
        /// The name.
        name: KeyName,
        /// What it may do.
        scope: KeyScope,
        /// Its digest.
        digest: KeyDigest,
        /// Whom it identifies.
        caller: CallerId,
        /// How long it is accepted; `None` for ever.
        valid_for_ms: Option<u64>,
        /// The request.
        request: Option<RequestId>,
    },
    /// Replaces the current key of a name, which is accepted for a time still. The new key lives for as long as the old
    /// one. Refused, in this order: `IdempotencyKeyReused`, `UnknownKey`, `KeyRevoked`.
    Rotate {
        /// The name.
        name: KeyName,
        /// The digest of the new key.
        digest: KeyDigest,
        /// How long the old key is still accepted.
        old_valid_for_ms: u64,
        /// The request.
        request: Option<RequestId>,
    },
    /// Revokes all keys of a name. A second time has no effect. Refused, in this order: `UnknownKey`, `LastAdminKey`.
    Revoke {
        /// The name.
        name: KeyName,
        /// Whether other admins remain in any case.
        others: OtherAdmins,
    },
    /// Adds a key that the first start has made, under this name or the first free one of `NAME-2`, `NAME-3` and so on. A
    /// digest that the book knows has no effect, even if the key was revoked.
    Adopt {
        /// The name.
        name: KeyName,
        /// What it may do.
        scope: KeyScope,
        /// Its digest.
        digest: KeyDigest,
    },
}

/// Why a book does not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyRejection {
    /// No key has this name.
    UnknownKey,
    /// A key of this name is accepted already.
    KeyExists,
    /// The key was revoked.
    KeyRevoked,
    /// No other admin key would be left.
    LastAdminKey,
    /// There are [`API_KEYS_MAX`] names.
    TooManyKeys,
    /// The idempotency key belongs to another request.
    IdempotencyKeyReused,
}

/// What changes in the store with one command.
#[derive(Clone, Default, Debug)]
pub struct KeyChange {
    /// Rows that are new, or replace the ones with their numbers.
    pub put: Vec<ApiKey>,
    /// Rows that are not needed any more.
    pub forget: Vec<KeyNumber>,
}

/// The effect of a command, and what changes with it.
pub type KeyJudgement = Result<(Effect<ApiKey>, KeyChange), KeyRejection>;

/// All keys of a store.
#[derive(Clone, Default, Debug)]
pub struct KeyBook {
    keys: BTreeMap<KeyNumber, ApiKey>,
    by_digest: BTreeMap<[u8; 32], KeyNumber>,
}

/// The bytes of a digest by which a book is searched. The caller compares the rest in constant time.
const PREFIX_BYTES: usize = 8;

impl KeyBook {
    /// Builds a book of stored keys.
    pub fn restore(keys: impl IntoIterator<Item = ApiKey>) -> Self {
        let mut book = Self::default();
        keys.into_iter().for_each(|key| book.put(key));
        book
    }

    /// Returns the keys whose digests begin like this one: nearly always one or none. The search may take longer for a digest
    /// that begins like a stored one, which tells an attacker nothing: the digest of a guess cannot be chosen.
    pub fn candidates(&self, digest: &KeyDigest) -> impl Iterator<Item = &ApiKey> {
        let (mut first, mut last) = ([0; 32], [0xff; 32]);
        first[..PREFIX_BYTES].copy_from_slice(&digest.0[..PREFIX_BYTES]);
        last[..PREFIX_BYTES].copy_from_slice(&digest.0[..PREFIX_BYTES]);
        self.by_digest.range(first..=last).filter_map(|(_, number)| self.keys.get(number))
    }

    /// Returns all keys in the order of their creation.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &ApiKey> {
        self.keys.values()
    }

    /// Returns whether the book has no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the current key of a name.
    pub fn current(&self, name: &str) -> Option<&ApiKey> {
        self.keys().rev().find(|key| key.name.as_str() == name)
    }

    /// Judges a command and applies it to this book. Changes nothing if it is refused.
    pub fn apply(&mut self, command: &KeyCommand, now: Timestamp) -> KeyJudgement {
        let judgement = match command {
            KeyCommand::Create { name, scope, digest, caller, valid_for_ms, request } => {
                if let Some(earlier) = self.repeat_of(*request)? {
                    return Ok((Effect::Again(earlier), KeyChange::default()));
                }
                self.check_free(name.as_str(), now)?;
                let forget = self.of(name.as_str()).filter(|key| key.origin == KeyOrigin::Made);
                let forget = forget.map(|key| key.number).collect();
                let expires_at = valid_for_ms.map(|ms| now.plus_ms(ms.min(API_KEY_MS_MAX)));
                let (origin, number) = (KeyOrigin::Made, self.next());
                let key = ApiKey {
                    number,
                    name: name.clone(),
                    scope: *scope,
                    origin,
                    digest: *digest,
                    caller: *caller,
                    created_at: now,
                    expires_at,
                    revoked_at: None,
                    request: *request,
                };
                Ok((Effect::New(key.clone()), KeyChange { put: vec![key], forget }))
            }
            KeyCommand::Rotate { name, digest, old_valid_for_ms, request } => {
                self.rotate(name, *digest, *old_valid_for_ms, *request, now)
            }
            KeyCommand::Revoke { name, others } => self.revoke(name, *others, now),
            KeyCommand::Adopt { name, scope, digest } => self.adopt(name, *scope, *digest, now),
        };
        let (effect, change) = judgement?;
        change.forget.iter().for_each(|number| self.forget(*number));
        change.put.iter().for_each(|key| self.put(key.clone()));
        if let Some(key) = change.put.last() {
            self.check_invariants(key.name.as_str(), now);
        }
        Ok((effect, change))
    }

    fn rotate(
        &self,
        name: &KeyName,
        digest: KeyDigest,
        old_valid_for_ms: u64,
        request: Option<RequestId>,
        now: Timestamp,
    ) -> KeyJudgement {
        if let Some(earlier) = self.repeat_of(request)? {
            return Ok((Effect::Again(earlier), KeyChange::default()));
        }
        let old = self.current(name.as_str()).ok_or(KeyRejection::UnknownKey)?;
        if old.revoked_at.is_some() {
            return Err(KeyRejection::KeyRevoked);
        }
        let end = now.plus_ms(old_valid_for_ms.min(API_KEY_MS_MAX));
        let ended = ApiKey { expires_at: Some(old.expires_at.map_or(end, |at| at.min(end))), ..old.clone() };
        let life_us = old.expires_at.map(|at| at.as_us().saturating_sub(old.created_at.as_us()));
        let fresh = ApiKey {
            number: self.next(),
            origin: KeyOrigin::Made,
            digest,
            created_at: now,
            expires_at: life_us.map(|us| Timestamp::clamped_us(now.as_us().saturating_add(us))),
            request,
            ..old.clone()
        };
        let mut change = KeyChange::default();
        for older in self.of(name.as_str()).filter(|older| older.number != old.number) {
            match older.origin {
                KeyOrigin::Made => change.forget.push(older.number),
                // The file of the first start still has it: without its row the next start would adopt it again.
                KeyOrigin::FirstStart => {
                    let over = older.expires_at.map_or(now, |at| at.min(now));
                    change.put.push(ApiKey { expires_at: Some(over), ..older.clone() });
                }
            }
        }
        change.put.extend([ended, fresh.clone()]);
        Ok((Effect::New(fresh), change))
    }

    fn revoke(&self, name: &KeyName, others: OtherAdmins, now: Timestamp) -> KeyJudgement {
        let current = self.current(name.as_str()).ok_or(KeyRejection::UnknownKey)?;
        if current.revoked_at.is_some() {
            return Ok((Effect::Again(current.clone()), KeyChange::default()));
        }
        let is_other =
            |key: &&ApiKey| key.scope == KeyScope::Admin && key.name != *name && key.state(now) == KeyState::Active;
        let is_last = others == OtherAdmins::Absent && !self.keys().any(|key| is_other(&key));
        if current.scope == KeyScope::Admin && is_last {
            return Err(KeyRejection::LastAdminKey);
        }
        let put: Vec<ApiKey> = self
            .of(name.as_str())
            .filter(|key| key.revoked_at.is_none())
            .map(|key| ApiKey { revoked_at: Some(now), ..key.clone() })
            .collect();
        let revoked = ApiKey { revoked_at: Some(now), ..current.clone() };
        Ok((Effect::New(revoked), KeyChange { put, forget: Vec::new() }))
    }

    fn adopt(&self, name: &KeyName, scope: KeyScope, digest: KeyDigest, now: Timestamp) -> KeyJudgement {
        if let Some(known) = self.by_digest.get(&digest.0).and_then(|number| self.keys.get(number)) {
            return Ok((Effect::Again(known.clone()), KeyChange::default()));
        }
        let further = (2..=API_KEYS_MAX + 1).filter_map(|count| KeyName::parse(&format!("{name}-{count}")).ok());
        let mut names = std::iter::once(name.clone()).chain(further);
        let free = names.find(|name| self.current(name.as_str()).is_none()).ok_or(KeyRejection::TooManyKeys)?;
        let mut caller = [0; 16];
        // As the service identified it before the store knew of keys: what the caller did stays its own.
        caller.copy_from_slice(&digest.0[..16]);
        let key = ApiKey {
            number: self.next(),
            name: free,
            scope,
            origin: KeyOrigin::FirstStart,
            digest,
            caller: CallerId(caller),
            created_at: now,
            expires_at: None,
            revoked_at: None,
            request: None,
        };
        Ok((Effect::New(key.clone()), KeyChange { put: vec![key], forget: Vec::new() }))
    }

    /// Refuses a name that has a key, and a name too many.
    fn check_free(&self, name: &str, now: Timestamp) -> Result<(), KeyRejection> {
        if self.of(name).any(|key| key.state(now) == KeyState::Active) {
            return Err(KeyRejection::KeyExists);
        }
        let mut names: Vec<&str> = self.keys().map(|key| key.name.as_str()).filter(|known| *known != name).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < API_KEYS_MAX { Ok(()) } else { Err(KeyRejection::TooManyKeys) }
    }

    /// Finds the key that an earlier copy of this request created.
    fn repeat_of(&self, request: Option<RequestId>) -> Result<Option<ApiKey>, KeyRejection> {
        let Some(request) = request else { return Ok(None) };
        let earlier = self.keys().find(|key| key.request.is_some_and(|known| known.key == request.key));
        match earlier {
            Some(earlier) if earlier.request != Some(request) => Err(KeyRejection::IdempotencyKeyReused),
            earlier => Ok(earlier.cloned()),
        }
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ApiKey> {
        self.keys().filter(move |key| key.name.as_str() == name)
    }

    fn next(&self) -> KeyNumber {
        KeyNumber(self.keys.last_key_value().map_or(1, |(number, _)| number.0 + 1))
    }

    fn put(&mut self, key: ApiKey) {
        self.by_digest.insert(key.digest.0, key.number);
        self.keys.insert(key.number, key);
    }

    fn forget(&mut self, number: KeyNumber) {
        if let Some(key) = self.keys.remove(&number) {
            self.by_digest.remove(&key.digest.0);
        }
    }

    fn check_invariants(&self, changed: &str, now: Timestamp) {
        let active = self.of(changed).filter(|key| key.state(now) == KeyState::Active).count();
        assert!(active <= 2, "{active} keys of the name {changed} are accepted at once");
        assert_eq!(self.keys.len(), self.by_digest.len(), "two keys have one digest");
    }
}

#[cfg(test)]
mod tests;
