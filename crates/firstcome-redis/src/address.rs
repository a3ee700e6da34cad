//! Reads addresses: of one server, of the sentinels of a primary, of the nodes of a cluster.

use super::error::OpenError;
pub(crate) use firstcome_store::address::Host;
use firstcome_store::address::{self, Authority, Destination, Encryption, unknown_parameter};
use firstcome_tls::{TlsError, TlsFiles, Trust};
use redis::{ConnectionAddr, IntoConnectionInfo};

/// The port of a server whose address names none.
const SERVER_PORT: u16 = 6_379;
/// The port of a sentinel whose address names none.
const SENTINEL_PORT: u16 = 26_379;

/// The parameters behind the name of a primary. Those of TLS are for `rediss+sentinel://` only.
const OF_PRIMARY: [&str; 6] = ["db", "sentinel_user", "sentinel_password", "cacert", "cert", "key"];

/// Reads the address in `MOVED` and `ASK`. An IPv6 address may come without brackets. An empty host means the host of
/// the node that sent it.
pub(crate) fn host_named(text: &str, by: &Host) -> Option<Host> {
    let (name, port) = text.rsplit_once(':')?;
    let name = if name.is_empty() || name == "?" { &by.name } else { name.trim_matches(['[', ']']) };
    Some(Host::new(name, port.parse().ok()?))
}

/// The login of this process at a server, and how its connections are secured.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
    /// By TLS with these authorities; `None` in plain text.
    pub(crate) tls: Option<Trust>,
}

/// The target of an address.
pub(crate) enum Address {
    /// One server; `redis` parses the text.
    Server { url: String, tls: Option<Trust> },
    /// The server that these sentinels name as the primary.
    Primary { sentinels: Vec<Host>, name: String, to_sentinels: Credentials, to_servers: Credentials },
    /// A cluster; these are some of its nodes.
    Cluster { seeds: Vec<Host>, credentials: Credentials },
}

impl Address {
    /// Reads an address, and the PEM files that it names. The error text contains no user and no password.
    pub(crate) fn read(url: &str) -> Result<Self, OpenError> {
        let (scheme, _) = url.split_once("://").unwrap_or_default();
        let is_secure = matches!(scheme.split('+').next(), Some("rediss" | "valkeys"));
        let (plain, files) = TlsFiles::split_off(url, decoded)?;
        let rest = plain.split_once("://").map_or("", |(_, rest)| rest);
        let tls = match is_secure {
            true => Some(trusted(&files).or_else(|error| wrong(error.to_string()))?),
            false if files.is_empty() => None,
            false => return wrong("cacert, cert and key are of TLS: write rediss:// instead of redis://"),
        };
        match scheme {
            "redis+sentinel" | "rediss+sentinel" => primary(rest, tls),
            "redis+cluster" | "rediss+cluster" => cluster(rest, tls),
            _ if plain.contains('#') && is_secure => {
                wrong("an address has no part after #, and no certificate goes unchecked: name its CA with cacert")
            }
            _ => {
                check_parameters(scheme, &plain)?;
                Ok(Self::Server { url: plain, tls })
            }
        }
    }
}

/// Reads the files, and checks that there is an authority to trust. The `redis` crate notices a machine without one only when it
/// connects, and its error reads as if the server were at fault.
fn trusted(files: &TlsFiles) -> Result<Trust, TlsError> {
    let trust = files.read()?;
    if trust.ca_pem().is_none() {
        trust.client_config()?;
    }
    Ok(trust)
}

/// Reads where an address leads, and the PEM files that it names. Sends nothing.
///
/// Fails with [`OpenError::Address`], whose text contains no user and no password.
pub fn destination(url: &str) -> Result<Destination, OpenError> {
    let encryption = |tls: Option<Trust>| if tls.is_some() { Encryption::Checked } else { Encryption::Never };
    Ok(match Address::read(url)? {
        Address::Server { url, tls } => {
            let info = url.into_connection_info();
            let info = info.map_err(|error| OpenError::Address { says: error.to_string() })?;
            let hosts = match info.addr() {
                ConnectionAddr::Tcp(name, port) | ConnectionAddr::TcpTls { host: name, port, .. } => {
                    vec![Host::new(name.trim_matches(['[', ']']), *port)]
                }
                _ => Vec::new(),
            };
            Destination { hosts, encryption: encryption(tls) }
        }
        Address::Primary { sentinels, to_servers, .. } => {
            Destination { hosts: sentinels, encryption: encryption(to_servers.tls) }
        }
        Address::Cluster { seeds, credentials } => {
            Destination { hosts: seeds, encryption: encryption(credentials.tls) }
        }
    })
}

fn wrong<T>(says: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Address { says: says.into() })
}

/// Refuses parameters of one server that `redis` would ignore, after those of TLS were split off.
fn check_parameters(scheme: &str, plain: &str) -> Result<(), OpenError> {
    let known: &[&str] = match scheme {
        "redis" | "valkey" => &[],
        "rediss" | "valkeys" => &["cacert", "cert", "key"],
        "unix" | "redis+unix" | "valkey+unix" => &["db", "user", "pass"],
        // `redis` says which schemes there are.
        _ => return Ok(()),
    };
    let (_, query) = plain.split_once('?').unwrap_or_default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("protocol", "3" | "resp3") => {}
            ("protocol", _) => return wrong("the protocol is always resp3: leave protocol out"),
            (name, _) if known.contains(&name) => {}
            ("db", _) => {
                return wrong("unknown parameter \"db\": write the number of the database as redis://host:port/number");
            }
            (name, _) => return wrong(unknown_parameter(query, name, known)),
        }
    }
    Ok(())
}

/// Reads `[user:password@]host:port[,host:port…]/master-name[?db=N&sentinel_user=…&sentinel_password=…]`.
fn primary(rest: &str, tls: Option<Trust>) -> Result<Address, OpenError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let Some((authority, name)) = rest.split_once('/').filter(|(_, name)| !name.is_empty()) else {
        return wrong("the name of the primary is missing after the hosts");
    };
    let (sentinels, mut to_servers) = hosts(authority, SENTINEL_PORT, tls.clone())?;
    let mut to_sentinels = Credentials { tls, ..Credentials::default() };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value)?;
        match key {
            "db" => match value.parse() {
                Ok(database @ 0..) => to_servers.database = database,
                _ => return wrong("db must be the number of a database"),
            },
            "sentinel_user" => to_sentinels.user = Some(value),
            "sentinel_password" => to_sentinels.password = Some(value),
            _ => return wrong(unknown_parameter(query, key, &OF_PRIMARY)),
        }
    }
    Ok(Address::Primary { sentinels, name: decoded(name)?, to_sentinels, to_servers })
}

/// Reads `[user:password@]host:port[,host:port…]`.
fn cluster(rest: &str, tls: Option<Trust>) -> Result<Address, OpenError> {
    let (authority, rest) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
    if !matches!(rest, "" | "0") {
        return wrong("a cluster has one database only, so the address must end after the hosts");
    }
    let (seeds, credentials) = hosts(authority, SERVER_PORT, tls)?;
    Ok(Address::Cluster { seeds, credentials })
}

fn hosts(authority: &str, port: u16, tls: Option<Trust>) -> Result<(Vec<Host>, Credentials), OpenError> {
    let Authority { user, password, hosts } = Authority::read(authority, port).or_else(wrong)?;
    Ok((hosts, Credentials { user, password, database: 0, tls }))
}

/// Decodes percent escapes: `%3A` is `:`.
fn decoded(text: &str) -> Result<String, OpenError> {
    address::decoded(text).or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hosts: &[Host]) -> String {
        hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(" ")
    }

    fn told(url: &str) -> String {
        match Address::read(url) {
            Ok(Address::Server { url, tls }) => format!("{url}{}", if tls.is_some() { " by TLS" } else { "" }),
            Ok(Address::Primary { sentinels, name, to_sentinels, to_servers }) => {
                let [inner, outer] = [to_sentinels, to_servers]
                    .map(|who| format!("{:?} {:?} {}", who.user, who.password, who.database).replace("Some", ""));
                format!("{} / {name} / {inner} / {outer}", text(&sentinels))
            }
            Ok(Address::Cluster { seeds, credentials: Credentials { user, password, database, tls } }) => {
                let tls = if tls.is_some() { " by TLS" } else { "" };
                format!("{} / {user:?} {password:?} {database}{tls}", text(&seeds))
            }
            Err(OpenError::Address { says }) => says,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn addresses_are_read() {
        for (url, expected) in [
            ("redis://user:secret@one:1/3", "redis://user:secret@one:1/3"),
            (
                "redis+sentinel://one,two:2,[::1]:3,[fe80::1]/main",
                "one:26379 two:2 [::1]:3 [fe80::1]:26379 / main / None None 0 / None None 0",
            ),
            (
                "redis+sentinel://us%65r:p%40ss:w%2F@one:1/the%20main?db=4&sentinel_user=watch&sentinel_password=a%26b",
                r#"one:1 / the main / ("watch") ("a&b") 0 / ("user") ("p@ss:w/") 4"#,
            ),
            ("redis+cluster://one:1,two", "one:1 two:6379 / None None 0"),
            ("rediss://user:secret@one:1/3", "rediss://user:secret@one:1/3 by TLS"),
            ("rediss+cluster://one:1", "one:1 / None None 0 by TLS"),
            ("redis+cluster://:secret@one:1/0", r#"one:1 / None Some("secret") 0"#),
            ("redis://one:1/3?protocol=resp3", "redis://one:1/3?protocol=resp3"),
            ("unix:///redis.sock?db=3&user=ann&pass=secret", "unix:///redis.sock?db=3&user=ann&pass=secret"),
        ] {
            assert_eq!(told(url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_without_its_password() {
        for (url, expected) in [
            ("redis+sentinel://one:1", "the name of the primary is missing"),
            ("redis+sentinel://one:1/", "the name of the primary is missing"),
            ("redis+sentinel://one:1/main?db=-1", "number of a database"),
            ("redis+sentinel://one:1/main?dv=1", "unknown parameter \"dv\": did you mean db?"),
            ("redis+sentinel://one:1/main?sentinel_pasword=secret", "did you mean sentinel_password?"),
            ("redis+sentinel://one:1/main?timeout=secret", "unknown parameter \"timeout\": remove it"),
            ("redis://one:1?db=secret", "redis://host:port/number"),
            ("redis://one:1?pasword=secret", "unknown parameter \"pasword\": remove it"),
            ("redis://one:1?protocol=secret", "leave protocol out"),
            ("redis://one:1/3?x=y&layout=secret", "unknown parameter \"x\""),
            ("redis://:a?secret@one:1", "%3F for a question mark"),
            ("rediss://one:1?cacrt=secret", "did you mean cacert?"),
            ("valkey://one:1?user=secret", "unknown parameter \"user\""),
            ("unix:///redis.sock?password=secret", "this address takes db, user, pass"),
            ("redis+sentinel://:secret@one:port/main", "separated by commas"),
            ("redis+sentinel://one:1,/main", "separated by commas"),
            ("redis+sentinel://:secret%4@one:1/main", "percent sign"),
            ("redis+sentinel://:secret%ff@one:1/main", "UTF-8"),
            ("redis+cluster://", "separated by commas"),
            ("redis+cluster://[::1:1", "separated by commas"),
            ("redis+cluster://:secret@one:1/2", "one database"),
            ("redis://:secret@one:1?cacert=/ca.pem", "write rediss://"),
            ("redis+cluster://:secret@one:1?cacert=/ca.pem", "write rediss://"),
            ("rediss://:secret@one:1?cacert=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("rediss+sentinel://:secret@one:1/main?cert=/nowhere/cert.pem", "without the key"),
            ("rediss://:secret@one:1/#insecure", "cacert"),
        ] {
            let says = told(url);
            assert!(says.contains(expected) && !says.contains("secret"), "{url}: {says}");
        }
    }

    #[test]
    fn an_address_tells_where_it_leads() {
        for (url, hosts, encryption) in [
            ("redis://user:secret@one:1/3", "one:1", Encryption::Never),
            ("redis://[::1]", "[::1]:6379", Encryption::Never),
            ("valkey://one", "one:6379", Encryption::Never),
            ("rediss://one", "one:6379", Encryption::Checked),
            ("unix:///run/redis.sock", "", Encryption::Never),
            ("redis+sentinel://one,two:2/main", "one:26379 two:2", Encryption::Never),
            ("rediss+sentinel://one/main", "one:26379", Encryption::Checked),
            ("redis+cluster://one,two", "one:6379 two:6379", Encryption::Never),
            ("rediss+cluster://one", "one:6379", Encryption::Checked),
        ] {
            let found = destination(url).expect(url);
            assert_eq!((&*text(&found.hosts), found.encryption), (hosts, encryption), "{url}");
        }
        let error = destination("http://secret@one").expect_err("no Redis").to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_node_that_is_named_without_a_host_has_that_of_who_names_it() {
        let by = Host::new("one", 1);
        for (text, expected) in
            [("two:2", "two:2"), (":2", "one:2"), ("?:2", "one:2"), ("::1:2", "[::1]:2"), ("[::1]:2", "[::1]:2")]
        {
            assert_eq!(host_named(text, &by).map(|host| host.to_string()).as_deref(), Some(expected));
        }
        assert_eq!(host_named("two", &by), None);
    }
}
