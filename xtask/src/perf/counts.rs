//! Writes, reads and compares the accepted counts.

use std::fmt::Write as _;

/// How many percent more instructions than accepted an operation may take: moved code compiles a little differently.
pub(super) const PERCENT_MAX: u64 = 3;
/// The same limit on another ground, where counts are only roughly comparable.
pub(super) const PERCENT_ELSEWHERE: u64 = 25;
/// How many hundredths of an allocation rounding may add.
const HUNDREDTHS_SLACK: u64 = 2;

/// The cost of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cost {
    pub(super) instructions: u64,
    /// Allocations in hundredths: a tree allocates at every tenth insertion or so.
    pub(super) allocation_hundredths: u64,
}

/// What counts depend on, apart from the code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ground {
    pub(super) rustc: String,
    pub(super) valgrind: String,
    pub(super) libc: String,
    pub(super) processor: String,
}

impl Ground {
    fn parts(&self) -> [(&'static str, &str); 4] {
        let Self { rustc, valgrind, libc, processor } = self;
        [("rustc", rustc), ("valgrind", valgrind), ("libc", libc), ("processor", processor)]
    }
}

/// The costs of all operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    /// Why they were accepted.
    pub(super) why: String,
    pub(super) ground: Ground,
    pub(super) costs: Vec<(String, Cost)>,
}

/// Checks the reason for accepting counts.
pub(super) fn reason(why: &str) -> Result<String, String> {
    let why = why.trim();
    if why.is_empty() || why.contains(['"', '\\']) || why.chars().any(char::is_control) {
        return Err("say why the new counts are accepted, in one line without quotation marks: --accept WHY".into());
    }
    Ok(why.to_owned())
}

const HEAD: &str = "\
# Instructions and allocations per operation, counted by `cargo xtask perf`. The gate fails above +3 % instructions or one
# allocation more. `cargo xtask perf --accept WHY` writes this file; WHY is the reason for the last change.
";

impl Counts {
    /// Returns the text of the file: one line per operation, so that a diff shows what changed.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{HEAD}why = \"{}\"\n\n[ground]\n", self.why);
        for (name, value) in self.ground.parts() {
            let _ = writeln!(text, "{name} = \"{value}\"");
        }
        text.push_str("\n[operations]\n");
        for (name, cost) in &self.costs {
            let (instructions, allocations) = (cost.instructions, hundredths(cost.allocation_hundredths));
            let _ = writeln!(text, "{name} = {{ instructions = {instructions}, allocations = {allocations} }}");
        }
        text
    }

    /// Reads what [`Self::text`] wrote: a small part of TOML.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = || text.lines().filter_map(|line| line.split_once(" = "));
        let value = |wanted: &str| {
            let found = lines().find(|(name, _)| *name == wanted).and_then(|(_, value)| quoted(value));
            found.ok_or(format!("no {wanted}"))
        };
        let ground = Ground {
            rustc: value("rustc")?,
            valgrind: value("valgrind")?,
            libc: value("libc")?,
            processor: value("processor")?,
        };
        let operations = lines().filter(|(_, value)| value.starts_with('{'));
        let cost = |(name, value): (&str, &str)| {
            let cost = parse_cost(value).ok_or(format!("{name}: no cost: {value}"))?;
            Ok::<_, String>((name.to_owned(), cost))
        };
        Ok(Self { why: value("why")?, ground, costs: operations.map(cost).collect::<Result<_, _>>()? })
    }
}

fn quoted(value: &str) -> Option<String> {
    Some(value.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

/// Parses `{ instructions = 1234, allocations = 1.50 }`.
fn parse_cost(value: &str) -> Option<Cost> {
    let inner = value.strip_prefix("{ instructions = ")?.strip_suffix(" }")?;
    let (instructions, allocations) = inner.split_once(", allocations = ")?;
    let (whole, part) = allocations.split_once('.')?;
    let (whole, part): (u64, u64) = (whole.parse().ok()?, part.parse().ok().filter(|_| part.len() == 2)?);
    Some(Cost { instructions: instructions.parse().ok()?, allocation_hundredths: whole * 100 + part })
}

fn hundredths(count: u64) -> String {
    format!("{}.{:02}", count / 100, count % 100)
}

/// The differences between accepted and present costs.
pub(super) struct Comparison {
    /// Each operation, before and now.
    pub(super) table: String,
    /// The differences that fail the gate.
    pub(super) findings: Vec<String>,
    /// Notes for the reader, which do not fail the gate.
    pub(super) words: Vec<String>,
    percent_max: u64,
}

impl Comparison {
    pub(super) fn of(before: &Counts, now: &Counts) -> Self {
        let differs = differences(&before.ground, &now.ground);
        let percent_max = if differs.is_empty() { PERCENT_MAX } else { PERCENT_ELSEWHERE };
        let mut comparison = Self { table: head(), findings: Vec::new(), words: Vec::new(), percent_max };
        if !differs.is_empty() {
            let told = format!(
                "PERF IS COMPARED ROUGHLY, up to +{PERCENT_ELSEWHERE} %: the counts were accepted with {}. \
                 `cargo xtask perf --accept WHY` renews them for this toolchain",
                differs.join("; ")
            );
            comparison.words.push(told);
        }
        for (name, now) in &now.costs {
            match before.costs.iter().find(|(known, _)| known == name) {
                Some((_, before)) => comparison.add(name, *before, *now),
                None => comparison.findings.push(format!("{name}: new, and no cost of it was accepted")),
            }
        }
        let is_gone = |name: &str| !now.costs.iter().any(|(known, _)| known == name);
        for (name, _) in before.costs.iter().filter(|(name, _)| is_gone(name)) {
            comparison.findings.push(format!("{name}: its cost was accepted, and it is no longer counted"));
        }
        comparison
    }

    fn add(&mut self, name: &str, before: Cost, now: Cost) {
        let ratio = now.instructions as f64 / before.instructions as f64;
        let allocations = [before, now].map(|cost| hundredths(cost.allocation_hundredths));
        let _ = writeln!(
            self.table,
            "{name:<20} {:>12} {:>10} {ratio:>7.3} {:>12} {:>7}",
            before.instructions, now.instructions, allocations[0], allocations[1]
        );
        let above = before.instructions * (100 + self.percent_max);
        if above < now.instructions * 100 {
            let [before, now] = [before, now].map(|cost| cost.instructions);
            let percent = (ratio - 1.0) * 100.0;
            let max = self.percent_max;
            self.findings
                .push(format!("{name}: {percent:.2} % more instructions, {now} after {before}; at most {max} %"));
        }
        let elsewhere = self.percent_max != PERCENT_MAX;
        let slack =
            HUNDREDTHS_SLACK + if elsewhere { before.allocation_hundredths * PERCENT_ELSEWHERE / 100 } else { 0 };
        if before.allocation_hundredths + slack < now.allocation_hundredths {
            self.findings.push(format!("{name}: {} allocations, {} before", allocations[1], allocations[0]));
        }
        let is_cheaper = now.instructions * 100 < before.instructions * (100 - PERCENT_MAX);
        if is_cheaper && !elsewhere {
            let percent = (1.0 - ratio) * 100.0;
            self.words.push(format!("{name}: {percent:.1} % fewer instructions: accept them, so that they stay"));
        }
    }

    /// Returns the line that the gate prints at its end if it found nothing.
    pub(super) fn summary(&self) -> String {
        let rough = self.percent_max != PERCENT_MAX;
        let roughly = if rough { ", on another toolchain than the accepted counts; see above" } else { "" };
        format!("no operation costs more than accepted, up to +{} %{roughly}", self.percent_max)
    }
}

fn head() -> String {
    let columns = format!(
        "{:<20} {:>12} {:>10} {:>7} {:>12} {:>7}",
        "operation", "instructions", "now", "ratio", "allocations", "now"
    );
    format!("{columns}\n")
}

fn differences(before: &Ground, now: &Ground) -> Vec<String> {
    let pairs = before.parts().into_iter().zip(now.parts());
    let different = pairs.filter(|(before, now)| before != now);
    different.map(|((_, before), (_, now))| format!("{before}, here it is {now}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(costs: &[(&str, u64, u64)]) -> Counts {
        let cost = |&(name, instructions, allocation_hundredths): &(&str, u64, u64)| {
            (name.to_owned(), Cost { instructions, allocation_hundredths })
        };
        let ground = ["rustc 1", "valgrind-3", "glibc 2", "x86_64"].map(str::to_owned);
        let [rustc, valgrind, libc, processor] = ground;
        let ground = Ground { rustc, valgrind, libc, processor };
        Counts { why: "the first ones".into(), ground, costs: costs.iter().map(cost).collect() }
    }

    fn elsewhere(mut counts: Counts) -> Counts {
        counts.ground.rustc = "rustc 2".into();
        counts
    }

    #[track_caller]
    fn check(now: &Counts, findings: &[&str]) {
        let before = counts(&[("claim", 10_000, 300), ("poll", 2_000, 0)]);
        assert_eq!(Comparison::of(&before, now).findings, findings);
    }

    #[test]
    fn a_slowdown_of_five_percent_is_found_and_one_of_three_is_not() {
        check(&counts(&[("claim", 10_300, 300), ("poll", 2_060, 0)]), &[]);
        let found = "claim: 5.00 % more instructions, 10500 after 10000; at most 3 %";
        check(&counts(&[("claim", 10_500, 300), ("poll", 2_000, 0)]), &[found]);
        let found = "poll: 3.05 % more instructions, 2061 after 2000; at most 3 %";
        check(&counts(&[("claim", 10_000, 300), ("poll", 2_061, 0)]), &[found]);
    }

    #[test]
    fn one_allocation_more_in_ten_operations_is_found() {
        check(&counts(&[("claim", 10_000, 310), ("poll", 2_000, 0)]), &["claim: 3.10 allocations, 3.00 before"]);
        check(&counts(&[("claim", 10_000, 302), ("poll", 2_000, 0)]), &[]);
    }

    #[test]
    fn an_operation_that_comes_or_goes_is_found() {
        let now = counts(&[("claim", 10_000, 300), ("bid", 1, 0)]);
        let gone = "poll: its cost was accepted, and it is no longer counted";
        check(&now, &["bid: new, and no cost of it was accepted", gone]);
    }

    #[test]
    fn another_compiler_is_compared_roughly_and_aloud() {
        let slower = |percent: u64| elsewhere(counts(&[("claim", 100 * (100 + percent), 300), ("poll", 2_000, 0)]));
        check(&slower(20), &[]);
        check(&slower(26), &["claim: 26.00 % more instructions, 12600 after 10000; at most 25 %"]);
        let before = counts(&[("claim", 10_000, 300), ("poll", 2_000, 0)]);
        let comparison = Comparison::of(&before, &slower(20));
        assert!(comparison.words[0].contains("with rustc 1, here it is rustc 2"), "{:?}", comparison.words);
        assert!(comparison.summary().contains("another toolchain"));
    }

    #[test]
    fn what_became_cheaper_can_be_accepted() {
        let before = counts(&[("claim", 10_000, 300)]);
        assert_eq!(Comparison::of(&before, &counts(&[("claim", 9_701, 300)])).words, [""; 0]);
        let words = Comparison::of(&before, &counts(&[("claim", 9_600, 300)])).words;
        assert_eq!(words, ["claim: 4.0 % fewer instructions: accept them, so that they stay"]);
    }

    #[test]
    fn what_is_written_is_read() {
        let counts = counts(&[("claim", 10_000, 300), ("http-poll", 2_000, 7)]);
        assert_eq!(Counts::parse(&counts.text()), Ok(counts.clone()));
        assert!(Counts::parse(&counts.text().replace("libc", "c")).is_err());
        assert!(Counts::parse(&counts.text().replace("0.07", "a few")).is_err());
    }

    #[test]
    fn a_reason_is_wanted() {
        assert_eq!(reason(" codes carry a MAC over the user "), Ok("codes carry a MAC over the user".into()));
        assert!(["", "  ", "two\nlines", "a \"quoted\" one"].into_iter().all(|why| reason(why).is_err()));
    }
}
