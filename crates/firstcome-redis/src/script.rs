//! A script, and the name by which a server knows it.

use redis::{Cmd, RedisWrite};
use std::fmt::Display;
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

    /// The beginning of a run with so many keys: they come first, arguments follow.
    pub fn with_keys(&'static self, keys: usize) -> Invocation {
        let mut command = Cmd::with_capacity(16, 320);
        command.arg("EVALSHA").arg(self.sha1()).arg(keys);
        Invocation { script: self, command }
    }

    /// Makes it known to a server.
    pub(crate) fn loading(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.source);
        command
    }
}

/// A run of a script, with what it is given.
pub struct Invocation {
    pub(crate) script: &'static Script,
    pub(crate) command: Cmd,
}

impl Invocation {
    /// One more key or argument.
    pub fn add(&mut self, part: impl Display) -> &mut Self {
        self.command.write_arg_fmt(part);
        self
    }

    /// The same, of bytes.
    pub fn add_bytes(&mut self, part: &[u8]) -> &mut Self {
        self.command.arg(part);
        self
    }

    /// The first of its keys.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        let mut parts = self.command.args_iter().skip(2).map(|part| match part {
            redis::Arg::Simple(part) => part,
            _ => &[],
        });
        parts.next().filter(|keys| *keys != b"0")?;
        parts.next()
    }

    /// The same with the source in place of its name: it runs whether the server knows it or not.
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
