//! A draw on several nodes: one draw for all of them, which outlives the loss of Redis before and after it.

use super::{ANYBODY, join, of, poll, position, put, room, three_nodes, until};
use crate::in_time;
use crate::world::World;
use firstcome_cluster::Cluster;
use firstcome_store::core::room::{Draw, DrawView, RoomOrder, RoomSettings, TicketState};
use firstcome_store::core::time::Timestamp;
use firstcome_store::{RoomStore, TicketAnswer};
use firstcome_test_servers::Kind;

fn drawing(opens_at: Timestamp) -> RoomSettings {
    RoomSettings { paused: true, opens_at: Some(opens_at), order: RoomOrder::Draw, ..RoomSettings::with_slots(1) }
}

async fn shown(node: &Cluster) -> DrawView {
    node.room(&room()).await.expect("it answers").expect("it is there").draw.expect("it has a draw")
}

async fn drawn(node: &Cluster) -> Draw {
    until("the draw", async || shown(node).await.draw).await
}

/// All come back under their numbers, and stand in the drawn order.
async fn check_places(node: &Cluster, draw: &Draw, tickets: &[TicketAnswer]) {
    let turns = draw.turns();
    let mut order: Vec<&TicketAnswer> = tickets.iter().collect();
    order.sort_by_key(|ticket| turns.turn(ticket.number.get()));
    for (place, ticket) in order.iter().enumerate() {
        until("all to be back in the drawn order", async || {
            for ticket in tickets {
                poll(node, &ticket.ticket).await;
            }
            (position(&poll(node, &ticket.ticket).await) == Some(place as u32)).then_some(())
        })
        .await;
    }
}

async fn one_draw_outlives_redis(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    in_time(async {
        let [one, two, three] = three_nodes(&place).await;
        put(&one, drawing(Timestamp::MAX)).await;
        let committed = shown(&two).await;
        let mut tickets = Vec::new();
        for (node, who) in [(&one, of("ann")), (&two, ANYBODY), (&three, of("cid")), (&two, ANYBODY), (&one, ANYBODY)] {
            let (_, told) = join(node, who).await;
            assert!(matches!(told.state, TicketState::InDraw { .. }), "{told:?}");
            tickets.push(told);
        }
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        assert_eq!(shown(&three).await, committed, "the seed outlives Redis");
        for ticket in &tickets {
            poll(&two, &ticket.ticket).await;
        }
        put(&two, drawing(Timestamp::MIN)).await;
        let draw = drawn(&one).await;
        assert_eq!(draw.seed.commitment(), committed.commitment);
        assert!(tickets.iter().all(|it| (draw.first..draw.end()).contains(&it.number.get())), "{draw:?}");
        let (_, late) = join(&three, of("eve")).await;
        assert!(draw.end() <= late.number.get(), "{late:?}");
        tickets.push(late);
        check_places(&one, &draw, &tickets).await;
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        for node in [&three, &one] {
            assert_eq!(drawn(node).await, draw, "the draw outlives Redis");
            check_places(node, &draw, &tickets).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_draw_of_all_nodes_outlives_redis_on_postgres() {
    one_draw_outlives_redis(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_draw_of_all_nodes_outlives_redis_on_mariadb() {
    one_draw_outlives_redis(Kind::MariaDb).await;
}
