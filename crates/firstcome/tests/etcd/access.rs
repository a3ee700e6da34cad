//! Addresses, users and their rights.

use super::server::{Etcd, PATIENCE, SHORT, in_time, open, open_hasty, patient, wait_for};
use firstcome::lock::EtcdError;
use firstcome::{EtcdLocks, Locks};
use std::net::TcpListener;
use std::time::Duration;

/// What is said of an address that will not do, and whether to try again would help.
async fn refusal(url: &str) -> (String, bool) {
    let error = EtcdLocks::open_with(url, patient(SHORT)).await.map(drop).expect_err(url);
    (error.to_string(), !matches!(error, EtcdError::Broken { .. }))
}

/// Where nobody listens, and no server of another test ever will.
const CLOSED: &str = "127.0.0.1:1";

#[tokio::test]
async fn a_wrong_address_is_told_with_what_to_do() {
    for (url, says, passes) in [
        ("http://127.0.0.1:2379".to_owned(), "must be etcd://", false),
        ("etcds://127.0.0.1:2379".to_owned(), "no TLS", false),
        ("etcd://ann@127.0.0.1:2379".to_owned(), "etcd://user:password@host:port", false),
        (format!("etcd://{CLOSED}"), "no etcd answers at 127.0.0.1", true),
    ] {
        let told = in_time(refusal(&url)).await;
        assert!(told.0.contains(says) && told.1 == passes, "{url}: {told:?}");
    }
}

#[tokio::test]
async fn any_server_of_the_cluster_will_do() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let address = server.address();
        let url = format!("etcd://{CLOSED},{address}");
        let locks = open(&url, Duration::from_secs(60)).await;
        locks.lock("a").acquire().await.expect("it is free").release().await.expect("held to the end");
        // As it is without options.
        let locks = Locks::etcd(server.url()).await.expect("it will do");
        locks.lock("a").try_acquire().await.expect("it is free").release().await.expect("held to the end");
        // One that says nothing is left for another.
        let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("etcd://{},{address}", mute.local_addr().expect("it has one"));
        let locks = open_hasty(&url, Duration::from_secs(60)).await;
        locks.lock("a").acquire().await.expect("it is free").release().await.expect("held to the end");
    })
    .await;
}

#[tokio::test]
async fn users_are_let_in_by_their_password_and_rights() {
    // Tokens that nobody uses for a second are forgotten.
    let Some(mut server) = Etcd::start_with(&["auth-token-ttl=1"]).await else { return };
    in_time(async {
        for step in [
            "user add root:root-secret",
            "user add ann:s3cret",
            "user add bob:s3cret",
            "role add locks",
            "role grant-permission locks readwrite --prefix=true firstcome/",
            "user grant-role root root",
            "user grant-role ann locks",
            "auth enable",
        ] {
            server.ask(&step.split(' ').collect::<Vec<_>>());
        }
        for (url, says) in [
            (server.url().to_owned(), "etcd://user:password@host:port"),
            (server.url_as("ann", "wr0ng"), "correct etcd://user:password@host:port"),
            (server.url_as("nobody", "s3cret"), "correct etcd://user:password@host:port"),
            (server.url_as("bob", "s3cret"), "role grant-permission"),
        ] {
            let (told, passes) = refusal(&url).await;
            assert!(told.contains(says) && !passes && !told.contains("s3cret"), "{url}: {told}");
        }
        let locks = open_hasty(&server.url_as("ann", "s3cret"), Duration::from_secs(60)).await;
        let held = locks.lock("a").acquire().await.expect("it is free");
        // It forgets its tokens when it is killed, and those that are not used.
        server.restart().await;
        wait_for("a renewal", async || held.renew().await.ok()).await;
        let waiting = tokio::spawn(locks.lock("a").wait(PATIENCE).acquire());
        wait_for("the line", async || locks.view("a").await.ok().filter(|seen| seen.waiters == 1)).await;
        let idle = tokio::time::timeout(Duration::from_secs(3), std::future::pending::<()>()).await;
        assert!(idle.is_err());
        held.release().await.expect("held to the end");
        waiting.await.expect("it ends").expect("it is its turn").release().await.expect("held to the end");
    })
    .await;
}
