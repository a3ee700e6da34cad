//! Authenticates callers: keys, scopes, and the checks of development mode.

use crate::cookie::Transport;
use crate::error::{Code, Problem};
use axum::http::{HeaderMap, HeaderName, header};
use firstcome::core::api_key::{ApiKey, KeyOrigin, KeyState, OtherAdmins};
pub use firstcome::core::api_key::{KeyDigest, KeyScope};
use firstcome::core::id::RoomName;
use firstcome::core::time::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The fewest characters of a key: 22 of the base64url alphabet hold 128 bits.
pub const KEY_CHARS_MIN: usize = 22;

/// What a caller may do. Each scope includes those before it, but a key to view acts for no user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// Any client, without a key.
    Public,
    /// An operator who looks: reads what [`Scope::Admin`] reads, voucher codes excepted, and changes nothing.
    View,
    /// A back end, which acts for any user.
    Service,
    /// The operator.
    Admin,
}

impl From<KeyScope> for Scope {
    fn from(scope: KeyScope) -> Self {
        match scope {
            KeyScope::View => Self::View,
            KeyScope::Service => Self::Service,
            KeyScope::Admin => Self::Admin,
        }
    }
}

const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns the key of this scope that random bytes make: 192 bits that cannot be guessed.
pub fn key_text(scope: KeyScope, random: &[u8; 32]) -> String {
    let characters = random.iter().map(|byte| char::from(BASE64URL[usize::from(byte & 63)]));
    format!("fc_{}_{}", scope.as_str(), characters.collect::<String>())
}

/// Whether keys count that the first start has made and the store has adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstKeys {
    /// They count.
    Accepted,
    /// The configuration has keys in place of them.
    Replaced,
}

/// The keys that a service knows.
#[derive(Clone)]
pub enum Keys {
    /// Development: a call without a key acts as admin. Allowed on loopback only.
    Dev,
    /// One digest per key.
    Known(Vec<(Scope, KeyDigest)>),
}

/// The caller of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// What the caller may do.
    pub scope: Scope,
    /// The identity of the caller, which scopes idempotency keys.
    pub id: [u8; 16],
}

impl Caller {
    const PUBLIC: Self = Self { scope: Scope::Public, id: [0; 16] };

    /// Returns the caller that a pass stands for: no client without this pass can use its idempotency keys.
    pub(crate) fn of_pass(room: &RoomName, number: u32) -> Self {
        let digest = Sha256::new().chain_update(number.to_be_bytes()).chain_update(room.as_str()).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self { scope: Scope::Public, id }
    }

    /// Returns the caller if it has this scope. A caller with a key to view has all scopes here: only calls that change
    /// nothing let one come so far, see `App::reader`.
    pub fn require(self, scope: Scope) -> Result<Self, Problem> {
        match self.scope {
            Scope::View => Ok(self),
            has if scope <= has => Ok(self),
            Scope::Public => Err(Code::Unauthorized.into()),
            _ => Err(Code::Forbidden.into()),
        }
    }
}

/// Returns the scope of a key. Compares every known key in constant time: the time reveals nothing about any of them.
fn known_scope(known: &[(Scope, KeyDigest)], digest: &KeyDigest) -> Option<Scope> {
    known
        .iter()
        .fold(None, |found, (scope, known)| if is_same(known, digest) { found.max(Some(*scope)) } else { found })
}

/// Compares in constant time.
fn is_same(one: &KeyDigest, other: &KeyDigest) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Returns the scope of a stored key, if it is accepted now. `now` is asked only for a key that has an end.
pub(crate) fn stored_scope(key: &ApiKey, first_keys: FirstKeys, now: impl Fn() -> Timestamp) -> Option<Scope> {
    let is_replaced = key.origin == KeyOrigin::FirstStart && first_keys == FirstKeys::Replaced;
    let at = if key.expires_at.is_some() { now() } else { Timestamp::MIN };
    (!is_replaced && key.state(at) == KeyState::Active).then(|| key.scope.into())
}

/// Returns the caller that a stored key identifies, if it is the key of this digest and is accepted now.
pub(crate) fn stored_caller(
    key: &ApiKey,
    digest: &KeyDigest,
    first_keys: FirstKeys,
    now: impl Fn() -> Timestamp,
) -> Option<Caller> {
    let scope = stored_scope(key, first_keys, now).filter(|_| is_same(&key.digest, digest))?;
    Some(Caller { scope, id: key.caller.0 })
}

/// Returns the key that a call shows. Refuses what is no key, and two of them.
pub(crate) fn shown_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Code::Unauthorized.into());
    }
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(key.trim())),
        _ => Err(Code::Unauthorized.into()),
    }
}

impl Keys {
    /// Returns the caller that a key of the configuration identifies. `None` for an unknown key, and in development mode,
    /// which has no keys.
    pub(crate) fn caller_of(&self, digest: &KeyDigest) -> Option<Caller> {
        let Self::Known(known) = self else { return None };
        let scope = known_scope(known, digest)?;
        let mut id = [0; 16];
        id.copy_from_slice(&digest.as_bytes()[..16]);
        Some(Caller { scope, id })
    }

    /// Returns the caller of a call without a key.
    pub(crate) const fn caller_without_key(&self) -> Caller {
        match self {
            Self::Dev => Caller { scope: Scope::Admin, id: *b"development-mode" },
            Self::Known(_) => Caller::PUBLIC,
        }
    }

    /// Whether admins can call without a key of the store.
    pub(crate) fn admins(&self) -> OtherAdmins {
        match self {
            Self::Known(known) if known.iter().all(|(scope, _)| *scope != Scope::Admin) => OtherAdmins::Absent,
            _ => OtherAdmins::Present,
        }
    }

    /// Returns the keys of the configuration; none in development mode.
    pub(crate) fn known(&self) -> &[(Scope, KeyDigest)] {
        match self {
            Self::Dev => &[],
            Self::Known(known) => known,
        }
    }

    /// Adds keys that may only view. Has no effect in development mode, which lets every call in.
    pub fn with_view_keys(mut self, keys: impl IntoIterator<Item = KeyDigest>) -> Self {
        if let Self::Known(known) = &mut self {
            known.extend(keys.into_iter().map(|key| (Scope::View, key)));
        }
        self
    }
}

/// Rejects requests of other sites in development mode, which trusts every client on loopback. Any web page can send a
/// browser on this machine there. So the `Host` must be a loopback name (no DNS rebinding), and the page must be
/// served from here (no cross-site call), by the same transport.
pub(crate) fn dev_gate(headers: &HeaderMap, transport: Transport) -> Result<(), Problem> {
    let foreign = || Problem::new(Code::ForeignOrigin);
    let text = |name| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?;
        // With two values it is unclear which one counts, so neither is accepted.
        Some(value.to_str().ok().filter(|_| values.next().is_none()).unwrap_or("?"))
    };
    let host = text(header::HOST).ok_or_else(foreign)?;
    if !is_loopback(host) {
        return Err(foreign());
    }
    if let Some(origin) = text(header::ORIGIN)
        && origin.split_once("://") != Some((transport.scheme(), host))
    {
        return Err(foreign());
    }
    match text(HeaderName::from_static("sec-fetch-site")) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(foreign()),
    }
}

/// Whether a `Host` names this machine alone.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => return rest == "::1]" || rest.starts_with("::1]:"),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_let_in_by_development_mode() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.8.9.1", "[::1]", "[::1]:80"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.org", "localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "[::2]", "[::1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_scope_includes_those_before_it() {
        let caller = |scope| Caller { scope, id: [0; 16] };
        assert!(caller(Scope::Admin).require(Scope::Service).is_ok());
        assert!(caller(Scope::Admin).require(Scope::View).is_ok());
        assert_eq!(caller(Scope::Service).require(Scope::Admin).unwrap_err().code(), Code::Forbidden);
        assert_eq!(caller(Scope::Public).require(Scope::Service).unwrap_err().code(), Code::Unauthorized);
    }
}
