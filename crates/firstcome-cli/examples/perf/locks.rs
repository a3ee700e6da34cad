//! Locks: the rules in memory, a hand-over between two processes' clients, and a step as the bytes that go to Redis and
//! come back.

use crate::COUNT_MAX;
use crate::world::START_US;
use firstcome::core::id::{LockName, OwnerName};
use firstcome::core::limits::PERMITS_MAX;
use firstcome::core::lock::{Acquired, ClientId, Copies, LockAnswer, Mode, Released, Request, Step, Wait, Waiter};
use firstcome::core::time::Timestamp;
use firstcome::edge::ManualClock;
use firstcome::redis::RedisLocks;
use firstcome::{Locks, MemoryLocks};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use tokio::runtime::{Builder, RngSeed};

fn request(number: usize) -> Request {
    Request { client: ClientId(0x00c0_ffee_0000_0007), number: number as u64 }
}

fn name() -> LockName {
    LockName::parse("auction:4711").expect("a name")
}

/// Others that share the lock.
const SHARERS: usize = 99;

fn acquires(mode: Mode) -> Vec<Step> {
    let owner = OwnerName::parse("worker-7").expect("an owner");
    let waiter = |number| Waiter { request: request(number), owner: owner.clone(), lease_ms: 30_000, mode };
    (0..COUNT_MAX).map(|number| Step::Acquire { name: name(), waiter: waiter(number), wait: Wait::Yes }).collect()
}

fn releases() -> Vec<Step> {
    (0..COUNT_MAX).map(|number| Step::Release { name: name(), request: request(number), copies: Copies::One }).collect()
}

/// An acquire of a free lock and its release, by the rules over memory.
pub(crate) fn rules(count: usize) {
    take_and_release(&locks(), &acquires(Mode::ALONE), count);
}

/// The same of a lock that 99 others share, which stay.
pub(crate) fn rules_shared(count: usize) {
    let (locks, acquires) = (locks(), acquires(Mode::Shared { permits: PERMITS_MAX }));
    for other in &acquires[COUNT_MAX - SHARERS..] {
        let acquired = locks.take_now(other);
        assert!(matches!(acquired.said, LockAnswer::Acquired(Acquired::Granted(_))));
    }
    take_and_release(&locks, &acquires, count);
}

fn locks() -> MemoryLocks {
    MemoryLocks::with_clock(Arc::new(ManualClock::new(Timestamp::clamped_us(START_US))))
}

fn take_and_release(locks: &MemoryLocks, acquires: &[Step], count: usize) {
    for (acquire, release) in acquires.iter().zip(&releases()).take(count) {
        let acquired = black_box(locks.take_now(acquire));
        assert!(matches!(acquired.said, LockAnswer::Acquired(Acquired::Granted(_))));
        let released = black_box(locks.take_now(release));
        assert!(matches!(released.said, LockAnswer::Released(Released::Released)));
    }
}

/// A release that grants the lock to a waiter of another process, and the next wait: the clients of two processes, with
/// their drivers, over one store in memory.
pub(crate) fn hand_over(count: usize) {
    let mut seeded = Builder::new_current_thread();
    let runtime = seeded.enable_all().rng_seed(RngSeed::from_bytes(b"perf")).build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(locks());
        let processes = [1, 2].map(|id| Locks::over_as(ClientId(id), Arc::clone(&store)));
        let mut held = processes[1].lock("hot").acquire().await.expect("the free lock");
        for number in 0..count {
            let mut waiting = pin!(processes[number % 2].lock("hot").acquire());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            black_box(held.release().await).expect("a hold in time");
            held = waiting.await.expect("the lock that was handed over");
        }
        // Their drops would be counted once, in every run.
        std::mem::forget((held, processes));
    });
    std::mem::forget(runtime);
}

/// An acquire as the bytes that go out, and the longer answer to it, a place in line, as it comes in.
pub(crate) fn acquire_bytes(count: usize) {
    let answer =
        format!("*8\r\n:{START_US}\r\n$1\r\nQ\r\n:{START_US}\r\n:7\r\n:{START_US}\r\n:{START_US}\r\n:30000\r\n:1\r\n");
    for step in acquires(Mode::ALONE).iter().take(count) {
        black_box(RedisLocks::written(step));
        let read = black_box(RedisLocks::read(step, answer.as_bytes()));
        assert!(read.is_some_and(|answer| matches!(answer.said, LockAnswer::Acquired(Acquired::Queued { .. }))));
    }
}

/// A release as the bytes that go out, and the answer to it comes in.
pub(crate) fn release_bytes(count: usize) {
    let answer = format!("*3\r\n:{START_US}\r\n$1\r\nR\r\n:0\r\n");
    for step in releases().iter().take(count) {
        black_box(RedisLocks::written(step));
        let read = black_box(RedisLocks::read(step, answer.as_bytes()));
        assert!(read.is_some_and(|answer| matches!(answer.said, LockAnswer::Released(Released::Released))));
    }
}
