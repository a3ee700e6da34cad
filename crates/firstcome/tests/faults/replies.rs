//! What was done, and no caller was told; and what arrives when no caller waits for it any more.

use super::proxy::{Loss, Proxy, Which};
use super::*;
use std::time::Instant;

const LEASE: Duration = Duration::from_secs(20);

/// One process behind a bad way, and one that sees all.
struct FaultyProxy {
    server: Server,
    proxy: Proxy,
    ours: Locks,
    other: Locks,
}

impl FaultyProxy {
    async fn new() -> Option<Self> {
        let server = Server::start(&[]).await?;
        let proxy = Proxy::before(server.port()).await;
        let ours = open_with(&proxy.url(), Duration::from_millis(400)).await;
        let other = open(&server.url()).await;
        // All scripts are known from here on.
        let guard = other.lock("warm").acquire().await.expect("it is free");
        let next = queue(&ours, "warm", LEASE).await;
        guard.renew(LEASE).await.expect("it is held");
        guard.release().await.expect("it is held");
        let next = next.await.expect("no thread panics").expect("it is next");
        next.release().await.expect("it is held");
        Some(Self { server, proxy, ours, other })
    }

    async fn take(&self, name: &str) -> Guard {
        self.ours.lock(name).lease(LEASE).acquire().await.expect("it is free")
    }

    /// A task of ours asks for a lock and waits; returns when the fault has hit.
    async fn wait_for(&self, name: &str, times: u32) -> JoinHandle<Result<Guard, LockError>> {
        let before = self.proxy.hit();
        let waiting = tokio::spawn(self.ours.lock(name).lease(LEASE).wait(PATIENCE).acquire());
        self.proxy.until_hit(before + times).await;
        waiting
    }

    async fn nothing_left(&self, name: &str) {
        assert_nothing_left(&self.server, &[&self.ours, &self.other], &[name]).await;
    }
}

async fn granted(waiting: JoinHandle<Result<Guard, LockError>>) -> Guard {
    waiting.await.expect("no thread panics").expect("it is granted")
}

#[expect(clippy::disallowed_methods, reason = "a test compares when two things happened")]
fn now() -> Instant {
    Instant::now()
}

const LOSSES: [(Loss, &str); 2] = [(Loss::Cut, "cut"), (Loss::Silence, "silent")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_caller_was_told_of_is_told_when_it_is_asked_for_again() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        for (loss, name) in LOSSES {
            way.proxy.lose_replies(name, 2, loss);
            let waiting = way.wait_for(name, 1).await;
            let fence = held(&way.other, name).await;
            way.proxy.until_hit(way.proxy.hit().next_multiple_of(2)).await;
            let guard = granted(waiting).await;
            assert_eq!(Some(guard.fence().unwrap().get()), fence, "it was granted twice");
            assert_eq!((held(&way.other, name).await, waiters(&way.other, name).await), (fence, 0));
            guard.release().await.expect("it is held");
            way.nothing_left(name).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_caller_waits_for_is_undone() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        for (loss, name) in LOSSES {
            way.proxy.lose_replies(name, 1, loss);
            let refused = way.ours.lock(name).lease(LEASE).try_acquire().await.expect_err("there is no answer");
            assert!(matches!(refused, LockError::Unknown), "{refused}");
            way.nothing_left(name).await;
            way.other.lock(name).try_acquire().await.expect("it is free").release().await.expect("it is held");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_not_told_of_its_place_stands_in_line_once() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        for (loss, name) in LOSSES {
            let theirs = way.other.lock(name).lease(LEASE).acquire().await.expect("it is free");
            way.proxy.lose_replies(name, 1, loss);
            way.proxy.close(true);
            let waiting = way.wait_for(name, 1).await;
            // Before it can ask again.
            let last = queue(&way.other, name, LEASE).await;
            let asked = way.server.calls("evalsha").await;
            way.proxy.close(false);
            wait_for("the repeat", async || (asked < way.server.calls("evalsha").await).then_some(())).await;
            assert_eq!(waiters(&way.other, name).await, 2);
            theirs.release().await.expect("it is held");
            let guard = granted(waiting).await;
            assert_eq!(
                (held(&way.other, name).await, waiters(&way.other, name).await),
                (Some(guard.fence().unwrap().get()), 1)
            );
            guard.release().await.expect("it is held");
            granted(last).await.release().await.expect("it is held");
            way.nothing_left(name).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_granted_a_lock_while_cut_off_has_it_when_it_is_back() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        let theirs = way.other.lock("a").lease(LEASE).acquire().await.expect("it is free");
        way.proxy.lose_replies("a", 1, Loss::Cut);
        way.proxy.close(true);
        let waiting = way.wait_for("a", 1).await;
        way.proxy.cut(Which::Inbox);
        let before = theirs.fence().unwrap().get();
        theirs.release().await.expect("it is held");
        let fence = held(&way.other, "a").await.expect("it went to who was next");
        way.proxy.close(false);
        let guard = granted(waiting).await;
        // A second time if its claim window ended before it was back.
        assert!(before < fence && fence <= guard.fence().unwrap().get());
        guard.release().await.expect("it is held");
        way.nothing_left("a").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_no_caller_was_told_of_is_one_and_takes_nothing_from_the_next() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        for (loss, name) in LOSSES {
            let guard = way.take(name).await;
            let next = queue(&way.other, name, LEASE).await;
            let last = queue(&way.other, name, LEASE).await;
            way.proxy.lose_replies(name, 2, loss);
            guard.release().await.expect("it was held until it was given back");
            let next = granted(next).await;
            way.ours.quiet().await;
            assert_eq!(
                (held(&way.other, name).await, waiters(&way.other, name).await),
                (Some(next.fence().unwrap().get()), 1)
            );
            next.release().await.expect("it is held");
            granted(last).await.release().await.expect("it is held");
            way.nothing_left(name).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_no_caller_was_told_of_is_repeated() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        for (loss, name) in LOSSES {
            let lease = Duration::from_secs(8);
            let guard = way.ours.lock(name).lease(lease).acquire().await.expect("it is free");
            let before = way.proxy.hit();
            way.proxy.lose_replies(name, 2, loss);
            guard.renew(LEASE).await.expect("it is held");
            assert!(way.proxy.hit() == before + 2 && lease < guard.remaining() && guard.remaining() < LEASE);
            assert_eq!(held(&way.other, name).await, Some(guard.fence().unwrap().get()));
            guard.release().await.expect("it is held");
            way.nothing_left(name).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_knows_of_its_loss_before_another_one_has_the_lock() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        // The last instant counts at which it may have believed to have the lock, and the first at which the other one knew.
        for lease_ms in [300, 500, 1_000] {
            let guard = way.ours.lock("a").lease(Duration::from_millis(lease_ms)).acquire().await.expect("it is free");
            let before = waiters(&way.other, "a").await;
            let waiting = tokio::spawn({
                let request = way.other.lock("a").lease(LEASE).wait(PATIENCE);
                async move {
                    let next = request.acquire().await.expect("it is granted");
                    (now(), next)
                }
            });
            wait_for("a place in line", async || (before < waiters(&way.other, "a").await).then_some(())).await;
            way.proxy.close(true);
            way.proxy.cut(Which::Commands);
            way.proxy.cut(Which::Inbox);
            // Nothing comes through from here on, so nothing puts it off.
            let believed_until = guard.deadline().unwrap();
            guard.lost().await;
            assert!(guard.is_lost() && guard.remaining().is_zero());
            let (granted_at, next) = waiting.await.expect("no thread panics");
            assert!(believed_until < granted_at, "{lease_ms} ms: two had it for {:?}", believed_until - granted_at);
            assert_eq!(guard.deadline().unwrap().max(believed_until), believed_until, "it was put off after all");
            assert!(guard.fence().unwrap() < next.fence().unwrap());
            let refused = guard.release().await.expect_err("it is lost");
            assert!(matches!(refused, LockError::Lost), "{refused}");
            way.proxy.close(false);
            next.release().await.expect("what another one gave back in vain is not touched");
            way.nothing_left("a").await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_of_what_was_given_up_takes_nothing() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        way.proxy.keep_next("a");
        let guard = granted(way.wait_for("a", 1).await).await;
        guard.release().await.expect("it is held");
        way.ours.quiet().await;
        let said = way.proxy.deliver().await;
        assert_eq!(held(&way.other, "a").await, None, "{}", String::from_utf8_lossy(&said));
        // In line too, and although the copy comes before what undoes it has been answered.
        let theirs = way.other.lock("a").lease(LEASE).acquire().await.expect("it is free");
        way.proxy.keep_next("a");
        way.wait_for("a", 1).await.abort();
        way.ours.quiet().await;
        way.proxy.deliver().await;
        assert_eq!(waiters(&way.other, "a").await, 0);
        theirs.release().await.expect("it is held");
        way.nothing_left("a").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_of_a_release_or_a_renewal_changes_nothing() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        let first = way.take("a").await;
        way.proxy.keep_next("a");
        first.release().await.expect("it is held");
        let second = way.take("a").await;
        way.proxy.deliver().await;
        assert_eq!(
            held(&way.other, "a").await,
            Some(second.fence().unwrap().get()),
            "it gave back what is another request's"
        );
        second.release().await.expect("it is held");
        let third = way.ours.lock("a").lease(Duration::from_secs(4)).acquire().await.expect("it is free");
        way.proxy.keep_next("a");
        third.renew(LEASE).await.expect("it is held");
        third.release().await.expect("it is held");
        way.proxy.deliver().await;
        way.nothing_left("a").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_comes_too_late_is_not_needed() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        way.proxy.hold_back(Which::Inbox);
        let theirs = way.other.lock("a").lease(LEASE).acquire().await.expect("it is free");
        let waiting = queue(&way.ours, "a", LEASE).await;
        theirs.release().await.expect("it is held");
        let guard = timeout(CLAIM_WINDOW + SLACK, waiting).await.expect("nobody waits for a push");
        let guard = guard.expect("no thread panics").expect("it is granted");
        // It comes when its grant was confirmed, and was handed out to another caller.
        let lease = guard.hand_out().await.expect("it is held");
        way.proxy.let_go();
        way.ours.lock("b").acquire().await.expect("the way is free").release().await.expect("it is held");
        way.ours.renew_lease("a", lease.request, LEASE).await.expect("nobody took it away");
        way.ours.release_lease("a", lease.request).await.expect("it is held");
        way.nothing_left("a").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hears_again_looks_at_once_what_it_missed() {
    let Some(way) = FaultyProxy::new().await else { return };
    in_time(async {
        let theirs = way.other.lock("a").lease(LEASE * 3).acquire().await.expect("it is free");
        let waiting = queue(&way.ours, "a", LEASE).await;
        let begin = tokio::time::Instant::now();
        let looks = 6;
        for _ in 0..looks {
            let before = way.server.calls("evalsha").await;
            way.proxy.cut(Which::Inbox);
            wait_for("a look", async || (before < way.server.calls("evalsha").await).then_some(())).await;
            wait_for("the inbox", async || (way.proxy.wires(Which::Inbox) == 1).then_some(())).await;
        }
        // From one heartbeat to the next it is half a claim window, and each look puts the next heartbeat off.
        assert!(begin.elapsed() < CLAIM_WINDOW / 2 * (looks - 1), "{:?}: only heartbeats look", begin.elapsed());
        theirs.release().await.expect("it is held");
        granted(waiting).await.release().await.expect("it is held");
        way.nothing_left("a").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_that_is_dead_without_a_word_costs_no_caller_a_lock() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let proxy = Proxy::before(server.port()).await;
        // An answer may take longer than a lease: only what is also sent another way is in time.
        let locks = open_with(&proxy.url(), Duration::from_secs(8)).await;
        let lease = Duration::from_secs(4);
        let guard = locks.lock("a").lease(lease).acquire().await.expect("it is free");
        // The signs of life go that way from now on.
        let first = guard.deadline().unwrap();
        wait_for("the first renewal", async || (first < guard.deadline().unwrap()).then_some(())).await;
        proxy.hold_back(Which::Inbox);
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let since = tokio::time::Instant::now();
        while since.elapsed() < lease * 2 {
            ticks.tick().await;
            assert!(!guard.is_lost(), "after {:?}", since.elapsed());
        }
        guard.release().await.expect("it is held");
    })
    .await;
}
