//! A watch of one ticket, on each kind of store: by streams of a service, and by polls where there is no stream.

use crate::scripted::{answer, problem, server};
use crate::service::{ADMIN, SERVICE, Service, patient, soon};
use firstcome::cluster::{ClusterOptions, DeploymentSecret};
use firstcome::core::room::{Rejection, RoomSettings, TicketState};
use firstcome::{Admission, Error, RoomWatch, Store};
use firstcome_test_servers::{Durability, Kind, Options, Server, machine_has};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The next place: a position, or nothing once the visitor is admitted.
async fn place(watch: &mut RoomWatch) -> Option<u32> {
    let answer = soon(watch.next()).await.expect("an answer").expect("a place");
    match answer.state {
        TicketState::Waiting { position, .. } => Some(position),
        TicketState::Admitted { .. } => None,
        state => panic!("{state:?}"),
    }
}

async fn is_over(watch: &mut RoomWatch) -> bool {
    matches!(soon(watch.next()).await, Ok(None))
}

/// A ticket as the service shows it, at this position or admitted.
fn shown(position: Option<u32>) -> String {
    let state = match position {
        Some(position) => format!(r#""state":"waiting","position":{position},"eta_ms":null"#),
        None => concat!(
            r#""state":"admitted","position":null,"eta_ms":null,"admitted_at":"2030-01-01T00:00:00Z","#,
            r#""admission":1,"slot_ends_at":"2030-01-01T00:15:00Z""#
        )
        .to_owned(),
    };
    format!(r#"{{"number":8,{state},"poll_after_ms":20,"as_of":"2030-01-01T00:00:00Z"}}"#)
}

fn poll(position: Option<u32>) -> String {
    answer("200 OK", "application/json", &shown(position))
}

fn place_event(position: u32) -> String {
    format!("event: place\ndata: {{\"ticket\":{},\"room\":{{}}}}\n\n", shown(Some(position)))
}

fn stream(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}")
}

/// What a watch tells of these answers, and how many it asked for.
async fn told(answers: Vec<String>) -> (Vec<Option<u32>>, usize) {
    let (address, asked) = server(answers).await;
    let store = Store::http_with(&format!("http://{address}"), SERVICE, patient()).expect("it can be made");
    let mut watch = store.room("sale").expect("a name").watch("ticket");
    let mut places = Vec::new();
    while places.last() != Some(&None) {
        places.push(place(&mut watch).await);
    }
    assert!(is_over(&mut watch).await);
    (places, asked.load(Ordering::SeqCst))
}

#[tokio::test]
async fn places_come_from_the_stream_and_the_turn_from_a_poll() {
    let end =
        "event: end\ndata: {\"reason\":\"turn\",\"poll_after_ms\":0,\"claim_until\":\"2030-01-01T00:01:00Z\"}\n\n";
    let events = [":\n\n", &place_event(3), &place_event(2), "event: new\ndata: {}\n\n", &place_event(0), end].concat();
    let (places, asked) = told(vec![poll(Some(3)), stream(&events), poll(None)]).await;
    assert_eq!((places, asked), (vec![Some(3), Some(2), Some(0), None], 3));
}

#[tokio::test]
async fn a_watch_polls_where_a_stream_is_refused_or_breaks_off() {
    let refused = problem("409 Conflict", "not_near", "poll", "");
    let page = answer("200 OK", "text/html", "event: place");
    for no_stream in [refused, page, problem("503 Service Unavailable", "streams_full", "poll", "")] {
        let (places, asked) = told(vec![poll(Some(3)), no_stream, poll(Some(2)), poll(Some(2)), poll(None)]).await;
        assert_eq!((places, asked), (vec![Some(3), Some(2), None], 5), "the stream is asked for once");
    }
    for broken in
        [String::new(), place_event(1)[..40].to_owned(), "event: place\ndata: {}\n\n".to_owned(), "x".repeat(70_000)]
    {
        let (places, _) = told(vec![poll(Some(3)), stream(&broken), poll(None)]).await;
        assert_eq!(places, [Some(3), None], "{}", broken.len());
    }
}

#[tokio::test]
async fn after_a_stream_that_told_no_place_a_watch_waits_before_it_asks_for_another() {
    // The node of the stream says that the turn has come; that of the polls does not know it yet.
    let ended = stream("event: end\ndata: {\"reason\":\"turn\",\"poll_after_ms\":0}\n\n");
    let (places, asked) = told(vec![poll(Some(3)), ended, poll(Some(3)), poll(None)]).await;
    assert_eq!((places, asked), (vec![Some(3), None], 4), "the last answer goes to a poll");
    // One that told a place is followed by another at once.
    let useful =
        stream(&[&place_event(2), "event: end\ndata: {\"reason\":\"renew\",\"poll_after_ms\":0}\n\n"].concat());
    let (places, asked) = told(vec![poll(Some(3)), useful, poll(Some(2)), stream(&place_event(1)), poll(None)]).await;
    assert_eq!((places, asked), (vec![Some(3), Some(2), Some(1), None], 5));
}

#[tokio::test]
async fn far_from_the_front_a_watch_only_polls() {
    let far = poll(Some(90_000));
    let (places, asked) = told(vec![far.clone(), far.clone(), far, poll(None)]).await;
    assert_eq!((places, asked), (vec![Some(90_000), None], 4));
}

/// Three visitors of a room with one slot, each watched until its turn.
async fn each_place_until_the_turn(store: &Store) {
    let room = store.room("sale").expect("a name");
    soon(room.put(RoomSettings::with_slots(1))).await.expect("it is put");
    let mut tickets = Vec::new();
    for _ in 0..3 {
        tickets.push(soon(room.join().send()).await.expect("it joins").1);
    }
    let mut first = room.watch(&tickets[0].ticket);
    // Cancelled again and again: nothing is lost.
    let ann = loop {
        let Ok(told) = tokio::time::timeout(Duration::from_millis(1), first.next()).await else { continue };
        let answer = told.expect("an answer").expect("a place");
        if let Some(admission) = Admission::of(&answer) {
            break admission;
        }
    };
    assert!(is_over(&mut first).await);
    let mut last = room.watch(&tickets[2].ticket);
    assert_eq!(place(&mut last).await, Some(1));
    soon(room.release(ann)).await.expect("it is released");
    // The visitor before takes the slot, and leaves.
    let mut second = room.watch(&tickets[1].ticket);
    while place(&mut second).await.is_some() {}
    while place(&mut last).await != Some(0) {}
    soon(room.leave(&tickets[1].ticket)).await.expect("it leaves");
    while place(&mut last).await.is_some() {}
    assert!(is_over(&mut last).await);
    assert!(!format!("{last:?}").contains(&*tickets[2].ticket));
    let mut forged = room.watch("forged");
    assert_eq!(soon(forged.next()).await, Err(Error::Refused(Rejection::UnknownTicket)));
    assert!(is_over(&mut forged).await);
}

#[tokio::test]
async fn a_watch_of_a_store_in_memory_returns_each_place_until_the_turn() {
    each_place_until_the_turn(&Store::memory()).await;
}

#[tokio::test]
async fn a_watch_of_a_store_in_a_directory_returns_each_place_until_the_turn() {
    let directory = tempfile::tempdir().expect("a directory");
    each_place_until_the_turn(&Store::open(directory.path()).expect("it opens")).await;
}

#[tokio::test]
async fn a_watch_of_a_service_returns_each_place_until_the_turn() {
    let service = Service::start().await;
    each_place_until_the_turn(&Store::http(&service.url(), ADMIN).expect("it can be made")).await;
}

#[tokio::test]
async fn a_watch_of_a_cluster_returns_each_place_until_the_turn() {
    for kind in [Kind::Redis, Kind::Postgres] {
        if !machine_has(&kind.to_string(), Server::is_installed(kind)) {
            return;
        }
    }
    let options = Options::new(Durability::Quick);
    let redis = Server::start(Kind::Redis, &options).await.expect("it starts");
    let sql = Server::start(Kind::Postgres, &options).await.expect("it starts");
    let mut options = ClusterOptions::default();
    options.database.allow_volatile = true;
    let secret = DeploymentSecret::new("canary: a secret that no test has to guess").expect("it is long enough");
    let store = Store::cluster_with(redis.url(), sql.url(), secret, options).await.expect("a node opens");
    each_place_until_the_turn(&store).await;
}

#[tokio::test]
async fn a_watch_goes_on_after_an_error() {
    let service = Service::start().await;
    let address = service.address;
    let store = Store::http_with(&service.url(), ADMIN, patient()).expect("it can be made");
    let room = store.room("sale").expect("a name");
    soon(room.put(RoomSettings::with_slots(1))).await.expect("it is put");
    soon(room.join().send()).await.expect("it joins");
    let (_, place_in_line) = soon(room.join().send()).await.expect("it joins");
    let mut watch = room.watch(&place_in_line.ticket);
    assert!(soon(watch.next()).await.is_ok());
    let kept = service.stop().await;
    while let Ok(told) = soon(watch.next()).await {
        assert!(told.is_some(), "the watch goes on");
    }
    let service = Service::at(address, kept).await;
    soon(room.close()).await.expect("it is closed");
    let told = loop {
        match soon(watch.next()).await {
            Err(Error::Refused(why)) => break Err(why),
            Ok(answer) => break Ok(answer),
            Err(_) => {}
        }
    };
    assert!(told.is_err() || told.is_ok_and(|answer| answer.is_none_or(|answer| !answer.state.is_near())));
    drop(service.stop().await);
}
