//! The first entry of a backup: what it holds, of which moment.

use crate::failure::Failure;
use firstcome::{Fault, FaultKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What marks the file as a backup of ours.
const KIND: &str = "firstcome_backup";
/// The version of the format. A program refuses a later one.
const FORMAT: u32 = 1;

/// What a backup holds. A later version of the same format may add fields.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Manifest {
    kind: String,
    format: u32,
    /// The version of firstcome that wrote it.
    program: String,
    /// The moment of the state. Every answer given before it is in the backup.
    pub(crate) taken_at: String,
    pub(super) files: Vec<ManifestFile>,
    /// The coupons with the claims that each has issued. Empty for a file of an older version.
    coupons: Vec<ManifestCoupon>,
}

/// A file in a backup. Its digest comes at the end.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ManifestFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The version of its tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checked: Option<Checked>,
    /// Rows, by table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) rows: BTreeMap<String, u64>,
}

impl ManifestFile {
    pub(super) fn of_keys(bytes: u64) -> Self {
        Self { name: crate::keys::KEYS_FILE.to_owned(), bytes, schema: None, checked: None, rows: BTreeMap::new() }
    }
}

/// How far a file was checked before it was written.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Checked {
    /// Every invariant, as `firstcome verify` does.
    Invariants,
    /// Its pages: the rows of an older version are checked by the start that brings it up to date.
    Pages,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ManifestCoupon {
    pub(super) name: String,
    pub(super) limit: u32,
    pub(super) issued: u64,
}

/// The fields that every format has.
#[derive(Deserialize)]
struct Mark {
    kind: String,
    format: u32,
    program: String,
}

impl Manifest {
    pub(super) fn new(taken_at: &str, files: Vec<ManifestFile>, coupons: Vec<ManifestCoupon>) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { kind: KIND.to_owned(), format: FORMAT, program, taken_at: taken_at.to_owned(), files, coupons }
    }

    /// Reads a manifest. Outer: is it of a format that this program knows? Inner: is it a manifest, or why not?
    pub(super) fn parse(text: &[u8]) -> Result<Result<Self, String>, Failure> {
        let unread = |error: serde_json::Error| format!("its manifest cannot be read: {error}");
        let mark: Mark = match serde_json::from_slice(text) {
            Ok(mark) => mark,
            Err(error) => return Ok(Err(unread(error))),
        };
        if mark.kind != KIND {
            return Ok(Err(format!("its manifest names another kind of file, {:?}", mark.kind)));
        }
        if FORMAT < mark.format {
            let (format, program) = (mark.format, mark.program);
            let detail = format!("the backup has format {format}, of firstcome {program}; this program reads {FORMAT}");
            return Err(Failure::Store(Fault::new(FaultKind::Newer, detail)));
        }
        Ok(serde_json::from_slice(text).map_err(unread))
    }

    /// Returns the bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// The tables whose rows the message at the end counts, with the word for them. A coupon that was deleted counts too.
const COUNTED: [(&str, &str); 7] = [
    ("coupon", "coupons"),
    ("claim", "claims"),
    ("room", "rooms"),
    ("ticket", "tickets"),
    ("listing", "listings"),
    ("member", "members"),
    ("hold", "locks held"),
];

impl fmt::Display for Manifest {
    /// Omits what there is none of, coupons and claims excepted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = |table: &str| self.files.iter().find_map(|file| file.rows.get(table)).copied().unwrap_or(0);
        let counts = COUNTED.iter().enumerate().map(|(at, (table, word))| (at, rows(table), word));
        let counts = counts.filter(|(at, count, _)| *at < 2 || 0 < *count);
        let counts: Vec<String> = counts.map(|(_, count, word)| format!("{count} {word}")).collect();
        write!(f, "{} as of {}", counts.join(", "), self.taken_at)
    }
}
