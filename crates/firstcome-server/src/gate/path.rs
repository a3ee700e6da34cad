//! Which paths of a site are behind the gate. Pure.
//!
//! A gate and a site may read one path in two ways, and a visitor may write the path so that they do: `/%63heckout`,
//! `//checkout`, `/x/../checkout`, `/CHECKOUT`, `/checkout;x`, and letters of other scripts that only differ from these by
//! their case (the Kelvin sign from `k`). So a path is behind the gate if any reading of it is.
//! Sites differ most in where `..` leads, and no browser sends it: a path with `.` or `..` cannot be read.
//!
//! # Invariants
//! - A path that cannot be read is behind the gate.
//! - An exception counts only for a path that has one reading.

use std::fmt;
use std::str::FromStr;

/// How often a path may be encoded. One that is encoded more often cannot be read.
const ENCODINGS_MAX: usize = 4;

/// A path of the site, or a path and all paths below it, as `/checkout/*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathRule {
    /// In small letters, without a slash at its end.
    path: String,
    /// Whether the paths below it are meant too.
    below: Below,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Below {
    Included,
    Excluded,
}

/// Why a text is no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathRuleError;

impl fmt::Display for PathRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "must be a path such as /checkout, or /checkout/* for it and all below it, with none of % ? # ; \\ // . ..",
        )
    }
}

impl std::error::Error for PathRuleError {}

impl FromStr for PathRule {
    type Err = PathRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, below) = text.strip_suffix("/*").map_or((text, Below::Excluded), |path| (path, Below::Included));
        let whole = if path.is_empty() && below == Below::Included { "/" } else { path };
        if !whole.starts_with('/') || whole.contains('*') || reading(whole).is_none_or(|read| !is_plain(&read, whole)) {
            return Err(PathRuleError);
        }
        Ok(Self { path: path.trim_end_matches('/').to_ascii_lowercase(), below })
    }
}

impl PathRule {
    fn matches(&self, path: &str) -> bool {
        self.rest(path).is_some_and(|rest| rest.is_empty() || self.below == Below::Included && rest.starts_with('/'))
    }

    /// Whether a site may take the path for one of these: many answer `/checkout.json` as `/checkout`, and some file systems
    /// `/checkout::$DATA`.
    fn may_match(&self, path: &str) -> bool {
        self.matches(path) || self.rest(path).is_some_and(|rest| rest.starts_with(['.', ':']))
    }

    fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.trim_end_matches('/').strip_prefix(&self.path)
    }
}

/// The paths that need a pass.
#[derive(Clone, Default, Debug)]
pub struct PathRules {
    /// Paths behind the gate; none for all of them.
    pub gated: Vec<PathRule>,
    /// Exceptions.
    pub open: Vec<PathRule>,
}

impl PathRules {
    /// Whether a request for this path, as it came, needs a pass.
    pub fn needs_pass(&self, path: &str) -> bool {
        let Some(read) = reading(path) else { return true };
        let is_open = is_plain(&read, path) && self.open.iter().any(|rule| rule.matches(&read));
        !is_open && (self.gated.is_empty() || self.gated.iter().any(|rule| rule.may_match(&read)))
    }
}

/// Whether a path has only this reading, capital letters aside.
fn is_plain(read: &str, path: &str) -> bool {
    read.trim_end_matches('/').eq_ignore_ascii_case(path.trim_end_matches('/'))
}

/// Reads a path: decoded, in small letters, with one slash between segments.
fn reading(path: &str) -> Option<String> {
    let mut decoded = path.as_bytes().to_vec();
    let mut is_settled = false;
    for _ in 0..=ENCODINGS_MAX {
        let next = decode(&decoded)?;
        is_settled = next == decoded;
        if is_settled {
            break;
        }
        decoded = next;
    }
    let text = String::from_utf8(decoded).ok().filter(|_| is_settled)?;
    // Comparisons without case differ between sites: some raise letters first, some lower them.
    let text: String = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    if !text.starts_with(['/', '\\']) || text.chars().any(char::is_control) {
        return None;
    }
    let mut read = String::new();
    for segment in text.split(['/', '\\']) {
        // Some sites cut parameters off, and dots or blanks at the end.
        let name = segment.split([';', '?', '#']).next().unwrap_or_default();
        match name.trim_end_matches(['.', ' ']) {
            "" if name.is_empty() => {}
            "" => return None,
            bare => read.extend(["/", bare]),
        }
    }
    Some(if read.is_empty() { "/".into() } else { read })
}

/// Decodes each `%` with two digits once. `None` if a `%` has none.
fn decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = tail else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        decoded.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = tail;
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(gated: &[&str], open: &[&str]) -> PathRules {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        PathRules { gated: parse(gated), open: parse(open) }
    }

    #[test]
    fn a_path_needs_a_pass_in_any_reading() {
        let rules = rules(&["/checkout/*", "/Pay"], &[]);
        for path in [
            "/checkout",
            "/checkout/",
            "/checkout/x",
            "/checkout/x?y",
            "/CheckOut",
            "//checkout",
            "/%63heckout",
            "/checkout%2fx",
            "/%2563heckout",
            "/x/../checkout",
            "/x/%2e%2e/checkout",
            "/./checkout",
            "/checkout/../x",
            "/checkout;jsessionid=1",
            "/checkout%3Bx/y",
            "\\checkout",
            "/x\\..\\checkout",
            "/checkout.",
            "/checkout%20",
            "/pay",
            "/PAY/",
            "/pay;x",
            "/checkout.json",
            "/chec\u{212a}out",
            "/chec%E2%84%AAout",
            "/checKout%C2%85",
            "/checkout::$DATA",
            "/.;/checkout",
            "/x;/../checkout",
            "/x%3f/../checkout",
            "/checkout%09",
            "/%c0%afcheckout",
            "/%u0063heckout",
            "/pay.html",
            "/a%2fb/../checkout",
            "/a%5cb/../x",
            "/x/../checkout//..",
            "/a/./b",
            "/%",
            "/%zz",
            "/%c3",
            "/a%00b",
            "/...",
            "*",
            "",
            "checkout",
        ] {
            assert!(rules.needs_pass(path), "{path}");
        }
        for path in ["/", "/checkouts", "/x/checkout", "/pay/x", "/about", "/%C3%A9", "/a.b", "/checkou%74s"] {
            assert!(!rules.needs_pass(path), "{path}");
        }
    }

    #[test]
    fn without_rules_every_path_needs_a_pass_but_for_exceptions_that_read_one_way() {
        let rules = rules(&[], &["/static/*", "/robots.txt"]);
        for path in ["/static/a.css", "/static", "/robots.txt", "/STATIC/a.css"] {
            assert!(!rules.needs_pass(path), "{path}");
        }
        for path in
            ["/", "/static/../cart", "/static/%2e%2e/cart", "/static//x", "/static/x;y", "/robots.txt/x", "/statics"]
        {
            assert!(rules.needs_pass(path), "{path}");
        }
    }

    #[test]
    fn a_rule_is_written_in_one_way() {
        for text in ["/", "/*", "/a", "/a/", "/a/*", "/a/b.html", "/A"] {
            assert!(text.parse::<PathRule>().is_ok(), "{text}");
        }
        for text in [
            "", "*", "a", "a/*", "/a*", "/*/a", "/a/**", "/%61", "/a/../b", "/a/./b", "//a", "/a?b", "/a;b", "\\a",
            "/...",
        ] {
            assert_eq!(text.parse::<PathRule>(), Err(PathRuleError), "{text}");
        }
        assert!("/*".parse::<PathRule>().unwrap().matches("/x/y") && "/*".parse::<PathRule>().unwrap().matches("/"));
        assert!("/".parse::<PathRule>().unwrap().matches("/") && !"/".parse::<PathRule>().unwrap().matches("/x"));
    }
}
