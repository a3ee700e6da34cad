//! A server whose clock is set back by an hour.

use super::storm::{Memory, Storm};
use super::*;
use firstcome_store::core::id::LockName;
use firstcome_store::core::lock::bucket_of;

const HOUR_US: u64 = 3_600_000_000;

/// Moves what a clock has left in a bucket: the counter, the end of one hold, the signs of life.
const MOVE: &str = "
local function later(text)
  local number, rest = string.match(text, '^(%d+)(.*)$')
  return string.format('%.0f', number + ARGV[1]) .. rest
end
local last = later(redis.call('GET', KEYS[1]))
redis.call('SET', KEYS[1], last)
local all = redis.call('HGETALL', KEYS[2])
for at = 1, #all, 2 do
  local life, seen = string.match(all[at + 1], '^(%d+) (%d+)$')
  redis.call('HSET', KEYS[2], all[at], life .. ' ' .. later(seen))
end
local before, from, after = string.match(redis.call('GET', KEYS[3]) or '', '^(.+ )(%d+)( %d.)$')
if from then
  redis.call('SET', KEYS[3], before .. later(from) .. after, 'KEEPTTL')
end
return { string.match(last, '^%d+'), #all / 2, from and 1 or 0 }
";

/// Makes everything the server knows of a lock look as if its clock had been an hour ahead up to now. Returns the counter
/// that is stored then, of how many processes there was a sign of life, and whether there was a hold.
///
/// All that these tests know of how locks are stored is here.
async fn set_clock_back(server: &Server, name: &str) -> (u64, u64, bool) {
    let bucket = bucket_of(&LockName::parse(name).expect("a name"));
    let [counter, lives] = ["n", "c"].map(|kind| format!("fc:{{l{bucket:02x}}}:{kind}"));
    let hold = format!("fc:{{l{bucket:02x}}}:h:{name}");
    let moved = server.ask(&["EVAL", MOVE, "3", &counter, &lives, &hold, &HOUR_US.to_string()]).await;
    let (last, lives, holds): (String, u64, u64) = redis::from_redis_value(moved).expect("three values");
    (last.parse().expect("a number"), lives, holds == 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_whose_clock_is_set_back_lasts_no_longer_than_its_lease() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let lease = Duration::from_secs(1);
        let [holder, one, other] = [open(&server.url()).await, open(&server.url()).await, open(&server.url()).await];
        // No caller renews it, and no caller gives it back.
        let gone = holder.lock("a").lease(lease).acquire().await.expect("it is free").hand_out().await;
        let mut waiting = Vec::new();
        for process in [&one, &other, &one, &other] {
            waiting.push(queue(process, "a", lease).await);
        }
        let (last, lives, holds) = set_clock_back(&server, "a").await;
        assert!(lives == 2 && holds, "{lives} {holds}");
        let mut fences = vec![gone.expect("it is held").fence.get(), last];
        for one in waiting {
            // They come back in any order, so one who is served late has waited for all others.
            let guard = timeout(lease + (CLAIM_WINDOW + SLACK) * 4, one).await.expect("nobody waits for an hour");
            let guard = guard.expect("no thread panics").expect("who waits is served");
            fences.push(guard.fence().unwrap().get());
            drop(guard);
        }
        assert!(fences[2..].iter().all(|fence| last < *fence), "{fences:?}");
        assert_nothing_left(&server, &[&holder, &one, &other], &["a"]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_holder_keeps_its_lock_when_the_clock_is_set_back() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let lease = Duration::from_secs(3);
        let [holder, other] = [open(&server.url()).await, open(&server.url()).await];
        let guard = holder.lock("a").lease(lease).acquire().await.expect("it is free");
        let (last, _, holds) = set_clock_back(&server, "a").await;
        assert!(holds);
        let refused = other.lock("a").try_acquire().await.expect_err("it is held");
        assert!(matches!(refused, LockError::Contended { ttl, .. } if ttl <= lease), "{refused}");
        let waiting = queue(&other, "a", lease).await;
        guard.renew(lease).await.expect("it is held");
        assert!(!guard.is_lost() && guard.remaining() <= lease);
        guard.release().await.expect("it is held");
        let next = timeout(CLAIM_WINDOW + SLACK, waiting).await.expect("nobody waits for an hour");
        assert!(last < next.expect("no thread panics").expect("who waits is served").fence().unwrap().get());
        assert_nothing_left(&server, &[&holder, &other], &["a"]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_again_and_again_lets_one_at_a_time_inside() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let mut processes = Vec::new();
        for _ in 0..4 {
            processes.push(open(&server.url()).await);
        }
        let storm = Storm::begin(processes, &["a"], 3, Duration::from_secs(5));
        let (mut last, mut held) = (0, 0);
        for _ in 0..6 {
            storm.progress(50).await;
            let (counter, _, holds) = set_clock_back(&server, "a").await;
            assert!(last + HOUR_US <= counter);
            last = counter;
            held += u32::from(holds);
        }
        storm.progress(50).await;
        assert!(0 < held, "there was never a hold whose end could be moved");
        storm.end(&server, Memory::Kept).await.assert_only(&[]);
    })
    .await;
}
