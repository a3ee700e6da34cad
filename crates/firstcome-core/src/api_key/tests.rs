use super::*;

const NOW: i64 = 1_893_456_000_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_us(NOW + seconds * 1_000_000).unwrap()
}

fn name(text: &str) -> KeyName {
    KeyName::parse(text).unwrap()
}

fn create(text: &str, scope: KeyScope, key: &str, valid_for_ms: Option<u64>) -> KeyCommand {
    let (digest, caller) = (KeyDigest::of(key), CallerId([7; 16]));
    KeyCommand::Create { name: name(text), scope, digest, caller, valid_for_ms, request: None }
}

fn rotate(text: &str, key: &str, old_valid_for_ms: u64) -> KeyCommand {
    KeyCommand::Rotate { name: name(text), digest: KeyDigest::of(key), old_valid_for_ms, request: None }
}

fn revoke(text: &str) -> KeyCommand {
    KeyCommand::Revoke { name: name(text), others: OtherAdmins::Absent }
}

fn adopt(text: &str, key: &str) -> KeyCommand {
    KeyCommand::Adopt { name: name(text), scope: KeyScope::Admin, digest: KeyDigest::of(key) }
}

/// Returns the keys among these that the book accepts.
fn accepted<'a>(book: &KeyBook, keys: &[&'a str], now: Timestamp) -> Vec<&'a str> {
    let is_accepted = |key: &&&str| {
        let digest = KeyDigest::of(key);
        let same = |known: &&ApiKey| known.digest.as_bytes() == digest.as_bytes();
        book.candidates(&digest).find(same).is_some_and(|known| known.state(now) == KeyState::Active)
    };
    keys.iter().filter(is_accepted).copied().collect()
}

#[track_caller]
fn refused(book: &mut KeyBook, command: &KeyCommand, now: Timestamp, wanted: KeyRejection) {
    assert_eq!(book.apply(command, now).err(), Some(wanted));
}

#[test]
fn a_key_is_accepted_until_the_instant_of_its_end() {
    let mut book = KeyBook::default();
    book.apply(&create("shop", KeyScope::Service, "one", Some(10_000)), at(0)).unwrap();
    assert_eq!(accepted(&book, &["one", "two"], at(9)), ["one"]);
    assert!(accepted(&book, &["one"], at(10)).is_empty());
}

#[test]
fn after_a_rotation_both_keys_are_accepted_until_the_overlap_ends() {
    let mut book = KeyBook::default();
    book.apply(&create("shop", KeyScope::Service, "one", Some(100_000)), at(0)).unwrap();
    let (effect, _) = book.apply(&rotate("shop", "two", 5_000), at(50)).unwrap();
    assert_eq!(effect.into_inner().expires_at, Some(at(150)), "the new key lives as long as the old one was to");
    assert_eq!(accepted(&book, &["one", "two"], at(54)), ["one", "two"]);
    assert_eq!(accepted(&book, &["one", "two"], at(55)), ["two"]);
    book.apply(&rotate("shop", "three", 5_000), at(52)).unwrap();
    assert_eq!(accepted(&book, &["one", "two", "three"], at(53)), ["two", "three"], "two of one name at most");
    assert_eq!(book.current("shop").unwrap().caller, CallerId([7; 16]), "a rotation keeps the caller");
}

#[test]
fn an_overlap_does_not_prolong_the_life_of_a_key() {
    let mut book = KeyBook::default();
    book.apply(&create("shop", KeyScope::Service, "one", Some(10_000)), at(0)).unwrap();
    book.apply(&rotate("shop", "two", 60_000), at(5)).unwrap();
    assert_eq!(accepted(&book, &["one", "two"], at(10)), ["two"]);
}

#[test]
fn a_revocation_ends_all_keys_of_the_name() {
    let mut book = KeyBook::default();
    book.apply(&create("shop", KeyScope::Service, "one", None), at(0)).unwrap();
    book.apply(&rotate("shop", "two", 60_000), at(1)).unwrap();
    assert!(matches!(book.apply(&revoke("shop"), at(2)).unwrap().0, Effect::New(_)));
    assert!(accepted(&book, &["one", "two"], at(2)).is_empty());
    assert!(matches!(book.apply(&revoke("shop"), at(3)).unwrap().0, Effect::Again(_)));
    refused(&mut book, &rotate("shop", "three", 0), at(3), KeyRejection::KeyRevoked);
    refused(&mut book, &revoke("absent"), at(3), KeyRejection::UnknownKey);
    book.apply(&create("shop", KeyScope::View, "four", None), at(4)).unwrap();
    assert_eq!(book.keys().count(), 1, "the name is free again, and its old rows are gone");
}

#[test]
fn the_last_admin_key_stays() {
    let mut book = KeyBook::default();
    book.apply(&create("ops", KeyScope::Admin, "one", None), at(0)).unwrap();
    book.apply(&create("late", KeyScope::Admin, "two", Some(10_000)), at(0)).unwrap();
    book.apply(&create("shop", KeyScope::Service, "three", None), at(0)).unwrap();
    refused(&mut book, &revoke("ops"), at(10), KeyRejection::LastAdminKey);
    book.apply(&revoke("shop"), at(10)).unwrap();
    book.apply(&KeyCommand::Revoke { name: name("ops"), others: OtherAdmins::Present }, at(10)).unwrap();
}

#[test]
fn a_name_that_is_taken_is_refused_and_an_expired_one_is_free() {
    let mut book = KeyBook::default();
    book.apply(&create("shop", KeyScope::Service, "one", Some(10_000)), at(0)).unwrap();
    refused(&mut book, &create("shop", KeyScope::Service, "two", None), at(9), KeyRejection::KeyExists);
    book.apply(&create("shop", KeyScope::Service, "two", None), at(10)).unwrap();
    assert_eq!(accepted(&book, &["one", "two"], at(10)), ["two"]);
}

#[test]
fn a_key_of_the_first_start_is_adopted_once_and_stays_revoked() {
    let mut book = KeyBook::default();
    book.apply(&adopt("admin", "one"), at(0)).unwrap();
    book.apply(&create("ops", KeyScope::Admin, "ops", None), at(0)).unwrap();
    book.apply(&rotate("admin", "two", 0), at(1)).unwrap();
    book.apply(&rotate("admin", "three", 0), at(2)).unwrap();
    book.apply(&revoke("admin"), at(3)).unwrap();
    book.apply(&create("admin", KeyScope::View, "four", None), at(4)).unwrap();
    assert!(matches!(book.apply(&adopt("admin", "one"), at(5)).unwrap().0, Effect::Again(_)), "after a restart");
    assert_eq!(accepted(&book, &["one", "two", "three", "four"], at(5)), ["four"]);
    let (effect, _) = book.apply(&adopt("admin", "five"), at(6)).unwrap();
    assert_eq!(effect.into_inner().name.as_str(), "admin-2", "the file was made anew");
}

#[test]
fn a_second_rotation_ends_a_key_of_the_first_start_within_its_overlap() {
    let mut book = KeyBook::default();
    book.apply(&adopt("admin", "one"), at(0)).unwrap();
    book.apply(&rotate("admin", "two", 60_000), at(1)).unwrap();
    assert_eq!(accepted(&book, &["one", "two"], at(2)), ["one", "two"]);
    book.apply(&rotate("admin", "three", 60_000), at(2)).unwrap();
    assert_eq!(accepted(&book, &["one", "two", "three"], at(2)), ["two", "three"]);
    assert!(matches!(book.apply(&adopt("admin", "one"), at(3)).unwrap().0, Effect::Again(_)), "after a restart");
    assert_eq!(accepted(&book, &["one"], at(3)), [""; 0]);
}

#[test]
fn a_repeat_has_one_effect() {
    let request = |body| Some(RequestId { key: 1, body });
    let command = |text: &str, key: &str, body| KeyCommand::Create {
        name: name(text),
        scope: KeyScope::Service,
        digest: KeyDigest::of(key),
        caller: CallerId([7; 16]),
        valid_for_ms: None,
        request: request(body),
    };
    let mut book = KeyBook::default();
    book.apply(&command("shop", "one", 1), at(0)).unwrap();
    assert!(matches!(book.apply(&command("shop", "two", 1), at(1)).unwrap().0, Effect::Again(_)));
    assert_eq!(accepted(&book, &["one", "two"], at(1)), ["one"]);
    refused(&mut book, &command("other", "two", 2), at(1), KeyRejection::IdempotencyKeyReused);
}

#[test]
fn names_are_bounded() {
    let mut book = KeyBook::default();
    for count in 0..API_KEYS_MAX {
        book.apply(&create(&format!("key-{count}"), KeyScope::View, &format!("{count}"), None), at(0)).unwrap();
    }
    refused(&mut book, &create("more", KeyScope::View, "more", None), at(0), KeyRejection::TooManyKeys);
}

#[test]
fn a_stored_book_comes_back() {
    let mut book = KeyBook::default();
    book.apply(&create("shop", KeyScope::Service, "one", None), at(0)).unwrap();
    book.apply(&rotate("shop", "two", 60_000), at(1)).unwrap();
    let again = KeyBook::restore(book.keys().cloned());
    assert_eq!(accepted(&again, &["one", "two"], at(2)), ["one", "two"]);
}
