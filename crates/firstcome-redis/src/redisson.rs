//! The layout of Redisson's `RLock`, as of version 4.7: a hash per lock. Its one field names the holder, and the value
//! of the field counts how many times the lock is held. The time to live is the lease. A release publishes `0` in the
//! channel of the lock, where waiters listen.
//!
//! To Redisson each acquisition of this library is a thread of one more client: its field is the UUID of this client
//! and a number. Taking a lock never increments the count, unlike in Redisson's script: a try that is repeated because
//! its answer was lost would count twice. Instead [`KeyStore::count`] writes the count.

use super::address::Host;
use super::channels::{Channels, Listener, Voice};
use super::fitness::Watch;
use super::route::Endpoint;
use super::{Counts, Invocation, Link, LinkError, LinkOptions, OpenError, Script, Version};
use firstcome_core::lock::Fence;
use firstcome_store::edge::draw_secret;
use firstcome_store::key::{KeyStore, Tried};
use firstcome_store::{Guarantees, StoreError};
use parking_lot::Mutex;
use redis::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// A repeat after a lost answer finds its own field, and has the lock. If the key holds no hash, such as the word of
/// another layout, then another client has the lock.
static TAKE: Script = Script::new(
    "if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('HSET', KEYS[1], ARGV[1], 1)
elseif redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
    return redis.call('PTTL', KEYS[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return -3",
);
static RENEW: Script = Script::new(
    "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) == 1 then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0",
);
static COUNT: Script = Script::new(
    "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1",
);
/// Releases the lock with its whole count: this library keeps the count, and releases once.
static RELEASE: Script = Script::new(
    "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], '0')
return 1",
);

/// The release in a cluster with sharded channels. It succeeds even if the channel of the name is in another slot.
static RELEASE_SHARDED: Script = Script::new(
    "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
redis.pcall('SPUBLISH', ARGV[2], '0')
return 1",
);

/// The version in which clusters got sharded channels. Redisson uses them from it on.
const SHARDED: Version = Version { major: 7, minor: 0, patch: 0 };

/// The answer of [`TAKE`] for a taken lock. `PTTL` never returns it.
const TAKEN: i64 = -3;

/// Locks in the layout of Redisson 4.7's `RLock`, on one server, the primary that sentinels name, or a cluster. This
/// library and Redisson clients that use the same name exclude each other. To Redisson each acquisition of this library
/// is one more thread. Uses one connection for commands, and one to listen while a task waits, for any number of locks;
/// in a cluster as many to each master that is asked.
///
/// # Promises
/// - Messages both ways: a release by this library wakes one waiter of each Redisson client, and the other way round.
/// - `RFencedLock` shares locks too. `RFairLock` and this library exclude each other, but neither wakes the other, and
///   its queue is bypassed.
/// - A try whose answer was lost is repeated, and does not count twice.
///
/// # Not promised
/// - An order: a waiter that is woken races with all others.
/// - A fence. This library does not draw the fence of `RFencedLock`, so that fence stays at its old value while this
///   library holds the lock. Where order or fences matter, use [`super::RedisLocks`].
/// - That a hold lasts. It ends when the server loses the key: at the end of the lease, possibly in a failover, and by
///   `forceUnlock`.
/// - Waking each other while a slot of a cluster moves: waiters then poll with the usual pauses. The same holds for a
///   name with a `{` and no `}` after it in a cluster of Redis 7, whose channel is in another slot.
pub struct Redisson {
    link: Link,
    notifications: ChannelListeners,
    client: Client,
    watch: Watch,
}

firstcome_core::debug_by_name!(Redisson);

/// The places where this client listens.
enum ChannelListeners {
    /// One connection for all channels.
    One(Channels),
    /// One connection to each node that has a lock with waiters.
    EachNode { nodes: Mutex<BTreeMap<Host, Arc<Channels>>>, options: LinkOptions },
}

/// The UUID of this client.
struct Client(u128);

/// The field of a thread, as Redisson writes it: the UUID of the client, a colon, and the number of the thread.
struct Field<'a> {
    client: &'a Client,
    number: u64,
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Client(bits) = self.client;
        let part = |shift: u32, digits: u32| (bits >> shift) & ((1 << (4 * digits)) - 1);
        let [one, two, three, four, five] = [part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12)];
        write!(f, "{one:08x}-{two:04x}-{three:04x}-{four:04x}-{five:012x}:{}", self.number)
    }
}

impl Client {
    fn draw() -> Result<Self, OpenError> {
        let secret = draw_secret().map_err(|fault| OpenError::Address { says: fault.to_string() })?;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&secret[..16]);
        // Version 4, and the standard variant.
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// Returns the field of the holder with this word: always the same for one word, and different for other words
    /// except with probability 2⁻⁶³. The number of a thread is not negative.
    fn field(&self, word: &str) -> Field<'_> {
        let digest = Sha256::digest(word.as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        Field { client: self, number: u64::from_be_bytes(bytes) >> 1 }
    }
}

/// Returns the channel of a lock. A name with a brace is assumed to have a hash tag.
fn channel_of(key: &str) -> String {
    if key.contains('{') {
        format!("redisson_lock__channel:{key}")
    } else {
        format!("redisson_lock__channel:{{{key}}}")
    }
}

/// Whether all masters are new enough for sharded channels.
async fn has_sharded_channels(link: &Link) -> Result<bool, OpenError> {
    let unreachable =
        |error: LinkError| OpenError::Unreachable { address: "the cluster".to_owned(), says: error.to_string() };
    let servers = link.servers().await.map_err(unreachable)?;
    Ok(servers.iter().all(|server| server.version.is_some_and(|version| SHARDED <= version)))
}

impl Redisson {
    /// Connects, and checks that the server is fit for locks. Call it within a Tokio runtime with IO and time.
    ///
    /// In a cluster older than 7.0 it uses channels of the whole cluster, as Redisson does there. Fails as
    /// [`Link::open`] does.
    pub async fn open(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        let client = Client::draw()?;
        let (link, place) = Link::open_deaf(url, &options).await?;
        let watch = Watch::over(&link, &options);
        let notifications = if matches!(place, Endpoint::AnyNode(_)) && has_sharded_channels(&link).await? {
            ChannelListeners::EachNode { nodes: Mutex::default(), options }
        } else {
            ChannelListeners::One(Channels::open(place, Voice::Plain, &options, link.counters()))
        };
        Ok(Self { link, notifications, client, watch })
    }

    /// Returns the channels of the node that has this channel; `None` if no node is known to have it.
    fn channels_at_home(
        &self,
        channel: &str,
        nodes: &Mutex<BTreeMap<Host, Arc<Channels>>>,
        options: &LinkOptions,
    ) -> Option<Arc<Channels>> {
        let (host, place) = self.link.home_of(channel.as_bytes())?;
        let open = || Arc::new(Channels::open(place, Voice::Sharded, options, self.link.counters()));
        Some(Arc::clone(nodes.lock().entry(host).or_insert_with(open)))
    }

    /// Returns what was sent and received so far.
    pub fn counts(&self) -> Counts {
        self.link.counts()
    }

    /// Builds the call of a script: the key of the lock, the field of the holder, and one more argument.
    fn run(&self, script: &'static Script, key: &str, word: &str, last: impl fmt::Display) -> Invocation {
        let mut run = script.with_keys(1);
        run.add_bytes(key.as_bytes()).add(self.client.field(word)).add(last);
        run
    }

    /// Runs a script. With [`LinkOptions::replica_ack`], the answer `yes` counts only when replicas have it. All
    /// scripts use one connection, so that no release overtakes its take.
    async fn ask(&self, run: &Invocation, yes: Option<i64>) -> Result<i64, StoreError> {
        match self.link.invoke_acknowledged(run, |value| yes.is_some_and(|yes| *value == Value::Int(yes))).await? {
            Value::Int(number) => Ok(number),
            // An answer that this process cannot read may belong to a script that ran.
            _ => Err(StoreError::Unknown),
        }
    }
}

/// Each step is one command, and one more with [`LinkOptions::replica_ack`]. All waiters of a lock in this client share
/// one subscription.
impl KeyStore for Redisson {
    fn fence(_: ()) -> Option<Fence> {
        None
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::SHARED_LAYOUT
    }

    type Grant = ();
    type Notifications = Listener;

    async fn take(&self, key: &str, word: &str, lease_ms: u32) -> Result<Tried<()>, StoreError> {
        self.watch.may_grant()?;
        let answer = self.ask(&self.run(&TAKE, key, word, lease_ms), Some(TAKEN)).await?;
        if answer == TAKEN {
            return Ok(Tried::Taken(()));
        }
        // The key exists, because the script has just found it. -1 means that it has no expiry.
        Ok(Tried::Held { lasts: u64::try_from(answer).ok().map(Duration::from_millis) })
    }

    async fn renew(&self, key: &str, word: &str, lease_ms: u32) -> Result<bool, StoreError> {
        Ok(self.ask(&self.run(&RENEW, key, word, lease_ms), Some(1)).await? == 1)
    }

    async fn release(&self, key: &str, word: &str) -> Result<bool, StoreError> {
        let script = match self.notifications {
            ChannelListeners::One(_) => &RELEASE,
            ChannelListeners::EachNode { .. } => &RELEASE_SHARDED,
        };
        Ok(self.ask(&self.run(script, key, word, channel_of(key)), None).await? == 1)
    }

    async fn count(&self, key: &str, word: &str, times: NonZeroU32) -> Result<bool, StoreError> {
        Ok(self.ask(&self.run(&COUNT, key, word, times), None).await? == 1)
    }

    async fn listen(&self, key: &str, _word: &str) -> Option<Listener> {
        let channel = channel_of(key);
        match &self.notifications {
            ChannelListeners::One(channels) => Some(channels.listen(channel).await),
            ChannelListeners::EachNode { nodes, options } => {
                let channels = self.channels_at_home(&channel, nodes, options)?;
                Some(channels.listen(channel).await)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_a_uuid_and_the_number_of_a_thread() {
        let field = Field { client: &Client(0x0123_4567_89ab_4def_8123_4567_89ab_cdef), number: 7 };
        assert_eq!(field.to_string(), "01234567-89ab-4def-8123-456789abcdef:7");
        let client = Client::draw().expect("random bytes");
        let field = client.field("a word").to_string();
        let (uuid, number) = field.split_once(':').expect("a colon");
        assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!((&uuid[14..15], uuid.contains(|digit: char| digit.is_ascii_uppercase())), ("4", false), "{uuid}");
        assert!(number.parse::<i64>().is_ok_and(|number| 0 <= number), "{number}");
        assert_eq!(client.field("a word").to_string(), field);
        assert_ne!(client.field("another").to_string(), field);
    }

    #[test]
    fn channels_have_the_names_that_redisson_gives_them() {
        assert_eq!(channel_of("k"), "redisson_lock__channel:{k}");
        assert_eq!(channel_of("a{b}c"), "redisson_lock__channel:a{b}c");
        assert_eq!(channel_of("a{b"), "redisson_lock__channel:a{b");
    }
}
