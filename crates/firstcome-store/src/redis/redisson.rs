//! The layout of Redisson's `RLock`, as of its version 4.7: a hash per lock with one field, who holds it, whose value is how
//! many times over; its time to live is the lease. Who gives the lock back says `0` in the lock's channel, where those who
//! wait listen.
//!
//! To Redisson each acquisition of ours is a thread of one more client: its field is the UUID of this client and a number.
//! A hold is never counted up by being taken, as Redisson's script would: a try that is repeated because its answer was
//! lost would count twice. How many times over it is held is written down as such ([`KeyStore::count`]).

use super::channels::{Channels, Listener};
use super::{Counts, Invocation, Link, LinkOptions, OpenError, Script};
use crate::edge::draw_secret;
use crate::error::StoreError;
use crate::key::{KeyStore, Tried};
use redis::Value;
use sha2::{Digest, Sha256};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// A repeat after a lost answer finds its own field, and has the lock. The key may hold something that is no hash, such as
/// the word of another layout: then somebody else has it.
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
/// With all that is counted: whoever counts gives the lock back once.
static RELEASE: Script = Script::new(
    "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], '0')
return 1",
);

/// What [`TAKE`] answers for a lock that is taken, besides what `PTTL` can say.
const TAKEN: i64 = -3;

/// Locks as Redisson 4.7 keeps its `RLock`, on one server or the primary that sentinels name: whoever uses the same name
/// there excludes, and is excluded by, us; each acquisition of ours is one more thread to it. One connection for commands,
/// and one to listen while anybody waits, for whatever and however many.
///
/// # Promises
/// - Messages both ways: a release of ours wakes one waiter of each client of Redisson, and the other way round.
/// - `RFencedLock` shares locks too. `RFairLock` excludes and is excluded; neither wakes the other, and its queue is passed by.
/// - A try whose answer was lost is repeated, and does not count twice.
///
/// # Not promised
/// - An order: whoever is told races with all others. A fence: that of `RFencedLock` is not drawn, since a lock that is
///   taken without it would stand beside a fence of before. Where either matters, use [`super::RedisLocks`].
/// - That a hold lasts. It ends when the server loses the key: with its lease, with a failover, and with `forceUnlock`.
/// - Clusters: there Redisson speaks in sharded channels. They are refused when the locks are opened.
pub struct Redisson {
    link: Link,
    channels: Channels,
    client: Client,
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

impl Redisson {
    /// Connects and looks whether the server will do. Within a Tokio runtime with IO and time.
    ///
    /// Fails with [`OpenError::ClusterLayout`] if the address is that of a cluster, and as [`Link::open`] does.
    pub async fn open(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        let client = Client::draw()?;
        let (link, place, counters) = Link::open_alone(url, "Redisson", &options).await?;
        Ok(Self { link, channels: Channels::open(place, &options, counters), client })
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

    async fn ask(&self, run: &Invocation) -> Result<i64, StoreError> {
        match self.link.invoke(run).await? {
            Value::Int(number) => Ok(number),
            // It cannot be read, and may still stand for something that was done.
            _ => Err(StoreError::Unknown),
        }
    }
}

/// Each step is one command, and listening is one for all who wait for a lock here.
impl KeyStore for Redisson {
    type Grant = ();
    type Ear = Listener;

    async fn take(&self, key: &str, word: &str, lease_ms: u32) -> Result<Tried<()>, StoreError> {
        let answer = self.ask(&self.run(&TAKE, key, word, lease_ms)).await?;
        if answer == TAKEN {
            return Ok(Tried::Taken(()));
        }
        // The key cannot be gone: the script has just found it. -1 is the server's word for one without an end.
        Ok(Tried::Held { lasts: u64::try_from(answer).ok().map(Duration::from_millis) })
    }

    async fn renew(&self, key: &str, word: &str, lease_ms: u32) -> Result<bool, StoreError> {
        Ok(self.ask(&self.run(&RENEW, key, word, lease_ms)).await? == 1)
    }

    async fn release(&self, key: &str, word: &str) -> Result<bool, StoreError> {
        Ok(self.ask(&self.run(&RELEASE, key, word, channel_of(key))).await? == 1)
    }

    async fn count(&self, key: &str, word: &str, times: NonZeroU32) -> Result<bool, StoreError> {
        Ok(self.ask(&self.run(&COUNT, key, word, times)).await? == 1)
    }

    async fn listen(&self, key: &str, _word: &str) -> Option<Listener> {
        Some(self.channels.listen(channel_of(key)).await)
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
