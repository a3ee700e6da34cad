//! The keys of a service, and the passes that they were seen to have signed.
//!
//! # Invariants
//! - A pass is kept only after its signature was verified with a key of this set.
//! - A set never changes its keys. New keys are a new set, so that no order of events lets a pass outlive its key.

use super::{Pass, PassRefusal};
use firstcome_client::{PassClaims, PassPublicKeys};
use firstcome_store::edge::draw_hasher;
use parking_lot::RwLock;
use pasetors::keys::AsymmetricPublicKey;
use pasetors::token::{Public, UntrustedToken};
use pasetors::version4::{PublicToken, V4};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The most bytes of a pass. The longest names make 653.
const TOKEN_BYTES_MAX: usize = 1_024;
/// The passes of one generation. With long names, both generations hold some 20 MB.
const GENERATION_MAX: usize = 8_192;

/// See the [module](self).
pub(super) struct Signers {
    keys: PassPublicKeys,
    public: Vec<(u32, AsymmetricPublicKey<V4>)>,
    verified: RwLock<Verified>,
}

impl fmt::Debug for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signers").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Two generations: when the young one is full, it replaces the old one. A use moves a pass to the young one.
struct Verified {
    young: HashMap<Box<str>, Pass>,
    old: HashMap<Box<str>, Pass>,
}

impl Verified {
    fn put(&mut self, text: Box<str>, pass: Pass) {
        if GENERATION_MAX <= self.young.len() {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(text, pass);
    }
}

impl Signers {
    /// Reads the keys; fails with the text that is not a key.
    pub(super) fn new(keys: PassPublicKeys) -> Result<Self, String> {
        let read = |key: &firstcome_client::PassPublicKey| {
            let public = AsymmetricPublicKey::<V4>::try_from(key.paserk.as_str());
            public.map(|public| (key.id, public)).map_err(|_| key.paserk.clone())
        };
        let public = keys.keys.iter().map(read).collect::<Result<_, _>>()?;
        let empty = || HashMap::with_hasher(draw_hasher());
        let verified = RwLock::new(Verified { young: empty(), old: empty() });
        Ok(Self { keys, public, verified })
    }

    /// The keys as the service told them.
    pub(super) const fn keys(&self) -> &PassPublicKeys {
        &self.keys
    }

    /// Reads a pass, and verifies its signature unless it is known. Order of checks: form, key, signature, claims.
    pub(super) fn read(&self, text: &str) -> Result<Pass, PassRefusal> {
        if let Some(pass) = self.verified.read().young.get(text) {
            return Ok(pass.clone());
        }
        let mut verified = self.verified.write();
        if let Some((text, pass)) = verified.old.remove_entry(text) {
            verified.put(text, pass.clone());
            return Ok(pass);
        }
        // A verification is slow: other checks go on meanwhile.
        drop(verified);
        let pass = self.verify(text)?;
        self.verified.write().put(text.into(), pass.clone());
        Ok(pass)
    }

    fn verify(&self, text: &str) -> Result<Pass, PassRefusal> {
        if TOKEN_BYTES_MAX < text.len() || !text.starts_with(PublicToken::HEADER) {
            return Err(PassRefusal::Malformed);
        }
        let untrusted = UntrustedToken::<Public, V4>::try_from(text).map_err(|_| PassRefusal::Malformed)?;
        let footer = untrusted.untrusted_footer();
        let id = key_id(footer).ok_or(PassRefusal::Malformed)?;
        let key = self.public.iter().find(|(known, _)| *known == id);
        let (_, key) = key.ok_or(PassRefusal::UnknownKey)?;
        let assertion = self.keys.implicit_assertion.as_bytes();
        let trusted = PublicToken::verify(key, &untrusted, Some(footer), Some(assertion));
        let trusted = trusted.map_err(|_| PassRefusal::Forged)?;
        PassClaims::read(trusted.payload()).map(|claims| Pass(Arc::new(claims))).ok_or(PassRefusal::Malformed)
    }

    /// Keeps the pass of a text under another text, as if a key had signed that.
    #[cfg(test)]
    pub(super) fn keep(&self, text: &str, of: &str) {
        let pass = self.read(of).expect("a pass");
        self.verified.write().put(text.into(), pass);
    }

    /// Whether a text is kept as a pass.
    #[cfg(test)]
    pub(super) fn keeps(&self, text: &str) -> bool {
        let verified = self.verified.read();
        verified.young.contains_key(text) || verified.old.contains_key(text)
    }

    /// The number of passes that are kept.
    #[cfg(test)]
    pub(super) fn verified_count(&self) -> usize {
        let verified = self.verified.read();
        verified.young.len() + verified.old.len()
    }
}

/// Returns the key number of a footer: `{"kid":"7"}`.
fn key_id(footer: &[u8]) -> Option<u32> {
    let digits = footer.strip_prefix(b"{\"kid\":\"")?.strip_suffix(b"\"}")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
