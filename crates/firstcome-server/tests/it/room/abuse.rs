//! A ticket that is shared or resold: it is one place and one slot, for however many devices show it.
//!
//! Forged and altered tickets are in `tickets`, forged passes and those of other rooms in `passes`, forgotten keys in
//! `keys`, claims by passes in `claims`, repeated joins in `joins`, and replayed work in `work`.

use super::{join, join_as, place, release, verify};
use crate::service::{Ask, SERVICE, Service};
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

/// Asks a gate for a visitor who shows this pass, from an address of its own.
async fn gate(service: &Service, device: usize, pass: &str) -> crate::service::Answer {
    let ask = Ask::get("/v1/rooms/sale/gate").from(&format!("198.51.100.{device}"));
    service.send(ask.header("x-firstcome-pass", pass)).await
}

pub(crate) async fn a_pass_on_two_devices_is_one_slot_that_ends_for_both() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        let ticket = service.ticket("sale").await;
        let pass = service.admitted("sale", &ticket).await;
        let next = service.ticket("sale").await;
        for device in 0..BUYERS {
            let told = gate(service, device, &pass).await.is(204);
            assert_eq!(told.header("x-firstcome-number"), Some("1"), "the site sees one visitor");
        }
        assert_eq!(service.room("sale").await["active"], 1);
        assert_eq!(service.state("sale", &next).await, "waiting");
        // One device is done, or its owner leaves: the other one is out as well.
        service.leave("sale", &ticket).await.is(204);
        for device in 0..BUYERS {
            gate(service, device, &pass).await.refused(403, "invalid_pass");
        }
        service.admitted("sale", &next).await;
        gate(service, 1, &pass).await.refused(403, "invalid_pass");
    })
    .await;
}

pub(crate) async fn a_sold_ticket_of_a_user_names_that_user_wherever_it_is_shown() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        service.make("launch", json!({"limit": 9, "room": "sale"})).await;
        let sold = service.ticket_of("sale", "ann").await;
        service.tick().await;
        let seen = shown_to(service, 1, &sold).await;
        assert_eq!((&seen["user"], &seen["state"]), (&json!("ann"), &json!("admitted")));
        let pass = seen["pass"].as_str().expect("a pass").to_owned();
        assert_eq!(service.send(verify("sale", &pass)).await.is(200).text("user"), "ann");
        assert_eq!(gate(service, 2, &pass).await.is(204).header("x-firstcome-user"), Some("ann"));
        // A buyer claims for the user who has sold, and the room gives that user no further ticket.
        let claim = Ask::post("/v1/coupons/launch/claims").json(&json!({})).header("x-firstcome-pass", &pass);
        assert_eq!(service.send(claim.from("198.51.100.2")).await.is(201).text("user"), "ann");
        assert_eq!(service.send(join_as("sale", "ann")).await.is(200).text("ticket"), sold);
        // No buyer without a key of the site turns it into a ticket of another user.
        let other = join_as("sale", "bob").without("authorization").header("x-firstcome-pass", &pass);
        service.send(other).await.refused(401, "unauthorized");
    })
    .await;
}

pub(crate) async fn a_ticket_is_no_pass_and_a_pass_is_no_ticket() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 2})).await;
        let ticket = service.ticket("sale").await;
        let pass = service.admitted("sale", &ticket).await;
        assert_eq!(service.wrong_with("sale", &ticket).await.as_deref(), Some("malformed"));
        gate(service, 1, &ticket).await.refused(401, "no_pass");
        service.poll("sale", &pass).await.refused(404, "unknown_ticket");
        service.leave("sale", &pass).await.refused(404, "unknown_ticket");
        // What was made up whole is as unknown as what was altered.
        for made_up in ["A".repeat(ticket.len()), ticket.chars().rev().collect(), format!("{ticket}{ticket}")] {
            let told = service.send(Ask::get(&place("sale", &made_up)).by(SERVICE)).await;
            assert!(
                ["404 unknown_ticket", "400 invalid_name"].contains(&told.outcome().as_str()),
                "{}",
                told.outcome()
            );
        }
        assert_eq!(service.room("sale").await["active"], 1);
    })
    .await;
}
