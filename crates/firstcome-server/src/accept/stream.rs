//! The transport of a connection, with the state of its peer as the kernel knows it.

use socket2::SockRef;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A stream of bytes to a peer and back.
pub(crate) trait PeerStream: AsyncRead + AsyncWrite + Unpin {
    /// Whether the kernel holds no unread bytes of the peer. Asks the kernel directly, since the runtime learns of
    /// bytes only at its next poll.
    fn has_nothing_unread(&self) -> bool;

    /// Whether the kernel knows that the peer is gone. Asks the kernel directly, as [`Self::has_nothing_unread`] does.
    fn peer_left(&self) -> bool;

    /// Whether the peer has closed its side, even if unread bytes come before the end.
    fn peer_said_end(&self) -> bool;
}

impl PeerStream for TcpStream {
    fn has_nothing_unread(&self) -> bool {
        let peeked = SockRef::from(self).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn peer_left(&self) -> bool {
        match SockRef::from(self).peek(&mut [MaybeUninit::uninit()]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn peer_said_end(&self) -> bool {
        let ready = pin!(self.ready(Interest::READABLE));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }
}

impl PeerStream for TlsStream<TcpStream> {
    fn has_nothing_unread(&self) -> bool {
        let (stream, session) = self.get_ref();
        // A session that wants no bytes has some for the reader.
        session.wants_read() && stream.has_nothing_unread()
    }

    fn peer_left(&self) -> bool {
        self.get_ref().0.peer_left()
    }

    fn peer_said_end(&self) -> bool {
        self.get_ref().0.peer_said_end()
    }
}

impl<S: PeerStream> PeerStream for Box<S> {
    fn has_nothing_unread(&self) -> bool {
        (**self).has_nothing_unread()
    }

    fn peer_left(&self) -> bool {
        (**self).peer_left()
    }

    fn peer_said_end(&self) -> bool {
        (**self).peer_said_end()
    }
}

/// A stream within the process. No kernel is between the two sides: its reads report everything.
pub(super) struct InProcess<S>(pub(super) S);

impl<S: AsyncRead + AsyncWrite + Unpin> PeerStream for InProcess<S> {
    fn has_nothing_unread(&self) -> bool {
        true
    }

    fn peer_left(&self) -> bool {
        false
    }

    fn peer_said_end(&self) -> bool {
        false
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for InProcess<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InProcess<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
