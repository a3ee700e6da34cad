//! Reads and writes cookies.

use axum::http::{HeaderMap, HeaderValue, header};

/// The cookie that carries a pass.
pub(crate) const PASS: &str = "firstcome_pass";

/// Returns the first cookie of a name that is not empty. Skips cookies of other applications, which may hold any bytes.
pub(crate) fn read<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
    let mut named = pairs.filter_map(|pair| {
        let (given, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
        (given.trim() == name).then(|| value.trim())
    });
    named.next().filter(|value| !value.is_empty())
}

/// How a visitor reached the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Plain,
    /// A cookie is then sent over TLS only.
    Tls,
}

impl Transport {
    /// The scheme of addresses.
    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::Tls => "https",
        }
    }
}

/// Writes a cookie that scripts cannot read. A browser sends it with links from other sites, and not with their forms.
/// `None` if the value has characters that no cookie may have. A `max_age_s` of 0 removes the cookie.
pub(crate) fn write(name: &str, value: &str, max_age_s: u64, transport: Transport) -> Option<HeaderValue> {
    write_for(name, value, max_age_s, transport, "/", "Lax")
}

/// Writes a cookie for these paths alone, as [`write()`] does, which a browser sends with no request of another site.
pub(crate) fn write_strict(
    name: &str,
    value: &str,
    max_age_s: u64,
    transport: Transport,
    path: &str,
) -> Option<HeaderValue> {
    write_for(name, value, max_age_s, transport, path, "Strict")
}

fn write_for(
    name: &str,
    value: &str,
    max_age_s: u64,
    transport: Transport,
    path: &str,
    same_site: &str,
) -> Option<HeaderValue> {
    let is_octet = |byte: u8| matches!(byte, 0x21 | 0x23..=0x2b | 0x2d..=0x3a | 0x3c..=0x5b | 0x5d..=0x7e);
    if !value.bytes().all(is_octet) {
        return None;
    }
    let secure = if transport == Transport::Tls { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path={path}; Max-Age={max_age_s}; HttpOnly; SameSite={same_site}{secure}");
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_written_for_servers_alone() {
        let written = |value, transport| write("place", value, 60, transport);
        let text = "place=2.Wf~3; Path=/; Max-Age=60; HttpOnly; SameSite=Lax";
        assert_eq!(written("2.Wf~3", Transport::Plain).unwrap(), text);
        assert_eq!(written("2.Wf~3", Transport::Tls).unwrap(), format!("{text}; Secure"));
        for value in ["a b", "a;b", "a,b", "a\"b", "a\\b", "a\r\nb", "안"] {
            assert_eq!(written(value, Transport::Plain), None, "{value:?}");
        }
    }
}
