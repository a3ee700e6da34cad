//! The check in Redis and Valkey, from 6.2 (feature `redis`).
//!
//! The remembered fences lie beside the guarded key, in a hash with a field per lock. The hash must stay: give it no
//! time to live, and let the server's `maxmemory-policy` be `noeviction`.
//!
//! | key | content |
//! |---|---|
//! | `stock:7` | the guarded value |
//! | `{stock:7}:fence` | field `auction:7`: the fence and owner of the last write |
//! | `{shop}:stock:7`, `{shop}:stock:7:fence` | the same for a key that has a hash tag |
//!
//! Both keys are in one slot of a cluster, because the text in the first braces decides the slot.
//!
//! # Not promised
//! - Checks of writes that bypass [`GuardedKey`] and [`FENCE_LUA`].
//! - Fences across a failover: the new primary may have missed the last writes, and with them their fences.

use super::{FenceError, FenceToken};
use ::redis::aio::ConnectionLike;
use ::redis::{ErrorKind, FromRedisValue, RedisError, Script, ToRedisArgs, Value, from_redis_value};
use std::sync::LazyLock;

/// The Lua function `fence_ok(key, lock, fence, owner)`, for the head of a custom script. It returns whether the token
/// is accepted, and remembers an accepted token.
///
/// The key must be one of `KEYS`, and in the slot of what the script writes; [`GuardedKey::fence_key`] returns such a
/// key. The other arguments are the texts of [`FenceToken::lock`], [`FenceToken::fence`] and [`FenceToken::owner`]. The
/// function raises an error, which ends the script, if the fence is invalid or the key has another type. So call it
/// before the script writes anything.
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

/// A key for which no fence key is certain to lie in the same slot: see [`GuardedKey`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a guarded key must not be empty, nor hold a closing brace outside of a hash tag")]
pub struct KeyError;

/// A key that is written only with a token.
///
/// ```no_run
/// # async fn bid(guard: firstcome::Guard) -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::fence::redis::GuardedKey;
///
/// let client = redis::Client::open("redis://127.0.0.1")?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
/// let price = GuardedKey::new("auction:7:price")?;
/// price.set(&mut connection, &guard.token()?, 120).await?;
/// let raised: i64 = price.call(&mut connection, &guard.token()?, "INCRBY", &[5]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardedKey {
    key: Box<str>,
    fence_key: Box<str>,
}

impl GuardedKey {
    /// Makes a guarded key. Sends nothing.
    ///
    /// Fails if the key is empty, or if it has a `}` but no hash tag: then no other key is certain to lie in its slot.
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

    /// The key of the hash that remembers its fences.
    pub fn fence_key(&self) -> &str {
        &self.fence_key
    }

    /// Runs `SET key value` if the token is accepted. See [`Self::call`].
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

    /// Runs a command if the token is accepted. The guarded key must be the command's first argument and its only key.
    /// One script checks, remembers and runs the command in one step. One request; two more if the server has forgotten
    /// the script.
    ///
    /// Fails with [`FenceError::Stale`] if the token is refused. Fails with [`FenceError::Failed`] if there is an error
    /// or no answer: the command may or may not have run. An error of the command itself comes after the token was
    /// remembered. This method never repeats the request, but the client of a cluster may.
    ///
    /// A repeat with the same token is accepted, because it is the same hold. That is right for commands that may run
    /// twice, such as `SET`, and wrong for `INCRBY`.
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
            // A nil reply of the command ends the list after its first element.
            Value::Array(parts) if parts == [Value::Int(1)] => Ok(Value::Nil),
            Value::Array(parts) if parts == [Value::Int(0)] => Err(FenceError::stale(token)),
            _ => Err(FenceError::Failed(unexpected("the script was answered with something else"))),
        }
    }
}

fn unexpected(what: &'static str) -> RedisError {
    (ErrorKind::UnexpectedReturnType, what).into()
}

/// Whether the key has a hash tag: the text in its first braces, unless it is empty. A tag alone decides the slot.
fn has_tag(key: &str) -> bool {
    let tag = key.split_once('{').and_then(|(_, after)| after.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}
