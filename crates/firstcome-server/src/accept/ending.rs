//! Closes a listener without a reset for any client whose connection was established.
//!
//! When a process closes a listener, the kernel resets connections that are established and not accepted yet, although
//! their clients may have sent requests. So a socket filter first drops the first packet (SYN) of new connections.
//! Meanwhile the server accepts the connections whose handshake is under way. A client whose SYN was dropped repeats
//! it after a second. Then it gets the refusal of a closed port.

use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// How long handshakes that are under way may take to finish. A balancer must keep clients with slower handshakes away
/// beforehand: the time before the stop serves for that.
const HANDSHAKES: Duration = Duration::from_millis(100);

/// Drops new connections, hands each established one to `admit`, then closes the listener.
pub(super) async fn accept_the_last(listener: TcpListener, mut admit: impl FnMut(TcpStream, IpAddr)) {
    let deadline = Instant::now() + HANDSHAKES;
    // On systems without this filter, the kernel may reset connections of the last microseconds.
    if keep_out(&listener).is_ok() {
        while let Ok(accepted) = tokio::time::timeout_at(deadline, listener.accept()).await {
            match accepted {
                Ok((stream, peer)) => admit(stream, peer.ip()),
                // The process has no file descriptor left for a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
    // The runtime may not know yet of connections in the backlog, so this asks the kernel.
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

/// Drops packets that open connections (SYN), and lets all others pass.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn keep_out(listener: &TcpListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};
    /// Loads the byte at an absolute offset. A filter of a TCP socket sees the TCP header first.
    const LOAD_BYTE: u16 = 0x30;
    /// Jumps if a bit is set.
    const JUMP_IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    /// The offset of the flags in a TCP header, and the bit of SYN.
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
