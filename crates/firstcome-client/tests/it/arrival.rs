//! Visitors who come to a site behind the layer of tower with a hand-off code.

use crate::pass::{Admitted, admitted, visit, with_rooms};
use crate::proxy::{Proxy, until};
use crate::service::{ADMIN, SERVICE, Service, soon};
use axum::Router;
use axum::body::Body;
use axum::routing::any;
use firstcome::Store;
use firstcome::pass::{Pass, PassLayer, PassVerifier};
use http::{HeaderMap, Request};
use tower::ServiceExt as _;

async fn code_of(service: &Service, inside: &Admitted) -> String {
    let sale = Store::http(&service.url(), ADMIN).expect("it can be made").room("sale").expect("a name");
    soon(sale.hand_off(&inside.ticket)).await.expect("a code").code.into()
}

fn site(passes: &PassVerifier) -> Router {
    let greet = async |pass: Pass| format!("welcome, number {}", pass.number.get());
    let page = "https://queue.example/rooms/sale".parse().expect("an address");
    Router::new().route("/basket", any(greet)).layer(PassLayer::new(passes.clone()).page(&page))
}

/// Opens an address, and returns the status, the headers and the pairs of cookies.
async fn open(site: &Router, path: &str, cookies: &str) -> (u16, HeaderMap, Vec<String>) {
    let request = Request::get(path).header("host", "shop").header("cookie", cookies).body(Body::empty());
    let answer = site.clone().oneshot(request.expect("a request")).await.expect("an answer");
    let headers = answer.headers().clone();
    let lines = headers.get_all("set-cookie").iter().map(|line| line.to_str().expect("a text"));
    let cookies = lines
        .map(|line| {
            assert!(line.contains("; HttpOnly; SameSite=Lax") && !line.contains("Secure"), "{line}");
            line.split(';').next().expect("a pair").to_owned()
        })
        .collect();
    (answer.status().as_u16(), headers, cookies)
}

fn shown<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().expect("a text")
}

#[tokio::test]
async fn a_visitor_arrives_from_another_host_with_a_code_that_counts_once() {
    let service = with_rooms().await;
    let (ann, bob) = (admitted(&service, "sale").await, admitted(&service, "sale").await);
    let passes = PassVerifier::start(&service.url(), SERVICE, "sale").expect("it starts");
    soon(passes.ready()).await;
    let site = site(&passes);
    let away = (303, "https://queue.example/rooms/sale".to_owned());
    assert_eq!(visit(&site, "/basket?size=1", &[("host", "shop")]).await, away);
    let address = format!("/basket?size=1&firstcome_handoff={}", code_of(&service, &ann).await);
    let (status, headers, cookies) = open(&site, &address, "theme=dark").await;
    assert_eq!(
        (status, shown(&headers, "location"), shown(&headers, "referrer-policy")),
        (303, "/basket?size=1", "no-referrer")
    );
    let [pass, key] = &cookies[..] else { panic!("{cookies:?}") };
    assert_eq!(
        (key.as_str(), pass.split_once('=').map(|(name, _)| name)),
        ("firstcome_handoff_key=", Some("firstcome_pass"))
    );
    let welcome = (200, format!("welcome, number {}", ann.admission.number.get()));
    assert_eq!(visit(&site, "/basket?size=1", &[("cookie", pass)]).await, welcome);
    // A replay of the address, by a stranger: it leads on without a pass, and so to the page of the room.
    let (status, headers, cookies) = open(&site, &address, "").await;
    assert_eq!((status, shown(&headers, "location")), (303, "/basket?size=1"));
    assert!(!cookies.iter().any(|pair| pair.starts_with("firstcome_pass=v4")), "{cookies:?}");
    // A visitor who is inside already does not spend the code of another.
    let gift = format!("/basket?firstcome_handoff={}", code_of(&service, &bob).await);
    assert!(open(&site, &gift, pass).await.2.is_empty());
    let (status, _, cookies) = open(&site, &gift, "").await;
    assert!(status == 303 && cookies[0].starts_with("firstcome_pass=v4"), "{cookies:?}");
    // A form is sent to the site, not taken for an arrival.
    let form = Request::post(&gift).body(Body::empty()).expect("a request");
    let led = site.clone().oneshot(form).await.expect("an answer");
    assert_eq!(led.headers()["location"], "https://queue.example/rooms/sale");
}

#[tokio::test]
async fn an_arrival_whose_answer_is_lost_loses_no_place() {
    let service = with_rooms().await;
    let ann = admitted(&service, "sale").await;
    let proxy = Proxy::before(service.address).await;
    let passes = PassVerifier::start(&proxy.url(), SERVICE, "sale").expect("it starts");
    soon(passes.ready()).await;
    let site = site(&passes);
    let address = format!("/basket?firstcome_handoff={}", code_of(&service, &ann).await);
    proxy.lose(usize::MAX / 2);
    let (status, headers, cookies) = open(&site, &address, "").await;
    assert_eq!((status, shown(&headers, "retry-after"), shown(&headers, "refresh")), (503, "5", "5"));
    let [key] = &cookies[..] else { panic!("{cookies:?}") };
    // The service has redeemed the code, though the site does not know.
    let sale = Store::http(&service.url(), ADMIN).expect("it can be made").room("sale").expect("a name");
    assert!(soon(sale.poll(&ann.ticket)).await.is_err(), "the ticket of the page is void");
    proxy.lose(0);
    // Another browser finds the code used; the one with the key finds its place.
    until(async || passes.status().fault.is_none()).await;
    assert!(!open(&site, &address, "").await.2.iter().any(|pair| pair.starts_with("firstcome_pass=v4")));
    let (status, _, cookies) = open(&site, &address, key).await;
    assert!(status == 303 && cookies[0].starts_with("firstcome_pass=v4"), "{cookies:?}");
    assert_eq!(visit(&site, "/basket", &[("cookie", &cookies[0])]).await.0, 200);
}
