//! What a service says on standard error: how much, and in which form.

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, stderr};
use tracing_subscriber::EnvFilter;

#[derive(Args)]
pub(crate) struct LogArgs {
    /// What is logged: off, error, warn, info, debug or trace, for all or for a module, such as info,firstcome_redis=debug
    #[arg(long, env = "FIRSTCOME_LOG", value_name = "LEVELS", value_parser = levels, default_value = "info")]
    log: String,
    /// Form of the lines of the log: text for people, or json with an object per line
    #[arg(long, env = "FIRSTCOME_LOG_FORMAT", value_name = "FORM", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// The form of the lines.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One object per line, with the fields of the event beside timestamp, level, target and message
    Json,
}

fn filter(levels: &str) -> anyhow::Result<EnvFilter> {
    let filter = EnvFilter::builder().parse(levels);
    filter.map_err(|error| anyhow!("{error}; write info, or info,firstcome_redis=debug"))
}

fn levels(text: &str) -> anyhow::Result<String> {
    filter(text).map(|_| text.to_owned())
}

impl LogArgs {
    /// Logs to standard error from now on. Once in a process.
    pub(crate) fn start(&self) {
        let filter = filter(&self.log).expect("the levels were parsed before");
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
        match self.log_format {
            LogFormat::Text => lines.with_ansi(stderr().is_terminal()).init(),
            LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).init(),
        }
    }
}
