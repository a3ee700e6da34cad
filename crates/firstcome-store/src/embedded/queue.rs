//! The bounded queue of commands: many callers, and one writer that takes all that waits at once.
//!
//! One lock, held for a push or for a swap of two vectors. A push makes a system call only if the writer sleeps.

use super::Command;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The queue between the callers and the writer.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// The number of commands, for those who need not know it exactly.
    depth: AtomicUsize,
}

#[derive(Default)]
struct State {
    commands: Vec<Command>,
    is_closed: bool,
}

/// Why a command is not in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PushError {
    Full,
    Closed,
}

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waited {
    /// The batch has at least one command.
    Commands,
    /// The time is over.
    InVain,
    /// The queue is closed, and empty.
    Closed,
}

impl Queue {
    /// Appends a command.
    pub(super) fn push(&self, command: Command, commands_max: usize) -> Result<(), PushError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(PushError::Closed);
        }
        if commands_max <= state.commands.len() {
            return Err(PushError::Full);
        }
        state.commands.push(command);
        self.depth.store(state.commands.len(), Ordering::Relaxed);
        let is_first = state.commands.len() == 1;
        drop(state);
        // The writer sleeps only while the queue is empty.
        if is_first {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Returns about how many commands wait.
    pub(super) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Moves at most `commands_max` waiting commands into `batch`, which is empty, without waiting.
    pub(super) fn take(&self, batch: &mut Vec<Command>, commands_max: usize) {
        self.fill(&mut self.state.lock(), batch, commands_max);
    }

    /// Moves at most `commands_max` waiting commands into `batch`, which is empty. Waits for the first, for `at_most`
    /// if it is given.
    pub(super) fn wait(&self, batch: &mut Vec<Command>, commands_max: usize, at_most: Option<Duration>) -> Waited {
        let mut state = self.state.lock();
        while state.commands.is_empty() {
            if state.is_closed {
                return Waited::Closed;
            }
            match at_most {
                None => self.changed.wait(&mut state),
                Some(at_most) if self.changed.wait_for(&mut state, at_most).timed_out() => return Waited::InVain,
                Some(_) => {}
            }
        }
        self.fill(&mut state, batch, commands_max);
        Waited::Commands
    }

    fn fill(&self, state: &mut State, batch: &mut Vec<Command>, commands_max: usize) {
        if state.commands.len() <= commands_max {
            std::mem::swap(&mut state.commands, batch);
        } else {
            batch.extend(state.commands.drain(..commands_max));
        }
        self.depth.store(state.commands.len(), Ordering::Relaxed);
    }

    /// Takes no further commands. Those that wait stay for the writer.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Drops the commands that wait: their callers get `Unknown`.
    pub(super) fn clear(&self) {
        let dropped = std::mem::take(&mut self.state.lock().commands);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::reply::Reply;

    fn tick() -> Command {
        Command::Tick(None, Reply::pair().0)
    }

    #[test]
    fn commands_are_taken_in_parts_and_refused_beyond_the_limit() {
        let (queue, mut batch) = (Queue::default(), Vec::new());
        (0..5).for_each(|_| queue.push(tick(), 5).unwrap());
        assert_eq!(queue.push(tick(), 5), Err(PushError::Full));
        assert_eq!(queue.wait(&mut batch, 3, None), Waited::Commands);
        assert_eq!((batch.len(), queue.depth()), (3, 2));
        batch.clear();
        queue.take(&mut batch, 3);
        assert_eq!((batch.len(), queue.depth()), (2, 0));
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_then_its_end() {
        let (queue, mut batch) = (Queue::default(), Vec::new());
        queue.push(tick(), 5).unwrap();
        queue.close();
        assert_eq!(queue.push(tick(), 5), Err(PushError::Closed));
        assert_eq!(queue.wait(&mut batch, 3, None), Waited::Commands);
        batch.clear();
        assert_eq!(queue.wait(&mut batch, 3, None), Waited::Closed);
    }

    #[test]
    fn the_writer_waits_for_the_first_command_or_for_its_time() {
        let (queue, mut batch) = (Queue::default(), Vec::new());
        assert_eq!(queue.wait(&mut batch, 3, Some(Duration::from_micros(1))), Waited::InVain);
        std::thread::scope(|scope| {
            scope.spawn(|| queue.push(tick(), 5).unwrap());
            assert_eq!(queue.wait(&mut batch, 3, None), Waited::Commands);
        });
    }
}
