//! Lua scripts, and the hash by which a server knows them.

use redis::{Cmd, RedisWrite};
use std::fmt::Display;
use std::sync::OnceLock;

/// A script in Lua. Made once, as a `static`.
///
/// Errors that it returns (`redis.error_reply`) must not begin with a code with which servers refuse commands, see
/// [`super::LinkError::Unavailable`].
pub struct Script {
    source: &'static str,
    known: OnceLock<redis::Script>,
}

firstcome_core::debug_by_name!(Script);

impl Script {
    /// Makes a script with this source.
    pub const fn new(source: &'static str) -> Self {
        Self { source, known: OnceLock::new() }
    }

    /// The source of the script.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The SHA-1 of the source in hex, computed at first use.
    pub fn sha1(&self) -> &str {
        self.known.get_or_init(|| redis::Script::new(self.source)).get_hash()
    }

    /// Begins an invocation with this many keys. Add the keys first, then the arguments.
    pub fn with_keys(&'static self, keys: usize) -> Invocation {
        let mut command = Cmd::with_capacity(16, 320);
        command.arg("EVALSHA").arg(self.sha1()).arg(keys);
        Invocation { script: self, command }
    }

    /// Returns the command that loads the script into a server.
    pub(crate) fn loading(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.source);
        command
    }
}

/// One call of a script, with its keys and arguments.
pub struct Invocation {
    pub(crate) script: &'static Script,
    pub(crate) command: Cmd,
}

firstcome_core::debug_by_name!(Invocation);

impl Invocation {
    /// Adds a key or an argument.
    pub fn add(&mut self, part: impl Display) -> &mut Self {
        self.command.write_arg_fmt(part);
        self
    }

    /// Adds a key or an argument of raw bytes.
    pub fn add_bytes(&mut self, part: &[u8]) -> &mut Self {
        self.command.arg(part);
        self
    }

    /// The first key.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        let mut parts = self.command.args_iter().skip(2).map(|part| match part {
            redis::Arg::Simple(part) => part,
            _ => &[],
        });
        parts.next().filter(|keys| *keys != b"0")?;
        parts.next()
    }

    /// Returns the same call with the source instead of the hash: it runs even if the server does not know the script.
    pub(crate) fn sent_along(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.source);
        for part in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(part) = part {
                command.arg(part);
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_found_among_keys_and_arguments() {
        static SCRIPT: Script = Script::new("return 1");
        let first = |keys, parts: &[&str]| {
            let mut run = SCRIPT.with_keys(keys);
            for part in parts {
                run.add(part);
            }
            run.first_key().map(<[u8]>::to_vec)
        };
        assert_eq!(first(0, &[]), None);
        assert_eq!(first(0, &["argument"]), None);
        assert_eq!(first(1, &["key", "argument"]), Some(b"key".to_vec()));
        assert_eq!(first(10, &["key", "other"]), Some(b"key".to_vec()));
    }
}
