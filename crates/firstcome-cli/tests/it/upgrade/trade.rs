//! Points and auctions that both nodes of a roll take part in.

use super::post;
use crate::support::http::{Answer, Client};
use firstcome::edge::{Clock, SystemClock};
use firstcome_server::rfc3339;
use serde_json::{Value, json};

/// Long enough for all bids on a slow machine.
const RUNS_FOR_MS: u64 = 15_000;
/// The bids on an auction.
const LOW: u64 = 6;
const HIGH: u64 = 9;
/// What each bidder has.
const POINTS: u64 = 10;

/// Sends a request with a key.
#[track_caller]
fn keyed(client: &mut Client, path: &str, key: &str, body: &Value) -> Answer {
    client.try_call("POST", path, Some(key), Some(body)).unwrap_or_else(|lost| panic!("{path}: {lost:?}"))
}

/// What one node told of points is true at the other: the balance, and that a repeat with the same key has no second effect.
pub(super) fn tell_and_ask([told, asked]: &mut [Client; 2], step: &str) {
    let member = format!("/v1/members/member-of-{step}");
    let mut moves = |movement: &str, amount: u64| {
        let (path, key) = (format!("{member}/points/{movement}"), format!("{movement}-{step}"));
        let body = json!({"amount": amount});
        let first = keyed(told, &path, &key, &body);
        assert_eq!(first.status, 200, "{}", first.text());
        let again = keyed(asked, &path, &key, &body);
        assert_eq!((again.status, again.json()), (200, first.json()), "{path}");
    };
    moves("charge", 70);
    moves("refund", 20);
    for client in [told, asked] {
        assert_eq!(client.get(&member).json()["total"], json!(50), "{step}");
    }
}

/// An auction with two bids that ends soon. The nodes of a later step settle it.
pub(super) struct Auction {
    path: String,
    owner: String,
    winner: String,
    loser: String,
}

impl Auction {
    /// Makes it, and bids on it at both nodes.
    pub(super) fn open([told, asked]: &mut [Client; 2], step: &str) -> Self {
        let of = |role: &str| format!("{role}-of-{step}");
        let (path, owner, winner, loser) = (format!("/v1/listings/lot-{step}"), of("owner"), of("winner"), of("loser"));
        for bidder in [&winner, &loser] {
            post(asked, &format!("/v1/members/{bidder}/points/charge"), &json!({"amount": POINTS}));
        }
        let ends_at = rfc3339::format(SystemClock::default().now().plus_ms(RUNS_FOR_MS));
        let settings = json!({"owner": owner, "kind": "auction", "price": LOW, "ends_at": ends_at});
        assert_eq!(told.put_status(&path, &settings), 201);
        let bids = format!("{path}/bids");
        let low = json!({"bidder": loser, "price": LOW});
        let first = keyed(told, &bids, &of("low"), &low);
        assert_eq!(first.status, 201, "{}", first.text());
        let high = keyed(asked, &bids, &of("high"), &json!({"bidder": winner, "price": HIGH}));
        assert_eq!(high.status, 201, "{}", high.text());
        // The other node knows the key, and the higher bid.
        let again = keyed(asked, &bids, &of("low"), &low);
        assert_eq!((again.status, &again.json()["highest"]), (201, &first.json()["highest"]), "{}", again.text());
        let refused = told.call("POST", &bids, Some(&json!({"bidder": loser, "price": HIGH})));
        assert_eq!(refused.code(), "bid_too_low", "{}", refused.text());
        Self { path, owner, winner, loser }
    }

    /// Settles it if it has ended: one node sells it to the winner alone, and the other knows the sale. Returns whether it had ended.
    pub(super) fn is_settled(&self, [one, two]: &mut [Client; 2]) -> bool {
        if one.get(&self.path).json()["state"] != "ended" {
            return false;
        }
        let purchase = format!("{}/purchase", self.path);
        let buy = |client: &mut Client, buyer: &str| client.call("POST", &purchase, Some(&json!({"buyer": buyer})));
        let refused = buy(one, &self.loser);
        assert_eq!(refused.code(), "not_winner", "{}", refused.text());
        let sold = buy(one, &self.winner);
        assert_eq!((sold.status, &sold.json()["price"]), (201, &json!(HIGH)), "{}", sold.text());
        let again = buy(two, &self.winner);
        assert_eq!((again.code().as_str(), &again.json()["purchase"]), ("already_sold", &sold.json()));
        for (member, total) in [(&self.owner, HIGH), (&self.winner, POINTS - HIGH), (&self.loser, POINTS)] {
            let shown = two.get(&format!("/v1/members/{member}")).json();
            assert_eq!([&shown["total"], &shown["available"]].map(Value::as_u64), [Some(total); 2], "{member}");
        }
        true
    }
}
