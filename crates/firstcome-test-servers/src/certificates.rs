//! Certificates for servers under TLS, from an authority of the test's own.

use crate::CertificateFiles;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};
use tempfile::TempDir;

/// What is wrong with a certificate, if anything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing: it is for `127.0.0.1` and `localhost`.
    None,
    /// Its time is over.
    Expired,
    /// It ends in nine days and some hours.
    EndsSoon,
    /// It is for another name.
    OtherName,
}

/// A certificate authority, and the files of the certificates that it signed. The files go with it.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: TempDir,
    signed: u32,
}

impl Authority {
    /// Makes an authority, in a directory that servers of any user can read.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("firstcome-authority-").tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "firstcome test authority");
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let cert = params.self_signed(&key).map_err(io::Error::other)?;
        fs::write(directory.path().join("ca.pem"), cert.pem())?;
        Ok(Self { issuer: Issuer::new(params, key), directory, signed: 0 })
    }

    /// The certificate of the authority, as PEM.
    pub fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Signs a certificate, for servers and for clients.
    pub fn sign(&mut self, flaw: Flaw) -> io::Result<CertificateFiles> {
        let names = if flaw == Flaw::OtherName { vec!["other.example"] } else { vec!["127.0.0.1", "localhost"] };
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, "firstcome");
        if flaw == Flaw::Expired {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1));
        }
        if flaw == Flaw::EndsSoon {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), in_nine_days().into());
        }
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        self.signed += 1;
        let path = |what: &str| self.directory.path().join(format!("{what}-{}.pem", self.signed));
        let files = CertificateFiles { ca: self.ca(), cert: path("cert"), key: path("key") };
        fs::write(&files.cert, cert.pem())?;
        fs::write(&files.key, key.serialize_pem())?;
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600))?;
        Ok(files)
    }

    /// Makes the user as whom PostgreSQL runs the owner of a key, which it demands.
    pub fn give_to_postgres(files: &CertificateFiles) -> io::Result<()> {
        if rustix::process::geteuid().is_root() {
            let (user, group) = crate::install::postgres_user()?;
            chown(Path::new(&files.key), Some(user), Some(group))?;
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a certificate counts by the clock of this machine")]
fn in_nine_days() -> SystemTime {
    SystemTime::now() + Duration::from_secs(9 * 86_400 + 43_200)
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("directory", &self.directory.path()).finish_non_exhaustive()
    }
}
