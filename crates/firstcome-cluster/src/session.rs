//! The ends of operators' sessions, which all nodes must know.
//!
//! A session is a signed cookie that no server keeps, so only a logout needs a record. The record is a key in Redis, which ends by
//! itself when no cookie of the session could count any longer.
//!
//! | key | what |
//! |---|---|
//! | `fc:{sID}:ended` | the session with this id has logged out |
//!
//! # Not promised
//! - That the record survives a loss of Redis: SQL does not have it.

use super::sequencer::number;
use crate::Cluster;
use firstcome_redis::Script;
use firstcome_sql::boxed::boxed;
use firstcome_store::StoreError;
use std::time::Duration;

static SESSION: Script = Script::new(include_str!("lua/session.lua"));

impl Cluster {
    async fn session(&self, id: &str, lasts: Option<Duration>) -> Result<bool, StoreError> {
        let mut run = SESSION.with_keys(1);
        run.add(format_args!("fc:{{s{id}}}:ended"));
        if let Some(lasts) = lasts {
            run.add(lasts.as_millis());
        }
        Ok(number(self.link().invoke(&run).await?) == Some(1))
    }

    /// Records for all nodes that the session with this id has ended. The record stays for `lasts`, at least one millisecond. One
    /// round trip.
    pub async fn end_session(&self, id: &str, lasts: Duration) -> Result<(), StoreError> {
        boxed(self.session(id, Some(lasts))).await.map(drop)
    }

    /// Whether a node has recorded the end of the session with this id. One round trip.
    pub async fn has_session_ended(&self, id: &str) -> Result<bool, StoreError> {
        boxed(self.session(id, None)).await
    }
}
