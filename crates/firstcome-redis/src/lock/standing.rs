//! The holds on a server now, for an operator.

use super::{Items, RedisLocks, STANDING, counter, read};
use crate::Script;
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::bucket_of;
use firstcome_store::HeldLockView;
use firstcome_store::StoreError;
use redis::Value;
use std::time::Duration;

/// Scans a part of the keys at a time, so that a server with many keys is not blocked for long.
static SCAN: Script = Script::new("return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000)");
/// The keys of the holds in all buckets.
const HOLDS: &str = "fc:{l??}:h:*";

impl RedisLocks {
    /// Shows the hold of a lock; `None` if it is free. One round trip. Changes nothing.
    pub async fn standing(&self, name: &LockName) -> Result<Option<HeldLockView>, StoreError> {
        let mut run = STANDING.with_keys(1);
        let value = self.link.invoke(run.add(counter(bucket_of(name))).add(name)).await?;
        let mut items = Items::of(value).ok_or(StoreError::Unknown)?;
        if items.0.len() == 0 {
            return Ok(None);
        }
        standing_of(name, &mut items).map(Some).ok_or(StoreError::Unknown)
    }

    /// Lists the names of locks that are held, or were held a moment ago, in order. Not for a cluster, because it asks
    /// one server only. Costs a pass over all keys of the database, in round trips of a thousand keys. A lock that is
    /// taken or released meanwhile may be missing.
    pub async fn names(&self) -> Result<Vec<LockName>, StoreError> {
        let mut names = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut run = SCAN.with_keys(0);
            let value = self.link.invoke(run.add(&cursor).add(HOLDS)).await?;
            let mut items = Items::of(value).ok_or(StoreError::Unknown)?;
            cursor = items.text().ok_or(StoreError::Unknown)?;
            let keys = items.items().ok_or(StoreError::Unknown)?;
            names.extend(keys.0.filter_map(|key| name_of(&key)));
            if cursor == "0" {
                break;
            }
        }
        // A scan may show a key twice.
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// Reads the name of the lock from a key like `fc:{l00}:h:NAME`.
fn name_of(key: &Value) -> Option<LockName> {
    let Value::BulkString(key) = key else { return None };
    let name = std::str::from_utf8(key).ok()?.splitn(4, ':').nth(3)?;
    LockName::parse(name).ok()
}

fn standing_of(name: &LockName, items: &mut Items) -> Option<HeldLockView> {
    let (now_us, waiters) = (items.number()?, items.small()?);
    let request = read(&items.text()?)?;
    let owner = OwnerName::parse(&items.text()?).ok()?;
    let (fence, expires_us, holders) = (items.fence()?, items.number()?, items.small()?);
    let left = Duration::from_micros(expires_us.saturating_sub(now_us));
    Some(HeldLockView { name: name.clone(), request, owner, fence, left, holders, waiters })
}
