//! The arrival of a visitor with a hand-off code in the address: the layer redeems the code, keeps the pass in a cookie, and
//! sends the browser to the same address without the code.

use super::{HandoffPass, PassVerifier};
use crate::error::RoomError;
use firstcome_store::core::room::RenewalKey;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{Clock, SystemClock, draw_id};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};

/// The parameter of the address with the code.
const PARAMETER: &str = "firstcome_handoff=";
/// The cookie with the key of this browser for its code, in case that the answer is lost.
const KEY_COOKIE: &str = "firstcome_handoff_key=";

/// A request that brings a code, and where its browser goes with it.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    code: String,
    /// The address without the code.
    address: String,
    key: Option<u128>,
    is_tls: bool,
}

/// What an arrival led to.
#[derive(Clone, Copy)]
pub(super) enum Arrived {
    /// The browser goes on, with the pass or without one.
    GoOn,
    /// Unknown: the browser loads the address again.
    Unknown,
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).find_map(|one| one.trim().strip_prefix(name))
}

impl Arrival {
    /// Returns the arrival that a request is, if it is one: a GET with a code.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        let uri = request.uri();
        let query = uri.query().filter(|_| request.method() == Method::GET)?;
        let code = query.split('&').find_map(|pair| pair.strip_prefix(PARAMETER))?.to_owned();
        let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with(PARAMETER)).collect();
        let path = uri.path();
        // The browser takes two slashes for the name of a host.
        let path = if path.starts_with('/') && !path.starts_with("//") && !path.contains('\\') { path } else { "/" };
        let mark = if kept.is_empty() { "" } else { "?" };
        let headers = request.headers();
        let is_tls = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
            || uri.scheme_str() == Some("https");
        Some(Self {
            code,
            address: format!("{path}{mark}{}", kept.join("&")),
            key: cookie(headers, KEY_COOKIE).and_then(|key| u128::from_str_radix(key, 16).ok()),
            is_tls,
        })
    }

    /// Answers a browser that goes on without a pass of this code.
    pub(super) fn go_on<R: From<&'static str>>(&self) -> Response<R> {
        self.response(Arrived::GoOn, &[])
    }

    /// Redeems the code.
    pub(super) async fn redeem<R: From<&'static str>>(self, passes: PassVerifier) -> Response<R> {
        let key = match self.key {
            Some(key) => key,
            None => match (draw_id(), draw_id()) {
                (Ok(high), Ok(low)) => u128::from(high) << 64 | u128::from(low),
                _ => return self.response(Arrived::Unknown, &[]),
            },
        };
        match passes.redeem_handoff(&self.code, RenewalKey::new(key)).await {
            Ok(Some(pass)) => {
                let lives_s = lives_s(&pass, SystemClock::default().now());
                let cookies = [self.cookie("firstcome_pass=", &pass.text, lives_s), self.cookie(KEY_COOKIE, "", 0)];
                self.response(Arrived::GoOn, &cookies)
            }
            // The code was used, or it is over: without a pass the browser is led to the page of the room.
            Ok(None) | Err(RoomError::Refused(_) | RoomError::Input(_)) => self.go_on(),
            Err(_) => {
                let again = self.cookie(KEY_COOKIE, &format!("{key:032x}"), 60);
                self.response(Arrived::Unknown, &[again])
            }
        }
    }

    fn cookie(&self, name: &str, value: &str, lives_s: u64) -> String {
        let secure = if self.is_tls { "; Secure" } else { "" };
        format!("{name}{value}; Path=/; Max-Age={lives_s}; HttpOnly; SameSite=Lax{secure}")
    }

    fn response<R: From<&'static str>>(&self, arrived: Arrived, cookies: &[String]) -> Response<R> {
        let (status, body) = match arrived {
            Arrived::GoOn => (StatusCode::SEE_OTHER, ""),
            Arrived::Unknown => (StatusCode::SERVICE_UNAVAILABLE, super::layer::AWAY),
        };
        let mut response = Response::new(R::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        match arrived {
            Arrived::GoOn => {
                // The parts of a `Uri` are always a valid value.
                let address = HeaderValue::try_from(&self.address).unwrap_or(HeaderValue::from_static("/"));
                headers.insert(header::LOCATION, address);
            }
            Arrived::Unknown => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
                // The code lives a minute: the browser comes again in time.
                headers.insert(header::RETRY_AFTER, super::layer::RETRY_AFTER);
                headers.insert(header::REFRESH, super::layer::RETRY_AFTER);
            }
        }
        for cookie in cookies {
            if let Ok(value) = HeaderValue::try_from(cookie) {
                headers.append(header::SET_COOKIE, value);
            }
        }
        response
    }
}

fn lives_s(pass: &HandoffPass, now: Timestamp) -> u64 {
    u64::try_from((pass.expires_at.as_us() - now.as_us()) / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, uri: &str) -> Option<Arrival> {
        let request = Request::builder().method(method).uri(uri).header("cookie", "a=b; firstcome_handoff_key=0f");
        Arrival::of(&request.body(()).unwrap())
    }

    #[test]
    fn the_code_leaves_the_address_and_the_rest_stays() {
        for (uri, code, address) in [
            ("/basket?firstcome_handoff=C", "C", "/basket"),
            ("/basket?a=b&firstcome_handoff=C&c=%20d", "C", "/basket?a=b&c=%20d"),
            ("http://shop/?firstcome_handoff=C&firstcome_handoff=D", "C", "/"),
            ("http://shop//evil.example/?firstcome_handoff=C&a", "C", "/?a"),
            ("/\\evil.example/?firstcome_handoff=C", "C", "/"),
        ] {
            let arrival = of(Method::GET, uri).expect("an arrival");
            assert_eq!(
                (arrival.code.as_str(), arrival.address.as_str(), arrival.key),
                (code, address, Some(15)),
                "{uri}"
            );
        }
        for (method, uri) in [
            (Method::GET, "/?a=firstcome_handoff=C"),
            (Method::GET, "/firstcome_handoff=C"),
            (Method::POST, "/?firstcome_handoff=C"),
            (Method::HEAD, "/?firstcome_handoff=C"),
        ] {
            assert!(of(method, uri).is_none(), "{uri}");
        }
    }
}
