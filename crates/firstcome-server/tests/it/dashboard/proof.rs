//! What the search of the dashboard leads to: receipts, and the records of points.

use super::{Operator, VIEW, encoded, furnished};
use crate::service::{ADMIN, Answer, Ask, SERVICE, Service};
use firstcome::core::receipt::Subject;
use firstcome::{Receipt, ReceiptStore};
use serde_json::json;

/// The address of the proof that a page of the search leads to.
fn proof_of(page: &Answer) -> String {
    let body = page.body();
    let (_, rest) = body.split_once("<dt>Proof</dt><dd><a href=\"").unwrap_or_else(|| panic!("no proof: {body}"));
    rest.split('"').next().unwrap_or_default().to_owned()
}

impl Operator<'_> {
    async fn find(&self, kind: &str, place: &str, what: &str) -> Answer {
        self.page(&format!("/dashboard/find?kind={kind}&in={place}&what={}", encoded(what))).await.is(200)
    }

    /// Follows the search to a receipt, which must be genuine, and be what the API gives out.
    async fn receipt(&self, kind: &str, place: &str, what: &str, api: Ask) -> Receipt {
        let path = proof_of(&self.find(kind, place, what).await);
        self.service.send(Ask::get(&path)).await.is(303);
        let file = self.page(&path).await.is(200);
        assert_eq!(file.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(file.header("content-disposition").is_some_and(|it| it.starts_with("attachment; filename=\"receipt-")));
        assert_eq!(file.body(), self.service.send(api).await.is(200).body());
        let receipt = Receipt::parse(&file.body()).expect("a receipt");
        receipt.verify().expect("it is genuine");
        receipt
    }
}

async fn publish(service: &Service) {
    service.pass_ms(1_000).await;
    service.store.publish_heads().await.expect("the store answers");
}

fn receipt_of(ticket: &str) -> Ask {
    Ask::get(&format!("/v1/rooms/sale/tickets/{ticket}/receipt"))
}

pub(crate) async fn the_search_leads_to_the_proof_of_what_it_finds() {
    let service = furnished().await;
    let viewer = Operator::logged_in(&service, VIEW).await;
    let ann = service.send(Ask::post("/v1/rooms/sale/tickets").by(SERVICE).json(&json!({"user": "ann"}))).await;
    let (ann, bob) = (ann.text("ticket"), service.ticket("sale").await);
    let early = proof_of(&viewer.find("user", "sale", "ann").await);
    viewer.send(Ask::get(&early).header("accept", "application/json")).await.refused(409, "receipt_pending");
    assert!(viewer.page(&early).await.is(409).body().contains("covers"), "a browser reads why");
    publish(&service).await;
    // By the user, by the ticket and by the number it is the same receipt, that of the visitor.
    for (kind, what) in [("user", "ann"), ("ticket", ann.as_str()), ("ticket", "1")] {
        let receipt = viewer.receipt(kind, "sale", what, receipt_of(&ann)).await;
        assert!(matches!(receipt.statement.subject, Subject::Ticket { number: 1, .. }), "{kind} {what}");
        assert!(!receipt.text().contains(&ann), "a receipt is no ticket");
    }
    // The receipt is that of the ticket that counts.
    let renew = Ask::post(&format!("/v1/rooms/sale/tickets/{bob}/renew")).once("a-key-that-is-hard-to-guess-1");
    let renewed = service.send(renew).await.is(200).text("ticket");
    viewer.receipt("ticket", "sale", "2", receipt_of(&renewed)).await;
    // A room does not know by its number whose the ended place was. Its ticket says so.
    service.leave("sale", &ann).await.is(204);
    let page = viewer.find("ticket", "sale", "1").await.body();
    assert!(page.contains("<dt>Proof</dt><dd><span class=\"soft\">"), "{page}");
    let by_number = Ask::get("/dashboard/rooms/sale/receipts/1").header("accept", "application/json");
    viewer.send(by_number).await.refused(404, "unknown_ticket");
    viewer.receipt("ticket", "sale", &ann, receipt_of(&ann)).await;

    let claim = Ask::get("/v1/coupons/launch/claims/ann/receipt").by(SERVICE);
    let receipt = viewer.receipt("claim", "launch", "ann", claim).await;
    assert!(matches!(receipt.statement.subject, Subject::Claim { serial: 1, .. }));
    // A user with a name that an address would take for something else.
    service.claim("launch", "a:b@c").await.is(201);
    publish(&service).await;
    let claim = Ask::get("/v1/coupons/launch/claims/a%3Ab%40c/receipt").by(SERVICE);
    viewer.receipt("claim", "launch", "a:b@c", claim).await;
    for nothing in ["coupons/launch/receipts/eve", "coupons/none/receipts/ann", "rooms/none/receipts/1"] {
        viewer.page(&format!("/dashboard/{nothing}")).await.is(404);
    }

    // A bid rests on the record that holds its points, in the chain of the member.
    let bid = |bidder: &str, price: u32| {
        Ask::post("/v1/listings/lamp/bids").by(SERVICE).json(&json!({"bidder": bidder, "price": price}))
    };
    service.fund(["bob"], 1_000).await;
    for (bidder, price) in [("ann", 100), ("bob", 200), ("ann", 300)] {
        service.send(bid(bidder, price)).await.is(201);
    }
    let records = service.send(Ask::get("/v1/members/ann/points/records").by(ADMIN)).await.is(200).json();
    let records = records["items"].as_array().expect("records");
    let held = records.iter().rfind(|record| record["kind"] == "HOLD").expect("a hold");
    let (number, hash) = (held["number"].as_u64().expect("a number"), held["hash"].as_str().expect("a hash"));
    let page = viewer.find("bid", "lamp", "ann").await;
    assert_eq!(proof_of(&page), format!("/dashboard/members/ann?after={}", number - 1));
    assert!(page.body().contains(hash), "{}", page.body());
    let member = viewer.page(&proof_of(&page)).await.is(200).body();
    assert!(member.contains(hash) && member.contains("lamp#3") && !member.contains("lamp#1"), "{member}");
}
