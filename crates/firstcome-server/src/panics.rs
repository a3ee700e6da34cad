//! Panics in the log.
//!
//! # Promises
//! - After [`log_panics`] a panic of any thread is one event of the log with its message and its place, in the form of all other
//!   lines. The panic of a handler has the id of its request.
//! - A flood of panics at one place is one line a second, with the number that were left out.
//!
//! # Not promised
//! - A stack trace: `RUST_BACKTRACE` has no effect.

use firstcome::throttle::Throttle;
use std::any::Any;
use std::panic::{PanicHookInfo, set_hook};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the hook writes a line for each panic.
static IS_LOGGED: AtomicBool = AtomicBool::new(false);
/// Kinds of lines, by the line of the source. Two places share a kind with a probability of one in sixteen.
static KINDS: [Throttle; 16] = [const { Throttle::new() }; 16];

/// Writes panics to the log of this process from now on, in place of the text of the standard library on standard error.
pub fn log_panics() {
    set_hook(Box::new(log));
    IS_LOGGED.store(true, Ordering::Relaxed);
}

/// Whether each panic has its line already when it is caught.
pub(crate) fn is_logged() -> bool {
    IS_LOGGED.load(Ordering::Relaxed)
}

fn log(panic: &PanicHookInfo<'_>) {
    let (place, kind) = match panic.location() {
        Some(at) => (format!("{}:{}", at.file(), at.line()), at.line() as usize % KINDS.len()),
        None => ("unknown".to_owned(), 0),
    };
    let Some(left_out) = KINDS[kind].pass() else { return };
    tracing::error!(panic = message(panic.payload()), place, left_out, "a panic: this is a bug of the service");
}

/// The text of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_panic_is_its_text_if_it_has_one() {
        let said = |payload: Box<dyn Any + Send>| message(&*payload).to_owned();
        assert_eq!(said(Box::new("a text")), "a text");
        assert_eq!(said(Box::new("a made text".to_owned())), "a made text");
        assert_eq!(said(Box::new(7)), "no text");
    }
}
