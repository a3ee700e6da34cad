//! Functions of every shape that the attribute must leave as it is.

use crate::support::BidError;
use firstcome::{LockError, Locks, distributed_lock};
use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::sync::Arc;

trait Bidding {
    type Error;

    async fn bid(&self, auction: u64, price: u32) -> Result<u32, Self::Error>;
}

struct Plain {
    locks: Arc<Locks>,
    total: u32,
}

impl Bidding for Plain {
    type Error = BidError;

    #[distributed_lock(key = "AUCTION:{auction}")]
    async fn bid(&self, auction: u64, price: u32) -> Result<u32, Self::Error> {
        if price == 0 {
            return Err(BidError::TooLow);
        }
        Ok(self.total + price)
    }
}

impl Plain {
    /// Documented.
    #[allow(clippy::needless_pass_by_value)]
    #[must_use]
    #[distributed_lock(key = "a", locks = &self.locks)]
    async fn add(&mut self, price: u32) -> Result<&mut u32, BidError> {
        self.total += price;
        Ok(&mut self.total)
    }

    #[distributed_lock(key = "a")]
    async fn consume(self, mut more: Vec<u32>) -> Result<u32, BidError> {
        more.push(self.total);
        Ok(more.into_iter().sum())
    }

    #[distributed_lock(key = "a")]
    async fn shared(self: Arc<Self>) -> Result<Arc<Self>, BidError> {
        Ok(self)
    }
}

struct Typed<'a, T> {
    locks: &'a Locks,
    kind: PhantomData<T>,
}

impl<'a, T: Clone + Debug> Typed<'a, T> {
    #[distributed_lock(key = "{id}", retry = 1)]
    async fn longest<'b, I, U>(&self, id: I, texts: &'b [U], _: T) -> Result<Option<&'b U>, BidError>
    where
        I: Display + Clone,
        U: AsRef<str>,
    {
        Ok(texts.iter().max_by_key(|text| text.as_ref().len()))
    }

    #[distributed_lock(key = "a")]
    async fn lent(&self) -> Result<&'a Locks, BidError> {
        Ok(self.locks)
    }
}

#[distributed_lock(key = "{id}", locks = locks)]
pub(crate) async fn opaque(
    id: impl Display,
    locks: Locks,
    (low, high): (u32, u32),
) -> Result<impl Iterator<Item = u32>, BidError> {
    Ok(low..high)
}

#[distributed_lock(key = "a", locks = locks)]
async fn coerced(locks: &Locks) -> Result<Box<dyn Display + Send>, Box<dyn std::error::Error + Send + Sync>> {
    let number: u8 = "7".parse()?;
    Ok(Box::new(number))
}

#[distributed_lock(key = "a", locks = locks)]
#[distributed_lock(key = "b", locks = locks)]
async fn both(locks: &Locks) -> Result<(), LockError> {
    for name in ["a", "b"] {
        assert!(matches!(locks.lock(name).try_acquire().await, Err(LockError::Contended { .. })));
    }
    Ok(())
}

/// Names inside are no other caller's.
#[distributed_lock(key = "a", locks = held)]
async fn same_names(held: &Locks, returned: u8, request: u8, error: u8) -> Result<u8, LockError> {
    Ok(returned + request + error)
}

macro_rules! locked {
    ($name:ident, $argument:ident, $key:literal) => {
        #[distributed_lock(key = $key, locks = locks)]
        async fn $name(locks: &Locks, $argument: u8) -> Result<u8, LockError> {
            Ok($argument)
        }
    };
}

locked!(made, number, "made:{number}");

fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn methods_of_every_kind() {
    let locks = Locks::memory();
    let mut plain = Plain { locks: Arc::new(locks.clone()), total: 1 };
    assert_eq!(is_send(plain.bid(7, 2)).await.unwrap(), 3);
    assert!(matches!(plain.bid(7, 0).await, Err(BidError::TooLow)));
    *is_send(plain.add(2)).await.unwrap() += 10;
    let shared = Arc::new(Plain { locks: Arc::new(locks.clone()), total: 5 });
    assert_eq!(is_send(shared.shared()).await.unwrap().total, 5);
    assert_eq!(is_send(plain.consume(vec![100])).await.unwrap(), 113);
    let typed = Typed::<u8> { locks: &locks, kind: PhantomData };
    let texts = [String::from("a"), String::from("long")];
    assert_eq!(is_send(typed.longest("id", &texts, 1)).await.unwrap(), Some(&texts[1]));
    assert!(typed.lent().await.is_ok());
}

#[tokio::test]
async fn functions_of_every_kind() {
    let locks = Locks::memory();
    assert_eq!(is_send(opaque(7, locks.clone(), (1, 4))).await.unwrap().sum::<u32>(), 6);
    assert_eq!(is_send(coerced(&locks)).await.unwrap().to_string(), "7");
    is_send(both(&locks)).await.unwrap();
    assert_eq!(same_names(&locks, 1, 2, 3).await.unwrap(), 6);
    assert_eq!(made(&locks, 9).await.unwrap(), 9);
}
