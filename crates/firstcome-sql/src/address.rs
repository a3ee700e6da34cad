//! Reads the address of a database.

mod security;

use super::SqlError;
use firstcome_store::address::{Destination, Encryption, Host};
use security::{Security, SslMode};
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::fmt;
use std::str::FromStr;

/// Which database an address names, and how to connect to it. Shown without user and password.
#[derive(Clone)]
pub enum Address {
    /// `postgres://[user[:password]@]host[:port]/database[?sslmode=…&sslrootcert=FILE&sslcert=FILE&sslkey=FILE]`.
    Postgres(PgConnectOptions),
    /// `mysql://[user[:password]@]host[:port]/database[?ssl-mode=…&ssl-ca=FILE&ssl-cert=FILE&ssl-key=FILE]`: MySQL or MariaDB.
    MySql(MySqlConnectOptions),
}

const WANTED: &str =
    "the address must be postgres://user:password@host:port/database or mysql://user:password@host:port/database";

impl Address {
    /// Reads an address, and the PEM files that it names. Nothing is sent, and no error repeats a password.
    ///
    /// What the address leaves out comes from where clients of PostgreSQL look: `PGHOST`, `PGPASSWORD`, `PGSSLMODE` and so on.
    ///
    /// TLS is as libpq (`sslmode`) and the client of MySQL (`ssl-mode`) have it, except where this is stricter:
    ///
    /// - A CA without a mode means that certificate and name are checked. `require` with a CA checks them too.
    /// - `verify-ca` checks the name as well: the authorities of the platform stay trusted beside a CA, and they give a
    ///   certificate of another name to anyone.
    /// - `allow` uses TLS if the server offers it, as `prefer` does.
    /// - A CA beside a mode that checks nothing is refused.
    ///
    /// Unknown parameters are refused. The error names them without their values.
    pub fn parse(url: &str) -> Result<Self, SqlError> {
        let wanted = |_| SqlError::broken(WANTED);
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                let (url, security) = Security::of_postgres(url)?;
                let options = PgConnectOptions::from_str(&url).map_err(wanted)?;
                // Otherwise every statement goes to the log of the program, with names of locks and bidders.
                let options = options.application_name("firstcome").disable_statement_logging();
                Ok(Self::Postgres(secured_postgres(options, &security)))
            }
            Some("mysql" | "mariadb") => {
                let (url, security) = Security::of_mysql(url)?;
                let options = MySqlConnectOptions::from_str(&url).map_err(wanted)?;
                Ok(Self::MySql(secured_mysql(options.disable_statement_logging(), &security)))
            }
            _ => Err(SqlError::broken(WANTED)),
        }
    }

    /// Where the address leads, with what the environment says of it.
    pub fn destination(&self) -> Destination {
        match self {
            Self::Postgres(options) => {
                let encryption = match options.get_ssl_mode() {
                    PgSslMode::Disable => Encryption::Never,
                    PgSslMode::Allow | PgSslMode::Prefer => Encryption::IfOffered,
                    PgSslMode::Require => Encryption::Unchecked,
                    PgSslMode::VerifyCa | PgSslMode::VerifyFull => Encryption::Checked,
                };
                let host = options.get_host();
                // A host that is a path is the directory of a socket, as in libpq.
                let is_socket = options.get_socket().is_some() || host.starts_with('/');
                to(host, options.get_port(), is_socket, encryption)
            }
            Self::MySql(options) => {
                let encryption = match options.get_ssl_mode() {
                    MySqlSslMode::Disabled => Encryption::Never,
                    MySqlSslMode::Preferred => Encryption::IfOffered,
                    MySqlSslMode::Required => Encryption::Unchecked,
                    MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity => Encryption::Checked,
                };
                to(options.get_host(), options.get_port(), options.get_socket().is_some(), encryption)
            }
        }
    }

    /// Host and port of the server, or the path of its socket.
    pub(crate) fn server(&self) -> String {
        match self {
            Self::Postgres(options) => postgres_server(options),
            Self::MySql(options) => mysql_server(options),
        }
    }

    /// The address if it is one of PostgreSQL.
    pub fn postgres(url: &str) -> Result<PgConnectOptions, SqlError> {
        match Self::parse(url)? {
            Self::Postgres(options) => Ok(options),
            Self::MySql(_) => Err(SqlError::broken("the address must begin with postgres://")),
        }
    }

    /// The address if it is one of MySQL or MariaDB.
    pub fn mysql(url: &str) -> Result<MySqlConnectOptions, SqlError> {
        match Self::parse(url)? {
            Self::MySql(options) => Ok(options),
            Self::Postgres(_) => Err(SqlError::broken("the address must begin with mysql://")),
        }
    }
}

fn to(name: &str, port: u16, is_socket: bool, encryption: Encryption) -> Destination {
    let hosts = if is_socket { Vec::new() } else { vec![host(name, port)] };
    Destination { hosts, encryption }
}

fn host(name: &str, port: u16) -> Host {
    Host::new(name.trim_matches(['[', ']']), port)
}

/// See [`Address::server`].
pub(crate) fn postgres_server(options: &PgConnectOptions) -> String {
    let (name, port) = (options.get_host(), options.get_port());
    let directory = options.get_socket().map(|directory| directory.display().to_string());
    match directory.or_else(|| name.starts_with('/').then(|| name.to_owned())) {
        // The name of the socket is that of libpq.
        Some(directory) => format!("{}/.s.PGSQL.{port}", directory.trim_end_matches('/')),
        None => host(name, port).to_string(),
    }
}

/// See [`Address::server`].
pub(crate) fn mysql_server(options: &MySqlConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => host(options.get_host(), options.get_port()).to_string(),
    }
}

fn secured_postgres(options: PgConnectOptions, security: &Security) -> PgConnectOptions {
    let mode = match security.mode {
        // As in libpq, a socket of this machine is never encrypted.
        _ if options.get_socket().is_some() => PgSslMode::Disable,
        SslMode::Disable => PgSslMode::Disable,
        SslMode::Prefer => PgSslMode::Prefer,
        SslMode::Require => PgSslMode::Require,
        SslMode::Verify => PgSslMode::VerifyFull,
    };
    // An empty text takes the place of a file that the environment names.
    let ca = security.trust.ca_pem().unwrap_or_default();
    let options = options.ssl_mode(mode).ssl_root_cert_from_pem(ca.to_vec());
    match security.trust.identity() {
        Some(own) => options.ssl_client_cert_from_pem(own.certificate_pem()).ssl_client_key_from_pem(own.key_pem()),
        None => options,
    }
}

fn secured_mysql(options: MySqlConnectOptions, security: &Security) -> MySqlConnectOptions {
    let options = options.ssl_mode(match security.mode {
        SslMode::Disable => MySqlSslMode::Disabled,
        SslMode::Prefer => MySqlSslMode::Preferred,
        SslMode::Require => MySqlSslMode::Required,
        SslMode::Verify => MySqlSslMode::VerifyIdentity,
    });
    let options = match security.trust.ca_pem() {
        Some(ca) => options.ssl_ca_from_pem(ca.to_vec()),
        None => options,
    };
    match security.trust.identity() {
        Some(own) => options.ssl_client_cert_from_pem(own.certificate_pem()).ssl_client_key_from_pem(own.key_pem()),
        None => options,
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(options) => {
                let database = options.get_database().unwrap_or_default();
                write!(f, "postgres://{}:{}/{database}", options.get_host(), options.get_port())
            }
            Self::MySql(options) => {
                let database = options.get_database().unwrap_or_default();
                write!(f, "mysql://{}:{}/{database}", options.get_host(), options.get_port())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_of_two_kinds_and_keeps_its_password() {
        let postgres = Address::parse("postgres://ann:s3cret@db.example:6543/shop").unwrap();
        assert_eq!(format!("{postgres:?}"), "postgres://db.example:6543/shop");
        let mysql = Address::parse("mysql://ann:s3cret@db.example:3307/shop").unwrap();
        assert_eq!(format!("{mysql:?}"), "mysql://db.example:3307/shop");
        assert!(Address::postgres("mysql://ann@db/shop").is_err() && Address::mysql("postgres://ann@db/shop").is_err());
        for wrong in ["redis://ann:s3cret@db", "s3cret", "postgres://ann:s3cret@db:port/shop", "mysql://ann:s3cret@:x/"]
        {
            let SqlError::Broken { says } = Address::parse(wrong).unwrap_err() else { panic!("{wrong} is no address") };
            assert!(!says.contains("s3cret"), "{says}");
        }
    }

    #[test]
    fn an_address_tells_where_it_leads() {
        for (url, host, encryption) in [
            ("postgres://ann@db.example/shop?sslmode=disable", "db.example:5432", Encryption::Never),
            ("postgres://ann@db.example/shop?sslmode=allow", "db.example:5432", Encryption::IfOffered),
            ("postgres://ann@db.example/shop", "db.example:5432", Encryption::IfOffered),
            ("postgres://ann@db.example/shop?sslmode=require", "db.example:5432", Encryption::Unchecked),
            ("postgres://ann@db.example/shop?sslrootcert=system", "db.example:5432", Encryption::Checked),
            ("postgres://ann@127.0.0.1/shop?host=db.example", "db.example:5432", Encryption::IfOffered),
            ("postgres://ann@127.0.0.1/shop?hostaddr=10.0.0.5", "10.0.0.5:5432", Encryption::IfOffered),
            ("postgres://ann@[::1]:1/shop", "[::1]:1", Encryption::IfOffered),
            ("postgres://ann@%2Ftmp/shop", "", Encryption::Never),
            ("mysql://ann@db.example/shop", "db.example:3306", Encryption::IfOffered),
            ("mysql://ann@db.example/shop?ssl-mode=DISABLED", "db.example:3306", Encryption::Never),
            ("mysql://ann@db.example/shop?ssl-mode=REQUIRED", "db.example:3306", Encryption::Unchecked),
            ("mysql://ann@db.example/shop?ssl-mode=VERIFY_CA", "db.example:3306", Encryption::Checked),
            ("mysql://ann@db.example/shop?socket=/run/mysqld.sock", "", Encryption::IfOffered),
        ] {
            let found = Address::parse(url).unwrap().destination();
            let hosts: Vec<String> = found.hosts.iter().map(Host::to_string).collect();
            assert_eq!((hosts.join(" ").as_str(), found.encryption), (host, encryption), "{url}");
        }
    }

    #[test]
    fn a_server_is_named_by_host_and_port_or_by_its_socket() {
        for (url, server) in [
            ("postgres://ann:s3cret@db.example/shop", "db.example:5432"),
            ("postgres://ann:s3cret@[::1]:1/shop", "[::1]:1"),
            ("postgres://ann:s3cret@%2Ftmp/shop", "/tmp/.s.PGSQL.5432"),
            ("postgres://ann@h/shop?host=/run/postgresql/&port=5433&password=s3cret", "/run/postgresql/.s.PGSQL.5433"),
            ("mysql://ann:s3cret@db.example/shop", "db.example:3306"),
            ("mysql://ann:s3cret@h/shop?socket=/run/mysqld.sock", "/run/mysqld.sock"),
        ] {
            assert_eq!(Address::parse(url).unwrap().server(), server, "{url}");
        }
    }

    #[test]
    fn a_socket_of_this_machine_is_not_encrypted() {
        for (url, expected) in [
            ("postgres://ann@%2Ftmp/shop?sslmode=require", PgSslMode::Disable),
            ("postgres://ann@localhost/shop?sslmode=require", PgSslMode::Require),
        ] {
            let options = Address::postgres(url).unwrap();
            assert_eq!(format!("{:?}", options.get_ssl_mode()), format!("{expected:?}"), "{url}");
        }
    }
}
