//! Anonymous joins are limited per address, per network, per room and in total. A visitor that is refused has drawn no
//! number.

use super::{join, join_as, place};
use crate::running::{Running, patient, request};
use crate::service::{ADMIN, Ask, SERVICE, Service, config};
use firstcome_server::address::Proxies;
use firstcome_server::rate::RateLimit;
use firstcome_server::{Config, JoinLimits};
use serde_json::json;
use std::num::NonZeroU32;

const HERE: &str = "203.0.113.7";
const ELSEWHERE: &str = "203.0.113.8";
const PROXY: &str = "10.0.0.1";

fn limited(per_minute: u32, burst: u32, proxies: &[&str]) -> Config {
    let [per_minute, burst] = [per_minute, burst].map(|count| count.try_into().expect("not zero"));
    let proxies = Proxies::new(proxies.iter().map(|block| block.parse().expect("a block")).collect());
    Config { joins: JoinLimits::of_address(Some(RateLimit { per_minute, burst })), proxies, ..config() }
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
    let service = self::service(Config { joins: JoinLimits::of_address(None), ..config() }).await;
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

/// A limit that lets so many joins pass at once, and one more in a minute.
fn burst(burst: u32) -> Option<RateLimit> {
    Some(RateLimit { per_minute: NonZeroU32::MIN, burst: burst.try_into().expect("not zero") })
}

async fn capped(joins: JoinLimits) -> Service {
    let service = service(Config { joins, ..config() }).await;
    service.make_room("other", json!({"max_active": 1, "paused": true})).await;
    service
}

/// How many joins each cap has refused: of the address, the network, the room, and in total.
async fn refused_by_caps(service: &Service) -> [u32; 4] {
    let metrics = service.metrics().await;
    ["address", "network", "room", "total"].map(|limit| {
        let name = format!("firstcome_joins_refused_total{{limit=\"{limit}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("it is counted")
    })
}

pub(crate) async fn a_network_that_joins_too_often_is_refused_and_its_neighbours_are_not() {
    let (address, network) = (burst(2), burst(3));
    let service = capped(JoinLimits { address, network, ..JoinLimits::of_address(None) }).await;
    for (inside, outside, name) in [
        (["198.51.100.1", "198.51.100.2", "198.51.100.255"], "198.51.101.1", "198.51.100.0/24"),
        (["2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:1:ffff::1"], "2001:db8:2::1", "2001:db8:1::/48"),
    ] {
        for from in [inside[0], inside[0], inside[1]] {
            service.send(join("sale").from(from)).await.is(201);
        }
        let told = service.send(join("sale").from(inside[2])).await.refused(429, "too_many_joins");
        assert_eq!((told.text("limit").as_str(), told.text("network").as_str()), ("network", name));
        assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("60"), &json!(60_000)));
        // Also in another room, and not with a key.
        service.send(join("other").from(inside[2])).await.refused(429, "too_many_joins");
        service.send(join("sale").by(SERVICE).from(inside[2])).await.is(201);
        service.send(join("sale").from(outside)).await.is(201);
        // The address that has called most is over its own limit first.
        let told = service.send(join("sale").from(inside[0])).await.refused(429, "rate_limited");
        assert_eq!(told.text("limit"), "address");
    }
    assert_eq!(refused_by_caps(&service).await, [2, 4, 0, 0]);
    service.clock.pass_ms(60_000);
    service.send(join("sale").from("198.51.100.255")).await.is(201);
}

pub(crate) async fn a_room_and_the_service_take_no_more_anonymous_joins_than_their_limits() {
    let (room, total) = (burst(3), burst(5));
    let service = capped(JoinLimits { address: burst(2), room, total, ..JoinLimits::of_address(None) }).await;
    let mut visitors = (1..).map(|number| format!("198.51.{number}.1"));
    let mut next = |room: &str| service.send(join(room).from(&visitors.next().expect("another one")));
    for _ in 0..3 {
        next("sale").await.is(201);
    }
    let told = next("sale").await.refused(429, "too_many_joins");
    assert_eq!((told.text("limit").as_str(), told.header("retry-after")), ("room", Some("60")));
    assert!(told.json().get("address").is_none() && told.json().get("network").is_none(), "nothing of the visitor");
    // What the room refuses takes nothing from the others.
    for _ in 0..2 {
        next("other").await.is(201);
    }
    assert_eq!(next("other").await.refused(429, "too_many_joins").text("limit"), "total");
    service.send(join("sale").by(SERVICE).from(HERE)).await.is(201);
    service.send(join_as("sale", "ann").from(HERE)).await.is(201);
    // An address over its limit takes nothing from the room.
    service.clock.pass_ms(60_000);
    for _ in 0..2 {
        service.send(join("sale").from(HERE)).await;
    }
    assert_eq!(refused_by_caps(&service).await, [0, 0, 2, 1]);
    service.clock.pass_ms(30_000);
    for _ in 0..9 {
        service.send(join("sale").from(HERE)).await.refused(429, "rate_limited");
    }
    service.clock.pass_ms(30_000);
    next("sale").await.is(201);
}

pub(crate) async fn a_network_may_join_ten_times_as_often_as_an_address_unless_an_operator_says_otherwise() {
    let service = capped(config().joins).await;
    let mut joined = 0;
    for host in 0..256 {
        for _ in 0..30 {
            let status = service.send(join("sale").from(&format!("198.51.100.{host}"))).await.status;
            joined += u32::from(status == 201);
        }
    }
    assert_eq!(joined, 300, "ten bursts of 30");
    let service = capped(JoinLimits::of_address(None)).await;
    for _ in 0..400 {
        service.send(join("sale").from(HERE)).await.is(201);
    }
}
