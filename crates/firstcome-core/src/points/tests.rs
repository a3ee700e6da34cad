//! The rules of points: amounts and balances at their limits, movements, and the chain of their records.

mod anchor;
mod chain;
mod moving;
mod renaming;
mod values;

use super::*;

fn at(unix_us: i64) -> Timestamp {
    Timestamp::from_us(unix_us).unwrap()
}

fn member(text: &str) -> MemberName {
    MemberName::parse(text).unwrap()
}

fn amount(points: u64) -> Amount {
    Amount::new(points).unwrap()
}

fn balance(total: u64, held: u64) -> Balance {
    Balance::new(total, held).unwrap()
}

fn about(listing: &str, bid: Option<u32>) -> Option<Reference> {
    Some(Reference { listing: ListingName::parse(listing).unwrap(), bid })
}

/// A wallet with this balance and nothing else.
fn wallet(total: u64, held: u64) -> Wallet {
    Wallet { balance: balance(total, held), ..Wallet::empty(member("ann")) }
}
