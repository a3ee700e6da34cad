//! Wraps the secrets that lie in SQL, by the secret of the cluster, which every node gets and SQL never sees.
//!
//! A wrapped secret is `nonce ‖ ciphertext ‖ tag` of XChaCha20-Poly1305 under a key that is derived from the deployment's
//! secret, and bound to its place: moved to another row it does not open.

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

/// The secret of a deployment. Every node has the same.
#[derive(Clone)]
pub struct DeploymentSecret([u8; 32]);

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
        Some(Self(mac.finalize().into_bytes().into()))
    }

    /// Wraps a secret for a place.
    pub(super) fn wrap(&self, secret: &[u8; 32], place: &str) -> Result<Vec<u8>, Fault> {
        let mut wrapped = vec![0; NONCE_BYTES + secret.len() + TAG_BYTES];
        wrapped[..NONCE_BYTES].copy_from_slice(&draw_secret()?[..NONCE_BYTES]);
        let (nonce, out) = wrapped.split_at_mut(NONCE_BYTES);
        let (key, nonce) = (self.key(), Nonce::try_from(&*nonce));
        #[expect(clippy::expect_used, reason = "all lengths are fixed, and right")]
        let nonce = nonce.expect("a nonce has 24 bytes");
        #[expect(clippy::expect_used, reason = "all lengths are fixed, and right")]
        XChaCha20Poly1305::seal(&key, &nonce, secret, Some(place.as_bytes()), out).expect("the buffer is long enough");
        Ok(wrapped)
    }

    /// Unwraps it; `None` if it was wrapped by another secret, or for another place.
    pub(super) fn unwrap(&self, wrapped: &[u8], place: &str) -> Option<[u8; 32]> {
        let (nonce, wrapped) = wrapped.split_at_checked(NONCE_BYTES)?;
        let mut secret = [0; 32];
        if wrapped.len() != secret.len() + TAG_BYTES {
            return None;
        }
        let nonce = Nonce::try_from(nonce).ok()?;
        XChaCha20Poly1305::open(&self.key(), &nonce, wrapped, Some(place.as_bytes()), &mut secret).ok()?;
        Some(secret)
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

    fn key(&self) -> SecretKey {
        #[expect(clippy::expect_used, reason = "all lengths are fixed, and right")]
        SecretKey::try_from(self.0.as_slice()).expect("a key has 32 bytes")
    }
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
    fn a_secret_that_could_be_guessed_is_none() {
        assert!(DeploymentSecret::new("too short").is_none());
        assert!(DeploymentSecret::new(&" ".repeat(40)).is_none());
        assert!(!format!("{:?}", deployment(ONE)).contains("0123"));
    }
}
