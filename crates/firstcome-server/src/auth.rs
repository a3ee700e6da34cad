//! Authenticates callers: keys, scopes, and the checks of development mode.

use crate::cookie::Transport;
use crate::error::{Code, Problem};
use axum::http::{HeaderMap, HeaderName, header};
use firstcome::core::id::RoomName;
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
    known.iter().fold(
        None,
        |found, (scope, known)| {
            if bool::from(known.0.ct_eq(&digest.0)) { found.max(Some(*scope)) } else { found }
        },
    )
}

impl Keys {
    /// Returns the scope of a key that an operator has typed in. `None` for an unknown key, and in development mode,
    /// which has no keys.
    pub(crate) fn scope_of(&self, key: &str) -> Option<(Scope, KeyDigest)> {
        let Self::Known(known) = self else { return None };
        let digest = KeyDigest::of(key);
        known_scope(known, &digest).map(|scope| (scope, digest))
    }

    /// Adds keys that may only view. Has no effect in development mode, which lets every call in.
    pub fn with_view_keys(mut self, keys: impl IntoIterator<Item = KeyDigest>) -> Self {
        if let Self::Known(known) = &mut self {
            known.extend(keys.into_iter().map(|key| (Scope::View, key)));
        }
        self
    }

    /// Identifies the caller. Refuses an unknown key, even if the call needs none.
    pub fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Ok(match self {
                Self::Dev => Caller { scope: Scope::Admin, id: *b"development-mode" },
                Self::Known(_) => Caller::PUBLIC,
            });
        };
        if values.next().is_some() {
            return Err(Code::Unauthorized.into());
        }
        let text = value.to_str().unwrap_or_default();
        let key = match text.split_once(' ') {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
            _ => return Err(Code::Unauthorized.into()),
        };
        let Self::Known(known) = self else { return Err(Code::Unauthorized.into()) };
        let digest = KeyDigest::of(key);
        let found = known_scope(known, &digest);
        let mut id = [0; 16];
        id.copy_from_slice(&digest.0[..16]);
        found.map(|scope| Caller { scope, id }).ok_or_else(|| Code::Unauthorized.into())
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
