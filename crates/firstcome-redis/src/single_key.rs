//! The layout that most libraries share: one key per lock, whose value is a word that only its holder knows. Its time
//! to live is the lease. `SET key word NX PX lease` takes the lock, and a script that compares the word releases it.

use super::fitness::Watch;
use super::{Link, LinkOptions, OpenError, Script};
use firstcome_core::lock::Fence;
use firstcome_store::key::{Deaf, KeyStore, Tried};
use firstcome_store::{Guarantees, StoreError};
use redis::Value;
use std::time::Duration;

/// A repeat after a lost answer finds its own word, and has the lock. If the key holds no string, such as the hash of
/// another layout, then another client has the lock.
static TAKE: Script = Script::new(
    "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return -3 end
local held = redis.pcall('GET', KEYS[1])
if held == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return -3 end
return redis.call('PTTL', KEYS[1])",
);
static RENEW: Script = Script::new(
    "if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0",
);
static RELEASE: Script = Script::new(
    "if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0",
);

/// The answer of [`TAKE`] for a taken lock. `PTTL` never returns it.
const TAKEN: i64 = -3;

/// Locks of one key each on one server.
pub struct SingleKey {
    link: Link,
    watch: Watch,
}

firstcome_core::debug_by_name!(SingleKey);

impl SingleKey {
    /// Connects, and checks that the server is fit for locks.
    pub async fn open(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        // This layout uses no messages. Dropping the inbox closes its connection.
        let (link, _) = Link::open(url, "fc:unused", options.clone()).await?;
        let watch = Watch::over(&link, &options);
        Ok(Self { link, watch })
    }

    /// The link to the server, for metrics.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Runs a script. With [`LinkOptions::replica_ack`], the answer `yes` counts only when replicas have it. All
    /// scripts use one connection, so that no release overtakes its take.
    async fn ask(
        &self,
        script: &'static Script,
        key: &str,
        args: &[&[u8]],
        yes: Option<i64>,
    ) -> Result<i64, StoreError> {
        let mut run = script.with_keys(1);
        run.add_bytes(key.as_bytes());
        for arg in args {
            run.add_bytes(arg);
        }
        match self.link.invoke_acknowledged(&run, |value| yes.is_some_and(|yes| *value == Value::Int(yes))).await? {
            Value::Int(number) => Ok(number),
            // An answer that this process cannot read may belong to a script that ran.
            _ => Err(StoreError::Unknown),
        }
    }
}

/// Each step is one command. With [`LinkOptions::replica_ack`] it is one more, which other steps may share.
impl KeyStore for SingleKey {
    fn fence(_: ()) -> Option<Fence> {
        None
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::SHARED_LAYOUT
    }

    type Grant = ();
    type Notifications = Deaf;

    async fn take(&self, key: &str, word: &str, lease_ms: u32) -> Result<Tried<()>, StoreError> {
        self.watch.may_grant()?;
        let lease = lease_ms.to_string();
        let answer = self.ask(&TAKE, key, &[word.as_bytes(), lease.as_bytes()], Some(TAKEN)).await?;
        if answer == TAKEN {
            return Ok(Tried::Taken(()));
        }
        // The key exists, because the script has just found it. -1 means that it has no expiry.
        Ok(Tried::Held { lasts: u64::try_from(answer).ok().map(Duration::from_millis) })
    }

    async fn renew(&self, key: &str, word: &str, lease_ms: u32) -> Result<bool, StoreError> {
        let lease = lease_ms.to_string();
        Ok(self.ask(&RENEW, key, &[word.as_bytes(), lease.as_bytes()], Some(1)).await? == 1)
    }

    async fn release(&self, key: &str, word: &str) -> Result<bool, StoreError> {
        Ok(self.ask(&RELEASE, key, &[word.as_bytes()], None).await? == 1)
    }

    async fn listen(&self, _key: &str, _word: &str) -> Option<Deaf> {
        None
    }
}
