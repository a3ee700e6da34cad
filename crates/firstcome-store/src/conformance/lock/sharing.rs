//! Requests that share a lock, one rule per case.

use super::*;

fn share(permits: u32, client: u64, number: u64) -> Step {
    let waiter = Waiter { mode: Mode::Shared { permits }, ..waiter(client, number) };
    Step::Acquire { name: door(), waiter, wait: Wait::Yes }
}

fn read(client: u64, number: u64) -> Step {
    share(1_000, client, number)
}

fn for_lease(lease_ms: u32, step: Step) -> Step {
    match step {
        Step::Acquire { name, waiter, wait } => Step::Acquire { name, waiter: Waiter { lease_ms, ..waiter }, wait },
        other => other,
    }
}

impl<S: LockStore> Bench<S> {
    /// Returns the fence of a request that shares the lock.
    async fn shared_fence(&self, client: u64, number: u64) -> u64 {
        match self.take(&read(client, number)).await.said {
            LockAnswer::Acquired(Acquired::Granted(grant)) => grant.fence.get(),
            said => panic!("{client}/{number} shares the lock: {said:?}"),
        }
    }

    async fn holders(&self) -> u32 {
        self.view(&door()).await;
        self.store.view(&door()).await.expect("the store answers").view.holders
    }
}

pub(super) async fn readers_and_writers_take_turns<S: LockStore>(bench: Bench<S>) {
    bench.check(&[(0, read(1, 1), "granted"), (0, read(2, 1), "granted"), (0, read(1, 2), "granted")]).await;
    assert_eq!(bench.holders().await, 3);
    let phase = bench.shared_fence(1, 1).await;
    assert_eq!([bench.shared_fence(2, 1).await, bench.shared_fence(1, 2).await], [phase; 2], "one fence for a phase");
    bench
        .check(&[
            (0, ask(3, 1), "queued 0"),
            (0, ask(3, 2), "queued 1"),
            // A reader that comes after a writer waits for that writer, and goes before the next one.
            (0, read(2, 2), "queued 0"),
            (0, read(4, 1), "queued 1"),
            (0, release(1, 1), "released"),
            (0, release(1, 2), "released"),
            (0, release(2, 1), "released"),
        ])
        .await;
    let first_writer = bench.fence(3, 1).await;
    assert!(phase < first_writer, "{first_writer} after {phase}");
    bench.check(&[(0, release(3, 1), "released")]).await;
    assert_eq!(bench.holders().await, 2);
    let next_phase = bench.shared_fence(4, 1).await;
    assert_eq!(next_phase, bench.shared_fence(2, 2).await);
    assert!(first_writer < next_phase, "{next_phase} after {first_writer}");
    bench.check(&[(0, release(4, 1), "released"), (0, release(2, 2), "released")]).await;
    assert!(next_phase < bench.fence(3, 2).await);
    bench.check(&[(0, release(3, 2), "released")]).await;
    assert_eq!(bench.view(&door()).await, (false, 0));
}

pub(super) async fn no_more_share_than_there_are_permits<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, share(2, 1, 1), "granted"),
            (0, share(2, 2, 1), "granted"),
            (0, share(2, 3, 1), "queued 0"),
            (0, share(2, 4, 1), "queued 1"),
            // Even more permits do not let a request pass others.
            (0, share(9, 5, 1), "queued 2"),
            (0, release(1, 1), "released"),
            (0, share(2, 3, 1), "granted, to be confirmed"),
            (0, share(2, 4, 1), "queued 0"),
            (0, release(4, 1), "withdrawn 0"),
        ])
        .await;
    assert_eq!(bench.holders().await, 3, "the one with nine permits was next");
    bench
        .check(&[(0, release(2, 1), "released"), (0, release(3, 1), "released"), (0, release(5, 1), "released")])
        .await;
    assert_eq!(bench.view(&door()).await, (false, 0));
}

pub(super) async fn each_shared_hold_ends_by_itself<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, for_lease(300, read(1, 1)), "granted"),
            (0, for_lease(900, read(2, 1)), "granted"),
            (0, ask(3, 1), "queued 0"),
            (400, renew(300, 1, 1), "lost"),
            (0, renew(900, 2, 1), "renewed"),
            (0, beat(3), "held,look"),
            (1_000, beat(3), "mine"),
            (0, release(2, 1), "not held"),
        ])
        .await;
}

pub(super) async fn a_writer_that_gives_up_or_dies_lets_readers_in<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, read(1, 1), "granted"),
            (0, ask(2, 1), "queued 0"),
            (0, read(3, 1), "queued 0"),
            (0, release(2, 1), "withdrawn 1"),
            (0, read(3, 1), "granted, to be confirmed"),
            (0, renew(LEASE_MS, 3, 1), "renewed"),
            (0, ask(2, 2), "queued 0"),
            (0, read(3, 2), "queued 0"),
            (1_100, beat(3), "mine"),
            // The process of the writer has been silent for a claim window; that of the reader has not.
            (1_100, read(3, 2), "granted, to be confirmed"),
        ])
        .await;
}

pub(super) async fn a_missed_grant_is_found_while_others_share<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, ask(1, 1), "granted"),
            (0, read(2, 1), "queued 0"),
            (0, read(2, 2), "queued 1"),
            (0, release(1, 1), "released"),
        ])
        .await;
    let LockAnswer::Beaten { looked, .. } = bench.take(&beat(2)).await.said else { panic!("a heartbeat") };
    let found: Vec<(Request, Taken)> = looked[0].0.iter().map(|grant| (grant.request, grant.taken)).collect();
    assert_eq!(found, [(request(2, 1), Taken::Open), (request(2, 2), Taken::Open)]);
    bench.check(&[(0, renew(LEASE_MS, 2, 1), "renewed"), (0, renew(LEASE_MS, 2, 2), "renewed")]).await;
}
