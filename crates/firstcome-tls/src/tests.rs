use super::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::{AlertDescription, CertificateError};
use std::fs;
use tempfile::TempDir;

struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { directory: TempDir::new().expect("a directory") };
        let key = KeyPair::generate().expect("a key");
        let cert =
            CertificateParams::new(["db.example".to_owned()]).expect("a name").self_signed(&key).expect("signed");
        files.write("cert.pem", &cert.pem());
        files.write("key.pem", &key.serialize_pem());
        files.write("other-key.pem", &KeyPair::generate().expect("a key").serialize_pem());
        files.write("empty.pem", "no items here\n");
        files.write("torn.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
        files.write("junk.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, ca: &str, cert: &str, key: &str) -> Result<Trust, TlsError> {
        let path = |name: &str| (!name.is_empty()).then(|| self.path(name));
        TlsFiles { ca: path(ca), client_cert: path(cert), client_key: path(key) }.read()
    }
}

#[test]
fn right_files_are_read() {
    let files = Files::new();
    let trust = files.read("cert.pem", "cert.pem", "key.pem").expect("all is right");
    assert!(trust.ca_pem().is_some() && trust.identity().is_some());
    assert!(trust.client_config().is_ok());
    assert!(files.read("", "", "").expect("nothing is wrong").ca_pem().is_none());
    assert_eq!(format!("{trust:?}"), "Trust { own_ca: true, identity: true }");
}

#[test]
fn wrong_files_are_named_with_what_to_do() {
    let files = Files::new();
    for (ca, cert, key, code, says) in [
        ("missing.pem", "", "", "tls_file_unreadable", "check the path"),
        ("empty.pem", "", "", "tls_file_empty", "BEGIN CERTIFICATE"),
        ("key.pem", "", "", "tls_file_empty", "BEGIN CERTIFICATE"),
        ("torn.pem", "", "", "tls_file_unusable", "torn.pem"),
        ("junk.pem", "", "", "tls_file_unusable", "junk.pem"),
        ("", "cert.pem", "", "tls_half_identity", "without the key"),
        ("", "", "key.pem", "tls_half_identity", "without the certificate"),
        ("", "cert.pem", "missing.pem", "tls_file_unreadable", "missing.pem"),
        ("", "cert.pem", "cert.pem", "tls_file_empty", "BEGIN PRIVATE KEY"),
        ("", "cert.pem", "other-key.pem", "tls_key_mismatch", "other-key.pem does not belong"),
    ] {
        let error = files.read(ca, cert, key).expect_err("something is wrong");
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(text.contains(says) && !text.contains('\n'), "{ca} {cert} {key}: {text}");
    }
}

#[test]
fn a_failed_handshake_is_explained_also_inside_other_errors() {
    let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let inside: Arc<dyn std::error::Error + Send + Sync> =
        Arc::new(std::io::Error::new(std::io::ErrorKind::InvalidData, unknown.clone()));
    for error in [&unknown as &(dyn std::error::Error + 'static), &inside] {
        let says = explain(error).expect("it is of TLS");
        assert!(says.contains("name the CA that signed it in the address"), "{says}");
    }
    let demanded = explain(&rustls::Error::AlertReceived(AlertDescription::CertificateRequired));
    assert!(demanded.is_some_and(|says| says.contains("demands a client certificate")));
    assert_eq!(explain(&std::io::Error::from(std::io::ErrorKind::ConnectionRefused)), None);
}

#[test]
fn a_renewed_certificate_replaces_the_old_one_and_a_bad_one_does_not() {
    let files = Files::new();
    let server = ServerFiles { cert: files.path("cert.pem"), key: files.path("key.pem") };
    let tls = ServerTls::read(server).expect("all is right");
    let first = tls.config(Alpn::Http2AndHttp1);
    assert_eq!(tls.renew(), Ok(Renewal::Unchanged));
    let wrong = ServerFiles { cert: files.path("cert.pem"), key: files.path("other-key.pem") };
    assert_eq!(ServerTls::read(wrong).expect_err("another key").code(), "tls_key_mismatch");

    let key = KeyPair::generate().expect("a key");
    let cert = CertificateParams::new(["db.example".to_owned()]).expect("a name").self_signed(&key).expect("signed");
    files.write("key.pem", &key.serialize_pem());
    assert_eq!(tls.renew().expect_err("the certificate is the old one").code(), "tls_key_mismatch");
    assert!(Arc::ptr_eq(&first, &tls.config(Alpn::Http2AndHttp1)), "the old one stays");
    files.write("cert.pem", &cert.pem());
    assert_eq!(tls.renew(), Ok(Renewal::Changed));
    assert!(!Arc::ptr_eq(&first, &tls.config(Alpn::Http2AndHttp1)));
}
