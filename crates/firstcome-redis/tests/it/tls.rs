//! TLS to real servers, alone, behind sentinels, in a cluster and in a quorum: the right certificate, or no connection.

use super::server::{PATIENCE, free_port};
use super::{ECHO, in_time, patient};
use firstcome_redis::{Link, LinkOptions, OpenError, QuorumOptions, QuorumStore};
use firstcome_test_servers::{
    Authority, CertificateFiles, Cluster, Durability, Flaw, Kind, Options, Sentinels, Server, machine_has,
};
use std::path::Path;

fn authority() -> Authority {
    Authority::new().expect("an authority")
}

fn is_installed() -> bool {
    machine_has("redis-server", Server::is_installed(Kind::Redis))
}

fn secured(certificate: CertificateFiles) -> Options {
    let mut options = Options::new(Durability::Quick);
    options.tls = Some(certificate);
    options
}

async fn start(certificate: CertificateFiles) -> Server {
    Server::start(Kind::Redis, &secured(certificate)).await.expect("it starts")
}

fn url(server: &Server, ca: &Path) -> String {
    format!("rediss://127.0.0.1:{}?cacert={}", server.tls_port().expect("it has TLS"), ca.display())
}

/// Opens a link and runs a script over it, with a key of every master of a cluster.
async fn used(url: &str) -> Result<(), OpenError> {
    let (link, _inbox) = Link::open(url, "fc:tls", patient()).await?;
    for key in ["fc:a", "fc:b", "fc:c", "fc:d", "fc:e", "fc:f"] {
        let told = link.run(&ECHO, &[key.as_bytes()], &[b"well"]).await.expect("it runs");
        assert_eq!(redis::from_redis_value::<String>(told).expect("a text"), "well");
    }
    Ok(())
}

#[track_caller]
fn refused(told: Result<(), OpenError>, says: &str) {
    let error = told.expect_err("the server is not the right one");
    assert!(matches!(error, OpenError::Tls { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(says) && !text.contains('\n'), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_of_a_server_is_checked() {
    if !is_installed() {
        return;
    }
    in_time(async {
        let (mut ours, other) = (authority(), authority());
        let right = start(ours.sign(Flaw::None).expect("signed")).await;
        used(&url(&right, &ours.ca())).await.expect("all is right");
        refused(used(&url(&right, &other.ca())).await, "not from a trusted authority");
        // The authorities of the platform do not have ours.
        let platform = format!("rediss://127.0.0.1:{}", right.tls_port().expect("it has TLS"));
        refused(used(&platform).await, "not from a trusted authority");
        for (flaw, says) in [(Flaw::Expired, "out of date"), (Flaw::OtherName, "for another name")] {
            let server = start(ours.sign(flaw).expect("signed")).await;
            refused(used(&url(&server, &ours.ca())).await, says);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_tls_is_demanded() {
    if !is_installed() {
        return;
    }
    in_time(async {
        let plain = Server::start(Kind::Redis, &Options::new(Durability::Quick)).await.expect("it starts");
        let ours = authority();
        let url = format!("{}?cacert={}", plain.url().replace("redis://", "rediss://"), ours.ca().display());
        let mut short = LinkOptions::default();
        short.connect_timeout = std::time::Duration::from_millis(500);
        let error = Link::open(&url, "fc:tls", short).await.map(drop).expect_err("it has no TLS");
        assert!(matches!(error, OpenError::Tls { .. } | OpenError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("TLS"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_demands_a_client_certificate_gets_it() {
    if !is_installed() {
        return;
    }
    in_time(async {
        let (mut ours, mut other) = (authority(), authority());
        let mut options = secured(ours.sign(Flaw::None).expect("signed"));
        options.settings.push("tls-auth-clients=yes".to_owned());
        let server = Server::start(Kind::Redis, &options).await.expect("it starts");
        let base = url(&server, &ours.ca());
        let with =
            |files: &CertificateFiles| format!("{base}&cert={}&key={}", files.cert.display(), files.key.display());
        used(&with(&ours.sign(Flaw::None).expect("signed"))).await.expect("all is right");
        assert!(used(&base).await.is_err(), "it demands a certificate");
        assert!(
            used(&with(&other.sign(Flaw::None).expect("signed"))).await.is_err(),
            "it does not know that authority"
        );
    })
    .await;
}

/// Locks are used with the right authority, and refused with another one.
async fn trusted_by_ours_alone(url: impl std::fmt::Display, ours: &Authority, other: &Authority) {
    let with = |authority: &Authority| format!("{url}?cacert={}", authority.ca().display());
    used(&with(ours)).await.expect("all is right");
    refused(used(&with(other)).await, "not from a trusted authority");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_primary_are_reached_by_tls() {
    if !is_installed() {
        return;
    }
    in_time(async {
        let (mut ours, other) = (authority(), authority());
        let options = secured(ours.sign(Flaw::None).expect("signed"));
        let group = Sentinels::start(&options, 0, PATIENCE).await.expect("they start");
        trusted_by_ours_alone(group.tls_url(), &ours, &other).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_of_a_cluster_are_reached_by_tls() {
    if !is_installed() {
        return;
    }
    in_time(async {
        let (mut ours, other) = (authority(), authority());
        let cluster = Cluster::start(&secured(ours.sign(Flaw::None).expect("signed")), 0).await.expect("they start");
        trusted_by_ours_alone(cluster.tls_url(), &ours, &other).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_is_reached_by_tls() {
    if !is_installed() {
        return;
    }
    in_time(async {
        let (mut ours, other) = (authority(), authority());
        let certificate = ours.sign(Flaw::None).expect("signed");
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(start(certificate.clone()).await);
        }
        let open = async |ca: &Path| {
            let urls: Vec<String> = servers.iter().map(|server| url(server, ca)).collect();
            QuorumStore::open(&urls, QuorumOptions::default()).await.map(drop)
        };
        open(&ours.ca()).await.expect("all is right");
        refused(open(&other.ca()).await, "not from a trusted authority");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_files_are_named_before_anything_is_sent() {
    let error = used(&format!("rediss://127.0.0.1:{}?cacert=/nowhere/ca.pem", free_port())).await.expect_err("no file");
    assert!(matches!(&error, OpenError::Address { says } if says.contains("/nowhere/ca.pem")), "{error:?}");
}
