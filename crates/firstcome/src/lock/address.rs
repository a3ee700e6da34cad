//! Where locks are kept, as one text: the same for the library, the program and its settings.

use firstcome_store::address::Authority;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// How locks are stored on Redis or Valkey; see [`layout`](super::layout).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Layout {
    /// The layout of this library, which keeps every promise of [`Locks`](super::Locks).
    #[default]
    Native,
    /// The layout of Redisson's `RLock`. Java services that use the same name and this library exclude and wake each
    /// other. [`Guard::reenter`](super::Guard::reenter) counts as Redisson does.
    Redisson,
    /// One key per lock, as redis-py, redsync, node-redlock, Spring and others set it.
    SingleKey,
}

/// The address of a store of locks.
///
/// | address | locks |
/// |---|---|
/// | `memory:` | between the tasks of this process |
/// | `sqlite:DIR`, or a path | in a directory, between the processes of this machine |
/// | `redis://…`, `redis+sentinel://…`, `redis+cluster://…`, and with `rediss` for TLS | on Redis or Valkey; [`Locks::redis`](super::Locks::redis) has the forms |
/// | the same with `?layout=redisson` or `?layout=single-key` | in the layout of other libraries |
/// | three to nine `redis://…` or `rediss://…`, separated by spaces | on several servers that vote |
/// | `etcd://…`, and `etcds://…` for TLS | on etcd |
/// | `postgres://…` | in rows with leases; with `?layout=session` the server's advisory locks |
/// | `mysql://…` | the built-in locks of MySQL or MariaDB |
/// | `http://…`, `https://…` | of a firstcome service; its key comes by `Connect::http_key`, never in the address |
///
/// Text without `://`, `memory:` or `sqlite:` is a path. Parsing checks the form, and leaves the rest to the store. The
/// text that [`Display`](fmt::Display) and [`Debug`] show has no user and no password.
///
/// ```
/// use firstcome::lock::{Layout, LockAddress};
///
/// let address: LockAddress = "redis://ann:s3cret@10.0.0.5/3?layout=redisson".parse()?;
/// assert!(matches!(&address, LockAddress::Redis { layout: Layout::Redisson, url } if url.ends_with("@10.0.0.5/3")));
/// assert_eq!(address.to_string(), "redis://10.0.0.5/3?layout=redisson");
/// # Ok::<(), firstcome::lock::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockAddress {
    /// In this process.
    Memory,
    /// In a directory.
    Directory(PathBuf),
    /// On Redis or Valkey.
    Redis {
        /// The address without the layout.
        url: String,
        /// The layout.
        layout: Layout,
    },
    /// On several servers that vote.
    Quorum(Vec<String>),
    /// On etcd.
    Etcd(String),
    /// In rows of a table of PostgreSQL, with leases.
    Postgres(String),
    /// The advisory locks of PostgreSQL.
    PostgresSession(String),
    /// The built-in locks of MySQL or MariaDB.
    MysqlSession(String),
    /// Of a firstcome service.
    Http {
        /// The address, without the key.
        url: String,
    },
}

/// Why a text is no address of a store of locks; [`LockAddress`] has the forms.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{says}")]
pub struct AddressError {
    says: String,
}

impl AddressError {
    fn new(says: impl Into<String>) -> Self {
        Self { says: says.into() }
    }
}

impl FromStr for LockAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        if 1 < parts.len() && parts.iter().all(|part| part.contains("://")) {
            let is_server = |part: &str| part.starts_with("redis://") || part.starts_with("rediss://");
            let servers = parts.iter().all(|part| is_server(part) && split_layout(part).1.is_none());
            let says = "several addresses are a quorum of servers; write each as redis://host or rediss://host, without a layout";
            return if servers {
                Ok(Self::Quorum(parts.into_iter().map(str::to_owned).collect()))
            } else {
                Err(AddressError::new(says))
            };
        }
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        if let Some(directory) = text.strip_prefix("sqlite:") {
            return Self::directory(directory);
        }
        let Some((scheme, _)) = text.split_once("://") else { return Self::directory(text) };
        let (url, layout) = split_layout(text);
        match (scheme, layout) {
            (redis, None | Some("native")) if is_redis(redis) => Ok(Self::Redis { url, layout: Layout::Native }),
            (redis, Some("redisson")) if is_redis(redis) => Ok(Self::Redis { url, layout: Layout::Redisson }),
            (redis, Some("single-key")) if is_redis(redis) => Ok(Self::Redis { url, layout: Layout::SingleKey }),
            ("etcd" | "etcds", None) => Ok(Self::Etcd(url)),
            ("postgres" | "postgresql", None | Some("leases")) => Ok(Self::Postgres(url)),
            ("postgres" | "postgresql", Some("session")) => Ok(Self::PostgresSession(url)),
            ("mysql" | "mariadb", None | Some("session")) => Ok(Self::MysqlSession(url)),
            ("http" | "https", None) => Ok(Self::Http { url }),
            (known, Some(_)) if is_redis(known) || KNOWN.contains(&known) => Err(AddressError::new(format!(
                "{scheme}:// has no such layout; write redisson or single-key with redis://, session with postgres://"
            ))),
            _ => Err(AddressError::new(format!(
                "no locks are reached by {scheme}://; write a directory, redis://…, etcd://…, postgres://…, mysql://… or https://…"
            ))),
        }
    }
}

/// The schemes that name no Redis.
const KNOWN: [&str; 8] = ["etcd", "etcds", "http", "https", "postgres", "postgresql", "mysql", "mariadb"];

fn is_redis(scheme: &str) -> bool {
    let (transport, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    matches!(transport, "redis" | "rediss") && (matches!(kind, "sentinel" | "cluster") || scheme == transport)
}

impl LockAddress {
    fn directory(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::new(
                "the store is empty; write a directory, redis://…, etcd://… or postgres://…",
            ));
        }
        Ok(Self::Directory(text.into()))
    }

    /// Returns the same address with this layout, if it is one on Redis.
    #[must_use]
    pub fn with_layout(self, wanted: Layout) -> Option<Self> {
        match self {
            Self::Redis { url, .. } => Some(Self::Redis { url, layout: wanted }),
            other => (wanted == Layout::Native).then_some(other),
        }
    }
}

/// Splits `?layout=…` off. It may stand anywhere among the parameters of an address.
fn split_layout(text: &str) -> (String, Option<&str>) {
    // A password may have a question mark.
    let after_user = text.rfind('@').map_or(0, |at| at + 1);
    let Some(mark) = text[after_user..].find('?').map(|at| after_user + at) else { return (text.to_owned(), None) };
    let (base, query) = (&text[..mark], &text[mark + 1..]);
    let mut layout = None;
    let others = query.split('&').filter(|parameter| {
        let found = parameter.strip_prefix("layout=");
        layout = found.or(layout);
        found.is_none()
    });
    let others: Vec<&str> = others.collect();
    let base = base.to_owned();
    (if others.is_empty() { base } else { format!("{base}?{}", others.join("&")) }, layout)
}

/// The hosts of an address, and what follows them; without user, password and parameters.
fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "?".to_owned() };
    let rest = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    let (hosts, path) = rest.split_once('/').map_or((rest, None), |(hosts, path)| (hosts, Some(path)));
    // What does not read as hosts may be a part of a secret that was not escaped.
    if Authority::read(hosts, 0).is_err() {
        return format!("{scheme}://?");
    }
    match path {
        Some(path) => format!("{scheme}://{hosts}/{path}"),
        None => format!("{scheme}://{hosts}"),
    }
}

impl fmt::Display for LockAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Directory(path) => write!(f, "sqlite:{}", path.display()),
            Self::Redis { url, layout: Layout::Native } => f.write_str(&without_secrets(url)),
            Self::Redis { url, layout: Layout::Redisson } => write!(f, "{}?layout=redisson", without_secrets(url)),
            Self::Redis { url, layout: Layout::SingleKey } => write!(f, "{}?layout=single-key", without_secrets(url)),
            Self::Quorum(urls) => {
                let shown: Vec<String> = urls.iter().map(|url| without_secrets(url)).collect();
                f.write_str(&shown.join(" "))
            }
            Self::Etcd(url) | Self::Postgres(url) | Self::MysqlSession(url) | Self::Http { url } => {
                f.write_str(&without_secrets(url))
            }
            Self::PostgresSession(url) => write!(f, "{}?layout=session", without_secrets(url)),
        }
    }
}

impl fmt::Debug for LockAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<LockAddress, String> {
        text.parse().map_err(|error: AddressError| error.to_string())
    }

    #[test]
    fn each_address_names_its_store() {
        let redis = |url: &str, layout| LockAddress::Redis { url: url.to_owned(), layout };
        for (text, store) in [
            ("memory:", LockAddress::Memory),
            ("sqlite:/var/lib/locks", LockAddress::Directory("/var/lib/locks".into())),
            ("./locks", LockAddress::Directory("./locks".into())),
            // A path with a space is one path.
            ("./my locks", LockAddress::Directory("./my locks".into())),
            ("redis://h", redis("redis://h", Layout::Native)),
            ("rediss://h?layout=native", redis("rediss://h", Layout::Native)),
            ("rediss+cluster://a,b?cacert=/ca.pem", redis("rediss+cluster://a,b?cacert=/ca.pem", Layout::Native)),
            (
                "rediss://a?cacert=/ca.pem rediss://b rediss://c",
                LockAddress::Quorum(
                    ["rediss://a?cacert=/ca.pem", "rediss://b", "rediss://c"].map(str::to_owned).into(),
                ),
            ),
            ("redis+cluster://a,b?layout=redisson", redis("redis+cluster://a,b", Layout::Redisson)),
            ("redis+sentinel://a,b/main?layout=single-key", redis("redis+sentinel://a,b/main", Layout::SingleKey)),
            ("redis://u:p?layout=x@h", redis("redis://u:p?layout=x@h", Layout::Native)),
            (
                "redis://a redis://b  redis://c",
                LockAddress::Quorum(["redis://a", "redis://b", "redis://c"].map(str::to_owned).into()),
            ),
            ("etcd://a,b,c", LockAddress::Etcd("etcd://a,b,c".to_owned())),
            ("etcds://a?cacert=/ca.pem", LockAddress::Etcd("etcds://a?cacert=/ca.pem".to_owned())),
            ("postgres://h/shop", LockAddress::Postgres("postgres://h/shop".to_owned())),
            (
                "postgresql://h/shop?sslmode=require&layout=session&a=b",
                LockAddress::PostgresSession("postgresql://h/shop?sslmode=require&a=b".to_owned()),
            ),
            ("mysql://h/shop?layout=session", LockAddress::MysqlSession("mysql://h/shop".to_owned())),
            ("http://h:8080", LockAddress::Http { url: "http://h:8080".to_owned() }),
            ("https://h/shop", LockAddress::Http { url: "https://h/shop".to_owned() }),
        ] {
            assert_eq!(parsed(text), Ok(store), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_to_write() {
        for (text, says) in [
            ("", "the store is empty"),
            ("sqlite:", "the store is empty"),
            ("ftp://h", "no locks are reached by ftp://"),
            ("https://h?layout=session", "has no such layout"),
            ("redis://h?layout=redison", "has no such layout"),
            ("etcd://h?layout=session", "has no such layout"),
            ("mysql://h?layout=leases", "has no such layout"),
            ("redis+other://h", "no locks are reached by redis+other://"),
            ("redis://a etcd://b", "a quorum of servers"),
            ("redis://a redis://b?layout=redisson", "a quorum of servers"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_shown_has_no_secret() {
        for (text, shown) in [
            ("redis://ann:s3cret@h:1/3", "redis://h:1/3"),
            ("redis://:s3cret@h?layout=single-key", "redis://h?layout=single-key"),
            ("redis://u:s3cret@a redis://:s3cret@b redis://c", "redis://a redis://b redis://c"),
            ("postgres://ann:s3cret@h/shop?password=s3cret&layout=session", "postgres://h/shop?layout=session"),
            // A slash in a password was not escaped.
            ("mysql://ann:s3/cret@h/shop", "mysql://h/shop"),
            ("etcd://ann:s3cret@@h", "etcd://h"),
            ("https://ann:s3cret@h/?key=s3cret", "https://h/"),
            ("sqlite:/tmp/a", "sqlite:/tmp/a"),
        ] {
            let address = parsed(text).expect(text);
            assert_eq!(address.to_string(), shown, "{text}");
            assert!(!format!("{address:?}").contains("s3"), "{text}");
        }
    }
}
