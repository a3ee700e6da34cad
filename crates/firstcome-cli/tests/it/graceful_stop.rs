//! A signal to stop: what is under way is answered whole, and the program ends well and in time.

use crate::killed::ToldClaim;
use crate::support::http::{Client, Lost, read_answer};
use crate::support::program::{PROGRAM, command};
use crate::support::server::Server;
use crate::support::{Rng, wait_for};
use firstcome::edge::Stopwatch;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const THREADS: usize = 8;
/// More than anybody claims before the end, so that a test that fails ends too.
const CLAIMS_MAX: u32 = 100_000;
/// The service promises to be drained within this time after SIGTERM.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

fn claim_until_closed(mut client: Client, thread: usize, answers: &AtomicU64) -> BTreeMap<String, ToldClaim> {
    let mut told = BTreeMap::new();
    for number in 0..CLAIMS_MAX {
        let user = format!("thread-{thread}-{number}");
        match client.claim("launch", &user, None) {
            Ok(answer) => {
                assert_eq!(answer.status, 201, "{}", answer.text());
                told.insert(user, ToldClaim::new(&answer.json()));
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(Lost::Unsent(_) | Lost::Unanswered(_)) => break,
            Err(Lost::Truncated(part)) => panic!("an answer broke off: {part}"),
        }
    }
    told
}

#[test]
fn a_signal_to_stop_loses_no_answer_and_breaks_none_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start_with(directory.path(), &["--coupon", "launch=1000000"]);
    let answers = AtomicU64::new(0);
    let mut told = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (client, answers) = (server.client(), &answers);
                scope.spawn(move || claim_until_closed(client, thread, answers))
            })
            .collect();
        let enough = 100 + Rng::new(1).below(100);
        wait_for("load", || (enough <= answers.load(Ordering::Relaxed)).then_some(()));
        let watch = Stopwatch::start();
        server.terminate();
        assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
        assert!(watch.elapsed() < DRAINED_WITHIN, "drained in {:?}", watch.elapsed());
        for thread in threads {
            told.extend(thread.join().expect("no answer breaks off"));
        }
    });
    let server = Server::start(directory.path());
    let stored: BTreeMap<String, ToldClaim> = stored(&mut server.client());
    for (user, claim) in &told {
        assert_eq!(stored.get(user), Some(claim), "{user} was answered before the end");
    }
    server.stop();
}

fn stored(client: &mut Client) -> BTreeMap<String, ToldClaim> {
    let named = |claim: &serde_json::Value| (claim["user"].as_str().expect("a name").to_owned(), ToldClaim::new(claim));
    client.claims("launch").iter().map(named).collect()
}

#[test]
fn a_request_that_is_half_here_at_the_signal_is_finished() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start_with(directory.path(), &["--coupon", "launch=10"]);
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let head = format!(
        "POST /v1/coupons/launch/claims HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
        content-length: 14\r\nexpect: 100-continue\r\n\r\n",
        server.address()
    );
    stream.write_all(head.as_bytes()).expect("the head is taken");
    // Asks for the body: so the request is under way, and not only on its way.
    let (interim, _) = read_answer(&mut stream).expect("it is awaited");
    assert_eq!(interim.status, 100);
    stream.write_all(br#"{"user""#).expect("half of the body is taken");
    let mut idle = TcpStream::connect(server.address()).expect("it listens");
    assert_eq!(server.client().get("/healthz").status, 200);
    let watch = Stopwatch::start();
    server.terminate();
    server.wait_for_log("stopping");
    // A connection on which nothing is under way holds up no caller.
    assert!(matches!(read_answer(&mut idle), Err(Lost::Unanswered(_))));
    stream.write_all(br#":"ann"}"#).expect("the rest is taken");
    let (answer, keep) = read_answer(&mut stream).expect("it is answered");
    assert_eq!((answer.status, keep), (201, false), "{}", answer.text());
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    assert!(watch.elapsed() < Duration::from_secs(5), "no client was left to wait for: {:?}", watch.elapsed());
}

#[test]
fn a_signal_right_after_the_first_line_ends_well() {
    for _ in 0..5 {
        let directory = tempfile::tempdir().expect("a directory");
        Server::start(directory.path()).stop();
    }
}

#[test]
fn a_caller_who_never_finishes_holds_up_the_end_no_longer_than_allowed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start_with(directory.path(), &["--coupon", "launch=10", "--drain", "300ms"]);
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.write_all(b"POST /v1/coupons/launch/claims HTTP/1.1\r\nhost: 127.0.0.1\r\n").expect("a part is taken");
    assert_eq!(server.client().get("/healthz").status, 200);
    let watch = Stopwatch::start();
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
}

#[test]
fn an_interrupt_from_the_keyboard_drains_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::spawn(serve(directory.path()).args(["--coupon", "launch=10"]));
    crate::support::program::signal(server.process(), "INT");
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
}

fn serve(directory: &Path) -> std::process::Command {
    let mut serve = command(PROGRAM, directory);
    serve.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "data"]);
    serve
}
