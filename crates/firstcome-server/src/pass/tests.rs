use super::cache::GENERATION_MAX;
use super::*;
use proptest::prelude::*;

fn key(id: u32) -> PassKey {
    PassKey::new(id, [id as u8 + 1; 32]).unwrap()
}

fn keys(current: u32, older: &[u32]) -> PassKeys {
    PassKeys::new(key(current), older.iter().map(|&id| key(id)).collect()).unwrap()
}

fn at(us: i64) -> Timestamp {
    Timestamp::from_us(us).unwrap()
}

fn a_grant(number: u32) -> Grant {
    Grant {
        room: RoomName::parse("concert").unwrap(),
        number,
        slot: 40_000_000_000,
        user: Some(UserId::parse("ann@example.org").unwrap()),
        issued_at: at(1_790_000_000_000_000),
        expires_at: at(1_790_000_001_800_000),
    }
}

/// Signs a token of any payload, footer and domain.
fn signed(key: &PassKey, payload: &str, footer: Option<&str>, domain: Option<&str>) -> String {
    let [footer, domain] = [footer, domain].map(|text| text.map(str::as_bytes));
    PublicToken::sign(&key.secret, payload.as_bytes(), footer, domain).unwrap()
}

/// Reads without and with the cache, twice: all answers must agree.
#[track_caller]
fn read(keys: &PassKeys, token: &str) -> Result<Grant, PassError> {
    let passes = Passes::new(keys.clone());
    let answer = keys.read(token);
    assert_eq!(passes.read(token), answer);
    assert_eq!(passes.read(token), answer);
    assert_eq!(passes.cache.lock().len(), usize::from(answer.is_ok()));
    answer
}

const PAYLOAD: &str = r#"{"room":"concert","number":7,"slot":40000000000,"user":"ann@example.org","iat":"2026-09-21T14:13:20Z","exp":"2026-09-21T14:13:21.8Z"}"#;

#[test]
fn a_pass_is_what_the_format_says() {
    let keys = keys(3, &[]);
    let token = keys.mint(&a_grant(7));
    assert_eq!(token, signed(&key(3), PAYLOAD, Some(r#"{"kid":"3"}"#), Some("firstcome pass v1")));
    assert_eq!(token, keys.mint(&a_grant(7)), "the same grant gives the same pass");
    assert_eq!(read(&keys, &token), Ok(a_grant(7)));
}

#[test]
fn a_key_is_that_of_rfc_8032() {
    // RFC 8032, section 7.1, test 1.
    let seed = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49,
        0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
    ];
    let keys = PassKeys::new(PassKey::new(1, seed).unwrap(), vec![key(2)]).unwrap();
    let public = keys.public_keys();
    assert_eq!(public[0], (1, "k4.public.11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo".into()));
    assert_eq!((public.len(), public[1].0), (2, 2));
    // A service that has only the public text can verify.
    let verifying = AsymmetricPublicKey::<V4>::try_from(public[0].1.as_str()).unwrap();
    let token = keys.mint(&a_grant(7));
    let untrusted = UntrustedToken::<Public, V4>::try_from(token.as_str()).unwrap();
    let trusted = PublicToken::verify(&verifying, &untrusted, None, Some(DOMAIN.as_bytes())).unwrap();
    assert_eq!(trusted.payload(), PAYLOAD);
}

#[test]
fn keys_that_cannot_be_used_are_refused_and_never_shown() {
    assert_eq!(PassKey::new(1, [0; 32]).err(), Some(KeyError::NotSecret));
    assert_eq!(PassKeys::new(key(1), vec![key(2), key(1)]).err(), Some(KeyError::DuplicateId(1)));
    assert_eq!(format!("{:?}", keys(1, &[2])), "PassKeys { keys: [PassKey(1, secret), PassKey(2, secret)] }");
}

#[test]
fn a_pass_expires_at_its_instant() {
    let grant = a_grant(1);
    let end_us = grant.expires_at.as_us();
    assert!(!grant.expired(at(end_us - 1)));
    assert!(grant.expired(at(end_us)));
    // Reading does not check the expiry: it has no clock.
    let keys = keys(1, &[]);
    let past = Grant { expires_at: Timestamp::MIN, issued_at: Timestamp::MAX, ..grant };
    assert_eq!(read(&keys, &keys.mint(&past)), Ok(past));
}

#[test]
fn the_longest_grant_fits() {
    let name = "z".repeat(128);
    let grant = Grant {
        room: RoomName::parse(&name).unwrap(),
        number: u32::MAX,
        slot: u64::MAX,
        user: Some(UserId::parse(&name).unwrap()),
        issued_at: Timestamp::MAX,
        expires_at: Timestamp::MAX,
    };
    let keys = PassKeys::new(PassKey::new(u32::MAX, [9; 32]).unwrap(), vec![]).unwrap();
    let token = keys.mint(&grant);
    assert_eq!(token.len(), 653);
    assert!(token.len() <= TOKEN_BYTES_MAX);
    assert_eq!(read(&keys, &token), Ok(grant));
}

#[test]
fn passes_outlive_the_change_of_keys_and_die_with_their_own() {
    let passes = Passes::new(keys(1, &[]));
    let [first, unread] = [7, 8].map(|number| passes.mint(&a_grant(number)));
    assert_eq!(passes.read(&first), Ok(a_grant(7)));

    passes.replace_keys(keys(2, &[1]));
    let second = passes.mint(&a_grant(7));
    assert_ne!(first, second);
    for (token, number) in [(&first, 7), (&unread, 8), (&second, 7)] {
        assert_eq!(passes.read(token), Ok(a_grant(number)));
    }

    passes.replace_keys(keys(2, &[]));
    assert_eq!(passes.read(&first), Err(PassError::UnknownKey));
    assert_eq!(passes.read(&unread), Err(PassError::UnknownKey));
    assert_eq!(passes.read(&second), Ok(a_grant(7)));

    // Another key under the old number does not revive the passes, although they are still in the cache.
    let other = PassKey::new(1, [99; 32]).unwrap();
    passes.replace_keys(PassKeys::new(other, vec![key(2)]).unwrap());
    assert_eq!(passes.read(&first), Err(PassError::Forged));
    assert_eq!(passes.read(&second), Ok(a_grant(7)));
    assert_eq!(passes.cache.lock().len(), 3);

    // The right key revives them.
    passes.replace_keys(keys(2, &[1]));
    assert_eq!(passes.read(&first), Ok(a_grant(7)));
}

#[test]
fn every_single_flipped_bit_is_refused() {
    // Key 2 differs from key 3 in one bit of the footer's digit: it must not pass for the signer.
    let keys = keys(3, &[1, 2, 7]);
    let passes = Passes::new(keys.clone());
    let token = keys.mint(&a_grant(7));
    assert_eq!(passes.read(&token), Ok(a_grant(7)));
    let mut tried = 0;
    for bit in 0..token.len() * 8 {
        let mut bytes = token.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // With its highest bit set the text is not UTF-8, so the type excludes it.
        let Ok(flipped) = String::from_utf8(bytes) else { continue };
        tried += 1;
        assert!(passes.read(&flipped).is_err(), "bit {bit}");
    }
    assert_eq!(tried, token.len() * 7);
    assert_eq!(passes.cache.lock().len(), 1);
}

#[test]
fn everything_that_is_cut_off_or_added_is_refused() {
    let keys = keys(3, &[]);
    let token = keys.mint(&a_grant(7));
    for end in 0..token.len() {
        assert!(read(&keys, &token[..end]).is_err(), "{end} bytes");
        assert!(read(&keys, &token[end + 1..]).is_err(), "without {end} bytes");
    }
    for odd in [
        format!("{token}="),
        format!("{token}A"),
        format!("{token}."),
        format!("{token} "),
        format!(" {token}"),
        format!("{token}\n"),
        format!("{token}.{token}"),
        token.replacen("v4.public.", "V4.public.", 1),
        token.replacen("v4.public.", "v4..public.", 1),
    ] {
        assert_eq!(read(&keys, &odd), Err(PassError::Malformed), "{odd}");
    }
}

#[test]
fn other_versions_and_purposes_are_malformed() {
    let keys = keys(3, &[]);
    let token = keys.mint(&a_grant(7));
    for header in ["v4.local.", "v3.public.", "v2.public.", "v1.public.", "v4.public", "v4.secret.", "k4.public.", ""] {
        let other = token.replacen("v4.public.", header, 1);
        assert_eq!(read(&keys, &other), Err(PassError::Malformed), "{header}");
    }
}

#[test]
fn tokens_of_other_keys_and_for_other_purposes_are_refused() {
    let keys = keys(3, &[4]);
    let stranger = PassKey::new(3, [200; 32]).unwrap();
    let (kid, domain) = (Some(r#"{"kid":"3"}"#), Some(DOMAIN));
    let rows = [
        (signed(&stranger, PAYLOAD, kid, domain), Err(PassError::Forged)),
        (key(5).mint(&a_grant(7)), Err(PassError::UnknownKey)),
        // Signed by a known key, under the number of another one.
        (signed(&key(3), PAYLOAD, Some(r#"{"kid":"4"}"#), domain), Err(PassError::Forged)),
        (signed(&key(4), PAYLOAD, Some(r#"{"kid":"4"}"#), domain), Ok(a_grant(7))),
        (signed(&key(3), PAYLOAD, kid, None), Err(PassError::Forged)),
        (signed(&key(3), PAYLOAD, kid, Some("firstcome pass v2")), Err(PassError::Forged)),
        (signed(&key(3), PAYLOAD, None, domain), Err(PassError::Malformed)),
        (signed(&key(3), PAYLOAD, kid, domain), Ok(a_grant(7))),
    ];
    for (row, (token, expected)) in rows.into_iter().enumerate() {
        assert_eq!(read(&keys, &token), expected, "row {row}");
    }
    // The footer was replaced by that of another key, or removed.
    let token = keys.mint(&a_grant(7));
    let (body, footer) = token.rsplit_once('.').unwrap();
    let other = key(4).mint(&a_grant(7));
    let (other_body, other_footer) = other.rsplit_once('.').unwrap();
    assert_eq!(read(&keys, &format!("{body}.{other_footer}")), Err(PassError::Forged));
    assert_eq!(read(&keys, &format!("{other_body}.{footer}")), Err(PassError::Forged));
    assert_eq!(read(&keys, body), Err(PassError::Malformed));
}

#[test]
fn a_footer_is_read_only_as_it_is_written() {
    let keys = keys(3, &[]);
    for odd in [
        r#"{"kid":3}"#,
        r#"{"kid":"03"}"#,
        r#"{"kid":"+3"}"#,
        r#"{"kid":""}"#,
        r#"{"kid":"3","kid":"3"}"#,
        r#"{"kid":"3"} "#,
        r#"{"kid": "3"}"#,
        r#"{"wpk":"3"}"#,
        r#"{"kid":"4294967299"}"#,
        "3",
    ] {
        let token = signed(&key(3), PAYLOAD, Some(odd), Some(DOMAIN));
        assert_eq!(read(&keys, &token), Err(PassError::Malformed), "{odd}");
    }
}

#[test]
fn claims_are_read_only_as_they_are_written() {
    let keys = keys(3, &[]);
    let user = r#""user":"ann@example.org","#;
    let rows = [
        (PAYLOAD.to_owned(), true),
        (PAYLOAD.replace(user, ""), true),
        (PAYLOAD.replace(user, r#""user":null,"#), false),
        (PAYLOAD.replace(user, r#""user":"","#), false),
        (PAYLOAD.replace(user, r#""user":"pass:7","#), false),
        (PAYLOAD.replace(user, r#""user":"ann","user":"ann","#), false),
        (PAYLOAD.replace(user, r#""user":"\u0061nn","#), false),
        (PAYLOAD.replace(user, r#""user":["ann"],"#), false),
        (PAYLOAD.replace("concert", "con cert"), false),
        (PAYLOAD.replace("concert", ""), false),
        (PAYLOAD.replace(":7", ":-7"), false),
        (PAYLOAD.replace(":7", ":7.0"), false),
        (PAYLOAD.replace(":7", ":\"7\""), false),
        (PAYLOAD.replace(":7", ":4294967296"), false),
        (PAYLOAD.replace(r#""number":7,"#, ""), false),
        (PAYLOAD.replace(r#""slot":40000000000,"#, ""), false),
        (PAYLOAD.replace("40000000000", "18446744073709551616"), false),
        (PAYLOAD.replace("40000000000", "18446744073709551615"), true),
        (PAYLOAD.replace("exp", "nbf"), false),
        (PAYLOAD.replace("21.8Z", "21.8+00:00"), false),
        (PAYLOAD.replace("21.8Z", "21.80Z"), false),
        (PAYLOAD.replace("21.8Z", "21.8"), false),
        (PAYLOAD.replace("2026-09-21T14:13:21.8Z", "1790000001"), false),
        (PAYLOAD.replace("2026-09-21T14:13:21.8Z", "2026-09-21t14:13:21.8z"), false),
        (PAYLOAD.replace("}", r#","nbf":"2026-09-21T14:13:20Z"}"#), false),
        (PAYLOAD.replace("{", "{ "), false),
        (format!("{PAYLOAD} "), false),
        (format!("{PAYLOAD}{PAYLOAD}"), false),
        ("{}".into(), false),
        ("[]".into(), false),
        ("null".into(), false),
        ("not JSON".into(), false),
    ];
    for (payload, good) in rows {
        let token = signed(&key(3), &payload, Some(r#"{"kid":"3"}"#), Some(DOMAIN));
        let answer = read(&keys, &token);
        assert_eq!(answer.is_ok(), good, "{payload}");
        assert_eq!(answer.is_err(), answer == Err(PassError::Malformed), "{payload}");
    }
}

#[test]
fn a_pass_that_is_too_long_is_not_looked_at() {
    let keys = keys(3, &[]);
    let long = format!("{}{}", PublicToken::HEADER, "A".repeat(10_000_000));
    assert_eq!(read(&keys, &long), Err(PassError::Malformed));
    // The key is not even looked up: this token names an unknown key.
    let payload = PAYLOAD.replace("concert", &"c".repeat(700));
    let token = signed(&key(5), &payload, Some(r#"{"kid":"5"}"#), Some(DOMAIN));
    assert!(TOKEN_BYTES_MAX < token.len());
    assert_eq!(read(&keys, &token), Err(PassError::Malformed));
}

#[test]
fn the_memory_is_bounded_and_keeps_what_is_used() {
    let mut cache = Cache::default();
    let signer = Signer::of(&key(1));
    let grant = Arc::new(a_grant(1));
    let digest = |number: u64| -> [u8; 32] { Sha256::digest(number.to_le_bytes()).into() };
    cache.put(digest(0), signer, Arc::clone(&grant));
    for number in 1..10 * GENERATION_MAX as u64 {
        cache.put(digest(number), signer, Arc::clone(&grant));
        // Storing the same pass twice counts once.
        cache.put(digest(number), signer, Arc::clone(&grant));
        assert!(cache.len() <= 2 * GENERATION_MAX);
        if number % 1_000 == 0 {
            assert!(cache.get(&digest(0)).is_some(), "forgotten after {number}, though it is in use");
        }
    }
    assert!(GENERATION_MAX < cache.len());
    assert!(cache.get(&digest(1)).is_none());
    assert!(cache.get(&digest(10 * GENERATION_MAX as u64 - 1)).is_some());
}

#[test]
fn many_readers_at_once_agree_while_keys_change() {
    let passes = Passes::new(keys(1, &[2]));
    let good = key(1).mint(&a_grant(7));
    let dying = key(2).mint(&a_grant(8));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert_eq!(passes.read(&good), Ok(a_grant(7)));
                    assert!(matches!(passes.read(&dying), Ok(_) | Err(PassError::UnknownKey)));
                }
            });
        }
        passes.replace_keys(keys(1, &[]));
        assert_eq!(passes.read(&dying), Err(PassError::UnknownKey));
    });
    assert_eq!(passes.read(&dying), Err(PassError::UnknownKey));
}

fn any_name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}".prop_filter("kept for passes", |name| !name.starts_with("pass:"))
}

proptest! {
    #[test]
    fn every_grant_comes_back(
        room in any_name(),
        user in proptest::option::of(any_name()),
        number in any::<u32>(),
        slot in any::<u64>(),
        issued_us in any::<i64>(),
        expires_us in any::<i64>(),
    ) {
        let grant = Grant {
            room: RoomName::parse(&room).unwrap(),
            number,
            slot,
            user: user.map(|user| UserId::parse(&user).unwrap()),
            issued_at: Timestamp::clamped_us(issued_us),
            expires_at: Timestamp::clamped_us(expires_us),
        };
        let keys = keys(1, &[]);
        let token = keys.mint(&grant);
        prop_assert!(token.len() <= TOKEN_BYTES_MAX);
        prop_assert_eq!(read(&keys, &token), Ok(grant));
    }

    #[test]
    fn no_text_breaks_it(text in ".{0,200}", body in "[A-Za-z0-9_.=-]{0,200}") {
        let keys = keys(1, &[]);
        prop_assert_eq!(read(&keys, &text), Err(PassError::Malformed));
        for footer in ["", ".eyJraWQiOiIxIn0"] {
            let token = format!("v4.public.{body}{footer}");
            prop_assert!(read(&keys, &token).is_err());
        }
    }

    #[test]
    fn no_payload_breaks_it(payload in ".{1,200}") {
        let token = signed(&key(1), &payload, Some(r#"{"kid":"1"}"#), Some(DOMAIN));
        prop_assert_eq!(read(&keys(1, &[]), &token), Err(PassError::Malformed));
    }
}
