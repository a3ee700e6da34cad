//! Counts requests per client behind trusted proxies, since one connection of a proxy carries requests of many
//! clients.

use crate::address::network;
use parking_lot::Mutex;
use std::array;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroUsize;

/// The number of shards of the table, each with a lock of its own.
const SHARDS: usize = 16;

type Shard = Mutex<HashMap<IpAddr, usize>>;

/// The number of requests that each client has under way. Empty when no request is under way.
pub(crate) struct Guests {
    per_client: Option<NonZeroUsize>,
    hasher: RandomState,
    shards: [Shard; SHARDS],
}

/// One request under way, counted until it is dropped.
pub(crate) struct Guest<'a> {
    shard: &'a Shard,
    client: IpAddr,
}

impl Guests {
    pub(crate) fn new(per_client: Option<NonZeroUsize>, hasher: RandomState) -> Self {
        Self { per_client, hasher, shards: array::from_fn(|_| Shard::default()) }
    }

    /// Counts a request of this client. Fails if the client has the most requests that it may have under way.
    pub(crate) fn enter(&self, client: IpAddr) -> Result<Option<Guest<'_>>, TooMany> {
        let Some(max) = self.per_client else { return Ok(None) };
        let client = network(client);
        let shard = &self.shards[self.hasher.hash_one(client) as usize % SHARDS];
        let mut counts = shard.lock();
        let count = counts.entry(client).or_default();
        if max.get() <= *count {
            return Err(TooMany);
        }
        *count += 1;
        Ok(Some(Guest { shard, client }))
    }
}

/// The client has too many requests under way.
pub(crate) struct TooMany;

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut counts = self.shard.lock();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome::edge::draw_hasher;

    #[test]
    fn a_client_has_no_more_requests_under_way_than_it_may_and_leaves_nothing_behind() {
        let guests = Guests::new(NonZeroUsize::new(2), draw_hasher());
        let [here, there]: [IpAddr; 2] = ["203.0.113.7", "203.0.113.8"].map(|text| text.parse().unwrap());
        let mut under_way = vec![guests.enter(here).ok().unwrap(), guests.enter(here).ok().unwrap()];
        assert!(guests.enter(here).is_err());
        assert!(guests.enter(there).is_ok());
        under_way.pop();
        under_way.push(guests.enter(here).ok().unwrap());
        assert!(guests.enter(here).is_err());
        drop(under_way);
        assert!(guests.shards.iter().all(|shard| shard.lock().is_empty()));
        let unlimited = Guests::new(None, draw_hasher());
        assert!((0..100).all(|_| matches!(unlimited.enter(here), Ok(None))));
    }
}
