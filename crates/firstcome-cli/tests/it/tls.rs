//! The service under TLS: its certificate, renewed while it serves, and files that are wrong.

use crate::support::program::{firstcome, signal};
use crate::support::server::Server;
use crate::support::{PATIENCE, wait_for};
use firstcome_test_servers::{Authority, CertificateFiles, Flaw};
use firstcome_tls::TlsFiles;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Asks for the health of a service by TLS, and trusts this authority alone.
fn health(address: SocketAddr, authority: &Authority) -> io::Result<String> {
    let trust = TlsFiles { ca: Some(authority.ca()), ..TlsFiles::default() }.read().expect("the file is right");
    let config = Arc::new(trust.client_config().expect("a configuration"));
    let name = ServerName::from(address.ip());
    let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(session, stream);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
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
