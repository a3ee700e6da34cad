//! Signed handles of locks, which HTTP clients keep and no client can forge.
//!
//! A handle holds the request and the fence of a hold, under a MAC over both and the name of the lock. It is valid for
//! that hold of that lock only, and the store does not need to record it.

use crate::seal::{MAC_BYTES, Seal, chars, room};
use crate::work::WorkKey;
use firstcome_core::id::LockName;
use firstcome_core::lock::{ClientId, Fence, Request};
use std::fmt;

const HEAD_BYTES: usize = 3 * 8;
const BYTES: usize = HEAD_BYTES + MAC_BYTES;
const DOMAIN: &[u8] = b"firstcome lock handle 1\0";

/// The secret that signs handles. It must live as long as the holds: without it no client can renew or release them.
#[derive(Clone)]
pub struct HandleKey {
    seal: Seal,
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(secret)")
    }
}

impl HandleKey {
    /// The number of base64url characters in each handle.
    pub const HANDLE_CHARS: usize = chars(BYTES);

    /// Makes a key from 32 secret random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { seal: Seal::new(&bytes, DOMAIN) }
    }

    /// Returns the key of the work that anonymous joins do, derived from this one. Processes with the same
    /// key of handles have the same key of work.
    pub fn work_key(&self) -> WorkKey {
        WorkKey::new(&self.seal.derived())
    }

    /// Makes the handle of a hold.
    pub fn handle(&self, name: &LockName, request: Request, fence: Fence) -> String {
        let mut head = [0; HEAD_BYTES];
        for (part, number) in head.chunks_exact_mut(8).zip([request.client.0, request.number, fence.get()]) {
            part.copy_from_slice(&number.to_be_bytes());
        }
        self.seal.seal(&head, &[], name.as_str().as_bytes())
    }

    /// Returns the request and the fence of a handle; `None` if this key made no such handle for this lock.
    pub fn read(&self, name: &LockName, handle: &str) -> Option<(Request, Fence)> {
        let head: [u8; HEAD_BYTES] = self.seal.open::<HEAD_BYTES, { room(BYTES) }>(handle, name.as_str().as_bytes())?;
        let mut numbers =
            head.chunks_exact(8).map(|part| part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        let (client, number, fence) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some((Request { client: ClientId(client), number }, Fence::new(fence)?))
    }

    /// Whether a text has the shape of a handle. Says nothing about whether it is one.
    pub fn has_handle_shape(handle: &str) -> bool {
        let base64url = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        handle.len() == Self::HANDLE_CHARS && handle.bytes().all(base64url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::parse(text).unwrap()
    }

    fn hold(client: u64, number: u64, fence: u64) -> (Request, Fence) {
        (Request { client: ClientId(client), number }, Fence::new(fence).unwrap())
    }

    #[test]
    fn a_handle_leads_back_to_its_hold_and_to_no_other_lock() {
        let key = HandleKey::new([1; 32]);
        for (request, fence) in [hold(0, 0, 1), hold(u64::MAX, u64::MAX, (1 << 53) - 1), hold(7, 8, 9)] {
            let handle = key.handle(&name("a"), request, fence);
            assert!(HandleKey::has_handle_shape(&handle), "{handle}");
            assert_eq!(key.read(&name("a"), &handle), Some((request, fence)));
            assert_eq!(key.read(&name("b"), &handle), None);
            assert_eq!(key.read(&name("A"), &handle), None);
            assert_eq!(HandleKey::new([2; 32]).read(&name("a"), &handle), None);
        }
        assert_eq!(format!("{key:?}"), "HandleKey(secret)");
    }

    #[test]
    fn no_changed_handle_is_one() {
        let key = HandleKey::new([1; 32]);
        let (request, fence) = hold(7, 8, 9);
        let handle = key.handle(&name("a"), request, fence);
        for at in 0..handle.len() {
            for other in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ ." {
                let mut bytes = handle.clone().into_bytes();
                if bytes[at] != *other {
                    bytes[at] = *other;
                    let changed = String::from_utf8(bytes).unwrap();
                    assert_eq!(key.read(&name("a"), &changed), None, "{changed}");
                }
            }
            assert_eq!(key.read(&name("a"), &handle[..at]), None);
            assert!(!HandleKey::has_handle_shape(&handle[..at]));
        }
        for wrong in
            [format!("{handle}A"), format!("{handle}="), "A".repeat(5_000), "é".repeat(27), handle.replace('A', "+")]
        {
            assert_eq!(key.read(&name("a"), &wrong), None);
            assert!(wrong == handle || !HandleKey::has_handle_shape(&wrong), "{wrong}");
        }
    }
}
