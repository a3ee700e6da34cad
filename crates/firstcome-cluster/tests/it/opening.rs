//! What no node opens on, and what is said about it.

use crate::claim_replies::{limit, put};
use crate::world::{TestDeployment, World, options};
use firstcome_cluster::{Cluster, ClusterError, DeploymentSecret, examine};
use firstcome_redis::OpenError;
use firstcome_sql::SqlError;
use firstcome_test_servers::Kind;

async fn refused(place: &TestDeployment) -> ClusterError {
    match place.try_node().await {
        Ok(_) => panic!("it opens: {place:?}"),
        Err(error) => error,
    }
}

/// The error says what to do, and no password.
#[track_caller]
fn says(error: &ClusterError, words: &str) {
    let text = error.to_string();
    assert!(text.contains(words) && !text.contains("wrong-word"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_another_deployment_are_left_alone() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let (one, other) = (world.place().await, world.place().await);
    let node = one.node().await;
    put(&node, limit(3)).await;
    let mixed = TestDeployment { redis: one.redis.clone(), sql: other.sql.clone() };
    let error = refused(&mixed).await;
    assert!(matches!(error, ClusterError::OtherDeployment), "{error:?}");
    says(&error, "fc:deployment");
    // Each for itself is well.
    other.node().await;
    one.node().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_secret_opens_nothing() {
    for sql in [Kind::Postgres, Kind::MariaDb] {
        let Some(world) = World::start(sql).await else { return };
        let place = world.place().await;
        place.node().await;
        let secret = DeploymentSecret::new("another secret that is long enough as well").expect("it is long enough");
        let error = Cluster::open(&place.redis, &place.sql, secret, options()).await.expect_err("it does not open");
        assert!(matches!(error, ClusterError::Sql(SqlError::Broken { .. })), "{error:?}");
        says(&error, "give this node the one that the others have");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_reached_is_named() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let redis = |redis: &str| TestDeployment { redis: redis.to_owned(), ..place.clone() };
    let sql = |sql: &str| TestDeployment { sql: sql.to_owned(), ..place.clone() };
    let error = refused(&redis("http://localhost")).await;
    assert!(matches!(error, ClusterError::Redis(OpenError::Address { .. })), "{error:?}");
    says(&error, "redis://");
    let error = refused(&redis("redis://127.0.0.1:1")).await;
    assert!(matches!(error, ClusterError::Redis(OpenError::Unreachable { .. })), "{error:?}");
    says(&error, "check that it runs");
    let error = refused(&place.as_redis_user("node", "wrong-word")).await;
    assert!(matches!(error, ClusterError::Redis(OpenError::Denied { .. })), "{error:?}");
    says(&error, "check user and password");
    let (head, _) = place.redis.rsplit_once('/').expect("a database");
    let error = refused(&redis(&format!("{head}/9999"))).await;
    assert!(matches!(error, ClusterError::Redis(_)), "{error:?}");
    says(&error, "DB index is out of range");
    let error = refused(&sql("sqlite://here")).await;
    assert!(matches!(error, ClusterError::Sql(_)), "{error:?}");
    says(&error, "postgres://");
    let (head, _) = place.sql.rsplit_once('/').expect("a database");
    let error = refused(&sql(&format!("{head}/no_such_database"))).await;
    says(&error, "no_such_database");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_short_statements_alone_is_refused() {
    let Some(world) = World::start(Kind::MariaDb).await else { return };
    let place = world.place().await;
    let mut foreign = place.foreign().await;
    foreign.say("SET GLOBAL max_allowed_packet=4194304").await;
    let error = refused(&place).await;
    says(&error, "max_allowed_packet is 4194304");
    says(&error, "set max_allowed_packet=16M");
    let examined = examine(&place.sql, None).await.expect("it answers");
    assert!(examined.unfit.is_some_and(|why| why.contains("max_allowed_packet")));
    foreign.say("SET GLOBAL max_allowed_packet=16777216").await;
    place.node().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_later_version_are_used_only_if_they_say_that_this_one_may() {
    for sql in [Kind::Postgres, Kind::MariaDb] {
        let Some(world) = World::start(sql).await else { return };
        let place = world.place().await;
        place.node().await;
        let mut foreign = place.foreign().await;
        foreign.say("UPDATE firstcome_schema SET version=99 WHERE part='coupons'").await;
        drop(place.node().await);
        foreign.say("UPDATE firstcome_schema SET version=99 WHERE part='coupons:readable_from'").await;
        says(&refused(&place).await, "use the version of firstcome that made them");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_make_the_tables_is_told_so() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let mut foreign = place.foreign().await;
    foreign.say("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE weak LOGIN").await;
    let weak = TestDeployment { sql: place.sql.replace("firstcome@", "weak@"), ..place.clone() };
    let error = refused(&weak).await;
    assert!(matches!(error, ClusterError::Sql(SqlError::Broken { .. })), "{error:?}");
    says(&error, "permission denied for schema public");
    says(&error, "create tables");
    foreign.say("GRANT CREATE ON SCHEMA public TO weak").await;
    assert!(weak.try_node().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_user_who_may_not_do_all_that_is_needed_is_told_so() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let node = place.as_redis_user("node", "word");
    let mut keeper = place.keeper().await;
    let _: String = keeper.ask(&["ACL", "SETUSER", "node", "on", ">word", "~fc:*", "&fc:*", "+@all"]).await;
    node.node().await;
    for missing in [
        "-xadd",
        "-xtrim",
        "-xrange",
        "-hset",
        "-hget",
        "-hmget",
        "-hdel",
        "-hexists",
        "-hgetall",
        "-unlink",
        "-del",
        "-publish",
        "-time",
        "-set",
        "-get",
        "-evalsha",
        "-subscribe",
        "resetkeys",
        "resetchannels",
    ] {
        let _: String = keeper.ask(&["ACL", "SETUSER", "node", missing]).await;
        let error = refused(&node).await;
        assert!(matches!(error, ClusterError::Redis(OpenError::Denied { .. })), "{missing}: {error:?}");
        says(&error, "+@write");
        let _: String =
            keeper.ask(&["ACL", "SETUSER", "node", "resetkeys", "resetchannels", "~fc:*", "&fc:*", "+@all"]).await;
    }
}
