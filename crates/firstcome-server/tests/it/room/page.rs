//! The page of a room, as browsers use it: with cookies, and without scripts.

use crate::service::{Answer, Ask, Service, config};
use firstcome_server::address::Proxies;
use firstcome_server::rate::RateLimit;
use firstcome_server::{Config, JoinLimits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// A browser: it keeps cookies and follows redirects.
pub(crate) struct Browser<'a> {
    service: &'a Service,
    cookies: BTreeMap<String, String>,
}

impl<'a> Browser<'a> {
    pub(crate) fn new(service: &'a Service) -> Self {
        Self { service, cookies: BTreeMap::new() }
    }

    /// Sends with the cookies, and keeps those that come back.
    pub(crate) async fn send(&mut self, ask: Ask) -> Answer {
        let jar: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let ask = if jar.is_empty() { ask } else { ask.header("cookie", jar.join("; ")) };
        let answer = self.service.send(ask.header("host", "shop.example")).await;
        for line in answer.headers.get_all("set-cookie") {
            let line = line.to_str().expect("a cookie is ASCII");
            assert!(line.contains("; HttpOnly; SameSite=Lax"), "{line}");
            let (name, value) = line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a pair");
            if line.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    /// Sends, and follows where it leads.
    pub(crate) async fn follow(&mut self, ask: Ask) -> Answer {
        let mut answer = self.send(ask).await;
        for _ in 0..3 {
            let Some(location) = answer.header("location").map(str::to_owned) else { return answer };
            assert_eq!(answer.status, 303);
            answer = self.send(Ask::get(&location)).await;
        }
        answer
    }

    /// Opens a link, and presses the button of the page that it shows.
    pub(crate) async fn take(&mut self, link: &str) -> Answer {
        let page = self.send(Ask::get(link)).await.is(503);
        assert_eq!(phase(&page), "offer", "{}", page.body());
        self.follow(take_form(link)).await
    }

    pub(crate) async fn page(&mut self) -> Answer {
        self.send(Ask::get("/rooms/sale")).await
    }

    pub(crate) async fn join(&mut self) -> Answer {
        self.follow(Ask::post("/rooms/sale/join")).await
    }

    /// What a script of the page is told.
    pub(crate) async fn told(&mut self) -> Value {
        let answer = self.send(Ask::get("/rooms/sale").header("accept", "application/json")).await.is(200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        answer.json()
    }

    pub(crate) fn ticket(&self) -> String {
        self.cookies["firstcome_ticket_sale"].split('~').next().expect("a ticket").to_owned()
    }
}

/// The press of the button of an offer.
pub(crate) fn take_form(link: &str) -> Ask {
    let (_, ticket) = link.split_once("ticket=").expect("a link");
    let ask = Ask::post("/rooms/sale/take").raw(format!("ticket={ticket}"));
    ask.header("content-type", "application/x-www-form-urlencoded")
}

/// The link with which a browser that has this ticket moves its place.
pub(crate) fn link(ticket: &str) -> String {
    format!("/rooms/sale?ticket={ticket}")
}

/// A service with a room whose only slot is taken, by the first number.
pub(crate) async fn sale(settings: Value) -> Service {
    taken(Service::memory(), settings).await.0
}

/// See [`sale`]. Returns the ticket that has the slot.
async fn taken(service: Service, settings: Value) -> (Service, String) {
    service.make_room("sale", settings).await;
    let first = service.ticket("sale").await;
    service.admitted("sale", &first).await;
    (service, first)
}

pub(crate) fn phase(page: &Answer) -> String {
    let body = page.body();
    let (_, rest) = body.split_once("data-phase=\"").unwrap_or_else(|| panic!("no page of a room: {body}"));
    rest.split('"').next().unwrap_or_default().to_owned()
}

pub(crate) async fn a_visitor_waits_is_admitted_and_goes_where_the_visit_began() {
    let (service, first) = taken(Service::memory(), json!({"max_active": 1, "target_url": "/shop"})).await;
    let (mut ann, mut bob) = (Browser::new(&service), Browser::new(&service));
    assert_eq!(phase(&ann.page().await.is(503)), "join");
    // A proxy shows the page instead of the one that the visitor wanted, by any method.
    for (ask, back) in [
        (Ask::get("/rooms/sale").header("x-forwarded-uri", "/pay?a=1&b=2"), "?back=%2Fpay%3Fa%3D1%26b%3D2\""),
        (Ask::post("/rooms/sale").header("x-forwarded-uri", "/pay?a=1"), "?back=%2F\""),
        (Ask::get("/rooms/sale").header("x-forwarded-uri", "//evil.example"), "?back=%2F\""),
        (Ask::get("/rooms/sale").header("x-forwarded-uri", "/rooms/sale"), "\""),
    ] {
        let page = service.send(ask).await.is(503).body();
        assert!(page.contains(&format!("/rooms/sale/join{back}")), "{back}: {page}");
    }
    ann.join().await.is(503);
    let page = bob.follow(Ask::post("/rooms/sale/join?back=%2Fcart%3Fx%3D1%26y")).await.is(503);
    assert_eq!(phase(&page), "waiting");
    assert!(page.body().contains("1 person ahead of you"), "{}", page.body());
    assert!(page.header("retry-after").is_some_and(|wait| wait.parse::<u32>().is_ok_and(|wait| 0 < wait)));
    assert_eq!(bob.told().await["progress"], 0);
    service.leave("sale", &first).await.is(204);
    service.tick().await;
    let page = ann.page().await.is(200);
    assert_eq!((phase(&page).as_str(), page.header("retry-after")), ("admitted", None));
    assert!(page.body().contains("href=\"/shop\""));
    // The slot decides when a visit ends: each contact prolongs it, and the browser sees only those with the page.
    assert!(page.header("set-cookie").is_some_and(|line| line.contains("; Max-Age=604800;")), "{:?}", page.headers);
    // The cookie of the pass is the one that the gate reads.
    let pass = ann.cookies["firstcome_pass"].clone();
    service.send(Ask::get("/v1/rooms/sale/gate").header("cookie", format!("firstcome_pass={pass}"))).await.is(204);
    let told = bob.told().await;
    assert_eq!((&told["phase"], &told["progress"], &told["number"]), (&json!("almost"), &json!(100), &json!("3")));
    ann.follow(Ask::post("/rooms/sale/leave")).await;
    assert!(!ann.cookies.contains_key("firstcome_pass"));
    assert_eq!(ann.told().await["phase"], "left");
    service.tick().await;
    let page = bob.send(Ask::get("/rooms/sale?back=%2Fcart%3Fx%3D1%26y")).await.is(200);
    assert!(page.body().contains("href=\"/cart?x=1&#38;y\""), "{}", page.body());
    let told = bob.told().await;
    assert_eq!(told["go"], "/shop");
    assert!(told["now_ms"].as_i64() < told["ends_at_ms"].as_i64());
}

pub(crate) async fn a_look_draws_no_number() {
    let service = sale(json!({"max_active": 1})).await;
    for _ in 0..3 {
        Browser::new(&service).page().await.is(503);
        Browser::new(&service).told().await;
    }
    assert_eq!(service.room("sale").await["waiting"], 0);
    let mut ann = Browser::new(&service);
    ann.join().await;
    // A second press, and a second tab.
    ann.join().await;
    assert_eq!(service.room("sale").await["waiting"], 1);
}

pub(crate) async fn a_place_survives_a_reload_and_moves_to_another_browser() {
    let service = sale(json!({"max_active": 1})).await;
    let (mut phone, mut desk) = (Browser::new(&service), Browser::new(&service));
    let page = phone.join().await.is(503);
    let link = format!("http://shop.example/rooms/sale?ticket={}", phone.ticket());
    assert!(page.body().contains(&format!("value=\"{link}\"")), "{}", page.body());
    let drawing = phone.send(Ask::get("/rooms/sale/place.svg")).await.is(200);
    assert_eq!(drawing.header("content-type"), Some("image/svg+xml"));
    assert!(drawing.body().contains("<svg"));
    let moved = desk.take(&self::link(&phone.ticket())).await.is(503);
    assert_ne!(desk.ticket(), phone.ticket());
    assert!(moved.body().contains(">2</dd>"), "{}", moved.body());
    assert_eq!(phase(&phone.page().await), "moved");
    // Neither who has no place, nor who invents one, sees anything.
    Browser::new(&service).send(Ask::get("/rooms/sale/place.svg").header("accept", "application/json")).await.is(404);
    let invented = Ask::get("/rooms/sale?ticket=2.AAAA").header("accept", "application/json");
    Browser::new(&service).send(invented).await.refused(404, "unknown_ticket");
}

pub(crate) async fn behind_tls_cookies_and_links_are_for_tls_alone() {
    let proxies = Proxies::new(vec!["192.0.2.7".parse().expect("an address")]);
    let (service, _) = taken(Service::memory_with(Config { proxies, ..config() }), json!({"max_active": 1})).await;
    let ask = |ask: Ask, peer: &str| {
        let forwarded = ask.header("x-forwarded-proto", "https").header("x-forwarded-host", "www.shop.example");
        forwarded.header("host", "127.0.0.1:3000").header("origin", "https://www.shop.example").from(peer)
    };
    let joined = service.send(ask(Ask::post("/rooms/sale/join"), "192.0.2.7")).await.is(303);
    let place = joined.header("set-cookie").expect("a place").to_owned();
    assert!(place.ends_with("; Secure"), "{place}");
    let page = |peer| service.send(ask(Ask::get("/rooms/sale"), peer).header("cookie", &place));
    assert!(page("192.0.2.7").await.body().contains("\"https://www.shop.example/rooms/sale?ticket="));
    // Another peer is not believed.
    assert!(page("192.0.2.8").await.body().contains("\"http://127.0.0.1:3000/rooms/sale?ticket="));
}

pub(crate) async fn a_link_takes_no_better_place_away() {
    let service = sale(json!({"max_active": 1})).await;
    let (mut ann, mut mallory) = (Browser::new(&service), Browser::new(&service));
    ann.join().await;
    mallory.join().await;
    let own = ann.ticket();
    ann.take(&link(&mallory.ticket())).await;
    assert_eq!(ann.ticket(), own);
    assert_eq!(phase(&mallory.page().await), "waiting", "the link was not used up");
    // One that has ended takes no living one away, by any number.
    let ended = service.ticket("sale").await;
    service.leave("sale", &ended).await.is(204);
    let mut late = Browser::new(&service);
    late.join().await;
    let place = late.ticket();
    late.take(&link(&ended)).await;
    assert_eq!(late.ticket(), place);
    // A better one is taken, and so is any once the own one has ended.
    let page = mallory.take(&link(&own)).await;
    assert!(page.body().contains(">2</dd>"), "{}", page.body());
    assert_eq!(phase(&ann.page().await), "moved");
}

pub(crate) async fn the_page_says_what_has_become_of_the_room() {
    let service = sale(json!({"max_active": 1, "max_waiting": 1, "message": "Back at 8 & <soon>"})).await;
    let (mut ann, mut bob) = (Browser::new(&service), Browser::new(&service));
    ann.join().await;
    let page = bob.join().await.is(503);
    assert_eq!(phase(&page), "full");
    let settings = |more: Value| {
        let mut settings = json!({"max_active": 1, "max_waiting": 1, "message": "Back at 8 & <soon>"});
        settings.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        settings
    };
    service.make_room("sale", settings(json!({"paused": true}))).await;
    let page = ann.page().await.is(503);
    assert_eq!(phase(&page), "paused");
    assert!(page.body().contains("Back at 8 &#38; &#60;soon&#62;"), "{}", page.body());
    service.make_room("sale", settings(json!({"opens_at": service.later(125_000)}))).await;
    let page = ann.page().await.is(503);
    assert_eq!(phase(&page), "scheduled");
    assert!(page.body().contains(">2:05</span>"), "{}", page.body());
    service.close_room("sale").await.is(204);
    assert_eq!(phase(&ann.page().await.is(410)), "over");
    assert_eq!(phase(&bob.join().await.is(410)), "over");
    let page = bob.send(Ask::get("/rooms/none")).await.is(404);
    assert!(page.body().contains("unknown_room"), "a browser reads a page: {}", page.body());
    bob.send(Ask::get("/rooms/none").header("accept", "application/json")).await.refused(404, "unknown_room");
}

pub(crate) async fn a_visitor_without_cookies_is_told_so_and_joins_no_more() {
    let service = sale(json!({"max_active": 1})).await;
    let led = service.send(Ask::post("/rooms/sale/join")).await.is(303);
    let page = service.send(Ask::get(led.header("location").expect("a page"))).await.is(503);
    assert_eq!(phase(&page), "cookies");
    assert_eq!(page.header("refresh"), None);
}

pub(crate) async fn a_page_is_read_in_the_language_of_its_visitor() {
    let service = sale(json!({"max_active": 1})).await;
    let mut ann = Browser::new(&service);
    let ask = || Ask::get("/rooms/sale").header("accept-language", "ko-KR, en;q=0.5");
    let page = ann.send(ask()).await;
    assert!(page.body().contains("<html lang=\"ko\" dir=\"ltr\">"));
    assert_eq!(page.header("content-language"), Some("ko"));
    assert!(page.header("vary").is_some_and(|vary| vary.contains("accept-language") && vary.contains("cookie")));
    // What the visitor chose counts more than what the browser says, on later visits too.
    let page = ann.follow(Ask::get("/rooms/sale?lang=ar&back=%2Fcart")).await;
    assert!(page.body().contains("<html lang=\"ar\" dir=\"rtl\">") && page.body().contains("back=%2Fcart"));
    assert!(ann.send(ask()).await.body().contains("lang=\"ar\" dir=\"rtl\""));
    assert_eq!(ann.told().await["title"], "أنت على وشك الانضمام إلى الطابور");
    ann.follow(Ask::get("/rooms/sale?lang=xx")).await.is(503);
}

pub(crate) async fn a_page_leads_to_no_other_site() {
    let service = sale(json!({"max_active": 1})).await;
    for back in
        ["//evil.example", "https://evil.example", "/%5Cevil.example", "javascript:x", "/%0d%0aset-cookie:x", ""]
    {
        for path in ["/rooms/sale?back=", "/rooms/sale?lang=ko&back="] {
            let ask = Ask::get(&format!("{path}{back}")).header("accept", "application/json");
            service.send(ask).await.refused(400, "invalid_query");
        }
        let ask = Ask::post(&format!("/rooms/sale/join?back={back}")).header("accept", "application/json");
        service.send(ask).await.refused(400, "invalid_query");
    }
    let ask = Ask::get("/rooms/sale?back=/a&back=/b").header("accept", "application/json");
    service.send(ask).await.refused(400, "invalid_query");
    service.send(Ask::get("/rooms/sale?utm_source=mail")).await.is(503);
    assert_eq!(service.room("sale").await["waiting"], 0);
}

pub(crate) async fn the_first_view_is_small_and_runs_nothing_inline() {
    let service = sale(json!({"max_active": 1, "message": "Soon"})).await;
    let mut ann = Browser::new(&service);
    let page = ann.join().await;
    let policy = page.header("content-security-policy").expect("a policy");
    for rule in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(rule), "{rule}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    let mut bytes = page.bytes.len();
    for path in ["/assets/room.css", "/assets/room.js"] {
        let loaded = service.send(Ask::get(path)).await.is(200);
        assert_eq!(loaded.header("x-content-type-options"), Some("nosniff"));
        for foreign in ["@import", "url(", "http:", "https:", "innerHTML", "eval("] {
            assert!(!loaded.body().contains(foreign), "{foreign} in {path}");
        }
        bytes += loaded.bytes.len();
    }
    // The first packets of a connection carry 14 KB; a proxy that compresses needs a third of that.
    assert!(bytes <= 18_000, "{bytes} bytes");
    let html = page.body().replace("value=\"http://shop.example/", "value=\"/");
    for foreign in ["<style", "style=", " onload=", " onclick=", "http://", "https://", "href=\"//"] {
        assert!(!html.contains(foreign), "{foreign} in the page");
    }
    let scripts = html.matches("<script").count();
    assert_eq!((scripts, html.matches("<script src=\"/assets/room.js").count()), (1, 1), "no inline script");
}

pub(crate) async fn pages_that_update_themselves_do_so_when_asked() {
    let service = sale(json!({"max_active": 1})).await;
    let mut ann = Browser::new(&service);
    let page = ann.join().await;
    assert_eq!(page.header("refresh"), None);
    assert!(page.body().contains("<noscript><p class=\"links\"><a href=\"/rooms/sale\">"), "{}", page.body());
    let page = ann.send(Ask::get("/rooms/sale?auto=1")).await;
    assert!(page.header("refresh").is_some_and(|wait| wait.parse::<u32>().is_ok_and(|wait| 5 <= wait)));
}

pub(crate) async fn joins_by_the_page_are_limited_by_address() {
    let joins = JoinLimits::of_address(Some(RateLimit::per_minute(NonZeroU32::MIN)));
    let (service, _) = taken(Service::memory_with(Config { joins, ..config() }), json!({"max_active": 1})).await;
    let join = || Ask::post("/rooms/sale/join").from("192.0.2.7");
    service.send(join()).await.is(303);
    let page = service.send(join()).await.is(429);
    assert!(page.body().contains("rate_limited") && page.header("retry-after").is_some());
    service.send(join().header("accept", "application/json")).await.refused(429, "rate_limited");
    assert_eq!(service.room("sale").await["waiting"], 1);
}

pub(crate) async fn a_join_by_another_site_draws_no_number() {
    let service = sale(json!({"max_active": 1})).await;
    let mut ann = Browser::new(&service);
    for origin in ["http://evil.example", "null"] {
        let led = ann.send(Ask::post("/rooms/sale/join").header("origin", origin)).await.is(303);
        assert_eq!(led.header("location"), Some("/rooms/sale?asked=1"), "no script presses the button again");
    }
    for site in ["cross-site", "same-site"] {
        ann.follow(Ask::post("/rooms/sale/join").header("sec-fetch-site", site)).await.is(503);
    }
    assert_eq!(service.room("sale").await["waiting"], 0);
    ann.follow(Ask::post("/rooms/sale/join").header("origin", "http://shop.example")).await.is(503);
    let left = ann.send(Ask::post("/rooms/sale/leave").header("sec-fetch-site", "cross-site")).await.is(303);
    assert_eq!(left.header("set-cookie"), None);
    assert_eq!(service.room("sale").await["waiting"], 1);
}
