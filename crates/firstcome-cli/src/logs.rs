//! What a service says on standard error: how much, and in which form.
//!
//! A line that a request causes has the field `request_id`, in both forms. It is added here, where the line is written, so that a
//! request without a line costs nothing: see `firstcome_server::request_id`.

mod levels;

use clap::{Args, ValueEnum};
use firstcome_server::{current_request_id, log_panics};
use levels::filter;
use std::fmt;
use std::io::{IsTerminal, stderr};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

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

fn levels(text: &str) -> anyhow::Result<String> {
    filter(text).map(|_| text.to_owned())
}

impl LogArgs {
    /// Logs to standard error from now on, panics included. Once in a process.
    pub(crate) fn start(&self) {
        let filter = filter(&self.log).expect("the levels were parsed before");
        // A line that cannot be written is lost: a report of that could not be written either, and would panic.
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).log_internal_errors(false);
        match self.log_format {
            LogFormat::Text => {
                let is_terminal = stderr().is_terminal();
                let form = Format::default().with_ansi(is_terminal);
                lines.with_ansi(is_terminal).event_format(WithRequest { form, ending: text_ending }).init();
            }
            LogFormat::Json => {
                let form = Format::default().json().flatten_event(true).with_ansi(false);
                let lines = lines.json().with_ansi(false);
                lines.event_format(WithRequest { form, ending: json_ending }).init();
            }
        }
        log_panics();
    }
}

/// A form of lines, with the id of the request that has caused a line.
struct WithRequest<F> {
    form: F,
    /// Returns the end of a line, without its newline, with the id in place of this one.
    ending: fn(&str, &str) -> String,
}

/// An id contains no character that needs an escape: see `firstcome_server::request_id`.
fn text_ending(line: &str, id: &str) -> String {
    format!("{line} request_id={id}")
}

fn json_ending(line: &str, id: &str) -> String {
    match line.strip_suffix('}') {
        Some(open) => format!("{open},\"request_id\":\"{id}\"}}"),
        None => line.to_owned(),
    }
}

impl<S, N, F> FormatEvent<S, N> for WithRequest<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let is_named = event.metadata().fields().field("request_id").is_some();
        let Some(id) = current_request_id().filter(|_| !is_named) else {
            return self.form.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.form.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{}", (self.ending)(line.trim_end(), &id))
    }
}
