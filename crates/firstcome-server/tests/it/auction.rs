//! Members, listings, bids and purchases over HTTP. Here is what their tests share.

pub(crate) mod bids;
pub(crate) mod bodies;
pub(crate) mod figures;
pub(crate) mod keys;
pub(crate) mod listings;
pub(crate) mod points;
pub(crate) mod purchases;
pub(crate) mod restarts;
pub(crate) mod trouble;

use crate::service::{Answer, Ask, SERVICE, Service, at};
use firstcome_server::rfc3339;
use serde_json::{Value, json};

/// The most points that one step moves.
pub(crate) const AMOUNT_MAX: u64 = 1_000_000_000_000;

/// An instant so many seconds after the start, as text.
pub(crate) fn instant(seconds: i64) -> String {
    rfc3339::format(at(seconds))
}

/// A back end's charge.
pub(crate) fn charge(member: &str, amount: u64) -> Ask {
    Ask::post(&format!("/v1/members/{member}/points/charge")).by(SERVICE).json(&json!({"amount": amount}))
}

/// A back end's refund.
pub(crate) fn refund(member: &str, amount: u64) -> Ask {
    Ask::post(&format!("/v1/members/{member}/points/refund")).by(SERVICE).json(&json!({"amount": amount}))
}

/// A back end's look at a member.
pub(crate) fn member(member: &str) -> Ask {
    Ask::get(&format!("/v1/members/{member}")).by(SERVICE)
}

/// A back end's look at a member's movements.
pub(crate) fn records(member: &str, query: &str) -> Ask {
    Ask::get(&format!("/v1/members/{member}/points/records{query}")).by(SERVICE)
}

/// A back end's listing.
pub(crate) fn put(listing: &str, settings: &Value) -> Ask {
    Ask::put(&format!("/v1/listings/{listing}")).by(SERVICE).json(settings)
}

/// Anybody's look at a listing.
pub(crate) fn look(listing: &str) -> Ask {
    Ask::get(&format!("/v1/listings/{listing}"))
}

/// A back end's look at all bids.
pub(crate) fn bids(listing: &str, query: &str) -> Ask {
    Ask::get(&format!("/v1/listings/{listing}/bids{query}")).by(SERVICE)
}

/// A back end's bid for a member.
pub(crate) fn bid(listing: &str, bidder: &str, price: u64) -> Ask {
    let body = json!({"bidder": bidder, "price": price});
    Ask::post(&format!("/v1/listings/{listing}/bids")).by(SERVICE).json(&body)
}

/// A back end's purchase for a member.
pub(crate) fn purchase(listing: &str, buyer: &str) -> Ask {
    Ask::post(&format!("/v1/listings/{listing}/purchase")).by(SERVICE).json(&json!({"buyer": buyer}))
}

/// An auction of eve's from 100 on, until so many seconds after the start.
pub(crate) fn auction(ends_s: i64) -> Value {
    json!({"owner": "eve", "kind": "auction", "price": 100, "ends_at": instant(ends_s)})
}

/// The same with further settings.
pub(crate) fn auction_with(ends_s: i64, further: Value) -> Value {
    let mut settings = auction(ends_s);
    let Value::Object(further) = further else { panic!("{further} is no object") };
    settings.as_object_mut().expect("an object").extend(further);
    settings
}

/// Something of eve's for 100.
pub(crate) fn fixed_price() -> Value {
    json!({"owner": "eve", "kind": "fixed_price", "price": 100})
}

impl Service {
    /// A listing that must not fail.
    pub(crate) async fn list(&self, listing: &str, settings: &Value) -> Value {
        self.send(put(listing, settings)).await.is(201).shown()
    }

    /// Anybody's look at a listing that must be there.
    pub(crate) async fn listing(&self, listing: &str) -> Value {
        self.send(look(listing)).await.is(200).json()
    }

    /// Gives points to members.
    pub(crate) async fn fund<const N: usize>(&self, members: [&str; N], amount: u64) {
        for member in members {
            self.send(charge(member, amount)).await.is(200);
        }
    }

    /// All points of a member, and those that can be spent.
    pub(crate) async fn balance(&self, name: &str) -> (u64, u64) {
        let balance = self.send(member(name)).await.is(200).json();
        assert_eq!(balance["member"], name);
        (balance["total"].as_u64().expect("a total"), balance["available"].as_u64().expect("what is available"))
    }

    pub(crate) async fn bid(&self, listing: &str, bidder: &str, price: u64) -> Answer {
        self.send(bid(listing, bidder, price)).await
    }

    pub(crate) async fn buy(&self, listing: &str, buyer: &str) -> Answer {
        self.send(purchase(listing, buyer)).await
    }

    /// The records of a member: kind, deltas and what they are about.
    pub(crate) async fn movements(&self, name: &str) -> Vec<(String, i64, i64, Value)> {
        let page = self.send(records(name, "?limit=1000")).await.is(200).json();
        let items = page["items"].as_array().expect("items").iter();
        items
            .map(|item| {
                let kind = item["kind"].as_str().expect("a kind").to_owned();
                let delta = |member: &str| item[member].as_i64().expect("a delta");
                (kind, delta("total_delta"), delta("available_delta"), item["ref"].clone())
            })
            .collect()
    }
}
