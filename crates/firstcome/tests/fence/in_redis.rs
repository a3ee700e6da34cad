//! Guarded keys on a real server.

use crate::server::{PATIENCE, Server};
use crate::token;
use firstcome::fence::FenceError;
use firstcome::fence::redis::{FENCE_LUA, GuardedKey};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use std::time::Duration;

pub(crate) async fn connect(server: &Server) -> MultiplexedConnection {
    connect_for(&server.url(), PATIENCE).await
}

pub(crate) async fn connect_for(url: &str, patience: Duration) -> MultiplexedConnection {
    let config =
        AsyncConnectionConfig::new().set_response_timeout(Some(patience)).set_connection_timeout(Some(PATIENCE));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

#[tokio::test]
async fn a_guarded_key_takes_no_stale_write() {
    let Some(server) = Server::start(&[]).await else { return };
    let mut connection = connect(&server).await;
    let price = GuardedKey::new("auction:7:price").unwrap();
    price.set(&mut connection, &token("a", 5, "ann"), 100).await.unwrap();
    price.set(&mut connection, &token("a", 6, "bob"), 120).await.unwrap();
    for stale in [token("a", 5, "ann"), token("a", 6, "ann")] {
        assert!(price.set(&mut connection, &stale, 90).await.unwrap_err().is_stale());
        let raised = price.call::<i64>(&mut connection, &stale, "INCRBY", &[1]).await;
        assert!(raised.unwrap_err().is_stale());
    }
    assert_eq!(server.text(&["GET", "auction:7:price"]).await, "120");
    let newest = token("a", 6, "bob");
    assert_eq!(price.call::<i64>(&mut connection, &newest, "INCRBY", &[5]).await.unwrap(), 125);
    assert_eq!(
        price.call::<Option<String>>(&mut connection, &newest, "GETDEL", &[""; 0]).await.unwrap().unwrap(),
        "125"
    );
    assert_eq!(price.call::<Option<String>>(&mut connection, &newest, "GET", &[""; 0]).await.unwrap(), None);
    // Another lock that guards the same key is remembered beside it; other keys are on their own.
    price.set(&mut connection, &token("b", 1, "ann"), 1).await.unwrap();
    assert!(price.set(&mut connection, &token("a", 5, "ann"), 1).await.unwrap_err().is_stale());
    let other = GuardedKey::new("auction:8:price").unwrap();
    other.set(&mut connection, &token("a", 5, "ann"), 1).await.unwrap();
    assert_eq!(server.text(&["HGET", "{auction:7:price}:fence", "a"]).await, "6 bob");
}

#[tokio::test]
async fn what_is_no_answer_is_neither_accepted_nor_refused() {
    let Some(server) = Server::start(&[]).await else { return };
    let mut connection = connect(&server).await;
    let mut hasty = connect_for(&server.url(), Duration::from_millis(300)).await;
    let key = GuardedKey::new("k").unwrap();
    key.set(&mut connection, &token("a", 5, "ann"), "old").await.unwrap();
    // A server that forgot the script has not run it: it is told, and the write is one.
    server.ask(&["SCRIPT", "FLUSH"]).await;
    key.set(&mut connection, &token("a", 5, "ann"), "new").await.unwrap();
    server.freeze();
    let unknown = key.set(&mut hasty, &token("a", 6, "bob"), "perhaps").await.unwrap_err();
    assert!(matches!(&unknown, FenceError::Failed(error) if error.is_timeout()), "{unknown:?}");
    server.thaw();
    // The same once more is accepted, whether it had happened or not.
    key.set(&mut connection, &token("a", 6, "bob"), "perhaps").await.unwrap();
    // What is remembered cannot be read: nothing is written.
    for garbage in ["", "6", "six bob", "-6 bob", "6.5 bob"] {
        server.ask(&["HSET", "{k}:fence", "a", garbage]).await;
        let failed = key.set(&mut connection, &token("a", 7, "cid"), "no").await.unwrap_err();
        let FenceError::Failed(error) = failed else { panic!("{garbage}: {failed}") };
        assert!(error.to_string().contains("not the last token of a lock"), "{garbage}: {error}");
    }
    server.ask(&["DEL", "{k}:fence"]).await;
    server.ask(&["SET", "{k}:fence", "7"]).await;
    let failed = key.set(&mut connection, &token("a", 7, "cid"), "no").await.unwrap_err();
    assert!(matches!(failed, FenceError::Failed(_)));
    assert_eq!(server.text(&["GET", "k"]).await, "perhaps");
}

#[tokio::test]
async fn a_command_that_fails_is_no_refusal() {
    let Some(server) = Server::start(&[]).await else { return };
    let mut connection = connect(&server).await;
    server.ask(&["SET", "k", "text"]).await;
    let key = GuardedKey::new("k").unwrap();
    let pushed = key.call::<Value>(&mut connection, &token("a", 5, "ann"), "RPUSH", &["x"]).await;
    assert!(matches!(pushed, Err(FenceError::Failed(_))), "{pushed:?}");
    assert!(key.set(&mut connection, &token("a", 4, "ann"), "old").await.unwrap_err().is_stale());
}

#[tokio::test]
async fn a_script_of_ones_own_takes_no_number_that_is_no_fence() {
    let Some(server) = Server::start(&[]).await else { return };
    let script = [FENCE_LUA, "return fence_ok(KEYS[1], 'a', ARGV[1], 'ann') and 1 or 0"].concat();
    let show = async |fence: &str| server.try_ask(&["EVAL", &script, "1", "fences", fence]).await;
    for garbage in
        ["", "0", "-1", "07", "1e3", "0x10", "7.5", "seven", "nan", "inf", "9007199254740992", "99999999999999999999"]
    {
        assert!(show(garbage).await.is_err(), "{garbage}");
    }
    assert_eq!(server.ask(&["EXISTS", "fences"]).await, Value::Int(0));
    assert_eq!(show("9007199254740991").await.unwrap(), Value::Int(1));
    assert_eq!(show("9007199254740990").await.unwrap(), Value::Int(0));
}

#[tokio::test]
async fn fences_lie_in_the_slot_of_their_key() {
    let refused = ["", "a}b", "{}", "{}a{b}"];
    for key in refused {
        assert!(GuardedKey::new(key).is_err(), "{key}");
    }
    let Some(server) = Server::start(&["--cluster-enabled", "yes"]).await else { return };
    for key in ["a", "auction:7", "{shop}:stock", "x{shop}y", "a{b", "{{b}}c", "{a}{b}", "ü"] {
        let guarded = GuardedKey::new(key).unwrap();
        assert_ne!(guarded.key(), guarded.fence_key());
        let slot = async |key: &str| server.ask(&["CLUSTER", "KEYSLOT", key]).await;
        assert_eq!(slot(key).await, slot(guarded.fence_key()).await, "{key} and {}", guarded.fence_key());
    }
}
