//! A person whom one of two nodes erases, and a coupon whose claims it purges. The other node knows both at once.

use super::post;
use crate::support::http::Client;
use crate::support::wait_for;
use serde_json::{Value, json};

const ERASURES: &str = "/v1/erasures";
/// The coupon that is over.
const OVER: &str = "/v1/coupons/over";
/// The setting by which a node purges its claims soon.
pub(super) const RETAIN_CLAIMS: [&str; 2] = ["--retain-claims", "1s"];

/// A person with a claim, a place in line, points and a purchase.
pub(super) struct Person {
    name: String,
    code: Value,
    ticket: String,
    /// The thing that the person has bought.
    thing: String,
}

impl Person {
    /// Gives a person all that, by both nodes.
    pub(super) fn new([one, two]: &mut [Client; 2], name: &str) -> Self {
        let code = post(one, "/v1/coupons/launch/claims", &json!({"user": name}))["code"].clone();
        let joined = post(two, "/v1/rooms/hall/tickets", &json!({"user": name}));
        let ticket = format!("/v1/rooms/hall/tickets/{}", joined["ticket"].as_str().expect("a ticket"));
        post(one, &format!("/v1/members/{name}/points/charge"), &json!({"amount": 50}));
        post(two, &format!("/v1/members/{name}/points/refund"), &json!({"amount": 10}));
        let thing = format!("/v1/listings/thing-of-{name}");
        let settings = json!({"owner": format!("seller-to-{name}"), "kind": "fixed_price", "price": 7});
        assert_eq!(one.put_status(&thing, &settings), 201);
        post(two, &format!("{thing}/purchase"), &json!({"buyer": name}));
        Self { name: name.to_owned(), code, ticket, thing }
    }

    /// Erases the person by one node. No node knows the name any more, and the same name may come again.
    pub(super) fn erase(&self, by: &mut Client, other: &mut Client) {
        let body = json!({"user": self.name});
        wait_for("an erasure", || {
            let answer = by.call("POST", ERASURES, Some(&body));
            // What a call has left after `outcome_unknown`, the next one erases.
            assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
            (answer.status == 200).then_some(())
        });
        let again = post(by, ERASURES, &body);
        assert!(again.as_object().expect("counts").values().all(|count| *count == 0), "a rest was left: {again}");
        for client in [&mut *by, &mut *other] {
            self.is_erased(client);
        }
        let back = other.claim("launch", &self.name, None).expect("an answer");
        assert_eq!(back.status, 201, "{}", back.text());
        let charged = post(other, &format!("/v1/members/{}/points/charge", self.name), &json!({"amount": 3}));
        assert_eq!(charged["total"], json!(3), "a new person has the points of the one before");
    }

    /// Checks that a node knows the name no more.
    #[track_caller]
    fn is_erased(&self, client: &mut Client) {
        let name = &self.name;
        let claim = client.get(&format!("/v1/coupons/launch/claims/{name}"));
        assert_eq!(claim.code(), "unknown_claim", "{}", claim.text());
        let redeemed = client.call("POST", "/v1/coupons/launch/redemptions", Some(&json!({"code": self.code})));
        assert_eq!(redeemed.code(), "unknown_code", "{}", redeemed.text());
        assert_eq!(client.get(&format!("/v1/members/{name}")).json()["total"], json!(0));
        let purchase = client.call("POST", &format!("{}/purchase", self.thing), Some(&json!({"buyer": "late"})));
        assert_eq!(purchase.code(), "already_sold", "{}", purchase.text());
        let purchase = purchase.json();
        let buyer = purchase["purchase"]["buyer"].as_str().expect("a buyer");
        assert!(buyer.starts_with("_erased:"), "{buyer}");
        wait_for("the end of a place", || {
            let polled = client.get(&self.ticket).json();
            matches!(polled["state"].as_str(), Some("left" | "expired")).then_some(())
        });
    }
}

/// Makes the coupon that is over, with claims of both nodes.
pub(super) fn end_coupon([one, two]: &mut [Client; 2]) {
    one.put_coupon("over", 3);
    for (user, is_at_one) in [("early-1", true), ("early-2", false), ("early-3", true)] {
        let client = if is_at_one { &mut *one } else { &mut *two };
        let claimed = client.claim("over", user, None).expect("an answer");
        assert_eq!(claimed.status, 201, "{}", claimed.text());
    }
    assert_eq!(two.call("DELETE", OVER, None).status, 204);
}

/// Purges by a node, until the claims of the coupon are gone. The other node goes on to refuse claims.
pub(super) fn purge(by: &mut Client, other: &mut Client) {
    wait_for("a purge of the claims", || {
        let answer = by.call("POST", "/v1/purge", Some(&json!({})));
        // 409: the node purges by itself at this moment.
        assert!(matches!(answer.status, 200 | 409 | 503), "{}", answer.text());
        (answer.status == 200 && by.get(OVER).json()["purged_at"].is_string()).then_some(())
    });
    let claims = by.get(&format!("{OVER}/claims"));
    assert_eq!((claims.status, claims.code().as_str()), (410, "purged"), "{}", claims.text());
    for client in [by, other] {
        let late = client.claim("over", "late", None).expect("an answer");
        assert_eq!((late.status, late.code().as_str()), (410, "deleted"), "{}", late.text());
    }
}
