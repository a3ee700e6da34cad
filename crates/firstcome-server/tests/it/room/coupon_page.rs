//! The page of a coupon, as browsers use it: a drop without a front end.

use super::page::{Browser, phase};
use crate::service::{ADMIN, Answer, Ask, Service, config};
use firstcome::core::id::CouponName;
use firstcome_server::rate::RateLimit;
use firstcome_server::{Config, JoinLimits};
use serde_json::{Value, json};
use std::num::NonZeroU32;

const PAGE: &str = "/coupons/launch";
const CLAIM: &str = "/coupons/launch/claim";

/// A room of so many slots, and a coupon behind it.
async fn drop_of(slots: u32, coupon: Value) -> Service {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": slots})).await;
    let mut settings = json!({"room": "sale"});
    settings.as_object_mut().expect("an object").extend(coupon.as_object().expect("an object").clone());
    service.make("launch", settings).await;
    service
}

/// What the page tells of the claim: the serial and the code.
fn claimed(page: &Answer) -> (String, String) {
    let body = page.body();
    let part = |name: &str| {
        let (_, rest) =
            body.split_once(&format!("data-text=\"{name}\">")).unwrap_or_else(|| panic!("no {name}: {body}"));
        rest.split('<').next().unwrap_or_default().to_owned()
    };
    (part("serial"), part("code"))
}

async fn told(browser: &mut Browser<'_>) -> Value {
    browser.follow(Ask::get(PAGE).header("accept", "application/json")).await.is(200).json()
}

pub(crate) async fn a_drop_needs_no_front_end() {
    let service = drop_of(1, json!({"limit": 2, "title": "Launch <b>"})).await;
    let (mut ann, mut bob) = (Browser::new(&service), Browser::new(&service));
    let to_room = ann.send(Ask::get(PAGE)).await.is(303);
    assert_eq!(to_room.header("location"), Some("/rooms/sale?back=%2Fcoupons%2Flaunch"));
    let join = Ask::post("/rooms/sale/join?back=%2Fcoupons%2Flaunch");
    // The store may let the visitor in before the page is there.
    ann.follow(join).await;
    service.tick().await;
    let room = ann.follow(Ask::get("/rooms/sale?back=%2Fcoupons%2Flaunch")).await.is(200);
    assert!(room.body().contains("data-go href=\"/coupons/launch\""), "{}", room.body());
    let page = ann.follow(Ask::get(PAGE)).await.is(200);
    assert_eq!((phase(&page).as_str(), page.header("cache-control")), ("claim", Some("no-store")));
    assert!(
        page.body().contains("action=\"/coupons/launch/claim\"") && page.body().contains("2 left"),
        "{}",
        page.body()
    );
    assert!(page.body().contains("Launch &#60;b&#62;") || page.body().contains("Launch &lt;b&gt;"), "{}", page.body());
    // One who has no turn claims nothing.
    bob.follow(Ask::post("/rooms/sale/join")).await.is(503);
    assert_eq!(phase(&bob.follow(Ask::post(CLAIM)).await.is(503)), "almost");
    assert_eq!(service.issued("launch").await, 0);

    let page = ann.follow(Ask::post(CLAIM)).await.is(200);
    assert_eq!(phase(&page), "claimed");
    let (serial, code) = claimed(&page);
    assert_eq!((serial.as_str(), service.issued("launch").await), ("1", 1));
    let record = service.claim_of("launch", "pass:1").await.is(200);
    assert_eq!(record.text("code"), code);
    // A second press of the button, and the end of the slot, change nothing.
    assert_eq!(claimed(&ann.follow(Ask::post(CLAIM)).await), (serial.clone(), code.clone()));
    ann.send(Ask::post("/rooms/sale/leave")).await.is(303);
    assert_eq!(claimed(&ann.follow(Ask::get(PAGE)).await.is(200)), (serial, code));
    assert_eq!(told(&mut ann).await["phase"], "claimed");
    service.tick().await;
    assert_eq!(phase(&bob.follow(Ask::get(PAGE)).await.is(200)), "claim");
    assert_eq!(claimed(&bob.follow(Ask::post(CLAIM)).await.is(200)).0, "2");
    assert_eq!(service.issued("launch").await, 2);
}

pub(crate) async fn those_in_line_are_told_when_nothing_is_left() {
    let service = drop_of(1, json!({"limit": 1})).await;
    let (mut ann, mut bob) = (Browser::new(&service), Browser::new(&service));
    let in_line = "/rooms/sale?back=%2Fcoupons%2Flaunch%3Fx";
    ann.follow(Ask::post("/rooms/sale/join")).await;
    service.tick().await;
    assert_eq!(phase(&ann.follow(Ask::get(PAGE)).await.is(200)), "claim");
    bob.follow(Ask::post("/rooms/sale/join")).await;
    assert_eq!(phase(&bob.send(Ask::get(in_line)).await.is(503)), "almost");
    ann.follow(Ask::post(CLAIM)).await.is(200);
    for (path, wanted) in [(in_line, "soldout"), (PAGE, "soldout"), ("/rooms/sale?back=/coupons/other", "almost")] {
        assert_eq!(phase(&bob.send(Ask::get(path)).await), wanted, "{path}");
    }
    let seen = bob.send(Ask::get(in_line).header("accept", "application/json")).await.is(200).json();
    assert_eq!((&seen["phase"], &seen["ahead"]), (&json!("soldout"), &Value::Null), "{seen}");
    assert!(seen["poll_after_ms"].is_u64(), "an operator may raise the limit: {seen}");
    service.put("launch", json!({"limit": 2, "room": "sale"})).await.is(200);
    assert_eq!(phase(&bob.send(Ask::get(in_line)).await.is(503)), "almost");
    // The claim of the visitor who has one is shown also when the coupon is gone.
    service.send(Ask::delete("/v1/coupons/launch").by(ADMIN)).await.is(204);
    assert_eq!(phase(&bob.send(Ask::get(PAGE)).await.is(410)), "ended");
    assert_eq!(phase(&ann.send(Ask::get(PAGE)).await.is(200)), "claimed");
    service.send(Ask::get("/coupons/nowhere")).await.is(404);
}

pub(crate) async fn a_coupon_without_a_room_has_a_page_only_if_an_operator_says_so() {
    let closed = Service::memory_with(config());
    closed.make("launch", json!({"limit": 9})).await;
    for ask in [Ask::get(PAGE), Ask::post(CLAIM), Ask::get(PAGE).header("accept", "application/json")] {
        closed.send(ask).await.is(404);
    }
    assert_eq!(closed.issued("launch").await, 0);

    let (per_minute, burst) = (NonZeroU32::new(1).expect("not 0"), NonZeroU32::new(3).expect("not 0"));
    let public_coupons = vec![CouponName::parse("launch").expect("a name")];
    let joins = JoinLimits::of_address(Some(RateLimit { per_minute, burst }));
    let service = Service::memory_with(Config { public_coupons, joins, ..config() });
    service.make("launch", json!({"limit": 9})).await;
    let mut ann = Browser::new(&service);
    // A browser that keeps no cookies claims nothing.
    let page = ann.send(Ask::post(CLAIM)).await.is(303);
    assert_eq!(page.header("location"), Some("/coupons/launch?cookies=1"));
    assert_eq!(phase(&service.send(Ask::get("/coupons/launch?cookies=1")).await), "cookies");
    assert_eq!(phase(&ann.send(Ask::get(PAGE)).await.is(200)), "claim");
    // A page of another site presses no button.
    for foreign in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        ann.send(Ask::post(CLAIM).header(foreign.0, foreign.1)).await.is(303);
    }
    assert_eq!(service.issued("launch").await, 0);
    let first = claimed(&ann.follow(Ask::post(CLAIM)).await.is(200));
    assert_eq!(claimed(&ann.follow(Ask::post(CLAIM)).await.is(200)), first);
    assert_eq!((first.0.as_str(), service.issued("launch").await), ("1", 1));
    // Another browser is another visitor, and an address has its limit.
    let mut limited = None;
    for _ in 0..4 {
        let mut browser = Browser::new(&service);
        browser.send(Ask::get(PAGE)).await.is(200);
        let answer = browser.send(Ask::post(CLAIM).from("192.0.2.7")).await;
        if answer.status != 303 {
            limited = Some(answer.status);
        }
    }
    assert_eq!(limited, Some(429));
    assert_eq!(service.issued("launch").await, 4);
}

pub(crate) async fn a_coupon_that_opens_later_counts_down() {
    let public_coupons = vec![CouponName::parse("launch").expect("a name")];
    let service = Service::memory_with(Config { public_coupons, ..config() });
    service.make("launch", json!({"limit": 9, "opens_at": service.later(65_000)})).await;
    let mut ann = Browser::new(&service);
    let page = ann.send(Ask::get(PAGE)).await.is(503);
    assert_eq!((phase(&page).as_str(), page.header("retry-after")), ("early", Some("10")));
    assert!(page.body().contains(">1:05</span>"), "{}", page.body());
    assert_eq!(phase(&ann.follow(Ask::post(CLAIM)).await.is(503)), "early");
    service.clock.pass_ms(65_000);
    assert_eq!(phase(&ann.follow(Ask::post(CLAIM)).await.is(200)), "claimed");
    let german = service.send(Ask::get(PAGE).header("accept-language", "de")).await.is(200).body();
    assert!(german.contains("noch 8") && german.contains("Jetzt sichern</button>"), "{german}");
}
