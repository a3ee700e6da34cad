//! TLS to real servers: what the address demands is kept, or nothing is sent.

use super::databases::{Running, mariadb_with, postgres_with};
use super::in_time;
use firstcome_sql::{Address, SessionLocks, SqlError, SqlOptions, connect};
use firstcome_test_servers::{Authority, CertificateFiles, Flaw, Kind};
use sqlx::{MySqlConnection, PgConnection, query_scalar};
use std::fs;

/// An authority, and what signs certificates that no client of it trusts.
struct Pki {
    ours: Authority,
    other: Authority,
}

impl Pki {
    fn new() -> Self {
        let authority = || Authority::new().expect("an authority");
        Self { ours: authority(), other: authority() }
    }

    fn sign(&mut self, flaw: Flaw) -> CertificateFiles {
        let files = self.ours.sign(flaw).expect("signed");
        Authority::give_to_postgres(&files).expect("given away");
        files
    }
}

async fn start(kind: Kind, certificate: Option<&CertificateFiles>) -> Option<Running> {
    let settings = certificate.map(|files| files.settings(kind)).unwrap_or_default();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    match kind {
        Kind::Postgres => postgres_with(&settings).await,
        _ => mariadb_with(&settings).await,
    }
}

/// The version of TLS of a new connection, empty in plain text; or why there is no connection.
async fn version(kind: Kind, url: &str) -> Result<String, SqlError> {
    let times = SqlOptions::default();
    let version = if kind == Kind::Postgres {
        let mut connection: PgConnection = connect(&Address::postgres(url)?, &times).await?;
        let text = "SELECT coalesce(version, '') FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        query_scalar(text).fetch_one(&mut connection).await
    } else {
        let mut connection: MySqlConnection = connect(&Address::mysql(url)?, &times).await?;
        let text = "SELECT CAST(variable_value AS CHAR) FROM information_schema.session_status WHERE variable_name = 'Ssl_version'";
        query_scalar(text).fetch_one(&mut connection).await
    };
    Ok(version.expect("it tells"))
}

/// The words of a mode: without checks if the server has TLS, with TLS in any case, with all checks.
const fn modes(kind: Kind) -> [&'static str; 3] {
    match kind {
        Kind::Postgres => ["sslmode=prefer", "sslmode=require", "sslmode=verify-full&sslrootcert="],
        _ => ["ssl-mode=PREFERRED", "ssl-mode=REQUIRED", "ssl-mode=VERIFY_IDENTITY&ssl-ca="],
    }
}

#[track_caller]
fn refused(told: Result<String, SqlError>, says: &str) {
    let error = told.expect_err("the server is not the right one").to_string();
    assert!(error.contains(says) && !error.contains('\n'), "{error}");
}

async fn checks_the_certificate(kind: Kind) {
    let mut pki = Pki::new();
    let [prefer, require, verify] = modes(kind);
    let (ca, other_ca) = (pki.ours.ca(), pki.other.ca());
    let verified = |url: &str, ca: &std::path::Path| format!("{url}?{verify}{}", ca.display());

    let right = pki.sign(Flaw::None);
    let Some(server) = start(kind, Some(&right)).await else { return };
    for url in [server.url().to_owned(), format!("{}?{prefer}", server.url()), format!("{}?{require}", server.url())] {
        assert_eq!(version(kind, &url).await.as_deref(), Ok("TLSv1.3"), "{url}");
    }
    assert_eq!(version(kind, &verified(server.url(), &ca)).await.as_deref(), Ok("TLSv1.3"));
    refused(version(kind, &verified(server.url(), &other_ca)).await, "not from a trusted authority");
    // The error reaches the callers of a pool and of locks, too.
    let opened = SessionLocks::open(&verified(server.url(), &other_ca), SqlOptions::default()).await;
    refused(opened.map(|_| String::new()), "name the CA that signed it");
    let weaker =
        verified(server.url(), &other_ca).replace("verify-full", "require").replace("VERIFY_IDENTITY", "REQUIRED");
    refused(version(kind, &weaker).await, "not from a trusted authority");
    // An authority without a mode is not decoration.
    let silent =
        verified(server.url(), &other_ca).replace("sslmode=verify-full&", "").replace("ssl-mode=VERIFY_IDENTITY&", "");
    refused(version(kind, &silent).await, "not from a trusted authority");
    drop(server);

    for (flaw, says) in [(Flaw::Expired, "out of date"), (Flaw::OtherName, "for another name")] {
        let files = pki.sign(flaw);
        let server = start(kind, Some(&files)).await.expect("it is installed");
        refused(version(kind, &verified(server.url(), &ca)).await, says);
        assert!(version(kind, &format!("{}?{require}", server.url())).await.is_ok(), "{require} checks nothing");
    }
}

async fn never_falls_back_to_plain_text(kind: Kind) {
    let pki = Pki::new();
    let [prefer, require, verify] = modes(kind);
    let Some(server) = start(kind, None).await else { return };
    assert_eq!(version(kind, &format!("{}?{prefer}", server.url())).await.as_deref(), Ok(""));
    for url in [format!("{}?{require}", server.url()), format!("{}?{verify}{}", server.url(), pki.ours.ca().display())]
    {
        refused(version(kind, &url).await, "offers no TLS");
    }
}

#[tokio::test]
async fn the_certificate_of_postgres_is_checked() {
    in_time(checks_the_certificate(Kind::Postgres)).await;
}

#[tokio::test]
async fn the_certificate_of_mariadb_is_checked() {
    in_time(checks_the_certificate(Kind::MariaDb)).await;
}

#[tokio::test]
async fn postgres_without_tls_is_refused_where_tls_is_demanded() {
    in_time(never_falls_back_to_plain_text(Kind::Postgres)).await;
}

#[tokio::test]
async fn mariadb_without_tls_is_refused_where_tls_is_demanded() {
    in_time(never_falls_back_to_plain_text(Kind::MariaDb)).await;
}

#[tokio::test]
async fn postgres_that_demands_a_client_certificate_gets_it() {
    in_time(async {
        let mut pki = Pki::new();
        let (server_files, own) = (pki.sign(Flaw::None), pki.ours.sign(Flaw::None).expect("signed"));
        let foreign = pki.other.sign(Flaw::None).expect("signed");
        let rules = pki.ours.ca().with_file_name("pg_hba.conf");
        fs::write(&rules, "hostssl all all 127.0.0.1/32 trust\n").expect("written");
        let mut settings = server_files.settings(Kind::Postgres);
        settings.push(format!("ssl_ca_file={}", pki.ours.ca().display()));
        settings.push(format!("hba_file={}", rules.display()));
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let Some(server) = postgres_with(&settings).await else { return };
        let mut connection: PgConnection =
            connect(&Address::postgres(server.url()).expect("an address"), &SqlOptions::default())
                .await
                .expect("it answers");
        fs::write(&rules, "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n").expect("written");
        let _: bool = query_scalar("SELECT pg_reload_conf()").fetch_one(&mut connection).await.expect("reloaded");

        let base = format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), pki.ours.ca().display());
        let with = |files: &CertificateFiles| {
            format!("{base}&sslcert={}&sslkey={}", files.cert.display(), files.key.display())
        };
        // The server takes a moment to read its rules again.
        while version(Kind::Postgres, &base).await.is_ok() {
            tokio::task::yield_now().await;
        }
        refused(version(Kind::Postgres, &base).await, "client certificate");
        assert_eq!(version(Kind::Postgres, &with(&own)).await.as_deref(), Ok("TLSv1.3"));
        assert!(version(Kind::Postgres, &with(&foreign)).await.is_err(), "the server does not know that authority");
    })
    .await;
}
