//! Keys that end before their time, as where a clock jumps. Then two may believe that they hold a lock, as in every Redlock;
//! what the lock guards takes no lower fence after a higher one.

use super::*;
use firstcome_store::StoreError;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::interval;

/// What a lock guards: it refuses a process that is behind.
#[derive(Default)]
struct Guarded {
    highest: u64,
    written: u32,
    refused: u32,
}

impl Guarded {
    fn write(&mut self, fence: u64) {
        if fence < self.highest {
            self.refused += 1;
        } else {
            self.highest = fence;
            self.written += 1;
        }
    }
}

#[tokio::test]
async fn a_jump_of_a_minority_gives_the_lock_to_no_process_and_is_repaired() {
    let Some(set) = Set::start(5).await else { return };
    in_time(async {
        let (one, other) = (set.open(unhurried()).await, set.open(unhurried()).await);
        take(&one, "one").await;
        set.until_held().await;
        for round in 0..5 {
            for node in [round, (round + 2) % 5] {
                set.jump(node).await;
            }
            let tried = other.take(KEY, &format!("other-{round}"), LEASE_MS).await;
            assert!(is_held(&tried), "{tried:?}");
            wait_for("it to be undone", async || (set.holders(0..5).await == 3).then_some(())).await;
            assert!(one.renew(KEY, "one", LEASE_MS).await.unwrap());
            set.until_held().await;
        }
        assert!(one.release(KEY, "one").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_jump_of_a_majority_makes_two_holders_of_whom_one_is_refused() {
    let Some(set) = Set::start(5).await else { return };
    in_time(async {
        let (one, other) = (set.open(unhurried()).await, set.open(unhurried()).await);
        let mut guarded = Guarded::default();
        let mut double_grants = 0;
        for round in 0..10 {
            let word = format!("round-{round}");
            let first = take(&one, &word).await;
            guarded.write(first);
            set.until_held().await;
            for node in [0, 1, 2] {
                set.jump((round + node) % 5).await;
            }
            let second = take(&other, &word).await;
            double_grants += u32::from(one.remaining(&word).is_some());
            assert!(first < second, "{second} after {first}");
            guarded.write(second);
            // It still believes.
            guarded.write(first);
            assert!(!one.renew(KEY, &word, LEASE_MS).await.unwrap(), "it finds out at the next renewal");
            assert_eq!(one.remaining(&word), None);
            assert!(!one.release(KEY, &word).await.unwrap());
            assert!(other.release(KEY, &word).await.unwrap());
            set.until_free().await;
        }
        println!("{double_grants} double grants in 10 jumps of a majority, {} writes refused", guarded.refused);
        assert_eq!((double_grants, guarded.written, guarded.refused), (10, 20, 10));
    })
    .await;
}

/// A lease as its holder saw it: from when it was told, and until when it believed to have the lock.
struct ObservedLease {
    from: Instant,
    until: Instant,
    fence: u64,
}

#[expect(clippy::disallowed_methods, reason = "a test compares when things happened")]
fn now() -> Instant {
    Instant::now()
}

/// Ends a key 1 % of its lease early, on each server, in one step each: as where clocks run so much faster.
async fn run_fast(set: &Set, key: &str, lease_ms: u32) {
    const SHORTEN: &str = "local left = redis.call('PTTL', KEYS[1]) if left <= 0 then return 0 end \
        redis.call('PEXPIRE', KEYS[1], math.max(left - ARGV[1], 1)) return 1";
    for server in &set.0 {
        let key = format!("fcq:l:{key}");
        server.ask(&["EVAL", SHORTEN, "1", &key, &(lease_ms / 100).to_string()]).await;
    }
}

/// Waits until a holder believes to have the lock for so long at most, which comes by itself.
async fn until_left(client: &QuorumStore, word: &str, left: Duration) {
    let mut looks = interval(Duration::from_millis(2));
    while left < client.remaining(word).unwrap_or_default() {
        looks.tick().await;
    }
}

/// One lock: three clients that want it take it in turns, each renews it a few times and then lets it end by itself, on servers whose
/// clocks run fast by 1 %. What they saw, in order.
async fn leases_on_fast_clocks(
    set: Arc<Set>,
    clients: Arc<Vec<QuorumStore>>,
    key: String,
    lease_ms: u32,
    turns: u32,
) -> Vec<ObservedLease> {
    let mut seen: Vec<ObservedLease> = Vec::new();
    let of_turn = |turn: u32| (&clients[turn as usize % clients.len()], format!("{key}-turn-{turn}"));
    for turn in 0..turns {
        let (client, word) = of_turn(turn);
        // It asks again and again from shortly before the end of the hold of the one before it.
        if let Some((before, word)) = turn.checked_sub(1).map(of_turn) {
            until_left(before, &word, Duration::from_millis(20)).await;
        }
        let mut tries = interval(Duration::from_millis(1));
        let (from, fence) = loop {
            tries.tick().await;
            match client.take(&key, &word, lease_ms).await {
                Ok(Tried::Taken(fence)) => break (now(), fence.get()),
                // Some said no, and others have not answered in time: asked again, what they may have given is given back.
                Ok(Tried::Held { .. }) | Err(StoreError::Faulted(_) | StoreError::Unknown) => {}
                Err(error) => panic!("{error}"),
            }
        };
        run_fast(&set, &key, lease_ms).await;
        for _ in 0..turn % 3 {
            until_left(client, &word, Duration::from_millis(u64::from(lease_ms) * 2 / 3)).await;
            if !client.renew(&key, &word, lease_ms).await.unwrap_or(false) {
                break;
            }
            run_fast(&set, &key, lease_ms).await;
        }
        // The instant first: what it believes is never taken for longer than it is.
        let before = now();
        let until = before + client.remaining(&word).unwrap_or_default();
        seen.push(ObservedLease { from, until, fence });
    }
    seen
}

/// The overlaps of leases that follow each other, over many locks at once.
pub(super) async fn overlaps(set: &Arc<Set>, locks: usize, turns: u32) -> Vec<Duration> {
    const LEASE: u32 = 1_000;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(set.open(unhurried()).await);
    }
    let clients = Arc::new(clients);
    let play =
        |lock| leases_on_fast_clocks(Arc::clone(set), Arc::clone(&clients), format!("clock-{lock}"), LEASE, turns);
    // In this thread, as a bug that is planted.
    let plays: Vec<_> = (0..locks).map(|lock| tokio::spawn(play(lock))).collect();
    let mut overlaps = Vec::new();
    for seen in plays {
        let seen = seen.await.expect("nobody panics");
        for pair in seen.windows(2) {
            assert!(pair[0].fence < pair[1].fence, "a fence fell");
            overlaps.extend(pair[0].until.checked_duration_since(pair[1].from).filter(|overlap| !overlap.is_zero()));
        }
    }
    overlaps
}

/// The keys of a hold end 1 % early, as on servers whose clocks run so much faster; whether another was given the lock
/// while its first holder believed to have it.
pub(super) async fn overlap_of_fast_clocks(set: &Set, round: u32) -> bool {
    const LEASE: u32 = 3_000;
    let (one, other) = (set.open(unhurried()).await, set.open(unhurried()).await);
    let word = format!("fast-{round}");
    fence_of(one.take(KEY, &word, LEASE).await);
    for server in &set.0 {
        let key = format!("fcq:l:{KEY}");
        let Value::Int(left_ms) = server.ask(&["PTTL", &key]).await else { panic!("no time to live") };
        server.ask(&["PEXPIRE", &key, &(left_ms - i64::from(LEASE) / 100).to_string()]).await;
    }
    let overlap = wait_for("the other one", async || match other.take(KEY, &word, LEASE).await {
        Ok(Tried::Taken(_)) => Some(one.remaining(&word).is_some()),
        Ok(Tried::Held { .. }) => None,
        Err(error) => panic!("{error}"),
    })
    .await;
    other.release(KEY, &word).await.unwrap();
    set.until_free().await;
    overlap
}

#[tokio::test]
async fn clocks_that_run_fast_by_one_per_cent_make_no_two_holders() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        for round in 0..2 {
            assert!(!overlap_of_fast_clocks(&set, round).await);
        }
        let overlaps = overlaps(&Arc::new(set), 12, 8).await;
        assert!(overlaps.is_empty(), "two had a lock at once: {overlaps:?}");
    })
    .await;
}
