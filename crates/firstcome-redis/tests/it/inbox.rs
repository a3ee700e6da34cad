//! Messages, and what is said when some may have been missed.

use super::*;

/// The next event, which must be this one.
async fn expect(inbox: &mut Inbox, expected: InboxEvent) {
    assert_eq!(inbox.next().await, expected);
}

fn message(text: &str) -> InboxEvent {
    InboxEvent::Message(text.as_bytes().to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_in_order() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, mut inbox) = open(&server, patient()).await;
        static TELL: Script = Script::new("for i = 1, 100 do redis.call('PUBLISH', ARGV[1], i) end");
        link.run(&TELL, &[], &[INBOX.as_bytes()]).await.expect("it runs");
        for number in 1..=100 {
            expect(&mut inbox, message(&number.to_string())).await;
        }
        assert_eq!(link.counts().pushes, 100);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_that_was_thrown_out_says_so_and_comes_back() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, mut inbox) = open(&server, patient()).await;
        for round in 1..=3 {
            server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            expect(&mut inbox, InboxEvent::Disconnected).await;
            expect(&mut inbox, InboxEvent::Connected).await;
            server.ask(&["PUBLISH", INBOX, "after"]).await;
            expect(&mut inbox, message("after")).await;
            assert_eq!(link.counts().resubscriptions, round);
        }
        assert_eq!(link.counts().reconnects, 0, "the connection for commands is another one");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_comes_back_after_a_restart() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let (_link, mut inbox) = open(&server, patient()).await;
        server.kill();
        expect(&mut inbox, InboxEvent::Disconnected).await;
        server.restart().await;
        expect(&mut inbox, InboxEvent::Connected).await;
        server.ask(&["PUBLISH", INBOX, "after"]).await;
        expect(&mut inbox, message("after")).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_dead_without_a_word_is_noticed() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (_link, mut inbox) = open(&server, hasty()).await;
        server.freeze();
        expect(&mut inbox, InboxEvent::Disconnected).await;
        server.thaw();
        expect(&mut inbox, InboxEvent::Connected).await;
        server.ask(&["PUBLISH", INBOX, "after"]).await;
        expect(&mut inbox, message("after")).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_who_falls_far_behind_is_told_that_it_missed_some() {
    let Some(server) = Server::start(&[]).await else { return };
    static FLOOD: Script = Script::new("for i = 1, 100000 do redis.call('PUBLISH', ARGV[1], i) end");
    in_time(async {
        let (link, mut inbox) = open(&server, patient()).await;
        link.run(&FLOOD, &[], &[INBOX.as_bytes()]).await.expect("it runs");
        let mut next = 1;
        let last = loop {
            match inbox.next().await {
                InboxEvent::Message(text) => {
                    assert_eq!(text, next.to_string().as_bytes(), "none is missing before it is said");
                    next += 1;
                }
                event => break event,
            }
            assert!(next <= 100_000, "all of them were kept");
            // Only the owner's reading makes room, so it must not begin before the flood has come.
            if next == 2 {
                wait_for("the flood", async || (link.counts().pushes > 65_536).then_some(())).await;
            }
        };
        assert_eq!(last, InboxEvent::Disconnected);
        expect(&mut inbox, InboxEvent::Connected).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_end_with_their_owners() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, inbox) = open(&server, patient()).await;
        drop(inbox);
        wait_for("the inbox to go", async || (server.figure("connected_clients").await == 2).then_some(())).await;
        assert_eq!(echo(&link, "alone").await, Ok(word("alone")));
        drop(link);
        wait_for("the link to go", async || (server.figure("connected_clients").await == 1).then_some(())).await;
    })
    .await;
}
