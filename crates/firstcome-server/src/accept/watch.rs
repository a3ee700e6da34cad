//! Tracks the phase of a connection, and how long it lasts.

use super::stream::PeerStream;
use super::{Limits, Parcel, TICK};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The fewest idle ticks after which a connection may be closed for another one: its next request may be under way
/// before.
const IDLE_TICKS_MIN: u32 = 2;
/// How many ticks a connection waits after its last answer for its peer to close.
const LINGER_TICKS: u32 = 2;
/// How many ticks a connection of HTTP/2 without requests waits, from GOAWAY on, for what its peer has sent before it knew.
const GOAWAY_TICKS: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// No byte of a request has arrived.
    Idle,
    /// A request has begun to arrive.
    Head,
    /// A request is being answered.
    Busy,
    /// The last answer has left. The server reads and discards what the peer still sends until the peer closes. The
    /// kernel resets a connection that is closed with unread bytes, and a reset may destroy the last answer before the
    /// peer reads it.
    Lingering,
}

/// What a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1: one request at a time. Bytes that arrive between two requests begin the next one.
    Sequential,
    /// HTTP/2: many requests at once, between frames that are no request.
    Multiplexed,
}

/// Whether and when a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(super) enum Leaving {
    /// The connection goes on.
    No,
    /// The next answer is the last one, and carries `connection: close`.
    AfterAnswer,
    /// The connection also ends without another request, once it is idle and the peer has sent nothing that is unread.
    WhenQuiet,
    /// The connection ends at once.
    Now,
}

/// The verdict of one tick.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tick {
    InTime,
    /// The connection has used up its time.
    Overdue,
    /// The last answer has left, and the peer had time to close.
    Over,
}

/// The phase of a connection, with the ticks that it has lasted.
#[derive(Default)]
pub(super) struct Watch {
    phase: AtomicU8,
    ticks: AtomicU32,
    /// Whether the peer has sent any byte yet.
    has_sent: AtomicBool,
    /// Ticks since the peer took some bytes of an answer.
    write_ticks: AtomicU32,
    /// Ticks since the peer last had no unsent bytes of any answer.
    send_ticks: AtomicU32,
    write_stalled: AtomicBool,
    /// How many times longer than others the peer may take to take the next bytes of this answer; 0 counts as 1.
    write_times: AtomicU32,
    /// Bodies of requests that still arrive for a reader who outlives the answer, such as the site behind a gate. An answer may be
    /// whole before the body of its request is.
    bodies: AtomicU32,
    leaving: AtomicU8,
    /// The task of the connection, as it polled last.
    task: Mutex<Option<Waker>>,
    /// Whether a call is under way that may wait for long, for a lock.
    pub(super) waits: AtomicBool,
    /// Whether `parcel` is set.
    carries: AtomicBool,
    parcel: Mutex<Option<Parcel>>,
    /// Whether the connection speaks HTTP/2.
    is_multiplexed: AtomicBool,
}

impl Watch {
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.ticks.store(0, Ordering::Relaxed);
    }

    /// Says that the connection speaks HTTP/2: it ends by GOAWAY, which its task sends when it is told to leave.
    pub(super) fn multiplex(&self) {
        self.is_multiplexed.store(true, Ordering::Relaxed);
    }

    fn is_multiplexed(&self) -> bool {
        self.is_multiplexed.load(Ordering::Relaxed)
    }

    /// Says that the first request of several begins.
    pub(super) fn begin_requests(&self) {
        self.has_sent.store(true, Ordering::Relaxed);
        self.waits.store(true, Ordering::Relaxed);
        self.enter(Phase::Busy);
    }

    /// Says that the last request of several has ended.
    pub(super) fn end_requests(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.enter(Phase::Idle);
    }

    fn read_some(&self) {
        // The time of the head runs from its first byte: bytes that trickle in do not reset it.
        if self.is_at(Phase::Idle) {
            self.has_sent.store(true, Ordering::Relaxed);
            // Unless they are the rest of a body.
            self.enter(if self.has_body() { Phase::Idle } else { Phase::Head });
        }
    }

    fn has_body(&self) -> bool {
        self.bodies.load(Ordering::Relaxed) != 0
    }

    /// Says that a reader takes the body of a request, also after the answer. The connection is not idle before
    /// [`Self::end_body`].
    pub(super) fn begin_body(&self) {
        self.bodies.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that the reader has taken some of the body. After the answer, the time between two requests runs from here.
    pub(super) fn take_body(&self) {
        if self.is_at(Phase::Idle) {
            self.ticks.store(0, Ordering::Relaxed);
        }
    }

    /// Says that the body has ended, or that its reader takes no more of it.
    pub(super) fn end_body(&self) {
        self.take_body();
        self.bodies.fetch_sub(1, Ordering::Relaxed);
    }

    fn write_waits(&self, waits: bool) {
        if !waits {
            self.write_ticks.store(0, Ordering::Relaxed);
        }
        self.write_stalled.store(waits, Ordering::Relaxed);
    }

    /// Lets the peer take so many times longer than others to take the next bytes, from this answer on.
    pub(super) fn allow_write(&self, times: u32) {
        self.write_times.store(times, Ordering::Relaxed);
    }

    fn is_at(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }

    /// Whether no request has begun, every answer has left, and no body still arrives.
    fn is_idle(&self) -> bool {
        self.is_at(Phase::Idle) && !self.write_stalled.load(Ordering::Relaxed) && !self.has_body()
    }

    /// The number of ticks for which the connection has been idle, if at least [`IDLE_TICKS_MIN`].
    pub(super) fn idle_ticks(&self) -> Option<u32> {
        let ticks = self.ticks.load(Ordering::Relaxed);
        (self.is_idle() && IDLE_TICKS_MIN <= ticks).then_some(ticks)
    }

    /// Tells the connection's task to end the connection. Never weakens an earlier call.
    pub(super) fn leave(&self, leaving: Leaving) {
        self.leaving.fetch_max(leaving as u8, Ordering::SeqCst);
        self.wake();
    }

    /// Lets the connection's task poll again.
    fn wake(&self) {
        let task = self.task.lock().clone();
        task.iter().for_each(Waker::wake_by_ref);
    }

    /// Polls a connection until it has ended, or must end at once.
    pub(super) async fn until_end<T>(&self, mut served: Pin<&mut impl Future<Output = T>>) {
        poll_fn(|cx| {
            {
                // The task stays the same, as a rule. It is noted before the poll, so no call of `leave` is missed.
                let mut task = self.task.lock();
                if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                    *task = Some(cx.waker().clone());
                }
            }
            if served.as_mut().poll(cx).is_ready() || self.must_end() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn must_end(&self) -> bool {
        self.leaving.load(Ordering::SeqCst) == Leaving::Now as u8
    }

    /// Whether the next answer is the last one.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) != Leaving::No as u8
    }

    /// Whether the connection may end without another request.
    pub(super) fn may_go(&self) -> bool {
        Leaving::WhenQuiet as u8 <= self.leaving.load(Ordering::Relaxed)
    }

    /// Begins the stop of the service: restarts the idle time, and lets the connection end after its next answer.
    pub(super) fn begin_stop(&self) {
        if self.is_at(Phase::Idle) {
            self.ticks.store(0, Ordering::Relaxed);
        }
        self.leave(Leaving::AfterAnswer);
    }

    /// Takes charge of a parcel. No earlier parcel is pending: hyper reads no further request until an answer has left
    /// whole, as long as it is not configured to batch answers.
    pub(super) fn carry(&self, parcel: Option<Parcel>) {
        self.carries.store(parcel.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.parcel.lock(), parcel);
        drop(before);
    }

    /// Keeps the offer of the parcel, since the answer has left.
    fn hand_over(&self) {
        self.carries.store(false, Ordering::Relaxed);
        let parcel = self.parcel.lock().take();
        if let Some(Parcel(offer)) = parcel {
            offer.keep();
        }
    }

    /// Counts one tick.
    pub(super) fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        if self.write_stalled.load(Ordering::Relaxed) {
            // The rest of an answer is on its way: the connection is not idle yet, though hyper has the whole answer.
            if self.is_at(Phase::Idle) {
                self.ticks.store(0, Ordering::Relaxed);
            }
            self.write_ticks.fetch_add(1, Ordering::Relaxed);
            self.send_ticks.fetch_add(1, Ordering::Relaxed);
        } else {
            self.send_ticks.store(0, Ordering::Relaxed);
        }
    }

    /// Counts one tick, and ends a connection that has used up its time or whose last answer has left.
    pub(super) fn check(&self, limits: &Limits) -> Tick {
        self.tick();
        let tick = self.judge(limits);
        if tick == Tick::Overdue && self.is_multiplexed() && self.is_at(Phase::Idle) && !self.is_leaving() {
            // The peer hears of it before the end: a request that it is just sending is then known not to be done.
            self.ticks.store(0, Ordering::Relaxed);
            self.leave(Leaving::AfterAnswer);
        } else if tick != Tick::InTime {
            self.leave(Leaving::Now);
        } else if self.is_leaving() {
            let is_idle = self.idle_ticks().is_some();
            self.leave(if is_idle { Leaving::WhenQuiet } else { Leaving::AfterAnswer });
        } else if self.waits.load(Ordering::Relaxed) {
            // hyper flushes at every poll: see `poll_flush`.
            self.wake();
        }
        tick
    }

    /// Judges whether the connection has used up its time.
    fn judge(&self, limits: &Limits) -> Tick {
        let over = |ticks: &AtomicU32, limit: Duration| {
            if limit < TICK * ticks.load(Ordering::Relaxed) { Tick::Overdue } else { Tick::InTime }
        };
        let write = limits.write.saturating_mul(self.write_times.load(Ordering::Relaxed).max(1));
        if over(&self.write_ticks, write) == Tick::Overdue || over(&self.send_ticks, limits.send) == Tick::Overdue {
            return Tick::Overdue;
        }
        if self.is_multiplexed() && self.is_leaving() && self.is_at(Phase::Idle) {
            return if GOAWAY_TICKS <= self.ticks.load(Ordering::Relaxed) { Tick::Over } else { Tick::InTime };
        }
        match self.phase.load(Ordering::Relaxed) {
            // A new connection is expected to send a request at once; between two requests a peer may take longer.
            phase if phase == Phase::Idle as u8 && !self.has_sent.load(Ordering::Relaxed) => {
                over(&self.ticks, limits.head)
            }
            phase if phase == Phase::Idle as u8 => over(&self.ticks, limits.idle),
            phase if phase == Phase::Head as u8 => over(&self.ticks, limits.head),
            phase if phase == Phase::Lingering as u8 && LINGER_TICKS <= self.ticks.load(Ordering::Relaxed) => {
                Tick::Over
            }
            // The handlers have deadlines of their own for the body and for the store.
            _ => Tick::InTime,
        }
    }
}

/// A stream that reports its progress to its watch.
pub(super) struct Watched<S> {
    stream: S,
    watch: Arc<Watch>,
    protocol: Protocol,
    end: End,
}

/// How far a stream has closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The server ended the reads: the connection was idle, and nothing was unread.
    Quiet,
    /// The server has shut down its side, so the peer knows that nothing more comes.
    Announced,
}

impl<S: PeerStream> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if self.protocol == Protocol::Multiplexed {
            return polled;
        }
        if before < buffer.filled().len() {
            self.watch.read_some();
        } else if polled.is_pending() && self.watch.may_go() && self.watch.is_idle() && self.stream.has_nothing_unread()
        {
            // Reports an end of the stream, as if the peer had closed it: hyper then ends a connection that has no
            // request under way.
            self.end = End::Quiet;
            return Poll::Ready(Ok(()));
        }
        polled
    }
}

impl<S: PeerStream> Watched<S> {
    pub(super) const fn new(stream: S, watch: Arc<Watch>, protocol: Protocol) -> Self {
        Self { stream, watch, protocol, end: End::Open }
    }

    /// Fails if the answer carries a parcel and the peer is gone.
    fn before_write(&self) -> io::Result<()> {
        let lost =
            self.watch.carries.load(Ordering::Relaxed) && (self.stream.peer_left() || self.stream.peer_said_end());
        if lost { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.watch.write_waits(polled.is_pending());
        if self.watch.carries.load(Ordering::Relaxed) && matches!(polled, Poll::Ready(Ok(1..))) {
            self.watch.hand_over();
        }
        polled
    }
}

impl<S: PeerStream> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper does not detect the end of a connection while it holds a further request that it has read already. But
        // it flushes whenever it is polled, and a connection that waits is polled at every tick.
        if self.watch.waits.load(Ordering::Relaxed) && self.stream.peer_said_end() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.end != End::Announced {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if self.end == End::Quiet {
                return Poll::Ready(Ok(()));
            }
            self.end = End::Announced;
            self.watch.enter(Phase::Lingering);
        }
        let mut waste = [MaybeUninit::uninit(); 1024];
        loop {
            let mut waste = ReadBuf::uninit(&mut waste);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut waste)) {
                Ok(()) if !waste.filled().is_empty() => {}
                // The peer has closed the connection, or is gone.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::task::Waker;
    use tokio::net::TcpStream;

    /// Polls once, as hyper does, without giving the runtime time to learn of new bytes.
    fn read(watched: &mut Watched<TcpStream>) -> Poll<io::Result<usize>> {
        let mut buffer = [0; 64];
        let mut buffer = ReadBuf::new(&mut buffer);
        let polled = Pin::new(watched).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
        polled.map_ok(|()| buffer.filled().len())
    }

    #[tokio::test]
    async fn a_connection_that_may_go_does_not_end_while_bytes_of_its_peer_are_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let watch = Arc::new(Watch::default());
        let mut watched = Watched::new(TcpStream::from_std(stream).unwrap(), Arc::clone(&watch), Protocol::Sequential);
        assert!(read(&mut watched).is_pending());
        watch.leave(Leaving::AfterAnswer);
        assert!(read(&mut watched).is_pending(), "only its next answer is the last one");
        watch.leave(Leaving::WhenQuiet);
        peer.write_all(b"GET").unwrap();
        // The runtime does not know of the bytes yet, but the kernel does.
        assert!(read(&mut watched).is_pending(), "a request is there");
        watched.stream.readable().await.unwrap();
        assert!(matches!(read(&mut watched), Poll::Ready(Ok(3))));
        assert!(read(&mut watched).is_pending(), "the request has begun");
        watch.enter(Phase::Busy);
        assert!(read(&mut watched).is_pending(), "it is being answered");
        watch.enter(Phase::Idle);
        assert!(matches!(read(&mut watched), Poll::Ready(Ok(0))), "nothing is under way any more");
    }

    #[test]
    fn a_body_that_arrives_after_its_answer_is_no_head_and_its_connection_is_not_idle() {
        let limits = Limits { head: TICK, idle: TICK * 3, ..Limits::default() };
        let answered = || {
            let watch = Watch::default();
            watch.read_some();
            watch.enter(Phase::Busy);
            watch.begin_body();
            watch.enter(Phase::Idle);
            watch
        };
        let is_kept = |watch: &Watch, progress: fn(&Watch)| {
            (0..20).all(|_| {
                progress(watch);
                watch.check(&limits) == Tick::InTime && watch.idle_ticks().is_none()
            })
        };
        assert!(is_kept(&answered(), Watch::read_some), "the peer sends");
        assert!(is_kept(&answered(), Watch::take_body), "the reader takes");
        assert!(!is_kept(&answered(), |_| {}), "without progress it has the time between two requests");
        let ended = answered();
        ended.end_body();
        assert!(!is_kept(&ended, |_| {}) && ended.idle_ticks().is_some(), "it is idle after the body");
        ended.read_some();
        assert!(ended.is_at(Phase::Head));
    }
}
