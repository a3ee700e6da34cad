//! Passes that a back end verifies by itself, before and after what ends them at the service.

use crate::proxy::until;
use crate::service::{ADMIN, SERVICE, Service, soon};
use axum::Router;
use axum::body::Body;
use axum::routing::any;
use firstcome::core::room::RoomSettings;
use firstcome::http::{AdmissionsChange, HttpStore};
use firstcome::pass::{Pass, PassError, PassLayer, PassOptions, PassRefusal, PassVerifier, WhenAway};
use firstcome::{Admission, Store};
use firstcome_store::Embedded;
use firstcome_store::core::id::RoomName;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt as _;

const GRACE: PassOptions = PassOptions { grace: Duration::from_secs(6) };

/// Sends one request with the admin key, as another client than the one under test.
pub(crate) async fn call(service: SocketAddr, request: &str) -> Value {
    let mut stream = TcpStream::connect(service).await.expect("it listens");
    let text = format!(
        "{request} HTTP/1.1\r\nhost: shop\r\nauthorization: Bearer {ADMIN}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it is answered");
    serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).unwrap_or_default()
}

/// An admitted visitor: the pass, and what the library calls its admission.
pub(crate) struct Admitted {
    pass: String,
    pub(crate) ticket: Box<str>,
    pub(crate) admission: Admission,
}

pub(crate) async fn admitted(service: &Service, room: &str) -> Admitted {
    let store = Store::http(&service.url(), ADMIN).expect("it can be made");
    let room = store.room(room).expect("a name");
    let (_, place) = soon(room.join().send()).await.expect("it joins");
    let mut admission = None;
    until(async || {
        admission = Admission::of(&soon(room.poll(&place.ticket)).await.expect("it polls"));
        admission.is_some()
    })
    .await;
    let told = call(service.address, &format!("GET /v1/rooms/{}/tickets/{}", room.name(), place.ticket)).await;
    let pass = told["pass"].as_str().expect("a pass").to_owned();
    Admitted { pass, ticket: place.ticket, admission: admission.expect("it is admitted") }
}

pub(crate) async fn with_rooms() -> Service {
    let service = Service::start().await;
    let store = Store::http(&service.url(), ADMIN).expect("it can be made");
    for room in ["sale", "other"] {
        let settings = RoomSettings { idle_ttl_ms: None, ..RoomSettings::with_slots(5) };
        soon(store.room(room).expect("a name").put(settings)).await.expect("it is put");
    }
    service
}

/// A site behind the layer, which greets by the number of the pass.
fn site(passes: &PassVerifier, when_away: WhenAway) -> Router {
    let greet = async |pass: Option<Pass>| match pass {
        Some(pass) => format!("welcome, number {}", pass.number.get()),
        None => "welcome".to_owned(),
    };
    let only_with_pass = async |pass: Pass| pass.number.get().to_string();
    let routes = Router::new().route("/basket", any(greet)).route("/strict", any(only_with_pass));
    routes.layer(PassLayer::new(passes.clone()).when_away(when_away))
}

/// Status, and the body or the place that the answer leads to.
pub(crate) async fn visit(site: &Router, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = site.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer");
    let status = answer.status();
    if !status.is_success() {
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
    if status == StatusCode::SEE_OTHER {
        return (status.as_u16(), answer.headers()["location"].to_str().expect("a text").to_owned());
    }
    assert_eq!(status == StatusCode::SERVICE_UNAVAILABLE, answer.headers().contains_key("retry-after"));
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(body.to_vec()).expect("a text");
    if status.is_success() {
        return (status.as_u16(), text);
    }
    let problem: Value = serde_json::from_str(&text).expect("a problem");
    assert_eq!(problem["status"], status.as_u16());
    (status.as_u16(), problem["code"].as_str().expect("a code").to_owned())
}

#[tokio::test]
async fn a_site_lets_passes_through_and_sends_other_visitors_to_the_room() {
    let service = with_rooms().await;
    let (ann, stranger) = (admitted(&service, "sale").await, admitted(&service, "other").await);
    let passes = PassVerifier::start(&service.url(), SERVICE, "sale").expect("it starts");
    soon(passes.ready()).await;
    let site = site(&passes, WhenAway::FailClosed);
    let welcome = (200, format!("welcome, number {}", ann.admission.number.get()));
    let cookie = format!("theme=dark; firstcome_pass={}", ann.pass);
    assert_eq!(visit(&site, "/basket", &[("cookie", &cookie)]).await, welcome);
    assert_eq!(visit(&site, "/basket", &[("x-firstcome-pass", &ann.pass)]).await, welcome);
    assert_eq!(visit(&site, "/strict", &[("x-firstcome-pass", &ann.pass)]).await.0, 200);
    let page = "/rooms/sale?back=%2Fbasket%3Fsize%3D1".to_owned();
    for other in ["", "x", "v4.public.", &ann.pass[..40], &stranger.pass] {
        assert_eq!(
            visit(&site, "/basket?size=1", &[("x-firstcome-pass", other)]).await,
            (303, page.clone()),
            "{other}"
        );
    }
    let json = ("accept", "application/json");
    assert_eq!(visit(&site, "/basket", &[json]).await, (401, "no_pass".to_owned()));
    assert_eq!(passes.check(&stranger.pass), Err(PassError::Refused(PassRefusal::OtherRoom)));
}

#[tokio::test]
async fn a_release_and_a_new_key_have_their_effect_about_a_second_later() {
    let service = with_rooms().await;
    let (ann, bob) = (admitted(&service, "sale").await, admitted(&service, "sale").await);
    let passes = PassVerifier::start(&service.url(), SERVICE, "sale").expect("it starts");
    soon(passes.ready()).await;
    assert!(passes.check(&ann.pass).is_ok() && passes.check(&bob.pass).is_ok());
    let shop = Store::http(&service.url(), SERVICE).expect("it can be made");
    soon(shop.room("sale").expect("a name").release(ann.admission)).await.expect("it is released");
    // For 2 s after an admission it may have come after the list.
    until(async || passes.check(&ann.pass) == Err(PassError::Refused(PassRefusal::Ended))).await;
    assert!(passes.check(&bob.pass).is_ok());
    let keys = call(service.address, "POST /v1/pass-keys").await;
    assert_eq!(keys["items"].as_array().map(Vec::len), Some(2));
    let cid = admitted(&service, "sale").await;
    until(async || passes.check(&cid.pass).is_ok()).await;
    assert!(passes.check(&bob.pass).is_ok());
    until(async || passes.status().admissions == 2).await;
}

#[tokio::test]
async fn a_site_fails_closed_or_open_once_the_service_was_away_for_the_grace() {
    let service = with_rooms().await;
    let ann = admitted(&service, "sale").await;
    let passes = PassVerifier::start_with(&service.url(), SERVICE, "sale", GRACE).expect("it starts");
    soon(passes.ready()).await;
    let (closed, open) = (site(&passes, WhenAway::FailClosed), site(&passes, WhenAway::FailOpen));
    let shown = [("x-firstcome-pass", ann.pass.as_str())];
    let welcome = (200, format!("welcome, number {}", ann.admission.number.get()));
    let address = service.address;
    let store = service.stop().await;
    // Within the grace the last list stands.
    for site in [&closed, &open] {
        assert_eq!(visit(site, "/basket", &shown).await, welcome);
        assert_eq!(visit(site, "/basket", &[]).await.0, 303);
    }
    until(async || passes.check(&ann.pass) == Err(PassError::Away)).await;
    assert_eq!(visit(&closed, "/basket", &shown).await, (503, "store_unavailable".to_owned()));
    assert_eq!(visit(&open, "/basket", &shown).await, welcome);
    assert_eq!(visit(&open, "/basket", &[]).await, (200, "welcome".to_owned()));
    assert_eq!(visit(&open, "/strict", &[]).await, (401, "no_pass".to_owned()));
    assert!(passes.status().fault.is_some());
    let service = Service::at(address, store).await;
    until(async || passes.check(&ann.pass).is_ok()).await;
    assert_eq!(visit(&closed, "/basket", &shown).await, welcome);
    assert_eq!(visit(&open, "/basket", &[]).await.0, 303);
    assert!(passes.status().fault.is_none());
    drop(service.stop().await);
}

#[tokio::test]
async fn a_site_that_may_open_stays_closed_before_the_first_answer_and_after_a_refusal() {
    let service = with_rooms().await;
    for (url, room) in [("http://127.0.0.1:1", "sale"), (service.url().as_str(), "absent")] {
        let passes = PassVerifier::start_with(url, SERVICE, room, GRACE).expect("it starts");
        let open = site(&passes, WhenAway::FailOpen);
        assert_eq!(visit(&open, "/basket", &[]).await, (503, "store_unavailable".to_owned()));
        until(async || passes.status().fault.is_some()).await;
        assert_eq!(visit(&open, "/basket", &[]).await.0, 503, "{room}");
    }
    drop(service.stop().await);
}

#[tokio::test]
async fn a_pass_of_a_key_that_is_gone_is_void_though_it_was_verified() {
    let service = with_rooms().await;
    let ann = admitted(&service, "sale").await;
    let passes = PassVerifier::start(&service.url(), SERVICE, "sale").expect("it starts");
    soon(passes.ready()).await;
    assert!(passes.check(&ann.pass).is_ok());
    let address = service.address;
    drop(service.stop().await);
    // Another service, whose first key has the same number.
    let service = Service::at(address, Embedded::memory()).await;
    let store = Store::http(&service.url(), ADMIN).expect("it can be made");
    soon(store.room("sale").expect("a name").put(RoomSettings::with_slots(5))).await.expect("it is put");
    let bob = admitted(&service, "sale").await;
    assert_eq!(bob.admission, ann.admission, "the list alone would let the old pass through");
    until(async || passes.check(&bob.pass).is_ok()).await;
    assert_eq!(passes.check(&ann.pass), Err(PassError::Refused(PassRefusal::Forged)));
}

#[tokio::test]
async fn the_task_ends_with_the_last_verifier() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let passes = PassVerifier::start("http://127.0.0.1:1", SERVICE, "sale").expect("it starts");
    assert_eq!(tasks(), 1);
    let layer = PassLayer::new(passes.clone());
    drop(passes);
    assert_eq!(tasks(), 1, "the layer has the verifier still");
    drop(layer);
    until(async || tasks() == 0).await;
}

#[tokio::test]
async fn a_list_of_admissions_comes_only_if_it_has_changed() {
    let service = with_rooms().await;
    let ann = admitted(&service, "sale").await;
    let client = HttpStore::new(&service.url(), SERVICE).expect("it can be made");
    let sale = RoomName::parse("sale").expect("a name");
    let told = soon(client.admissions_since(&sale, None)).await.expect("an answer").expect("a room");
    let AdmissionsChange::New { admissions, tag } = told else { panic!("{told:?}") };
    assert_eq!(admissions.admissions, [(ann.admission.number, ann.admission.admission)]);
    let again = soon(client.admissions_since(&sale, tag.as_ref())).await.expect("an answer").expect("a room");
    assert!(matches!(again, AdmissionsChange::Same { as_of } if admissions.as_of <= as_of), "{again:?}");
    admitted(&service, "sale").await;
    let told = soon(client.admissions_since(&sale, tag.as_ref())).await.expect("an answer").expect("a room");
    assert!(
        matches!(told, AdmissionsChange::New { ref admissions, .. } if admissions.admissions.len() == 2),
        "{told:?}"
    );
    let absent = RoomName::parse("absent").expect("a name");
    let told = soon(client.admissions_since(&absent, None)).await.expect("an answer");
    assert_eq!(told.expect_err("no such room").code(), "unknown_room");
    let keys = soon(client.pass_keys()).await.expect("keys");
    assert!(keys.keys.iter().all(|key| key.paserk.starts_with("k4.public.")), "{keys:?}");
}
