//! Watches keys for their ends. All watches of this process share one stream.

use super::link::EtcdLink;
use super::messages::{NO_PUTS, WatchCancel, WatchCreate, WatchOrder, WatchRequest, WatchResponse};
use super::session::REPEAT;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::{mpsc, oneshot};
use tonic::Streaming;

/// Watches keys for as long as it lives.
pub(crate) struct Watcher {
    orders: mpsc::UnboundedSender<Order>,
    numbers: AtomicI64,
}

enum Order {
    Watch { number: i64, key: Vec<u8>, from_revision: i64, told: oneshot::Sender<()> },
    Forget { number: i64 },
}

/// A key that is watched until this is dropped.
pub(crate) struct Watched {
    number: i64,
    told: oneshot::Receiver<()>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Watcher {
    /// Starts the watcher. Call it within a Tokio runtime, which then runs it.
    pub(crate) fn new(link: EtcdLink) -> Self {
        let (orders, ordered) = mpsc::unbounded_channel();
        tokio::spawn(run(link, ordered));
        Self { orders, numbers: AtomicI64::default() }
    }

    /// Watches for the deletion of a key at this revision or later.
    pub(crate) fn watch(&self, key: &[u8], from_revision: i64) -> Watched {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, told) = oneshot::channel();
        // If the task is gone, `told` closes at once, and the caller looks at the key.
        let _ = self.orders.send(Order::Watch { number, key: key.to_vec(), from_revision, told: tell });
        Watched { number, told, orders: self.orders.clone() }
    }
}

impl Watched {
    /// Resolves when the key was deleted, or may have been: the caller must look. Cancel-safe.
    pub(crate) async fn gone(&mut self) {
        // A message, or a sender dropped with its stream: the caller looks after either.
        let _ = (&mut self.told).await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Forget { number: self.number });
    }
}

/// Opens a stream whenever there is a key to watch. When the stream breaks, all waiters look at their keys and watch again.
async fn run(link: EtcdLink, mut ordered: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = ordered.recv().await {
        let Order::Watch { .. } = order else { continue };
        let mut given_up = link.given_up();
        let (orders, sent) = mpsc::unbounded_channel();
        let mut stream = Stream { orders, waiting: HashMap::new() };
        stream.take(order);
        let mut opening = pin!(link.watch(sent));
        let mut answers: Option<Streaming<WatchResponse>> = None;
        loop {
            tokio::select! {
                order = ordered.recv() => match order {
                    Some(order) => stream.take(order),
                    None => return,
                },
                opened = &mut opening, if answers.is_none() => match opened {
                    Ok(opened) => answers = Some(opened),
                    Err(_) => break,
                },
                answer = next(&mut answers) => match answer {
                    Some(answer) => stream.on_watch(&answer),
                    None => break,
                },
                // Another request has found that the server does not answer.
                _ = given_up.changed() => break,
            }
        }
        drop(stream);
        tokio::time::sleep(REPEAT).await;
    }
}

/// Returns the next answer; `None` at the end of the stream.
async fn next(answers: &mut Option<Streaming<WatchResponse>>) -> Option<WatchResponse> {
    match answers {
        Some(answers) => answers.message().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// A stream, and the waiters of each watch. Its drop wakes all of them.
struct Stream {
    orders: mpsc::UnboundedSender<WatchRequest>,
    waiting: HashMap<i64, oneshot::Sender<()>>,
}

impl Stream {
    fn take(&mut self, order: Order) {
        match order {
            Order::Watch { number, key, from_revision, told } => {
                self.waiting.insert(number, told);
                let create =
                    WatchCreate { key, start_revision: from_revision, filters: vec![NO_PUTS], watch_id: number };
                self.order(WatchOrder::Create(create));
            }
            Order::Forget { number } => {
                if self.waiting.remove(&number).is_some() {
                    self.order(WatchOrder::Cancel(WatchCancel { watch_id: number }));
                }
            }
        }
    }

    fn on_watch(&mut self, answer: &WatchResponse) {
        if answer.events.is_empty() && !answer.canceled {
            return;
        }
        if answer.watch_id < 0 {
            // The answer does not name the watch that the server refuses, so all waiters look.
            self.waiting.clear();
        }
        if let Some(told) = self.waiting.remove(&answer.watch_id) {
            // An error means that the waiter is gone.
            let _ = told.send(());
            if !answer.canceled {
                self.order(WatchOrder::Cancel(WatchCancel { watch_id: answer.watch_id }));
            }
        }
    }

    fn order(&self, order: WatchOrder) {
        // An error means that the stream is over, which wakes all waiters.
        let _ = self.orders.send(WatchRequest { order: Some(order) });
    }
}
