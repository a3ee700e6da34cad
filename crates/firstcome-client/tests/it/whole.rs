//! The handles of the library over HTTP, as over any other store.

use crate::proxy::until;
use crate::service::{ADMIN, SERVICE, Service, soon};
use firstcome::core::auction::ListingSettings;
use firstcome::core::coupon::Rejection;
use firstcome::core::id::MemberName;
use firstcome::core::points::Amount;
use firstcome::core::room::{RoomSettings, TicketState};
use firstcome::edge::{Clock, SystemClock};
use firstcome::{Admission, Durability, Store, StoreError};
use firstcome_store::RoomStore;

#[tokio::test]
async fn a_sale_is_the_same_over_http() {
    let service = Service::start().await;
    let admin = Store::http(&service.url(), ADMIN).expect("it can be made");
    let shop = Store::http(&service.url(), SERVICE).expect("it can be made");
    assert!(!format!("{shop:?} {:?}", shop.store()).contains("canary"));

    soon(admin.room("door").unwrap().put(RoomSettings::with_slots(1))).await.unwrap();
    let door = shop.room("door").unwrap();
    let (_, ann) = soon(door.join_user("ann").unwrap().send()).await.unwrap();
    let (_, bob) = soon(door.join().idempotency_key("order-7").unwrap().send()).await.unwrap();
    let inside = async |ticket: &str| {
        let mut slot = None;
        until(async || {
            let place = soon(door.poll(ticket)).await.unwrap();
            assert!(!matches!(place.state, TicketState::Gone(_)), "{place:?}");
            slot = Admission::of(&place);
            slot.is_some()
        })
        .await;
        slot.expect("it is inside")
    };
    let slot = inside(&ann.ticket).await;
    let check = soon(door.check(slot)).await.unwrap();
    assert_eq!(check.and_then(|check| check.user).as_deref(), Some("ann"));
    soon(door.release(slot)).await.unwrap();
    assert!(soon(door.check(slot)).await.unwrap().is_none());
    inside(&bob.ticket).await;

    assert_eq!(shop.durability(), Durability::Memory);
    soon(admin.coupon("launch").unwrap().put_limit(1)).await.unwrap();
    let launch = shop.coupon("launch").unwrap();
    for (user, serial) in [("ann", Some(1)), ("ann", Some(1)), ("bob", None)] {
        let told = soon(launch.claim(user).unwrap().idempotency_key(user).unwrap().send()).await;
        let issued = match told {
            Ok(outcome) => Some(outcome.claim().issued.serial.get()),
            Err(error) => {
                assert_eq!(error.rejection().map(Rejection::code), Some("sold_out"));
                None
            }
        };
        assert_eq!(issued, serial, "{user}");
    }

    let lamp = shop.listing("lamp").unwrap();
    let ends_at = SystemClock::default().now().plus_ms(60_000);
    let settings = ListingSettings::auction(MemberName::parse("eve").unwrap(), Amount::new(100).unwrap(), ends_at);
    soon(lamp.put(settings)).await.unwrap();
    let ann = shop.member("ann").unwrap();
    for _ in 0..2 {
        let charge = ann.charge(200).unwrap().idempotency_key("first").unwrap();
        assert_eq!(soon(charge.send()).await.unwrap().total(), 200);
    }
    let bid = soon(lamp.bid("ann", 150).unwrap().send()).await.unwrap();
    assert_eq!(bid.bid.number, 1);
    soon(shop.close_due()).await.unwrap();
}

#[tokio::test]
async fn the_secrets_of_passes_stay_in_the_service() {
    let service = Service::start().await;
    let store = service.client();
    assert!(store.pass_secrets().is_empty());
    let told = soon(store.rotate_pass_secret()).await;
    let Err(StoreError::Faulted(fault)) = told else { panic!("{told:?}") };
    assert!(fault.detail.contains("POST /v1/pass-keys"), "{fault:?}");
}

/// The example of a sale, which `cargo test` of the workspace builds: over HTTP it prints what it prints in memory.
#[tokio::test]
async fn the_example_of_a_sale_says_over_http_what_it_says_in_memory() {
    let service = Service::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let key = directory.path().join("key");
    std::fs::write(&key, ADMIN).expect("the directory takes a file");
    let tests = std::env::current_exe().expect("a test is a file");
    let example = tests.ancestors().nth(2).expect("it lies in deps").join("examples/shop");
    let play = async |arguments: &[&str]| {
        let played = soon(tokio::process::Command::new(&example).args(arguments).output()).await;
        let played = played.expect("cargo build -p firstcome --features cluster,http --examples");
        assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
        String::from_utf8_lossy(&played.stdout).into_owned()
    };
    let [key, url] = [key.display().to_string(), service.url()];
    let told = play(&["http", &url, &key]).await;
    assert_eq!(told, play(&["memory"]).await);
    assert!(told.contains("ann has coupon 1") && told.contains("cid has no coupon: sold_out"), "{told}");
}
