//! The certificate of a server, which an operator renews while it serves.

#[cfg(feature = "inspect")]
use super::Validity;
use super::{TlsError, TlsFileKind, certificates, content, private_key, provider};
use rustls::{InconsistentKeys, ServerConfig};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// The PEM files of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerFiles {
    /// The certificate, followed by those between it and its authority.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Whether a renewal changed anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The files have the same content as before.
    Unchanged,
    /// New connections get the new certificate. Open ones go on as they are.
    Changed,
}

/// The certificate with which a server accepts TLS 1.2 and 1.3. Clones share it, and a renewal reaches all of them.
#[derive(Clone)]
pub struct ServerTls(Arc<Shared>);

struct Shared {
    files: ServerFiles,
    now: RwLock<Current>,
}

struct Current {
    cert: Vec<u8>,
    key: Vec<u8>,
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
}

/// The protocols that a port offers in the handshake (RFC 7301).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alpn {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2, and HTTP/1.1 for clients that do not offer it.
    Http2AndHttp1,
}

/// How a handshake names HTTP/2.
pub const HTTP2_NAME: &[u8] = b"h2";

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.0.files).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads a certificate and its key, and checks that they belong together. Blocks.
    pub fn read(files: ServerFiles) -> Result<Self, TlsError> {
        let now = RwLock::new(read(&files)?);
        Ok(Self(Arc::new(Shared { files, now })))
    }

    /// Reads the files again. After an error the certificate before stays. Blocks.
    pub fn renew(&self) -> Result<Renewal, TlsError> {
        Ok(self.replace(read(&self.0.files)?))
    }

    /// [`Self::renew`], but a new certificate that does not count now is an error too. Now is in seconds of Unix time. Blocks.
    #[cfg(feature = "inspect")]
    pub fn renew_valid(&self, now_s: i64) -> Result<Renewal, TlsError> {
        let new = read(&self.0.files)?;
        if !self.is_current(&new)
            && let Some(validity) = Validity::of_pem(&new.cert)
        {
            validity.check(&self.0.files.cert, now_s)?;
        }
        Ok(self.replace(new))
    }

    /// Says what is wrong if the certificate does not count now, which is in seconds of Unix time.
    #[cfg(feature = "inspect")]
    pub fn check_validity(&self, now_s: i64) -> Result<(), TlsError> {
        self.validity().map_or(Ok(()), |validity| validity.check(&self.0.files.cert, now_s))
    }

    /// Returns when the certificate counts; `None` if that cannot be read.
    #[cfg(feature = "inspect")]
    pub fn validity(&self) -> Option<Validity> {
        Validity::of_pem(&self.0.now.read().unwrap_or_else(PoisonError::into_inner).cert)
    }

    #[cfg(feature = "inspect")]
    fn is_current(&self, new: &Current) -> bool {
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        (&new.cert, &new.key) == (&now.cert, &now.key)
    }

    fn replace(&self, new: Current) -> Renewal {
        let mut now = self.0.now.write().unwrap_or_else(PoisonError::into_inner);
        if (&new.cert, &new.key) == (&now.cert, &now.key) {
            return Renewal::Unchanged;
        }
        *now = new;
        Renewal::Changed
    }

    /// The configuration for the next connection, which offers these protocols.
    pub fn config(&self, offer: Alpn) -> Arc<ServerConfig> {
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(match offer {
            Alpn::Http1 => &now.http1,
            Alpn::Http2AndHttp1 => &now.http2,
        })
    }
}

fn read(files: &ServerFiles) -> Result<Current, TlsError> {
    let ServerFiles { cert: cert_path, key: key_path } = files;
    let (cert, key) = (content(TlsFileKind::Certificate, cert_path)?, content(TlsFileKind::Key, key_path)?);
    let chain = certificates(TlsFileKind::Certificate, cert_path, &cert)?;
    let secret = private_key(key_path, &key)?;
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| TlsError::Machine { says: error.to_string() })?;
    let config = builder.with_no_client_auth().with_single_cert(chain, secret);
    let mut config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::KeyMismatch { cert: cert_path.clone(), key: key_path.clone() }
        }
        error => {
            TlsError::Unusable { kind: TlsFileKind::Certificate, path: cert_path.clone(), says: error.to_string() }
        }
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut http2 = config.clone();
    http2.alpn_protocols.insert(0, HTTP2_NAME.to_vec());
    Ok(Current { cert, key, http1: Arc::new(config), http2: Arc::new(http2) })
}
