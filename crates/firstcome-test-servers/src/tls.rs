//! Settings with which a server offers TLS.

use crate::Kind;
use std::path::PathBuf;

/// The files of one certificate, as PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate of the authority that signed it.
    pub ca: PathBuf,
    /// The certificate.
    pub cert: PathBuf,
    /// Its key. Only its owner can read it.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The settings with which PostgreSQL or MariaDB offers TLS with this certificate, at its only port.
    pub fn settings(&self, kind: Kind) -> Vec<String> {
        let (cert, key) = (self.cert.display(), self.key.display());
        match kind {
            Kind::Postgres => vec!["ssl=on".to_owned(), format!("ssl_cert_file={cert}"), format!("ssl_key_file={key}")],
            _ => vec![format!("ssl-cert={cert}"), format!("ssl-key={key}")],
        }
    }

    /// The address at which etcd offers TLS beside its plain one, and the settings for it.
    pub(crate) fn of_etcd(&self, port: u16) -> Vec<(&'static str, String)> {
        vec![
            ("url", format!("https://127.0.0.1:{port}")),
            ("cert-file", self.cert.display().to_string()),
            ("key-file", self.key.display().to_string()),
        ]
    }

    /// The settings with which Redis offers TLS at a further port, and uses it to its replicas, nodes and sentinels.
    pub(crate) fn of_redis(&self, port: u16) -> Vec<(&'static str, String)> {
        let file = |path: &PathBuf| path.display().to_string();
        vec![
            ("tls-port", port.to_string()),
            ("tls-cert-file", file(&self.cert)),
            ("tls-key-file", file(&self.key)),
            ("tls-ca-cert-file", file(&self.ca)),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-replication", "yes".to_owned()),
            ("tls-cluster", "yes".to_owned()),
        ]
    }
}
