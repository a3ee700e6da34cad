//! Acquires that follow one another on a connection, sent before the answers are read.

use super::{DAY_MS, acquire_bytes, number, remote, renew, text};
use crate::in_time;
use crate::running::{Peer, Running, patient, request, soon};
use crate::service::{Service, config};
use firstcome_server::Config;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpSocket;

const LOCKS: [&str; 3] = ["a", "b", "c"];

/// Far less than the longest answer.
const NARROW_BYTES: u32 = 4_096;

/// A service and a peer between whom little fits.
async fn narrow() -> (Running, Peer) {
    let config = Config { limits: patient(), ..config() };
    let service = Service::with_locks(remote(), config);
    let socket = || TcpSocket::new_v4().expect("a socket");
    let listens = socket();
    // Its limits are as narrow.
    listens.set_send_buffer_size(NARROW_BYTES).expect("it can be narrowed");
    listens.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    let running = Running::on(listens.listen(8).expect("it listens"), service);
    let reads = socket();
    reads.set_recv_buffer_size(NARROW_BYTES).expect("it can be narrowed");
    let peer = Peer::over(soon(reads.connect(running.address)).await.expect("it listens"));
    (running, peer)
}

/// Acquires of all the locks, behind other requests, in one piece.
fn acquires_behind(others: &str) -> String {
    LOCKS.iter().fold(others.to_owned(), |bytes, lock| bytes + &acquire_bytes(lock, "ann", 0, ""))
}

/// A process that is told of a lock holds it.
async fn is_told_and_holds(running: &Running, peer: &mut Peer) {
    for lock in LOCKS {
        let held = peer.answer().await.is(200).json();
        assert_eq!((text(&held, "lock"), text(&held, "owner")), (lock, "ann"));
        let renewed = running.service.send(renew(lock, text(&held, "handle"), DAY_MS)).await.is(200).json();
        assert_eq!(number(&renewed, "fence"), number(&held, "fence"));
    }
}

#[tokio::test]
async fn each_of_several_acquires_in_one_piece_holds_its_lock() {
    in_time(async {
        let running = Running::start(patient()).await;
        let mut peer = running.connect().await;
        peer.send(acquires_behind("")).await;
        is_told_and_holds(&running, &mut peer).await;
    })
    .await;
}

#[tokio::test]
async fn acquires_behind_an_answer_that_is_slow_to_leave_hold_their_locks() {
    in_time(async {
        let (running, mut peer) = narrow().await;
        // The last answer is about no lock, and leaves those before it as they are.
        let refused = acquire_bytes("c", "bob", 0, "");
        peer.send(acquires_behind(&request("GET /openapi.json", "", "")) + &refused).await;
        let longest = peer.answer().await.is(200).bytes;
        assert!(NARROW_BYTES as usize * 8 < longest.len(), "it leaves in pieces");
        is_told_and_holds(&running, &mut peer).await;
        peer.answer().await.refused(409, "contended");
    })
    .await;
}
