//! Two nodes add a secret of passes at the same time.

use super::*;
use std::sync::Arc;

/// A secret that another node has added and not committed yet: taken out, and put back once a visitor waits for it.
async fn meanwhile<T: Send + 'static>(
    place: &TestDeployment,
    id: u32,
    asked: impl Future<Output = T> + Send + 'static,
) -> T {
    let (mut other, mut looker) = (place.foreign().await, place.foreign().await);
    other.say(&format!("CREATE TEMPORARY TABLE kept AS SELECT * FROM firstcome_pass_secret WHERE id={id}")).await;
    other.say(&format!("DELETE FROM firstcome_pass_secret WHERE id={id}")).await;
    other.say("BEGIN").await;
    other.say("INSERT INTO firstcome_pass_secret SELECT * FROM kept").await;
    let asking = tokio::spawn(asked);
    until("somebody to wait for it", async || (0 < looker.waiting().await).then_some(())).await;
    other.say("COMMIT").await;
    asking.await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_may_put_the_first_rooms_at_once() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let one = Arc::new(place.node().await);
        put(&one, RoomSettings::with_slots(1)).await;
        let node = Arc::clone(&one);
        let other = RoomName::parse("other").expect("a name");
        let told = meanwhile(&place, 1, async move { node.put_room(&other, RoomSettings::with_slots(1)).await }).await;
        told.expect("it answers").expect("it is put");
        assert_eq!(one.pass_secret_set().map(|set| set.newest), Some(1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_may_rotate_secrets_at_once() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let one = Arc::new(place.node().await);
        put(&one, RoomSettings::with_slots(1)).await;
        one.rotate_pass_secret().await.expect("it answers");
        let node = Arc::clone(&one);
        let fresh = meanwhile(&place, 2, async move { node.rotate_pass_secret().await }).await;
        assert_eq!(fresh.expect("it answers").id, 3);
        assert_eq!(one.pass_secret_set().map(|set| set.newest), Some(3));
    })
    .await;
}
