//! The secret of a deployment is replaced in SQL, beside a node that still has the former one.

use crate::claim_replies::{self, COUPON, claim, coupon, limit};
use crate::room::{join, of, put as put_room};
use crate::world::{Foreign, World, options, secret};
use firstcome_cluster::{Cluster, DeploymentSecret, rewrap};
use firstcome_sql::SqlError;
use firstcome_store::CouponStore;
use firstcome_store::core::room::RoomSettings;
use firstcome_test_servers::Kind;

fn fresh() -> DeploymentSecret {
    DeploymentSecret::new("another secret that is long enough for a deployment").expect("it is long enough")
}

/// Has the database do what a node with the former secret may do while the probe is wrapped: wrap the key of a coupon.
async fn wrap_late(foreign: &mut Foreign) {
    foreign.say("CREATE TABLE former AS SELECT id,code_key FROM firstcome_coupon").await;
    let update =
        "UPDATE firstcome_coupon SET code_key=(SELECT f.code_key FROM former f WHERE f.id=firstcome_coupon.id)";
    let on = "CREATE TRIGGER late AFTER UPDATE ON firstcome_deployment FOR EACH ROW";
    match foreign {
        Foreign::Postgres(_) => {
            let function = "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS";
            foreign.say(&format!("{function} $$ BEGIN {update}; RETURN NEW; END $$")).await;
            foreign.say(&format!("{on} EXECUTE FUNCTION late()")).await;
        }
        Foreign::MySql(_) => foreign.say(&format!("{on} {update}")).await,
    }
}

async fn all_rows_are_wrapped_by_the_new_secret(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let (code, ticket) = {
        let node = place.node().await;
        claim_replies::put(&node, limit(9)).await;
        put_room(&node, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        (claim_replies::new(claim(&node, "ann").await).code, join(&node, of("ann")).await.1.ticket)
    };
    let neither = DeploymentSecret::new("a third secret that has wrapped no row at all").expect("it is long enough");
    let wrong = rewrap(&place.sql, fresh().with_fallback(&neither).expect("two secrets"), options().database).await;
    let Err(SqlError::Broken { says }) = wrong else { panic!("{wrong:?}") };
    assert!(says.contains("FIRSTCOME_SECRET_FALLBACK"), "{says}");

    let mut foreign = place.foreign().await;
    wrap_late(&mut foreign).await;
    let both = fresh().with_fallback(&secret()).expect("two secrets");
    let done = rewrap(&place.sql, both.clone(), options().database).await.expect("both open all rows");
    assert!(3 < done.secrets && done.rewrapped == done.secrets, "{done:?}");
    assert_eq!(done.late, 1, "the key of the coupon");
    // A node that opens a MariaDB writes this row as well.
    foreign.say(if kind == Kind::Postgres { "DROP FUNCTION late CASCADE" } else { "DROP TRIGGER late" }).await;
    let again = rewrap(&place.sql, both, options().database).await.expect("the new secret opens all rows");
    assert_eq!((again.secrets, again.rewrapped, again.late), (done.secrets, 0, 0));

    let node = Cluster::open(&place.redis, &place.sql, fresh(), options()).await.expect("it needs no other secret");
    let kept = node.claim_of(&coupon(COUPON), "ann").await.expect("it answers").expect("it is there");
    assert_eq!(kept.expect("ann has a claim").claimed.code, code, "no secret has changed");
    assert_eq!(join(&node, of("ann")).await.1.ticket, ticket);
    let former = place.try_node().await.expect_err("its secret opens no row").to_string();
    assert!(former.contains("secret"), "{former}");
}

#[tokio::test]
async fn all_rows_are_wrapped_by_the_new_secret_in_postgres() {
    all_rows_are_wrapped_by_the_new_secret(Kind::Postgres).await;
}

#[tokio::test]
async fn all_rows_are_wrapped_by_the_new_secret_in_mariadb() {
    all_rows_are_wrapped_by_the_new_secret(Kind::MariaDb).await;
}
