//! The link to Redis or Valkey, on which scripts run (feature `redis`): one server, the primary that sentinels name, or
//! a cluster, see [`Link::open`].
//!
//! A [`Link`] holds exactly two connections, however many callers share it. One carries the commands. The other is the
//! [`Inbox`]: it receives messages, and carries requests that must not wait behind commands. Both reconnect by
//! themselves. In a cluster there is one command connection to each master, and the inbox only listens. With sentinels
//! there is one more connection to each sentinel.
//!
//! # What is promised
//!
//! - *The link sends nothing twice.* A command without an answer is [`LinkError::Unknown`]; its caller may repeat it
//!   with the same request id. There are three exceptions. A server that answers that it does not know the script has
//!   not run it, so the link loads the script and runs it. A node of a cluster that answers `MOVED`, `ASK`, `TRYAGAIN`
//!   or `CLUSTERDOWN` has not run it either, so the link asks another node, or asks again. A request that goes
//!   [beside](Link::invoke_beside) the commands is sent over both connections if one breaks or answers late, so it may
//!   run twice.
//! - *[`LinkError::Unavailable`] is certain*: the script did nothing and will do nothing.
//! - *Commands go out in the order in which [`Link::run`] was first polled*, as long as the connection lasts. In a
//!   cluster this holds for commands whose keys share a slot, as long as the slot stays where it is. A command whose
//!   future is dropped may still run; it disturbs no other command.
//! - *The link leaves a server that was replaced.* When a sentinel names a newer primary, the link gives up both
//!   connections to the old one within the ping interval, even if the old one still answers.
//! - *The inbox reports that messages may have been missed*: after each [`InboxEvent::Connected`] ask again for what
//!   matters.
//!
//! # What is not promised
//!
//! - Order across a reconnect. A command that ended as [`LinkError::Unknown`] may lie in a buffer of the network or of
//!   a server that stood still. It may run *after* commands that went out later over the next connection. So scripts
//!   must judge by their arguments (request ids, numbers that only grow), never by the order of arrival.
//! - Order among callers that waited for a connection or whose script had to be loaded first.
//! - Order between commands and requests [beside](Link::invoke_beside) them, or between answers and messages of the
//!   inbox: they use two connections.
//! - Delivery of every message: pub/sub delivers at most once. In a cluster messages go from node to node. The inbox
//!   reports one that was lost between nodes only if a node then says that the cluster is down.
//! - That a new primary knows what the old one acknowledged. [`Link::run_of`] shows that the server is another one. A
//!   primary that is cut off from its sentinels or cluster, but not from this process, stays in use until they have
//!   agreed on another one.
//! - Scripts with several keys while a slot moves: the node refuses them (`TRYAGAIN`) while the keys are not all at one
//!   node, or while one of several keys does not exist. A script that touches an absent key that was not passed to it,
//!   or a key that it has deleted, is [refused](LinkError::Refused) half way.

#![warn(missing_debug_implementations)]

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
pub use address::destination;
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
