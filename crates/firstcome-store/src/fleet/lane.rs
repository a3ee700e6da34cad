//! What waits for the same thing, and is served together: whatever has come while one round trip was under way goes into the
//! next.

use crate::error::StoreError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// When to come back to a full lane.
const FULL_RETRY: Duration = Duration::from_millis(250);

/// A bounded queue that somebody serves while it is not empty.
pub(super) struct Lane<T> {
    queue: Mutex<Queue<T>>,
    holds_max: usize,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    is_served: bool,
}

/// Whether whoever has queued something is to see to it that the lane is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Service {
    /// Somebody does.
    UnderWay,
    /// Nobody does yet.
    Wanted,
}

impl<T> Lane<T> {
    /// A lane in which so many may wait.
    pub(super) const fn new(holds_max: usize) -> Self {
        let waiting = VecDeque::new();
        Self { queue: Mutex::new(Queue { waiting, is_served: false }), holds_max }
    }

    /// Queues something; [`StoreError::Overloaded`] if too much waits.
    pub(super) fn push(&self, item: T) -> Result<Service, StoreError> {
        let mut queue = self.queue.lock();
        if self.holds_max <= queue.waiting.len() {
            return Err(StoreError::Overloaded { retry_after: FULL_RETRY });
        }
        queue.waiting.push_back(item);
        let service = if queue.is_served { Service::UnderWay } else { Service::Wanted };
        queue.is_served = true;
        Ok(service)
    }

    /// Takes what waits, in the order of arrival, at most so much. Empty if nothing does: then nobody serves any more.
    pub(super) fn take(&self, count_max: usize) -> Vec<T> {
        let mut queue = self.queue.lock();
        let count = queue.waiting.len().min(count_max);
        queue.is_served = count != 0;
        queue.waiting.drain(..count).collect()
    }

    /// Whoever served has gone in the middle: what waits is dropped, and the next to come is served again.
    pub(super) fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.is_served = false;
        queue.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_come_sees_to_the_service_and_so_does_the_first_after_its_end() {
        let lane = Lane::new(3);
        assert_eq!(lane.push(1).ok(), Some(Service::Wanted));
        assert_eq!(lane.push(2).ok(), Some(Service::UnderWay));
        assert_eq!(lane.take(1), [1]);
        assert_eq!(lane.push(3).ok(), Some(Service::UnderWay));
        assert_eq!(lane.take(9), [2, 3]);
        assert_eq!(lane.push(4).ok(), Some(Service::UnderWay), "the last batch is under way");
        assert_eq!(lane.take(9), [4]);
        assert_eq!(lane.take(9), []);
        assert_eq!(lane.push(5).ok(), Some(Service::Wanted));
        lane.abandon();
        assert_eq!(lane.push(6).ok(), Some(Service::Wanted));
        assert_eq!(lane.take(9), [6]);
    }

    #[test]
    fn a_full_lane_takes_nothing_more() {
        let lane = Lane::new(2);
        for item in 0..2 {
            assert!(lane.push(item).is_ok());
        }
        assert!(matches!(lane.push(2), Err(StoreError::Overloaded { .. })));
        assert_eq!(lane.take(1), [0]);
        assert!(lane.push(3).is_ok());
    }
}
