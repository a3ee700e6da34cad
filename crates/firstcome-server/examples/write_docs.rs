//! Writes `docs/errors.md` and `docs/openapi.json` from the code: `cargo run -p firstcome-server --example write_docs`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::create_dir_all(&docs)?;
    std::fs::write(docs.join("errors.md"), firstcome_server::error::catalogue_markdown())?;
    std::fs::write(docs.join("openapi.json"), firstcome_server::api::openapi_json())
}
