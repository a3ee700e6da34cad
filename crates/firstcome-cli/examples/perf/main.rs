//! One operation of the hot paths, some times over: what `cargo xtask perf` counts under callgrind.
//!
//! `perf` prints the names of all operations; `perf NAME COUNT` prepares everything, does the operation `COUNT` times, and ends
//! without tidying up. The preparation is the same for every count. So the difference of two runs is the cost of the operations
//! between them, and nothing in the program has to be marked.
//!
//! Every run does the same: one thread, a clock of the store that stands where it is put, a writer that is stepped by hand, a
//! runtime with a fixed seed. The rest of chance and time is that of the machine here; `cargo xtask perf` takes it away too.
//!
//! It is an example of this package, since examples are built with exactly the dependencies and features of the program: the
//! gate's optimised build of the program is used again, and the code that is counted is the code that is shipped.

mod http;
mod locks;
mod world;

use std::process::ExitCode;

/// The number of operations whose inputs are prepared. It is the same for every count, so that preparing them cancels out.
const COUNT_MAX: usize = 1_800;

type Operation = (&'static str, fn(usize));

const OPERATIONS: [Operation; 18] = [
    ("claim", world::claim),
    ("sold-out", world::sold_out),
    ("duplicate", world::duplicate),
    ("poll", world::poll),
    ("join", world::join),
    ("admit-tick", world::admit_tick),
    ("bid", world::bid),
    ("lock-rules", locks::rules),
    ("lock-rules-shared", locks::rules_shared),
    ("lock-hand-over", locks::hand_over),
    ("lock-acquire-bytes", locks::acquire_bytes),
    ("lock-release-bytes", locks::release_bytes),
    ("http-claim", http::claim),
    ("http-sold-out", http::sold_out),
    ("http-poll", http::poll),
    ("http-bid", http::bid),
    ("http-join-work", http::join_with_work),
    ("http-join-no-work", http::join_without_work),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            OPERATIONS.iter().for_each(|(name, _)| println!("{name}"));
            ExitCode::SUCCESS
        }
        [name, count] => {
            let operation = OPERATIONS.iter().find(|(known, _)| known == name);
            let count = count.parse().ok().filter(|count| *count <= COUNT_MAX);
            let (Some((_, operation)), Some(count)) = (operation, count) else {
                eprintln!("perf: no operation {name} {count:?}, or more than {COUNT_MAX} of it");
                return ExitCode::from(2);
            };
            operation(count);
            // The world is forgotten: dropping it costs more after more operations.
            std::process::exit(0)
        }
        _ => {
            eprintln!("usage: perf [NAME COUNT]");
            ExitCode::from(2)
        }
    }
}
