//! A pass is judged each time it comes: by its form, its key, its room, and the slot that it stands for.

use super::{flipped, release, verify};
use crate::service::{Ask, Service, config};
use crate::stores::{clock, on_each, open};
use firstcome::RoomStore;
use firstcome_server::pass::{Grant, PassKey, PassKeys};
use serde_json::json;

/// The keys of a service, as only who has its files gets at them.
pub(crate) fn stolen(service: &Service) -> PassKeys {
    let key = |secret: &firstcome::embedded::journal::PassSecret| PassKey::new(secret.id, secret.bytes).expect("a key");
    let secrets = service.store.pass_secrets();
    let (newest, older) = secrets.split_last().expect("a room was made");
    PassKeys::new(key(newest), older.iter().map(key).collect()).expect("keys")
}

pub(crate) async fn a_valid_pass_tells_whose_it_is_and_until_when() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 2, "active_ttl_ms": 60_000})).await;
        let (anonymous, ann) = (service.pass("sale").await, service.pass_of("sale", "ann").await);
        for _ in 0..2 {
            let verdict = service.send(verify("sale", &anonymous)).await.is(200);
            assert_eq!(verdict.header("cache-control"), Some("no-store"));
            assert_eq!(verdict.json(), json!({"valid": true, "number": 1, "expires_at": service.later(60_000)}));
            let whole = json!({"valid": true, "number": 2, "user": "ann", "expires_at": service.later(60_000)});
            assert_eq!(service.send(verify("sale", &ann)).await.is(200).json(), whole);
        }
        let public = verify("sale", &ann).without("authorization");
        service.send(public).await.refused(401, "unauthorized");
        service.send(verify("none", &ann)).await.refused(404, "unknown_room");
        service.send(release("none", &ann)).await.refused(404, "unknown_room");
    })
    .await;
}

pub(crate) async fn no_altered_pass_is_one() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 9})).await;
    service.make("launch", json!({"limit": 9, "room": "sale"})).await;
    let pass = service.pass_of("sale", "ann").await;
    // One that was verified before: nothing that is remembered may stand for what looks alike.
    assert_eq!(service.wrong_with("sale", &pass).await, None);
    for wrong in flipped(&pass) {
        let reason = service.wrong_with("sale", &wrong).await;
        assert!(["malformed", "forged", "unknown_key"].map(Some).contains(&reason.as_deref()), "{wrong}: {reason:?}");
        let told = service.send(release("sale", &wrong)).await.refused(403, "invalid_pass");
        assert_eq!(Some(told.text("reason")), reason);
        let told = service.send(super::claim_by("launch", &wrong)).await.refused(403, "invalid_pass");
        assert_eq!(Some(told.text("reason")), reason);
    }
    for length in 0..pass.len() {
        assert_ne!(service.wrong_with("sale", &pass[..length]).await, None, "{length}");
    }
    let (before, after, larger) = (format!(" {pass}"), format!("{pass} "), format!("{pass}{}", "A".repeat(2_000)));
    for wrong in ["", "x", "v4.public.", "v4.local.AAAA", "é", "\u{0}", &before, &after, &larger, &pass.to_uppercase()]
    {
        assert_eq!(service.wrong_with("sale", wrong).await.as_deref(), Some("malformed"), "{wrong:?}");
        service.send(release("sale", wrong)).await.refused(403, "invalid_pass");
    }
    assert_eq!(service.wrong_with("sale", &pass).await, None);
    assert_eq!(service.issued("launch").await, 0);
}

pub(crate) async fn a_pass_of_another_room_or_another_service_is_none_here() {
    on_each(async |service| {
        let other = Service::memory();
        for it in [service, &other] {
            for room in ["sale", "sale2"] {
                it.make_room(room, json!({"max_active": 9})).await;
            }
        }
        service.make("launch", json!({"limit": 9, "room": "sale"})).await;
        let (own, elsewhere, foreign) =
            (service.pass("sale").await, service.pass("sale2").await, other.pass("sale").await);
        for (pass, reason) in [(&elsewhere, "other_room"), (&foreign, "forged")] {
            assert_eq!(service.wrong_with("sale", pass).await.as_deref(), Some(reason));
            let told = service.send(release("sale", pass)).await.refused(403, "invalid_pass");
            assert_eq!(told.text("reason"), reason);
            let told = service.send(super::claim_by("launch", pass)).await.refused(403, "invalid_pass");
            assert_eq!(told.text("reason"), reason);
        }
        assert_eq!(service.wrong_with("sale2", &elsewhere).await, None, "nothing was released");
        assert_eq!(service.wrong_with("sale", &own).await, None);
        assert_eq!(service.issued("launch").await, 0);
        // A ticket is no pass.
        let ticket = service.ticket("sale").await;
        assert_eq!(service.wrong_with("sale", &ticket).await.as_deref(), Some("malformed"));
    })
    .await;
}

pub(crate) async fn a_pass_counts_only_for_the_slot_that_it_was_made_for() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 9})).await;
        let pass = service.pass_of("sale", "ann").await;
        let keys = stolen(service);
        let grant = keys.read(&pass).expect("a pass of these keys");
        assert_eq!(keys.mint(&grant), pass, "one grant, one text");
        // Even rightly signed: a slot that was not given, a number that was not drawn.
        for other in [
            Grant { slot: grant.slot + 1, ..grant.clone() },
            Grant { slot: grant.slot - 1, ..grant.clone() },
            Grant { number: grant.number + 1, ..grant.clone() },
            Grant { number: u32::MAX - 1, ..grant.clone() },
        ] {
            let minted = keys.mint(&other);
            assert_eq!(service.wrong_with("sale", &minted).await.as_deref(), Some("over"), "{other:?}");
            service.send(release("sale", &minted)).await.is(204);
            assert_eq!(service.wrong_with("sale", &pass).await, None, "nothing was released");
        }
        for number in [0, u32::MAX] {
            let minted = keys.mint(&Grant { number, ..grant.clone() });
            assert_eq!(service.wrong_with("sale", &minted).await.as_deref(), Some("malformed"));
            service.send(release("sale", &minted)).await.refused(403, "invalid_pass");
        }
        // Whose it is says the room, not the pass alone.
        let minted = keys.mint(&Grant { expires_at: service.store.now(), slot: 99, ..grant });
        assert_eq!(service.wrong_with("sale", &minted).await.as_deref(), Some("expired"));
    })
    .await;
}

pub(crate) async fn a_pass_ends_with_its_slot_however_that_ends() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 99, "room": "sale"})).await;
        let settings = json!({"max_active": 1, "active_ttl_ms": 60_000});
        service.make_room("sale", settings.clone()).await;
        for (end, reason) in [("leave", "over"), ("release", "over"), ("time", "expired"), ("close", "over")] {
            let ticket = service.ticket("sale").await;
            let pass = service.admitted("sale", &ticket).await;
            assert_eq!(service.wrong_with("sale", &pass).await, None);
            match end {
                "leave" => drop(service.leave("sale", &ticket).await.is(204)),
                "release" => {
                    for _ in 0..3 {
                        service.send(release("sale", &pass)).await.is(204);
                    }
                    let gone = service.standing("sale", &ticket).await;
                    assert_eq!(gone["state"], "left");
                    assert!(gone.get("pass").is_none(), "{gone}");
                }
                "time" => service.clock.pass_ms(60_000),
                _ => drop(service.close_room("sale").await.is(204)),
            }
            assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some(reason), "{end}");
            let told = service.send(super::claim_by("launch", &pass)).await.refused(403, "invalid_pass");
            assert_eq!(told.text("reason"), reason, "{end}");
            // What is over can be given back once more, and that takes nothing from who came after.
            service.send(release("sale", &pass)).await.is(204);
            service.make_room("sale", settings.clone()).await;
            service.tick().await;
            assert_eq!(service.room("sale").await["active"], 0, "{end}");
        }
        assert_eq!(service.issued("launch").await, 0);
    })
    .await;
}

pub(crate) async fn a_released_slot_goes_to_the_next_and_not_back() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        let [first, second] = [service.ticket("sale").await, service.ticket("sale").await];
        let pass = service.admitted("sale", &first).await;
        service.send(release("sale", &pass)).await.is(204);
        let next = service.admitted("sale", &second).await;
        service.send(release("sale", &pass)).await.is(204);
        assert_eq!(service.wrong_with("sale", &next).await, None, "the first pass releases nothing more");
        assert_eq!(service.state("sale", &first).await, "left");
    })
    .await;
}

pub(crate) async fn a_slot_is_checked_and_given_back_by_its_numbers() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        let ticket = service.ticket("sale").await;
        service.admitted("sale", &ticket).await;
        let place = service.standing("sale", &ticket).await;
        let (number, admission) = (place["number"].as_u64().expect("one"), place["admission"].as_u64().expect("one"));
        let ask = |room: &str, action: &str, admission: u64| {
            let slot = json!({"number": number, "admission": admission});
            Ask::post(&format!("/v1/rooms/{room}/passes/{action}")).by(crate::service::SERVICE).json(&slot)
        };
        let verdict = service.send(ask("sale", "verify", admission)).await.is(200).json();
        assert_eq!(verdict, json!({"valid": true, "number": number, "expires_at": place["slot_ends_at"]}));
        let other = service.send(ask("sale", "verify", admission + 1)).await.is(200).json();
        assert_eq!(other, json!({"valid": false, "reason": "over"}));
        service.send(ask("nowhere", "verify", admission)).await.refused(404, "unknown_room");
        service.send(ask("sale", "release", admission + 1)).await.is(204);
        assert_eq!(service.state("sale", &ticket).await, "admitted");
        service.send(ask("sale", "release", admission)).await.is(204);
        assert_eq!(service.state("sale", &ticket).await, "left");
    })
    .await;
}

pub(crate) async fn a_service_that_reads_passes_by_itself_learns_which_are_void() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 2})).await;
        let (ann, _bob) = (service.pass_of("sale", "ann").await, service.pass_of("sale", "bob").await);
        let list = || Ask::get("/v1/rooms/sale/passes").by(crate::service::SERVICE);
        let both = service.send(list()).await.is(200);
        assert_eq!(both.json()["items"], json!([[1, 1], [2, 2]]));
        assert_eq!(both.json()["as_of"], json!(service.later(0)));
        let tag = both.header("etag").expect("a tag").to_owned();
        let same = service.send(list().header("if-none-match", &tag)).await.is(304);
        assert_eq!(same.header("x-firstcome-as-of"), Some(&*service.later(0)));
        assert_eq!((same.header("etag"), same.header("cache-control")), (Some(&*tag), Some("no-store")));
        service.send(release("sale", &ann)).await.is(204);
        let left = service.send(list().header("if-none-match", &tag)).await.is(200);
        assert_eq!(left.json()["items"], json!([[2, 2]]));
        assert_ne!(left.header("etag"), Some(&*tag));
        service.send(list().without("authorization")).await.refused(401, "unauthorized");
        service.send(Ask::get("/v1/rooms/none/passes").by(crate::service::SERVICE)).await.refused(404, "unknown_room");
        service.send(Ask::get("/v1/rooms/%20/passes").by(crate::service::SERVICE)).await.refused(400, "invalid_name");
    })
    .await;
}

pub(crate) async fn bodies_about_passes_are_checked() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    let pass = service.pass("sale").await;
    for path in ["verify", "release"] {
        let path = format!("/v1/rooms/sale/passes/{path}");
        for (body, field, detail) in [
            (json!({}), "pass", "missing field `pass`"),
            (json!({"pass": 7}), "pass", "pass must be a string"),
            (json!({"pass": null}), "pass", "pass must be a string"),
            (json!({"pass": pass, "x": 1}), "x", "unknown field `x`, expected one of `pass`, `number`, `admission`"),
            (json!({"number": 1}), "admission", "admission must come with number"),
            (json!({"admission": 1}), "number", "number must come with admission"),
            (json!({"number": 0, "admission": 1}), "number", "number must be that of a ticket"),
            (json!({"pass": pass, "number": 1, "admission": 1}), "pass", "pass must come without number and admission"),
        ] {
            let ask = Ask::post(&path).by(crate::service::SERVICE).json(&body);
            service.send(ask).await.refused(400, "invalid_field").about(field, detail);
        }
    }
    assert_eq!(service.wrong_with("sale", &pass).await, None);
    // An escaped text is the same text.
    let escaped = format!("{{\"pass\":\"\\u0076{}\"}}", &pass[1..]);
    assert_eq!(service.send(verify("sale", "").raw(escaped)).await.is(200).json()["valid"], true);
}

pub(crate) async fn before_the_first_room_there_is_no_pass() {
    let service = Service::memory();
    let other = Service::memory();
    other.make_room("sale", json!({"max_active": 1})).await;
    let pass = other.pass("sale").await;
    service.send(verify("sale", &pass)).await.refused(404, "unknown_room");
    let keys = service.send(Ask::get("/v1/pass-keys")).await.is(200).json();
    assert_eq!(keys["items"], json!([]));
    // Over a directory without rooms, too.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let service = Service::new(open(directory.path(), &clock), clock, config());
    assert_eq!(service.send(Ask::get("/v1/pass-keys")).await.is(200).json()["items"], json!([]));
}
