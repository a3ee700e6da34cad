//! What an address says about TLS.

use crate::SqlError;
use firstcome_store::address::unknown_parameter;
use firstcome_tls::{TlsFiles, Trust};

/// How a connection is secured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SslMode {
    /// In plain text.
    Disable,
    /// By TLS if the server offers it. Nothing is checked.
    Prefer,
    /// By TLS, or not at all. Nothing is checked.
    Require,
    /// By TLS with a certificate of a trusted authority that is for the name of the server.
    Verify,
}

/// Mode and files.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) mode: SslMode,
    pub(super) trust: Trust,
}

/// Where a parameter comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Address,
    Environment,
}

/// The parameters of an address that concern TLS.
#[derive(Default)]
struct Parameters {
    mode: Option<String>,
    ca: Option<(String, Source)>,
    cert: Option<String>,
    key: Option<String>,
}

/// The parameters of an address of PostgreSQL: those that [`split`] and sqlx read.
const OF_POSTGRES: [&str; 14] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "application_name",
    "options",
    "statement-cache-capacity",
    "channel_binding",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
];

/// The parameters of an address of MySQL or MariaDB: those that [`split`] and sqlx read.
const OF_MYSQL: [&str; 10] = [
    "socket",
    "charset",
    "collation",
    "timezone",
    "time-zone",
    "statement-cache-capacity",
    "ssl-mode",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
];

/// The value of `sslrootcert` that means the authorities of the platform, as in libpq.
const SYSTEM: &str = "system";

impl Security {
    /// Splits what concerns TLS off an address of PostgreSQL. What it leaves out comes from the environment.
    pub(super) fn of_postgres(url: &str) -> Result<(String, Self), SqlError> {
        let (rest, mut parameters) = split(url, &OF_POSTGRES)?;
        parameters.mode = parameters.mode.or_else(|| environment("PGSSLMODE"));
        let ca = || environment("PGSSLROOTCERT").map(|file| (file, Source::Environment));
        parameters.ca = parameters.ca.or_else(ca);
        if parameters.cert.is_none() && parameters.key.is_none() {
            (parameters.cert, parameters.key) = (environment("PGSSLCERT"), environment("PGSSLKEY"));
        }
        let mode = parameters.mode.as_deref().map(str::to_ascii_lowercase);
        let mode = match mode.as_deref() {
            None => None,
            Some("disable") => Some(SslMode::Disable),
            Some("allow" | "prefer") => Some(SslMode::Prefer),
            Some("require") => Some(SslMode::Require),
            Some("verify-ca" | "verify-full") => Some(SslMode::Verify),
            Some(_) => {
                return Err(SqlError::broken(
                    "unknown sslmode: write disable, allow, prefer, require, verify-ca or verify-full",
                ));
            }
        };
        Ok((rest, parameters.security(mode)?))
    }

    /// Splits what concerns TLS off an address of MySQL or MariaDB.
    pub(super) fn of_mysql(url: &str) -> Result<(String, Self), SqlError> {
        let (rest, parameters) = split(url, &OF_MYSQL)?;
        let mode = parameters.mode.as_deref().map(|mode| mode.to_ascii_lowercase().replace('-', "_"));
        let mode = match mode.as_deref() {
            None => None,
            Some("disabled") => Some(SslMode::Disable),
            Some("preferred") => Some(SslMode::Prefer),
            Some("required") => Some(SslMode::Require),
            Some("verify_ca" | "verify_identity") => Some(SslMode::Verify),
            Some(_) => {
                return Err(SqlError::broken(
                    "unknown ssl-mode: write DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY",
                ));
            }
        };
        Ok((rest, parameters.security(mode)?))
    }
}

impl Parameters {
    fn security(self, mode: Option<SslMode>) -> Result<Security, SqlError> {
        let mode = match (mode, &self.ca) {
            (None, None) => SslMode::Prefer,
            (None, Some(_)) => SslMode::Verify,
            (Some(SslMode::Disable | SslMode::Prefer), Some((_, Source::Address))) => {
                return Err(SqlError::broken(
                    "the address names a CA, and its mode checks no certificate: write sslmode=verify-full (ssl-mode=VERIFY_IDENTITY), or leave the CA out",
                ));
            }
            (Some(SslMode::Require), Some(_)) => SslMode::Verify,
            (Some(mode), _) => mode,
        };
        let ca = self.ca.map(|(file, _)| file).filter(|file| file != SYSTEM && mode == SslMode::Verify);
        let files = TlsFiles {
            ca: ca.map(Into::into),
            client_cert: self.cert.map(Into::into),
            client_key: self.key.map(Into::into),
        };
        let trust = files.read().map_err(|error| SqlError::broken(error.to_string()))?;
        Ok(Security { mode, trust })
    }
}

/// Returns the address without the parameters that concern TLS, and these. Both ways to write each are known to sqlx.
///
/// Refuses parameters that are not `known`. sqlx ignores them, and writes their values to the log: a password, if the parameter
/// is a mistyped `password`. A connection could also be less secure than its address says.
fn split(url: &str, known: &[&str]) -> Result<(String, Parameters), SqlError> {
    let mut found = Parameters::default();
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), found)) };
    let mut rest = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = value.into_owned();
        match &*name {
            "sslmode" | "ssl-mode" => found.mode = Some(value),
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" | "sslca" => found.ca = Some((value, Source::Address)),
            "sslcert" | "ssl-cert" => found.cert = Some(value),
            "sslkey" | "ssl-key" => found.key = Some(value),
            "channel_binding" if value == "require" => {
                return Err(SqlError::broken(
                    "channel_binding=require cannot be kept: leave it out, and write sslmode=verify-full",
                ));
            }
            // Any other value demands nothing, and sqlx does not know the parameter.
            "channel_binding" if known.contains(&"channel_binding") => {}
            // sqlx knows `options[search_path]=shop` as a form of `options`.
            name if known.contains(&name) || (known.contains(&"options") && is_option(name)) => {
                rest.append_pair(name, &value);
            }
            unknown => return Err(SqlError::broken(unknown_parameter(query, unknown, known))),
        }
    }
    let rest = rest.finish();
    Ok((if rest.is_empty() { base.to_owned() } else { format!("{base}?{rest}") }, found))
}

fn is_option(name: &str) -> bool {
    name.strip_prefix("options[").is_some_and(|option| option.ends_with(']'))
}

#[expect(clippy::disallowed_methods, reason = "libpq's variables, which sqlx reads as well")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> Result<SslMode, String> {
        let security = if url.starts_with("my") { Security::of_mysql(url) } else { Security::of_postgres(url) };
        security.map(|(_, security)| security.mode).map_err(|error| error.to_string())
    }

    #[test]
    fn modes_are_those_of_libpq_and_of_the_client_of_mysql() {
        for (url, expected) in [
            ("postgres://h/d", SslMode::Prefer),
            ("postgres://h/d?sslmode=disable", SslMode::Disable),
            ("postgres://h/d?sslmode=allow", SslMode::Prefer),
            ("postgres://h/d?sslmode=prefer", SslMode::Prefer),
            ("postgres://h/d?sslmode=require", SslMode::Require),
            ("postgres://h/d?sslmode=verify-ca", SslMode::Verify),
            ("postgres://h/d?sslmode=verify-full", SslMode::Verify),
            ("postgres://h/d?sslrootcert=system", SslMode::Verify),
            ("postgres://h/d?sslrootcert=system&sslmode=require", SslMode::Verify),
            ("mysql://h/d", SslMode::Prefer),
            ("mysql://h/d?ssl-mode=DISABLED", SslMode::Disable),
            ("mysql://h/d?ssl-mode=preferred", SslMode::Prefer),
            ("mysql://h/d?ssl-mode=REQUIRED", SslMode::Require),
            ("mysql://h/d?ssl-mode=VERIFY_CA", SslMode::Verify),
            ("mysql://h/d?ssl-mode=verify-identity", SslMode::Verify),
        ] {
            assert_eq!(mode(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn parameters_that_would_have_no_effect_are_refused() {
        for (url, says) in [
            ("postgres://h/d?sslmode=verify", "unknown sslmode"),
            ("mysql://h/d?ssl-mode=verify-full", "unknown ssl-mode"),
            ("postgres://h/d?sslmode=prefer&sslrootcert=/ca.pem", "checks no certificate"),
            ("postgres://h/d?sslmode=disable&sslrootcert=system", "checks no certificate"),
            ("mysql://h/d?ssl-mode=PREFERRED&ssl-ca=/ca.pem", "checks no certificate"),
            ("postgres://h/d?sslrootcrt=/ca.pem", "unknown parameter \"sslrootcrt\""),
            ("postgres://h/d?tls-ca=/ca.pem", "unknown parameter \"tls-ca\""),
            ("postgres://h/d?channel_binding=require", "channel_binding"),
            ("postgres://h/d?sslrootcert=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("mysql://h/d?ssl-cert=/nowhere/cert.pem", "without the key"),
        ] {
            let error = mode(url).expect_err(url);
            assert!(error.contains(says) && !error.contains('\n'), "{url}: {error}");
        }
    }

    #[test]
    fn other_parameters_stay() {
        let (rest, _) = Security::of_postgres("postgres://h/d?user=b%26c&sslmode=disable&port=1").expect("an address");
        assert_eq!(rest, "postgres://h/d?user=b%26c&port=1");
        let (rest, _) = Security::of_postgres("postgres://h/d?channel_binding=prefer").expect("an address");
        assert_eq!(rest, "postgres://h/d");
        let (rest, _) = Security::of_mysql("mysql://h/d?ssl-mode=REQUIRED&time-zone=%2B08:00").expect("an address");
        assert_eq!(rest, "mysql://h/d?time-zone=%2B08%3A00");
    }

    #[test]
    fn every_known_parameter_is_read() {
        for name in
            OF_POSTGRES.into_iter().chain(["options[search_path]", "ssl-mode", "ssl-root-cert", "ssl-ca", "ssl-cert"])
        {
            assert!(split(&format!("postgres://h/d?{name}=1"), &OF_POSTGRES).is_ok(), "{name}");
        }
        for name in OF_MYSQL.into_iter().chain(["sslmode", "sslca", "sslcert", "sslkey"]) {
            assert!(split(&format!("mysql://h/d?{name}=1"), &OF_MYSQL).is_ok(), "{name}");
        }
    }

    #[test]
    fn unknown_parameters_are_refused_without_their_values() {
        for (url, says) in [
            ("postgres://h/d?pasword=hunter2", "unknown parameter \"pasword\": did you mean password?"),
            ("postgres://h/d?Sslmode=hunter2", "did you mean sslmode?"),
            ("postgres://h/d?connect_timeout=hunter2", "unknown parameter \"connect_timeout\": remove it"),
            ("postgres://h/d?options[search_path=hunter2", "unknown parameter \"options[search_path\""),
            ("postgres://h/d?socket=hunter2", "unknown parameter \"socket\""),
            ("postgres://ann:a?hunter2@h/d", "%3F for a question mark"),
            ("mysql://h/d?pasword=hunter2", "unknown parameter \"pasword\": remove it; this address takes socket"),
            ("mysql://h/d?password=hunter2", "unknown parameter \"password\": remove it"),
            ("mysql://h/d?sockett=hunter2", "did you mean socket?"),
            ("mysql://h/d?options[a]=hunter2", "unknown parameter \"options[a]\""),
            ("mysql://h/d?channel_binding=hunter2", "unknown parameter \"channel_binding\""),
        ] {
            let error = mode(url).expect_err(url);
            assert!(error.contains(says) && !error.contains("hunter2") && !error.contains('\n'), "{url}: {error}");
        }
    }
}
