//! Appends this node's requests for a room to its log, many in one call, and applies the answers.

use super::log::{Append, ITEMS_MAX, Tick};
use super::log_writer;
use super::replica::{Broken, LogId, LogReply, Order, RoomNode, Want};
use crate::node::Node;
use firstcome_core::room::replica::{Applied, Entry};
use firstcome_store::batcher::Service;
use firstcome_store::edge::Stopwatch;
use firstcome_store::trace::{self, StageKind};
use firstcome_store::{Fault, FaultKind, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Orders in one call.
pub(super) const ORDERS_MAX: usize = 512;
/// Time goes on several times in each slice of a quarter of a second, however many nodes ask; sooner where a slow rate has
/// a node due sooner.
const TICK_US_MAX: u64 = 45_000;
/// How often one call is tried again, with the same tags, before its callers are told.
const TRIES_MAX: u32 = 4;

pub(super) fn unavailable(says: &str) -> StoreError {
    StoreError::Faulted(Arc::new(Fault::new(FaultKind::Unreachable, says)))
}

impl Node {
    /// Appends an entry, and returns when this node has applied it and all before it. One round trip, shared with others.
    pub(super) async fn append(
        self: &Arc<Self>,
        room_node: &Arc<RoomNode>,
        entry: Entry,
    ) -> Result<(LogId, Applied), StoreError> {
        self.order(room_node, Want::Append(entry)).await?.ok_or(StoreError::Unknown)
    }

    /// Applies all that others have appended. One round trip, shared with others.
    pub(crate) async fn see(self: &Arc<Self>, room_node: &Arc<RoomNode>) -> Result<(), StoreError> {
        self.order(room_node, Want::See).await.map(drop)
    }

    /// The same of anything that may be wanted; what it led to, if it was an entry.
    pub(super) async fn order(self: &Arc<Self>, room_node: &Arc<RoomNode>, want: Want) -> Result<LogReply, StoreError> {
        let (tell, told) = oneshot::channel();
        if room_node.orders.push(Order { want, tell })? == Service::Wanted {
            tokio::spawn(serve(Arc::clone(self), Arc::clone(room_node)));
        }
        told.await.unwrap_or(Err(StoreError::Unknown))
    }

    /// Appends what is wanted, and applies all that came. What is wanted has the same tags each time it is tried.
    async fn append_batch(self: &Arc<Self>, room_node: &Arc<RoomNode>, orders: &[Order]) -> Result<(), StoreError> {
        let mut told =
            Err(StoreError::busy_with("nothing was done: what Redis knows of the room was rebuilt several times"));
        let mut is_handed_over = false;
        for _ in 0..TRIES_MAX {
            if room_node.trusted.load(Ordering::Relaxed) != self.doubts() {
                match self.rebuild_room(room_node).await {
                    Ok(()) => {}
                    Err(error) => return Err(if is_handed_over { StoreError::Unknown } else { error }),
                }
            }
            told = self.append_once(room_node, orders).await;
            match &told {
                Ok(true) => return Ok(()),
                Ok(false) => room_node.trusted.store(u64::MAX, Ordering::Relaxed),
                Err(StoreError::Unknown) => is_handed_over = true,
                Err(_) => break,
            }
        }
        match told {
            Err(error) if !is_handed_over => Err(error),
            Ok(_) if !is_handed_over => {
                Err(StoreError::busy_with("nothing was done: what Redis knows of the room was rebuilt several times"))
            }
            _ => Err(StoreError::Unknown),
        }
    }

    /// One call, and those that bring what did not fit into its answer. False if the log or the copy is not to be trusted.
    async fn append_once(self: &Arc<Self>, room_node: &Arc<RoomNode>, orders: &[Order]) -> Result<bool, StoreError> {
        let given = self.database.time.both();
        let with_tick = orders.iter().any(|order| matches!(order.want, Want::Tick));
        let mut entries: Vec<Entry> = Vec::new();
        let mut durable = None;
        let (log, mut seen, expected, tick_us) = {
            let mut copy = room_node.copy.lock();
            let Some(copy) = &mut *copy else { return Ok(false) };
            // Those who were here before came before.
            entries.extend(copy.contacts(copy.now(given), with_tick));
            for order in orders {
                match &order.want {
                    Want::Append(entry) => entries.push(entry.clone()),
                    Want::Say(stored) if stored.log == copy.log => {
                        entries.extend(stored.entries.iter().cloned());
                        durable = durable.max(Some(stored.position));
                    }
                    Want::Say(_) | Want::See | Want::Tick => {}
                }
            }
            let tick_us = copy.replica.room().next_tick_us().unwrap_or(TICK_US_MAX).min(TICK_US_MAX);
            (copy.log, copy.replica.position(), copy.expected(given), tick_us)
        };
        let tick = match room_node.stopped() {
            // Who is let in now would have to be forgotten.
            Some(_) => Tick::No,
            None if with_tick => Tick::Now,
            None => Tick::After(tick_us),
        };
        let may_write = room_node.may_write();
        let mut append = Append { log, seen, now: given, expected, tick, durable, may_write, entries: &entries };
        loop {
            let asked_at = Stopwatch::start();
            let appended = self.sequencer.append(room_node.keys, &append).await?;
            trace::note(StageKind::Script, room_node.name.as_str(), asked_at.elapsed(), append.entries.len());
            let Some(appended) = appended else { return Ok(false) };
            let Some(items) = appended.items else {
                room_node.break_off(log.generation);
                return Ok(false);
            };
            let is_all = items.len() < ITEMS_MAX;
            {
                let mut copy = room_node.copy.lock();
                let Some(copy) = copy.as_mut().filter(|copy| copy.log == log) else { return Ok(false) };
                let is_applied = copy.apply(items);
                // What an image stands for is not in the log any more: that nothing came does not say that nothing happened.
                let is_behind = is_all && copy.replica.position() != appended.position;
                if is_behind || matches!(is_applied, Err(Broken)) {
                    room_node.break_off(log.generation);
                    return Ok(false);
                }
                if is_all {
                    copy.refresh(appended.now, asked_at);
                }
                seen = copy.replica.position();
                copy.bear_witness(&mut room_node.witness.lock());
                room_node.progress.send_replace(copy.progress(room_node.stopped().is_some()));
            }
            room_node.note_lease(appended.drains, &self.sequencer.node, log.generation);
            if appended.drains {
                log_writer::call(self, room_node);
            }
            if is_all {
                // A node that falls behind an image now and then has still a log that is right.
                room_node.rebuilt();
                return Ok(true);
            }
            append = Append { seen, tick: Tick::No, durable: None, entries: &[], ..append };
        }
    }
}

async fn serve(node: Arc<Node>, room_node: Arc<RoomNode>) {
    for mut batch in room_node.orders.serve() {
        // A node that has gone away finds nothing changed.
        batch.retain(|order| !order.tell.is_closed());
        if batch.is_empty() {
            continue;
        }
        let answers = node.served(&room_node, &batch).await;
        for (order, answer) in batch.into_iter().zip(answers) {
            let _ = order.tell.send(answer);
        }
    }
}

impl Node {
    async fn served(self: &Arc<Self>, room_node: &Arc<RoomNode>, batch: &[Order]) -> Vec<Result<LogReply, StoreError>> {
        // A copy that is rebuilt in the middle takes over who waits.
        let mut hopes = Vec::with_capacity(batch.len());
        if room_node.copy.lock().is_none()
            && let Err(error) = self.rebuild_room(room_node).await
        {
            return batch.iter().map(|_| Err(error.clone())).collect();
        }
        {
            let mut copy = room_node.copy.lock();
            for order in batch {
                let tag = order.want.entry().and_then(Entry::tag);
                hopes.push(tag.zip(copy.as_mut()).map(|(tag, copy)| {
                    let (tell, told) = oneshot::channel();
                    copy.asked.insert(tag, tell);
                    (tag, told)
                }));
            }
        }
        let run = self.append_batch(room_node, batch).await;
        let mut copy = room_node.copy.lock();
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
