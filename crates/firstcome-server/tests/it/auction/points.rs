//! Points of members: charged, refunded, and every movement written down.

use super::{AMOUNT_MAX, auction, charge, fixed_price, member, purchase, records, refund};
use crate::service::Service;
use crate::stores::on_each;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) async fn points_are_charged_refunded_and_shown() {
    on_each(async |service| {
        let nobody = service.send(member("ann")).await.is(200).json();
        assert_eq!(nobody, json!({"member": "ann", "total": 0, "available": 0}));
        assert_eq!(service.send(records("ann", "")).await.is(200).json(), json!({"items": []}));
        let empty = service.send(refund("ann", 1)).await.refused(409, "insufficient_points");
        assert_eq!(empty.json()["available"], 0);
        let charged = service.send(charge("ann", 500)).await.is(200).json();
        assert_eq!(charged, json!({"member": "ann", "total": 500, "available": 500}));
        service.set_clock(7);
        let refunded = service.send(refund("ann", 200)).await.is(200).json();
        assert_eq!(refunded, json!({"member": "ann", "total": 300, "available": 300}));
        let short = service.send(refund("ann", 301)).await.refused(409, "insufficient_points");
        assert_eq!(short.json()["available"], 300);
        let page = service.send(records("ann", "")).await.is(200).json();
        let [first, second] = page["items"].as_array().expect("items").as_slice() else { panic!("{page}") };
        for (record, number, kind, delta, at) in
            [(first, 1, "CHARGE", 500, super::instant(0)), (second, 2, "REFUND", -200, super::instant(7))]
        {
            assert_eq!((&record["number"], &record["kind"]), (&json!(number), &json!(kind)));
            assert_eq!((&record["total_delta"], &record["available_delta"]), (&json!(delta), &json!(delta)));
            assert_eq!((&record["at"], &record["ref"]), (&json!(at), &Value::Null));
        }
        assert_eq!(service.balance("bob").await, (0, 0), "points of one are not those of another");
        assert_eq!(service.send(refund("bob", 1)).await.outcome(), "409 insufficient_points");
    })
    .await;
}

/// The hash of a record from what is shown of it, as the documentation of the chain says.
fn chained(before: [u8; 32], member: &str, record: &Value) -> [u8; 32] {
    let kinds = ["CHARGE", "REFUND", "HOLD", "RELEASE", "CAPTURE", "PURCHASE", "SOLD"];
    let kind = 1 + kinds.iter().position(|kind| record["kind"] == *kind).expect("a kind") as u8;
    let delta = |name: &str| record[name].as_i64().expect("a delta").unsigned_abs();
    let amount = delta("total_delta").max(delta("available_delta"));
    let at = firstcome_server::rfc3339::parse(record["at"].as_str().expect("an instant")).expect("an instant");
    let (listing, bid) =
        record["ref"].as_str().map_or(("", "0"), |about| about.split_once('#').unwrap_or((about, "0")));
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(record["number"].as_u64().expect("a number").to_be_bytes());
    hash.update([kind]);
    hash.update(amount.to_be_bytes());
    hash.update(at.as_us().to_be_bytes());
    hash.update(bid.parse::<u32>().expect("a bid").to_be_bytes());
    for name in [member, listing] {
        hash.update([name.len() as u8]);
        hash.update(name);
    }
    hash.finalize().into()
}

pub(crate) async fn anybody_can_compute_the_hashes_of_records_again() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        service.list("lamp", &auction(10)).await;
        service.bid("lamp", "ann", 100).await.is(201);
        service.bid("lamp", "bob", 200).await.is(201);
        service.send(refund("ann", 1)).await.is(200);
        service.set_clock(11);
        service.buy("lamp", "bob").await.is(201);
        for (name, count) in [("ann", 4), ("bob", 4), ("eve", 1)] {
            let page = service.send(records(name, "")).await.is(200).json();
            let items = page["items"].as_array().expect("items");
            assert_eq!(items.len(), count, "{page}");
            let mut chain = [0; 32];
            for record in items {
                chain = chained(chain, name, record);
                let hex: String = chain.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(record["hash"], hex, "{name}: {record}");
            }
        }
    })
    .await;
}

pub(crate) async fn records_come_in_pages() {
    on_each(async |service| {
        service.fund(["ab", "ann"], 7).await;
        for amount in 1..=4 {
            service.send(charge("ann", amount)).await.is(200);
        }
        let numbers = async |query: &str| {
            let page = service.send(records("ann", query)).await.is(200).json();
            let items = page["items"].as_array().expect("items").iter();
            (items.map(|item| item["number"].as_u64().expect("a number")).collect::<Vec<_>>(), page["next"].as_u64())
        };
        assert_eq!(numbers("").await, (vec![1, 2, 3, 4, 5], None));
        assert_eq!(numbers("?limit=2").await, (vec![1, 2], Some(2)));
        assert_eq!(numbers("?after=2&limit=2").await, (vec![3, 4], Some(4)));
        assert_eq!(numbers("?after=4&limit=2").await, (vec![5], None));
        assert_eq!(numbers("?after=0&limit=5").await, (vec![1, 2, 3, 4, 5], None));
        // Far beyond: nothing, and above all nothing of another member's.
        for after in ["5", "4294967296", "68719476735", "68719476736", "9007199254740991"] {
            assert_eq!(numbers(&format!("?after={after}")).await, (vec![], None), "{after}");
        }
        for query in ["?after=-1", "?after=x", "?after=9007199254740992", "?limit=0", "?limit=1001", "?offset=1"] {
            service.send(records("ann", query)).await.refused(400, "invalid_query");
        }
    })
    .await;
}

pub(crate) async fn a_balance_has_a_largest() {
    let service = Service::memory();
    service.fund(["ann"], 1_000).await;
    for _ in 0..9_007 {
        service.send(charge("eve", AMOUNT_MAX)).await.is(200);
    }
    let left = (1_u64 << 53) - 1 - 9_007 * AMOUNT_MAX;
    service.send(charge("eve", left + 1)).await.refused(409, "balance_too_large");
    service.send(charge("eve", left)).await.is(200);
    assert_eq!(service.balance("eve").await, ((1 << 53) - 1, (1 << 53) - 1));
    service.send(charge("eve", 1)).await.refused(409, "balance_too_large");
    // Who would be paid more than fits is not paid, and no member pays.
    service.list("vase", &fixed_price()).await;
    service.send(purchase("vase", "ann")).await.refused(409, "balance_too_large");
    service.list("lamp", &auction(10)).await;
    service.bid("lamp", "ann", 100).await.is(201);
    service.set_clock(11);
    service.send(purchase("lamp", "ann")).await.refused(409, "balance_too_large");
    assert_eq!(service.balance("ann").await, (1_000, 900), "the hold stands");
    service.send(refund("eve", 200)).await.is(200);
    service.send(purchase("vase", "ann")).await.is(201);
    service.send(purchase("lamp", "ann")).await.is(201);
    assert_eq!(service.balance("ann").await, (800, 800));
    assert_eq!(service.balance("eve").await, ((1 << 53) - 1, (1 << 53) - 1));
}
