//! The keys of the service that a drill plays against: given as such, by a variable, or in a file.

use super::server::KeyPair;
use super::{EventArgs, draw_key};
use crate::failure::Failure;
use anyhow::{Context, anyhow, ensure};
use std::path::{Path, PathBuf};

impl EventArgs {
    /// Returns the keys of the service at `--url`, or drawn ones for a service that the drill starts.
    pub(super) fn keys(&self) -> Result<KeyPair, Failure> {
        let admin = given("--admin-key", self.admin_key.as_ref(), self.admin_key_file.as_ref());
        let service = given("--service-key", self.service_key.as_ref(), self.service_key_file.as_ref());
        let (admin, service) = (admin.map_err(Failure::Usage)?, service.map_err(Failure::Usage)?);
        if self.url.is_some() && (admin.is_none() || service.is_none()) {
            return Err(Failure::Usage(anyhow!(
                "--url needs both keys of the service: give --admin-key-file and --service-key-file, or \
                 FIRSTCOME_DRILL_ADMIN_KEY and FIRSTCOME_DRILL_SERVICE_KEY"
            )));
        }
        let drawn = |given: Option<String>| given.map_or_else(draw_key, Ok);
        Ok(KeyPair { admin: drawn(admin)?, service: drawn(service)? })
    }
}

/// Returns the key that a flag or its variable names, or that their file contains.
fn given(flag: &str, key: Option<&String>, file: Option<&PathBuf>) -> anyhow::Result<Option<String>> {
    ensure!(key.is_none() || file.is_none(), "set {flag} or {flag}-file, by a flag or a variable, not both");
    match file {
        Some(path) => of_file(flag, path).map(Some),
        None => Ok(key.cloned()),
    }
}

/// Reads the key in a file. No error repeats its content.
fn of_file(flag: &str, path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{flag}-file: cannot read {shown}"))?;
    let key = text.trim();
    ensure!(
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()),
        "{flag}-file: {shown} must contain one key of visible ASCII characters, and nothing else"
    );
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_contains_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(given("--admin-key", None, Some(&path)).is_err(), "there is no file");
        for (text, expected) in [("s3cret\n", Some("s3cret")), ("", None), ("s3cret other", None), ("a\nb\n", None)] {
            std::fs::write(&path, text).unwrap();
            let read = given("--admin-key", None, Some(&path));
            assert!(read.as_ref().err().is_none_or(|error| !error.to_string().contains("s3cret")), "{read:?}");
            assert_eq!(read.ok().flatten().as_deref(), expected, "{text:?}");
        }
        assert!(given("--admin-key", Some(&"s3cret".to_owned()), Some(&path)).is_err(), "both");
        assert_eq!(given("--admin-key", None, None).unwrap(), None);
    }
}
