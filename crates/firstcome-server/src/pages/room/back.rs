//! Where a visitor goes back to after the turn: a page of this site, and no other.

use crate::address::FORWARDED_URI;
use axum::http::Method;
use axum::http::request::Parts;

/// The most bytes of an address to go back to.
const BACK_BYTES_MAX: usize = 2_048;

/// Whether an address leads to another page of this site, and to no other site.
pub(super) fn is_of_this_site(back: &str) -> bool {
    back.len() <= BACK_BYTES_MAX
        && back.starts_with('/')
        && !back.starts_with("//")
        && !back.contains(|letter: char| letter == '\\' || letter.is_control())
}

/// Where a visitor goes whom a proxy shows this page instead of a page of the site: that page, or the first page of the
/// site if a browser cannot go there by itself.
pub(super) fn instead_of(parts: &Parts, base: &str) -> Option<String> {
    let wanted = parts.headers.get(FORWARDED_URI)?.to_str().unwrap_or_default();
    if wanted.starts_with(&format!("{base}/rooms/")) {
        return None;
    }
    let is_link = is_of_this_site(wanted) && matches!(parts.method, Method::GET | Method::HEAD);
    Some(if is_link { wanted } else { "/" }.to_owned())
}
