//! The world of a cluster: several nodes, one Redis and one database, each of which may crash, forget, go back to an older state,
//! or be slow.
//!
//! A node here runs the protocol of one coupon as the real node does: it asks the sequencer for a ticket, drains the outbox into
//! the database, and answers from there. What decides whether a sequencer is whole, must be made anew, or shows that the database
//! went back is the rule of the core ([`firstcome_core::coupon::stream`]); so is what stops early acknowledgement. The two servers are models:
//! each call to one of them is one atomic step, and its request or its answer may be lost.
//!
//! - [`redis`] the sequencer and its outbox; [`sql`] the rows; [`node`] what a node does; [`tasks`] calls that take their time
//! - [`history`] what callers were told; [`world`] one run

pub mod history;
pub mod node;
pub mod redis;
pub mod sql;
pub mod tasks;
pub mod world;
