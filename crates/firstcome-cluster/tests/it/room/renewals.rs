//! Tickets that are renewed at one of several nodes.

use super::*;
use crate::world::options;
use firstcome_cluster::verify;
use firstcome_store::core::room::{Rejection, RenewalKey};

const KEY: RenewalKey = RenewalKey::new(5 << 80);
const OTHER: RenewalKey = RenewalKey::new(6 << 80);

fn paused() -> RoomSettings {
    RoomSettings { paused: true, ..RoomSettings::with_slots(1) }
}

async fn renew(node: &Cluster, ticket: &str, key: RenewalKey) -> Result<TicketAnswer, Rejection> {
    node.renew(&room(), ticket, key).await.expect("it answers")
}

async fn is_void(node: &Cluster, ticket: &str) -> bool {
    node.poll(&room(), ticket).await.expect("it answers") == Err(Rejection::TicketRenewed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_ticket_is_void_at_each_node_and_stays_so_without_redis() {
    for sql in [Kind::Postgres, Kind::MariaDb] {
        let Some(world) = World::start(sql).await else { return };
        let place = world.place().await;
        in_time(async {
            let [one, two, three] = three_nodes(&place).await;
            put(&one, paused()).await;
            let (_, ann) = join(&one, of("ann")).await;
            let (_, bob) = join(&two, ANYBODY).await;
            assert_eq!(position(&poll(&three, &bob.ticket).await), Some(1));
            let mut renewed = Vec::new();
            for (ticket, number) in [(&ann.ticket, ann.number), (&bob.ticket, bob.number)] {
                let told = renew(&two, ticket, KEY).await.expect("it is renewed");
                assert_eq!(told.number, number);
                assert!(is_void(&two, ticket).await, "on the node that judged it at once");
                // Another node may not have read that entry. What it appends is judged where the log has it.
                let left = three.leave(&room(), ticket).await.expect("it answers");
                assert_eq!(left, Err(Rejection::TicketRenewed));
                assert_eq!(renew(&three, ticket, OTHER).await, Err(Rejection::TicketRenewed));
                let again = renew(&one, ticket, KEY).await.expect("a repeat");
                assert_eq!(again.ticket, told.ticket, "a repeat at another node finds the same ticket");
                assert!(is_void(&one, ticket).await && is_void(&three, ticket).await);
                renewed.push(told.ticket);
            }
            let (joining, same) = join(&three, of("ann")).await;
            assert_eq!((joining, &same.ticket), (Joining::SameUser, &renewed[0]));
            let rows = "SELECT COUNT(*) FROM firstcome_renewal";
            assert_eq!(place.foreign().await.number(rows).await, 2);
            // SQL alone knows that the tickets are void: Bob without a name comes back with the new one only.
            let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
            for (node, old) in [(&one, &ann.ticket), (&two, &bob.ticket), (&three, &bob.ticket)] {
                assert!(is_void(node, old).await);
                assert_eq!(node.leave(&room(), old).await.expect("it answers"), Err(Rejection::TicketRenewed));
            }
            assert_eq!(position(&poll(&three, &renewed[1]).await), Some(1));
            assert!(1 <= one.counts().rebuilt + two.counts().rebuilt + three.counts().rebuilt);
            assert_eq!(renew(&two, &bob.ticket, KEY).await.expect("a repeat").ticket, renewed[1]);
            one.leave(&room(), &renewed[1]).await.expect("it answers").expect("it is one");
            assert_eq!(place.foreign().await.number(rows).await, 1, "a visitor who is gone needs no row");
            let verified = verify(&place.sql, None, None).await.expect("it answers");
            assert!(verified.checks.iter().all(|check| check.breaches == 0), "{:?}", verified.checks);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_without_a_name_is_renewed_after_redis_was_lost() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let [one, two, _] = three_nodes(&place).await;
        put(&one, paused()).await;
        let (_, ann) = join(&one, ANYBODY).await;
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        let told = renew(&two, &ann.ticket, KEY).await.expect("it comes back and is renewed");
        assert_eq!((told.number, position(&told)), (ann.number, Some(0)));
        assert!(is_void(&two, &ann.ticket).await);
        // A node that starts now learns it from the image of the log.
        let late = place.node_with(options()).await;
        assert!(is_void(&late, &ann.ticket).await);
        one.close_room(&room()).await.expect("it answers").expect("it is closed");
        let mut foreign = place.foreign().await;
        let rows = "SELECT COUNT(*) FROM firstcome_renewal";
        until("the void row to go", async || (foreign.number(rows).await == 0).then_some(())).await;
        assert_eq!(poll(&two, &told.ticket).await.state, TicketState::Gone(Departure::Expired));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_is_not_acknowledged_before_the_database_has_it() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let [one, two, _] = three_nodes(&place).await;
        put(&one, paused()).await;
        let (_, ann) = join(&one, ANYBODY).await;
        let frozen = world.freeze_sql();
        let renewing = tokio::spawn({
            let (one, ticket) = (one.clone(), ann.ticket.clone());
            async move { renew(&one, &ticket, KEY).await }
        });
        // The place is between two tickets: a poll waits, rather than answer what may be lost.
        let waits = async || {
            let hall = room();
            let polled = two.poll(&hall, &ann.ticket);
            tokio::time::timeout(Duration::from_millis(300), polled).await.is_err().then_some(())
        };
        until("a poll to wait for the renewal", waits).await;
        assert!(!renewing.is_finished(), "nothing is told that SQL does not have");
        drop(frozen);
        let told = renewing.await.expect("no panic").expect("it is renewed");
        assert!(is_void(&two, &ann.ticket).await);
        assert_eq!(position(&poll(&two, &told.ticket).await), Some(0));
    })
    .await;
}
