use crate::support::{BidError, Dropped, Log, assert_free, assert_freed, watched};
use firstcome::{Locks, distributed_lock};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exit {
    End,
    Return,
    Question,
    Panic,
}

#[distributed_lock(key = "a", locks = locks)]
async fn leave(locks: &Locks, exit: Exit) -> Result<u8, BidError> {
    tokio::task::yield_now().await;
    match exit {
        Exit::End => {}
        Exit::Return => return Ok(1),
        Exit::Question => Err(BidError::TooLow)?,
        Exit::Panic => panic!("told to"),
    }
    tokio::task::yield_now().await;
    Ok(0)
}

#[tokio::test]
async fn every_way_out_gives_the_lock_back_before_the_function_returns() {
    let locks = Locks::memory();
    assert_eq!(leave(&locks, Exit::End).await.unwrap(), 0);
    assert_free(&locks, "a").await;
    assert_eq!(leave(&locks, Exit::Return).await.unwrap(), 1);
    assert_free(&locks, "a").await;
    assert!(matches!(leave(&locks, Exit::Question).await, Err(BidError::TooLow)));
    assert_free(&locks, "a").await;
    let panicking = tokio::spawn({
        let locks = locks.clone();
        async move { leave(&locks, Exit::Panic).await }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert_free(&locks, "a").await;
}

#[tokio::test]
async fn the_release_is_awaited_on_every_way_out_but_a_panic() {
    let (store, locks, other) = watched();
    for exit in [Exit::End, Exit::Return, Exit::Question] {
        let _ = leave(&locks, exit).await;
        assert_eq!(store.log.take(), ["grant", "release"], "{exit:?}");
        assert_free(&other, "a").await;
    }
    let panicking = tokio::spawn(async move { leave(&locks, Exit::Panic).await });
    assert!(panicking.await.unwrap_err().is_panic());
    assert_freed(&other, "a").await;
}

#[distributed_lock(key = "a", locks = locks)]
async fn work(locks: &Locks, log: Log) -> Result<(), BidError> {
    let _done = Dropped(log.clone(), "gone");
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    log.push("done");
    Ok(())
}

/// Polls a future so often, and drops it. Returns whether it was done.
pub(crate) async fn poll_times<T>(future: impl Future<Output = T>, times: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return true;
        }
        // Lets the background run.
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_future_dropped_at_any_await_point_leaves_nothing_behind() {
    let (mut points, log) = (0, Log::default());
    loop {
        let (_, locks, other) = watched();
        let done = poll_times(work(&locks, log.clone()), points).await;
        assert_freed(&other, "a").await;
        let happened = log.take();
        assert!(happened.is_empty() || happened.ends_with(&["gone"]), "{happened:?}");
        if done {
            break;
        }
        points += 1;
    }
    assert!(4 <= points, "only {points} await points were seen");
}

#[tokio::test]
async fn a_future_dropped_in_line_gives_up_its_place() {
    let (_, locks, other) = watched();
    let held = other.lock("a").acquire().await.unwrap();
    let log = Log::default();
    assert!(!poll_times(work(&locks, log.clone()), 5).await);
    held.release().await.unwrap();
    assert_freed(&other, "a").await;
    assert!(log.take().is_empty());
}
