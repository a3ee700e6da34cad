//! Heads that several nodes publish at once, by the servers' own clocks, and through the loss of Redis.

use super::{ANYBODY, join, poll, put, room, until};
use crate::in_time;
use crate::world::World;
use firstcome_cluster::Cluster;
use firstcome_store::core::id::UserId;
use firstcome_store::core::receipt::{Digest, Subject};
use firstcome_store::core::room::{Join, Rejection, RoomSettings, TicketNumber, TicketState};
use firstcome_store::receipt::HEADS_PER_PAGE_MAX;
use firstcome_store::{HeadPage, Receipt, ReceiptReply, ReceiptStore, RoomAnswer, RoomStore};
use firstcome_test_servers::Kind;
use std::collections::BTreeSet;

async fn heads(node: &Cluster) -> HeadPage {
    let page = node.room_heads(&room(), 0, HEADS_PER_PAGE_MAX).await.expect("it answers").expect("the room is there");
    page.verify().expect("one chain");
    page
}

/// Publishes at all nodes at once until a head covers the ticket.
async fn receipt(nodes: &[Cluster], ticket: &str) -> Receipt {
    let receipt = until("a head that covers the ticket", async || {
        publish(nodes).await;
        let reply = nodes[0].ticket_receipt(&room(), ticket).await;
        match reply.expect("it answers").expect("the ticket is known") {
            ReceiptReply::Ready(receipt) => Some(*receipt),
            ReceiptReply::Pending | ReceiptReply::Absent | ReceiptReply::Removed => None,
        }
    });
    let receipt = receipt.await;
    receipt.verify().expect("it is genuine");
    receipt
}

/// The number and the ticket that a receipt is about.
fn subject(receipt: &Receipt) -> (u32, Digest) {
    let Subject::Ticket { number, ticket, .. } = &receipt.statement.subject else { panic!("{}", receipt.text()) };
    (*number, *ticket)
}

/// What an operator, who has no ticket, is given for a number.
async fn of_place(node: &Cluster, number: TicketNumber) -> RoomAnswer<Receipt> {
    let reply = node.place_receipt(&room(), number).await?;
    Ok(reply.map(|reply| match reply {
        ReceiptReply::Ready(receipt) => *receipt,
        reply => panic!("{reply:?}"),
    }))
}

async fn operators_have_the_receipt_of_a_living_place(nodes: &[Cluster]) {
    let ann = Join { user: Some(UserId::parse("ann").expect("a name")), request: None };
    for joining in [ANYBODY, ann] {
        let (_, answer) = join(&nodes[0], joining).await;
        let by_ticket = receipt(nodes, &answer.ticket).await;
        let by_number = of_place(&nodes[1], answer.number).await.expect("it answers").expect("the place lives");
        by_number.verify().expect("it is genuine");
        assert_eq!(subject(&by_number), subject(&by_ticket));
        nodes[0].leave(&room(), &answer.ticket).await.expect("it answers").expect("it leaves");
        let refused = of_place(&nodes[1], answer.number).await.expect("it answers");
        assert_eq!(refused.map(|receipt| receipt.text()), Err(Rejection::UnknownTicket), "whose it was is forgotten");
    }
}

async fn publish(nodes: &[Cluster]) {
    let published = nodes.iter().map(|node| {
        let node = node.clone();
        tokio::spawn(async move { node.publish_heads().await })
    });
    for task in published.collect::<Vec<_>>() {
        task.await.expect("it ends").expect("it answers");
    }
}

async fn nodes_publish_one_chain(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    in_time(async {
        let place = world.place().await;
        let nodes = place.nodes(3).await;
        put(&nodes[0], RoomSettings::with_slots(1)).await;
        let mut receipts = Vec::new();
        for node in &nodes {
            let (_, answer) = join(node, ANYBODY).await;
            receipts.push(receipt(&nodes, &answer.ticket).await);
        }
        let (_, first) = join(&nodes[1], ANYBODY).await;
        let page = heads(&nodes[2]).await;
        assert_eq!(heads(&nodes[0]).await, page, "the same at each node");
        for receipt in &receipts {
            assert_eq!(page.confirm(receipt), Ok(receipt.heads().count()));
        }
        let sequences: BTreeSet<u64> = receipts.iter().map(|receipt| receipt.statement.by.sequence).collect();
        assert_eq!(sequences.len(), 3, "each ticket waited for a head of its own");
        operators_have_the_receipt_of_a_living_place(&nodes).await;
        // Redis forgets all: no later head says less than was published.
        receipt(&nodes, &first.ticket).await;
        place.keeper().await.ask::<()>(&["FLUSHALL"]).await;
        let (_, after) = join(&nodes[2], ANYBODY).await;
        let late = receipt(&nodes, &after.ticket).await;
        let page = heads(&nodes[1]).await;
        assert_eq!(page.confirm(&late), Ok(late.heads().count()));
        for receipt in &receipts {
            assert_eq!(page.confirm(receipt), Ok(receipt.heads().count()), "what was published stays");
        }
        assert!(!matches!(poll(&nodes[0], &after.ticket).await.state, TicketState::Gone(_)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_postgres_publish_one_chain() {
    nodes_publish_one_chain(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_mariadb_publish_one_chain() {
    nodes_publish_one_chain(Kind::MariaDb).await;
}
