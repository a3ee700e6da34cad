//! How commands reach their servers: plain text to another machine only by permission, and TLS with the files of the command line.

use crate::support::machine_has;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use crate::support::world::World;
use firstcome_test_servers::{Authority, CertificateFiles, Durability, Flaw, Kind, Options, Server as Database};
use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};
use std::fs;
use std::path::Path;
use tokio::runtime::Runtime;

/// The same server by a name that is not one of loopback, and that leads to this machine all the same. The client of Redis refuses
/// the first one.
fn beyond(url: &str) -> String {
    url.replace("127.0.0.1", if url.starts_with("redis") { "127.1" } else { "0.0.0.0" })
}

#[track_caller]
fn refused(ended: Ended, code: i32, says: &str) {
    let told = ended.with(code);
    assert!(told.contains(says) && told.trim_end().lines().count() == 1 && !told.contains("s3cret"), "{told}");
}

#[test]
fn plain_text_to_another_machine_is_refused_by_every_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let loopback = "redis://127.0.0.1:1";
    let (redis, sql) = ("redis://redis.example", "postgres://ann@db.example/shop");
    let (mysql, prefer) = ("mysql://ann@10.0.0.5/shop", "postgres://ann@db.example/shop?sslmode=prefer");
    let secure = "postgres://ann@127.0.0.1:1/shop";
    let key = "given-0123456789-0123456789";
    fs::write(here.join("file.jsonl"), "").expect("written");
    let rows: [(&[&str], &str); 21] = [
        (&["serve", "--sql", sql], "add ?sslmode=verify-full&sslrootcert=FILE"),
        (&["serve", "--sql", mysql], "the database at 10.0.0.5:3306 is not on this machine"),
        (&["serve", "--redis", redis, "--sql", secure], "Redis at redis.example:6379 is not on this machine"),
        (&["gate", "--upstream", "http://127.0.0.1:1", "--room", "a", "--redis", redis, "--sql", secure], "rediss://"),
        (&["gate", "--upstream", "http://10.0.0.5:1", "--room", "a"], "the site at 10.0.0.5:1 is not on this machine"),
        (&["doctor", "--sql", prefer], "may be in plain text"),
        (&["doctor", "--redis", redis, "--sql", secure], "would be in plain text"),
        (&["doctor", "--store", redis], "Redis at redis.example:6379 is not on this machine"),
        (&["verify", "--sql", sql], "--allow-plaintext"),
        (&["verify", "--sql", secure, "--redis", redis], "--allow-plaintext"),
        (&["migrate", "--sql", mysql], "add ?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE"),
        (&["reconcile", "--redis", loopback, "--sql", sql], "--allow-plaintext"),
        (&["reconcile", "--redis", redis, "--sql", secure], "--allow-plaintext"),
        (&["export", "--redis", redis, "--sql", secure], "--allow-plaintext"),
        (&["import", "--redis", loopback, "--sql", sql, "file.jsonl"], "--allow-plaintext"),
        (&["lock", "a", "--store", redis, "--", "touch", "done"], "--allow-plaintext"),
        (&["lock", "a", "--store", &format!("{loopback} {redis} redis://b"), "--", "touch", "done"], "redis.example"),
        (&["once", "a", "--every", "1h", "--store", sql, "--", "touch", "done"], "--allow-plaintext"),
        (&["locks", "list", "--store", redis], "--allow-plaintext"),
        (&["drill", "coupon", "--url", "http://10.0.0.5:1"], "machine of the service"),
        (&["drill", "coupon", "--nodes", "1", "--redis", redis], "--allow-plaintext"),
    ];
    for (arguments, says) in rows {
        let mut told = command(PROGRAM, here);
        told.env("FIRSTCOME_SECRET", crate::support::world::SECRET);
        // As arguments they would be warned of.
        told.env("FIRSTCOME_DRILL_ADMIN_KEY", key).env("FIRSTCOME_DRILL_SERVICE_KEY", key);
        let told = run(told.args(arguments)).with(2);
        assert!(told.contains(says) && told.trim_end().lines().count() == 1, "{arguments:?}: {told}");
    }
    let mut with_password = command(PROGRAM, here);
    with_password.env("FIRSTCOME_REDIS", "redis://ann:s3cret@redis.example").args(["doctor", "--sql", secure]);
    refused(run(&mut with_password), 2, "Redis at redis.example:6379 is not on this machine");
    let mut unclear = command(PROGRAM, here);
    unclear.env("FIRSTCOME_ALLOW_PLAINTEXT", "maybe");
    run(unclear.args(["migrate", "--sql", sql])).with(2);
    assert!(!here.join("done").exists());
}

#[test]
fn an_operator_allows_plain_text_by_flag_variable_or_file() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let (redis, sql) = (beyond(world.redis.url()), beyond(world.sql.url()));
    world.migrate(world.sql.url());
    let doctor = || {
        let mut doctor = command(PROGRAM, world.here());
        doctor.args(["doctor", "--redis", &redis, "--sql", &sql]);
        doctor
    };
    // A line for each of the two.
    let refused = |ended: Ended| {
        let told = ended.with(2);
        assert!(told.lines().count() == 2 && told.lines().all(|line| line.contains("--allow-plaintext")), "{told}");
    };
    refused(run(&mut doctor()));
    run(doctor().arg("--allow-plaintext")).well();
    run(doctor().env("FIRSTCOME_ALLOW_PLAINTEXT", "true")).well();
    fs::write(world.here().join("own.toml"), "allow-plaintext = true\n").expect("written");
    run(doctor().args(["--config", "own.toml"])).well();
    fs::write(world.here().join("own.toml"), "allow-plaintext = false\n").expect("written");
    refused(run(doctor().args(["--config", "own.toml"])));
    // Loopback needs no permission.
    firstcome(world.here(), &["doctor", "--redis", world.redis.url(), "--sql", world.sql.url()]).well();
}

/// Files of TLS as a command line names them.
fn named<'a>(ca: &'a str, own: Option<(&'a str, &'a str)>) -> Vec<&'a str> {
    let mut flags = vec!["--tls-ca", ca];
    if let Some((cert, key)) = own {
        flags.extend(["--tls-client-cert", cert, "--tls-client-key", key]);
    }
    flags
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A Redis under TLS with this certificate and these settings.
fn redis(runtime: &Runtime, certificate: CertificateFiles, settings: &[&str]) -> Option<Database> {
    let mut options = Options::new(Durability::Durable);
    options.tls = Some(certificate);
    options.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    machine_has("redis-server", Database::is_installed(Kind::Redis))
        .then(|| runtime.block_on(Database::start(Kind::Redis, &options)).expect("it starts"))
}

/// A database under TLS with this certificate and these settings.
fn database(runtime: &Runtime, kind: Kind, certificate: &CertificateFiles, settings: &[String]) -> Option<Database> {
    Authority::give_to_postgres(certificate).expect("given away");
    let mut options = Options::new(Durability::Durable);
    options.settings = certificate.settings(kind);
    options.settings.extend_from_slice(settings);
    machine_has(&kind.to_string(), Database::is_installed(kind))
        .then(|| runtime.block_on(Database::start(kind, &options)).expect("it starts"))
}

#[test]
fn a_redis_that_demands_a_client_certificate_gets_the_one_of_the_command_line() {
    let runtime = Runtime::new().expect("a runtime");
    let (mut ours, other) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    let own = ours.sign(Flaw::None).expect("signed");
    let Some(server) = redis(&runtime, ours.sign(Flaw::None).expect("signed"), &["tls-auth-clients=yes"]) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("rediss://127.0.0.1:{}", server.tls_port().expect("it has TLS"));
    let (ca, other_ca) = (ours.ca(), other.ca());
    let identity = Some((text(&own.cert), text(&own.key)));
    let lock = |url: &str, flags: &[&str]| {
        let mut lock = command(PROGRAM, directory.path());
        run(lock.args(["lock", "a", "--store", url]).args(flags).args(["--", "touch", "done"]))
    };
    refused(lock(&url, &named(text(&ca), None)), 3, "");
    refused(lock(&url, &named(text(&other_ca), identity)), 3, "not from a trusted authority");
    assert!(!directory.path().join("done").exists());
    lock(&url, &named(text(&ca), identity)).well();
    assert!(directory.path().join("done").exists());
    // An address that names its own authority is left as it is.
    let own_ca = format!("{url}?cacert={}", other_ca.display());
    refused(lock(&own_ca, &named(text(&ca), identity)), 3, "not from a trusted authority");
    // Also by variables and by the settings file.
    let mut list = command(PROGRAM, directory.path());
    list.env("FIRSTCOME_TLS_CLIENT_CERT", &own.cert).env("FIRSTCOME_TLS_CLIENT_KEY", &own.key);
    fs::write(directory.path().join("own.toml"), format!("tls-ca = {:?}\n", text(&ca))).expect("written");
    run(list.args(["locks", "list", "--store", &url, "--config", "own.toml"])).well();

    for (url, flags, says) in [
        ("redis://127.0.0.1:1", vec!["--tls-ca", text(&ca)], "write rediss://"),
        (&url, vec!["--tls-ca", "missing.pem"], "cannot read the CA certificates in missing.pem"),
        (&url, vec!["--tls-ca", text(&own.key)], "has no CA certificates"),
        (&url, vec!["--tls-client-cert", text(&own.cert)], "without the key"),
        (&url, named(text(&ca), Some((text(&own.cert), text(&own.cert)))), "has no key"),
    ] {
        refused(lock(url, &flags), 2, says);
    }
}

#[test]
fn a_database_with_the_name_of_another_server_is_not_believed() {
    let runtime = Runtime::new().expect("a runtime");
    let (mut ours, other) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    let directory = tempfile::tempdir().expect("a directory");
    let migrate = |url: &str, ca: &Path| firstcome(directory.path(), &["migrate", "--sql", url, "--tls-ca", text(ca)]);
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let mode = if kind == Kind::Postgres { "sslmode=prefer" } else { "ssl-mode=PREFERRED" };
        let Some(server) = database(&runtime, kind, &ours.sign(Flaw::None).expect("signed"), &[]) else { continue };
        migrate(server.url(), &ours.ca()).well();
        migrate(&format!("{}?{mode}", server.url()), &ours.ca()).well();
        refused(migrate(server.url(), &other.ca()), 3, "not from a trusted authority");
        let server = database(&runtime, kind, &ours.sign(Flaw::OtherName).expect("signed"), &[]).expect("it starts");
        // The default mode alone would believe it.
        firstcome(directory.path(), &["migrate", "--sql", server.url()]).well();
        refused(migrate(server.url(), &ours.ca()), 3, "for another name");
        refused(migrate(&format!("{}?{mode}", server.url()), &ours.ca()), 3, "for another name");
        let disabled = mode.replace("prefer", "disable").replace("PREFERRED", "DISABLED");
        refused(migrate(&format!("{}?{disabled}", server.url()), &ours.ca()), 2, "or leave the files out");
    }
}

#[test]
fn a_database_that_demands_a_client_certificate_gets_the_one_of_the_command_line() {
    let runtime = Runtime::new().expect("a runtime");
    let mut ours = Authority::new().expect("an authority");
    let (certificate, own) = (ours.sign(Flaw::None).expect("signed"), ours.sign(Flaw::None).expect("signed"));
    let rules = ours.ca().with_file_name("pg_hba.conf");
    fs::write(&rules, "hostssl all all 127.0.0.1/32 trust\n").expect("written");
    let settings = [format!("ssl_ca_file={}", ours.ca().display()), format!("hba_file={}", rules.display())];
    let Some(server) = database(&runtime, Kind::Postgres, &certificate, &settings) else { return };
    fs::write(&rules, "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n").expect("written");
    let reload = async { PgConnection::connect(server.url()).await?.execute("SELECT pg_reload_conf()").await };
    runtime.block_on(reload).expect("reloaded");
    let directory = tempfile::tempdir().expect("a directory");
    let (ca, identity) = (ours.ca(), Some((text(&own.cert), text(&own.key))));
    let migrate = |flags: &[&str]| {
        let mut migrate = command(PROGRAM, directory.path());
        run(migrate.args(["migrate", "--sql", server.url()]).args(flags))
    };
    // The server takes a moment to read its rules again.
    crate::support::wait_for("the rules", || (migrate(&named(text(&ca), None)).code != Some(0)).then_some(()));
    refused(migrate(&named(text(&ca), None)), 3, "client certificate");
    migrate(&named(text(&ca), identity)).well();
}

#[test]
fn a_service_under_tls_is_asked_for_its_health() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let (mut ours, other) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    let files = ours.sign(Flaw::None).expect("signed");
    let certificate = ["--tls-cert", text(&files.cert), "--tls-key", text(&files.key)];
    let server = Server::start_with(here, &certificate);
    let url = format!("https://{}/readyz", server.address());
    let health = |url: &str, ca: &Path| firstcome(here, &["health", "--url", url, "--tls-ca", text(ca)]);
    health(&url, &ours.ca()).well();
    health(&url.replace("127.0.0.1", "localhost"), &ours.ca()).well();
    refused(health(&url, &other.ca()), 3, "not from a trusted authority");
    refused(health(&url.replace("127.0.0.1", "0.0.0.0"), &ours.ca()), 3, "for another name");
    refused(firstcome(here, &["health", "--url", &url]), 3, "trust");
    firstcome(here, &["health", "--url", &url.replace("https", "http")]).with(3);
    refused(health(&url, Path::new("missing.pem")), 2, "missing.pem");
    refused(health("ftp://127.0.0.1", &ours.ca()), 2, "is not an address");
    server.stop();
}

/// What doctor says of each thing: what it is, and the verdict.
fn found(ended: &Ended, of: &str, what: &str) -> (String, String) {
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let checks = report["checks"].as_array().expect("checks");
    let found = checks.iter().find(|check| check["of"] == of && check["what"] == what);
    let found = found.unwrap_or_else(|| panic!("nothing of {of} {what}: {report}"));
    let text = |member: &str| found[member].as_str().expect("a text").to_owned();
    (text("is"), text("verdict"))
}

/// The parts of a certificate's finding, and its verdict.
#[track_caller]
fn certificate(ended: &Ended, of: &str, host: &str, left: &str, verdict: &str) {
    let (is, told) = found(ended, of, &format!("certificate of {host}"));
    assert!(is.starts_with("CN=firstcome, signed by ") && is.contains("CN=firstcome test authority, until "), "{is}");
    assert!(is.ends_with(left), "{is}");
    assert_eq!(told, verdict, "{is}");
}

#[test]
fn doctor_tells_how_each_server_is_reached_and_until_when_its_certificate_counts() {
    let runtime = Runtime::new().expect("a runtime");
    let mut ours = Authority::new().expect("an authority");
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let Some(cache) = redis(&runtime, ours.sign(Flaw::None).expect("signed"), &["tls-auth-clients=yes"]) else {
        return;
    };
    let host = format!("127.0.0.1:{}", cache.tls_port().expect("it has TLS"));
    let own = ours.sign(Flaw::None).expect("signed");
    let ca = ours.ca();
    let all = named(text(&ca), Some((text(&own.cert), text(&own.key))));
    for kind in [Kind::Postgres, Kind::MariaDb] {
        // A server that knows no authority of clients would refuse the certificate that Redis demands.
        let clients = if kind == Kind::Postgres { "ssl_ca_file" } else { "ssl-ca" };
        let clients = [format!("{clients}={}", ca.display())];
        let ends_soon = ours.sign(Flaw::EndsSoon).expect("signed");
        let Some(server) = database(&runtime, kind, &ends_soon, &clients) else { continue };
        let place = server.url().rsplit(['@', '/']).find(|part| part.starts_with("127.")).expect("a host").to_owned();
        firstcome(here, &["migrate", "--sql", server.url()]).well();
        let redis = format!("rediss://{host}");
        let mut doctor = command(PROGRAM, here);
        let ended = run(doctor.args(["doctor", "--redis", &redis, "--sql", server.url()]).args(&all));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let of = |of: &str, what: &str| found(&ended, of, what);
        let fine = |is: &str| (is.to_owned(), "fine".to_owned());
        assert_eq!(of("firstcome", "plain text to other machines"), fine("refused"));
        assert_eq!(of("redis", "transport"), fine("TLSv1.3, certificate and name are checked"));
        assert_eq!(of("database", "transport"), fine("TLSv1.3, certificate and name are checked"));
        certificate(&ended, "redis", &host, " days left", "fine");
        certificate(&ended, "database", &place, "9 days left", "note");

        // Without files the database is believed, and on this machine that is no finding.
        let ended = firstcome(here, &["doctor", "--sql", server.url()]);
        assert_eq!(found(&ended, "database", "transport"), fine("TLSv1.3, the certificate is not checked"));
        let ended = firstcome(here, &["doctor", "--allow-plaintext", "--sql", &beyond(server.url())]);
        let told = found(&ended, "database", "transport");
        assert_eq!((told.0.as_str(), told.1.as_str()), ("TLSv1.3, the certificate is not checked", "note"));
        assert_eq!(found(&ended, "firstcome", "plain text to other machines").1, "note");

        let expired = database(&runtime, kind, &ours.sign(Flaw::Expired).expect("signed"), &[]).expect("it starts");
        let place = expired.url().rsplit(['@', '/']).find(|part| part.starts_with("127.")).expect("a host").to_owned();
        let ended = firstcome(here, &["doctor", "--sql", expired.url(), "--tls-ca", text(&ca)]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(found(&ended, "database", "reached").0.contains("out of date"), "{ended:?}");
        certificate(&ended, "database", &place, " days ago", "unsafe");
    }
}

#[test]
fn doctor_tells_how_a_store_of_locks_is_reached() {
    let runtime = Runtime::new().expect("a runtime");
    let mut ours = Authority::new().expect("an authority");
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let Some(server) = redis(&runtime, ours.sign(Flaw::EndsSoon).expect("signed"), &["tls-auth-clients=yes"]) else {
        return;
    };
    let host = format!("127.0.0.1:{}", server.tls_port().expect("it has TLS"));
    let own = ours.sign(Flaw::None).expect("signed");
    let ca = ours.ca();
    let all = named(text(&ca), Some((text(&own.cert), text(&own.key))));
    let fine = |is: &str| (is.to_owned(), "fine".to_owned());

    let url = format!("rediss://{host}");
    let ended = run(command(PROGRAM, here).args(["doctor", "--store", &url]).args(&all));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(found(&ended, "firstcome", "plain text to other machines"), fine("refused"));
    assert_eq!(found(&ended, "store", "address"), fine(&url));
    assert_eq!(found(&ended, "store", "transport"), fine("TLSv1.3, certificate and name are checked"));
    assert_eq!(found(&ended, "store", "appendfsync"), fine("always"));
    certificate(&ended, "store", &host, "9 days left", "note");
    // Without the certificate that the server demands there is no connection, and its own certificate is shown all the same.
    let ended = run(command(PROGRAM, here).args(["doctor", "--store", &url]).args(named(text(&ca), None)));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(found(&ended, "store", "reached").1, "unsafe");
    certificate(&ended, "store", &host, "9 days left", "note");

    let plain = |is: &str, verdict: &str| (is.to_owned(), verdict.to_owned());
    let ended = firstcome(here, &["doctor", "--store", server.url()]);
    assert_eq!(found(&ended, "store", "transport"), plain("plain text, on this machine", "fine"));
    let ended = firstcome(here, &["doctor", "--allow-plaintext", "--store", &beyond(server.url())]);
    assert_eq!(found(&ended, "store", "transport"), plain("plain text to another machine", "note"));
    refused(firstcome(here, &["doctor", "--store", server.url(), "--tls-ca", text(&ca)]), 2, "write rediss://");
}

#[cfg(feature = "etcd")]
#[test]
fn doctor_asks_each_server_of_an_etcd() {
    if !machine_has("etcd", Database::is_installed(Kind::Etcd)) {
        return;
    }
    let runtime = Runtime::new().expect("a runtime");
    let mut ours = Authority::new().expect("an authority");
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let (own, ca) = (ours.sign(Flaw::None).expect("signed"), ours.ca());
    let mut options = Options::new(Durability::Quick);
    options.tls = Some(ours.sign(Flaw::EndsSoon).expect("signed"));
    options.settings = vec!["client-cert-auth=true".to_owned(), format!("trusted-ca-file={}", ca.display())];
    let server = runtime.block_on(Database::start(Kind::Etcd, &options)).expect("it starts");
    let host = format!("127.0.0.1:{}", server.tls_port().expect("it has TLS"));
    let all = named(text(&ca), Some((text(&own.cert), text(&own.key))));
    let fine = |is: &str| (is.to_owned(), "fine".to_owned());

    let ended = run(command(PROGRAM, here).args(["doctor", "--store", &format!("etcds://{host}")]).args(&all));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(found(&ended, "store", &format!("answer of {host}")), fine("grants a lease"));
    assert_eq!(found(&ended, "store", "transport"), fine("TLSv1.3, certificate and name are checked"));
    certificate(&ended, "store", &host, "9 days left", "note");

    let ended =
        run(command(PROGRAM, here).args(["doctor", "--store", &format!("etcds://{host},127.0.0.1:1")]).args(&all));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(found(&ended, "store", &format!("answer of {host}")), fine("grants a lease"));
    let (is, verdict) = found(&ended, "store", "answer of 127.0.0.1:1");
    assert!(is.contains("no etcd answers at 127.0.0.1:1") && verdict == "unsafe", "{is} {verdict}");

    let ended = firstcome(here, &["doctor", "--store", server.url()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(found(&ended, "store", "transport"), fine("plain text, on this machine"));
    let far = ["doctor", "--store", "etcd://etcd.example"];
    refused(firstcome(here, &far), 2, "etcd at etcd.example:2379 is not on this machine");
}

#[test]
fn doctor_tells_of_plain_text() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let (redis, sql) = (world.redis.url(), world.sql.url());
    let ended = firstcome(world.here(), &["doctor", "--redis", redis, "--sql", sql]);
    for of in ["redis", "database"] {
        assert_eq!(found(&ended, of, "transport"), ("plain text, on this machine".to_owned(), "fine".to_owned()));
    }
    assert!(!ended.stdout.contains("certificate"), "{ended:?}");
    let far = ["doctor", "--allow-plaintext", "--redis", &beyond(redis), "--sql", &beyond(sql)];
    let ended = firstcome(world.here(), &far);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for of in ["redis", "database"] {
        assert_eq!(found(&ended, of, "transport"), ("plain text to another machine".to_owned(), "note".to_owned()));
    }
}

#[test]
fn doctor_tells_of_the_certificate_of_a_service() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut ours = Authority::new().expect("an authority");
    let files = ours.sign(Flaw::EndsSoon).expect("signed");
    let certificate_files = ["--tls-cert", text(&files.cert), "--tls-key", text(&files.key)];
    let server = Server::start_with(directory.path(), &certificate_files);
    let url = format!("https://{}", server.address());
    let empty = tempfile::tempdir().expect("a directory");
    let ended = firstcome(empty.path(), &["doctor", "--url", &url, "--tls-ca", text(&ours.ca())]);
    assert_eq!(found(&ended, "service", "ready"), ("yes".to_owned(), "fine".to_owned()));
    certificate(&ended, "service", &server.address().to_string(), "9 days left", "note");
    server.stop();
}

#[cfg(feature = "etcd")]
#[test]
fn an_etcd_that_demands_a_client_certificate_gets_the_one_of_the_command_line() {
    if !machine_has("etcd", Database::is_installed(Kind::Etcd)) {
        return;
    }
    let runtime = Runtime::new().expect("a runtime");
    let (mut ours, other) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    let own = ours.sign(Flaw::None).expect("signed");
    let (ca, other_ca) = (ours.ca(), other.ca());
    let directory = tempfile::tempdir().expect("a directory");
    let start = |certificate: CertificateFiles, settings: &[String]| {
        let mut options = Options::new(Durability::Quick);
        (options.tls, options.settings) = (Some(certificate), settings.to_vec());
        runtime.block_on(Database::start(Kind::Etcd, &options)).expect("it starts")
    };
    let lock = |server: &Database, flags: &[&str]| {
        let url = format!("etcds://127.0.0.1:{}", server.tls_port().expect("it has TLS"));
        let mut lock = command(PROGRAM, directory.path());
        run(lock.args(["lock", "a", "--store", &url]).args(flags).args(["--", "true"]))
    };
    let demanding = ["client-cert-auth=true".to_owned(), format!("trusted-ca-file={}", ca.display())];
    let server = start(ours.sign(Flaw::None).expect("signed"), &demanding);
    let identity = Some((text(&own.cert), text(&own.key)));
    lock(&server, &named(text(&ca), identity)).well();
    refused(lock(&server, &named(text(&ca), None)), 3, "");
    refused(lock(&server, &named(text(&other_ca), identity)), 3, "not from a trusted authority");
    let server = start(ours.sign(Flaw::OtherName).expect("signed"), &[]);
    refused(lock(&server, &named(text(&ca), None)), 3, "for another name");
    let plain = ["lock", "a", "--store", server.url(), "--tls-ca", text(&ca), "--", "true"];
    refused(firstcome(directory.path(), &plain), 2, "write etcds://");
}
