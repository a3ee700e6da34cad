//! Rows of the reports that `cargo xtask full` prints as text: `docs/full/NAME.md`.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The column with the rates.
const RATE: &str = "Per second";
/// The beginning of the column with the slowest answers. Its unit is in its head, or in its cells.
const SLOWEST: &str = "p99";
/// A row that shows what happens without a lock, and is no way to compare with.
const CONTROL: &str = "no lock (control)";

/// Returns the content of the block `report/NAME`: the first table of that report that has rates, or the command that
/// makes the report if there is none yet.
pub(super) fn block(root: &Path, name: &str) -> Result<String, String> {
    let path = root.join("docs/full").join(format!("{name}.md"));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(format!("Not measured yet: `cargo xtask full {name}` measures it.\n"));
        }
        Err(error) => return Err(format!("report/{name}: {error}")),
    };
    let day = text.lines().find(|line| line.contains(", commit ")).ok_or(format!("report/{name}: no commit"))?;
    let (head, rows) = rates(&text).ok_or(format!("report/{name}: no table of rates"))?;
    let mut markdown =
        format!("| [report](full/{name}.md) of {} | per second | {head} |\n|---|---:|---:|\n", day.trim());
    for [way, rate, slowest] in rows {
        let _ = writeln!(markdown, "| {way} | {rate} | {slowest} |");
    }
    Ok(markdown)
}

/// Returns the head of the slowest answers, and each row's name, rate and slowest answers.
fn rates(text: &str) -> Option<(String, Vec<[String; 3]>)> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches(['│', ' ']).split('┆').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = text.lines().skip_while(|line| !cells(line).iter().any(|cell| cell == RATE));
    let head = cells(lines.next()?);
    let rate = head.iter().position(|cell| cell == RATE)?;
    let slowest = head.iter().position(|cell| cell.starts_with(SLOWEST))?;
    let table = lines.take_while(|line| !line.starts_with('└')).filter(|line| line.starts_with('│'));
    let rows = table.map(cells).filter(|row| row.first().is_some_and(|name| name != CONTROL));
    let rows = rows.filter_map(|row| Some([row.first()?.clone(), row.get(rate)?.clone(), row.get(slowest)?.clone()]));
    Some((head[slowest].clone(), rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
firstcome 0.1.0 · 2 CPUs
┌─────────────────────────┬────────────┬─────────┬────────┐
│ Strategy                ┆ Per second ┆ Correct ┆ p99 µs │
╞═════════════════════════╪════════════╪═════════╪════════╡
│ no lock (control)       ┆    900 000 ┆ –       ┆      1 │
│ PostgreSQL 15: database ┆     34 512 ┆ yes     ┆ 25 663 │
└─────────────────────────┴────────────┴─────────┴────────┘
│ Target ┆ Wanted ┆ Reached ┆ Met │
";

    #[test]
    fn a_report_that_is_not_there_yet_is_asked_for() {
        let told = block(Path::new("no such directory"), "passes");
        assert_eq!(told.as_deref(), Ok("Not measured yet: `cargo xtask full passes` measures it.\n"));
    }

    #[test]
    fn the_rates_of_a_printed_table_are_read() {
        let (head, rows) = rates(REPORT).expect("a table");
        assert_eq!(head, "p99 µs");
        assert_eq!(rows, [["PostgreSQL 15: database", "34 512", "25 663"].map(str::to_owned)]);
        assert_eq!(rates("no table"), None);
    }
}
