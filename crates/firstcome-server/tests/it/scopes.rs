//! Every route with every kind of caller. A route that the document names and this table does not fails the test.

use crate::auction;
use crate::promises::document;
use crate::service::{ADMIN, Ask, SERVICE, SERVICE_TOO, STRANGER, Service, claim};
use axum::http::Method;
use firstcome_server::Scope;
use serde_json::{Value, json};
use std::collections::BTreeSet;

struct Route {
    method: Method,
    template: &'static str,
    scope: Scope,
    /// Without a body where none is needed.
    body: Option<Value>,
    /// The status for a caller who may.
    status: u16,
    /// Whether the route looks at keys at all.
    judges: bool,
}

fn routes() -> Vec<Route> {
    let route =
        |method: Method, template, scope, body, status| Route { method, template, scope, body, status, judges: true };
    let open = |template| Route { judges: false, ..route(Method::GET, template, Scope::Public, None, 200) };
    vec![
        route(Method::PUT, "/v1/coupons/{coupon}", Scope::Admin, Some(json!({"limit": 9})), 200),
        route(Method::PATCH, "/v1/coupons/{coupon}", Scope::Admin, Some(json!({"limit": 9})), 200),
        route(Method::GET, "/v1/coupons/{coupon}", Scope::Public, None, 200),
        route(Method::DELETE, "/v1/coupons/{coupon}", Scope::Admin, None, 204),
        route(Method::POST, "/v1/coupons/{coupon}/claims", Scope::Service, Some(json!({"user": "eve"})), 201),
        route(Method::GET, "/v1/coupons/{coupon}/claims", Scope::Admin, None, 200),
        route(Method::GET, "/v1/coupons/{coupon}/claims/{user}", Scope::Service, None, 200),
        route(Method::GET, "/v1/coupons/{coupon}/dead-letters", Scope::Admin, None, 200),
        route(Method::POST, "/v1/coupons/{coupon}/redemptions", Scope::Service, Some(json!({"code": "x"})), 404),
        route(Method::PUT, "/v1/rooms/{room}", Scope::Admin, Some(json!({"max_active": 1})), 200),
        route(Method::PATCH, "/v1/rooms/{room}", Scope::Admin, Some(json!({"max_active": 1})), 200),
        route(Method::PUT, "/v1/rooms/{room}/appearance", Scope::Admin, Some(json!({})), 200),
        route(Method::GET, "/v1/rooms/{room}/appearance", Scope::Admin, None, 200),
        route(Method::DELETE, "/v1/rooms/{room}/appearance", Scope::Admin, None, 204),
        route(Method::POST, "/v1/rooms/{room}/pause", Scope::Admin, None, 200),
        route(Method::POST, "/v1/rooms/{room}/resume", Scope::Admin, None, 200),
        route(Method::POST, "/v1/rooms/{room}/feedback", Scope::Service, Some(json!({"latency_ms": 1})), 200),
        route(Method::GET, "/v1/rooms/{room}", Scope::Public, None, 200),
        route(Method::DELETE, "/v1/rooms/{room}", Scope::Admin, None, 204),
        route(Method::POST, "/v1/rooms/{room}/tickets", Scope::Public, Some(json!({})), 201),
        route(Method::GET, "/v1/rooms/{room}/tickets/{ticket}", Scope::Public, None, 200),
        route(Method::DELETE, "/v1/rooms/{room}/tickets/{ticket}", Scope::Public, None, 204),
        // Without its `Idempotency-Key`.
        route(Method::POST, "/v1/rooms/{room}/tickets/{ticket}/renew", Scope::Public, None, 400),
        route(Method::POST, "/v1/rooms/{room}/tickets/{ticket}/handoff", Scope::Public, None, 200),
        route(Method::POST, "/v1/rooms/{room}/handoffs", Scope::Service, Some(json!({"code": "x"})), 400),
        route(Method::GET, "/v1/rooms/{room}/passes", Scope::Service, None, 200),
        route(Method::POST, "/v1/rooms/{room}/passes/verify", Scope::Service, Some(json!({"pass": "x"})), 200),
        route(Method::POST, "/v1/rooms/{room}/passes/release", Scope::Service, Some(json!({"pass": "x"})), 403),
        route(Method::GET, "/v1/rooms/{room}/draw", Scope::Public, None, 404),
        route(Method::GET, "/v1/rooms/{room}/heads", Scope::Public, None, 200),
        route(Method::GET, "/v1/rooms/{room}/tickets/{ticket}/receipt", Scope::Public, None, 409),
        route(Method::GET, "/v1/coupons/{coupon}/heads", Scope::Public, None, 200),
        route(Method::GET, "/v1/coupons/{coupon}/claims/{user}/receipt", Scope::Service, None, 409),
        Route { status: 401, ..open("/v1/rooms/{room}/gate") },
        route(Method::GET, "/v1/pass-keys", Scope::Public, None, 200),
        route(Method::POST, "/v1/pass-keys", Scope::Admin, None, 201),
        route(Method::DELETE, "/v1/pass-keys/{kid}", Scope::Admin, None, 200),
        route(Method::GET, "/v1/keys", Scope::Admin, None, 200),
        route(Method::POST, "/v1/keys", Scope::Admin, Some(json!({"name": "new", "scope": "view"})), 201),
        route(Method::DELETE, "/v1/keys/{key}", Scope::Admin, None, 204),
        route(Method::POST, "/v1/keys/{key}/rotate", Scope::Admin, Some(json!({"old_valid_for_ms": 0})), 201),
        route(Method::POST, "/v1/erasures", Scope::Admin, Some(json!({"user": "nobody"})), 200),
        route(Method::POST, "/v1/purge", Scope::Admin, Some(json!({})), 200),
        route(Method::GET, "/v1/locks/{lock}", Scope::Service, None, 200),
        route(
            Method::POST,
            "/v1/locks/{lock}/acquire",
            Scope::Service,
            Some(json!({"owner": "ann", "wait_ms": 0, "lease_ms": 100})),
            200,
        ),
        route(
            Method::POST,
            "/v1/locks/{lock}/renew",
            Scope::Service,
            Some(json!({"handle": "A".repeat(54), "lease_ms": 100})),
            410,
        ),
        route(Method::POST, "/v1/locks/{lock}/release", Scope::Service, Some(json!({"handle": "A".repeat(54)})), 410),
        // With the service about to stop, so that a stream has an end: it refuses new ones.
        route(Method::GET, "/v1/rooms/{room}/tickets/{ticket}/events", Scope::Public, None, 503),
        route(Method::GET, "/v1/rooms/{room}/events", Scope::Admin, None, 503),
        route(Method::GET, "/v1/events", Scope::Admin, None, 503),
        route(Method::GET, "/v1/members/{member}", Scope::Service, None, 200),
        route(Method::GET, "/v1/members/{member}/points/records", Scope::Service, None, 200),
        route(Method::POST, "/v1/members/{member}/points/charge", Scope::Service, Some(json!({"amount": 1})), 200),
        route(Method::POST, "/v1/members/{member}/points/refund", Scope::Service, Some(json!({"amount": 1})), 200),
        route(Method::PUT, "/v1/listings/{listing}", Scope::Service, Some(auction::auction(10)), 200),
        route(Method::PATCH, "/v1/listings/{listing}", Scope::Service, Some(json!({"owner": "eve"})), 200),
        route(Method::GET, "/v1/listings/{listing}", Scope::Public, None, 200),
        route(Method::GET, "/v1/listings/{listing}/bids", Scope::Service, None, 200),
        route(
            Method::POST,
            "/v1/listings/{listing}/bids",
            Scope::Service,
            Some(json!({"bidder": "ann", "price": 100})),
            201,
        ),
        route(Method::POST, "/v1/listings/{listing}/purchase", Scope::Service, Some(json!({"buyer": "ann"})), 409),
        route(Method::GET, "/metrics", Scope::Admin, None, 200),
        open("/healthz"),
        open("/readyz"),
        open("/"),
        open("/docs"),
        open("/openapi.json"),
        open("/assets/firstcome.css"),
        open("/errors/sold_out"),
    ]
}

/// What a caller sends, and the scope that it gives; `None` for what is no valid key.
fn callers() -> Vec<(Option<Vec<u8>>, Option<Scope>)> {
    let bearer = |key: &str| Some(format!("Bearer {key}").into_bytes());
    let mut callers = vec![
        (None, Some(Scope::Public)),
        (bearer(SERVICE), Some(Scope::Service)),
        (bearer(SERVICE_TOO), Some(Scope::Service)),
        (bearer(ADMIN), Some(Scope::Admin)),
        (Some(format!("bEARER  {ADMIN} ").into_bytes()), Some(Scope::Admin)),
        (bearer(STRANGER), None),
        (bearer(&ADMIN[..ADMIN.len() - 1]), None),
        (bearer(&ADMIN.to_uppercase()), None),
        (bearer(&format!("{ADMIN}x")), None),
        (bearer(&format!("{ADMIN} {SERVICE}")), None),
        (bearer(""), None),
    ];
    let malformed: [&[u8]; 8] = [
        b"",
        b"Bearer",
        ADMIN.as_bytes(),
        b"Basic YWRtaW46YWRtaW4=",
        b"Bearer\t",
        b"Bearer \xFF\xFE",
        b"Token canary-admin-0123456789",
        b"Bearer, canary-admin-0123456789",
    ];
    callers.extend(malformed.map(|value| (Some(value.to_vec()), None)));
    callers
}

async fn fresh() -> Service {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    service.claim("launch", "ann").await.is(201);
    service.send(Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
    let key = json!({"name": "shop", "scope": "service"});
    service.send(Ask::post("/v1/keys").by(ADMIN).json(&key)).await.is(201);
    service.fund(["ann"], 1_000).await;
    service.list("lamp", &auction::auction(10)).await;
    service
}

/// A ticket of the room.
async fn ticket(service: &Service) -> String {
    service.send(Ask::post("/v1/rooms/sale/tickets").by(SERVICE).json(&json!({"user": "ann"}))).await.text("ticket")
}

#[tokio::test]
async fn every_route_answers_every_kind_of_caller_as_its_scope_says() {
    for route in routes() {
        for (authorization, scope) in callers() {
            let service = fresh().await;
            let path = route.template.replace("{coupon}", "launch").replace("{user}", "ann").replace("{room}", "sale");
            let path = path
                .replace("{lock}", "door")
                .replace("{member}", "ann")
                .replace("{listing}", "lamp")
                .replace("{kid}", "1")
                .replace("{key}", "shop");
            if path.ends_with("/events") {
                let paused = json!({"max_active": 1, "paused": true});
                service.send(Ask::put("/v1/rooms/sale").by(ADMIN).json(&paused)).await.is(200);
                service.app.begin_drain();
            }
            let path = if path.contains("{ticket}") { path.replace("{ticket}", &ticket(&service).await) } else { path };
            let mut ask = Ask::new(route.method.clone(), &path);
            if let Some(body) = &route.body {
                ask = ask.json(body);
            }
            if let Some(value) = &authorization {
                ask = ask.header("authorization", value);
            }
            let answer = service.send(ask).await;
            let wanted = match scope {
                _ if !route.judges => route.status,
                // Only the visitor who has the one slot can hand it off: `not_admitted`.
                Some(_) if route.template.ends_with("/handoff") && answer.status == 409 => 409,
                Some(scope) if route.scope <= scope => route.status,
                Some(Scope::Public) | None => 401,
                Some(_) => 403,
            };
            let caller = authorization.map(|value| String::from_utf8_lossy(&value).into_owned());
            assert_eq!(answer.status, wanted, "{} {} by {caller:?}", route.method, route.template);
            if [401, 403].contains(&wanted) && route.judges {
                let code = answer.text("code");
                let may = scope.is_some_and(|scope| route.scope <= scope);
                assert_eq!(
                    code,
                    if wanted == 401 {
                        "unauthorized"
                    } else if may {
                        "invalid_pass"
                    } else {
                        "forbidden"
                    }
                );
                let view = service.show("launch").await.json();
                assert_eq!((&view["issued"], &view["state"]), (&json!(1), &json!("open")), "nothing happened");
                assert_eq!((service.balance("ann").await, service.movements("ann").await.len()), ((1_000, 1_000), 1));
            }
        }
    }
}

/// The paths of all routes of the service, read from the router itself: none can be left out.
fn paths_of_router() -> BTreeSet<String> {
    let text = format!("{:?}", firstcome_server::api::router(Service::memory().app));
    let paths = text.split("RouteId(").filter_map(|rest| rest.split_once("): \"")?.1.split_once('"'));
    paths.map(|(path, _)| path.to_owned()).filter(|path| path.starts_with('/') && !path.contains("fallback")).collect()
}

/// Pages know no keys: they belong to visitors, or to a session of the dashboard.
#[tokio::test]
async fn every_page_of_the_router_answers_a_key_as_it_answers_none() {
    let documented: BTreeSet<&String> = document()["paths"].as_object().expect("paths").keys().collect();
    let pages: Vec<String> = paths_of_router().into_iter().filter(|path| !documented.contains(path)).collect();
    assert!(25 < pages.len() && pages.iter().all(|path| !path.starts_with("/v1/")), "{pages:?}");
    assert!(documented.iter().all(|path| paths_of_router().contains(*path)), "the router has what the document has");
    let mut served = 0;
    for template in pages {
        let path = template.replace("{coupon}", "launch").replace("{room}", "sale").replace("{code}", "sold_out");
        let path = path.replace("{*path}", "rooms");
        assert!(!path.contains('{'), "{template}: a parameter that this test does not know");
        for method in [Method::GET, Method::POST] {
            let mut without_key = None;
            for (authorization, _) in callers() {
                let service = fresh().await;
                if path.ends_with("/events") {
                    service.app.begin_drain();
                }
                let mut ask = Ask::new(method.clone(), &path).header("accept", "text/html");
                if let Some(value) = &authorization {
                    ask = ask.header("authorization", value);
                }
                let status = service.send(ask).await.status;
                let caller = authorization.map(|value| String::from_utf8_lossy(&value).into_owned());
                assert_eq!(status, *without_key.get_or_insert(status), "{method} {template} by {caller:?}");
                let is_open = !template.starts_with("/dashboard");
                assert!(is_open || [303, 401, 403, 405, 415].contains(&status), "{method} {template}: {status}");
                served += u32::from(status == 200);
            }
        }
    }
    assert!(200 < served, "{served}");
}

#[test]
fn every_route_of_the_document_stands_in_the_table_with_its_scope() {
    let table: BTreeSet<(String, String, &str)> = routes()
        .iter()
        .filter(|route| !["/", "/docs", "/openapi.json"].contains(&route.template))
        .filter(|route| !route.template.starts_with("/assets/") && !route.template.starts_with("/errors/"))
        .map(|route| {
            let scope = match route.scope {
                Scope::Public => "public",
                Scope::Service => "service",
                Scope::View => "view",
                Scope::Admin => "admin",
            };
            (route.template.to_owned(), route.method.as_str().to_lowercase(), scope)
        })
        .collect();
    let mut documented = BTreeSet::new();
    for (path, methods) in document()["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let scope = operation["security"][0].as_object().and_then(|scheme| scheme.keys().next());
            documented.insert((path.clone(), method.clone(), scope.map_or("public", String::as_str)));
        }
    }
    assert_eq!(table, documented);
}

pub(crate) async fn a_caller_without_the_scope_is_told_which_kind_of_no_it_is() {
    let service = fresh().await;
    let unknown = service.send(claim("launch", "bob").by(STRANGER)).await.refused(401, "unauthorized");
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
    service.send(Ask::delete("/v1/coupons/launch").by(SERVICE)).await.refused(403, "forbidden");
    // Two credentials: which one counts would be a guess.
    let both = claim("launch", "bob").also("authorization", &format!("Bearer {STRANGER}"));
    service.send(both).await.refused(401, "unauthorized");
    // A stranger learns nothing about names or bodies before the key is judged.
    service.send(claim("none", "bob").by(STRANGER)).await.refused(401, "unauthorized");
    service.send(claim("launch", "bob").by(STRANGER).raw("nonsense")).await.refused(401, "unauthorized");
    service.send(Ask::put("/v1/coupons/-").json(&json!({}))).await.refused(401, "unauthorized");
    assert_eq!(service.issued("launch").await, 1);
}
