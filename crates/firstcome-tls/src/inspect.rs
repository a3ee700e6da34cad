//! Looks at the certificate of a server, for reports. No data is sent, and nothing is trusted.

use super::{builder, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConnection, DigitallySignedStruct, ProtocolVersion, SignatureScheme};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a server shows of itself in a handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerCertificate {
    /// The version of TLS, as `TLSv1.3`; `None` if the server ended the handshake before it was agreed.
    pub version: Option<&'static str>,
    /// For whom the certificate is, as `CN=…`. Empty if it names servers by their alternative names alone.
    pub subject: String,
    /// Who signed it, as `CN=…`.
    pub issuer: String,
    /// The last second in which it counts, in seconds of Unix time.
    pub ends_s: i64,
}

/// Begins TLS over a connection, and returns what the server shows. `name` is its host, without port and brackets.
///
/// The server proves that it has the key of the certificate. Neither authority nor name nor time of the certificate is checked:
/// use this for no connection that carries data. Blocks as long as the stream lets it.
pub fn inspect(stream: &mut (impl Read + Write), name: &str) -> io::Result<PeerCertificate> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let shown = Arc::new(Shown::default());
    let verifier: Arc<dyn ServerCertVerifier> = Arc::clone(&shown) as _;
    let config = builder().dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let shaken = loop {
        match session.complete_io(stream) {
            Ok(_) if session.is_handshaking() => {}
            ended => break ended,
        }
    };
    let version = session.protocol_version();
    session.send_close_notify();
    // A courtesy: the server may be gone.
    let _ = session.write_tls(stream);
    let certificate = shown.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (certificate, shaken) {
        // A server that demands a client certificate has shown its own before.
        (Some(certificate), _) => read(&certificate, version),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Err(io::Error::other("the server shows no certificate")),
    }
}

fn read(certificate: &CertificateDer<'_>, version: Option<ProtocolVersion>) -> io::Result<PeerCertificate> {
    let (_, read) = X509Certificate::from_der(certificate).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(PeerCertificate {
        version: match version {
            Some(ProtocolVersion::TLSv1_2) => Some("TLSv1.2"),
            Some(ProtocolVersion::TLSv1_3) => Some("TLSv1.3"),
            _ => None,
        },
        subject: printable(&read.subject().to_string()),
        issuer: printable(&read.issuer().to_string()),
        ends_s: read.validity().not_after.timestamp(),
    })
}

/// Replaces what could change a terminal: the server chose the text.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// The certificate that the server has shown.
#[derive(Debug, Default)]
struct Shown(Mutex<Option<CertificateDer<'static>>>);

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
