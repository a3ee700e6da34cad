//! The gate of a room, as a proxy asks it before it lets a visitor through.

use super::place;
use crate::service::{Ask, Service};
use serde_json::json;

fn gate(room: &str) -> Ask {
    Ask::get(&format!("/v1/rooms/{room}/gate"))
}

fn with_cookie(room: &str, pass: impl AsRef<[u8]>) -> Ask {
    gate(room).header("cookie", [b"theme=dark; firstcome_pass=", pass.as_ref(), b"; basket=7"].concat())
}

pub(crate) async fn a_visitor_without_a_valid_pass_is_turned_away_by_the_status_alone() {
    let service = Service::memory();
    for room in ["sale", "sale2"] {
        service.make_room(room, json!({"max_active": 9})).await;
    }
    let (pass, elsewhere) = (service.pass_of("sale", "ann").await, service.pass("sale2").await);
    // A proxy sees nothing but the status: each of these was let in by 200 and a verdict.
    service.send(gate("sale")).await.refused(401, "no_pass");
    for text in [&b""[..], b"x", b"\"", b"a\"b", b"\xff", b"v4.public.AAAA"] {
        service.send(with_cookie("sale", text)).await.refused(401, "no_pass");
    }
    let forged = format!("{}{}", &pass[..20], super::flipped(&pass[20..]).next().expect("one character at least"));
    for (text, reason) in [(forged, "forged"), (elsewhere, "other_room")] {
        for ask in [with_cookie("sale", &text), gate("sale").header("x-firstcome-pass", &text)] {
            let told = service.send(ask).await.refused(403, "invalid_pass");
            assert_eq!(told.text("reason"), reason);
        }
    }
    for ask in [with_cookie("sale", &pass), gate("sale").header("x-firstcome-pass", &pass)] {
        let told = service.send(ask).await.is(204);
        assert_eq!((told.header("x-firstcome-number"), told.header("x-firstcome-user")), (Some("1"), Some("ann")));
        assert!(told.header("x-firstcome-pass-expires-at").is_some_and(|until| until.ends_with('Z')));
        assert_eq!(told.header("cache-control"), Some("no-store"));
    }
    service.send(gate("none")).await.refused(404, "unknown_room");
    service.send(with_cookie("none", &pass)).await.refused(404, "unknown_room");
}

pub(crate) async fn the_visitors_own_authorization_is_for_the_shop() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 9})).await;
    let pass = service.pass("sale").await;
    for value in ["Basic YW5uOnNlY3JldA==", "Bearer a-token-of-the-shop-0123456789"] {
        service.send(with_cookie("sale", &pass).header("authorization", value)).await.is(204);
        service.send(gate("sale").header("authorization", value)).await.refused(401, "no_pass");
    }
}

pub(crate) async fn the_gate_is_shut_when_the_slot_is_given_back() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    let ticket = service.ticket("sale").await;
    let pass = service.admitted("sale", &ticket).await;
    service.send(with_cookie("sale", &pass)).await.is(204);
    service.send(Ask::delete(&place("sale", &ticket))).await.is(204);
    let told = service.send(with_cookie("sale", &pass)).await.refused(403, "invalid_pass");
    assert_eq!(told.text("reason"), "over");
}
