//! What can be wrong with the files of TLS.

use std::fmt;
use std::path::PathBuf;

/// What a PEM file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TlsFileKind {
    /// The certificates of trusted authorities.
    Authorities,
    /// A certificate of this side.
    Certificate,
    /// The key of a certificate of this side.
    Key,
}

impl TlsFileKind {
    /// What such a file has to have.
    const fn wanted(self) -> &'static str {
        match self {
            Self::Authorities | Self::Certificate => "\"-----BEGIN CERTIFICATE-----\"",
            Self::Key => "\"-----BEGIN PRIVATE KEY-----\" without a passphrase",
        }
    }
}

impl fmt::Display for TlsFileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authorities => "CA certificates",
            Self::Certificate => "certificate",
            Self::Key => "key",
        })
    }
}

/// Why files cannot be used for TLS. Each is one line that names the file and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read the {kind} in {path}: {says}; check the path and the rights of this user", path = path.display())]
    Unreadable {
        /// What the file is for.
        kind: TlsFileKind,
        /// The file.
        path: PathBuf,
        /// What the system says.
        says: String,
    },
    /// The file has no such item.
    #[error("{path} has no {kind}: name a PEM file with {}", kind.wanted(), path = path.display())]
    Empty {
        /// What the file is for.
        kind: TlsFileKind,
        /// The file.
        path: PathBuf,
    },
    /// An item of the file cannot be read.
    #[error("the {kind} in {path} cannot be used ({says}): write the file again as PEM", path = path.display())]
    Unusable {
        /// What the file is for.
        kind: TlsFileKind,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        says: String,
    },
    /// The key belongs to another certificate.
    #[error("the key in {key} does not belong to the certificate in {cert}: name the two files of one certificate", key = key.display(), cert = cert.display())]
    KeyMismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The key has a passphrase.
    #[error("the key in {path} has a passphrase, and keys with a passphrase are not read: write it without one, by openssl pkey -in {path} -out FILE", path = path.display())]
    Encrypted {
        /// The file of the key.
        path: PathBuf,
    },
    /// The time of the certificate is over.
    #[error("the certificate in {path} is out of date since {ended}: renew it, and check the clock of this machine", path = path.display())]
    Ended {
        /// The file of the certificate.
        path: PathBuf,
        /// Its end, as in RFC 3339.
        ended: String,
    },
    /// The time of the certificate has not come.
    #[error("the certificate in {path} is not valid before {begins}: name one that is, and check the clock of this machine", path = path.display())]
    NotBegun {
        /// The file of the certificate.
        path: PathBuf,
        /// Its begin, as in RFC 3339.
        begins: String,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("{given} was named without the {missing}: a certificate and its key are named together", given = given.display())]
    HalfIdentity {
        /// What was not named.
        missing: TlsFileKind,
        /// The file that was named.
        given: PathBuf,
    },
    /// The platform trusts no authority.
    #[error("this machine trusts no certificate authority{why}: install the package ca-certificates, or name a CA")]
    NoPlatformRoots {
        /// Why, in brackets, or nothing.
        why: String,
    },
    /// TLS cannot be set up on this machine.
    #[error("TLS cannot be set up: {says}")]
    Machine {
        /// What is wrong.
        says: String,
    },
}

impl TlsError {
    /// The stable code of this error. Codes may be added and never change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "tls_file_unreadable",
            Self::Empty { .. } => "tls_file_empty",
            Self::Unusable { .. } => "tls_file_unusable",
            Self::KeyMismatch { .. } => "tls_key_mismatch",
            Self::Encrypted { .. } => "tls_key_encrypted",
            Self::Ended { .. } => "tls_certificate_ended",
            Self::NotBegun { .. } => "tls_certificate_not_begun",
            Self::HalfIdentity { .. } => "tls_half_identity",
            Self::NoPlatformRoots { .. } => "tls_no_platform_roots",
            Self::Machine { .. } => "tls_machine",
        }
    }
}
