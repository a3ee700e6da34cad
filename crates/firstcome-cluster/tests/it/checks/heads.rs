//! What `verify` says of published heads whose signature was changed.

use super::{ROOM, broken, is_sound, set_up};
use crate::claim_replies::{COUPON, claim, coupon, new};
use crate::in_time;
use crate::world::{Foreign, World, secret, wait_for};
use firstcome_cluster::verify;
use firstcome_store::ReceiptStore;
use firstcome_test_servers::Kind;

/// Flips the bits of one byte of a signature; twice, and it is as before.
async fn flip_signature(foreign: &mut Foreign, kind: Kind, of: &str) {
    let flipped = match kind {
        Kind::Postgres => "set_byte(signature,40,255-get_byte(signature,40))",
        _ => "INSERT(signature,41,1,CHAR(255-ORD(SUBSTRING(signature,41,1))))",
    };
    foreign.say(&format!("UPDATE firstcome_head SET signature={flipped} WHERE {of}")).await;
}

async fn a_changed_signature_is_named(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    set_up(&place).await;
    let node = place.node().await;
    new(claim(&node, "eve").await);
    wait_for("a second head of the coupon", async || {
        node.publish_heads().await.expect("it answers");
        let page = node.coupon_heads(&coupon(COUPON), 0, 9).await.expect("it answers").expect("there is one");
        (1 < page.heads.len()).then_some(())
    })
    .await;
    let mut foreign = place.foreign().await;
    let coupon = format!("coupon {COUPON}, head 1");
    // The chain names the texts of heads, not their signatures, so the last one does not stand for those before.
    for (of, named) in [("kind=1", format!("room {ROOM}, head 1").as_str()), ("kind=2 AND sequence=1", coupon.as_str())]
    {
        flip_signature(&mut foreign, kind, of).await;
        let found = verify(&place.sql, None, Some(secret())).await.expect("it answers");
        let invariant = "every head has a signature of the key of its room or coupon";
        assert_eq!(broken(&found), [(invariant, named.to_owned())]);
        is_sound(&verify(&place.sql, None, None).await.expect("it answers"));
        flip_signature(&mut foreign, kind, of).await;
        is_sound(&verify(&place.sql, None, Some(secret())).await.expect("it answers"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_signature_of_a_head_is_named_in_postgres() {
    in_time(a_changed_signature_is_named(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_signature_of_a_head_is_named_in_mariadb() {
    in_time(a_changed_signature_is_named(Kind::MariaDb)).await;
}
