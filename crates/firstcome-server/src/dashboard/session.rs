//! Sessions of operators. No server keeps them: the cookie holds one, signed with a key that is derived from the API
//! key that the operator typed in.
//!
//! # What it promises
//! - Every node that knows the API key accepts the session, and a restart ends none. An API key that is changed, expired or
//!   revoked ends all of its sessions.
//! - A session ends an hour after its last page, and twelve hours after the login.
//! - The role is that of the API key whose signature fits; the cookie cannot name one.
//!
//! A session here says nothing of logouts: [`super::logout`] remembers them.

use crate::auth::{KeyDigest, Scope};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write;

/// How long a session lasts after its last page.
pub(super) const IDLE_S: i64 = 3_600;
/// How long a session lasts after the login.
pub(super) const LIFE_S: i64 = 12 * 3_600;
/// The letters of a session's name, which logs show.
const ID_BYTES: usize = 6;

/// The most characters of an operator's name.
const NAME_CHARS_MAX: usize = 40;

/// Whether a text can be the name of an operator. No name is one too.
pub(super) fn is_name(text: &str) -> bool {
    text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control)
}

/// What an operator may do on the dashboard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    View,
    Operate,
}

impl Role {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Operate => "operate",
        }
    }

    /// The role that a key of this scope gives. A service key gives none.
    pub(super) const fn of(scope: Scope) -> Option<Self> {
        match scope {
            Scope::Admin => Some(Self::Operate),
            Scope::View => Some(Self::View),
            Scope::Public | Scope::Service => None,
        }
    }
}

/// The key that signs the sessions of one API key, and their forms.
#[derive(Clone)]
pub(super) struct SessionKey([u8; 32]);

impl SessionKey {
    /// Derives the key from the digest of an API key.
    pub(super) fn of(digest: &KeyDigest) -> Self {
        Self::derived(digest.as_bytes())
    }

    /// Derives a key from a secret.
    pub(super) fn derived(secret: &[u8; 32]) -> Self {
        Self(mac(secret, &["firstcome dashboard 1"]))
    }
}

fn mac(key: &[u8; 32], parts: &[&str]) -> [u8; 32] {
    #[expect(clippy::expect_used, reason = "true of HMAC by its definition")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        // With its length before it, so that no two lists of parts are one text.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

fn unhex(text: &str) -> Option<String> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())?;
    String::from_utf8(bytes).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compares in constant time.
fn is_same(one: &str, other: &str) -> bool {
    subtle::ConstantTimeEq::ct_eq(one.as_bytes(), other.as_bytes()).into()
}

/// A session of an operator.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) role: Role,
    /// Its name, which is no secret.
    pub(crate) id: String,
    /// As the operator calls themselves; may be empty.
    pub(crate) operator: String,
    began_s: i64,
    until_s: i64,
    key: SessionKey,
}

impl Session {
    /// Begins a session. `random` makes its name.
    pub(super) fn begin(role: Role, operator: &str, key: SessionKey, random: &[u8; 32], now_s: i64) -> Self {
        let (id, operator) = (hex(&random[..ID_BYTES]), operator.to_owned());
        Self { role, id, operator, began_s: now_s, until_s: now_s + IDLE_S, key }
    }

    /// The session of all operators in development mode, which asks for no key.
    pub(super) fn development(secret: &[u8; 32]) -> Self {
        let key = SessionKey::derived(secret);
        Self {
            role: Role::Operate,
            id: "development".into(),
            operator: String::new(),
            began_s: 0,
            until_s: i64::MAX,
            key,
        }
    }

    /// Reads a session from its cookie. `None` if it is over, or if no known key has signed it.
    pub(super) fn read(known: &[(Scope, KeyDigest)], cookie: &str, now_s: i64) -> Option<Self> {
        let mut parts = cookie.split('.');
        let (began, until, id) = (parts.next()?, parts.next()?, parts.next()?);
        let (name, sign) = (parts.next()?, parts.next()?);
        if parts.next().is_some() || id.len() != 2 * ID_BYTES {
            return None;
        }
        let (began_s, until_s) = (began.parse::<i64>().ok()?, until.parse::<i64>().ok()?);
        if until_s <= now_s {
            return None;
        }
        known.iter().find_map(|(scope, digest)| {
            let (role, key) = (Role::of(*scope)?, SessionKey::of(digest));
            let wanted = hex(&mac(&key.0, &["session", began, until, id, name]));
            let operator = unhex(name).filter(|_| is_same(&wanted, sign))?;
            Some(Self { role, id: id.to_owned(), operator, began_s, until_s, key })
        })
    }

    /// Writes the session into its cookie.
    pub(super) fn cookie(&self) -> String {
        let (began, until) = (self.began_s.to_string(), self.until_s.to_string());
        let name = hex(self.operator.as_bytes());
        let sign = hex(&mac(&self.key.0, &["session", &began, &until, &self.id, &name]));
        format!("{began}.{until}.{}.{name}.{sign}", self.id)
    }

    /// Lets the session last longer. `None` if it lasts long enough, or has had its whole life.
    pub(super) fn renewed(&self, now_s: i64) -> Option<Self> {
        let until_s = (now_s + IDLE_S).min(self.began_s.saturating_add(LIFE_S));
        let is_longer = self.until_s.saturating_add(IDLE_S / 12) <= until_s;
        is_longer.then(|| Self {
            role: self.role,
            id: self.id.clone(),
            operator: self.operator.clone(),
            began_s: self.began_s,
            until_s,
            key: self.key.clone(),
        })
    }

    /// How long the session lasts from now on, in seconds.
    pub(crate) fn left_s(&self, now_s: i64) -> u64 {
        self.until_s.saturating_sub(now_s).try_into().unwrap_or(0)
    }

    /// Signs a request for what a second operator has to confirm.
    pub(super) fn request(&self, wanted: &str, now_s: i64) -> String {
        let (at, name) = (now_s.to_string(), hex(self.operator.as_bytes()));
        let sign = hex(&mac(&self.key.0, &["request", &at, &self.id, &name, wanted]));
        format!("{at}.{}.{name}.{sign}", self.id)
    }

    /// The token of the form that does this: a form of another session, or of another action, has another one.
    pub(super) fn token(&self, action: &str) -> String {
        hex(&mac(&self.key.0, &["form", &self.id, action])[..16])
    }

    pub(super) fn accepts(&self, action: &str, token: &str) -> bool {
        is_same(&self.token(action), token)
    }
}

/// What one operator has requested, and another one confirms.
pub(super) struct Requested {
    pub(super) operator: String,
    id: String,
}

impl Requested {
    /// Reads a request that a session of an operator of this service has signed. `None` if it is about something else, or is
    /// older than `within_s`.
    pub(super) fn read(
        known: &[(Scope, KeyDigest)],
        text: &str,
        wanted: &str,
        within_s: i64,
        now_s: i64,
    ) -> Option<Self> {
        let mut parts = text.split('.');
        let (at, id, name, sign) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let at_s = at.parse::<i64>().ok()?;
        let is_ours = |(scope, digest): &(Scope, KeyDigest)| {
            let made = hex(&mac(&SessionKey::of(digest).0, &["request", at, id, name, wanted]));
            Role::of(*scope) == Some(Role::Operate) && is_same(&made, sign)
        };
        let lives = at_s <= now_s && now_s < at_s.checked_add(within_s)? && known.iter().any(is_ours);
        Some(Self { operator: unhex(name).filter(|_| lives)?, id: id.to_owned() })
    }

    /// Whether the operator of this session made the request, as far as names and sessions tell. A session without a name is
    /// of no other operator.
    pub(super) fn is_by(&self, session: &Session) -> bool {
        let is_same_name = self.operator.to_lowercase() == session.operator.to_lowercase();
        self.id == session.id || is_same_name || session.operator.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_893_456_000;

    fn keys() -> Vec<(Scope, KeyDigest)> {
        let key = |scope, key| (scope, KeyDigest::of(key));
        vec![key(Scope::Service, "service"), key(Scope::Admin, "admin"), key(Scope::View, "view")]
    }

    fn session(role: Role, key: &str) -> Session {
        Session::begin(role, "ann", SessionKey::of(&KeyDigest::of(key)), &[7; 32], NOW_S)
    }

    fn role(cookie: &str, now_s: i64) -> Option<Role> {
        Session::read(&keys(), cookie, now_s).map(|session| session.role)
    }

    #[test]
    fn the_role_is_that_of_the_key() {
        assert_eq!(role(&session(Role::Operate, "admin").cookie(), NOW_S), Some(Role::Operate));
        // What a forger calls itself does not count.
        assert_eq!(role(&session(Role::Operate, "view").cookie(), NOW_S), Some(Role::View));
        assert_eq!(role(&session(Role::Operate, "service").cookie(), NOW_S), None);
        assert_eq!(role(&session(Role::Operate, "stranger").cookie(), NOW_S), None);
        assert!(Session::read(&[], &session(Role::Operate, "admin").cookie(), NOW_S).is_none());
    }

    #[test]
    fn no_altered_session_is_one() {
        let cookie = session(Role::Operate, "admin").cookie();
        for at in 0..cookie.len() {
            let mut altered = cookie.clone().into_bytes();
            altered[at] = if altered[at] == b'1' { b'2' } else { b'1' };
            assert_eq!(role(&String::from_utf8(altered).unwrap(), NOW_S), None, "at {at}");
        }
        for text in ["", ".", "...", &cookie[1..], &cookie[..cookie.len() - 1], &format!("{cookie}.x")] {
            assert_eq!(role(text, NOW_S), None, "{text:?}");
        }
    }

    #[test]
    fn a_session_ends_an_hour_after_its_last_page_and_twelve_after_the_login() {
        let mut session = session(Role::Operate, "admin");
        assert_eq!(role(&session.cookie(), NOW_S + IDLE_S), None);
        assert!(session.renewed(NOW_S + 60).is_none(), "a cookie is not written for each page");
        let mut now_s = NOW_S;
        while let Some(longer) = session.renewed(now_s + IDLE_S / 2) {
            now_s += IDLE_S / 2;
            assert_eq!(role(&longer.cookie(), now_s), Some(Role::Operate));
            session = longer;
        }
        assert_eq!(role(&session.cookie(), NOW_S + LIFE_S - 1), Some(Role::Operate));
        assert_eq!(role(&session.cookie(), NOW_S + LIFE_S), None);
    }

    #[test]
    fn a_token_is_of_one_session_and_one_action() {
        let one = session(Role::Operate, "admin");
        let other = Session::begin(Role::Operate, "ann", SessionKey::of(&KeyDigest::of("admin")), &[8; 32], NOW_S);
        let token = one.token("pause sale");
        assert!(one.accepts("pause sale", &token));
        assert!(
            !one.accepts("pause shop", &token)
                && !other.accepts("pause sale", &token)
                && !one.accepts("pause sale", "")
        );
    }

    #[test]
    fn a_request_is_confirmed_by_another_operator_in_time() {
        let begin = |name: &str, random| {
            Session::begin(Role::Operate, name, SessionKey::of(&KeyDigest::of("admin")), &[random; 32], NOW_S)
        };
        let (ann, bob) = (begin("ann", 1), begin("bob", 2));
        let text = ann.request("rooms/sale/close", NOW_S);
        let read = |text: &str, wanted, now_s| Requested::read(&keys(), text, wanted, 600, now_s);
        let requested = read(&text, "rooms/sale/close", NOW_S + 599).unwrap();
        assert_eq!(requested.operator, "ann");
        assert!(!requested.is_by(&bob));
        for same in [&ann, &begin("Ann", 3), &begin("", 4), &begin("bob", 1)] {
            assert!(requested.is_by(same), "{:?}", same.operator);
        }
        assert!(read(&text, "rooms/sale/close", NOW_S + 600).is_none());
        assert!(read(&text, "rooms/shop/close", NOW_S).is_none());
        assert!(read(&text.replacen('0', "1", 1), "rooms/sale/close", NOW_S + 1).is_none());
        let viewer = Session::begin(Role::Operate, "viv", SessionKey::of(&KeyDigest::of("view")), &[5; 32], NOW_S);
        let forged = viewer.request("rooms/sale/close", NOW_S);
        assert!(read(&forged, "rooms/sale/close", NOW_S).is_none(), "one who may only view requests nothing");
    }
}
