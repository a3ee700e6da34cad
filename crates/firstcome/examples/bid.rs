//! Bids under a lock. Each is judged by the price that the one before it left; a member that writes without the lock makes
//! a version conflict, after which the bid is judged again.
//!
//! `cargo run -p firstcome --example bid`

use firstcome::lock::Retry;
use firstcome::{LockError, Locks, distributed_lock};
use std::sync::{Arc, Mutex};

#[derive(Clone)]
struct BidCommand {
    auction_id: u64,
    bidder: &'static str,
    price: u64,
}

#[derive(Debug, thiserror::Error)]
enum BidError {
    #[error("the price is {0} already")]
    TooLow(u64),
    #[error("somebody else wrote meanwhile")]
    Conflict,
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl Retry for BidError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict)
    }
}

/// A row of a table, as a database has it.
#[derive(Clone, Copy, Default)]
struct Auction {
    price: u64,
    version: u64,
}

#[derive(Clone)]
struct Auctions {
    locks: Locks,
    row: Arc<Mutex<Auction>>,
}

impl Auctions {
    #[distributed_lock(key = "AUCTION:{command.auction_id}", wait = "5s", lease = "3s", retry = 3, guard = held)]
    async fn bid(&self, command: BidCommand) -> Result<u64, BidError> {
        let seen = self.read();
        println!("{} bids {} on {}, with fence {}", command.bidder, command.price, seen.price, held.fence()?);
        if command.price <= seen.price {
            return Err(BidError::TooLow(seen.price));
        }
        // A database would take its time here.
        tokio::task::yield_now().await;
        if command.bidder == "bob" && seen.price == 100 {
            self.write(Auction { price: 110, ..seen })?;
            println!("  somebody without the lock writes 110");
        }
        self.write(Auction { price: command.price, ..seen })?;
        Ok(command.price)
    }

    fn read(&self) -> Auction {
        *self.row.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes if no member did since `new` was read.
    fn write(&self, new: Auction) -> Result<(), BidError> {
        let mut row = self.row.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if row.version != new.version {
            return Err(BidError::Conflict);
        }
        *row = Auction { version: new.version + 1, ..new };
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let auctions = Auctions { locks: Locks::memory(), row: Arc::default() };
    let bid = async |bidder, price| match auctions.bid(BidCommand { auction_id: 7, bidder, price }).await {
        Ok(price) => println!("  {bidder} leads with {price}"),
        Err(error) => println!("  {bidder} is refused: {error}"),
    };
    // All at once; they are judged in this order.
    tokio::join!(bid("ann", 100), bid("bob", 120), bid("cid", 115), bid("dan", 130));
}
