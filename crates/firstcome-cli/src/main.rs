//! The program `firstcome`.

use std::process::ExitCode;

fn main() -> ExitCode {
    firstcome_cli::run()
}
