//! Secrets as they stand in a file: wrapped by the secret of a deployment where one is given, plain where none is.

use anyhow::{Context, anyhow, bail};
use firstcome::cluster::DeploymentSecret;

/// Before a secret that is wrapped.
const WRAPPED: &str = "wrapped:";

/// How secrets stand in a file.
pub(super) struct Secrecy(pub(super) Option<DeploymentSecret>);

impl Secrecy {
    /// Whether what is secret may stand in the file for everybody to read.
    pub(super) const fn is_plain(&self) -> bool {
        self.0.is_none()
    }

    /// A secret as text, bound to what it is of which kind.
    pub(super) fn put(&self, kind: &str, name: &str, secret: &[u8; 32]) -> anyhow::Result<String> {
        match &self.0 {
            Some(own) => Ok(format!("{WRAPPED}{}", own.wrap_for_export(kind, name, secret)?)),
            None => Ok(secret.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// The secret of a text.
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

/// 32 bytes from their digits.
pub(super) fn bytes(field: &str, text: &str) -> anyhow::Result<[u8; 32]> {
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
