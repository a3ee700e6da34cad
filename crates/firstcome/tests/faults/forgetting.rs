//! A server that forgets everything, is killed, is full, or follows another one.

use super::server::free_port;
use super::storm::{Memory, Storm};
use super::*;

const LEASE: Duration = Duration::from_secs(2);

async fn processes(server: &Server, count: usize) -> Vec<Locks> {
    let mut processes = Vec::new();
    for _ in 0..count {
        processes.push(open(&server.url()).await);
    }
    processes
}

/// One process has the lock, and tasks of three others are in line.
struct WaitingProcesses {
    processes: Vec<Locks>,
    holder: Guard,
    waiting: Vec<JoinHandle<Result<Guard, LockError>>>,
}

impl WaitingProcesses {
    async fn stands(server: &Server, name: &str) -> Self {
        let processes = processes(server, 4).await;
        let holder = processes[0].lock(name).lease(LEASE).acquire().await.expect("it is free");
        let mut waiting = Vec::new();
        for at in 0..6 {
            waiting.push(queue(&processes[1 + at % 3], name, LEASE).await);
        }
        Self { processes, holder, waiting }
    }

    /// The server has forgotten all of it: the holder is told so, and everybody in line is served, with larger fences.
    async fn serves_anew(self, server: &Server, name: &str) {
        let first = self.holder.fence().unwrap();
        timeout(LEASE + SLACK, self.holder.lost()).await.expect("a hold that is gone is lost after its lease");
        assert!(matches!(self.holder.release().await, Err(LockError::Lost)));
        let mut fences = vec![first];
        let mut waiting = tokio::task::JoinSet::new();
        for one in self.waiting {
            waiting.spawn(async move {
                let guard = one.await.expect("no thread panics").expect("who waits is served");
                let fence = guard.fence().unwrap();
                guard.release().await.expect("it is held");
                fence
            });
        }
        while let Some(fence) =
            timeout(LEASE + CLAIM_WINDOW + SLACK, waiting.join_next()).await.expect("nobody is stuck")
        {
            fences.push(fence.expect("no thread panics"));
        }
        assert!(fences.iter().skip(1).all(|fence| first < *fence), "{fences:?}");
        fences.sort_unstable();
        fences.dedup();
        assert_eq!(fences.len(), 7, "a fence was given twice");
        assert_nothing_left(server, &self.processes.iter().collect::<Vec<_>>(), &[name]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_served_after_everything_was_forgotten() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let line = WaitingProcesses::stands(&server, "flushed").await;
        server.ask(&["FLUSHALL"]).await;
        line.serves_anew(&server, "flushed").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_forgotten_is_in_line_again_although_the_lock_is_never_free() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let line = WaitingProcesses::stands(&server, "taken").await;
        let newcomer = open(&server.url()).await;
        server.ask(&["FLUSHALL"]).await;
        let taken = newcomer.lock("taken").lease(LEASE * 10).try_acquire().await;
        // Unless one of those in line has looked before and has it.
        let back = if taken.is_ok() { 6 } else { 5 };
        wait_for("all to be back", async || (waiters(&newcomer, "taken").await == back).then_some(())).await;
        drop(taken);
        line.serves_anew(&server, "taken").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_served_by_an_empty_server_after_a_kill() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let line = WaitingProcesses::stands(&server, "killed").await;
        server.kill();
        server.restart().await;
        line.serves_anew(&server, "killed").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_again_and_again_gives_no_fence_twice() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = Storm::begin(processes(&server, 4).await, &["a", "b"], 3, LEASE);
        for _ in 0..30 {
            storm.progress(20).await;
            server.ask(&["FLUSHALL"]).await;
        }
        storm.progress(20).await;
        let said = storm.end(&server, Memory::Lost).await;
        said.assert_only(&["lock_lost"]);
        assert!(0 < said.count("lock_lost"), "no hold was forgotten");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_again_and_again_gives_no_fence_twice() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = Storm::begin(processes(&server, 4).await, &["a", "b"], 3, LEASE);
        for _ in 0..3 {
            storm.progress(100).await;
            server.kill();
            server.restart().await;
        }
        storm.progress(100).await;
        let said = storm.end(&server, Memory::Lost).await;
        said.assert_only(&["lock_lost", "store_unavailable", "outcome_unknown"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_new_holds_and_takes_back_old_ones() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = open(&server.url()).await;
        let [first, other] = [locks.lock("first"), locks.lock("other")].map(|lock| lock.lease(LEASE * 10).acquire());
        let (first, other) = (first.await.expect("it is free"), other.await.expect("it is free"));
        let waiting = queue(&locks, "first", LEASE * 10).await;
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let refused = locks.lock("third").try_acquire().await.expect_err("there is no room for it");
        assert!(matches!(&refused, LockError::Unavailable(why) if why.to_string().contains("OOM")), "{refused}");
        let refused = locks.lock("third").wait(Duration::from_millis(100)).acquire().await.expect_err("nor for this");
        // Unknown if the last of its tries was still under way.
        assert!(matches!(refused, LockError::Unavailable(_) | LockError::Unknown), "{refused}");
        let (handed_over, fence) = (first.fence().unwrap(), other.fence().unwrap());
        other.renew(LEASE * 20).await.expect("it takes no more room than before");
        assert!(LEASE * 15 < other.remaining());
        first.release().await.expect("what it takes back needs no room");
        other.release().await.expect("what it takes back needs no room");
        let next = waiting.await.expect("no thread panics").expect("a hand-over needs no more room than the wait did");
        assert!(handed_over < next.fence().unwrap());
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
        next.release().await.expect("it is held");
        assert_nothing_left(&server, &[&locks], &["first", "other", "third"]).await;
        let again = locks.lock("other").try_acquire().await.expect("there is room again");
        assert!(fence < again.fence().unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full_now_and_then_loses_nothing() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = Storm::begin(processes(&server, 4).await, &["a", "b"], 2, LEASE * 2);
        for _ in 0..5 {
            storm.progress(100).await;
            server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
            storm.until_said("store_unavailable").await;
            server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
        }
        storm.progress(100).await;
        // A caller that is told that it was not done has to be right: see what `end` finds.
        storm.end(&server, Memory::Kept).await.assert_only(&["store_unavailable"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_follows_another_for_a_while_loses_nothing() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = Storm::begin(processes(&server, 4).await, &["a", "b"], 2, LEASE * 5);
        let nowhere = free_port().to_string();
        for _ in 0..2 {
            storm.progress(100).await;
            server.ask(&["REPLICAOF", "127.0.0.1", &nowhere]).await;
            storm.until_said("store_unavailable").await;
            server.ask(&["REPLICAOF", "NO", "ONE"]).await;
        }
        storm.progress(100).await;
        storm.end(&server, Memory::Kept).await.assert_only(&["store_unavailable", "outcome_unknown"]);
    })
    .await;
}
