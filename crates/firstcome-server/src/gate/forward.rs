//! What a proxy changes in requests and answers (RFC 9110, section 7.6). Pure.

use crate::address::{FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, Proxies};
use crate::cookie::Transport;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use std::borrow::Cow;
use std::net::IpAddr;

const VIA: HeaderValue = HeaderValue::from_static("1.1 firstcome");
/// Headers that are about one connection, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Cookies and headers of the gate begin with this. A visitor must not be able to write them for the site.
const OWN_COOKIES: &str = "firstcome_";
const OWN_HEADERS: &str = "x-firstcome-";

/// Removes what is about one connection. Returns the protocol that the sender wants to change to, or changes to, if it is
/// WebSocket: in another one, such as HTTP/2, a visitor could send requests that the gate does not see.
pub(super) fn strip(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let named: Vec<HeaderName> =
        lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    let is_socket = |protocol: &&HeaderValue| protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    let upgrade = headers.get(header::UPGRADE).filter(|_| named.contains(&header::UPGRADE)).filter(is_socket).cloned();
    // Who sends a request must not be able to hide what a proxy has said of it.
    let is_kept = |name: &&HeaderName| **name == header::HOST || is_of_proxies(name);
    for name in named.iter().filter(|name| !is_kept(name)).chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    upgrade
}

/// A name as sites read it that know headers by names of variables: `X_Firstcome_User` and `X.Firstcome.User` are
/// `X-Firstcome-User` there.
fn spelt(name: &HeaderName) -> Cow<'_, str> {
    let (name, is_other) = (name.as_str(), |letter: char| letter != '-' && !letter.is_ascii_alphanumeric());
    if name.contains(is_other) { name.replace(is_other, "-").into() } else { name.into() }
}

/// Leaves one `Host`: that of the target if it names one (RFC 9112, section 3.2.2), else the first. Of several, a site may
/// read another than the gate tells it in `X-Forwarded-Host`.
pub(super) fn keep_one_host(headers: &mut HeaderMap, target: Option<&Authority>) {
    let of_target = target.and_then(|target| {
        let target = target.as_str();
        HeaderValue::try_from(target.rsplit_once('@').map_or(target, |(_, host)| host)).ok()
    });
    if let Some(host) = of_target.or_else(|| headers.get(header::HOST).cloned()) {
        headers.insert(header::HOST, host);
    }
}

/// Whether a header says what a proxy knows of its client.
fn is_of_proxies(name: &HeaderName) -> bool {
    let name = spelt(name);
    name.starts_with("x-forwarded-") || matches!(&*name, "forwarded" | "x-real-ip")
}

/// Whether no site may get a header from a visitor: the gate writes it, it names another path than the judged one, or a site
/// could read it as another length of the body, or another host, than the gate does (`Content_Length`).
fn is_barred(name: &HeaderName) -> bool {
    let read = spelt(name);
    let is_disguised = *read != *name.as_str()
        && (matches!(&*read, "content-length" | "host") || HOP_BY_HOP.iter().any(|hop| *read == *hop.as_str()));
    is_disguised
        || read.starts_with(OWN_HEADERS)
        || matches!(&*read, "x-original-url" | "x-rewrite-url" | "x-forwarded-uri")
}

/// Says again that the connection changes its protocol.
pub(super) fn keep_upgrade(headers: &mut HeaderMap, upgrade: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, upgrade);
}

/// Removes the cookies of the gate: the site needs neither ticket nor pass, and its log must not have them.
fn strip_cookies(headers: &mut HeaderMap) {
    let lines: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    let is_own = |pair: &[u8]| pair.trim_ascii_start().starts_with(OWN_COOKIES.as_bytes());
    if !lines.iter().any(|line| line.as_bytes().split(|&byte| byte == b';').any(is_own)) {
        return;
    }
    headers.remove(header::COOKIE);
    for line in lines {
        let pairs = line.as_bytes().split(|&byte| byte == b';').filter(|pair| !is_own(pair));
        let kept = pairs.map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b"; "[..]);
        if let Some(value) = HeaderValue::from_bytes(&kept).ok().filter(|value| !value.is_empty()) {
            headers.append(header::COOKIE, value);
        }
    }
}

/// Makes the headers that the site receives. Believes what a trusted proxy says of its client, and no other peer.
pub(super) fn to_site(
    headers: &mut HeaderMap,
    peer: IpAddr,
    transport: Transport,
    proxies: &Proxies,
) -> Option<HeaderValue> {
    let upgrade = strip(headers);
    strip_cookies(headers);
    let is_trusted = proxies.trusts(peer);
    let is_removed = |name: &&HeaderName| is_barred(name) || !is_trusted && is_of_proxies(name);
    let removed: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    for name in removed.iter().chain([&header::EXPECT]) {
        headers.remove(name);
    }
    if let Ok(value) = HeaderValue::try_from(peer.to_string()) {
        headers.append(FORWARDED_FOR, value);
    }
    if let Some(host) = headers.get(header::HOST).filter(|_| !headers.contains_key(FORWARDED_HOST)).cloned() {
        headers.insert(FORWARDED_HOST, host);
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static(transport.scheme()));
    headers.append(header::VIA, VIA);
    upgrade
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |&(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in lines.iter().map(line) {
            headers.append(name, value);
        }
        headers
    }

    fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    fn peer() -> IpAddr {
        "192.0.2.7".parse().unwrap()
    }

    #[test]
    fn what_is_about_one_connection_goes_no_further() {
        let mut headers = map(&[
            ("connection", "keep-alive, x-hop"),
            ("connection", "close"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ]);
        assert_eq!(strip(&mut headers), None, "no upgrade without the connection's word");
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        let mut headers = map(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        let upgrade = strip(&mut headers).unwrap();
        assert!(headers.is_empty());
        let mut other = map(&[("connection", "upgrade, http2-settings"), ("upgrade", "h2c")]);
        assert_eq!(strip(&mut other), None, "in another protocol the gate sees no requests");
        keep_upgrade(&mut headers, upgrade);
        assert_eq!(
            (all(&headers, "connection"), all(&headers, "upgrade")),
            (vec!["upgrade".into()], vec!["websocket".into()])
        );
    }

    #[test]
    fn the_site_sees_neither_ticket_nor_pass_nor_forged_words_of_the_gate() {
        let mut headers = map(&[
            ("cookie", "theme=dark; firstcome_pass=v4.x; basket=7"),
            ("cookie", "firstcome_ticket_sale=2.A~3"),
            ("x-firstcome-pass", "v4.x"),
            ("x-firstcome-number", "1"),
            ("x-forwarded-uri", "/y"),
            ("expect", "100-continue"),
            ("x_firstcome_user", "admin"),
            ("x_forwarded_for", "10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
            ("x-rewrite-url", "/checkout"),
            ("x-original-url", "/checkout"),
            ("x.firstcome.user", "admin"),
            ("x~firstcome_admission", "1"),
            ("content_length", "50"),
            ("transfer_encoding", "chunked"),
        ]);
        to_site(&mut headers, peer(), Transport::Plain, &Proxies::default());
        assert_eq!(all(&headers, "cookie"), ["theme=dark; basket=7"]);
        for name in [
            "x_firstcome_user",
            "x_forwarded_for",
            "x-real-ip",
            "x-rewrite-url",
            "x-original-url",
            "x.firstcome.user",
            "x~firstcome_admission",
            "content_length",
            "transfer_encoding",
        ] {
            assert!(!headers.contains_key(name), "{name}");
        }
        for name in ["x-firstcome-pass", "x-firstcome-number", "x-forwarded-uri", "expect"] {
            assert!(!headers.contains_key(name), "{name}");
        }
        let mut untouched = map(&[("cookie", "a=\"b c\";d")]);
        to_site(&mut untouched, peer(), Transport::Plain, &Proxies::default());
        assert_eq!(all(&untouched, "cookie"), ["a=\"b c\";d"]);
    }

    #[test]
    fn a_site_gets_one_host_that_of_the_target_first() {
        let lines = [("host", "one.example"), ("host", "two.example")];
        for (target, kept) in [(None, "one.example"), (Some("a:b@three.example:8000"), "three.example:8000")] {
            let (mut headers, target) = (map(&lines), target.map(|text: &str| text.parse().unwrap()));
            keep_one_host(&mut headers, target.as_ref());
            assert_eq!(all(&headers, "host"), [kept]);
        }
        let mut none = HeaderMap::new();
        keep_one_host(&mut none, None);
        assert!(none.is_empty());
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let lines = [
            ("host", "shop.example"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "www.shop.example"),
            ("forwarded", "for=203.0.113.9"),
        ];
        let mut headers = map(&lines);
        to_site(&mut headers, peer(), Transport::Plain, &Proxies::default());
        let seen = |headers: &HeaderMap| {
            ["for", "proto", "host"].map(|name| all(headers, &format!("x-forwarded-{name}")).join(", "))
        };
        assert_eq!(seen(&headers), ["192.0.2.7", "http", "shop.example"]);
        assert!(!headers.contains_key("forwarded"));
        let mut headers = map(&lines);
        headers.remove("x-forwarded-proto");
        to_site(&mut headers, peer(), Transport::Tls, &Proxies::default());
        assert_eq!(seen(&headers), ["192.0.2.7", "https", "shop.example"]);
        let mut headers = map(&lines);
        to_site(&mut headers, peer(), Transport::Plain, &Proxies::new(vec!["192.0.2.0/24".parse().unwrap()]));
        assert_eq!(seen(&headers), ["203.0.113.9, 192.0.2.7", "https", "www.shop.example"]);
        assert_eq!(all(&headers, "via"), ["1.1 firstcome"]);
        // A visitor behind that proxy names its words as those of the connection.
        let mut headers = map(&lines);
        headers.insert("connection", "x-forwarded-for, x-forwarded-proto, host, x-real-ip".parse().unwrap());
        to_site(
            &mut headers,
            "2001:db8::7".parse().unwrap(),
            Transport::Tls,
            &Proxies::new(vec!["2001:db8::/64".parse().unwrap()]),
        );
        assert_eq!(seen(&headers), ["203.0.113.9, 2001:db8::7", "https", "www.shop.example"]);
        assert_eq!(all(&headers, "host"), ["shop.example"]);
    }
}
