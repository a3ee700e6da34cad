//! What stands in the outbox between the sequencer and SQL, and in the messages that come back: bytes, read with suspicion.

use firstcome_core::coupon::{Attributes, Claim, Issued, Serial};
use firstcome_core::id::{RequestId, UserId};
use firstcome_core::time::Timestamp;
use redis::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;

const HAS_REQUEST: u8 = 1;
const HAS_ATTRIBUTES: u8 = 2;

/// The number of one call, by which its answer is found. Nodes count on from a random one: no two calls have the same, but by
/// a chance of 10⁻¹⁰ for two nodes and a thousand million calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Tag(pub(super) u64);

/// A claim that the sequencer has let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entrant {
    pub(super) tag: Tag,
    pub(super) claim: Claim,
}

impl Entrant {
    /// Its record in the outbox.
    pub(super) fn write(&self, record: &mut Vec<u8>) {
        let Claim { user, attributes, request } = &self.claim;
        let flags = request.map_or(0, |_| HAS_REQUEST) | attributes.as_ref().map_or(0, |_| HAS_ATTRIBUTES);
        record.extend(self.tag.0.to_le_bytes());
        record.push(flags);
        record.push(user.as_str().len() as u8);
        record.extend(user.as_str().as_bytes());
        if let Some(request) = request {
            record.extend(request.key.to_le_bytes());
            record.extend(request.body.to_le_bytes());
        }
        if let Some(attributes) = attributes {
            record.extend((attributes.as_str().len() as u16).to_le_bytes());
            record.extend(attributes.as_str().as_bytes());
        }
    }

    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let tag = Tag(bytes.u64()?);
        let flags = bytes.u8()?;
        if flags & !(HAS_REQUEST | HAS_ATTRIBUTES) != 0 {
            return None;
        }
        let length = bytes.u8()?;
        let user = UserId::restore(bytes.text(length.into())?).ok()?;
        let request = match flags & HAS_REQUEST {
            0 => None,
            _ => Some(RequestId { key: u128::from_le_bytes(bytes.array()?), body: bytes.u64()? }),
        };
        let attributes = match flags & HAS_ATTRIBUTES {
            0 => None,
            _ => {
                let length = u16::from_le_bytes(bytes.array()?);
                Some(Attributes::new(bytes.text(length.into())?)?)
            }
        };
        Some(Self { tag, claim: Claim { user, attributes, request } })
    }
}

/// Reads bytes from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        std::str::from_utf8(self.take(length)?).ok()
    }
}

/// One entry of the outbox: the claims of one call of the sequencer.
pub(super) struct Entry {
    /// The ticket of its last claim, by which it is named.
    pub(super) last: u64,
    /// What SQL remembers of it when it is the last that was written: nothing else has this number.
    pub(super) anchor: i64,
    /// All of it, for the record of what cannot be read.
    pub(super) raw: Vec<u8>,
    pub(super) claims: Result<Entrants, &'static str>,
}

/// What an entry says.
pub(super) struct Entrants {
    pub(super) first: u64,
    /// The version of the settings by which the sequencer judged.
    pub(super) version: i64,
    pub(super) at: Timestamp,
    /// The node that waits for the answers.
    pub(super) node: Arc<str>,
    pub(super) entrants: Vec<Entrant>,
}

impl Entry {
    /// Reads an entry as the server gives it. `None` if it is not even an entry.
    pub(super) fn read(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [Value::BulkString(id), Value::Array(fields)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
        let fields: Vec<Vec<u8>> = fields.into_iter().map(bytes_of).collect::<Option<_>>()?;
        let last = std::str::from_utf8(&id).ok()?.strip_suffix("-1")?.parse().ok()?;
        let raw = fields.concat();
        let anchor = anchor_of(last, &fields);
        let claims = Entrants::read(&fields, last);
        Some(Self { last, anchor, raw, claims })
    }
}

impl Entrants {
    fn read(fields: &[Vec<u8>], last: u64) -> Result<Self, &'static str> {
        let text = |name: &str| {
            let pair = fields.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
            std::str::from_utf8(&pair[1]).ok()
        };
        let first: u64 = text("first").and_then(|text| text.parse().ok()).ok_or("it has no first ticket")?;
        let version = text("version").and_then(|text| text.parse().ok()).ok_or("it names no settings")?;
        let at =
            text("at").and_then(|text| text.parse().ok()).and_then(Timestamp::from_us).ok_or("it has no instant")?;
        let node = text("node").ok_or("it names no node")?.into();
        let claims = fields.chunks_exact(2).find(|pair| pair[0] == b"claims").ok_or("it has no claims")?;
        let mut bytes = Bytes(&claims[1]);
        let mut entrants = Vec::new();
        while !bytes.0.is_empty() {
            entrants.push(Entrant::read(&mut bytes).ok_or("a claim in it cannot be read")?);
        }
        let more = (entrants.len() as u64).checked_sub(1);
        if first == 0 || more.and_then(|more| first.checked_add(more)) != Some(last) {
            return Err("it has more or fewer claims than tickets");
        }
        Ok(Self { first, version, at, node, entrants })
    }
}

/// The digest of an entry: 63 bits of SHA-256 over its name and its fields, each with its length.
fn anchor_of(last: u64, fields: &[Vec<u8>]) -> i64 {
    let mut digest = Sha256::new();
    digest.update(last.to_le_bytes());
    for field in fields {
        digest.update((field.len() as u64).to_le_bytes());
        digest.update(field);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&digest.finalize()[..8]);
    i64::from_le_bytes(first) & i64::MAX
}

/// The digest of the entry with which a generation begins.
pub(super) fn first_anchor(position: u64, generation: i64) -> i64 {
    anchor_of(position, &[b"generation".to_vec(), generation.to_string().into_bytes()])
}

pub(super) fn bytes_of(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// What became of a claim that the sequencer had let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// SQL holds it.
    Issued(Issued),
    /// SQL holds another one, or none: a caller that waits looks there.
    ReadAgain,
}

/// What one transaction did for one node: goes to it as a message, at most once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Notice {
    pub(super) coupon: i64,
    pub(super) generation: i64,
    pub(super) position: u64,
    pub(super) verdicts: Vec<(Tag, Verdict)>,
}

impl Notice {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + 20 * self.verdicts.len());
        bytes.extend(self.coupon.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(self.position.to_le_bytes());
        for (tag, verdict) in &self.verdicts {
            let (serial, at) = match verdict {
                Verdict::Issued(issued) => (issued.serial.get(), issued.issued_at.as_us()),
                Verdict::ReadAgain => (0, 0),
            };
            bytes.extend(tag.0.to_le_bytes());
            bytes.extend(serial.to_le_bytes());
            bytes.extend(at.to_le_bytes());
        }
        bytes
    }

    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(message);
        let (coupon, generation) = (bytes.u64()?.cast_signed(), bytes.u64()?.cast_signed());
        let position = bytes.u64()?;
        let mut verdicts = Vec::with_capacity(bytes.0.len() / 20);
        while !bytes.0.is_empty() {
            let tag = Tag(bytes.u64()?);
            let (serial, at) = (bytes.u32()?, bytes.u64()?.cast_signed());
            let verdict = match serial {
                0 => Verdict::ReadAgain,
                _ => Verdict::Issued(Issued { serial: Serial::new(serial)?, issued_at: Timestamp::from_us(at)? }),
            };
            verdicts.push((tag, verdict));
        }
        Some(Self { coupon, generation, position, verdicts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entrant(tag: u64, user: &str, request: Option<RequestId>, attributes: Option<&str>) -> Entrant {
        let attributes = attributes.and_then(Attributes::new);
        Entrant { tag: Tag(tag), claim: Claim { user: UserId::restore(user).unwrap(), attributes, request } }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(id: &str, first: u64, entrants: &[Entrant]) -> Value {
        let mut claims = Vec::new();
        entrants.iter().for_each(|entrant| entrant.write(&mut claims));
        let fields =
            [("first", first.to_string()), ("version", "3".into()), ("at", "17".into()), ("node", "a1".into())];
        let mut values: Vec<Value> = fields.iter().flat_map(|(name, value)| [text(name), text(value)]).collect();
        values.extend([text("claims"), Value::BulkString(claims)]);
        Value::Array(vec![text(id), Value::Array(values)])
    }

    fn three() -> [Entrant; 3] {
        let request = Some(RequestId { key: u128::MAX - 1, body: 7 });
        [
            entrant(1, "ann", None, None),
            entrant(u64::MAX, &"b".repeat(128), request, Some("{\"n\":\"안녕\"}")),
            entrant(2, "pass:7", request, None),
        ]
    }

    #[test]
    fn an_entry_comes_back_as_it_was_written() {
        let read = Entry::read(entry("12-1", 10, &three())).unwrap();
        assert_eq!(read.last, 12);
        let claims = read.claims.ok().unwrap();
        assert_eq!((claims.first, claims.version, claims.at.as_us(), &*claims.node), (10, 3, 17, "a1"));
        assert_eq!(claims.entrants, three());
    }

    #[test]
    fn an_entry_that_does_not_add_up_is_told_from_one_that_is_none() {
        assert!(Entry::read(text("12-1")).is_none());
        assert!(Entry::read(Value::Array(vec![text("12-2"), Value::Array(vec![])])).is_none());
        for first in [0, 9, 11] {
            let says = Entry::read(entry("12-1", first, &three())).unwrap().claims.err();
            assert_eq!(says, Some("it has more or fewer claims than tickets"));
        }
        let bare = Entry::read(Value::Array(vec![text("12-1"), Value::Array(vec![])])).unwrap();
        assert_eq!(bare.claims.err(), Some("it has no first ticket"));
    }

    #[test]
    fn an_anchor_is_of_one_entry_alone() {
        let anchor = |value| Entry::read(value).unwrap().anchor;
        let one = anchor(entry("12-1", 10, &three()));
        assert!(0 <= one);
        assert_eq!(one, anchor(entry("12-1", 10, &three())));
        assert_ne!(one, anchor(entry("13-1", 10, &three())));
        assert_ne!(one, anchor(entry("12-1", 10, &three()[..2])));
        let mut other = three();
        other[0].tag = Tag(3);
        assert_ne!(one, anchor(entry("12-1", 10, &other)));
    }

    #[test]
    fn a_notice_comes_back_as_it_was_written() {
        let issued = Issued { serial: Serial::new(9).unwrap(), issued_at: Timestamp::from_us(-5).unwrap() };
        let verdicts = vec![(Tag(5), Verdict::Issued(issued)), (Tag(6), Verdict::ReadAgain)];
        let notice = Notice { coupon: 4, generation: 2, position: 77, verdicts };
        assert_eq!(Notice::read(&notice.write()), Some(notice.clone()));
        let bytes = notice.write();
        let cuts = (0..bytes.len()).filter(|&length| Notice::read(&bytes[..length]).is_some());
        assert_eq!(Vec::from_iter(cuts), [24, 44], "only whole verdicts are read");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange_to_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Notice::read(&bytes);
            let fields = vec![text("first"), text("1"), text("version"), text("1"), text("at"), text("1"), text("node"),
                text("a"), text("claims"), Value::BulkString(bytes)];
            let read = Entry::read(Value::Array(vec![text("1-1"), Value::Array(fields)]));
            prop_assert!(read.is_some());
        }
    }
}
