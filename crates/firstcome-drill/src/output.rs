//! Tables and progress for people, JSON for programs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Whether to print a table instead of JSON: standard output is a terminal, and `--json` (`json`) is not given.
pub fn wants_table(json: bool) -> bool {
    !json && io::stdout().is_terminal()
}

/// The fewest columns of a real terminal.
const COLUMNS_MIN: u16 = 20;
/// The assumed columns of a terminal that reports none.
const COLUMNS_UNKNOWN: u16 = 100;

/// Creates a table with a bold head. Columns that begin with `>` are aligned to the right.
pub fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    // Some terminals, such as those of containers, report no columns, which would give one letter per line.
    if table.width().is_some_and(|columns| columns < COLUMNS_MIN) {
        table.set_width(COLUMNS_UNKNOWN);
    }
    let head = columns.iter().map(|column| {
        let cell = Cell::new(column.trim_start_matches('>'));
        if io::stdout().is_terminal() { cell.add_attribute(Attribute::Bold) } else { cell }
    });
    table.set_header(head);
    for (at, _) in columns.iter().enumerate().filter(|(_, column)| column.starts_with('>')) {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns a progress bar on standard error if that is a terminal; otherwise a hidden one.
pub fn progress(length: u64, doing: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let style = ProgressStyle::with_template("{msg:<24} [{bar:32}] {human_pos}/{human_len} {per_sec} {eta}");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(doing.to_owned());
    bar
}

/// Returns a line on standard error that shows that work of unknown length goes on, if that is a terminal; otherwise a hidden one.
pub fn ongoing(doing: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(doing.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Writes to standard output. A reader that closes the pipe early is not an error.
pub fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to standard error, after `firstcome: `. Ignores a failure, which must not change the exit code.
pub fn say(line: &str) {
    let _ = io::stderr().write_all(format!("firstcome: {line}\n").as_bytes());
}

/// Formats a whole number in groups of three digits: 1 234 567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if 0 < at && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1 000"), (1_234_567, "1 234 567")] {
            assert_eq!(super::grouped(number), text);
        }
    }
}
