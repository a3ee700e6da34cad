//! Reads addresses of etcd clusters.

use super::error::EtcdError;
use firstcome_store::address::{self, Authority, Destination, Encryption, Host};
use firstcome_tls::{TlsFiles, Trust};

/// The default port for clients.
const PORT: u16 = 2_379;
const WANTED: &str = "the address must be etcd://[user:password@]host[:port][,host[:port]…], or etcds://… for TLS";

/// The servers of one cluster, and the user to log in as.
pub(crate) struct Address {
    pub(crate) hosts: Vec<Host>,
    pub(crate) login: Option<Login>,
    /// By TLS with these authorities; `None` in plain text.
    pub(crate) tls: Option<Trust>,
}

/// A user with its password. Never printed.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Address {
    /// Reads an address, and the PEM files that it names. The error shows neither user nor password.
    pub(crate) fn read(url: &str) -> Result<Self, EtcdError> {
        let (plain, files) = TlsFiles::split_off(url, address::decoded).or_else(wrong)?;
        let (rest, tls) = match plain.split_once("://") {
            Some(("etcd", rest)) if files.is_empty() => (rest, None),
            Some(("etcd", _)) => return wrong("cacert, cert and key are of TLS: write etcds:// instead of etcd://"),
            Some(("etcds", rest)) => (rest, Some(files.read().map_err(|error| EtcdError::broken(error.to_string()))?)),
            _ => return wrong(WANTED),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?']) {
            return wrong("the address must end after the hosts");
        }
        let Authority { user, password, hosts } = Authority::read(authority, PORT).or_else(wrong)?;
        let login = match (user, password) {
            (Some(user), Some(password)) => Some(Login { user, password }),
            (None, None) => None,
            _ => return wrong("give a user with a password, or neither: etcd://user:password@host:port"),
        };
        Ok(Self { hosts, login, tls })
    }
}

/// Reads where an address leads. Sends nothing, and the error shows neither user nor password.
pub fn destination(url: &str) -> Result<Destination, EtcdError> {
    let Address { hosts, tls, .. } = Address::read(url)?;
    Ok(Destination { hosts, encryption: if tls.is_some() { Encryption::Checked } else { Encryption::Never } })
}

fn wrong<T>(says: &str) -> Result<T, EtcdError> {
    Err(EtcdError::broken(says))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(url: &str) -> String {
        match Address::read(url) {
            Ok(Address { hosts, login, tls }) => {
                let hosts = hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(" ");
                let hosts = if tls.is_some() { format!("{hosts} by TLS") } else { hosts };
                login.map_or(hosts.clone(), |login| format!("{hosts} / {} {}", login.user, login.password))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn addresses_are_read() {
        for (url, expected) in [
            ("etcd://one", "one:2379"),
            ("etcd://one:1,two,[::1]:3/", "one:1 two:2379 [::1]:3"),
            ("etcds://one,two:2", "one:2379 two:2 by TLS"),
            ("etcd://us%65r:p%40ss:w%2F@one:1", "one:1 / user p@ss:w/"),
        ] {
            assert_eq!(told(url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_without_its_password() {
        for (url, expected) in [
            ("", "must be etcd://"),
            ("http://user:secret@one:2379", "must be etcd://"),
            ("etcd://user:secret@one?cacert=/ca.pem", "write etcds://"),
            ("etcds://user:secret@one?cacert=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("etcds://user:secret@one?cert=/nowhere/cert.pem", "without the key"),
            ("etcds://user:secret@one?prefix=a", "must end after the hosts"),
            ("etcd://", "separated by commas"),
            ("etcd://user:secret@one:port", "separated by commas"),
            ("etcd://user:secret%4@one", "percent sign"),
            ("etcd://:secret@one", "give a user with a password"),
            ("etcd://user@one", "give a user with a password"),
            ("etcd://user:secret@one/prefix", "must end after the hosts"),
            ("etcd://user:secret@one?lease=1s", "must end after the hosts"),
        ] {
            let says = told(url);
            assert!(says.contains(expected) && !says.contains("secret"), "{url}: {says}");
        }
    }
}
