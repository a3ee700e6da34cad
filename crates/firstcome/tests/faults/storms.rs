//! Many hand-overs while scripts are forgotten and connections killed.

use super::proxy::{Loss, Proxy, Which};
use super::storm::{Memory, Storm, StormReplies};
use super::*;

const LEASE: Duration = Duration::from_secs(10);

/// How many hand-overs a storm is to see.
fn hand_overs() -> usize {
    #[expect(clippy::disallowed_methods, reason = "the one place where the length of these tests is set from outside")]
    let wanted = std::env::var("FIRSTCOME_HANDOVERS").ok();
    wanted.map_or(10_000, |wanted| wanted.parse().expect("FIRSTCOME_HANDOVERS is a number"))
}

async fn storm(server: &Server, processes: usize, tasks: usize) -> Storm {
    let mut all = Vec::new();
    for _ in 0..processes {
        all.push(open(&server.url()).await);
    }
    Storm::begin(all, &["a"], tasks, LEASE)
}

/// A caller waited all the time: no hand-over may take longer than finding out that the one who was given the lock did
/// not hear of it.
#[track_caller]
fn assert_no_gap(said: &StormReplies) {
    assert!(said.longest_gap < CLAIM_WINDOW + SLACK, "{:?} without a grant", said.longest_gap);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_forgotten_again_and_again_are_missed_by_no_caller() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = storm(&server, 4, 3).await;
        let enough = (hand_overs() / 5).max(500);
        let mut forgotten = 0;
        while storm.grants() < enough || forgotten < 100 {
            forget_scripts(&server).await;
            forgotten += 1;
        }
        let said = storm.end(&server, Memory::Kept).await;
        said.assert_only(&[]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_overs_survive_inboxes_that_are_killed_all_the_time() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = storm(&server, 4, 8).await;
        let wanted = hand_overs();
        // A link that is thrown out again and again waits for up to a second before it tries again: so in turn a burst, in
        // which hardly a push arrives, and a while in which they do.
        while storm.grants() < wanted {
            for _ in 0..6 {
                server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
                storm.progress(1).await;
            }
            storm.progress((wanted / 8).min(2_000)).await;
        }
        let said = storm.end(&server, Memory::Kept).await;
        said.assert_only(&[]);
        assert_no_gap(&said);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_overs_survive_without_any_inbox() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = storm(&server, 4, 2).await;
        while storm.grants() < 12 {
            server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        }
        let said = storm.end(&server, Memory::Kept).await;
        said.assert_only(&[]);
        assert_no_gap(&said);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_overs_survive_links_that_are_killed_all_the_time() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let storm = storm(&server, 4, 8).await;
        let (wanted, mut kills) = (hand_overs() / 2, 0);
        while storm.grants() < wanted || kills < 8 {
            server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
            kills += 1;
            storm.progress((wanted / 10).min(1_000)).await;
        }
        // Each kill ends the commands of that moment: who does not wait is told that, and everybody else tries again.
        storm.end(&server, Memory::Kept).await.assert_only(&["outcome_unknown", "store_unavailable"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_bad_way_to_the_server_one_at_a_time_is_inside() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (mut proxies, mut processes) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let proxy = Proxy::before(server.port()).await;
            processes.push(open_with(&proxy.url(), Duration::from_millis(500)).await);
            proxies.push(proxy);
        }
        let storm = Storm::begin(processes, &["a"], 3, LEASE);
        for round in 0..24 {
            let proxy = &proxies[round * 7 % 4];
            let hit = proxy.hit();
            match round % 6 {
                0 => proxy.cut(Which::Commands),
                1 => proxy.cut(Which::Inbox),
                2 => proxy.hold_back(Which::Inbox),
                3 => proxy.hold_back(Which::Commands),
                4 => proxy.lose_replies("EVALSHA", 1, Loss::Cut),
                _ => proxy.lose_replies("EVALSHA", 1, Loss::Silence),
            }
            if 4 <= round % 6 {
                proxy.until_hit(hit + 1).await;
            }
            storm.progress(10).await;
            proxy.let_go();
        }
        let said = storm.end(&server, Memory::Kept).await;
        said.assert_only(&["outcome_unknown", "store_unavailable"]);
    })
    .await;
}
