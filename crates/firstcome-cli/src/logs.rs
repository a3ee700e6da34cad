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
                lines.with_ansi(is_terminal).event_format(WithRequest { form, finished: text_line }).init();
            }
            LogFormat::Json => {
                let form = Format::default().json().flatten_event(true).with_ansi(false);
                let lines = lines.json().with_ansi(false);
                lines.event_format(WithRequest { form, finished: json_line }).init();
            }
        }
        log_panics();
    }
}

/// A form of lines, with the id of the request that has caused a line.
struct WithRequest<F> {
    form: F,
    /// Returns the line, without its newline, from that of the form, with the id if there is one.
    finished: fn(&str, Option<&str>) -> String,
}

/// An id contains no character that needs an escape: see `firstcome_server::request_id`. The form escapes no line breaks, which a text
/// of another program may have.
fn text_line(line: &str, id: Option<&str>) -> String {
    let line = line.replace('\n', "\\n").replace('\r', "\\r");
    match id {
        Some(id) => format!("{line} request_id={id}"),
        None => line,
    }
}

fn json_line(line: &str, id: Option<&str>) -> String {
    match (line.strip_suffix('}'), id) {
        (Some(open), Some(id)) => format!("{open},\"request_id\":\"{id}\"}}"),
        _ => line.to_owned(),
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
        let id = current_request_id().filter(|_| !is_named);
        let mut line = String::new();
        self.form.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{}", (self.finished)(line.trim_end(), id.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use tracing::subscriber::with_default;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no thread panics with it").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_break_in_a_value_begins_no_line() {
        let lines = Lines::default();
        let sink = lines.clone();
        let form = WithRequest { form: Format::default().with_ansi(false), finished: text_line };
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone()).event_format(form);
        with_default(subscriber.finish(), || {
            tracing::warn!(error = %"no\n2026-11-30 ERROR forged\r\n", "the database\nis lost");
        });
        let text = String::from_utf8(lines.0.lock().expect("no thread panics with it").clone()).expect("UTF-8");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            !text.contains('\r') && text.contains(r"no\n2026-11-30 ERROR forged") && text.ends_with('\n'),
            "{text:?}"
        );
    }
}
