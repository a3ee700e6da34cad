//! The service and the gate under TLS: the certificate, renewed while it serves, and files that are wrong.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, is_installed, run, signal};
use crate::support::server::Server;
use crate::support::{PATIENCE, machine_has, stand, wait_for};
use firstcome_test_servers::{Authority, CertificateFiles, Flaw};
use firstcome_tls::TlsFiles;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn health(address: SocketAddr, authority: &Authority) -> io::Result<String> {
    ask(address, authority, "GET /healthz", "")
}

/// Asks by TLS, and trusts this authority alone. Returns head and body.
fn ask(address: SocketAddr, authority: &Authority, what: &str, headers: &str) -> io::Result<String> {
    let trust = TlsFiles { ca: Some(authority.ca()), ..TlsFiles::default() }.read().expect("the file is right");
    let config = Arc::new(trust.client_config().expect("a configuration"));
    let name = ServerName::from(address.ip());
    let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(session, stream);
    let close = "connection: close\r\ncontent-length: 0";
    stream.write_all(format!("{what} HTTP/1.1\r\nhost: localhost\r\n{close}\r\n{headers}\r\n").as_bytes())?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // The service may close without a word once the answer has left.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

/// Files at names that stay, as an operator has them.
fn install(files: &CertificateFiles, directory: &Path) -> [PathBuf; 2] {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.join(name));
    fs::copy(&files.cert, &cert).expect("copied");
    fs::copy(&files.key, &key).expect("copied");
    [cert, key]
}

#[test]
fn a_service_under_tls_renews_its_certificate_at_a_signal() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut before, mut after) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    let [cert, _] = install(&before.sign(Flaw::None).expect("signed"), directory.path());
    let mut server = Server::start_with(directory.path(), &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    assert!(server.line("listening on").starts_with("listening on https://"));
    let answer = health(server.address(), &before).expect("all is right");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(health(server.address(), &after).is_err(), "another authority");

    fs::write(&cert, "nothing").expect("written");
    signal(server.process(), "HUP");
    server.wait_for_log("the certificate before stays");
    assert!(health(server.address(), &before).is_ok(), "a bad certificate changes nothing");

    install(&after.sign(Flaw::None).expect("signed"), directory.path());
    signal(server.process(), "HUP");
    wait_for("the new certificate", || health(server.address(), &after).ok());
    assert!(health(server.address(), &before).is_err(), "the old one is gone");
    server.stop();
}

/// What operators read at `/metrics` of the certificate's end.
fn shown_end(server: &mut Server) -> Option<String> {
    let line = server.line("admin on http://");
    let address = line.trim_start_matches("admin on http://").parse().expect("an address");
    let text = Client::new(address).get("/metrics").text();
    let value =
        |line: &str| line.strip_prefix("firstcome_tls_certificate_not_after_timestamp_seconds ").map(str::to_owned);
    text.lines().find_map(value)
}

#[test]
fn a_certificate_that_is_out_of_date_is_warned_of_at_the_start_and_replaces_none() {
    const TLS: [&str; 6] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--admin-listen", "127.0.0.1:0"];
    let ended = "the certificate in cert.pem is out of date since 2020-02-01T00:00:00Z";
    let directory = tempfile::tempdir().expect("a directory");
    let mut authority = Authority::new().expect("an authority");
    install(&authority.sign(Flaw::Expired).expect("signed"), directory.path());
    let mut server = Server::start_with(directory.path(), &TLS);
    server.wait_for_log(&format!("WARN firstcome_cli::serve::renewal: clients refuse this service: {ended}"));
    // The end of 2020-01.
    assert_eq!(shown_end(&mut server).as_deref(), Some("1580515200"));
    assert!(health(server.address(), &authority).is_err(), "a client refuses it");

    install(&authority.sign(Flaw::None).expect("signed"), directory.path());
    signal(server.process(), "HUP");
    wait_for("the new certificate", || health(server.address(), &authority).ok());
    assert_ne!(shown_end(&mut server).as_deref(), Some("1580515200"));

    install(&authority.sign(Flaw::Expired).expect("signed"), directory.path());
    signal(server.process(), "HUP");
    server.wait_for_log(&format!("the certificate before stays: {ended}"));
    assert!(health(server.address(), &authority).is_ok(), "the valid one stays");
    server.stop();
}

#[test]
fn a_hangup_without_a_certificate_ends_no_service_and_no_gate() {
    let directory = tempfile::tempdir().expect("a directory");
    let gate = ["gate", "--dev", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--max-active", "1"];
    let gate_at = ["--listen", "127.0.0.1:0", "--service-listen", "127.0.0.1:0", "--data", "gate-data"];
    let mut of_gate = command(PROGRAM, directory.path());
    let servers = [Server::start(directory.path()), Server::spawn(of_gate.args(gate).args(gate_at))];
    for server in servers {
        signal(server.process(), "HUP");
        server.wait_for_log("there is no certificate to renew: SIGHUP changed nothing");
        assert_eq!(server.client().get("/healthz").status, 200);
        server.stop();
    }
}

#[test]
fn curl_speaks_http2_before_and_after_a_renewal() {
    if !machine_has("curl", is_installed("curl")) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (mut before, mut after) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    install(&before.sign(Flaw::None).expect("signed"), directory.path());
    let server = Server::start_with(directory.path(), &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = format!("https://{}/healthz", server.address());
    let curl = |authority: &Authority, offer: &str| {
        let mut curl = command("curl", directory.path());
        curl.args([offer, "--silent", "--output", "/dev/null", "--write-out", "%{http_version} %{http_code}"]);
        let ended = run(curl.arg("--cacert").arg(authority.ca()).arg(&url));
        (ended.code, ended.stdout)
    };
    let said = |text: &str| (Some(0), text.to_owned());
    assert_eq!(curl(&before, "--http2"), said("2 200"));
    assert_eq!(curl(&before, "--http1.1"), said("1.1 200"));
    // 35 or 60, as curl's library has it: the certificate is of no authority that curl trusts.
    let is_refused = |authority: &Authority| matches!(curl(authority, "--http2").0, Some(35 | 60));
    assert!(is_refused(&after), "another authority");

    install(&after.sign(Flaw::None).expect("signed"), directory.path());
    signal(server.process(), "HUP");
    wait_for("the new certificate", || (curl(&after, "--http2") == said("2 200")).then_some(()));
    assert!(is_refused(&before), "the old one is gone");
    server.stop();
}

#[test]
fn wrong_files_of_a_certificate_are_named_and_nothing_is_started() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut authority = Authority::new().expect("an authority");
    install(&authority.sign(Flaw::None).expect("signed"), directory.path());
    let other = authority.sign(Flaw::None).expect("signed");
    fs::copy(&other.key, directory.path().join("other.pem")).expect("copied");
    for (files, says) in [
        (&["--tls-cert", "cert.pem"] as &[&str], "--tls-cert needs --tls-key"),
        (&["--tls-key", "key.pem"], "--tls-key needs --tls-cert"),
        (&["--tls-cert", "missing.pem", "--tls-key", "key.pem"], "cannot read the certificate in missing.pem"),
        (&["--tls-cert", "key.pem", "--tls-key", "key.pem"], "key.pem has no certificate"),
        (&["--tls-cert", "cert.pem", "--tls-key", "cert.pem"], "cert.pem has no key"),
        (&["--tls-cert", "cert.pem", "--tls-key", "other.pem"], "does not belong to the certificate"),
    ] {
        let serve = ["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "data"];
        let told = firstcome(directory.path(), &[&serve, files].concat()).with(2);
        assert!(told.contains(says) && told.trim_end().lines().count() == 1, "{told}");
    }
    assert!(!directory.path().join("data").exists(), "nothing was started");
}

/// The cookies that an answer sets, as a browser sends them back over TLS.
#[track_caller]
fn secure_cookies(answer: &str) -> String {
    let set: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("set-cookie: ")).collect();
    assert!(!set.is_empty() && set.iter().all(|cookie| cookie.contains("; Secure")), "{answer}");
    let pairs = set.iter().filter_map(|cookie| cookie.split(';').next());
    format!("cookie: {}\r\n", pairs.collect::<Vec<_>>().join("; "))
}

#[test]
fn a_gate_under_tls_lets_in_who_is_admitted_and_no_plain_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut authority = Authority::new().expect("an authority");
    install(&authority.sign(Flaw::None).expect("signed"), directory.path());
    let shop = stand::stand(|_| ("text/plain".to_owned(), b"the shop".to_vec()));
    let mut gate = command(PROGRAM, directory.path());
    gate.env("FIRSTCOME_ADMIN_KEY", "admin-key-of-the-gate-0123456789");
    gate.args(["gate", "--upstream", &format!("http://{shop}"), "--room", "sale", "--max-active", "1"]);
    gate.args(["--data", "data", "--listen", "127.0.0.1:0", "--service-listen", "127.0.0.1:0"]);
    let mut server = Server::spawn(gate.args(["--tls-cert", "cert.pem", "--tls-key", "key.pem"]));
    let line = server.line("gate on https://");
    let address = line.trim_start_matches("gate on https://").split(',').next().and_then(|text| text.parse().ok());
    let address: SocketAddr = address.unwrap_or_else(|| panic!("no address in {line}"));
    let asked = |what: &str, headers: &str| ask(address, &authority, what, headers).expect("it is answered");

    let refused = asked("GET /basket", "");
    assert!(refused.starts_with("HTTP/1.1 503") && !refused.contains("the shop"), "{refused}");
    let place = secure_cookies(&asked("POST /.firstcome/rooms/sale/join", ""));
    let page = wait_for("the turn", || {
        let page = asked("GET /.firstcome/rooms/sale?back=%2Fbasket", &place);
        page.contains("data-phase=\"admitted\"").then_some(page)
    });
    let inside = asked("GET /basket", &secure_cookies(&page));
    assert!(inside.starts_with("HTTP/1.1 200") && inside.ends_with("the shop"), "{inside}");

    let mut plain = TcpStream::connect(address).expect("the gate listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    plain.write_all(b"GET /basket HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it is sent");
    let mut answer = Vec::new();
    // The gate closes with an alert of TLS, or at once.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    server.stop();
}
