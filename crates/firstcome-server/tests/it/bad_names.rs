//! Names at every boundary, in paths and in bodies.

use crate::auction;
use crate::lock;
use crate::room;
use crate::service::{ADMIN, Ask, SERVICE, Service, claim, redeem};
use serde_json::json;

/// Names that are none, and what is wrong with each.
fn wrong_names() -> [(String, &'static str); 14] {
    let bad = "may hold only the ASCII characters A-Z a-z 0-9 . _ : @ -; for any other text use an id or a hash";
    let start = "must begin with a letter or a digit";
    [
        ("a".repeat(129), "must have at most 128 bytes"),
        ("a".repeat(20_000), "must have at most 128 bytes"),
        ("-a".into(), start),
        ("_a".into(), start),
        (".".into(), start),
        ("..".into(), start),
        ("é".into(), bad),
        ("김민준".into(), bad),
        ("ann+1@example.com".into(), bad),
        ("a b".into(), bad),
        ("a/b".into(), bad),
        ("aé".into(), bad),
        ("a<script>alert(1)</script>".into(), bad),
        ("a\0\r\n\u{202e}".into(), bad),
    ]
}

fn right_names() -> [String; 6] {
    ["a".repeat(128), "0".into(), "A.b_c:d@e-9".into(), "pass".into(), "a..".into(), "Z-".into()]
}

/// A name as a path spells it.
fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// All calls whose path names a coupon.
fn calls_about(coupon: &str) -> Vec<Ask> {
    let path = format!("/v1/coupons/{coupon}");
    let body = json!({"limit": 1});
    vec![
        Ask::get(&path),
        Ask::put(&path).json(&body),
        Ask::delete(&path),
        Ask::get(&format!("{path}/claims")),
        Ask::get(&format!("{path}/claims/ann")),
        claim(coupon, "ann"),
        redeem(coupon, &json!({"code": "x"})),
    ]
    .into_iter()
    .map(|ask| ask.by(ADMIN))
    .collect()
}

/// All calls whose path names a room.
fn calls_about_room(room: &str) -> Vec<Ask> {
    let path = format!("/v1/rooms/{room}");
    vec![
        Ask::get(&path),
        Ask::put(&path).json(&json!({"max_active": 1})),
        Ask::delete(&path),
        room::join(room),
        Ask::get(&room::place(room, "x")),
        Ask::delete(&room::place(room, "x")),
        room::verify(room, "x"),
        room::release(room, "x"),
    ]
    .into_iter()
    .map(|ask| ask.by(ADMIN))
    .collect()
}

/// All calls whose path names a lock.
fn calls_about_lock(lock: &str) -> Vec<Ask> {
    let handle = "A".repeat(54);
    let calls = [lock::look(lock), lock::acquire(lock, "ann", 0, 100), lock::renew(lock, &handle, 100)];
    calls.into_iter().chain([lock::release(lock, &handle)]).collect()
}

/// All calls whose path names a listing.
fn calls_about_listing(listing: &str) -> [Ask; 5] {
    [
        auction::look(listing),
        auction::put(listing, &auction::fixed_price()),
        auction::bids(listing, ""),
        auction::bid(listing, "ann", 1),
        auction::purchase(listing, "ann"),
    ]
}

/// All calls whose path names a member.
fn calls_about_member(member: &str) -> [Ask; 4] {
    [auction::member(member), auction::records(member, ""), auction::charge(member, 1), auction::refund(member, 1)]
}

pub(crate) async fn a_path_with_a_wrong_name_is_refused() {
    let service = Service::memory();
    for (name, wrong) in wrong_names() {
        for ask in calls_about_lock(&encoded(&name)) {
            service.send(ask).await.refused(400, "invalid_name").about("lock", &format!("lock {wrong}"));
        }
        for ask in calls_about_listing(&encoded(&name)) {
            service.send(ask).await.refused(400, "invalid_name").about("listing", &format!("listing {wrong}"));
        }
        for ask in calls_about_member(&encoded(&name)) {
            service.send(ask).await.refused(400, "invalid_name").about("member", &format!("member {wrong}"));
        }
        for ask in calls_about_room(&encoded(&name)) {
            service.send(ask).await.refused(400, "invalid_name").about("room", &format!("room {wrong}"));
        }
        for ask in calls_about(&encoded(&name)) {
            let answer = service.send(ask).await.refused(400, "invalid_name");
            answer.about("coupon", &format!("coupon {wrong}"));
        }
        let answer = service.send(Ask::get(&format!("/v1/coupons/a/claims/{}", encoded(&name))).by(SERVICE)).await;
        answer.refused(400, "invalid_name").about("user", &format!("user {wrong}"));
    }
    assert_eq!((service.coupons().await, service.store.room_count()), (0, 0), "nothing was made");
    assert_eq!(service.store.auction_counts(), (0, 0), "nothing was made");
}

pub(crate) async fn a_path_that_is_not_utf8_is_refused() {
    let service = Service::memory();
    for name in ["%FF", "a%FF", "%C0%80", "%ED%A0%80", "%80"] {
        for ask in calls_about(name).into_iter().chain(calls_about_room(name)).chain(calls_about_lock(name)) {
            service.send(ask).await.refused(400, "invalid_name");
        }
        for ask in calls_about_listing(name).into_iter().chain(calls_about_member(name)) {
            service.send(ask).await.refused(400, "invalid_name");
        }
        let user = Ask::get(&format!("/v1/coupons/a/claims/{name}")).by(SERVICE);
        service.send(user).await.refused(400, "invalid_name");
        service.send(Ask::get(&format!("/errors/{name}"))).await.refused(404, "not_found");
    }
    // Not percent-encoding at all: taken as it stands, and then no name.
    for name in ["%", "%2", "%zz", "a%"] {
        for ask in calls_about(name).into_iter().chain(calls_about_room(name)) {
            service.send(ask).await.refused(400, "invalid_name");
        }
    }
}

pub(crate) async fn a_body_with_a_wrong_name_is_refused() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    let users = wrong_names().into_iter().chain([
        (String::new(), "must not be empty"),
        ("pass:".into(), "must not begin with pass:"),
        ("pass:7".into(), "must not begin with pass:"),
    ]);
    for (name, wrong) in users {
        let (user, room) = (format!("user {wrong}"), format!("room {wrong}"));
        service.claim("launch", &name).await.refused(400, "invalid_name").about("user", &user);
        service.send(room::join_as("sale", &name)).await.refused(400, "invalid_name").about("user", &user);
        if !name.starts_with("pass:") {
            let answer = service.send(lock::acquire("door", &name, 0, 100)).await;
            answer.refused(400, "invalid_name").about("owner", &format!("owner {wrong}"));
            let mut settings = auction::fixed_price();
            settings["owner"] = json!(name);
            for (ask, field) in [
                (auction::put("vase", &settings), "owner"),
                (auction::bid("vase", &name, 1), "bidder"),
                (auction::purchase("vase", &name), "buyer"),
            ] {
                service.send(ask).await.refused(400, "invalid_name").about(field, &format!("{field} {wrong}"));
            }
        }
        let answer = service.send(redeem("launch", &json!({"code": "x", "user": name}))).await;
        answer.refused(400, "invalid_name").about("user", &user);
        if !name.starts_with("pass:") {
            let answer = service.put("launch", json!({"limit": 9, "room": name})).await;
            answer.refused(400, "invalid_name").about("room", &room);
        }
    }
    assert_eq!(service.issued("launch").await, 0);
    assert_eq!(service.room("sale").await["waiting"], 0);
    assert!(service.show("launch").await.json().get("room").is_none());
}

pub(crate) async fn names_at_their_limits_are_taken() {
    let service = Service::memory();
    for name in right_names() {
        service.make_room(&encoded(&name), json!({"max_active": 1})).await;
        service.make(&encoded(&name), json!({"limit": 9, "room": name})).await;
        assert_eq!(service.show(&name).await.is(200).text("coupon"), name);
        assert_eq!(service.claim(&name, &name).await.is(201).text("user"), name);
        assert_eq!(service.claim_of(&name, &name).await.is(200).text("user"), name);
        let held = service.hold(&encoded(&name), &name).await;
        assert_eq!((&held["lock"], &held["owner"]), (&json!(name), &json!(name)));
        assert_eq!(service.lock(&name).await["holder"], name);
        service.send(auction::charge(&encoded(&name), 500)).await.is(200);
        assert_eq!(service.balance(&name).await, (500, 500));
        service.list(&encoded(&name), &auction::fixed_price()).await;
        let sold = service.buy(&encoded(&name), &name).await.is(201).json();
        assert_eq!((&sold["listing"], &sold["buyer"]), (&json!(name), &json!(name)));
        service.make_room(&encoded(&name), json!({"max_active": 1})).await;
        assert_eq!(service.room(&name).await["room"], name);
        let pass = service.pass_of(&name, &name).await;
        assert_eq!(service.send(room::verify(&name, &pass)).await.is(200).text("user"), name);
    }
    // Only users are reserved, and a name is another one in other letters.
    service.make("pass:7", json!({"limit": 9})).await;
    service.claim("Z-", "ann").await.is(201);
    service.claim("Z-", "Ann").await.is(201);
    service.show("z-").await.refused(404, "unknown_coupon");
}
