//! Who is next, and who is woken.

use super::server::{Etcd, in_time, until_free, until_waiting, wait_for, wakes};
use firstcome::{Guarantees, Guard, LockError};
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

#[tokio::test]
async fn one_at_a_time_is_inside_and_fences_rise() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (inside, fences) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let locks = server.open().await;
            for _ in 0..4 {
                let (locks, inside, fences) = (locks.clone(), Arc::clone(&inside), Arc::clone(&fences));
                tasks.push(tokio::spawn(async move {
                    for _ in 0..5 {
                        let guard = locks.lock("a").acquire().await.expect("it is its turn");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        fences.lock().push(guard.fence().unwrap());
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.release().await.expect("held to the end");
                    }
                }));
            }
        }
        for task in tasks {
            task.await.expect("no task fails");
        }
        let fences = fences.lock();
        assert!(fences.len() == 60 && fences.is_sorted_by(|before, after| before < after), "{fences:?}");
        assert!(server.places("a").is_empty());
    })
    .await;
}

#[tokio::test]
async fn the_line_is_served_in_the_order_of_arrival_and_only_the_next_is_woken() {
    const WAITERS: u32 = 8;
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (one, other) = (server.open().await, server.open().await);
        assert_eq!(one.guarantees(), Guarantees::ETCD);
        let first = one.lock("a").ordered().fenced().owner("ann").acquire().await.expect("it is free");
        let mut before = first.fence().unwrap();
        let mut tasks = Vec::new();
        for number in 0..WAITERS {
            let locks = if number % 2 == 0 { other.clone() } else { one.clone() };
            tasks.push(tokio::spawn(async move {
                let guard = locks.lock("a").acquire().await.expect("it is its turn");
                let fence = guard.fence().unwrap();
                guard.release().await.expect("held to the end");
                fence
            }));
            until_waiting(&one, "a", number + 1).await;
        }
        assert_eq!((wakes(&one), wakes(&other)), (0, 0));
        first.release().await.expect("held to the end");
        for task in tasks {
            let fence = task.await.expect("no task fails");
            assert!(before < fence, "{fence} after {before}");
            before = fence;
        }
        assert_eq!((wakes(&one), wakes(&other)), (u64::from(WAITERS / 2), u64::from(WAITERS / 2)));
        assert!(server.places("a").is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_release_wakes_the_next_long_before_any_lease_ends() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (one, other) = (server.open().await, server.open().await);
        for _ in 0..5 {
            let held = one.lock("a").acquire().await.expect("it is free");
            let waiting = tokio::spawn(other.lock("a").acquire());
            until_waiting(&one, "a", 1).await;
            #[expect(clippy::disallowed_methods, reason = "a test measures a hand-over")]
            let released = Instant::now();
            held.release().await.expect("held to the end");
            let next = waiting.await.expect("it ends").expect("it is its turn");
            // No caller polls, so without the message it would last for ever.
            assert!(released.elapsed() < Duration::from_secs(10), "{:?}", released.elapsed());
            next.release().await.expect("held to the end");
        }
    })
    .await;
}

#[tokio::test]
async fn one_in_the_middle_who_gives_up_lets_no_caller_in() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let locks = server.open().await;
        let holder = locks.lock("a").acquire().await.expect("it is free");
        let mut clients = Vec::new();
        let mut waiting = Vec::new();
        for number in 1..=3 {
            let client = server.open().await;
            waiting.push(tokio::spawn(client.lock("a").acquire()));
            clients.push(client);
            until_waiting(&locks, "a", number).await;
        }
        let wakes = || clients.iter().map(wakes).collect::<Vec<_>>();
        let [second, middle, last] = <[_; 3]>::try_from(waiting).unwrap_or_else(|_| panic!("three"));
        middle.abort();
        until_waiting(&locks, "a", 2).await;
        wait_for("the one behind to look", async || (wakes() == [0, 0, 1]).then_some(())).await;
        // It is the last one's turn to be wrong: give it time to show it.
        locks.lock("b").acquire().await.expect("it is free").release().await.expect("held to the end");
        assert!(!second.is_finished() && !last.is_finished(), "somebody is in beside the holder");
        let first = holder.fence().unwrap();
        holder.release().await.expect("held to the end");
        let second: Guard = second.await.expect("it ends").expect("it is its turn");
        assert!(first < second.fence().unwrap() && !last.is_finished() && wakes() == [1, 0, 1]);
        let fence = second.fence().unwrap();
        second.release().await.expect("held to the end");
        let last = last.await.expect("it ends").expect("it is its turn");
        assert!(fence < last.fence().unwrap() && wakes() == [1, 0, 2]);
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_does_not_wait_takes_no_place_and_overtakes_no_caller() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (one, other) = (server.open().await, server.open().await);
        let held = one.lock("a").acquire().await.expect("it is free");
        let waiting = tokio::spawn(one.lock("a").acquire());
        until_waiting(&one, "a", 1).await;
        let before = server.places("a");
        let contended = other.lock("a").try_acquire().await;
        assert!(matches!(contended, Err(LockError::Contended { waiters: 1, .. })), "{contended:?}");
        assert_eq!(server.places("a"), before);
        drop(held);
        waiting.await.expect("it ends").expect("it is its turn").release().await.expect("held to the end");
    })
    .await;
}

#[tokio::test]
async fn a_future_that_is_dropped_anywhere_leaves_nothing() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (locks, other) = (server.open().await, server.open().await);
        for held in [false, true] {
            for polls in 1..8 {
                let holder = if held { Some(other.lock("a").acquire().await.expect("it is free")) } else { None };
                {
                    let mut asked = pin!(locks.lock("a").acquire());
                    for _ in 0..polls {
                        if asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                            break;
                        }
                        // So much happens in between as a question takes.
                        other.view("b").await.expect("it answers");
                    }
                }
                if let Some(holder) = holder {
                    until_waiting(&other, "a", 0).await;
                    let mut released = pin!(holder.release());
                    let _ = released.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                }
                until_free(&other, "a").await;
            }
        }
        // And nothing comes afterwards.
        locks.lock("a").try_acquire().await.expect("it is free").release().await.expect("held to the end");
        assert!(server.places("a").is_empty());
    })
    .await;
}

#[tokio::test]
async fn others_who_follow_the_recipe_stand_in_the_same_line() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let locks = server.open().await;
        let held = locks.lock("a").acquire().await.expect("it is free");
        // It runs its program under the lock, and waits for it until then.
        let theirs = server.control(&["lock", "firstcome/lock/a", "--", "sleep", "1"]).spawn().expect("it runs");
        until_waiting(&locks, "a", 1).await;
        let waiting = tokio::spawn(locks.lock("a").acquire());
        until_waiting(&locks, "a", 2).await;
        held.release().await.expect("held to the end");
        wait_for("them to have it", async || {
            let seen = locks.view("a").await.expect("it answers");
            (seen.view.held.is_some_and(|(holder, ..)| holder.as_str() == "unknown") && seen.view.waiters == 1)
                .then_some(())
        })
        .await;
        assert!(!waiting.is_finished());
        let ours = waiting.await.expect("it ends").expect("it is our turn");
        assert!(theirs.wait_with_output().expect("it ends").status.success());
        ours.release().await.expect("held to the end");
    })
    .await;
}
