//! The connections of the crowd: a fixed number to each node. Each takes the earliest due step.

use super::crowd::{Crowd, Players, Step};
use super::messages::{Head, read_answer};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How long a person waits for an answer before it counts as lost.
const ANSWER: Duration = Duration::from_secs(20);

/// Hands out due steps until the event is over.
pub(crate) async fn dispatch<P: Players>(crowd: &Crowd<P>) {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !crowd.is_over() {
        crowd.take_due();
        ticks.tick().await;
    }
}

/// Serves one connection of the crowd, to the node of each step: takes a step, sends it, reads the answer. Never
/// returns.
pub(crate) async fn connection<P: Players>(crowd: Rc<Crowd<P>>, addresses: Rc<[SocketAddr]>) {
    let mut line = ClientConnections {
        streams: addresses.iter().map(|_| None).collect(),
        addresses,
        buffer: Vec::with_capacity(2_048),
    };
    let mut out = Vec::with_capacity(1_024);
    loop {
        let Some(step) = crowd.next_step() else {
            crowd.wait().await;
            continue;
        };
        play(&crowd, step, &mut line, &mut out).await;
    }
}

/// An open connection, with the start of its node that it belongs to.
type Open = (u32, TcpStream);

/// The connections of one client, at most one to each node.
struct ClientConnections {
    addresses: Rc<[SocketAddr]>,
    streams: Vec<Option<Open>>,
    buffer: Vec<u8>,
}

impl ClientConnections {
    /// Returns the connection to a node, and opens one if there is none to this start of the node.
    async fn open(&mut self, node: usize, start: u32) -> Option<TcpStream> {
        if let Some((_, stream)) = self.streams[node].take().filter(|(of, _)| *of == start) {
            return Some(stream);
        }
        let stream = timeout(ANSWER, TcpStream::connect(self.addresses[node])).await.ok()?.ok()?;
        // Without TCP_NODELAY small requests wait for acknowledgements; a failure costs only time.
        let _ = stream.set_nodelay(true);
        Some(stream)
    }

    /// Sends a request and reads its answer, if one comes.
    async fn exchange(&mut self, stream: &mut TcpStream, out: &[u8], hangs_up: bool) -> Option<Head> {
        stream.write_all(out).await.ok()?;
        if hangs_up {
            return None;
        }
        timeout(ANSWER, read_answer(stream, &mut self.buffer)).await.ok()?.ok()
    }
}

async fn play<P: Players>(crowd: &Crowd<P>, step: Step<P::Act>, line: &mut ClientConnections, out: &mut Vec<u8>) {
    // Does not connect while a node is down: a connection to a local port without a listener could connect to itself.
    let Some(node) = crowd.node_for(&step) else { return crowd.not_sent(step) };
    let start = crowd.spread.start_of(node);
    let Some(mut stream) = line.open(node, start).await else { return crowd.not_sent(step) };
    out.clear();
    if !crowd.write_request(&step, out) {
        line.streams[node] = Some((start, stream));
        return;
    }
    let sent_us = crowd.clock.now_us();
    crowd.spread.sent(node);
    let head = line.exchange(&mut stream, out, P::hangs_up(step.act)).await;
    crowd.spread.ended(node);
    match head {
        Some(Head { status, body, closes }) => {
            crowd.answered(&step, sent_us, status, &line.buffer[body]);
            if !closes {
                line.streams[node] = Some((start, stream));
            }
        }
        None => crowd.lost(&step, sent_us),
    }
}
