//! Builds what operators install, and tries it: the Debian package in a fresh Debian, and the chart with Helm.

use crate::{sbom, setup, shell};
use std::fs;

/// As in the metadata of the package.
const MAINTAINER: &str = "The firstcome authors <maintainers@firstcome.example>";
const CARGO_DEB: &str = "3.8.0";
/// The files that the program writes about itself, for the package.
const DIRECTORY: &str = "target/package";
const PROGRAM: &str = "target/release/firstcome";

/// Builds the package and the manifests of the chart, and checks both.
pub(crate) fn run() -> Result<String, String> {
    setup::debootstrap()?;
    setup::cargo_tool("cargo-deb", CARGO_DEB)?;
    shell::run("cargo", &["build", "--quiet", "--release", "--locked", "-p", "firstcome-cli"])?;
    let version = shell::output(PROGRAM, &["--version"])?;
    let version = version.trim().trim_start_matches("firstcome ");
    let package = package(version)?;
    let lived = shell::output("xtask/package.sh", &[&package, version])?;
    let size = fs::metadata(shell::root().join(&package)).map_err(|error| error.to_string())?.len();
    let name = package.rsplit('/').next().unwrap_or(&package);
    Ok(format!("{name}, {} kB\n\n{lived}\n{}", size / 1_000, chart()?))
}

/// Builds the package from the built program. Returns its path.
fn package(version: &str) -> Result<String, String> {
    let directory = shell::root().join(DIRECTORY);
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    for shell_name in ["bash", "fish", "zsh"] {
        let name = format!("firstcome.{shell_name}");
        let text = shell::output(PROGRAM, &["completions", shell_name])?;
        fs::write(directory.join(&name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    manual_pages()?;
    sbom::run(&format!("{DIRECTORY}/firstcome.cdx.json"))?;
    fs::write(directory.join("changelog"), changelog(version)?).map_err(|error| format!("changelog: {error}"))?;
    // The program is stripped by its profile.
    let deb = ["deb", "--no-build", "--no-strip", "--locked", "-p", "firstcome-cli", "--output", DIRECTORY];
    let printed = shell::output("cargo", &deb)?;
    let path = printed.lines().rev().find(|line| line.ends_with(".deb")).ok_or("cargo deb names no package")?;
    let name = path.rsplit('/').next().unwrap_or(path);
    Ok(format!("{DIRECTORY}/{name}"))
}

/// Writes a manual page for each command. Removes those of an earlier build, whose commands may be gone.
fn manual_pages() -> Result<(), String> {
    let pages = format!("{DIRECTORY}/man");
    let directory = shell::root().join(&pages);
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(|error| format!("{pages}: {error}"))?;
    }
    shell::output(PROGRAM, &["man", &pages]).map(drop)
}

/// Writes the entry of this version in the format of Debian, which leads to the changelog of the project.
fn changelog(version: &str) -> Result<String, String> {
    let date = shell::output("git", &["log", "-1", "--format=%cD"])?;
    Ok(format!(
        "firstcome ({version}-1) unstable; urgency=medium\n\n  * See NEWS.md in this directory.\n\n -- {MAINTAINER}  {}\n",
        date.trim()
    ))
}

/// Renders the chart, and decodes each object as the API server of Kubernetes does.
fn chart() -> Result<String, String> {
    if !shell::has("go") {
        return Err("the chart needs Go, which builds Helm".to_owned());
    }
    shell::output("xtask/chart/check.sh", &[])
}
