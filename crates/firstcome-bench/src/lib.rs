//! What the benchmark of locks shares with the locks of others in `bench/lock-peers`. The benchmarks themselves are the program.

pub mod bench_worker;
