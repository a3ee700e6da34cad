//! The shared layout: what others who follow the recipe see, and what a repeat finds.

use super::server::Server;
use super::{in_time, patient};
use firstcome_redis::{LinkOptions, SingleKey};
use firstcome_store::StoreError;
use firstcome_store::key::{KeyStore, Tried};
use redis::Value;
use std::time::Duration;

const KEY: &str = "coupon:lock:{SPRING}";

#[tokio::test]
async fn one_word_has_the_lock_and_finds_it_again() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = SingleKey::open(&server.url(), patient()).await.unwrap();
        assert_eq!(locks.take(KEY, "mine", 60_000).await.unwrap(), Tried::Taken(()));
        assert_eq!(server.text(&["GET", KEY]).await, "mine");
        server.ask(&["PEXPIRE", KEY, "1000"]).await;
        // As after a lost answer: the same word has it, for a whole lease.
        assert_eq!(locks.take(KEY, "mine", 60_000).await.unwrap(), Tried::Taken(()));
        let Value::Int(lasts_ms) = server.ask(&["PTTL", KEY]).await else { panic!() };
        assert!((30_000..=60_000).contains(&lasts_ms), "{lasts_ms}");
        assert!(matches!(
            locks.take(KEY, "other", 60_000).await.unwrap(),
            Tried::Held { lasts: Some(lasts) } if lasts <= Duration::from_secs(60)
        ));
        assert!(!locks.renew(KEY, "other", 90_000).await.unwrap() && !locks.release(KEY, "other").await.unwrap());
        assert!(locks.renew(KEY, "mine", 90_000).await.unwrap());
        assert!(locks.release(KEY, "mine").await.unwrap());
        assert!(!locks.release(KEY, "mine").await.unwrap() && !locks.renew(KEY, "mine", 90_000).await.unwrap());
        assert_eq!(server.ask(&["DBSIZE"]).await, Value::Int(0));
    })
    .await;
}

#[tokio::test]
async fn keys_of_other_layouts_and_keys_without_an_end_are_held_by_another_process() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = SingleKey::open(&server.url(), patient()).await.unwrap();
        server.ask(&["SET", "for-ever", "theirs"]).await;
        assert_eq!(locks.take("for-ever", "mine", 1_000).await.unwrap(), Tried::Held { lasts: None });
        server.ask(&["HSET", "hash", "mine", "1"]).await;
        assert_eq!(locks.take("hash", "mine", 1_000).await.unwrap(), Tried::Held { lasts: None });
        assert!(!locks.renew("hash", "mine", 1_000).await.unwrap() && !locks.release("hash", "mine").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn what_was_taken_without_an_answer_is_found_by_the_repeat() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let mut hasty = LinkOptions::default();
        (hasty.connect_timeout, hasty.answer_timeout) = (Duration::from_secs(30), Duration::from_millis(300));
        let locks = SingleKey::open(&server.url(), hasty).await.unwrap();
        assert_eq!(locks.take("warm", "mine", 60_000).await.unwrap(), Tried::Taken(()));
        server.freeze();
        assert!(matches!(locks.take(KEY, "mine", 60_000).await, Err(StoreError::Unknown)));
        server.thaw();
        // It ran when the server went on.
        super::wait_for("the try to arrive", async || {
            (server.ask(&["EXISTS", KEY]).await == Value::Int(1)).then_some(())
        })
        .await;
        let again = super::wait_for("an answer", async || locks.take(KEY, "mine", 60_000).await.ok()).await;
        assert_eq!(again, Tried::Taken(()));
        assert_eq!(server.text(&["GET", KEY]).await, "mine");
    })
    .await;
}
