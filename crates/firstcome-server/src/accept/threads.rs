//! The threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on its thread. So a task that wakes another one of its thread makes no system call, and no
//! thread steals work from another. In return a connection with much work delays the others of its thread. Tasks of a
//! thread run in the order in which they woke.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads that serve connections. Dropping them ends the connections that are still open, and waits for the threads.
pub struct ConnectionThreads(Vec<ConnectionThread>);

firstcome::core::debug_by_name!(ConnectionThreads);

struct ConnectionThread {
    runtime: Handle,
    /// Cloned by each connection, so that its count is the number of connections and one.
    connections: Arc<()>,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ConnectionThreads {
    /// Starts so many threads. One per processor is usual.
    ///
    /// # Errors
    /// The operating system gives no thread, or no descriptor for its runtime.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        (0..count.get()).map(|_| ConnectionThread::start()).collect::<io::Result<_>>().map(Self)
    }

    /// Serves a connection on the thread that has the fewest.
    pub(crate) fn serve<F>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let Some(least) = self.0.iter().min_by_key(|thread| Arc::strong_count(&thread.connections)) else { return };
        // Each runtime waits for its own sockets. A stream that cannot change its runtime is closed.
        let Ok(stream) = stream.into_std() else { return };
        let counted = Arc::clone(&least.connections);
        least.runtime.spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                serve(stream).await;
            }
            drop(counted);
        });
    }
}

impl ConnectionThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("firstcome-http".into());
        // An error is the drop of the sender.
        let thread = thread.spawn(move || drop(runtime.block_on(stopped)))?;
        Ok(Self { runtime: handle, connections: Arc::default(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ConnectionThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}
