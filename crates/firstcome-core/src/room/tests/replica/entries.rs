//! Entries as bytes: short and complete. All other bytes are refused.

use super::super::model_steps::{any_settings, any_user};
use super::*;
use crate::revision::Revision;
use proptest::prelude::*;

fn any_number() -> impl Strategy<Value = TicketNumber> {
    prop_oneof![1..300_u32, 1..=u32::MAX - 1].prop_map(number)
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let request = proptest::option::of((any::<u128>(), any::<u64>()).prop_map(|(key, body)| RequestId { key, body }));
    let ticket = || (any_number(), any::<u64>());
    let shown = || {
        let generation = prop_oneof![Just(0_u32), 1..4_u32, any::<u32>()];
        (any_number(), generation, any::<u64>())
            .prop_map(|(number, generation, tag)| (TicketId { number, generation }, tag))
    };
    let words = prop_oneof![Just(0_u64), Just(u64::MAX), any::<u64>(), (0..64).prop_map(|at| 1_u64 << at)];
    let rows = proptest::collection::vec(words, 64).prop_map(|words| {
        let mut bits = Box::new([0; 64]);
        bits.copy_from_slice(&words);
        bits
    });
    let sparse = proptest::collection::vec(0..4_096_usize, 0..10).prop_map(|set| {
        let mut bits = Box::new([0_u64; 64]);
        set.into_iter().for_each(|at| bits[at / 64] |= 1 << (at % 64));
        bits
    });
    let put =
        (any_settings(), proptest::option::of("[a-z ü]{0,30}"), proptest::option::of(any_settings()), any::<u64>());
    prop_oneof![
        (any_user(), request, any::<u64>())
            .prop_map(|(user, request, tag)| Entry::Join { join: Join { user, request }, tag }),
        shown().prop_map(|(ticket, tag)| Entry::Poll { ticket, tag }),
        shown().prop_map(|(ticket, tag)| Entry::Leave { ticket, tag }),
        (shown(), any::<u128>()).prop_map(|((ticket, tag), key)| Entry::Renew {
            ticket,
            key: RenewalKey::new(key),
            tag
        }),
        (ticket(), any::<u64>()).prop_map(|((number, tag), admission)| Entry::Release { number, admission, tag }),
        ticket().prop_map(|(number, tag)| Entry::EndOver { number, tag }),
        proptest::collection::vec(any_number(), 0..50).prop_map(Entry::contacts),
        (0..=u32::MAX / 4_096, prop_oneof![rows, sparse]).prop_map(|(segment, bits)| Entry::Alive { segment, bits }),
        Just(Entry::Tick),
        Just(Entry::Resumed),
        put.prop_map(|(settings, message, replaces, tag)| {
            let settings = RoomSettings { message: message.map(Into::into), ..settings };
            Entry::Put { revision: Box::new(Revision { settings, replaces }), tag }
        }),
        any::<u64>().prop_map(|tag| Entry::Close { tag }),
        any::<u32>().prop_map(Entry::Ceiling),
        (shown(), any_user()).prop_map(|((ticket, tag), user)| Entry::Readmit { ticket, user, tag }),
        (0..=crate::limits::ROOM_NUMBER_MAX, any::<u64>(), any::<u64>())
            .prop_map(|(ceiling, grace_ms, branch)| Entry::Lost { ceiling, grace_ms, branch }),
        (any::<u64>(), any::<u64>()).prop_map(|(position, digest)| Entry::Durable { position, digest }),
    ]
}

fn bytes(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    entry.encode(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn an_entry_comes_back_as_it_was(entry in any_entry()) {
        let bytes = bytes(&entry);
        assert_eq!(Entry::decode(&bytes), Ok(entry));
        for length in 0..bytes.len() {
            assert!(Entry::decode(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(Entry::decode(&longer), Err(ImageError::Trailing));
    }

    #[test]
    fn no_matter_what_bytes_come_they_are_an_entry_or_none(
        random in proptest::collection::vec(any::<u8>(), 0..100),
        kind in 0..16_u8,
        entry in any_entry(),
        at in any::<u32>(),
        byte in any::<u8>(),
    ) {
        let _ = Entry::decode(&random);
        let mut harmed = bytes(&entry);
        let at = at as usize % harmed.len();
        harmed[at] ^= byte;
        for bytes in [harmed, [&[1 << 4 | kind], random.as_slice()].concat()] {
            if let Ok(entry) = Entry::decode(&bytes) {
                assert_eq!(Entry::decode(&self::bytes(&entry)), Ok(entry), "what was understood can be said");
            }
        }
    }
}

#[test]
fn entries_are_short() {
    let stranger = bytes(&join(anonymous(), u64::MAX));
    assert!(stranger.len() <= 12, "{} bytes", stranger.len());
    assert!(bytes(&join(named("user-00000000001"), u64::MAX)).len() <= 12 + 16);
    assert_eq!(bytes(&Entry::Tick).len(), 1);
    let contacts = Entry::contacts((1..=1_000).map(|step| number(1_000_000 + 50 * step)).collect());
    assert!(bytes(&contacts).len() <= 1_010);
    let mut bits = Box::new([0; 64]);
    (0..50).for_each(|at| bits[at] = 1);
    assert!(bytes(&Entry::Alive { segment: 300, bits }).len() <= 60);
    let bits = Box::new([u64::MAX / 3; 64]);
    assert!(bytes(&Entry::Alive { segment: 300, bits }).len() <= 520);
}

#[test]
fn contacts_are_said_once_each_in_any_order_they_come() {
    let numbers = [5, 1, 9, 5, 2].map(number).to_vec();
    let wanted = Entry::Contacts { numbers: [1, 2, 5, 9].map(number).to_vec() };
    assert_eq!(Entry::contacts(numbers.clone()), wanted);
    assert_eq!(Entry::decode(&bytes(&Entry::Contacts { numbers })), Ok(wanted));
}

#[test]
fn what_is_no_entry_is_refused() {
    let mut other_version = bytes(&Entry::Tick);
    other_version[0] += 16;
    let rows: [(&[u8], ImageError); 10] = [
        (&[], ImageError::Short),
        (&other_version, ImageError::Version),
        // Every kind is in use: this one lacks its settings.
        (&[0x1f], ImageError::Short),
        // A ticket without a number; numbers that are too long, or longer than necessary.
        (&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0], ImageError::Value("ticket")),
        (&[0x1a, 0xff, 0xff, 0xff, 0xff, 0x1f], ImageError::Value("number")),
        (&[0x1a, 0x80, 0x00], ImageError::Value("number")),
        // The same contact twice, number 0, more contacts than bytes, and a number past the last one.
        (&[0x15, 2, 7, 0], ImageError::Value("order")),
        (&[0x15, 1, 0], ImageError::Value("ticket")),
        (&[0x15, 0xff, 0xff, 0xff, 0xff, 0x0f, 1], ImageError::Short),
        (&[0x15, 2, 1, 0xff, 0xff, 0xff, 0xff, 0x0f], ImageError::Value("order")),
    ];
    for (bytes, wanted) in rows {
        assert_eq!(Entry::decode(bytes), Err(wanted), "{bytes:?}");
    }
    let put = |settings: RoomSettings| bytes(&Entry::Put { revision: Box::new(settings.into()), tag: 1 });
    let wrong = put(RoomSettings { max_waiting: 0, ..ten_per_second() });
    assert_eq!(Entry::decode(&wrong), Err(ImageError::Value("settings")), "they must have passed their check");
    let far = bytes(&Entry::Alive { segment: u32::MAX, bits: Box::new([1; 64]) });
    assert_eq!(Entry::decode(&far), Err(ImageError::Value("segment")));
}
