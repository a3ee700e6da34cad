//! Parses the parts of addresses that several stores share.

use std::fmt;
use std::net::IpAddr;

/// Host and port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Host {
    /// The host name, or an IPv4 or IPv6 address without brackets.
    pub name: Box<str>,
    /// The port.
    pub port: u16,
}

impl Host {
    /// Makes a host from its parts.
    pub fn new(name: impl Into<Box<str>>, port: u16) -> Self {
        Self { name: name.into(), port }
    }

    /// Whether connections to the host stay on this machine: `localhost`, 127.0.0.0/8 and `::1`. Looks no name up, and
    /// counts no address of a private network.
    pub fn is_loopback(&self) -> bool {
        let is_local = |address: IpAddr| address.to_canonical().is_loopback();
        self.name.eq_ignore_ascii_case("localhost") || self.name.parse().is_ok_and(is_local)
    }
}

/// Where an address leads, as far as its text and the environment say it. Nothing is sent.
///
/// Not covered: servers that these hosts name later, as sentinels and nodes of a cluster do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The hosts; none for a socket of this machine.
    pub hosts: Vec<Host>,
    /// What its connections demand.
    pub encryption: Encryption,
}

/// What the connections of an address demand, from the weakest on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Encryption {
    /// Plain text.
    Never,
    /// TLS if the server offers it, else plain text. No certificate is checked.
    IfOffered,
    /// TLS, or there is no connection. No certificate is checked.
    Unchecked,
    /// TLS with a certificate of a trusted authority that is for the name of the server.
    Checked,
}

impl Encryption {
    /// Whether a connection may be in plain text.
    pub fn may_be_plain(self) -> bool {
        self < Self::Unchecked
    }
}

impl Destination {
    /// The first host beyond this machine, if there is one.
    pub fn beyond_this_machine(&self) -> Option<&Host> {
        self.hosts.iter().find(|host| !host.is_loopback())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// The parts of `[user:password@]host[:port][,host[:port]…]`.
pub struct Authority {
    /// The user, if one is named.
    pub user: Option<String>,
    /// The password, if there is one.
    pub password: Option<String>,
    /// The hosts; at least one.
    pub hosts: Vec<Host>,
}

firstcome_core::debug_by_name!(Authority);

impl Authority {
    /// Parses an authority; `port` is the default port. The error text contains no user and no password.
    pub fn read(text: &str, port: u16) -> Result<Self, &'static str> {
        let (user, hosts) = text.rsplit_once('@').unwrap_or(("", text));
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let some = |text: &str| decoded(text).map(|text| (!text.is_empty()).then_some(text));
        let (user, password) = (some(user)?, some(password)?);
        let read = |text: &str| {
            let (name, end) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
                Some(pair) => pair,
                None => text.split_at(text.find(':').unwrap_or(text.len())),
            };
            let port =
                if end.is_empty() { Some(port) } else { end.strip_prefix(':').and_then(|port| port.parse().ok()) };
            port.filter(|_| !name.is_empty()).map(|port| Host::new(name, port))
        };
        match hosts.split(',').map(read).collect::<Option<Vec<_>>>() {
            Some(hosts) => Ok(Self { user, password, hosts }),
            None => Err("write the hosts as host:port, separated by commas"),
        }
    }
}

/// Decodes percent escapes: `%3A` is `:`.
pub fn decoded(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let code = rest.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => return Err("after a percent sign come two hexadecimal digits"),
        }
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8")
}

/// The longest name of a parameter that an error repeats.
const PARAMETER_NAME_MAX: usize = 64;

/// Says that an address has an unknown parameter, and which of the `known` ones was probably meant. `query` is the text behind
/// the question mark.
///
/// The text repeats the name of the parameter, and never its value. It leaves the name out if that may be a part of a password
/// with a question mark.
pub fn unknown_parameter(query: &str, name: &str, known: &[&str]) -> String {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte);
    let is_name = (1..=PARAMETER_NAME_MAX).contains(&name.len()) && name.bytes().all(is_letter);
    let has_value = query.split('&').any(|pair| pair.split_once('=').is_some_and(|(raw, _)| raw == name));
    if !is_name || !has_value || query.contains('@') {
        return "what follows the question mark is no known parameter: write name=value there, and %3F for a question mark in a \
                password"
            .to_owned();
    }
    match nearest(name, known, (name.len() / 3).max(1)) {
        Some(meant) => format!("unknown parameter {name:?}: did you mean {meant}?"),
        None if known.is_empty() => format!("unknown parameter {name:?}: remove it"),
        None => format!("unknown parameter {name:?}: remove it; this address takes {}", known.join(", ")),
    }
}

/// Returns the known word that takes the fewest edits, if so many are enough. An edit inserts, removes or replaces a byte.
pub fn nearest<'a>(word: &str, known: &[&'a str], edits_max: usize) -> Option<&'a str> {
    let nearest = known.iter().map(|known| (edits(word, known), *known)).min_by_key(|(edits, _)| *edits);
    nearest.filter(|(edits, _)| *edits <= edits_max).map(|(_, known)| known)
}

/// Counts the edits that lead from one text to another (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    // For the part of `from` so far: the edits to each beginning of `to`.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, byte) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, wanted) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte != wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_parameter_is_named_without_its_value() {
        let known = ["host", "password", "user"];
        for (query, name, expected) in [
            ("pasword=hunter2", "pasword", "unknown parameter \"pasword\": did you mean password?"),
            ("user=a&PASSWORD_=hunter2", "PASSWORD_", "unknown parameter \"PASSWORD_\": remove it"),
            ("usr=hunter2", "usr", "did you mean user?"),
            ("x=hunter2", "x", "this address takes host, password, user"),
            // These may be parts of a password.
            ("hunter2", "hunter2", "no known parameter"),
            ("hunter2@host/shop", "hunter2@host/shop", "no known parameter"),
            ("hunter2=3@host", "hunter2", "no known parameter"),
            ("hunter2%21=3", "hunter2!", "no known parameter"),
            ("=hunter2", "", "no known parameter"),
        ] {
            let says = unknown_parameter(query, name, &known);
            assert!(says.contains(expected) && !says.contains("hunter2") && !says.contains('\n'), "{query}: {says}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("pasword", "password", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn loopback_is_this_machine_and_no_private_network() {
        for (name, expected) in [
            ("localhost", true),
            ("LocalHost", true),
            ("127.0.0.1", true),
            ("127.255.0.9", true),
            ("::1", true),
            ("0:0:0:0:0:0:0:1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("10.0.0.5", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("fd00::1", false),
            ("::ffff:10.0.0.5", false),
            ("redis", false),
            ("localhost.example", false),
            ("127.0.0.1.example", false),
            // Neither is a number that some libraries would read as an address.
            ("127.1", false),
            ("2130706433", false),
        ] {
            assert_eq!(Host::new(name, 1).is_loopback(), expected, "{name}");
        }
    }

    #[test]
    fn one_host_beyond_this_machine_is_enough() {
        let to = |names: &[&str]| {
            let hosts = names.iter().map(|name| Host::new(*name, 1)).collect();
            let found = Destination { hosts, encryption: Encryption::Never };
            found.beyond_this_machine().map(Host::to_string)
        };
        assert_eq!(to(&[]), None);
        assert_eq!(to(&["127.0.0.1", "localhost"]), None);
        assert_eq!(to(&["127.0.0.1", "one", "two"]).as_deref(), Some("one:1"));
    }
}
