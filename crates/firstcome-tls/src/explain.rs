//! Says why a handshake failed.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

/// Says why a TLS handshake failed and what to do, if the error or one of its causes is of TLS. One line.
pub fn explain(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(of_rustls(error));
        }
        // Neither shows its content as its cause.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
            && let Some(says) = explain(inner)
        {
            return Some(says);
        }
        if let Some(inner) = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>()
            && let Some(says) = explain(&**inner)
        {
            return Some(says);
        }
        next = error.source();
    }
    None
}

fn of_rustls(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(wrong) => of_certificate(wrong),
        Error::InvalidMessage(_) => {
            format!(
                "the server does not speak TLS at this port ({error}); check the port and the scheme of the address"
            )
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13) => {
            "the server offers no TLS 1.2 or 1.3; switch one of them on at the server".to_owned()
        }
        _ => format!("the TLS handshake failed: {error}"),
    }
}

fn of_certificate(wrong: &CertificateError) -> String {
    match wrong {
        // The latter if the trusted authority has the name of the one that signed, as after a change of its key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!(
                "the certificate of the server is not from a trusted authority ({wrong}); name the CA that signed it \
                 in the address"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of the server is out of date ({wrong}); renew it, and check the clocks")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of the server is not valid yet ({wrong}); check the clocks")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the certificate of the server is for another name ({wrong}); write a name that it has")
        }
        // The name of this error of webpki, which rustls does not repeat as its own.
        CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => {
            format!(
                "the certificate of the server is that of an authority itself ({other}), as a self-signed one often is; \
                 sign one for the server with it, and name the authority in the address"
            )
        }
        _ => format!("the certificate of the server was refused: {wrong}"),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server demands a client certificate; name one and its key in the address".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied => {
            format!("the server refused the client certificate ({alert:?}); name one that it trusts, and its key")
        }
        AlertDescription::ProtocolVersion => {
            "the server offers no TLS 1.2 or 1.3; switch one of them on at the server".to_owned()
        }
        _ => format!("the server ended the TLS handshake ({alert:?}); see its log"),
    }
}
