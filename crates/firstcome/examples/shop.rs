//! A sale from the line to the lock, the same over every store:
//! `shop memory`, `shop DIRECTORY`, `shop REDIS SQL FILE`, where FILE has the secret of the deployment, or
//! `shop http URL KEYFILE` with a service, where KEYFILE has an admin key.

use firstcome::cluster::DeploymentSecret;
use firstcome::core::auction::ListingSettings;
use firstcome::core::id::MemberName;
use firstcome::core::points::Amount;
use firstcome::core::room::{RoomSettings, TicketState};
use firstcome::edge::{Clock, SystemClock};
use firstcome::{Error, Locks, Store};
use std::time::Duration;

type Done = Result<(), Box<dyn std::error::Error>>;

async fn sell(store: &Store, locks: &Locks) -> Done {
    let users = ["ann", "bob", "cid"];

    // The room lets all three in, in the order of arrival.
    let room = store.room("door")?;
    room.put(RoomSettings::with_slots(3)).await?;
    for user in users {
        let (_, place) = room.join_user(user)?.send().await?;
        println!("{user} has number {}", place.number.get());
        loop {
            match room.poll(&place.ticket).await?.state {
                TicketState::Admitted { .. } => break println!("{user} is inside"),
                TicketState::InDraw { .. } | TicketState::Waiting { .. } => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                TicketState::Gone(how) => return Err(format!("{user} is gone: {how:?}").into()),
            }
        }
    }

    // Two coupons for three users.
    let coupon = store.coupon("launch")?;
    coupon.put_limit(2).await?;
    for user in users {
        match coupon.claim(user)?.idempotency_key(user)?.send().await {
            Ok(outcome) => println!("{user} has coupon {}", outcome.claim().issued.serial.get()),
            Err(Error::Refused(why)) => println!("{user} has no coupon: {}", why.code()),
            Err(error) => return Err(error.into()),
        }
    }

    // One lamp for the highest bidder.
    let lamp = store.listing("lamp")?;
    let (owner, price) = (MemberName::parse("eve")?, Amount::new(100).ok_or("a price")?);
    let ends_at = SystemClock::default().now().plus_ms(60_000);
    lamp.put(ListingSettings::auction(owner, price, ends_at)).await?;
    for (user, bid) in [("ann", 100), ("bob", 150), ("cid", 150)] {
        store.member(user)?.charge(200)?.idempotency_key("first charge")?.send().await?;
        match lamp.bid(user, bid)?.idempotency_key(user)?.send().await {
            Ok(placed) => println!("{user} bids {bid}, bid number {}", placed.bid.number),
            Err(Error::Refused(why)) => println!("{user} does not get {bid} through: {}", why.code()),
            Err(error) => return Err(error.into()),
        }
    }

    // One task at a time writes the report, and its database refuses a fence below the last one.
    let guard = locks.lock("report").fenced().ordered().wait(Duration::from_secs(5)).acquire().await?;
    println!("the report is ours, with a fence: {}", 0 < guard.fence()?.get());
    guard.release().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (store, locks) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory"] => (Store::memory(), Locks::memory()),
        [directory] => (Store::open(directory)?, Locks::open(directory)?),
        ["http", url, file] => {
            let key = std::fs::read_to_string(file)?;
            (Store::http(url, key.trim())?, Locks::http(url, key.trim())?)
        }
        [redis, sql, file] => {
            let secret = DeploymentSecret::new(&std::fs::read_to_string(file)?);
            let store = Store::cluster(redis, sql, secret.ok_or("the secret is too short")?).await?;
            (store, Locks::redis(redis).await?)
        }
        _ => return Err("usage: shop memory | shop DIRECTORY | shop REDIS SQL FILE | shop http URL KEYFILE".into()),
    };
    sell(&store, &locks).await
}
