//! The end of a listener, without a reset for any client whose connection was established.
//!
//! When a listener is closed, the system resets the connections that are established and not accepted yet, although their
//! clients may have sent requests. So new connections are kept out first, by a filter that drops their first packet, and
//! what was under way is accepted meanwhile. A client that is kept out repeats the packet after a second, and is then
//! refused as by any closed port.

use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// So long handshakes that are under way may take to finish. Clients that are farther away than this should be kept away
/// by their balancer first: that is what the time before the stop is for.
const HANDSHAKES: Duration = Duration::from_millis(100);

/// Keeps new connections out, and hands over each one that was under way; then closes the listener.
pub(super) async fn accept_the_last(listener: TcpListener, mut admit: impl FnMut(TcpStream, IpAddr)) {
    let deadline = Instant::now() + HANDSHAKES;
    // Where there is no such filter, connections of the last microseconds may be reset.
    if keep_out(&listener).is_ok() {
        while let Ok(accepted) = tokio::time::timeout_at(deadline, listener.accept()).await {
            match accepted {
                Ok((stream, peer)) => admit(stream, peer.ip()),
                // The descriptors are used up for a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
    // The runtime may not know yet of connections that are there: the system is asked.
    let Ok(listener) = listener.into_std() else { return };
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                if stream.set_nonblocking(true).is_ok()
                    && let Ok(stream) = TcpStream::from_std(stream)
                {
                    admit(stream, peer.ip());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => return,
        }
    }
}

/// Drops the packets that open connections (SYN), and lets all others pass.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn keep_out(listener: &TcpListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};
    /// Loads the byte at an absolute place: the filter of a TCP socket sees its header first.
    const LOAD_BYTE: u16 = 0x30;
    /// Jumps if a bit is set.
    const JUMP_IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    /// Where the flags of a TCP header are, and which of them is SYN.
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    let filter = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_AT),
        SockFilter::new(JUMP_IF_SET, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ];
    SockRef::from(listener).attach_filter(&filter)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn keep_out(_: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
