//! When a certificate counts.

use super::TlsError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

/// The time in which a certificate counts, in seconds of Unix time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// The first second.
    pub begins_s: i64,
    /// The last second.
    pub ends_s: i64,
}

impl Validity {
    /// Returns the time of the first certificate in a text, which is the one of this side.
    pub(crate) fn of_pem(pem: &[u8]) -> Option<Self> {
        let certificate = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
        let (_, read) = X509Certificate::from_der(&certificate).ok()?;
        let validity = read.validity();
        Some(Self { begins_s: validity.not_before.timestamp(), ends_s: validity.not_after.timestamp() })
    }

    /// Says what is wrong with the certificate in this file if it does not count now.
    pub(crate) fn check(self, file: &Path, now_s: i64) -> Result<(), TlsError> {
        let path = file.to_owned();
        if now_s < self.begins_s {
            return Err(TlsError::NotBegun { path, begins: text(self.begins_s) });
        }
        if self.ends_s < now_s {
            return Err(TlsError::Ended { path, ended: text(self.ends_s) });
        }
        Ok(())
    }
}

/// A second of Unix time as in RFC 3339. A certificate has no other times than those of the years 0 to 9999.
fn text(unix_s: i64) -> String {
    let Ok(time) = ASN1Time::from_timestamp(unix_s) else { return format!("second {unix_s} of Unix time") };
    let time = time.to_datetime();
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}
