//! Wraps the secrets that lie in SQL, by the secret of the cluster, which every node gets and SQL never sees.
//!
//! A wrapped secret is `nonce ‖ ciphertext ‖ tag` of XChaCha20-Poly1305 under a key that is derived from the deployment's
//! secret, and bound to its place: moved to another row it does not open.
//!
//! A node may have a second secret, the *fallback*: it opens what either has wrapped, and wraps by the first alone. So nodes that
//! restart one after another read each other's rows while an operator replaces the secret, and [`crate::rewrap()`] wraps all rows
//! by the first one before the other goes.

use firstcome_store::Fault;
use firstcome_store::edge::draw_secret;
use hmac::{Hmac, KeyInit, Mac};
use orion::hazardous::aead::xchacha20poly1305::{Nonce, SecretKey, XChaCha20Poly1305};
use sha2::Sha256;
use std::fmt;

/// Fewest bytes of a deployment's secret: it must not be guessed.
pub const SECRET_BYTES_MIN: usize = 32;

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// The secret of a deployment. Every node has the same, except while it is replaced.
#[derive(Clone)]
pub struct DeploymentSecret {
    key: [u8; 32],
    fallback: Option<[u8; 32]>,
}

/// Which secret opened something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OpenedBy {
    Secret,
    Fallback,
}

impl fmt::Debug for DeploymentSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeploymentSecret(secret)")
    }
}

impl DeploymentSecret {
    /// Takes a text that no caller can guess; `None` if it has fewer than [`SECRET_BYTES_MIN`] bytes. Blanks around it do not
    /// count.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() < SECRET_BYTES_MIN {
            return None;
        }
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(text.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(b"firstcome secrets in sql 1");
        Some(Self { key: mac.finalize().into_bytes().into(), fallback: None })
    }

    /// Also opens what the other secret has wrapped, and wraps nothing by it: the former secret, or the next one. `None` if both
    /// are the same secret.
    pub fn with_fallback(self, other: &Self) -> Option<Self> {
        (self.key != other.key).then_some(Self { key: self.key, fallback: Some(other.key) })
    }

    /// Whether there is a second secret.
    pub const fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    /// Wraps a secret for a place.
    pub(super) fn wrap(&self, secret: &[u8; 32], place: &str) -> Result<Vec<u8>, Fault> {
        let mut wrapped = vec![0; NONCE_BYTES + secret.len() + TAG_BYTES];
        wrapped[..NONCE_BYTES].copy_from_slice(&draw_secret()?[..NONCE_BYTES]);
        let (nonce, out) = wrapped.split_at_mut(NONCE_BYTES);
        let (key, nonce) = (secret_key(&self.key), Nonce::try_from(&*nonce));
        #[expect(clippy::expect_used, reason = "all lengths are fixed, and right")]
        let nonce = nonce.expect("a nonce has 24 bytes");
        #[expect(clippy::expect_used, reason = "all lengths are fixed, and right")]
        XChaCha20Poly1305::seal(&key, &nonce, secret, Some(place.as_bytes()), out).expect("the buffer is long enough");
        Ok(wrapped)
    }

    /// Unwraps it; `None` if it was wrapped by neither secret, or for another place.
    pub(super) fn unwrap(&self, wrapped: &[u8], place: &str) -> Option<[u8; 32]> {
        self.unwrap_by(wrapped, place).map(|(secret, _)| secret)
    }

    /// The same, with the secret that opened it.
    pub(super) fn unwrap_by(&self, wrapped: &[u8], place: &str) -> Option<([u8; 32], OpenedBy)> {
        if let Some(secret) = open(&self.key, wrapped, place) {
            return Some((secret, OpenedBy::Secret));
        }
        let secret = open(self.fallback.as_ref()?, wrapped, place)?;
        Some((secret, OpenedBy::Fallback))
    }

    /// Wraps a secret for a file that leaves the deployment, bound to what it is and whose, as hexadecimal digits.
    pub fn wrap_for_export(&self, kind: &str, name: &str, secret: &[u8; 32]) -> Result<String, Fault> {
        let mut text = String::with_capacity(2 * (NONCE_BYTES + secret.len() + TAG_BYTES));
        firstcome_sql::dialect::hex(&mut text, &self.wrap(secret, &exported(kind, name))?);
        Ok(text)
    }

    /// Unwraps it; `None` if it was wrapped by another secret, or is that of something else.
    pub fn unwrap_of_export(&self, kind: &str, name: &str, text: &str) -> Option<[u8; 32]> {
        let digit = |at: usize| char::from(*text.as_bytes().get(at)?).to_digit(16);
        let byte = |at: usize| Some((digit(2 * at)? << 4 | digit(2 * at + 1)?) as u8);
        if !text.len().is_multiple_of(2) {
            return None;
        }
        let wrapped: Vec<u8> = (0..text.len() / 2).map(byte).collect::<Option<_>>()?;
        self.unwrap(&wrapped, &exported(kind, name))
    }
}

fn secret_key(key: &[u8; 32]) -> SecretKey {
    #[expect(clippy::expect_used, reason = "all lengths are fixed, and right")]
    SecretKey::try_from(key.as_slice()).expect("a key has 32 bytes")
}

fn open(key: &[u8; 32], wrapped: &[u8], place: &str) -> Option<[u8; 32]> {
    let (nonce, wrapped) = wrapped.split_at_checked(NONCE_BYTES)?;
    let mut secret = [0; 32];
    if wrapped.len() != secret.len() + TAG_BYTES {
        return None;
    }
    let nonce = Nonce::try_from(nonce).ok()?;
    XChaCha20Poly1305::open(&secret_key(key), &nonce, wrapped, Some(place.as_bytes()), &mut secret).ok()?;
    Some(secret)
}

/// The place of a secret in a file. None in SQL is called so.
fn exported(kind: &str, name: &str) -> String {
    format!("export:{kind}:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(text: &str) -> DeploymentSecret {
        DeploymentSecret::new(text).unwrap()
    }

    const ONE: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_secret_comes_back_in_its_place_and_nowhere_else() {
        let secret = [7; 32];
        let wrapped = deployment(ONE).wrap(&secret, "coupon:summer").unwrap();
        assert_eq!(deployment(&format!(" {ONE}\n")).unwrap(&wrapped, "coupon:summer"), Some(secret));
        assert_eq!(deployment(ONE).unwrap(&wrapped, "coupon:winter"), None);
        assert_eq!(deployment(&ONE.replace('0', "1")).unwrap(&wrapped, "coupon:summer"), None);
        assert!(!wrapped.windows(8).any(|bytes| bytes == [7; 8]), "it cannot be read");
        assert_ne!(deployment(ONE).wrap(&secret, "coupon:summer").unwrap(), wrapped, "no nonce comes twice");
    }

    #[test]
    fn what_was_changed_or_cut_does_not_open() {
        let wrapped = deployment(ONE).wrap(&[7; 32], "here").unwrap();
        for at in 0..wrapped.len() {
            let mut wrong = wrapped.clone();
            wrong[at] ^= 1;
            assert_eq!(deployment(ONE).unwrap(&wrong, "here"), None, "byte {at}");
            assert_eq!(deployment(ONE).unwrap(&wrapped[..at], "here"), None, "{at} bytes");
        }
        assert_eq!(deployment(ONE).unwrap(&[wrapped, vec![0]].concat(), "here"), None);
    }

    #[test]
    fn a_secret_in_a_file_is_that_of_one_thing_of_one_kind() {
        let text = deployment(ONE).wrap_for_export("coupon", "summer", &[7; 32]).unwrap();
        let open = |kind, name, text: &str| deployment(ONE).unwrap_of_export(kind, name, text);
        assert_eq!(open("coupon", "summer", &text), Some([7; 32]));
        assert_eq!(open("coupon", "winter", &text), None);
        assert_eq!(open("room", "summer", &text), None);
        for wrong in [&text[1..], &text[2..], "", "zz", "üü"] {
            assert_eq!(open("coupon", "summer", wrong), None, "{wrong}");
        }
        let inside = deployment(ONE).wrap(&[7; 32], "coupon:summer:code_key").unwrap();
        let inside: String = inside.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(open("coupon", "summer", &inside), None, "one out of SQL is no line of a file");
    }

    #[test]
    fn a_fallback_opens_and_wraps_nothing() {
        let (old, new) = (deployment(ONE), deployment(&ONE.replace('0', "1")));
        let rolling = new.clone().with_fallback(&old).unwrap();
        let before = old.wrap(&[7; 32], "here").unwrap();
        assert_eq!(rolling.unwrap_by(&before, "here"), Some(([7; 32], OpenedBy::Fallback)));
        assert_eq!(rolling.unwrap(&before, "there"), None);
        let after = rolling.wrap(&[7; 32], "here").unwrap();
        assert_eq!(rolling.unwrap_by(&after, "here"), Some(([7; 32], OpenedBy::Secret)));
        assert_eq!((new.unwrap(&after, "here"), old.unwrap(&after, "here")), (Some([7; 32]), None));
        assert!(old.clone().with_fallback(&deployment(&format!("{ONE}\n"))).is_none(), "both are one secret");
        assert!(rolling.has_fallback() && !old.has_fallback());
        let text = old.wrap_for_export("coupon", "summer", &[7; 32]).unwrap();
        assert_eq!(rolling.unwrap_of_export("coupon", "summer", &text), Some([7; 32]));
    }

    #[test]
    fn a_secret_that_could_be_guessed_is_none() {
        assert!(DeploymentSecret::new("too short").is_none());
        assert!(DeploymentSecret::new(&" ".repeat(40)).is_none());
        assert!(!format!("{:?}", deployment(ONE)).contains("0123"));
    }
}
