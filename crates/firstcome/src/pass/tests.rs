use super::signers::Signers;
use super::*;
use firstcome_client::{PassPublicKey, PassPublicKeys};
use pasetors::keys::{AsymmetricPublicKey, AsymmetricSecretKey};
use pasetors::paserk::FormatAsPaserk;
use pasetors::version4::{PublicToken, V4};

/// The first key of the test vectors of RFC 8032: the secret, then the public half.
const KEY: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\
                   d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const ASSERTION: &str = "a test";
/// The middle of the tests, of the admissions and of the list: 2030-01-01.
const NOON_US: i64 = 1_893_456_000_000_000;

fn key() -> Vec<u8> {
    (0..KEY.len()).step_by(2).map(|at| u8::from_str_radix(&KEY[at..at + 2], 16).unwrap()).collect()
}

fn signers(id: u32) -> Signers {
    let mut paserk = String::new();
    AsymmetricPublicKey::<V4>::from(&key()[32..]).unwrap().fmt(&mut paserk).unwrap();
    let keys = vec![PassPublicKey { id, paserk }];
    Signers::new(PassPublicKeys { keys, implicit_assertion: ASSERTION.to_owned() }).unwrap()
}

fn signed(room: &str, number: u32, (footer, assertion): (&str, &str)) -> String {
    let claims = format!(
        r#"{{"room":"{room}","number":{number},"slot":9,"iat":"2030-01-01T00:00:00Z","exp":"2030-01-01T00:15:00Z"}}"#
    );
    let secret = AsymmetricSecretKey::<V4>::from(&key()).unwrap();
    PublicToken::sign(&secret, claims.as_bytes(), Some(footer.as_bytes()), Some(assertion.as_bytes())).unwrap()
}

const FOOTER: (&str, &str) = ("{\"kid\":\"1\"}", ASSERTION);

fn after_s(seconds: i64) -> Timestamp {
    Timestamp::from_us(NOON_US + seconds * 1_000_000).unwrap()
}

/// What the service said `as_of`: that number 7 is admitted.
fn snapshot(as_of: Timestamp) -> Snapshot {
    let admissions = Arc::new(HashSet::from([(TicketNumber::new(7).unwrap(), 9)]));
    Snapshot { signers: Arc::new(signers(1)), admissions, tag: None, as_of, asked_at: Steady::from_us(0) }
}

#[test]
fn a_pass_is_judged_by_key_signature_room_end_and_admission() {
    let snapshot = snapshot(after_s(60));
    let sale = RoomName::parse("sale").unwrap();
    let judged = |text: &str, at_s| snapshot.judge(&sale, text, after_s(at_s)).map(|pass| pass.number.get());
    let fine = signed("sale", 7, FOOTER);
    let flipped = format!("{}{}", &fine[..30], fine[30..].replacen(|byte: char| byte.is_ascii_lowercase(), "A", 1));
    for _ in 0..2 {
        assert_eq!(judged(&fine, 60), Ok(7));
        // The last microsecond, and the end itself.
        assert_eq!(snapshot.judge(&sale, &fine, Timestamp::clamped_us(after_s(900).as_us() - 1)).map(|_| ()), Ok(()));
        assert_eq!(judged(&fine, 900), Err(PassRefusal::Expired));
    }
    for (text, refusal) in [
        (String::new(), PassRefusal::Malformed),
        ("v4.public.".to_owned(), PassRefusal::Malformed),
        (format!("{fine}{}", "A".repeat(2_000)), PassRefusal::Malformed),
        (signed("sale", 7, ("{\"kid\":\"x\"}", ASSERTION)), PassRefusal::Malformed),
        (signed("sale", 7, ("{\"kid\":\"2\"}", ASSERTION)), PassRefusal::UnknownKey),
        (flipped, PassRefusal::Forged),
        (signed("sale", 7, (FOOTER.0, "another purpose")), PassRefusal::Forged),
        (signed("other", 7, FOOTER), PassRefusal::OtherRoom),
        (signed("sale", 8, FOOTER), PassRefusal::Ended),
    ] {
        assert_eq!(judged(&text, 60), Err(refusal), "{text}");
    }
    assert_eq!(snapshot.signers.verified_count(), 3, "only what a key signed is kept");
}

#[test]
fn an_admission_that_may_have_come_after_the_list_is_not_over() {
    let sale = RoomName::parse("sale").unwrap();
    let unlisted = signed("sale", 8, FOOTER);
    for (as_of_ms, wanted) in [(-5_000, Ok(())), (1_999, Ok(())), (2_000, Err(PassRefusal::Ended))] {
        let snapshot = snapshot(Timestamp::clamped_us(NOON_US + as_of_ms * 1_000));
        assert_eq!(snapshot.judge(&sale, &unlisted, after_s(60)).map(drop), wanted, "the list is of {as_of_ms} ms");
    }
}

#[test]
fn few_passes_are_kept_and_the_used_ones_stay() {
    let signers = signers(1);
    let (used, unused) = (signed("sale", 7, FOOTER), signed("sale", 8, FOOTER));
    signers.read(&unused).unwrap();
    // Each keep is a use of the one pass, and adds another text.
    for number in 1..=50_000 {
        signers.keep(&number.to_string(), &used);
    }
    assert_eq!((signers.keeps(&used), signers.keeps(&unused)), (true, false));
    assert!((8_192..=16_384).contains(&signers.verified_count()), "{}", signers.verified_count());
}

#[tokio::test]
async fn a_verifier_checks_what_it_is_given_before_it_asks() {
    let start = |url: &str, key: &str, room: &str, s| {
        let options = PassOptions { grace: Duration::from_secs(s) };
        PassVerifier::start_with(url, key, room, options).map(drop).map_err(|error| error.to_string())
    };
    let (url, key) = ("http://127.0.0.1:1", "s3cret-key-0123456789");
    assert_eq!(start(url, key, "sale", 2), Ok(()));
    for (told, says) in [
        (start("127.0.0.1:1", key, "sale", 2), "address"),
        (start(url, "", "sale", 2), "key"),
        (start(url, key, "-", 2), "room"),
        (start(url, key, "sale", 1), "grace"),
        (start(url, key, "sale", 3_601), "grace"),
    ] {
        assert!(told.clone().is_err_and(|error| error.contains(says)), "{told:?}: {says}");
    }
    let outside = std::thread::spawn(|| PassVerifier::start("http://127.0.0.1:1", "k", "sale").map(drop));
    assert!(matches!(outside.join().unwrap(), Err(StartPassError::NoRuntime)));
}

#[tokio::test]
async fn a_service_that_was_never_heard_is_away() {
    let passes = PassVerifier::start("http://127.0.0.1:1", "s3cret-key-0123456789", "sale").unwrap();
    assert_eq!(passes.check("x"), Err(PassError::Away));
    let told = async {
        let mut ticks = interval(Duration::from_millis(5));
        while passes.status().fault.is_none() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    assert_eq!(passes.status().age, None);
    assert!(!format!("{passes:?}{:?}", passes.status()).contains("s3cret"));
}
