//! Runs the benchmark under callgrind and reads its counts.

use super::counts::Cost;
use crate::shell;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const BINARY: &str = "target/release/examples/perf";
/// The directory for callgrind's output.
const OUTPUT: &str = "target/perf";
/// The operations in the shorter and in the longer run. No table and no vector grows between them: a hash table of 2 048
/// places holds 1 792 entries, and vectors grow at powers of two.
const COUNTS: [u64; 2] = [1_100, 1_700];
/// Makes the C library use the same copy and compare functions on every processor.
const TUNABLES: &str =
    "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-BMI2,-EVEX";
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign"];

/// The library that replaces clocks and randomness, and the path of its build.
const STILL_SOURCE: &str = "xtask/src/perf/still.c";
const STILL: &str = "target/perf/still.so";

/// The totals of one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Totals {
    instructions: u64,
    allocations: u64,
}

/// The program with the operations.
pub(super) struct Benchmark {
    operations: Vec<String>,
}

impl Benchmark {
    pub(super) fn open() -> Result<Self, String> {
        let output = shell::root().join(OUTPUT);
        fs::create_dir_all(&output).map_err(|error| format!("cannot make {}: {error}", output.display()))?;
        shell::run("cc", &["-O1", "-shared", "-fPIC", "-o", STILL, STILL_SOURCE])?;
        let names = shell::output(BINARY, &[])?;
        Ok(Self { operations: names.lines().map(str::to_owned).collect() })
    }

    /// Measures every operation. Runs as many processes at once as there are processors: a count does not depend on time.
    pub(super) fn measure_all(&self) -> Result<Vec<(String, Cost)>, String> {
        let runs: Vec<(&str, u64)> =
            self.operations.iter().flat_map(|name| COUNTS.map(|count| (name.as_str(), count))).collect();
        println!("\n— callgrind: {} operations", self.operations.len());
        let results = Mutex::new(vec![None; runs.len()]);
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((at, (name, count))) = runs.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                let result = run(name, *count);
                if let Ok(mut results) = results.lock() {
                    results[at] = Some(result);
                }
            }
        };
        std::thread::scope(|scope| {
            let workers = std::thread::available_parallelism().map_or(1, usize::from);
            (0..workers).for_each(|_| drop(scope.spawn(work)));
        });
        let results = results.into_inner().map_err(|_| "a run panicked")?;
        let totals: Vec<Totals> =
            results.into_iter().map(|result| result.unwrap_or(Err("not run".into()))).collect::<Result<_, _>>()?;
        let costs = self.operations.iter().zip(totals.chunks_exact(2));
        costs.map(|(name, pair)| Ok((name.clone(), cost(name, pair[0], pair[1])?))).collect()
    }
}

/// Computes the cost of one operation from a shorter and a longer run.
fn cost(name: &str, fewer: Totals, more: Totals) -> Result<Cost, String> {
    let operations = COUNTS[1] - COUNTS[0];
    let between = |fewer: u64, more: u64| more.checked_sub(fewer).ok_or(format!("{name}: more cost less"));
    let instructions = between(fewer.instructions, more.instructions)? / operations;
    // The preparation allocates. So zero allocations mean that callgrind has missed the allocator.
    if instructions == 0 || fewer.allocations == 0 {
        return Err(format!("{name}: callgrind saw nothing: {fewer:?}, {more:?}"));
    }
    let hundredths = (between(fewer.allocations, more.allocations)? * 100 + operations / 2) / operations;
    Ok(Cost { instructions, allocation_hundredths: hundredths })
}

fn run(name: &str, count: u64) -> Result<Totals, String> {
    let file: PathBuf = shell::root().join(OUTPUT).join(format!("{name}.{count}"));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--compress-strings=no", "--dump-line=no"]);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.args([BINARY, name, &count.to_string()]).current_dir(shell::root());
    // Every environment variable moves the stack, and so changes the counts.
    command.env_clear().env("PATH", "/usr/bin:/bin").env("GLIBC_TUNABLES", TUNABLES);
    command.env("LD_PRELOAD", shell::root().join(STILL));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| format!("cannot run valgrind: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed under valgrind:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let written = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    read(&written).ok_or(format!("{}: no totals", file.display()))
}

/// Reads the total, and the number of calls of an allocator.
fn read(written: &str) -> Option<Totals> {
    let total = written.lines().find_map(|line| line.strip_prefix("totals:").or(line.strip_prefix("summary:")))?;
    let mut allocations = 0;
    let mut is_allocator = false;
    for line in written.lines() {
        if let Some(called) = line.strip_prefix("cfn=") {
            is_allocator = ALLOCATORS.contains(&called);
        } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| is_allocator) {
            allocations += calls.split(' ').next()?.parse::<u64>().ok()?;
        }
    }
    Some(Totals { instructions: total.trim().parse().ok()?, allocations })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_calls_of_allocators_are_read() {
        let written = "events: Ir\nfn=0x1\n0 7\ncob=/lib/libc.so.6\ncfn=malloc\ncalls=3 0 \n0 90\ncfn=free\ncalls=5 0 \n0 40\n\
                       fn=0x2\ncfn=realloc\ncalls=2 0 \n0 9\n\ntotals: 1234\n";
        assert_eq!(read(written), Some(Totals { instructions: 1_234, allocations: 5 }));
        assert_eq!(read("events: Ir\n"), None);
    }

    #[test]
    fn an_operation_costs_what_lies_between_two_runs() {
        let fewer = Totals { instructions: 1_000, allocations: 50 };
        let more = Totals { instructions: 601_599, allocations: 950 };
        let cost_of = |more| cost("claim", fewer, more);
        assert_eq!(cost_of(more), Ok(Cost { instructions: 1_000, allocation_hundredths: 150 }));
        assert!(cost_of(fewer).is_err());
        assert!(cost("claim", Totals { allocations: 0, ..fewer }, more).is_err());
    }
}
