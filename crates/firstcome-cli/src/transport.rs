//! How servers are reached: which PEM files their addresses get, and whether plain text is allowed.
//!
//! Every command passes each address through [`Transport`] before anything is sent. The library decides nothing of this: it
//! uses addresses as they are.

use crate::failure::Failure;
use crate::plaintext::{Plaintext, PlaintextArgs, Protocol};
use anyhow::anyhow;
use clap::Args;
use firstcome::address::Encryption;
use firstcome::lock::LockAddress;
use firstcome::sql::Address;
use firstcome_tls::{TlsFiles, Trust};
use std::path::{Path, PathBuf};

/// The arguments of every command that names a store.
#[derive(Args, Clone, Default)]
pub(crate) struct TransportArgs {
    #[command(flatten)]
    plaintext: PlaintextArgs,
    #[command(flatten)]
    files: TlsFileArgs,
}

/// The PEM files for connections to servers.
#[derive(Args, Clone, Default)]
pub(crate) struct TlsFileArgs {
    /// Authorities of servers as PEM, for addresses that name none; databases then get no connection without TLS [default: those
    /// of the platform]
    #[arg(long, env = "FIRSTCOME_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate of this program as PEM, for servers that demand one; with --tls-client-key
    #[arg(long, env = "FIRSTCOME_TLS_CLIENT_CERT", value_name = "FILE")]
    tls_client_cert: Option<PathBuf>,
    /// Key of that certificate, as PEM
    #[arg(long, env = "FIRSTCOME_TLS_CLIENT_KEY", value_name = "FILE")]
    tls_client_key: Option<PathBuf>,
}

impl TransportArgs {
    /// Reads the files that are named here, for connections to services.
    pub(crate) fn trust(&self) -> Result<Trust, Failure> {
        self.files.trust()
    }

    /// Reads the files.
    pub(crate) fn settled(&self) -> Result<Transport, Failure> {
        let plaintext = self.plaintext.rule();
        Ok(Transport { plaintext, files: self.files.named(), trust: self.files.trust()? })
    }
}

impl TlsFileArgs {
    /// Reads the files.
    pub(crate) fn trust(&self) -> Result<Trust, Failure> {
        self.named().read().map_err(|error| Failure::Usage(error.into()))
    }

    fn named(&self) -> TlsFiles {
        let Self { tls_ca, tls_client_cert, tls_client_key } = self.clone();
        TlsFiles { ca: tls_ca, client_cert: tls_client_cert, client_key: tls_client_key }
    }
}

/// The rule about plain text, and the files for addresses that name none.
pub(crate) struct Transport {
    pub(crate) plaintext: Plaintext,
    files: TlsFiles,
    trust: Trust,
}

/// How an address of a database names mode, authorities, certificate and key, and the mode that checks all.
struct SqlNames {
    mode: &'static str,
    checked: &'static str,
    disabled: &'static str,
    ca: &'static str,
    cert: &'static str,
    key: &'static str,
}

const POSTGRES: SqlNames = SqlNames {
    mode: "sslmode",
    checked: "verify-full",
    disabled: "sslmode=disable",
    ca: "sslrootcert",
    cert: "sslcert",
    key: "sslkey",
};
const MYSQL: SqlNames = SqlNames {
    mode: "ssl-mode",
    checked: "VERIFY_IDENTITY",
    disabled: "ssl-mode=DISABLED",
    ca: "ssl-ca",
    cert: "ssl-cert",
    key: "ssl-key",
};

/// The other spellings of the parameters, which the addresses of databases know too.
const MODES: [&str; 2] = ["sslmode", "ssl-mode"];
const AUTHORITIES: [&str; 4] = ["sslrootcert", "ssl-root-cert", "ssl-ca", "sslca"];
const IDENTITIES: [&str; 4] = ["sslcert", "ssl-cert", "sslkey", "ssl-key"];

impl Transport {
    /// Whom connections to services trust.
    pub(crate) const fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns the address of a Redis with the files that it lacks. Refuses plain text that is not allowed.
    pub(crate) fn redis(&self, url: &str) -> Result<String, Failure> {
        let url = self.secured_by_scheme(url)?;
        let found = firstcome::redis::destination(&url).map_err(|error| Failure::Usage(error.into()))?;
        self.plaintext.check(Protocol::Redis, &found)?;
        Ok(url)
    }

    /// Returns the address of a database with the files that it lacks. Refuses plain text that is not allowed.
    pub(crate) fn sql(&self, url: &str) -> Result<String, Failure> {
        let url = self.secured_sql(url)?;
        let address = parsed(&url)?;
        self.plaintext.check(Protocol::of_database(&address), &address.destination())?;
        Ok(url)
    }

    /// Does the same for a store of locks.
    pub(crate) fn locks(&self, store: LockAddress) -> Result<LockAddress, Failure> {
        Ok(match store {
            LockAddress::Redis { url, layout } => LockAddress::Redis { url: self.redis(&url)?, layout },
            LockAddress::Quorum(urls) => {
                LockAddress::Quorum(urls.iter().map(|url| self.redis(url)).collect::<Result<_, _>>()?)
            }
            LockAddress::Postgres(url) => LockAddress::Postgres(self.sql(&url)?),
            LockAddress::PostgresSession(url) => LockAddress::PostgresSession(self.sql(&url)?),
            LockAddress::MysqlSession(url) => LockAddress::MysqlSession(self.sql(&url)?),
            #[cfg(feature = "etcd")]
            LockAddress::Etcd(url) => {
                let url = self.secured_by_scheme(&url)?;
                let found = firstcome::etcd::destination(&url).map_err(|error| Failure::Usage(error.into()))?;
                self.plaintext.check(Protocol::Etcd, &found)?;
                LockAddress::Etcd(url)
            }
            other => other,
        })
    }

    /// Adds the files to an address of Redis or etcd, whose scheme says whether there is TLS.
    fn secured_by_scheme(&self, url: &str) -> Result<String, Failure> {
        let (scheme, _) = url.split_once("://").unwrap_or_default();
        if self.files.is_empty() || scheme.contains("unix") {
            return Ok(url.to_owned());
        }
        match scheme.split('+').next() {
            Some("rediss" | "valkeys" | "etcds") => {}
            Some(plain @ ("redis" | "valkey" | "etcd")) => {
                return Err(Failure::Usage(anyhow!(
                    "--tls-ca, --tls-client-cert and --tls-client-key are of TLS, and an address begins with {scheme}://: write \
                     {plain}s:// instead of {plain}://"
                )));
            }
            // Reading the address says what is wrong with it.
            _ => return Ok(url.to_owned()),
        }
        let mut url = Parameters::of(url);
        if !url.has(&["cacert"]) {
            url.add("cacert", self.files.ca.as_deref())?;
        }
        if !url.has(&["cert", "key"]) {
            url.add("cert", self.files.client_cert.as_deref())?;
            url.add("key", self.files.client_key.as_deref())?;
        }
        Ok(url.text)
    }

    fn secured_sql(&self, url: &str) -> Result<String, Failure> {
        if self.files.is_empty() {
            return Ok(url.to_owned());
        }
        let address = parsed(url)?;
        let found = address.destination();
        if found.hosts.is_empty() {
            // A socket of this machine is never encrypted.
            return Ok(url.to_owned());
        }
        let names = if matches!(address, Address::Postgres(_)) { POSTGRES } else { MYSQL };
        let SqlNames { mode, checked, disabled, ca, cert, key } = names;
        let mut url = Parameters::of(url);
        let brings_ca = self.files.ca.is_some() && !url.has(&AUTHORITIES);
        match found.encryption {
            Encryption::Never => {
                return Err(Failure::Usage(anyhow!(
                    "--tls-ca, --tls-client-cert and --tls-client-key are of TLS, and the database is set to {disabled}: write \
                     {mode}={checked}, or leave the files out"
                )));
            }
            // Files that a plain connection ignores in silence would be worse than none.
            Encryption::IfOffered => url.set(&MODES, mode, checked),
            Encryption::Unchecked if brings_ca => url.set(&MODES, mode, checked),
            _ => {}
        }
        if brings_ca {
            url.add(ca, self.files.ca.as_deref())?;
        }
        if !url.has(&IDENTITIES) {
            url.add(cert, self.files.client_cert.as_deref())?;
            url.add(key, self.files.client_key.as_deref())?;
        }
        Ok(url.text)
    }
}

fn parsed(url: &str) -> Result<Address, Failure> {
    Address::parse(url).map_err(|error| Failure::Usage(error.into()))
}

/// An address whose parameters are looked at and added to.
struct Parameters {
    text: String,
}

impl Parameters {
    fn of(url: &str) -> Self {
        Self { text: url.to_owned() }
    }

    fn has(&self, names: &[&str]) -> bool {
        let (_, query) = self.text.split_once('?').unwrap_or_default();
        query.split('&').any(|pair| names.contains(&pair.split('=').next().unwrap_or_default()))
    }

    /// Adds the path of a file, if there is one.
    fn add(&mut self, name: &str, file: Option<&Path>) -> Result<(), Failure> {
        let Some(file) = file else { return Ok(()) };
        let path = file.to_str().ok_or_else(|| Failure::Usage(anyhow!("{}: the path is not UTF-8", file.display())))?;
        self.push(name, &escaped(path));
        Ok(())
    }

    /// Replaces a parameter that has one of these names.
    fn set(&mut self, names: &[&str], name: &str, value: &str) {
        if let Some((base, query)) = self.text.split_once('?') {
            let is_other = |pair: &&str| !names.contains(&pair.split('=').next().unwrap_or_default());
            let others: Vec<&str> = query.split('&').filter(is_other).collect();
            self.text =
                if others.is_empty() { base.to_owned() } else { format!("{base}?{others}", others = others.join("&")) };
        }
        self.push(name, value);
    }

    fn push(&mut self, name: &str, value: &str) {
        let mark = if self.text.contains('?') { '&' } else { '?' };
        self.text.push_str(&format!("{mark}{name}={value}"));
    }
}

/// Escapes all that could mean something else in a query.
fn escaped(text: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// A directory with a certificate, and the rule that names its files.
    struct Named(tempfile::TempDir);

    impl Named {
        fn new() -> Self {
            // The name shows that paths are escaped.
            let directory = tempfile::Builder::new().prefix("a b&c").tempdir().expect("a directory");
            let key = KeyPair::generate().expect("a key");
            let cert = CertificateParams::new(["h".to_owned()]).expect("a name").self_signed(&key).expect("signed");
            std::fs::write(directory.path().join("ca.pem"), cert.pem()).expect("written");
            std::fs::write(directory.path().join("cert.pem"), cert.pem()).expect("written");
            std::fs::write(directory.path().join("key.pem"), key.serialize_pem()).expect("written");
            Self(directory)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn transport(&self, plaintext: Plaintext, names: &[&str]) -> Transport {
            let file = |name: &str| names.contains(&name).then(|| self.path(name));
            let files = TlsFiles { ca: file("ca.pem"), client_cert: file("cert.pem"), client_key: file("key.pem") };
            Transport { plaintext, trust: files.read().expect("the files are right"), files }
        }

        /// The text with the directory left out.
        fn shown(&self, told: Result<String, Failure>) -> String {
            let directory = format!("{}/", escaped(self.0.path().to_str().expect("UTF-8")));
            match told {
                Ok(url) => url.replace(&directory, ""),
                Err(Failure::Usage(error)) => format!("2 {error}"),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    const ALL: [&str; 3] = ["ca.pem", "cert.pem", "key.pem"];

    #[test]
    fn addresses_get_the_files_that_they_lack() {
        let named = Named::new();
        let own = escaped(named.path("ca.pem").to_str().expect("UTF-8"));
        let all = named.transport(Plaintext::Refused, &ALL);
        let ca = named.transport(Plaintext::Refused, &["ca.pem"]);
        for (transport, url, expected) in [
            (&ca, "rediss://h".to_owned(), "rediss://h?cacert=ca.pem"),
            (&all, "rediss://h/3".to_owned(), "rediss://h/3?cacert=ca.pem&cert=cert.pem&key=key.pem"),
            (&ca, format!("rediss://h?cacert={own}"), "rediss://h?cacert=ca.pem"),
            (&ca, "rediss+sentinel://h/main?db=4".to_owned(), "rediss+sentinel://h/main?db=4&cacert=ca.pem"),
            (&ca, "unix:///run/redis.sock".to_owned(), "unix:///run/redis.sock"),
        ] {
            assert_eq!(named.shown(transport.redis(&url)), expected, "{url}");
        }
        let verify = "sslmode=verify-full";
        for (transport, url, expected) in [
            (&ca, "postgres://h/d".to_owned(), format!("postgres://h/d?{verify}&sslrootcert=ca.pem")),
            (
                &all,
                "postgres://h/d?sslmode=prefer&port=1".to_owned(),
                format!("postgres://h/d?port=1&{verify}&sslrootcert=ca.pem&sslcert=cert.pem&sslkey=key.pem"),
            ),
            (&ca, "postgres://h/d?sslmode=require".to_owned(), format!("postgres://h/d?{verify}&sslrootcert=ca.pem")),
            (
                &ca,
                format!("postgres://h/d?{verify}&sslrootcert=system"),
                format!("postgres://h/d?{verify}&sslrootcert=system"),
            ),
            (&ca, "postgres://a@%2Ftmp/d".to_owned(), "postgres://a@%2Ftmp/d".to_owned()),
            (&ca, "mysql://h/d".to_owned(), "mysql://h/d?ssl-mode=VERIFY_IDENTITY&ssl-ca=ca.pem".to_owned()),
            (
                &all,
                format!("mysql://h/d?ssl-ca={own}"),
                "mysql://h/d?ssl-ca=ca.pem&ssl-cert=cert.pem&ssl-key=key.pem".to_owned(),
            ),
        ] {
            assert_eq!(named.shown(transport.sql(&url)), expected, "{url}");
        }
    }

    #[test]
    fn files_and_plain_text_exclude_each_other() {
        let named = Named::new();
        let ca = named.transport(Plaintext::Allowed, &["ca.pem"]);
        for (told, says) in [
            (ca.redis("redis://127.0.0.1"), "write rediss://"),
            (ca.redis("redis+cluster://h"), "write rediss://"),
            (ca.sql("postgres://127.0.0.1/d?sslmode=disable"), "sslmode=verify-full"),
            (ca.sql("mysql://h/d?ssl-mode=DISABLED"), "ssl-mode=VERIFY_IDENTITY"),
        ] {
            let told = named.shown(told);
            assert!(told.starts_with("2 ") && told.contains(says) && !told.contains('\n'), "{told}");
        }
    }

    #[test]
    fn each_server_of_a_store_of_locks_is_judged() {
        let named = Named::new();
        let told = |rule: Plaintext, text: &str| {
            let store = text.parse::<LockAddress>().expect("an address");
            named.shown(named.transport(rule, &[]).locks(store).map(|store| store.to_string()))
        };
        for (text, advice) in [
            ("redis://10.0.0.5", "rediss://"),
            ("redis://h?layout=redisson", "rediss://"),
            ("redis://127.0.0.1 redis://127.0.0.1:2 redis://h", "rediss://"),
            ("postgres://ann:s3cret@h/shop", "sslmode=verify-full"),
            ("postgres://h/shop?layout=session", "sslmode=verify-full"),
            ("mysql://h/shop", "ssl-mode=VERIFY_IDENTITY"),
            #[cfg(feature = "etcd")]
            ("etcd://127.0.0.1,h", "etcds://"),
        ] {
            let refused = told(Plaintext::Refused, text);
            assert!(refused.starts_with("2 ") && refused.contains(advice), "{text}: {refused}");
            assert!(refused.contains("--allow-plaintext") && !refused.contains("s3cret"), "{refused}");
            assert!(!told(Plaintext::Allowed, text).starts_with("2 "), "{text}");
        }
        for text in ["redis://localhost", "rediss://h", "postgres://h/shop?sslmode=require", "sqlite:/tmp/locks"] {
            assert!(!told(Plaintext::Refused, text).starts_with("2 "), "{text}");
        }
    }
}
