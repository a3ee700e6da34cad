//! Crowds, and what strange people send.
//!
//! Names of coupons that look like patterns or hash tags cannot come here: a name is made of letters, digits and `._:@-`,
//! and keys hold the number of a coupon, never its name.

use crate::claim_replies::{self, COUPON, ClaimReplies, by, claim, coupon, keyed, limit, new, put};
use crate::in_time;
use crate::world::World;
use firstcome_store::CouponStore;
use firstcome_store::core::coupon::{Attributes, Claim, Effect, Rejection};
use firstcome_store::core::id::UserId;
use firstcome_test_servers::Kind;
use std::sync::Arc;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_keys_and_attributes_come_back_as_they_were_no_matter_what_they_are() {
    for sql in [Kind::Postgres, Kind::MariaDb] {
        let Some(world) = World::start(sql).await else { return };
        let place = world.place().await;
        let nodes = place.nodes(2).await;
        put(&nodes[0], limit(1_000)).await;
        let strange =
            ["", "{}", "\u{0}", "'\"\\%_;--", "안녕 \u{1f389}", "\r\n\t", "\\x41", "$1 ?", "\u{10ffff}\u{feff}"];
        let mut texts: Vec<String> = strange.iter().map(ToString::to_string).collect();
        texts.extend(["é".repeat(512), "\u{0}".repeat(1_024)]);
        let users = (1..=128).step_by(7).map(|length| "Aa0._:@-".chars().cycle().take(length).collect::<String>());
        let users: Vec<String> = users.chain(["a".into(), "pass:7".into(), "nil".into(), "0".into()]).collect();
        for (number, user) in users.iter().enumerate() {
            let text = &texts[number % texts.len()];
            let user_id = UserId::restore(user).expect("a user");
            let key = [0, 1, u128::MAX, 1 << 64][number % 4].wrapping_add(number as u128);
            let asked = Claim { user: user_id, attributes: Attributes::new(text), ..keyed("a", key, u64::MAX) };
            let node = &nodes[number % 2];
            let claimed = match in_time(node.claim(&coupon(COUPON), asked.clone())).await {
                Ok(Ok(Effect::New(claimed))) => claimed,
                other => panic!("{user}: {other:?}"),
            };
            assert_eq!(claimed.issued.serial.get() as usize, number + 1);
            let again = nodes[1 - number % 2].claim(&coupon(COUPON), asked).await;
            assert!(matches!(&again, Ok(Ok(Effect::Again(same))) if *same == claimed), "{user}: {again:?}");
            let record = node.claim_of(&coupon(COUPON), user).await.expect("it answers").expect("it is there");
            let record = record.expect("a claim");
            assert_eq!((&*record.user, record.claimed), (user.as_str(), claimed));
            assert_eq!(record.attributes.as_ref().map(Attributes::as_str), Some(text.as_str()), "{user}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_user_who_claims_ten_thousand_times_at_once_has_one_claim() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let nodes = place.nodes(2).await;
    put(&nodes[0], limit(100)).await;
    let mut crowd = JoinSet::new();
    for number in 0..10_000 {
        let node = nodes[number % 2].clone();
        crowd.spawn(async move { claim(&node, "ann").await });
    }
    let mut fresh = Vec::new();
    while let Some(told) = crowd.join_next().await {
        match told.expect("it ends") {
            Ok(Ok(Effect::New(claimed))) => fresh.push(claimed),
            other => assert!(matches!(claim_replies::refusal(other), Rejection::AlreadyIssued(_))),
        }
    }
    assert_eq!(fresh.len(), 1);
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 1).await;
    assert_eq!(place.keeper().await.sequencer("ticket").await.as_deref(), Some("1"));
}

async fn a_thousand_at_each_of_three(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    let (nodes, told) = (place.nodes(3).await, ClaimReplies::default());
    put(&nodes[0], limit(500)).await;
    in_time(told.crowd(&nodes, 0..3_000)).await;
    assert_eq!((told.count(), told.new_count(), told.unknown()), (500, 500, 0));
    told.check(&place, &nodes, 500).await;
    assert_eq!(nodes.iter().map(|node| node.counts().written).sum::<u64>(), 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_three_nodes_on_postgres_is_issued_exactly_the_stock() {
    a_thousand_at_each_of_three(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_three_nodes_on_mariadb_is_issued_exactly_the_stock() {
    a_thousand_at_each_of_three(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_coupons_at_once_do_not_mix() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let node = Arc::new(place.node().await);
    let mut crowd = JoinSet::new();
    for number in 0..200 {
        let node = Arc::clone(&node);
        crowd.spawn(async move {
            let name = coupon(&format!("drop-{number}"));
            node.put_coupon(&name, limit(2)).await.expect("it answers").expect("it may be");
            for (user, serial) in [("ann", 1), ("bob", 2)] {
                assert_eq!(new(node.claim(&name, by(user)).await).issued.serial.get(), serial);
            }
            assert_eq!(claim_replies::refusal(node.claim(&name, by("cid")).await), Rejection::SoldOut);
        });
    }
    while let Some(done) = in_time(crowd.join_next()).await {
        done.expect("it ends");
    }
    let mut foreign = place.foreign().await;
    assert_eq!(foreign.number("SELECT COUNT(*) FROM firstcome_claim").await, 400);
    for number in [0, 99, 199] {
        claim_replies::check_rows(&mut foreign, &format!("drop-{number}"), 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_goes_away_leaves_a_claim_or_none_and_no_place_taken() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, told) = (place.nodes(2).await, ClaimReplies::default());
    put(&nodes[0], limit(40)).await;
    let mut impatient = JoinSet::new();
    for number in 0..60 {
        let node = nodes[number % 2].clone();
        impatient.spawn(async move {
            let wait = std::time::Duration::from_micros(number as u64 * 100);
            let _ = tokio::time::timeout(wait, claim(&node, &format!("user-{number}"))).await;
        });
    }
    while let Some(done) = impatient.join_next().await {
        done.expect("it ends");
    }
    in_time(told.crowd(&nodes, 0..60)).await;
    told.check(&place, &nodes, 40).await;
    assert_eq!(told.count(), 40);
}
