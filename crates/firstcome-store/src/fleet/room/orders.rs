//! What this node wants of a room: appended to its log together with whatever else is wanted meanwhile, and applied here.

use super::cell::{Broken, Order, RoomCell};
use super::log::{Append, ITEMS_MAX, Tick};
use super::scribe;
use crate::error::{Fault, FaultKind, StoreError};
use crate::fleet::Node;
use crate::fleet::lane::Service;
use crate::fleet::looks::Serving;
use crate::fleet::truth::Held;
use firstcome_core::room::replica::{Applied, Entry};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Orders in one call.
const ORDERS_MAX: usize = 512;
/// How often one call is tried again, with the same tags, before its callers are told.
const TRIES_MAX: u32 = 4;

pub(super) fn unavailable(says: &str) -> StoreError {
    StoreError::Unavailable(Arc::new(Fault::new(FaultKind::Unreachable, says)))
}

impl<D: Held> Node<D> {
    /// Appends an entry, or nothing, and returns when this node has applied it and all before it. One round trip, shared
    /// with others.
    pub(super) async fn order(
        self: &Arc<Self>,
        cell: &Arc<RoomCell>,
        entry: Option<Entry>,
        with_tick: bool,
    ) -> Result<Option<Applied>, StoreError> {
        let (tell, told) = oneshot::channel();
        if cell.orders.push(Order { entry, with_tick, tell })? == Service::Wanted {
            tokio::spawn(serve(Arc::clone(self), Arc::clone(cell)));
        }
        told.await.unwrap_or(Err(StoreError::Unknown))
    }

    /// Appends what is wanted, and applies all that came. What is wanted has the same tags each time it is tried.
    async fn run_orders(self: &Arc<Self>, cell: &Arc<RoomCell>, orders: &[Order]) -> Result<(), StoreError> {
        let mut told = Err(unavailable("the log was lost again and again"));
        let mut is_handed_over = false;
        for _ in 0..TRIES_MAX {
            if cell.trusted.load(Ordering::Relaxed) != self.doubts() {
                match self.mend_room(cell).await {
                    Ok(()) => {}
                    Err(error) => return Err(if is_handed_over { StoreError::Unknown } else { error }),
                }
            }
            told = self.append_once(cell, orders).await;
            match &told {
                Ok(true) => return Ok(()),
                Ok(false) => cell.trusted.store(u64::MAX, Ordering::Relaxed),
                Err(StoreError::Unknown) => is_handed_over = true,
                Err(_) => break,
            }
        }
        match told {
            Err(error) if !is_handed_over => Err(error),
            Ok(_) if !is_handed_over => Err(unavailable("the log was lost again and again")),
            _ => Err(StoreError::Unknown),
        }
    }

    /// One call, and those that bring what did not fit into its answer. False if the log or the copy is not to be trusted.
    async fn append_once(self: &Arc<Self>, cell: &Arc<RoomCell>, orders: &[Order]) -> Result<bool, StoreError> {
        let given = self.truth.time.both();
        let with_tick = orders.iter().any(|order| order.with_tick);
        let mut entries: Vec<Entry> = Vec::new();
        let (generation, mut seen, expected) = {
            let mut copy = cell.copy.lock();
            let Some(copy) = &mut *copy else { return Ok(false) };
            let now = copy.now(given);
            // Those who were here before came before.
            entries.extend(copy.contacts(now, with_tick));
            entries.extend(orders.iter().filter_map(|order| order.entry.clone()));
            (copy.generation, copy.replica.position(), now.steady)
        };
        let tick = if with_tick { Tick::Now } else { Tick::Due };
        let expected = given.is_none().then_some(expected);
        let mut append = Append { generation, seen, now: given, expected, tick, durable: None, entries: &entries };
        loop {
            let Some(appended) = self.gate.append(cell.keys, &append).await? else { return Ok(false) };
            let Some(items) = appended.items else {
                cell.break_off(generation);
                return Ok(false);
            };
            let is_all = items.len() < ITEMS_MAX;
            {
                let mut copy = cell.copy.lock();
                let Some(copy) = copy.as_mut().filter(|copy| copy.generation == generation) else { return Ok(false) };
                if let Err(Broken) = copy.apply(items) {
                    cell.break_off(generation);
                    return Ok(false);
                }
                if is_all {
                    copy.refresh(appended.now);
                }
                seen = copy.replica.position();
                cell.progress.send_replace(copy.progress());
            }
            cell.is_drainer.store(appended.drains, Ordering::Relaxed);
            if appended.drains {
                scribe::call(self, cell);
            }
            if is_all {
                return Ok(true);
            }
            append = Append { seen, tick: Tick::No, entries: &[], ..append };
        }
    }
}

async fn serve<D: Held>(node: Arc<Node<D>>, cell: Arc<RoomCell>) {
    let mut serving = Serving { abandon: || cell.orders.abandon(), is_done: false };
    loop {
        let mut batch = cell.orders.take(ORDERS_MAX);
        if batch.is_empty() {
            break;
        }
        // Whoever has gone away finds nothing changed.
        batch.retain(|order| !order.tell.is_closed());
        if batch.is_empty() {
            continue;
        }
        let answers = node.served(&cell, &batch).await;
        for (order, answer) in batch.into_iter().zip(answers) {
            let _ = order.tell.send(answer);
        }
    }
    serving.is_done = true;
}

impl<D: Held> Node<D> {
    async fn served(
        self: &Arc<Self>,
        cell: &Arc<RoomCell>,
        batch: &[Order],
    ) -> Vec<Result<Option<Applied>, StoreError>> {
        // A copy that is made anew in the middle takes over who waits.
        let mut hopes = Vec::with_capacity(batch.len());
        if cell.copy.lock().is_none()
            && let Err(error) = self.mend_room(cell).await
        {
            return batch.iter().map(|_| Err(error.clone())).collect();
        }
        {
            let mut copy = cell.copy.lock();
            for order in batch {
                let tag = order.entry.as_ref().and_then(Entry::tag);
                hopes.push(tag.zip(copy.as_mut()).map(|(tag, copy)| {
                    let (tell, told) = oneshot::channel();
                    copy.asked.insert(tag, tell);
                    (tag, told)
                }));
            }
        }
        let run = self.run_orders(cell, batch).await;
        let mut copy = cell.copy.lock();
        let mut answers = Vec::with_capacity(batch.len());
        for hope in hopes {
            answers.push(match hope {
                Some((tag, mut told)) => match told.try_recv() {
                    Ok(applied) => Ok(Some(applied)),
                    Err(_) => {
                        if let Some(copy) = &mut *copy {
                            copy.asked.remove(&tag);
                        }
                        Err(run.clone().err().unwrap_or(StoreError::Unknown))
                    }
                },
                None => run.clone().map(|()| None),
            });
        }
        answers
    }
}
