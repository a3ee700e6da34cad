//! The link to a Redis or Valkey server, on which scripts run (feature `redis`): one server, whichever of several the
//! sentinels name as the primary, or a cluster, see [`Link::open`].
//!
//! A [`Link`] holds exactly two connections, however many callers share it: one carries the commands, the other is the
//! [`Inbox`], which listens, and carries what must not stand behind commands. Both come back by themselves. In a cluster
//! there is one for commands to each master, and the inbox only listens; with sentinels there is one more to each of these.
//!
//! # What is promised
//!
//! - *Nothing is sent twice.* A command whose answer is missing is [`LinkError::Unknown`]; a process that sent it repeats it with
//!   its own request id. There are three exceptions. A server that answers that it does not know the script has surely not
//!   run it, so the link loads it and runs it. Nor has a node of a cluster that answers that the key is elsewhere, or that
//!   it cannot say (`MOVED`, `ASK`, `TRYAGAIN`, `CLUSTERDOWN`), so the link asks elsewhere, or once more. And what goes
//!   [beside](Link::invoke_beside) the commands is sent over both connections if the one breaks or answers late: it may run
//!   twice.
//! - *Sure things are said to be sure.* [`LinkError::Unavailable`] means that the script did nothing and will do nothing.
//! - *Commands go out in the order in which [`Link::run`] was first polled*, as long as the connection lasts, in a cluster
//!   those whose key has the same slot, as long as that stays where it is. A command whose future is dropped may still run;
//!   it disturbs no other process.
//! - *A server is left when another takes its place.* When a sentinel knows of a newer primary, both connections to the one
//!   before are given up within the interval of pings, whether it still answers or not.
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
//! - Messages are delivered at most once, as with all pub/sub. In a cluster they go from node to node: one that is lost on
//!   that way is announced only if a node then says that the cluster is down.
//! - What a primary has acknowledged may be unknown to the one that takes its place. [`Link::run_of`] tells that it is
//!   another. Until the sentinels have named it, or the nodes of a cluster agreed on it, one that is cut off from them and not
//!   from us is used on.
//! - While a slot moves, a script with several keys is turned down (`TRYAGAIN`) as long as not all of them are at one node,
//!   and so is one with several of which any is not there at all. One that touches a key that is not there and that it was
//!   not given, or one that it has deleted, is [refused](LinkError::Refused) half way.

mod acknowledge;
mod address;
mod channels;
mod cluster;
mod connection;
mod error;
mod facts;
mod fitness;
mod inbox;
mod link;
mod lock;
mod preflight;
mod quorum;
mod redisson;
mod route;
mod script;
mod sentinel;
mod single_key;
mod slots;
mod socket;

pub use acknowledge::ReplicaAck;
pub use channels::Listener;
pub use error::{LinkError, OpenError};
pub use facts::{Fsync, Role, ServerFacts};
pub use fitness::{CHECK_EVERY, evicts};
pub use inbox::{Inbox, InboxEvent};
pub use link::{Counts, Link, LinkOptions};
pub use lock::RedisLocks;
pub use preflight::{Eviction, MINIMUM_VERSION, Run, Version};
pub use quorum::{NodeSet, QuorumCounts, QuorumNotifications, QuorumOptions, QuorumStore};
pub use redisson::Redisson;
pub use script::{Invocation, Script};
pub use single_key::SingleKey;
