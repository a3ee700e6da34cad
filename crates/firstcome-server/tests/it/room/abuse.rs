//! A ticket that is shared or resold: it is one place and one slot, for however many devices show it.
//!
//! Forged and altered tickets are in `tickets`, forged passes and those of other rooms in `passes`, forgotten keys in
//! `keys`, and repeated joins in `joins`.

use super::{join, place, release};
use crate::service::{Ask, Service};
use crate::stores::on_each;
use serde_json::json;

const BUYERS: usize = 20;

/// Asks about a ticket from an address of its own, as each buyer does.
async fn shown_to(service: &Service, buyer: usize, ticket: &str) -> serde_json::Value {
    let ask = Ask::get(&place("sale", ticket)).from(&format!("198.51.100.{buyer}"));
    service.send(ask).await.is(200).json()
}

pub(crate) async fn a_ticket_that_is_resold_is_one_place_and_one_slot() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        let (sold, honest) = (service.ticket("sale").await, service.ticket("sale").await);
        for buyer in 0..BUYERS {
            let seen = shown_to(service, buyer, &sold).await;
            assert_eq!((&seen["state"], &seen["position"]), (&json!("waiting"), &json!(0)), "buyer {buyer}");
        }
        assert_eq!(service.room("sale").await["waiting"], 2, "a look draws no number");
        service.make_room("sale", json!({"max_active": 1})).await;
        service.tick().await;
        let mut passes = Vec::new();
        for buyer in 0..BUYERS {
            let seen = shown_to(service, buyer, &sold).await;
            assert_eq!((&seen["state"], &seen["number"]), (&json!("admitted"), &json!(1)), "buyer {buyer}");
            passes.push(seen["pass"].as_str().expect("a pass").to_owned());
        }
        let room = service.room("sale").await;
        assert_eq!((&room["active"], &room["waiting"]), (&json!(1), &json!(1)), "all buyers share one slot");
        assert_eq!(service.state("sale", &honest).await, "waiting");
        // All passes name that slot: the first buyer who is done ends it for all of them.
        service.send(release("sale", &passes[BUYERS - 1])).await.is(204);
        for pass in &passes {
            assert_eq!(service.wrong_with("sale", pass).await.as_deref(), Some("over"));
        }
        service.admitted("sale", &honest).await;
    })
    .await;
}

pub(crate) async fn a_seller_who_leaves_takes_the_place_from_the_buyer() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        let sold = service.send(join("sale")).await.is(201).text("ticket");
        service.leave("sale", &sold).await.is(204);
        let seen = shown_to(service, 1, &sold).await;
        assert_eq!(seen["state"], "left");
        service.make_room("sale", json!({"max_active": 1})).await;
        service.tick().await;
        assert!(shown_to(service, 1, &sold).await.get("pass").is_none());
        assert_eq!(service.room("sale").await["active"], 0);
    })
    .await;
}
