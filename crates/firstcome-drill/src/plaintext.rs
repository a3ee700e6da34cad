//! Whether an address may be used: none that sends data in plain text to another machine, unless the operator allows it.
//!
//! Only the address counts, and no name is looked up. Sentinels and nodes of a cluster name further servers later; these
//! are encrypted if the address demands TLS, and not if the operator allowed plain text or the address is of this machine.

use crate::failure::Failure;
use anyhow::anyhow;
use clap::Args;
use clap::builder::BoolishValueParser;
use firstcome::address::{Authority, Destination, Encryption};
use firstcome::sql::Address;

/// The argument of every command that connects to a server.
#[derive(Args, Clone, Copy, Default)]
pub struct PlaintextArgs {
    /// Connect in plain text to other machines too, where the address demands no TLS; without this only to loopback and sockets
    #[arg(long, env = "FIRSTCOME_ALLOW_PLAINTEXT", value_parser = BoolishValueParser::new())]
    allow_plaintext: bool,
}

impl PlaintextArgs {
    /// Returns the rule.
    pub const fn rule(self) -> Plaintext {
        if self.allow_plaintext { Plaintext::Allowed } else { Plaintext::Refused }
    }
}

/// The rule about connections in plain text to other machines. Those to loopback and sockets need no permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Plaintext {
    /// Such an address is refused.
    #[default]
    Refused,
    /// Such an address is used.
    Allowed,
}

/// What an address names, for the advice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Redis or Valkey.
    Redis,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    MySql,
    /// etcd.
    Etcd,
    /// A firstcome service that gets a key in plain HTTP alone.
    Http,
    /// A firstcome service that gets a key.
    Service,
    /// A collector of traces.
    Collector,
    /// The site behind a gate, which the gate asks in plain HTTP alone.
    Site,
}

impl Protocol {
    /// The protocol of a database.
    pub const fn of_database(address: &Address) -> Self {
        match address {
            Address::Postgres(_) => Self::Postgres,
            Address::MySql(_) => Self::MySql,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres | Self::MySql => "the database",
            Self::Etcd => "etcd",
            Self::Http | Self::Service => "the service",
            Self::Collector => "the collector",
            Self::Site => "the site",
        }
    }

    /// How an address demands TLS.
    const fn advice(self) -> &'static str {
        match self {
            Self::Redis => "write rediss:// instead of redis://",
            Self::Postgres => "add ?sslmode=verify-full&sslrootcert=FILE to the address",
            Self::MySql => "add ?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE to the address",
            Self::Etcd => "write etcds:// instead of etcd://",
            Self::Http => "run this on the machine of the service",
            Self::Site => "run the gate on the machine of the site",
            Self::Service | Self::Collector => "write https:// instead of http://",
        }
    }
}

/// Returns where an address of a service leads; `None` if it is none, which the client of the service says.
pub fn service_destination(url: &str) -> Option<Destination> {
    let (scheme, rest) = url.split_once("://")?;
    let encryption = if scheme.eq_ignore_ascii_case("https") { Encryption::Checked } else { Encryption::Never };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Authority { hosts, .. } = Authority::read(authority, 80).ok()?;
    Some(Destination { hosts, encryption })
}

impl Plaintext {
    /// Refuses a destination to which data may go in plain text over a network, unless that is allowed. The error names
    /// the host and no password.
    pub fn check(self, protocol: Protocol, destination: &Destination) -> Result<(), Failure> {
        let Some(host) = destination.beyond_this_machine() else { return Ok(()) };
        if self == Self::Allowed || !destination.encryption.may_be_plain() {
            return Ok(());
        }
        let (name, advice) = (protocol.name(), protocol.advice());
        let may = if destination.encryption == Encryption::Never { "would be" } else { "may be" };
        Err(Failure::Usage(anyhow!(
            "{name} at {host} is not on this machine, and connections to it {may} in plain text: {advice}, or allow that with \
             --allow-plaintext"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome::address::Host;

    #[test]
    fn plain_text_beyond_this_machine_needs_permission() {
        use Encryption::{Checked, IfOffered, Never, Unchecked};
        use Plaintext::{Allowed, Refused};
        for (rule, hosts, encryption, is_refused) in [
            (Refused, &[] as &[&str], Never, false),
            (Refused, &["127.0.0.1"], Never, false),
            (Refused, &["localhost"], IfOffered, false),
            (Refused, &["::1"], Never, false),
            (Refused, &["10.0.0.5"], Never, true),
            (Refused, &["redis"], Never, true),
            (Refused, &["db.example"], IfOffered, true),
            (Refused, &["db.example"], Unchecked, false),
            (Refused, &["db.example"], Checked, false),
            (Refused, &["127.0.0.1", "redis"], Never, true),
            (Allowed, &["127.0.0.1", "redis"], Never, false),
            (Allowed, &["db.example"], IfOffered, false),
        ] {
            let hosts: Vec<Host> = hosts.iter().map(|name| Host::new(*name, 1)).collect();
            let destination = Destination { hosts, encryption };
            for protocol in [
                Protocol::Redis,
                Protocol::Postgres,
                Protocol::MySql,
                Protocol::Etcd,
                Protocol::Http,
                Protocol::Service,
            ] {
                let told = rule.check(protocol, &destination);
                assert_eq!(matches!(told, Err(Failure::Usage(_))), is_refused, "{rule:?} {destination:?}");
            }
        }
    }
}
