//! Secrets in a file: wrapped by the secret of a deployment if one is given, plain otherwise.

use anyhow::{Context, anyhow, bail};
use firstcome::cluster::DeploymentSecret;

/// The prefix of a wrapped secret.
const WRAPPED: &str = "wrapped:";

/// How a file holds secrets.
pub(super) struct Secrecy(pub(super) Option<DeploymentSecret>);

impl Secrecy {
    /// Whether the file holds secrets as plain text.
    pub(super) const fn is_plain(&self) -> bool {
        self.0.is_none()
    }

    /// Writes a secret as text. A wrapped secret is bound to its kind and to the name of its object.
    pub(super) fn put(&self, kind: &str, name: &str, secret: &[u8; 32]) -> anyhow::Result<String> {
        match &self.0 {
            Some(own) => Ok(format!("{WRAPPED}{}", own.wrap_for_export(kind, name, secret)?)),
            None => Ok(secret.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// Reads a secret from its text.
    pub(super) fn take(&self, field: &str, kind: &str, name: &str, text: &str) -> anyhow::Result<[u8; 32]> {
        match (&self.0, text.strip_prefix(WRAPPED)) {
            (None, None) => bytes(field, text),
            (Some(own), Some(wrapped)) => own.unwrap_of_export(kind, name, wrapped).with_context(|| {
                format!(
                    "{field} cannot be unwrapped: it was wrapped by another secret than the one that is given, or for something \
                     else, or was changed"
                )
            }),
            (None, Some(_)) => bail!(
                "{field} is wrapped: give the secret of the deployment for which it was exported, in FIRSTCOME_SECRET or with \
                 --secret-file FILE"
            ),
            (Some(_), None) => bail!(
                "{field} is plain, and a secret was given to unwrap it: export with the secret of the deployment, or import into a \
                 directory without one (no --secret-file, no FIRSTCOME_SECRET)"
            ),
        }
    }
}

/// Parses 32 bytes from hexadecimal digits.
pub(crate) fn bytes(field: &str, text: &str) -> anyhow::Result<[u8; 32]> {
    let wrong = || anyhow!("{field} is not 64 hexadecimal digits");
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}
