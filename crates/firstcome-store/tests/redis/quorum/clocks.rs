//! Keys that end before their time, as where a clock jumps. Then two may believe that they hold a lock, as in every Redlock;
//! what the lock guards takes no lower fence after a higher one.

use super::*;

/// What a lock guards: it refuses whoever is behind.
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
async fn a_jump_of_a_minority_gives_the_lock_to_nobody_and_is_repaired() {
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
    })
    .await;
}
