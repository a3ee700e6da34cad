//! Chores of the project: `cargo xtask <command>`.

mod dashboard;
mod full;
mod mysql_login;
mod package;
mod perf;
mod sbom;
mod setup;
mod shell;
mod stale;
mod supply;
mod test;
mod tidy;
mod upgrade;
mod versions;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <command>

  test    everything that a change must pass: format, lints, tests, simulator, costs
          test beside is the part of it that needs no test: release build, costs, simulator, documentation
  full    what is too long for every change; writes its dated report to docs/full/
          full perf [COMMIT…] measures other commits beside this one, and adds them to the trend
          full package builds the Debian package, and plays its life in a fresh Debian
  versions  the promises of the stores over the oldest and the newest servers, as in test
  docs    writes docs/errors.md, docs/openapi.json and docs/configuration.md from the code
  figures writes the tables of docs/benchmarks.md and README.md and the plots in docs/plots from the reports in docs/full
  tidy    the project's own rules about its text; --mark says in stale reports that they are
  perf    instructions and allocations per operation, beside docs/perf.toml; --accept WHY writes that anew;
          --against COMMIT compares the wall clock with that commit's
  sbom    writes the crates in the program, with versions, licences and hashes, to target/firstcome.cdx.json (CycloneDX)
  setup   installs what the tests need on Debian, if it is not there
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => test::run(),
        ["test", "beside"] => test::beside(),
        ["full", "perf", commits @ ..] if !commits.is_empty() => full::trend(commits),
        ["full", names @ ..] => full::run(names),
        ["versions"] => versions::gate().map(|report| println!("{report}")),
        ["docs"] => docs(),
        ["figures"] => figures(),
        ["tidy"] => tidy::run(stale::Marks::Leave),
        ["tidy", "--mark"] => tidy::run(stale::Marks::Write),
        ["perf", options @ ..] => perf::run(options),
        ["sbom"] => sbom::run(sbom::FILE),
        ["setup"] => setup::run().and_then(|()| setup::peers()),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Generates tables and plots from the committed reports.
fn figures() -> shell::Outcome {
    for path in firstcome_figures::write(&shell::root())? {
        println!("  written: {}", path.display());
    }
    Ok(())
}

/// Generates the pages that come from the code.
fn docs() -> shell::Outcome {
    for (package, example) in [("firstcome-server", "write_docs"), ("firstcome-cli", "write_configuration")] {
        shell::run("cargo", &["run", "--quiet", "-p", package, "--example", example])?;
    }
    tidy::surface::write()
}
