//! The way from the page of a room to a site on another host.
//!
//! No cookie of this host reaches that site. So the address of the site carries a hand-off code, which the site redeems for the pass
//! and a ticket of its own. The code counts once: an address in a history or a log opens nothing.
//!
//! # What it does not promise
//! - That the site redeems codes. One that does not shows its own page without a pass, and the place stays with this browser.

use super::view::{Phase, View};
use super::{Visit, see_other};
use crate::api::handoff::hand_off;
use crate::api::room as calls;
use crate::error::{Code, Problem};
use axum::http::{HeaderValue, header};
use axum::response::Response;

/// The name of a host in an authority, without its port. Cookies do not tell ports apart.
fn name(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

/// Whether an address leads to another host than that of the page.
fn is_elsewhere(target: &str, page_host: &str) -> bool {
    let Some((_, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !name(authority).eq_ignore_ascii_case(name(page_host))
}

/// Appends a code to the address of a site.
fn with_code(target: &str, code: &str) -> String {
    let (address, fragment) = target.split_once('#').map_or((target, None), |(address, of)| (address, Some(of)));
    let mark = if address.contains('?') { '&' } else { '?' };
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    format!("{address}{mark}firstcome_handoff={code}{fragment}")
}

/// Leads admitted visitors to a site on another host.
pub(super) struct Elsewhere {
    page_host: String,
    enter: String,
}

impl Elsewhere {
    /// `None` for a visitor who goes back to a page of this host.
    pub(super) fn of(visit: &Visit<'_>) -> Option<Self> {
        let page_host = visit.app.host(visit.parts).to_owned();
        visit.query.back.is_none().then(|| Self { page_host, enter: visit.part("/enter") })
    }

    /// Says in a view where its visitor goes, if that is another host. A visitor whose place moved there finds the way back.
    pub(super) fn lead(&self, view: &mut View, target: Option<&str>) {
        if let Some(target) = target.filter(|target| is_elsewhere(target, &self.page_host)) {
            match view.phase {
                Phase::Admitted => view.go = Some(self.enter.clone()),
                Phase::Moved => view.go = Some(target.to_owned()),
                _ => {}
            }
        }
    }
}

impl Visit<'_> {
    /// Sends an admitted visitor to the site of the room, with a hand-off code if that is another host. Writes nothing: only the
    /// site spends the code, so a prefetcher may open this address.
    pub(super) async fn enter(&self) -> Result<Response, Problem> {
        let to_page = || see_other(&self.address("", &[]));
        let room = calls::summary(self.app, &self.room).await?;
        let Some((target, kept)) = room.settings.target_url.as_deref().zip(self.kept()) else { return to_page() };
        if !is_elsewhere(target, self.app.host(self.parts)) {
            return see_other(target);
        }
        match hand_off(self.app, &self.room, kept.ticket).await {
            Ok(handoff) => {
                let mut response = see_other(&with_code(target, &handoff.code))?;
                response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
                Ok(response)
            }
            // The page says how the place stands.
            Err(problem) if matches!(problem.code(), Code::NotAdmitted | Code::TicketRenewed | Code::UnknownTicket) => {
                to_page()
            }
            Err(problem) => Err(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_port_is_the_same_host_and_another_name_is_not() {
        for (target, host) in [
            ("https://shop.example/basket", "shop.example:8443"),
            ("http://Shop.Example:3000?a=b", "shop.example"),
            ("http://[::1]:3000/", "[::1]:8080"),
            ("http://[::1]/", "[::1]"),
            ("/basket", "queue.example"),
            ("/redirect?to=https://shop.example/", "queue.example"),
        ] {
            assert!(!is_elsewhere(target, host), "{target} {host}");
        }
        for (target, host) in [
            ("https://shop.example", "queue.shop.example"),
            ("https://shop.example#top", "queue.example"),
            ("https://queue.example@shop.example/", "queue.example"),
            ("http://[::1]:3000/", "[::2]:3000"),
            ("https://shop.example/", ""),
        ] {
            assert!(is_elsewhere(target, host), "{target} {host}");
        }
    }

    #[test]
    fn a_code_comes_before_the_fragment_and_after_the_query() {
        for (target, address) in [
            ("https://shop.example", "https://shop.example?firstcome_handoff=C"),
            ("https://shop.example/a?b=c", "https://shop.example/a?b=c&firstcome_handoff=C"),
            ("https://shop.example/#a?b", "https://shop.example/?firstcome_handoff=C#a?b"),
        ] {
            assert_eq!(with_code(target, "C"), address);
        }
    }
}
