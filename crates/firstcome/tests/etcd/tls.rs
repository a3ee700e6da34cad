//! TLS to a real etcd: the right certificate, or no connection.

use super::server::{Etcd, LONG, PATIENCE, in_time, open, patient};
use firstcome::Locks;
use firstcome::lock::EtcdError;
use firstcome_test_servers::{Authority, Flaw};
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

fn authority() -> Authority {
    Authority::new().expect("an authority")
}

/// The same address with the only authority that its client trusts.
fn trusting(url: &str, ca: &Path) -> String {
    format!("{url}?cacert={}", ca.display())
}

/// Opens locks, with `wait` for a connection.
async fn opened(url: &str, wait: Duration) -> Result<Locks, EtcdError> {
    let mut options = patient(LONG);
    options.connect_timeout = wait;
    Locks::etcd_with(url, options).await
}

#[track_caller]
fn refused(told: Result<Locks, EtcdError>, says: &str) {
    let error = told.map(drop).expect_err("the server is not the right one");
    assert!(matches!(error, EtcdError::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(says) && !text.contains('\n') && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn the_certificate_of_etcd_is_checked() {
    let (mut ours, other) = (authority(), authority());
    let Some(right) = Etcd::start_secured(ours.sign(Flaw::None).expect("signed")).await else { return };
    in_time(async {
        let url = right.secured_url();
        let locks = open(&trusting(&url, &ours.ca()), LONG).await;
        locks.lock("a").acquire().await.expect("it is free").release().await.expect("held to the end");
        refused(opened(&trusting(&url, &other.ca()), PATIENCE).await, "not from a trusted authority");
        // The authorities of the platform do not have ours.
        refused(opened(&url, PATIENCE).await, "not from a trusted authority");
        for (flaw, says) in [(Flaw::Expired, "out of date"), (Flaw::OtherName, "for another name")] {
            let server = Etcd::start_secured(ours.sign(flaw).expect("signed")).await.expect("it is installed");
            refused(opened(&trusting(&server.secured_url(), &ours.ca()), PATIENCE).await, says);
        }
    })
    .await;
}

/// Long enough for etcd to end a handshake that it cannot read; a server that says nothing uses it up.
const WAIT: Duration = Duration::from_millis(500);
/// What an error says of a server that ends the handshake, keeps silent, or answers with something else.
const NO_TLS: &str = "TLS at this port";

/// Opens locks by TLS at a port that has none. It ends with the wait for a connection, long before the wait for an answer.
async fn opened_in_vain(host: &str, ours: &Authority) -> Result<Locks, EtcdError> {
    let url = trusting(&format!("etcds://ann:s3cret@{host}"), &ours.ca());
    timeout(PATIENCE / 2, opened(&url, WAIT)).await.expect("it ends with the wait for a connection")
}

#[tokio::test]
async fn etcd_without_tls_is_refused_where_tls_is_demanded() {
    let Some(plain) = Etcd::start().await else { return };
    in_time(async {
        refused(opened_in_vain(plain.address(), &authority()).await, NO_TLS);
        // It is there for those who do not demand TLS.
        open(plain.url(), LONG).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_says_nothing_to_a_handshake_gets_nothing_else() {
    in_time(async {
        let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let host = mute.local_addr().expect("it has one").to_string();
        refused(opened_in_vain(&host, &authority()).await, NO_TLS);
        let (mut connection, _) = mute.accept().expect("one connection was made");
        connection.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        let mut got = Vec::new();
        connection.read_to_end(&mut got).expect("it ends");
        // The records of a handshake have this type.
        assert_eq!(got.first(), Some(&22));
        let secret = b"s3cret";
        assert!(!got.windows(secret.len()).any(|part| part == secret), "the password was sent in plain text");
    })
    .await;
}
