//! The worker code that the lock benchmark shares with `bench/lock-peers`. The benchmarks themselves are in the
//! program.

pub mod bench_worker;
