//! Seals: bytes with a MAC over them, which only this store can make.
//!
//! A sealed text is `head ‖ MAC ‖ carried` in base64url without padding. The MAC is the first 128 bits of HMAC-SHA-256
//! over `head ‖ carried ‖ implied`. The implied bytes are not in the text, and a reader must know them to open it. Each
//! kind of text has its own domain and length of head, and either carries or implies something. So the same bytes never
//! have two readings.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// The bytes of the MAC.
pub(crate) const MAC_BYTES: usize = 16;

/// Makes and opens texts of one kind.
#[derive(Clone)]
pub(crate) struct Seal {
    mac: Hmac<Sha256>,
}

impl Seal {
    /// Makes a seal. `domain` separates its MACs from all others that are made with the same key.
    pub(crate) fn new(key: &[u8; 32], domain: &[u8]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(domain);
        Self { mac }
    }

    fn mac(&self, head: &[u8], carried: &[u8], implied: &[u8]) -> [u8; MAC_BYTES] {
        let mut mac = self.mac.clone();
        mac.update(head);
        mac.update(carried);
        mac.update(implied);
        let digest = mac.finalize().into_bytes();
        let mut first = [0; MAC_BYTES];
        first.copy_from_slice(&digest[..MAC_BYTES]);
        first
    }

    /// Returns the whole MAC over the domain alone: a key for another purpose.
    pub(crate) fn derived(&self) -> [u8; 32] {
        self.mac.clone().finalize().into_bytes().into()
    }

    /// Makes a sealed text.
    pub(crate) fn seal(&self, head: &[u8], carried: &[u8], implied: &[u8]) -> String {
        let bytes = [head, &self.mac(head, carried, implied), carried].concat();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the head of a text; `None` if this key did not seal it. Takes the same time for every wrong text of its
    /// length. `ROOM` is [`room`] of the longest text.
    pub(crate) fn open<const HEAD: usize, const ROOM: usize>(&self, text: &str, implied: &[u8]) -> Option<[u8; HEAD]> {
        if chars(ROOM) < text.len() {
            return None;
        }
        let mut bytes = [0; ROOM];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        let (head, rest) = bytes[..length].split_first_chunk::<HEAD>()?;
        let (mac, carried) = rest.split_first_chunk::<MAC_BYTES>()?;
        bool::from(self.mac(head, carried, implied).ct_eq(mac)).then_some(*head)
    }

    /// Returns the carried bytes after a head of `HEAD` bytes. Does not verify the MAC: see [`Self::open`].
    pub(crate) fn carried<const HEAD: usize>(&self, text: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.get(HEAD + MAC_BYTES..).map(<[u8]>::to_vec)
    }
}

/// The number of base64url characters for this many bytes.
pub(crate) const fn chars(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

/// The buffer size for decoding this many bytes, which come in groups of three.
pub(crate) const fn room(bytes: usize) -> usize {
    bytes.next_multiple_of(3)
}
