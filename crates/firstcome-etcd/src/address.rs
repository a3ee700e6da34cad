//! Reads addresses of etcd clusters.

use super::error::EtcdError;
use firstcome_store::address::{Authority, Host};

/// The default port for clients.
const PORT: u16 = 2_379;
const WANTED: &str = "the address must be etcd://[user:password@]host[:port][,host[:port]…]";

/// The servers of one cluster, and the user to log in as.
pub(crate) struct Address {
    pub(crate) hosts: Vec<Host>,
    pub(crate) login: Option<Login>,
}

/// A user with its password. Never printed.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Address {
    /// Reads an address. The error shows neither user nor password.
    pub(crate) fn read(url: &str) -> Result<Self, EtcdError> {
        let rest = match url.split_once("://") {
            Some(("etcd", rest)) => rest,
            Some(("etcds", _)) => {
                return wrong("this program has no TLS: use a TLS proxy on this machine, and give its address");
            }
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
        Ok(Self { hosts, login })
    }
}

fn wrong<T>(says: &str) -> Result<T, EtcdError> {
    Err(EtcdError::broken(says))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(url: &str) -> String {
        match Address::read(url) {
            Ok(Address { hosts, login }) => {
                let hosts = hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(" ");
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
            ("etcds://user:secret@one", "no TLS"),
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
