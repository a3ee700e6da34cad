//! Servers that have forgotten.

use super::*;
use firstcome_store::StoreError;
use tokio::time::Instant;

/// So long they do not vote. No lease here is longer.
const REJOIN: Duration = Duration::from_secs(2);
const SHORT_MS: u32 = 2_000;

fn rejoining() -> QuorumOptions {
    let mut options = brisk();
    options.rejoin_after = REJOIN;
    options
}

/// Takes the lock and gives it back; its fence.
async fn in_and_out(locks: &QuorumStore, word: &str) -> Result<u64, StoreError> {
    // What was asked for in vain may not be given back yet.
    let taken = wait_for("the lock", async || match locks.take(KEY, word, SHORT_MS).await {
        Ok(Tried::Held { .. }) => None,
        Ok(Tried::Taken(fence)) => Some(Ok(fence.get())),
        Err(error) => Some(Err(error)),
    });
    let fence = taken.await?;
    locks.release(KEY, word).await?;
    Ok(fence)
}

/// Asks until a node votes, or does not; when that was.
async fn until_it_votes(set: &Set, locks: &QuorumStore, node: usize, votes: bool) -> Instant {
    let mut number = 0;
    wait_for("the node to vote, or not", async || {
        number += 1;
        in_and_out(locks, &format!("again-{node}-{number}")).await.unwrap();
        (set.votes(node).await == votes).then(Instant::now)
    })
    .await
}

#[tokio::test]
async fn a_node_that_is_empty_votes_late_and_knows_what_others_know() {
    let Some(mut set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(rejoining()).await;
        in_and_out(&locks, "first").await.unwrap();
        // All are an hour ahead of their clocks: a guess by the clock would be far below.
        for server in &set.0 {
            let knows = server.text(&["GET", "fcq:node"]).await;
            let (front, counter) = knows.rsplit_once(' ').unwrap();
            let ahead = counter.parse::<u64>().unwrap() + 3_600_000_000;
            server.ask(&["SET", "fcq:node", &format!("{front} {ahead}")]).await;
        }
        let told = in_and_out(&locks, "ahead").await.unwrap();
        let emptied = Instant::now();
        set.0[0].restart().await;
        wait_for("the connection", async || (locks.counts().nodes_up == 3).then_some(())).await;
        // With it there would be a majority, and it does not vote.
        set.0[2].freeze();
        let tried = locks.take(KEY, "too-soon", SHORT_MS).await;
        set.0[2].thaw();
        assert!(matches!(tried, Err(StoreError::Faulted(_))), "{tried:?}");
        assert!(!set.votes(0).await);
        wait_for("an answer", async || in_and_out(&locks, "thawed").await.ok()).await;
        let voted = until_it_votes(&set, &locks, 0, true).await;
        assert!(REJOIN <= voted - emptied, "it voted after {:?}", voted - emptied);
        wait_for("the count", async || (locks.counts().rejoined == 1).then_some(())).await;
        // One that has seen no fence, with the node that had forgotten and one more.
        let newcomer = set.open(rejoining()).await;
        set.0[2].kill();
        let fence = in_and_out(&newcomer, "newcomer").await.unwrap();
        assert!(told < fence, "{fence} after {told}");
    })
    .await;
}

/// Lets a node vote again by one who asks for a lock that he does not get: then no counter is raised by a grant.
async fn let_vote(set: &Set, node: usize) {
    for other in (0..3).filter(|other| *other != node) {
        let knows = set.knows(other).await;
        let birth = knows.split(' ').nth(3).unwrap();
        set.0[other].ask(&["SET", "fcq:l:blocked", &format!("somebody 1 {birth}"), "PX", "60000"]).await;
    }
    let asks = set.open(rejoining()).await;
    wait_for("the node to vote", async || {
        let tried = asks.take("blocked", "asks", SHORT_MS).await;
        assert!(!matches!(tried, Ok(Tried::Taken(_))), "{tried:?}");
        set.votes(node).await.then_some(())
    })
    .await;
}

#[tokio::test]
async fn nodes_that_come_back_one_after_another_have_been_told_every_fence() {
    let Some(mut set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(rejoining()).await;
        in_and_out(&locks, "first").await.unwrap();
        for node in 0..3 {
            let knows = set.knows(node).await;
            let (front, counter) = knows.rsplit_once(' ').unwrap();
            let ahead = counter.parse::<u64>().unwrap() + 3_600_000_000;
            set.0[node].ask(&["SET", "fcq:node", &format!("{front} {ahead}")]).await;
        }
        let told = in_and_out(&locks, "ahead").await.unwrap();
        drop(locks);
        // A majority of those that vote has forgotten in the end, one at a time.
        for node in [0, 1] {
            set.0[node].restart().await;
            let_vote(&set, node).await;
        }
        let newcomer = set.open(rejoining()).await;
        set.0[2].kill();
        let fence = in_and_out(&newcomer, "newcomer").await.unwrap();
        assert!(told < fence, "{fence} after {told}");
    })
    .await;
}

#[tokio::test]
async fn a_node_with_an_older_memory_has_forgotten() {
    let Some(mut set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(rejoining()).await;
        let first = fence_of(locks.take(KEY, "first", SHORT_MS).await);
        // It is started again with what it knew now.
        set.0[1].ask(&["SAVE"]).await;
        locks.release(KEY, "first").await.unwrap();
        let second = in_and_out(&locks, "second").await.unwrap();
        set.0[1].restart().await;
        assert!(set.knows(1).await.starts_with("1 "), "it thinks that it votes");
        wait_for("the connection", async || (locks.counts().nodes_up == 3).then_some(())).await;
        let third = in_and_out(&locks, "third").await.unwrap();
        until_it_votes(&set, &locks, 1, false).await;
        until_it_votes(&set, &locks, 1, true).await;
        let fourth = in_and_out(&locks, "fourth").await.unwrap();
        assert!(first < second && second < third && third < fourth);
    })
    .await;
}

#[tokio::test]
async fn a_hold_is_made_again_where_it_was_forgotten() {
    let Some(mut set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(unhurried()).await;
        let fence = take(&locks, "mine").await;
        set.0[0].restart().await;
        // The connection comes back by itself.
        wait_for("the repair", async || {
            assert!(locks.renew(KEY, "mine", LEASE_MS).await.unwrap());
            (set.holders([0]).await == 1).then_some(())
        })
        .await;
        assert!(set.0[0].text(&["GET", &format!("fcq:l:{KEY}")]).await.contains(&format!(" {fence} ")));
        assert!(locks.release(KEY, "mine").await.unwrap());
        set.until_free().await;
    })
    .await;
}

#[tokio::test]
async fn a_hold_takes_the_place_of_one_that_a_node_remembers_from_before_it_forgot() {
    let Some(mut set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(unhurried()).await;
        take(&locks, "first").await;
        set.until_held().await;
        set.0[1].ask(&["SAVE"]).await;
        assert!(locks.release(KEY, "first").await.unwrap());
        set.until_free().await;
        take(&locks, "second").await;
        set.until_held().await;
        // It comes back with the key of the first.
        set.0[1].restart().await;
        let key = format!("fcq:l:{KEY}");
        assert!(set.0[1].text(&["GET", &key]).await.starts_with("first."));
        wait_for("the repair", async || {
            assert!(locks.renew(KEY, "second", LEASE_MS).await.unwrap());
            set.0[1].text(&["GET", &key]).await.starts_with("second.").then_some(())
        })
        .await;
        assert!(locks.release(KEY, "second").await.unwrap());
        set.until_free().await;
    })
    .await;
}

#[tokio::test]
async fn a_new_set_is_new_only_once() {
    let Some(mut set) = Set::start(3).await else { return };
    in_time(async {
        // No process has said that these are new.
        let mut known = rejoining();
        known.set = firstcome_redis::NodeSet::Known;
        let locks = set.open(known).await;
        let begun = Instant::now();
        let tried = locks.take(KEY, "too-soon", SHORT_MS).await;
        assert!(matches!(tried, Err(StoreError::Faulted(_))), "{tried:?}");
        wait_for("the set to begin", async || in_and_out(&locks, "begun").await.ok()).await;
        assert!(REJOIN <= begun.elapsed());
        for node in 0..3 {
            until_it_votes(&set, &locks, node, true).await;
        }
        set.0[2].restart().await;
        let _again = set.open(rejoining()).await;
        assert!(!set.votes(2).await, "it lets a node vote at once that has forgotten");
    })
    .await;
}
