//! TLS for clients of stores and services, and for the service itself: one stack, rustls with ring.
//!
//! - [`TlsFiles`] names PEM files. [`TlsFiles::read`] reads and checks them once, where they are named.
//! - [`Trust`] is what was read: the certificate authorities that a client trusts, and its own certificate.
//! - [`ServerTls`] is the certificate of a server, which can be renewed while it serves.
//! - `inspect` looks at the certificate of a server, for a report, and `Validity` is when one counts (feature `inspect`).
//! - [`explain()`] says why a handshake failed, and what an operator can do.
//!
//! # Promises
//! - A [`Trust`] with its own authority trusts no other. Without one it trusts the authorities of the platform. The driver of the
//!   databases reads the same files itself, and trusts the authorities of the platform beside its own.
//! - A [`Trust`] exists only if its key belongs to its certificate.
//! - No error repeats the content of a file.
//!
//! # Not promised
//! - Revocation: no list of revoked certificates is read.
//! - TLS 1.1 and older: no connection uses them.

#![warn(missing_debug_implementations)]

mod error;
mod explain;
#[cfg(feature = "inspect")]
mod inspect;
mod server;
#[cfg(feature = "inspect")]
mod validity;

pub use error::{TlsError, TlsFileKind};
pub use explain::explain;
#[cfg(feature = "inspect")]
pub use inspect::{PeerCertificate, inspect};
pub use server::{Alpn, HTTP2_NAME, Renewal, ServerFiles, ServerTls};
#[cfg(feature = "inspect")]
pub use validity::Validity;

use rustls::client::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{InconsistentKeys, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The PEM files of a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFiles {
    /// The certificates of the authorities that alone are trusted; without it, those of the platform are.
    pub ca: Option<PathBuf>,
    /// The certificate of the client, followed by those between it and its authority.
    pub client_cert: Option<PathBuf>,
    /// The key of the client's certificate.
    pub client_key: Option<PathBuf>,
}

impl TlsFiles {
    /// Splits `cacert`, `cert` and `key` off the parameters of an address: the names of redis-cli and etcdctl. `decoded` decodes
    /// percent escapes.
    pub fn split_off<E>(url: &str, decoded: impl Fn(&str) -> Result<String, E>) -> Result<(String, Self), E> {
        let mut files = Self::default();
        let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), files)) };
        let mut others = Vec::new();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let file = match name {
                "cacert" => &mut files.ca,
                "cert" => &mut files.client_cert,
                "key" => &mut files.client_key,
                _ => {
                    others.push(pair);
                    continue;
                }
            };
            *file = Some(decoded(value)?.into());
        }
        let rest = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        Ok((rest, files))
    }

    /// Whether no file is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads all files, and checks that each has what it is for. Blocks.
    pub fn read(&self) -> Result<Trust, TlsError> {
        let ca = self.ca.as_deref().map(read_authorities).transpose()?;
        let identity = match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => Some(Identity::read(cert, key)?),
            (None, None) => None,
            (Some(cert), None) => {
                return Err(TlsError::HalfIdentity { missing: TlsFileKind::Key, given: cert.clone() });
            }
            (None, Some(key)) => {
                return Err(TlsError::HalfIdentity { missing: TlsFileKind::Certificate, given: key.clone() });
            }
        };
        Ok(Trust(Arc::new(Content { ca, identity })))
    }
}

/// Whom a client trusts, and how it identifies itself. Clones share the content.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Trust(Arc<Content>);

#[derive(PartialEq, Eq, Default)]
struct Content {
    ca: Option<Vec<u8>>,
    identity: Option<Identity>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own_ca, identity) = (self.0.ca.is_some(), self.0.identity.is_some());
        f.debug_struct("Trust").field("own_ca", &own_ca).field("identity", &identity).finish()
    }
}

/// A certificate and its key, as PEM.
#[derive(PartialEq, Eq)]
pub struct Identity {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    fn read(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let (cert_pem, key_pem) = (content(TlsFileKind::Certificate, cert)?, content(TlsFileKind::Key, key)?);
        let chain = certificates(TlsFileKind::Certificate, cert, &cert_pem)?;
        let secret = private_key(key, &key_pem)?;
        let config = builder().with_root_certificates(RootCertStore::empty()).with_client_auth_cert(chain, secret);
        match config {
            Ok(_) => Ok(Self { cert: cert_pem, key: key_pem }),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(TlsError::KeyMismatch { cert: cert.to_owned(), key: key.to_owned() })
            }
            Err(error) => {
                Err(TlsError::Unusable { kind: TlsFileKind::Key, path: key.to_owned(), says: error.to_string() })
            }
        }
    }

    /// The certificate and those between it and its authority, as PEM.
    pub fn certificate_pem(&self) -> &[u8] {
        &self.cert
    }

    /// The key, as PEM.
    pub fn key_pem(&self) -> &[u8] {
        &self.key
    }
}

impl Trust {
    /// The certificates of the only trusted authorities, as PEM; `None` if those of the platform are trusted.
    pub fn ca_pem(&self) -> Option<&[u8]> {
        self.0.ca.as_deref()
    }

    /// How the client identifies itself, if it does.
    pub fn identity(&self) -> Option<&Identity> {
        self.0.identity.as_ref()
    }

    /// Builds the configuration of a client that checks certificate and name of its server. Without an own authority
    /// it reads those of the platform, which blocks.
    pub fn client_config(&self) -> Result<ClientConfig, TlsError> {
        let config = builder().with_root_certificates(self.roots()?);
        let Some(Identity { cert, key }) = self.identity() else { return Ok(config.with_no_client_auth()) };
        // `read` has checked both.
        let chain = CertificateDer::pem_slice_iter(cert).filter_map(Result::ok).collect();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Machine { says: error.to_string() })?;
        config.with_client_auth_cert(chain, key).map_err(|error| TlsError::Machine { says: error.to_string() })
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        match self.ca_pem() {
            Some(pem) => {
                roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                // One that cannot be read is of no use, and hinders no other.
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
                    return Err(TlsError::NoPlatformRoots { why });
                }
            }
        }
        Ok(roots)
    }
}

/// Makes ring the provider of this process for libraries that ask for one. Does nothing if the process has one.
pub fn install_provider() {
    let _ = ring::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn builder() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    builder.expect("ring has cipher suites for TLS 1.2 and 1.3")
}

fn content(kind: TlsFileKind, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable =
        |error: std::io::Error| TlsError::Unreadable { kind, path: path.to_owned(), says: error.to_string() };
    std::fs::read(path).map_err(unreadable)
}

fn certificates(kind: TlsFileKind, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let unusable = |says: String| TlsError::Unusable { kind, path: path.to_owned(), says };
    match found {
        Ok(found) if found.is_empty() => Err(TlsError::Empty { kind, path: path.to_owned() }),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// Reads the authorities in a file, and returns its text.
fn read_authorities(path: &Path) -> Result<Vec<u8>, TlsError> {
    let kind = TlsFileKind::Authorities;
    let pem = content(kind, path)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(kind, path, &pem)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::Unusable { kind, path: path.to_owned(), says: error.to_string() })?;
    }
    Ok(pem)
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let kind = TlsFileKind::Key;
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        _ if has_passphrase(pem) => TlsError::Encrypted { path: path.to_owned() },
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::Empty { kind, path: path.to_owned() },
        error => TlsError::Unusable { kind, path: path.to_owned(), says: error.to_string() },
    })
}

/// Whether the text has a key under a passphrase: as PKCS #8, or in the older form of OpenSSL, with headers (RFC 1421).
fn has_passphrase(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "DEK-Info:"]
        .iter()
        .any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests;
