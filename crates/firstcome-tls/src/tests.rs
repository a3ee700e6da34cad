use super::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::{AlertDescription, CertificateError, ClientConnection, ServerConnection};
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
        files.write("pkcs8.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
        let headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n";
        let old = format!("-----BEGIN RSA PRIVATE KEY-----\n{headers}\nAAAA\n-----END RSA PRIVATE KEY-----\n");
        files.write("old.pem", &old);
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
        ("", "cert.pem", "pkcs8.pem", "tls_key_encrypted", "pkcs8.pem -out FILE"),
        ("", "cert.pem", "old.pem", "tls_key_encrypted", "keys with a passphrase are not read"),
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

/// Lets a client that trusts this certificate alone shake hands with a server that has it, and returns why it does not.
fn handshake(files: &Files) -> rustls::Error {
    let server = ServerFiles { cert: files.path("cert.pem"), key: files.path("key.pem") };
    let server = ServerTls::read(server).expect("all is right").config(Alpn::Http1);
    let client = files.read("cert.pem", "", "").expect("it is a certificate").client_config().expect("a configuration");
    let name = "db.example".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(client), name).expect("a session");
    let mut server = ServerConnection::new(server).expect("a session");
    loop {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("into memory");
        server.read_tls(&mut bytes.as_slice()).expect("from memory");
        server.process_new_packets().expect("the client says nothing wrong");
        bytes.clear();
        server.write_tls(&mut bytes).expect("into memory");
        client.read_tls(&mut bytes.as_slice()).expect("from memory");
        if let Err(error) = client.process_new_packets() {
            return error;
        }
        assert!(client.is_handshaking(), "the certificate was accepted");
    }
}

#[test]
fn the_certificate_of_an_authority_itself_is_explained() {
    let files = Files::new();
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["db.example".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    files.write("cert.pem", &params.self_signed(&key).expect("signed").pem());
    files.write("key.pem", &key.serialize_pem());
    let says = explain(&handshake(&files)).expect("it is of TLS");
    assert!(says.contains("of an authority itself") && says.contains("sign one for the server with it"), "{says}");
}

#[cfg(feature = "inspect")]
#[test]
fn a_certificate_counts_from_its_first_to_its_last_second_and_a_renewal_by_another_is_refused() {
    const BEGINS_S: i64 = 1_577_836_800;
    const ENDS_S: i64 = 1_580_515_200;
    let files = Files::new();
    let sign = |days: [(i32, u8, u8); 2]| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["db.example".to_owned()]).expect("a name");
        [params.not_before, params.not_after] = days.map(|(year, month, day)| rcgen::date_time_ymd(year, month, day));
        files.write("cert.pem", &params.self_signed(&key).expect("signed").pem());
        files.write("key.pem", &key.serialize_pem());
    };
    sign([(2020, 1, 1), (2020, 2, 1)]);
    let tls = ServerTls::read(ServerFiles { cert: files.path("cert.pem"), key: files.path("key.pem") });
    let tls = tls.expect("a start takes it");
    assert_eq!(tls.validity(), Some(Validity { begins_s: BEGINS_S, ends_s: ENDS_S }));
    assert_eq!((tls.check_validity(BEGINS_S), tls.check_validity(ENDS_S)), (Ok(()), Ok(())));
    let says = |now_s| tls.check_validity(now_s).expect_err("it does not count").to_string();
    assert!(says(BEGINS_S - 1).contains("cert.pem is not valid before 2020-01-01T00:00:00Z"), "{}", says(BEGINS_S - 1));
    assert!(says(ENDS_S + 1).contains("cert.pem is out of date since 2020-02-01T00:00:00Z"), "{}", says(ENDS_S + 1));
    assert_eq!(tls.renew_valid(ENDS_S + 1), Ok(Renewal::Unchanged), "it is no other");

    let first = tls.config(Alpn::Http1);
    sign([(2020, 1, 1), (2020, 1, 15)]);
    assert_eq!(tls.renew_valid(ENDS_S).expect_err("it has ended").code(), "tls_certificate_ended");
    sign([(2020, 2, 2), (2021, 1, 1)]);
    assert_eq!(tls.renew_valid(ENDS_S).expect_err("it has not begun").code(), "tls_certificate_not_begun");
    assert!(Arc::ptr_eq(&first, &tls.config(Alpn::Http1)), "the old one stays");
    assert_eq!(tls.renew_valid(ENDS_S + 2 * 86_400), Ok(Renewal::Changed));
}
