//! The link to one Redis or Valkey server, on which scripts run (feature `redis`).
//!
//! A [`Link`] holds exactly two connections, however many callers share it: one carries the commands, the other is the
//! [`Inbox`], which listens, and carries what must not stand behind commands. Both come back by themselves.
//!
//! # What is promised
//!
//! - *Nothing is sent twice.* A command whose answer is missing is [`LinkError::Unknown`]; whoever sent it repeats it with
//!   its own request id. There are two exceptions. A server that answers that it does not know the script has surely not
//!   run it, so the link loads it and runs it. And what goes [beside](Link::invoke_beside) the commands is sent over both
//!   connections if the one breaks or answers late: it may run twice.
//! - *Sure things are said to be sure.* [`LinkError::Unavailable`] means that the script did nothing and will do nothing.
//! - *Commands go out in the order in which [`Link::run`] was first polled*, as long as the connection lasts. A command
//!   whose future is dropped may still run; it disturbs nobody else.
//! - *A message that may have been missed is announced*: after each [`InboxEvent::Connected`] ask again for what matters.
//!
//! # What is not promised
//!
//! - Across a reconnect there is no order. A command that ended as [`LinkError::Unknown`] may lie in the buffers of the
//!   network or of a server that stood still, and run *after* commands that went out later over the next connection.
//!   Scripts must therefore judge by what they are given (request ids, numbers that only grow), never by order of arrival.
//! - Callers that waited for a connection, and those whose script had to be loaded first, may overtake each other.
//! - There is no order between commands and what goes [beside](Link::invoke_beside) them, nor between answers and the
//!   messages of the inbox: they are two connections.
//! - Messages are delivered at most once, as with all pub/sub.

mod error;
mod inbox;
mod link;
mod lock;
mod preflight;
mod script;
mod single_key;
mod wire;

pub use error::{LinkError, OpenError};
pub use inbox::{Inbox, InboxEvent};
pub use link::{Counts, Link, LinkOptions};
pub use lock::RedisLocks;
pub use preflight::{Eviction, MINIMUM_VERSION, Version};
pub use script::{Invocation, Script};
pub use single_key::{SingleKey, Tried};
