//! Passes: a waiting room gives one to each admitted visitor, and a coupon behind that room requires it.
//!
//! A pass is a PASETO of version 4 (`v4.public`: Ed25519, with no choice of algorithm). Its claims are the fields of a
//! [`Grant`], its footer is `{"kid":"<number of the key>"}`, and its implicit assertion is [`DOMAIN`]: a token that
//! the same key signed for another purpose is not a pass.
//!
//! # What it promises
//! - Only a process that has the secret can make a pass. A process that has the public key ([`PassKeys::public_keys`])
//!   can verify one.
//! - A grant has exactly one text under a key, bit for bit. A claim that is unknown, missing, doubled or spelt
//!   otherwise is refused.
//! - No input breaks the parser, and it rejects a text longer than [`TOKEN_BYTES_MAX`] unread.
//! - A pass outlives a change of the signing key, as long as its own key is among the older ones.
//! - Once a key is removed, its passes are void, including those that were verified before.
//!
//! # What it does not promise
//! - That a pass still counts. Each call checks that against the store: whether it has expired ([`Grant::expired`]),
//!   whether its slot still exists, and whether it names the right room.
//! - Secrecy. A client that sees a pass can read it and use it.
//!
//! A forged pass with the number of a known key costs one verification, some tens of microseconds. The limit of failed
//! authentications bounds that: see [`crate::FailureLimits`].

mod cache;

use crate::rfc3339;
use cache::Cache;
use ed25519_compact::{KeyPair, Seed};
use firstcome::core::id::{RoomName, UserId};
use firstcome::core::time::Timestamp;
use firstcome::embedded::journal::PassSecretSet;
use parking_lot::{Mutex, RwLock};
use pasetors::keys::{AsymmetricPublicKey, AsymmetricSecretKey};
use pasetors::paserk::FormatAsPaserk;
use pasetors::token::{Public, UntrustedToken};
use pasetors::version4::{PublicToken, V4};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// The most bytes of a pass. The longest names make 653.
pub const TOKEN_BYTES_MAX: usize = 1_024;

/// The implicit assertion of PASETO: signed with every pass, and not part of it. A service that verifies passes needs
/// it.
pub const DOMAIN: &str = "firstcome pass v1";

/// The content of a pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The room that admitted the visitor.
    pub room: RoomName,
    /// The number of the ticket in the room.
    pub number: u32,
    /// The store's number of this admission. It distinguishes successive slots of one ticket.
    pub slot: u64,
    /// The user of the ticket, if a service key joined for one.
    pub user: Option<UserId>,
    /// The instant of the admission. Not checked on verification.
    pub issued_at: Timestamp,
    /// When the pass ends. The pass is invalid at this instant.
    pub expires_at: Timestamp,
}

impl Grant {
    /// Whether the pass has ended at `now`.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }
}

/// Why a text is not a pass of this service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassError {
    /// It does not have the form of a pass.
    Malformed,
    /// It names a key that is unknown, or that was removed.
    UnknownKey,
    /// It is not signed by the key that it names.
    Forged,
}

impl PassError {
    /// Returns the reason as programs read it. Codes never change.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::Forged => "forged",
        }
    }
}

impl fmt::Display for PassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl std::error::Error for PassError {}

/// Why keys cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The secret is all zeros, so it was not drawn at random.
    NotSecret,
    /// Two keys have the same number.
    DuplicateId(u32),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSecret => f.write_str("the secret of a pass key is all zeros"),
            Self::DuplicateId(id) => write!(f, "two pass keys have the number {id}"),
        }
    }
}

impl std::error::Error for KeyError {}

/// A key pair with its number.
#[derive(Clone)]
pub struct PassKey {
    id: u32,
    footer: String,
    secret: AsymmetricSecretKey<V4>,
    public: AsymmetricPublicKey<V4>,
}

impl fmt::Debug for PassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PassKey({}, secret)", self.id)
    }
}

impl PassKey {
    /// Creates the key of 32 secret random bytes: the seed of RFC 8032. Never reuse a number for another key, so that
    /// "unknown key" and "forged" stay true for old passes.
    pub fn new(id: u32, seed: [u8; 32]) -> Result<Self, KeyError> {
        let pair = KeyPair::try_from_seed(Seed::new(seed)).map_err(|_| KeyError::NotSecret)?;
        let secret = AsymmetricSecretKey::from(&*pair.sk).map_err(|_| KeyError::NotSecret)?;
        let public = AsymmetricPublicKey::from(&*pair.pk).map_err(|_| KeyError::NotSecret)?;
        Ok(Self { id, footer: footer(id), secret, public })
    }

    /// Returns the number of the key.
    pub const fn id(&self) -> u32 {
        self.id
    }

    fn mint(&self, grant: &Grant) -> String {
        let (claims, footer) = (payload(grant), self.footer.as_bytes());
        #[expect(clippy::expect_used, reason = "the key was checked when it was made, and a payload is never empty")]
        PublicToken::sign(&self.secret, claims.as_bytes(), Some(footer), Some(DOMAIN.as_bytes())).expect("a good key")
    }
}

/// The keys of a service: one that signs, and older ones whose passes are still valid.
#[derive(Clone, Debug)]
pub struct PassKeys {
    /// The first one signs.
    keys: Vec<PassKey>,
}

impl PassKeys {
    /// Signs with `current`, and accepts passes of all keys.
    pub fn new(current: PassKey, older: Vec<PassKey>) -> Result<Self, KeyError> {
        let mut keys = vec![current];
        for key in older {
            if keys.iter().any(|known| known.id == key.id) {
                return Err(KeyError::DuplicateId(key.id));
            }
            keys.push(key);
        }
        Ok(Self { keys })
    }

    /// Returns the public keys, the signing one first: number and PASERK (`k4.public.…`), for services that verify
    /// passes.
    pub fn public_keys(&self) -> Vec<(u32, String)> {
        let paserk = |key: &PassKey| {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = key.public.fmt(&mut text);
            (key.id, text)
        };
        self.keys.iter().map(paserk).collect()
    }

    /// Returns the number of the signing key.
    pub fn signing_id(&self) -> u32 {
        self.keys[0].id
    }

    /// Names the secrets that these keys were made from.
    pub(crate) fn secret_set(&self) -> PassSecretSet {
        PassSecretSet { newest: self.signing_id(), count: self.keys.len() }
    }

    /// Makes the pass of a grant. The same grant gives the same pass until the signing key changes.
    pub fn mint(&self, grant: &Grant) -> String {
        self.keys[0].mint(grant)
    }

    /// Verifies and parses a pass. Order of checks: form of the token, key, signature, form of the claims.
    pub fn read(&self, token: &str) -> Result<Grant, PassError> {
        self.verify(token).map(|(_, grant)| grant)
    }

    fn verify(&self, token: &str) -> Result<(&PassKey, Grant), PassError> {
        check_bounds(token)?;
        let untrusted = UntrustedToken::<Public, V4>::try_from(token).map_err(|_| PassError::Malformed)?;
        let id = key_id(untrusted.untrusted_footer()).ok_or(PassError::Malformed)?;
        let key = self.keys.iter().find(|key| key.id == id).ok_or(PassError::UnknownKey)?;
        let (footer, domain) = (Some(key.footer.as_bytes()), Some(DOMAIN.as_bytes()));
        let trusted = PublicToken::verify(&key.public, &untrusted, footer, domain).map_err(|_| PassError::Forged)?;
        let grant = grant(trusted.payload()).ok_or(PassError::Malformed)?;
        Ok((key, grant))
    }

    fn holds(&self, signer: &Signer) -> bool {
        self.keys.iter().any(|key| key.id == signer.id && key.public.as_bytes() == signer.public)
    }
}

/// The key that signed. The number alone is not enough: passes of a removed key stay void even if its number comes
/// back.
#[derive(Clone, Copy)]
struct Signer {
    id: u32,
    public: [u8; 32],
}

impl Signer {
    fn of(key: &PassKey) -> Self {
        let mut public = [0; 32];
        public.copy_from_slice(key.public.as_bytes());
        Self { id: key.id, public }
    }
}

/// Mints passes and verifies them, with a cache: clients send a pass many times, and one verification costs as much as
/// a hundred look-ups.
///
/// The cache records only that a key signed a grant. It holds at most 32 768 passes, and drops the least used half at
/// a time. It never stores an invalid text, so no client can flush it with such texts.
pub struct Passes {
    keys: RwLock<Arc<PassKeys>>,
    cache: Mutex<Cache>,
}

impl Passes {
    /// Creates an empty cache over these keys.
    pub fn new(keys: PassKeys) -> Self {
        Self { keys: RwLock::new(Arc::new(keys)), cache: Mutex::default() }
    }

    /// Returns the current keys.
    pub fn keys(&self) -> Arc<PassKeys> {
        Arc::clone(&self.keys.read())
    }

    /// Replaces the keys. Calls that began before may still use the old ones.
    pub fn replace_keys(&self, keys: PassKeys) {
        *self.keys.write() = Arc::new(keys);
    }

    /// Mints a pass; see [`PassKeys::mint`]. It is remembered as if it had been verified.
    pub fn mint(&self, grant: &Grant) -> String {
        let keys = self.keys();
        let pass = keys.mint(grant);
        let digest = Sha256::digest(pass.as_bytes()).into();
        self.cache.lock().put(digest, Signer::of(&keys.keys[0]), Arc::new(grant.clone()));
        pass
    }

    /// Whether this pass was minted or verified here not long ago, so that [`Self::read`] verifies no signature.
    pub fn remembers(&self, token: &str) -> bool {
        check_bounds(token).is_ok() && self.cache.lock().get(&Sha256::digest(token.as_bytes()).into()).is_some()
    }

    /// Answers as [`PassKeys::read`] does.
    pub fn read(&self, token: &str) -> Result<Grant, PassError> {
        check_bounds(token)?;
        let keys = self.keys();
        let digest = Sha256::digest(token.as_bytes()).into();
        let remembered = self.cache.lock().get(&digest);
        // Compares with the current keys, so that no order of events lets a pass outlive its key.
        if let Some((signer, grant)) = remembered
            && keys.holds(&signer)
        {
            return Ok(Grant::clone(&grant));
        }
        let (key, grant) = keys.verify(token)?;
        self.cache.lock().put(digest, Signer::of(key), Arc::new(grant.clone()));
        Ok(grant)
    }
}

/// The claims in the order in which a pass has them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims<'a> {
    room: &'a str,
    number: u32,
    slot: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    iat: &'a str,
    exp: &'a str,
}

/// Returns the text that is signed for a grant.
fn payload(grant: &Grant) -> String {
    let claims = Claims {
        room: grant.room.as_str(),
        number: grant.number,
        slot: grant.slot,
        user: grant.user.as_ref().map(UserId::as_str),
        iat: &rfc3339::format(grant.issued_at),
        exp: &rfc3339::format(grant.expires_at),
    };
    // Numbers and texts always have a JSON form.
    serde_json::to_string(&claims).unwrap_or_default()
}

/// Parses a payload to its grant.
fn grant(text: &str) -> Option<Grant> {
    let claims: Claims<'_> = serde_json::from_str(text).ok()?;
    let grant = Grant {
        room: RoomName::parse(claims.room).ok()?,
        number: claims.number,
        slot: claims.slot,
        user: claims.user.map(UserId::parse).transpose().ok()?,
        issued_at: rfc3339::parse(claims.iat)?,
        expires_at: rfc3339::parse(claims.exp)?,
    };
    // Refuses any other spelling of the grant: two readers could disagree about its meaning.
    (payload(&grant) == text).then_some(grant)
}

fn footer(id: u32) -> String {
    format!("{{\"kid\":\"{id}\"}}")
}

/// Returns the key number of a footer that is spelt exactly as [`footer`] writes it.
fn key_id(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"{\"kid\":\"")?.strip_suffix(b"\"}")?;
    let id = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (footer(id).as_bytes() == text).then_some(id)
}

/// Rejects, before any other work, a text that cannot be a pass.
fn check_bounds(token: &str) -> Result<(), PassError> {
    let fits = token.len() <= TOKEN_BYTES_MAX && token.starts_with(PublicToken::HEADER);
    if fits { Ok(()) } else { Err(PassError::Malformed) }
}

#[cfg(test)]
mod tests;
