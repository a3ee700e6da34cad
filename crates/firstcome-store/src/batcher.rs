//! Serves requests together that wait for the same round trip. All requests that arrive during one round trip go into
//! the next one.
//!
//! # Invariants
//! - An item is in at most one batch, and batches are in the order of arrival.
//! - While items wait, a server works on them, or a call of [`Batcher::push`] has told its caller to start one.
//! - A server that stops early leaves no item without a server: the last server to stop drops the waiting items.

use crate::error::StoreError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::time::Duration;

/// When to come back to a full batcher.
const FULL_RETRY: Duration = Duration::from_millis(250);

/// A bounded queue that servers empty. Another server may join while a whole batch waits: its round trip then begins
/// before the earlier one has ended.
pub struct Batcher<T> {
    queue: Mutex<Queue<T>>,
    waiting_max: usize,
    batch_max: usize,
    servers_max: u32,
}

firstcome_core::debug_by_name!([T] Batcher<T>);

struct Queue<T> {
    waiting: VecDeque<T>,
    servers: u32,
}

/// Whether the caller of [`Batcher::push`] must serve, or spawn a task that does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Enough servers are at work.
    UnderWay,
    /// No server is at work, or one more is needed.
    Wanted,
}

/// One server: an iterator of batches. Dropping it before it has returned `None` counts as stopping early.
pub struct Serving<'a, T> {
    batcher: &'a Batcher<T>,
    is_done: bool,
}

firstcome_core::debug_by_name!(['a, T] Serving<'a, T>);

impl<T> Batcher<T> {
    /// Makes a batcher: at most `waiting_max` items wait, a batch has at most `batch_max` items, and at most
    /// `servers_max` servers work.
    pub const fn new(waiting_max: usize, batch_max: usize, servers_max: u32) -> Self {
        let queue = Queue { waiting: VecDeque::new(), servers: 0 };
        Self { queue: Mutex::new(queue), waiting_max, batch_max, servers_max }
    }

    /// Makes a batcher with one server, whose batch is all that waits. The callers must bound the number of items.
    pub const fn unbounded() -> Self {
        Self::new(usize::MAX, usize::MAX, 1)
    }

    /// Adds an item. No I/O.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if too many items wait; the item is dropped.
    pub fn push(&self, item: T) -> Result<Service, StoreError> {
        let mut queue = self.queue.lock();
        if self.waiting_max <= queue.waiting.len() {
            return Err(StoreError::busy(FULL_RETRY));
        }
        queue.waiting.push_back(item);
        let is_full = self.batch_max <= queue.waiting.len();
        let is_wanted = queue.servers == 0 || (queue.servers < self.servers_max && is_full);
        queue.servers += u32::from(is_wanted);
        Ok(if is_wanted { Service::Wanted } else { Service::UnderWay })
    }

    /// Starts to serve. Call it once for each [`Service::Wanted`].
    pub const fn serve(&self) -> Serving<'_, T> {
        Serving { batcher: self, is_done: false }
    }

    /// Takes the next batch. Empty if no item waits, or if another server is enough for those that wait.
    fn take(&self) -> Vec<T> {
        let mut queue = self.queue.lock();
        let count = queue.waiting.len().min(self.batch_max);
        let needed = if queue.servers < 2 { 1 } else { self.batch_max };
        if count < needed {
            queue.servers -= 1;
            return Vec::new();
        }
        queue.waiting.drain(..count).collect()
    }

    /// Handles a server that stops early.
    fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.servers -= 1;
        if queue.servers == 0 {
            queue.waiting.clear();
        }
    }
}

/// Yields the batches in the order of arrival. After `None` this server is done.
impl<T> Iterator for Serving<'_, T> {
    type Item = Vec<T>;

    fn next(&mut self) -> Option<Vec<T>> {
        if self.is_done {
            return None;
        }
        let batch = self.batcher.take();
        self.is_done = batch.is_empty();
        if self.is_done { None } else { Some(batch) }
    }
}

impl<T> FusedIterator for Serving<'_, T> {}

impl<T> Drop for Serving<'_, T> {
    fn drop(&mut self) {
        if !self.is_done {
            self.batcher.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_come_sees_to_the_service_and_so_does_the_first_after_its_end() {
        let batcher = Batcher::new(9, 3, 1);
        assert_eq!(batcher.push(1).ok(), Some(Service::Wanted));
        assert_eq!(batcher.push(2).ok(), Some(Service::UnderWay));
        assert_eq!(batcher.take(), [1, 2]);
        assert_eq!(batcher.push(3).ok(), Some(Service::UnderWay), "the last batch is under way");
        assert_eq!(batcher.take(), [3]);
        assert_eq!(batcher.take(), []);
        assert_eq!(batcher.push(5).ok(), Some(Service::Wanted));
        batcher.abandon();
        assert_eq!(batcher.push(6).ok(), Some(Service::Wanted));
        assert_eq!(batcher.take(), [6]);
    }

    #[test]
    fn one_more_serves_while_a_whole_batch_waits() {
        let batcher = Batcher::new(9, 2, 2);
        assert_eq!(batcher.push(1).ok(), Some(Service::Wanted));
        assert_eq!(batcher.take(), [1]);
        assert_eq!(batcher.push(2).ok(), Some(Service::UnderWay));
        assert_eq!(batcher.push(3).ok(), Some(Service::Wanted));
        assert_eq!(batcher.push(4).ok(), Some(Service::UnderWay), "two are enough");
        assert_eq!(batcher.push(5).ok(), Some(Service::UnderWay));
        assert_eq!(batcher.take(), [2, 3]);
        assert_eq!(batcher.push(6).ok(), Some(Service::UnderWay));
        assert_eq!(batcher.take(), [4, 5]);
        assert_eq!(batcher.take(), [], "one is enough for less");
        assert_eq!(batcher.push(7).ok(), Some(Service::Wanted));
        batcher.abandon();
        assert_eq!(batcher.take(), [6, 7], "the other one goes on");
        assert_eq!(batcher.take(), []);
        assert_eq!(batcher.push(8).ok(), Some(Service::Wanted));
    }

    #[test]
    fn a_full_batcher_takes_nothing_more() {
        let batcher = Batcher::new(2, 1, 1);
        for item in 0..2 {
            assert!(batcher.push(item).is_ok());
        }
        assert!(matches!(batcher.push(2), Err(StoreError::Busy { .. })));
        assert_eq!(batcher.take(), [0]);
        assert!(batcher.push(3).is_ok());
    }

    #[test]
    fn a_caller_that_stops_in_the_middle_leaves_no_item_without_a_server() {
        let batcher = Batcher::new(9, 2, 1);
        assert_eq!(batcher.push(1).ok(), Some(Service::Wanted));
        assert_eq!(batcher.push(2).ok(), Some(Service::UnderWay));
        assert_eq!(batcher.push(3).ok(), Some(Service::UnderWay));
        let mut serving = batcher.serve();
        assert_eq!(serving.next(), Some(vec![1, 2]));
        drop(serving);
        assert_eq!(batcher.push(4).ok(), Some(Service::Wanted), "the next caller serves again");
        let mut serving = batcher.serve();
        assert_eq!((serving.next(), serving.next(), serving.next()), (Some(vec![4]), None, None));
        drop(serving);
        assert_eq!(batcher.push(5).ok(), Some(Service::Wanted), "it ended once");
    }
}
