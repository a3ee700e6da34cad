//! Names are bytes: two different texts are two different names.

use super::*;

pub(super) async fn names_differ_in_every_byte<S: AuctionStore + 'static>(bench: Bench<S>) {
    let names = ["a", "A", "a.", "a_", "a-", "a:", "a@", "aa", "Aa", "aA", "AA", "0", "00", "ss", "i", "I"];
    for (number, name) in (1..).zip(names) {
        bench.charge(&[name], number).await;
        let settings = ListingSettings { price: amount(number), owner: member("Own"), ..fixed_price() };
        bench.put(name, settings).await;
    }
    for (number, name) in (1..).zip(names) {
        assert_eq!(balance_words(bench.balance(name).await), format!("{number} of {number}"), "the member {name}");
        assert_eq!(bench.standing(name).await.price.get(), number, "the listing {name}");
        let records = bench.all_records(name).await;
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].member.as_str(), records[0].amount.get()), (name, number));
    }
    // The owner is `Own`, and `own` is another member.
    for (number, name) in (1..).zip(names) {
        let sale = bench.buy(name, name, None).await;
        assert!(matches!(&sale, Ok(Effect::New(sale)) if sale.buyer.as_str() == name), "{name}: {sale:?}");
        assert_eq!(bench.balance(name).await.total(), 0, "the member {name} paid {number}");
    }
    bench.charge(&["own"], 1).await;
    assert_eq!(bench.balance("Own").await.total(), 136);
    let mut members = names.to_vec();
    members.extend(["own", "Own"]);
    audit::audit(&bench, &names, &members).await;
    // The same holds within one auction: the highest bidder is `a`, and `A` may bid.
    bench.charge(&["a", "A"], 100).await;
    let rows = [
        (Step::Put(bench.auction().await), "created"),
        (Step::Bid("a", 10), "new 1 fence 2"),
        (Step::Bid("A", 11), "new 2 fence 3"),
        (Step::Bid("own", 12), "own_listing"),
        (Step::Bid("Own", 12), "new 3 fence 4"),
        (Step::Bid("a", 13), "new 4 fence 5"),
    ];
    bench.check("auction", &rows).await;
}

pub(super) async fn the_longest_names_fit<S: AuctionStore + 'static>(bench: Bench<S>) {
    let long = |end: &str| "n".repeat(128 - end.len()) + end;
    let (ann, bob, own) = (long("a"), long("b"), long("own"));
    let (lamp, vase) = (long("lamp"), long("vase"));
    bench.charge(&[&ann, &bob], 100).await;
    for name in [&lamp, &vase] {
        bench.put(name, ListingSettings { owner: member(&own), ..bench.auction().await }).await;
    }
    assert!(matches!(bench.bid(&lamp, &ann, 10, None).await, Ok(Effect::New(_))));
    assert!(matches!(bench.bid(&lamp, &bob, 11, None).await, Ok(Effect::New(_))));
    assert!(matches!(bench.bid(&vase, &ann, 10, None).await, Ok(Effect::New(_))));
    let standing = bench.standing(&lamp).await;
    assert_eq!((standing.name.as_str(), standing.owner.as_str()), (lamp.as_str(), own.as_str()));
    assert_eq!(standing.highest.map(|bid| bid.bidder), Some(member(&bob)));
    audit::audit(&bench, &[&lamp, &vase], &[&ann, &bob, &own]).await;
}
