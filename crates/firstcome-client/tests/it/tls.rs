//! The service under TLS: the right certificate, or nothing is sent.

use crate::service::{ADMIN, Service, hasty, soon};
use firstcome::Embedded;
use firstcome_client::HttpStore;
use firstcome_store::core::coupon::{CouponLimit, CouponSettings};
use firstcome_store::core::id::CouponName;
use firstcome_store::{CouponStore, StoreError};
use firstcome_test_servers::{Authority, CertificateFiles, Flaw};
use firstcome_tls::{Renewal, ServerFiles, ServerTls, TlsFiles, Trust};
use std::fs;
use std::net::SocketAddr;

fn certificate(files: &CertificateFiles) -> ServerTls {
    let files = ServerFiles { cert: files.cert.clone(), key: files.key.clone() };
    ServerTls::read(files).expect("the files are right")
}

fn trust(authority: &Authority) -> Trust {
    TlsFiles { ca: Some(authority.ca()), ..TlsFiles::default() }.read().expect("the file is right")
}

async fn serve(tls: ServerTls) -> Service {
    Service::secured(SocketAddr::from(([127, 0, 0, 1], 0)), Embedded::memory(), Some(tls)).await
}

/// Makes a coupon over a new connection.
async fn used(service: &Service, trust: &Trust) -> Result<(), String> {
    let url = service.url().replace("http://", "https://");
    let client = HttpStore::trusting(&url, ADMIN, hasty(), trust).expect("it can be made");
    let name = CouponName::parse("launch").expect("a name");
    let limit = CouponSettings::with_limit(CouponLimit::new(1).expect("a limit"));
    match soon(client.put_coupon(&name, limit)).await {
        Ok(_) => Ok(()),
        Err(StoreError::Faulted(fault)) => Err(fault.to_string()),
        Err(error) => panic!("nothing may have been sent: {error:?}"),
    }
}

#[tokio::test]
async fn the_certificate_of_a_service_is_checked() {
    let (mut ours, other) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    let service = serve(certificate(&ours.sign(Flaw::None).expect("signed"))).await;
    used(&service, &trust(&ours)).await.expect("all is right");
    let says = used(&service, &trust(&other)).await.expect_err("another authority");
    assert!(says.contains("not from a trusted authority"), "{says}");
    for (flaw, expected) in [(Flaw::Expired, "out of date"), (Flaw::OtherName, "for another name")] {
        let service = serve(certificate(&ours.sign(flaw).expect("signed"))).await;
        let says = used(&service, &trust(&ours)).await.expect_err("the certificate is wrong");
        assert!(says.contains(expected), "{says}");
    }
}

#[tokio::test]
async fn plain_text_gets_no_answer_from_a_service_under_tls() {
    let mut ours = Authority::new().expect("an authority");
    let service = serve(certificate(&ours.sign(Flaw::None).expect("signed"))).await;
    let client = HttpStore::with(&service.url(), ADMIN, hasty()).expect("it can be made");
    let name = CouponName::parse("launch").expect("a name");
    assert!(soon(client.coupon(&name)).await.is_err());
}

#[tokio::test]
async fn a_renewed_certificate_counts_for_new_connections_and_open_ones_go_on() {
    let (mut before, mut after) = (Authority::new().expect("an authority"), Authority::new().expect("an authority"));
    let files = before.sign(Flaw::None).expect("signed");
    let tls = certificate(&files);
    let service = serve(tls.clone()).await;
    let url = service.url().replace("http://", "https://");
    let open = HttpStore::trusting(&url, ADMIN, hasty(), &trust(&before)).expect("it can be made");
    let name = CouponName::parse("launch").expect("a name");
    assert!(soon(open.coupon(&name)).await.expect("an answer").is_err());

    fs::write(&files.cert, "nothing").expect("written");
    assert!(tls.renew().is_err());
    used(&service, &trust(&before)).await.expect("a bad certificate changes nothing");

    let renewed = after.sign(Flaw::None).expect("signed");
    fs::copy(&renewed.cert, &files.cert).expect("copied");
    fs::copy(&renewed.key, &files.key).expect("copied");
    assert_eq!(tls.renew(), Ok(Renewal::Changed));
    used(&service, &trust(&after)).await.expect("the new one counts");
    assert!(used(&service, &trust(&before)).await.is_err(), "the old one is gone");
    assert!(soon(open.coupon(&name)).await.expect("its connection goes on").is_ok());
}
