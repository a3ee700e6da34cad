//! Anonymous joins are limited per address. A visitor that is refused has drawn no number.

use super::{join, join_as, place};
use crate::running::{Running, patient, request};
use crate::service::{ADMIN, Ask, SERVICE, Service, config};
use firstcome_server::Config;
use firstcome_server::address::Proxies;
use firstcome_server::rate::RateLimit;
use serde_json::json;

const HERE: &str = "203.0.113.7";
const ELSEWHERE: &str = "203.0.113.8";
const PROXY: &str = "10.0.0.1";

fn limited(per_minute: u32, burst: u32, proxies: &[&str]) -> Config {
    let [per_minute, burst] = [per_minute, burst].map(|count| count.try_into().expect("not zero"));
    let proxies = Proxies::new(proxies.iter().map(|block| block.parse().expect("a block")).collect());
    Config { joins: Some(RateLimit { per_minute, burst }), proxies, ..config() }
}

async fn service(config: Config) -> Service {
    let service = Service::memory_with(config);
    service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    service
}

pub(crate) async fn an_address_that_joins_too_often_is_told_when_to_come_again() {
    let service = service(config()).await;
    for number in 1..=30 {
        assert_eq!(service.send(join("sale").from(HERE)).await.is(201).json()["number"], number);
    }
    for ask in [join("sale"), join("sale").once(&"k".repeat(22)), join("none")] {
        let told = service.send(ask.from(HERE)).await.refused(429, "rate_limited");
        assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("1"), &json!(500)));
    }
    // Another address is another one, and no refusal has cost a number.
    assert_eq!(service.send(join("sale").from(ELSEWHERE)).await.is(201).json()["number"], 31);
    service.clock.pass_ms(499);
    let told = service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
    assert_eq!(told.json()["retry_after_ms"], 1);
    service.clock.pass_ms(1);
    assert_eq!(service.send(join("sale").from(HERE)).await.is(201).json()["number"], 32);
    service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
    assert_eq!(service.room("sale").await["waiting"], 32);
}

pub(crate) async fn a_flood_from_one_address_draws_no_more_than_its_limit() {
    let service = service(config()).await;
    let mut joined = 0;
    for _ in 0..6_000 {
        joined += u32::from(service.send(join("sale").from(HERE)).await.status == 201);
        service.clock.pass_ms(10);
    }
    assert!((149..=150).contains(&joined), "{joined}: a burst of 30, and 120 in the minute");
    assert_eq!(service.send(join("sale").from(ELSEWHERE)).await.is(201).json()["number"], joined + 1);
}

pub(crate) async fn neither_keys_nor_users_nor_polls_are_limited() {
    let service = service(limited(1, 1, &[])).await;
    let ticket = service.send(join("sale").from(HERE)).await.is(201).text("ticket");
    service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
    for number in 0..5 {
        service.send(join_as("sale", &format!("user{number}")).from(HERE)).await.is(201);
        service.send(join("sale").by(SERVICE).from(HERE)).await.is(201);
        service.send(join("sale").by(ADMIN).from(HERE)).await.is(201);
        service.send(Ask::get(&place("sale", &ticket)).from(HERE)).await.is(200);
        service.send(Ask::get("/v1/rooms/sale").from(HERE)).await.is(200);
        service.send(Ask::delete(&place("sale", &ticket)).from(HERE)).await.is(204);
    }
    service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
    // What is no join at all does not count.
    for _ in 0..3 {
        service.send(join("sale").raw("nonsense").from(ELSEWHERE)).await.refused(400, "invalid_json");
        service.send(join_as("sale", "ann").without("authorization").from(ELSEWHERE)).await.is(401);
    }
    service.send(join("sale").from(ELSEWHERE)).await.is(201);
    // Without a limit there is none.
    let service = self::service(Config { joins: None, ..config() }).await;
    for _ in 0..200 {
        service.send(join("sale").from(HERE)).await.is(201);
    }
}

pub(crate) async fn an_address_that_a_client_invents_counts_only_from_a_trusted_proxy() {
    let service = service(limited(1, 2, &["10.0.0.0/8"])).await;
    let forwarded = |peer: &str, list: &str| service.send(join("sale").from(peer).header("x-forwarded-for", list));
    // From anybody else the header is nothing.
    forwarded(HERE, "198.51.100.1").await.is(201);
    forwarded(HERE, "198.51.100.2").await.is(201);
    forwarded(HERE, "198.51.100.3").await.refused(429, "rate_limited");
    forwarded(HERE, PROXY).await.refused(429, "rate_limited");
    // From a proxy the right-most address that is no proxy's; what stands left of it is the client's invention.
    forwarded(PROXY, "198.51.100.9").await.is(201);
    forwarded(PROXY, "192.0.2.1, 198.51.100.9").await.is(201);
    forwarded(PROXY, "192.0.2.2, 198.51.100.9").await.refused(429, "rate_limited");
    forwarded("10.9.9.9", "198.51.100.9, 10.1.2.3").await.refused(429, "rate_limited");
    forwarded(PROXY, HERE).await.refused(429, "rate_limited");
    forwarded(PROXY, "198.51.100.10").await.is(201);
    // A visitor's whole network of IPv6 is one address.
    for address in ["2001:db8:1:2::1", "2001:db8:1:2:ffff::2"] {
        service.send(join("sale").from(address)).await.is(201);
    }
    service.send(join("sale").from("2001:db8:1:2:3:4:5:6")).await.refused(429, "rate_limited");
    service.send(join("sale").from("2001:db8:1:3::1")).await.is(201);
}

pub(crate) async fn a_connection_counts_with_the_address_that_it_comes_from() {
    let bytes = |forwarded: &str| {
        let headers = format!("content-type: application/json\r\nx-forwarded-for: {forwarded}\r\n");
        request("POST /v1/rooms/sale/tickets", &headers, "{}")
    };
    for (trusted, third) in [(&[][..], 429), (&["127.0.0.1"][..], 201)] {
        let config = Config { limits: patient(), ..limited(1, 2, trusted) };
        let running = Running::with(config).await;
        running.service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        for number in 1..=2 {
            assert_eq!(running.exchange(bytes(&format!("198.51.100.{number}"))).await.is(201).json()["number"], number);
        }
        running.exchange(bytes("198.51.100.3")).await.is(third);
        let mut kept = running.connect().await;
        for _ in 0..2 {
            kept.send(bytes("198.51.100.4")).await;
            kept.answer().await.is(third);
        }
        kept.send(bytes("198.51.100.4")).await;
        kept.answer().await.refused(429, "rate_limited");
    }
}

pub(crate) async fn a_wall_clock_that_stands_still_limits_no_visitor_longer() {
    let service = service(limited(60, 2, &[])).await;
    for _ in 0..2 {
        service.send(join("sale").from(HERE)).await.is(201);
    }
    service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
    // A visitor has set the clock an hour back: it stands for as long, while time passes.
    service.clock.stand_ms(3_600_000);
    for _ in 0..2 {
        service.send(join("sale").from(HERE)).await.is(201);
    }
    service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
    // Set forward, it gives nothing away either.
    service.clock.step_forward_ms(3_600_000);
    service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
}
