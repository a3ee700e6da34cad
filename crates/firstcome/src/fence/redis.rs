//! The check in Redis and Valkey, from 6.2 (feature `redis`).
//!
//! What is remembered lies beside the key that is guarded, in a hash with a field per lock. It must stay: give it no time to
//! live, and let the server's `maxmemory-policy` be `noeviction`.
//!
//! | key | what |
//! |---|---|
//! | `stock:7` | what is guarded |
//! | `{stock:7}:fence` | field `auction:7`: the last fence and owner by which it was written |
//! | `{shop}:stock:7`, `{shop}:stock:7:fence` | the same for a key with a hash tag of its own |
//!
//! Both are in one slot of a cluster, since its slot is made of what stands in the first braces.
//!
//! # Not promised
//! - A write that is not sent through a check is not checked.
//! - A replica that takes over may not have heard of the last writes: then it has forgotten fences too.

use super::{FenceError, FenceToken};
use ::redis::aio::ConnectionLike;
use ::redis::{ErrorKind, FromRedisValue, RedisError, Script, ToRedisArgs, Value, from_redis_value};
use std::sync::LazyLock;

/// A function for the head of a script of one's own: `fence_ok(key, lock, fence, owner)` is whether the token is accepted, in
/// which case it is remembered.
///
/// The key must be one of `KEYS`, and in the slot of what the script writes; [`GuardedKey::fence_key`] makes one. The other
/// arguments are the texts of [`FenceToken::lock`], [`FenceToken::fence`] and [`FenceToken::owner`]. It raises an error, and
/// the script ends, if the fence is no fence or the key holds something else: so call it before anything is written.
///
/// ```
/// use firstcome::fence::redis::FENCE_LUA;
///
/// let mut script = String::from(FENCE_LUA);
/// script.push_str(
///     "if not fence_ok(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then return 0 end
///      redis.call('SET', KEYS[2], ARGV[4])
///      redis.call('RPUSH', KEYS[3], ARGV[4])
///      return 1",
/// );
/// # assert!(script.contains("local function fence_ok"));
/// ```
pub const FENCE_LUA: &str = include_str!("fence_ok.lua");

static GUARDED: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("fence_ok.lua"), include_str!("guarded.lua"))));

/// No key can be made that surely lies in the slot of this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a guarded key must not be empty, nor hold a closing brace outside of a hash tag")]
pub struct KeyError;

/// A key that is written with a token only.
///
/// ```no_run
/// # async fn bid(guard: firstcome::Guard) -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::fence::redis::GuardedKey;
///
/// let client = redis::Client::open("redis://127.0.0.1")?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
/// let price = GuardedKey::new("auction:7:price")?;
/// price.set(&mut connection, &guard.token(), 120).await?;
/// let raised: i64 = price.call(&mut connection, &guard.token(), "INCRBY", &[5]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardedKey {
    key: Box<str>,
    fence_key: Box<str>,
}

impl GuardedKey {
    /// A key. Nothing is sent.
    ///
    /// Refused if it is empty, and if it has a `}` but no hash tag: no other key could be made in its slot.
    pub fn new(key: &str) -> Result<Self, KeyError> {
        let fence_key = if has_tag(key) {
            format!("{key}:fence")
        } else if key.is_empty() || key.contains('}') {
            return Err(KeyError);
        } else {
            format!("{{{key}}}:fence")
        };
        Ok(Self { key: key.into(), fence_key: fence_key.into() })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Where its fences are remembered.
    pub fn fence_key(&self) -> &str {
        &self.fence_key
    }

    /// `SET key value`, if the token is accepted. As [`Self::call`].
    pub async fn set(
        &self,
        connection: &mut impl ConnectionLike,
        token: &FenceToken,
        value: impl ToRedisArgs,
    ) -> Result<(), FenceError<RedisError>> {
        let Value::Okay = self.send(connection, token, "SET", &value).await? else {
            return Err(FenceError::Failed(unexpected("SET was not answered with OK")));
        };
        Ok(())
    }

    /// Any command whose first argument is the key and that touches no other, if the token is accepted: one script, which
    /// checks, remembers and runs the command in one step. One request; two more if the server has forgotten the script.
    ///
    /// Fails with [`FenceError::Stale`] if the token is refused. With [`FenceError::Failed`] if there is an error or no answer:
    /// the command may or may not have run then. Nothing is sent again by this (the client of a cluster may repeat by itself).
    /// To send the same again is not refused,
    /// since it is the same hold: right for what may happen twice, such as `SET`, and wrong for `INCRBY`. An error that the
    /// command itself answers comes after the token was remembered.
    ///
    /// If the future is dropped, the command may still run.
    pub async fn call<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        token: &FenceToken,
        command: &str,
        arguments: &[impl ToRedisArgs],
    ) -> Result<T, FenceError<RedisError>> {
        let answer = self.send(connection, token, command, arguments).await?;
        from_redis_value(answer).map_err(|error| FenceError::Failed(error.into()))
    }

    async fn send(
        &self,
        connection: &mut impl ConnectionLike,
        token: &FenceToken,
        command: &str,
        arguments: impl ToRedisArgs,
    ) -> Result<Value, FenceError<RedisError>> {
        let mut run = GUARDED.prepare_invoke();
        run.key(&*self.fence_key).key(&*self.key);
        run.arg(token.lock()).arg(token.fence().get()).arg(token.owner()).arg(command).arg(arguments);
        let answer: Value = run.invoke_async(connection).await.map_err(FenceError::Failed)?;
        match answer {
            Value::Array(mut parts) if 2 <= parts.len() && parts[0] == Value::Int(1) => Ok(parts.swap_remove(1)),
            // An answer of nothing ends a list.
            Value::Array(parts) if parts == [Value::Int(1)] => Ok(Value::Nil),
            Value::Array(parts) if parts == [Value::Int(0)] => Err(FenceError::stale(token)),
            _ => Err(FenceError::Failed(unexpected("the script was answered with something else"))),
        }
    }
}

fn unexpected(what: &'static str) -> RedisError {
    (ErrorKind::UnexpectedReturnType, what).into()
}

/// Whether the slot is made of a part of the key: of what is in the first braces, if it is anything.
fn has_tag(key: &str) -> bool {
    let tag = key.split_once('{').and_then(|(_, after)| after.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}
