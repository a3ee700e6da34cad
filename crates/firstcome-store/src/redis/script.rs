//! A script, and the name by which a server knows it.

use redis::Cmd;
use std::sync::OnceLock;

/// A script in Lua. Made once, as a `static`.
///
/// Its own errors (`redis.error_reply`) must not begin with a code by which servers turn commands down, see
/// [`super::LinkError::Unavailable`].
pub struct Script {
    source: &'static str,
    known: OnceLock<redis::Script>,
}

impl Script {
    /// A script with this source.
    pub const fn new(source: &'static str) -> Self {
        Self { source, known: OnceLock::new() }
    }

    /// Its source.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The SHA-1 of its source in hex, drawn up at the first use.
    pub fn sha1(&self) -> &str {
        self.known.get_or_init(|| redis::Script::new(self.source)).get_hash()
    }

    /// Runs it by its name.
    pub(crate) fn invocation(&self, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.sha1()).arg(keys.len());
        for part in keys.iter().chain(args) {
            command.arg(*part);
        }
        command
    }

    /// Makes it known to a server.
    pub(crate) fn loading(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.source);
        command
    }
}
