//! The dashboard, as browsers use it: with a cookie, and without scripts.

mod logout;
mod proof;
mod stream;

pub(crate) use logout::a_session_that_has_logged_out_is_refused_and_others_are_not;
pub(crate) use proof::the_search_leads_to_the_proof_of_what_it_finds;

use crate::service::{ADMIN, Answer, Ask, SERVICE, STRANGER, Service, config, keys};
use crate::stores::{clock, open};
use firstcome_server::auth::KeyDigest;
use firstcome_server::{App, Config, Keys};
use serde_json::json;
use std::time::Duration;

/// A key that may only view.
const VIEW: &str = "canary-view-0123456789012";

fn with_view() -> Config {
    Config { keys: keys().with_view_keys([KeyDigest::of(VIEW)]), ..config() }
}

fn service() -> Service {
    Service::memory_with(with_view())
}

/// A browser of an operator.
struct Operator<'a> {
    service: &'a Service,
    cookie: String,
}

impl<'a> Operator<'a> {
    async fn logged_in(service: &'a Service, key: &str) -> Self {
        let answer = service.send(login(key)).await.is(303);
        assert_eq!(answer.header("location"), Some("/dashboard"));
        let line = answer.header("set-cookie").expect("a cookie");
        for part in ["; Path=/dashboard; ", "; HttpOnly; SameSite=Strict", "Max-Age=3600;"] {
            assert!(line.contains(part), "{line}");
        }
        let cookie = line.split(';').next().unwrap_or_default().to_owned();
        Self { service, cookie }
    }

    /// Logs in with the admin key and a name.
    async fn named(service: &'a Service, operator: &str) -> Self {
        let fields = [("key", ADMIN), ("operator", operator)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let answer = service.send(form("/dashboard/login", &fields)).await.is(303);
        let line = answer.header("set-cookie").expect("a cookie");
        Self { service, cookie: line.split(';').next().unwrap_or_default().to_owned() }
    }

    async fn send(&self, ask: Ask) -> Answer {
        self.service.send(ask.header("cookie", &self.cookie).header("host", "ops.example")).await
    }

    async fn page(&self, path: &str) -> Answer {
        self.send(Ask::get(path)).await
    }

    /// Sends the form of a page, with other values for some fields.
    async fn submit(&self, page: &Answer, action: &str, values: &[(&str, &str)]) -> Answer {
        self.send(form(action, &fields(page, action, values)).header("origin", "http://ops.example")).await
    }

    /// Goes through the confirmation of an action.
    async fn act(&self, action: &str, values: &[(&str, &str)]) -> Answer {
        let mut page = self.page(action).await.is(200);
        if !page.body().contains("name=\"sure\"") {
            page = self.submit(&page, action, values).await.is(200);
        }
        self.submit(&page, action, &[]).await
    }
}

fn form(path: &str, fields: &[(String, String)]) -> Ask {
    let body = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&");
    Ask::post(path).raw(body).header("content-type", "application/x-www-form-urlencoded")
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn login(key: &str) -> Ask {
    form("/dashboard/login", &[("key".to_owned(), key.to_owned())])
}

/// The fields of the form with this action.
fn fields(page: &Answer, action: &str, values: &[(&str, &str)]) -> Vec<(String, String)> {
    let html = page.body();
    let (_, rest) =
        html.split_once(&format!("action=\"{action}\"")).unwrap_or_else(|| panic!("no form {action}: {html}"));
    let form = rest.split("</form>").next().unwrap_or_default();
    let attribute = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        rest.split('"').next().map(|text| {
            [("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">"), ("&#38;", "&")]
                .iter()
                .fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
        })
    };
    let inputs = form.split("<input").skip(1).filter_map(|tag| {
        let name = attribute(tag, "name")?;
        let given = values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let value = given.unwrap_or_else(|| attribute(tag, "value").unwrap_or_default());
        Some((name, value))
    });
    inputs.collect()
}

async fn furnished() -> Service {
    let service = service();
    service.make("launch", json!({"limit": 9})).await;
    service.claim("launch", "ann").await.is(201);
    service.send(Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
    service.fund(["ann"], 1_000).await;
    service.list("lamp", &crate::auction::auction(10)).await;
    service
}

const PAGES: [&str; 13] = [
    "/dashboard",
    "/dashboard/rooms",
    "/dashboard/rooms/sale",
    "/dashboard/coupons",
    "/dashboard/coupons/launch",
    "/dashboard/listings",
    "/dashboard/listings/lamp",
    "/dashboard/members",
    "/dashboard/members/ann",
    "/dashboard/locks",
    "/dashboard/locks/door",
    "/dashboard/find",
    "/dashboard/audit",
];

pub(crate) async fn each_page_needs_a_session_and_loads_nothing_from_elsewhere() {
    let service = furnished().await;
    let operator = Operator::logged_in(&service, ADMIN).await;
    for path in PAGES {
        let away = service.send(Ask::get(path)).await.is(303);
        assert_eq!(away.header("location"), Some("/dashboard/login"), "{path}");
        let page = operator.page(path).await.is(200);
        assert_eq!(page.header("cache-control"), Some("no-store"), "{path}");
        let policy = page.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let html = page.body();
        for foreign in ["http://", "https://", "style=", " onclick=", "<script>"] {
            assert!(!html.contains(foreign), "{foreign} in {path}");
        }
    }
    for path in ["/dashboard/feed", "/dashboard/feed?room=sale"] {
        service.send(Ask::get(path)).await.refused(401, "unauthorized");
    }
    for asset in ["dashboard.css", "dashboard.js", "uplot.css", "uplot.js"] {
        service.send(Ask::get(&format!("/assets/{asset}"))).await.is(200);
    }
    let listed = |section: &str, name: &str| format!("href=\"/dashboard/{section}/{name}\"");
    for (section, name) in [("rooms", "sale"), ("coupons", "launch"), ("listings", "lamp"), ("members", "ann")] {
        assert!(
            operator.page(&format!("/dashboard/{section}")).await.body().contains(&listed(section, name)),
            "{name}"
        );
    }
    for nothing in ["/dashboard/none", "/dashboard/rooms/none", "/dashboard/coupons/none", "/dashboard/rooms/sale/none"]
    {
        operator.page(nothing).await.is(404);
    }
    assert!(!operator.page("/dashboard/coupons/launch").await.body().contains("code"), "voucher codes stay secret");
}

pub(crate) async fn lists_have_pages() {
    let service = service();
    for number in 0..30 {
        let room = format!("/v1/rooms/room-{number:02}");
        service.send(Ask::put(&room).by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
    }
    let operator = Operator::logged_in(&service, ADMIN).await;
    let first = operator.page("/dashboard/rooms").await.body();
    assert!(first.contains("room-24") && !first.contains("room-25"), "{first}");
    assert!(first.contains("href=\"/dashboard/rooms?after=room-24\""));
    let second = operator.page("/dashboard/rooms?after=room-24").await.body();
    assert!(second.contains("room-25") && second.contains("room-29") && !second.contains("room-24\""));
    let opened = operator.page("/dashboard/open?section=rooms&name=room-07").await.is(303);
    assert_eq!(opened.header("location"), Some("/dashboard/rooms/room-07"));
    operator.page("/dashboard/open?section=rooms&name=%2F%2Fevil.example").await.is(400);
    operator.page("/dashboard/open?section=%2F%2Fevil.example&name=x").await.is(404);
}

pub(crate) async fn only_keys_of_operators_log_in_and_attempts_are_bounded() {
    let service = service();
    for key in ["", STRANGER, SERVICE, &ADMIN[1..]] {
        let answer = service.send(login(key)).await.is(401);
        assert!(answer.header("set-cookie").is_none() && answer.body().contains("neither the admin key"));
    }
    Operator::logged_in(&service, VIEW).await;
    // Another site logs no operator in to a session of its choice.
    let foreign = login(ADMIN).header("sec-fetch-site", "cross-site");
    service.send(foreign.header("accept", "application/json")).await.refused(403, "form_expired");
    for attempt in 0..10 {
        service.send(login(STRANGER).from("203.0.113.9")).await.is(if attempt < 10 { 401 } else { 429 });
    }
    let limited = service.send(login(ADMIN).from("203.0.113.9").header("accept", "application/json")).await;
    limited.refused(429, "rate_limited");
    service.send(login(ADMIN).from("203.0.113.10")).await.is(303);
}

pub(crate) async fn a_session_is_good_at_each_node_and_ends_with_its_key() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let service = Service::new(open(directory.path(), &clock), std::sync::Arc::clone(&clock), with_view());
    let operator = Operator::logged_in(&service, ADMIN).await;
    // Another process with the same keys.
    let other = Service::memory_with(with_view());
    let elsewhere = Operator { service: &other, cookie: operator.cookie.clone() };
    elsewhere.page("/dashboard").await.is(200);
    let changed =
        Config { keys: Keys::Known(vec![(firstcome_server::Scope::Admin, KeyDigest::of(STRANGER))]), ..config() };
    let changed = Service::memory_with(changed);
    let outside = Operator { service: &changed, cookie: operator.cookie.clone() };
    outside.page("/dashboard").await.is(303);
    // It lasts an hour, and longer with each page.
    service.set_clock(1_800);
    let page = operator.page("/dashboard").await.is(200);
    assert!(page.header("set-cookie").is_some_and(|line| line.contains("Max-Age=3600")), "{:?}", page.headers);
    service.set_clock(3_600);
    operator.page("/dashboard").await.is(303);
    // A logout takes the cookie away, and needs the token of the session.
    let operator = Operator::logged_in(&service, ADMIN).await;
    operator
        .send(form("/dashboard/logout", &[]).header("accept", "application/json"))
        .await
        .refused(403, "form_expired");
    let page = operator.page("/dashboard").await;
    let gone = operator.submit(&page, "/dashboard/logout", &[]).await.is(303);
    assert!(gone.header("set-cookie").is_some_and(|line| line.contains("Max-Age=0")));
}

pub(crate) async fn a_key_to_view_changes_nothing_anywhere() {
    let service = furnished().await;
    let viewer = Operator::logged_in(&service, VIEW).await;
    for path in PAGES {
        assert!(!viewer.page(path).await.is(200).body().contains("/pause\""), "{path}");
    }
    let json = |ask: Ask| ask.header("accept", "application/json");
    let operator = Operator::logged_in(&service, ADMIN).await;
    let page = operator.page("/dashboard/rooms/sale/pause").await;
    for action in ["/dashboard/rooms/sale/pause", "/dashboard/rooms/sale/close", "/dashboard/coupons/launch/limits"] {
        viewer.send(json(Ask::get(action))).await.refused(403, "view_only");
    }
    // Neither the token of an operator nor the own one helps.
    let theirs = fields(&page, "/dashboard/rooms/sale/pause", &[]);
    viewer.send(json(form("/dashboard/rooms/sale/pause", &theirs))).await.refused(403, "form_expired");
    let shown = service.send(Ask::get("/v1/rooms/sale").by(VIEW)).await.is(200);
    assert_eq!(shown.json()["settings"]["paused"], json!(false), "an operator who looks sees settings");
    for path in ["/v1/coupons/launch", "/v1/listings/lamp/bids", "/v1/members/ann", "/v1/locks/door", "/metrics"] {
        service.send(Ask::get(path).by(VIEW)).await.is(200);
    }
    for ask in [
        Ask::post("/v1/rooms/sale/pause"),
        Ask::post("/v1/rooms/sale/tickets").json(&json!({})),
        Ask::delete("/v1/rooms/sale"),
        Ask::put("/v1/coupons/launch").json(&json!({"limit": 9})),
        Ask::post("/v1/coupons/launch/claims").json(&json!({"user": "bob"})),
        Ask::get("/v1/coupons/launch/claims"),
        Ask::get("/v1/coupons/launch/claims/ann"),
        Ask::post("/v1/members/ann/points/charge").json(&json!({"amount": 1})),
        Ask::post("/v1/locks/door/acquire").json(&json!({"owner": "ann", "wait_ms": 0, "lease_ms": 100})),
    ] {
        service.send(ask.by(VIEW)).await.refused(403, "view_only");
    }
    assert_eq!(service.issued("launch").await, 1);
}

pub(crate) async fn an_operator_changes_a_room_after_a_confirmation() {
    let service = furnished().await;
    let operator = Operator::logged_in(&service, ADMIN).await;
    let settings = async || service.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await.json()["settings"].clone();
    // A look at the confirmation changes nothing, and shows what will be.
    let page = operator.page("/dashboard/rooms/sale/pause").await.is(200);
    assert!(page.body().contains("<td>paused</td><td>false</td><td><b>true</b></td>"), "{}", page.body());
    assert_eq!(settings().await["paused"], json!(false));
    let done = operator.submit(&page, "/dashboard/rooms/sale/pause", &[]).await.is(303);
    assert_eq!(done.header("location"), Some("/dashboard/rooms/sale"));
    assert_eq!(settings().await["paused"], json!(true));
    assert!(operator.page("/dashboard/rooms/sale").await.body().contains(">paused<"));
    operator.act("/dashboard/rooms/sale/resume", &[]).await.is(303);
    operator.act("/dashboard/rooms/sale/message", &[("message", "Soon <b>& \"more\"")]).await.is(303);
    let limits = [
        ("count", "5"),
        ("every_ms", "1 000"),
        ("max_active", ""),
        ("max_waiting", "77"),
        ("first_poll_ms", "120 000"),
    ];
    operator.act("/dashboard/rooms/sale/limits", &limits).await.is(303);
    let now = settings().await;
    assert_eq!(now["message"], "Soon <b>& \"more\"");
    assert_eq!((&now["admit"], &now["max_waiting"]), (&json!({"count": 5, "every_ms": 1_000}), &json!(77)));
    assert_eq!(now["first_poll_ms"], 120_000);
    let room = operator.page("/dashboard/rooms/sale").await.body();
    let fact = room.split("Without a first poll").nth(1).and_then(|rest| rest.split("</dd>").next());
    assert!(fact.is_some_and(|fact| fact.contains("2 min")), "{fact:?}");
    assert_eq!((now.get("max_active"), &now["paused"]), (None, &json!(false)));
    // Nonsense changes nothing.
    let page = operator.page("/dashboard/rooms/sale/limits").await;
    for count in ["-1", "x", "0"] {
        let asked = operator.submit(&page, "/dashboard/rooms/sale/limits", &[("count", count)]).await;
        let answer = if asked.status == 200 {
            operator.submit(&asked, "/dashboard/rooms/sale/limits", &[]).await
        } else {
            asked
        };
        answer.is(400);
    }
    assert_eq!(settings().await, now);
    operator.act("/dashboard/rooms/sale/close", &[]).await.is(303);
    assert!(operator.page("/dashboard/rooms/sale").await.body().contains(">closed<"));
    operator.act("/dashboard/rooms/sale/open", &[]).await.is(303);
    assert!(operator.page("/dashboard/rooms/sale").await.body().contains(">open<"));
    // Everything stands in the audit log, with what was and what is.
    let audit = operator.page("/dashboard/audit").await.body();
    for words in ["room sale", "paused: false → true", "message: none → Soon &#60;b&#62;", "max_waiting: 1000000 → 77"]
    {
        assert!(audit.contains(words), "{words} in {audit}");
    }
    assert!(audit.contains(">invalid field<"), "refused attempts stand there too: {audit}");
}

pub(crate) async fn a_form_counts_in_its_session_and_for_its_action_alone() {
    let service = furnished().await;
    let operator = Operator::logged_in(&service, ADMIN).await;
    let path = "/dashboard/rooms/sale/pause";
    let page = operator.page(path).await;
    let good = fields(&page, path, &[]);
    let json = |ask: Ask| ask.header("accept", "application/json");
    let without: Vec<_> = good.iter().filter(|(name, _)| name != "token").cloned().collect();
    operator.send(json(form(path, &without))).await.refused(403, "form_expired");
    operator.send(json(form("/dashboard/rooms/sale/close", &good))).await.refused(403, "form_expired");
    let other = Operator::logged_in(&service, ADMIN).await;
    other.send(json(form(path, &good))).await.refused(403, "form_expired");
    for (header, value) in
        [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "http://evil.example")]
    {
        operator.send(json(form(path, &good)).header(header, value)).await.refused(403, "form_expired");
    }
    service.send(json(form(path, &good))).await.refused(401, "unauthorized");
    operator
        .send(Ask::post(path).raw("{}").header("accept", "application/json"))
        .await
        .refused(415, "unsupported_media_type");
    let state = async || service.send(Ask::get("/v1/rooms/sale")).await.text("state");
    assert_eq!(state().await, "open");
    // Another operator was faster: what this one has seen is not what is.
    other.act("/dashboard/rooms/sale/message", &[("message", "x")]).await.is(303);
    operator.send(json(form(path, &good))).await.refused(412, "settings_changed");
    assert_eq!(state().await, "open");
    operator.act(path, &[]).await.is(303);
    assert_eq!(state().await, "paused");
}

pub(crate) async fn an_operator_ends_and_opens_a_coupon() {
    let service = furnished().await;
    let operator = Operator::logged_in(&service, ADMIN).await;
    let state = async || service.show("launch").await.text("state");
    operator.act("/dashboard/coupons/launch/close", &[]).await.is(303);
    assert_eq!(state().await, "expired");
    service.claim("launch", "bob").await.refused(410, "expired");
    operator.act("/dashboard/coupons/launch/open", &[]).await.is(303);
    assert_eq!(state().await, "open");
    operator.act("/dashboard/coupons/launch/limits", &[("limit", "1")]).await.is(303);
    assert_eq!(state().await, "sold_out");
    operator.act("/dashboard/coupons/launch/limits", &[("limit", "0")]).await.is(400);
}

pub(crate) async fn a_look_finds_places_claims_and_bids_and_changes_nothing() {
    let service = furnished().await;
    let join = |user: &str| Ask::post("/v1/rooms/sale/tickets").by(SERVICE).json(&json!({"user": user}));
    let ann = service.send(join("ann")).await.text("ticket");
    let bob = service.send(join("bob")).await.text("ticket");
    service.tick().await;
    let operator = Operator::logged_in(&service, ADMIN).await;
    let find = async |kind: &str, place: &str, what: &str| {
        operator.page(&format!("/dashboard/find?kind={kind}&in={place}&what={}", encoded(what))).await
    };
    let page = find("user", "sale", "bob").await.is(200).body();
    assert!(page.contains("in line") && page.contains("<dt>Ahead</dt><dd>0</dd>"), "{page}");
    // Ann is admitted, and her own poll takes the slot: a look did not.
    for _ in 0..2 {
        let page = find("ticket", "sale", &ann).await.is(200).body();
        assert!(page.contains("admitted: the next poll takes the slot"), "{page}");
    }
    assert!(find("ticket", "sale", &bob).await.is(200).body().contains("bob"));
    assert!(find("claim", "launch", "ann").await.is(200).body().contains("<dt>Serial</dt><dd>1</dd>"));
    service
        .send(Ask::post("/v1/listings/lamp/bids").by(SERVICE).json(&json!({"bidder": "ann", "price": 100})))
        .await
        .is(201);
    assert!(find("bid", "lamp", "ann").await.is(200).body().contains("<dt>Is the highest</dt><dd>yes</dd>"));
    for (kind, place, what) in [
        ("user", "sale", "eve"),
        ("ticket", "sale", "99"),
        ("claim", "launch", "eve"),
        ("bid", "lamp", "bob"),
        ("user", "none", "x"),
    ] {
        find(kind, place, what).await.is(404);
    }
    assert!(find("ticket", "sale", "2").await.is(200).body().contains("bob"));
    let page = find("ticket", "sale", "\"><script>").await.is(404).body();
    assert!(!page.contains("><script>"), "what was typed in is shown as text: {page}");
    find("user", "-", "x").await.is(400);
}

pub(crate) async fn claims_are_exported_whole_and_without_codes() {
    let service = service();
    service.make("launch", json!({"limit": 2_000})).await;
    let code = service.claim_code("launch", "ann").await;
    let attributes = json!({"user": "bob", "attributes": {"a": "=1,\"x\""}});
    service.send(Ask::post("/v1/coupons/launch/claims").by(SERVICE).json(&attributes)).await.is(201);
    service.redeem("launch", &code).await.is(201);
    for number in 2..1_200 {
        service.claim("launch", &format!("user-{number}")).await.is(201);
    }
    let path = "/dashboard/coupons/launch/claims.csv";
    service.send(Ask::get(path)).await.is(303);
    let viewer = Operator::logged_in(&service, VIEW).await;
    let answer = viewer.page(path).await.is(200);
    assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8"));
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"claims-launch.csv\""));
    let body = answer.body();
    let lines: Vec<&str> = body.split_terminator("\r\n").collect();
    assert_eq!((lines.len(), lines[0]), (1_201, "serial,user,issued_at,redeemed_at,attributes"));
    assert_eq!(lines[1], "1,ann,2030-01-01T00:00:00Z,2030-01-01T00:00:00Z,");
    assert!(lines[2].starts_with("2,bob,2030-01-01T00:00:00Z,,\"{\"\"a\"\":"), "{}", lines[2]);
    assert!(lines[1_200].starts_with("1200,user-1199,"), "{}", lines[1_200]);
    assert!(!body.contains(&code) && !body.contains(&code.replace('-', "")));
    viewer.page("/dashboard/coupons/none/claims.csv").await.is(404);
    assert!(viewer.page("/dashboard/audit").await.body().contains("1200 claims"));
}

pub(crate) async fn the_feed_has_what_happened_each_second() {
    let service = furnished().await;
    let operator = Operator::logged_in(&service, ADMIN).await;
    let feed = async |query: &str| {
        let answer = operator.page(&format!("/dashboard/feed{query}")).await.is(200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.json()
    };
    assert_eq!(feed("").await["at_ms"], json!([]), "the first look begins");
    for _ in 0..3 {
        service.send(Ask::post("/v1/rooms/sale/tickets").json(&json!({}))).await.is(201);
    }
    service.claim("launch", "bob").await.is(201);
    service.claim("launch", "bob").await.refused(409, "already_issued");
    service.set_clock(2);
    let told = feed("").await;
    assert_eq!((&told["arrivals"], &told["issued"], &told["refused"]), (&json!([1.5]), &json!([0.5]), &json!([0.5])));
    assert_eq!(told["line"][0].as_f64().zip(told["inside"][0].as_f64()).map(|(line, inside)| line + inside), Some(3.0));
    assert!(told["p99_ms"][0].as_f64().is_some_and(|latency| 0.0 < latency), "{told}");
    let last = told["at_ms"][0].as_i64().expect("an instant");
    assert_eq!(feed(&format!("?after={last}")).await["at_ms"], json!([]), "only what is new");
    let room = feed("?room=sale").await;
    assert_eq!(room["at_ms"].as_array().map(Vec::len), Some(2), "a room has a past at once: {room}");
    operator.page("/dashboard/feed?room=none").await.refused(404, "unknown_room");
}

pub(crate) async fn in_development_mode_the_dashboard_is_open_to_this_machine_alone() {
    let service = Service::memory_with(Config { keys: Keys::Dev, ..config() });
    service.send(Ask::put("/v1/rooms/sale").json(&json!({"max_active": 1})).header("host", "localhost")).await.is(201);
    let local = |ask: Ask| ask.header("host", "localhost:8080");
    let page = service.send(local(Ask::get("/dashboard/rooms/sale/pause"))).await.is(200);
    service.send(local(Ask::get("/dashboard/login"))).await.is(303);
    let fields = fields(&page, "/dashboard/rooms/sale/pause", &[]);
    let foreign = Ask::get("/dashboard").header("host", "evil.example").header("accept", "application/json");
    service.send(foreign).await.refused(403, "foreign_origin");
    service
        .send(local(form("/dashboard/rooms/sale/pause", &fields)).header("origin", "http://localhost:8080"))
        .await
        .is(303);
    assert_eq!(service.send(local(Ask::get("/v1/rooms/sale"))).await.text("state"), "paused");
}

pub(crate) async fn a_service_of_listings_alone_shows_no_rooms() {
    let clock = clock();
    let store = firstcome::Embedded::memory_with(std::sync::Arc::clone(&clock) as _);
    let service = Service::of(App::of_auctions(store.clone(), with_view()), store, clock);
    let operator = Operator::logged_in(&service, ADMIN).await;
    let page = operator.page("/dashboard").await.is(200).body();
    assert!(!page.contains("/dashboard/rooms") && page.contains("/dashboard/listings"), "{page}");
    operator.page("/dashboard/rooms").await.refused(404, "not_served");
}

pub(crate) async fn a_second_operator_confirms_what_is_dangerous() {
    let service = Service::memory_with(Config { second_person_within: Some(Duration::from_secs(600)), ..with_view() });
    service.make("launch", json!({"limit": 9})).await;
    service.send(Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
    let ann = Operator::named(&service, "ann").await;
    let (again, bob) = (Operator::named(&service, "Ann").await, Operator::named(&service, "bob").await);
    let nameless = Operator::logged_in(&service, ADMIN).await;
    let state = async || service.send(Ask::get("/v1/rooms/sale")).await.text("state");
    let json = |path: &str| Ask::get(path).header("accept", "application/json");
    let path = "/dashboard/rooms/sale/close";
    let asked = ann.act(path, &[]).await.is(202).body();
    let (_, rest) = asked.split_once("readonly value=\"").expect("an address");
    let address = rest.split('"').next().unwrap_or_default().to_owned();
    assert!(address.starts_with("/dashboard/rooms/sale/close?request="), "{address}");
    assert_eq!(state().await, "open", "nothing is done yet");
    for operator in [&ann, &again, &nameless] {
        operator.send(json(&address)).await.refused(403, "second_person_needed");
    }
    let of_another = address.replace("rooms/sale/close", "coupons/launch/close");
    bob.send(json(&of_another)).await.refused(403, "form_expired");
    // The form counts no less than the page: ann sends the request herself.
    let page = ann.page(path).await.is(200);
    let mut own = fields(&page, path, &[]);
    own.push(("request".to_owned(), address.split_once('=').expect("a request").1.to_owned()));
    ann.send(form(path, &own).header("accept", "application/json")).await.refused(403, "second_person_needed");
    let nobody = nameless.page(path).await.is(200);
    let own = fields(&nobody, path, &[]);
    nameless.send(form(path, &own).header("accept", "application/json")).await.refused(403, "second_person_needed");
    // What is not dangerous needs one operator.
    ann.act("/dashboard/rooms/sale/pause", &[]).await.is(303);
    ann.act("/dashboard/rooms/sale/resume", &[]).await.is(303);
    service.set_clock(599);
    let page = bob.page(&address).await.is(200);
    assert!(page.body().contains("ann has requested it"), "{}", page.body());
    bob.submit(&page, path, &[]).await.is(303);
    assert_eq!(state().await, "closed");
    let audit = bob.page("/dashboard/audit").await.body();
    for words in [">requested<", "operate ann ", "operate bob ", ">second person needed<"] {
        assert!(audit.contains(words), "{words} in {audit}");
    }
    let asked = ann.act("/dashboard/coupons/launch/close", &[]).await.is(202).body();
    let (_, rest) = asked.split_once("readonly value=\"").expect("an address");
    let address = rest.split('"').next().unwrap_or_default().to_owned();
    service.set_clock(599 + 600);
    bob.send(json(&address)).await.refused(403, "form_expired");
    assert_eq!(service.show("launch").await.text("state"), "open");
}

pub(crate) async fn changes_through_the_api_stand_in_the_same_record() {
    let service = service();
    let put = |max_active: u32| Ask::put("/v1/rooms/sale").json(&json!({"max_active": max_active}));
    service.send(put(5).by(ADMIN)).await.is(201);
    service.send(put(6).by(ADMIN)).await.is(200);
    service.send(Ask::post("/v1/rooms/sale/pause").by(ADMIN)).await.is(200);
    service.send(put(7).by(SERVICE)).await.is(403);
    service.send(put(7).by(VIEW)).await.is(403);
    service.send(Ask::delete("/v1/rooms/sale").by(STRANGER)).await.is(401);
    service.send(Ask::delete("/v1/rooms/sale")).await.is(401);
    let viewer = Operator::logged_in(&service, VIEW).await;
    let audit = viewer.page("/dashboard/audit").await.is(200).body();
    for words in [
        "max_active: none → 5",
        "max_active: 5 → 6",
        "paused: false → true",
        "operate key ",
        "service key ",
        "view key ",
        ">Forbidden<",
    ] {
        assert!(audit.contains(words), "{words} in {audit}");
    }
    assert!(!audit.contains(">delete<"), "a stranger fills no record: {audit}");
}
