//! Writes `docs/configuration.md` from the code: `cargo run -p firstcome-cli --example write_configuration`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::write(page, firstcome_cli::configuration_markdown())
}
