//! The layout of Redisson's `RLock`, as of its version 4.7: a hash per lock with one field, who holds it, whose value is how
//! many times over; its time to live is the lease. Who gives the lock back says `0` in the lock's channel, where those who
//! wait listen.
//!
//! To Redisson each acquisition of ours is a thread of one more client: its field is the UUID of this client and a number.
//! A hold is never counted up by being taken, as Redisson's script would: a try that is repeated because its answer was
//! lost would count twice. How many times over it is held is written down as such ([`KeyStore::count`]).

use super::address::Host;
use super::channels::{Channels, Listener, Voice};
use super::fitness::Watch;
use super::route::Endpoint;
use super::{Counts, Invocation, Link, LinkError, LinkOptions, OpenError, Script, Version};
use firstcome_store::StoreError;
use firstcome_store::edge::draw_secret;
use firstcome_store::key::{KeyStore, Tried};
use parking_lot::Mutex;
use redis::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// A repeat after a lost answer finds its own field, and has the lock. The key may hold something that is no hash, such as
/// the word of another layout: then another process has it.
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
/// With all that is counted: a process that counts gives the lock back once.
static RELEASE: Script = Script::new(
    "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], '0')
return 1",
);

/// The same in a cluster that has channels of its slots. A name whose channel is not in its slot is given back all the same.
static RELEASE_SHARDED: Script = Script::new(
    "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
redis.pcall('SPUBLISH', ARGV[2], '0')
return 1",
);

/// The version in which clusters got channels of their slots, from which on Redisson uses them.
const SHARDED: Version = Version { major: 7, minor: 0, patch: 0 };

/// What [`TAKE`] answers for a lock that is taken, besides what `PTTL` can say.
const TAKEN: i64 = -3;

/// Locks as Redisson 4.7 keeps its `RLock`, on one server, the primary that sentinels name, or a cluster: a process that uses the same
/// name there excludes, and is excluded by, us; each acquisition of ours is one more thread to it. One connection for commands,
/// and one to listen while a task waits, for any number of locks; in a cluster as many to each master that is asked.
///
/// # Promises
/// - Messages both ways: a release of ours wakes one waiter of each client of Redisson, and the other way round.
/// - `RFencedLock` shares locks too. `RFairLock` excludes and is excluded; neither wakes the other, and its queue is passed by.
/// - A try whose answer was lost is repeated, and does not count twice.
///
/// # Not promised
/// - An order: a process that is told races with all others. A fence: that of `RFencedLock` is not drawn, since a lock that is
///   taken without it would stand beside a fence of before. Where either matters, use [`super::RedisLocks`].
/// - That a hold lasts. It ends when the server loses the key: with its lease, with a failover, and with `forceUnlock`.
/// - Waking each other while a slot of a cluster moves: who waits then asks again after the usual pauses, until he has the lock.
///   Nor for a name with a `{` and no `}` behind it in a cluster of Redis 7: its channel is in another slot.
pub struct Redisson {
    link: Link,
    notifications: ChannelListeners,
    client: Client,
    watch: Watch,
}

/// Where messages are heard.
enum ChannelListeners {
    /// At one place.
    One(Channels),
    /// At the node that has the lock.
    EachNode { nodes: Mutex<BTreeMap<Host, Arc<Channels>>>, options: LinkOptions },
}

/// This client as a UUID.
struct Client(u128);

/// As Redisson names a thread of a client: the UUID, a colon, and the number of the thread.
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
        // Version 4, and the variant that all have.
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// Who has what was taken with this word: always the same, and as good as never that of another word. The number of a
    /// thread has no sign.
    fn field(&self, word: &str) -> Field<'_> {
        let digest = Sha256::digest(word.as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        Field { client: self, number: u64::from_be_bytes(bytes) >> 1 }
    }
}

/// The channel of a lock. A name with a brace is thought to have its own part by which a cluster places it.
fn channel_of(key: &str) -> String {
    if key.contains('{') {
        format!("redisson_lock__channel:{key}")
    } else {
        format!("redisson_lock__channel:{{{key}}}")
    }
}

/// Whether all masters are new enough for channels of slots.
async fn has_sharded_channels(link: &Link) -> Result<bool, OpenError> {
    let unreachable =
        |error: LinkError| OpenError::Unreachable { address: "the cluster".to_owned(), says: error.to_string() };
    let servers = link.servers().await.map_err(unreachable)?;
    Ok(servers.iter().all(|server| server.version.is_some_and(|version| SHARDED <= version)))
}

impl Redisson {
    /// Connects and looks whether the server will do. Within a Tokio runtime with IO and time.
    ///
    /// In a cluster older than 7.0 it speaks and listens as Redisson does there, over all nodes. Fails as [`Link::open`] does.
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

    /// The channels of the node that has this one; `None` if no process is known to.
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

    /// What has been sent and heard so far.
    pub fn counts(&self) -> Counts {
        self.link.counts()
    }

    /// A run of a script that begins with the lock and who has it, and takes one argument more.
    fn run(&self, script: &'static Script, key: &str, word: &str, last: impl fmt::Display) -> Invocation {
        let mut run = script.with_keys(1);
        run.add_bytes(key.as_bytes()).add(self.client.field(word)).add(last);
        run
    }

    /// Runs a script. If replicas are to have what locks rest on, this answer counts only when they do. All go the same way, so
    /// that nothing is given back before it is taken.
    async fn ask(&self, run: &Invocation, yes: Option<i64>) -> Result<i64, StoreError> {
        match self.link.invoke_acknowledged(run, |value| yes.is_some_and(|yes| *value == Value::Int(yes))).await? {
            Value::Int(number) => Ok(number),
            // It cannot be read, and may still stand for something that was done.
            _ => Err(StoreError::Unknown),
        }
    }
}

/// Each step is one command, one more if replicas are to acknowledge ([`LinkOptions::replica_ack`]), and listening is one for all who wait for a lock here.
impl KeyStore for Redisson {
    type Grant = ();
    type Notifications = Listener;

    async fn take(&self, key: &str, word: &str, lease_ms: u32) -> Result<Tried<()>, StoreError> {
        self.watch.may_grant()?;
        let answer = self.ask(&self.run(&TAKE, key, word, lease_ms), Some(TAKEN)).await?;
        if answer == TAKEN {
            return Ok(Tried::Taken(()));
        }
        // The key cannot be gone: the script has just found it. -1 is the server's word for one without an end.
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
