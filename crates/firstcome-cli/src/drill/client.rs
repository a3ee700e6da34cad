//! The crowd's end of the wire: a fixed number of connections that take what is due, the earliest first.

use super::crowd::{Crowd, Players, Step};
use super::wire::{Head, read_answer};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How long somebody waits for an answer before it counts as lost.
const ANSWER: Duration = Duration::from_secs(20);

/// Hands out what is due until the event is over.
pub(crate) async fn dispatch<P: Players>(crowd: &Crowd<P>) {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !crowd.is_over() {
        crowd.take_due();
        ticks.tick().await;
    }
}

/// One connection: takes a step, sends, reads, tells; for ever.
pub(crate) async fn connection<P: Players>(crowd: Rc<Crowd<P>>, address: SocketAddr) {
    let mut stream = None;
    let (mut out, mut buffer) = (Vec::with_capacity(1_024), Vec::with_capacity(2_048));
    loop {
        let Some(step) = crowd.next_step() else {
            crowd.wait().await;
            continue;
        };
        play(&crowd, address, step, &mut stream, &mut out, &mut buffer).await;
    }
}

async fn play<P: Players>(
    crowd: &Crowd<P>,
    address: SocketAddr,
    step: Step<P::Act>,
    slot: &mut Option<TcpStream>,
    out: &mut Vec<u8>,
    buffer: &mut Vec<u8>,
) {
    // While the service is down nobody connects: a connection to a port without a listener could meet itself.
    if !crowd.is_up() {
        *slot = None;
        return crowd.not_sent(step);
    }
    let mut stream = match slot.take() {
        Some(stream) => stream,
        None => match timeout(ANSWER, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without it small requests wait for acknowledgements; a refusal costs only time.
                let _ = stream.set_nodelay(true);
                stream
            }
            _ => return crowd.not_sent(step),
        },
    };
    out.clear();
    if !crowd.write_request(&step, out) {
        *slot = Some(stream);
        return;
    }
    let sent_us = crowd.sending();
    if stream.write_all(out).await.is_err() {
        return crowd.lost(&step, sent_us);
    }
    if P::hangs_up(step.act) {
        drop(stream);
        return crowd.lost(&step, sent_us);
    }
    match timeout(ANSWER, read_answer(&mut stream, buffer)).await {
        Ok(Ok(Head { status, body, closes })) => {
            crowd.answered(&step, sent_us, status, &buffer[body]);
            if !closes {
                *slot = Some(stream);
            }
        }
        _ => crowd.lost(&step, sent_us),
    }
}
