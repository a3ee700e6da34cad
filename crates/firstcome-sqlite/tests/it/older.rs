//! Files as earlier versions left them.

use firstcome_sqlite as sqlite;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// Makes the file of an earlier version in a directory, by the steps that this version had.
pub(crate) fn file_of_version(directory: &Path, version: usize) -> Connection {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let entries = std::fs::read_dir(source).expect("the directory of the steps");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut steps: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "sql")).collect();
    steps.sort();
    let file = Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("a file");
    for step in &steps[..version] {
        file.execute_batch(&std::fs::read_to_string(step).expect("a step")).expect("the step runs");
    }
    file.pragma_update(None, "application_id", 0x4643_4f4d).expect("it can be set");
    file.pragma_update(None, "user_version", version as i32).expect("it can be set");
    file
}

/// Puts the paused room `sale` into such a file, and the secret of its passes.
pub(crate) fn put_sale(file: &Connection, waiting_ttl_ms: i64, at: i64) {
    let put = "INSERT INTO room (id, name, max_active, max_waiting, waiting_ttl_ms, active_ttl_ms, claim_window_ms, paused,
        ticket_key, first, reached, created_at, changed_at) VALUES (1, 'sale', 1, 9, ?1, 60000, 60000, 1, ?2, 1, 1, ?3, ?3)";
    file.execute(put, (waiting_ttl_ms, [7_u8; 32], at)).expect("a room");
    file.execute("INSERT INTO pass_secret (id, secret, created_at) VALUES (1, ?1, ?2)", ([8_u8; 32], at)).expect("one");
}
