//! The suite of coupons over Redis and each kind of database.

use crate::in_time;
use crate::world::World;
use firstcome_store::conformance;
use firstcome_test_servers::Kind;

async fn holds(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let new_store = async |clock| world.place().await.node_by(clock).await;
    in_time(conformance::coupon(new_store)).await;
}

async fn reopens(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    in_time(conformance::coupon_reopens(async |clock| place.node_by(clock).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coupons_on_redis_and_postgres_keep_every_promise_of_the_port() {
    holds(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coupons_on_redis_and_mariadb_keep_every_promise_of_the_port() {
    holds(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_postgres_that_come_later_know_all_that_was_told() {
    reopens(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_mariadb_that_come_later_know_all_that_was_told() {
    reopens(Kind::MariaDb).await;
}

async fn rooms_hold(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let new_store = async |clock| world.place().await.node_by(clock).await;
    in_time(conformance::room(new_store)).await;
}

async fn receipts_hold(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let new_store = async |clock| world.place().await.node_by(clock).await;
    in_time(conformance::receipts(new_store)).await;
    let place = world.place().await;
    in_time(conformance::receipts_reopen(async |clock| place.node_by(clock).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_on_redis_and_postgres_keep_every_promise_of_the_port() {
    receipts_hold(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_on_redis_and_mariadb_keep_every_promise_of_the_port() {
    receipts_hold(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_on_redis_and_postgres_keep_every_promise_of_the_port() {
    rooms_hold(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_on_redis_and_mariadb_keep_every_promise_of_the_port() {
    rooms_hold(Kind::MariaDb).await;
}

async fn erasures_hold(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let new_store = async |clock| world.place().await.node_by(clock).await;
    in_time(conformance::erasures(new_store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasures_on_redis_and_postgres_keep_every_promise_of_the_port() {
    erasures_hold(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasures_on_redis_and_mariadb_keep_every_promise_of_the_port() {
    erasures_hold(Kind::MariaDb).await;
}
