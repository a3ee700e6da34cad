//! The manual: one page with all commands, or a page for each command.

use crate::failure::Outcome;
use crate::output;
use anyhow::anyhow;
use std::fs;
use std::io;
use std::path::Path;

/// Prints one page with every command, or writes a page for each command into a directory.
pub(crate) fn run(program: clap::Command, directory: Option<&Path>) -> Outcome {
    match directory {
        Some(directory) => write_pages(program, directory),
        None => print(program),
    }
}

/// Writes `firstcome.1`, `firstcome-serve.1`, `firstcome-keys-create.1` and so on. Makes the directory if it is missing.
fn write_pages(program: clap::Command, directory: &Path) -> Outcome {
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(program, directory));
    let failed = |error: io::Error| {
        let directory = directory.display();
        anyhow!("cannot write the manual pages into {directory}: {error}; name a directory that this user may write to")
    };
    written.map_err(failed)?;
    Ok(())
}

fn print(mut program: clap::Command) -> Outcome {
    let mut page = Vec::new();
    program.build();
    clap_mangen::Man::new(program.clone()).render(&mut page)?;
    for sub in program.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        clap_mangen::Man::new(sub.clone()).title(format!("firstcome-{}", sub.get_name())).render(&mut page)?;
    }
    output::write_out(&page)?;
    Ok(())
}
