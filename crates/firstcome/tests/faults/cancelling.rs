//! A caller that gives up waiting in the very moment in which it is their turn.

use super::*;
use tokio::task::yield_now;
use tokio::time::Instant;

const ROUNDS: u64 = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_when_it_is_its_turn_leaves_nothing() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let [holder, waiter] = [open(&server.url()).await, open(&server.url()).await];
        let (mut granted, mut given_up, mut last) = (0, 0, 0);
        // How long a hand-over takes here: the moment of giving up is moved across twice that.
        let mut takes = Duration::from_micros(500);
        for round in 0..ROUNDS {
            let guard = timeout(CLAIM_WINDOW + SLACK, holder.lock("a").acquire()).await.expect("it is free soon");
            let guard = guard.expect("the server answers");
            assert!(last < guard.fence().unwrap().get());
            let waiting = queue(&waiter, "a", Duration::from_secs(30)).await;
            let begin = Instant::now();
            let releasing = tokio::spawn(guard.release());
            if round % 64 == 0 {
                let guard = waiting.await.expect("no thread panics").expect("it is next");
                takes = (takes + begin.elapsed()) / 2;
                last = guard.fence().unwrap().get();
                guard.release().await.expect("it is held");
            } else {
                let moment = takes * 2 * u32::try_from(round % 64).expect("it is small") / 64;
                while begin.elapsed() < moment {
                    yield_now().await;
                }
                waiting.abort();
                match waiting.await {
                    Ok(guard) => {
                        granted += 1;
                        last = guard.expect("it is next").fence().unwrap().get();
                    }
                    Err(_) => given_up += 1,
                }
            }
            releasing.await.expect("no thread panics").expect("it is held");
        }
        assert_nothing_left(&server, &[&holder, &waiter], &["a"]).await;
        println!("{given_up} gave up, {granted} were granted the lock before, a hand-over takes {takes:?}");
        assert!(ROUNDS / 20 < granted && ROUNDS / 20 < given_up, "{granted} {given_up}");
    })
    .await;
}
