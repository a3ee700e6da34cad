//! Parses the parts of addresses that several stores share.

use std::fmt;

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
