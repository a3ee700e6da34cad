//! The slot map: which node of a cluster has which keys.

use super::address::Host;
use redis::Value;
use std::ops::RangeInclusive;

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// Returns the slot of a key. The text between the first `{` and the next `}` decides it, if it is not empty; otherwise
/// the whole key does.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|start| {
        let rest = &key[start + 1..];
        rest.iter().position(|&byte| byte == b'}').filter(|&end| 0 < end).map(|end| &rest[..end])
    });
    crc16(tag.unwrap_or(key)) % SLOTS as u16
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
}

/// The slots and their nodes, as one node reported them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlotMap {
    /// The cluster's epoch, which rises with each change that the nodes agree on.
    pub(crate) epoch: u64,
    /// The ranges, in order, each with the place of its master in `nodes`.
    ranges: Vec<(RangeInclusive<u16>, usize)>,
    masters: Vec<Host>,
    replicas: Vec<Host>,
}

impl SlotMap {
    /// Reads the answer of this node to `CLUSTER SLOTS`.
    pub(crate) fn read(told: Value, by: &Host, epoch: u64) -> Option<Self> {
        let Value::Array(told) = told else { return None };
        let mut map = Self { epoch, ranges: Vec::new(), masters: Vec::new(), replicas: Vec::new() };
        for range in told {
            let Value::Array(items) = range else { return None };
            let mut items = items.into_iter();
            let (from, to) = (number(items.next()?)?, number(items.next()?)?);
            let master = host(items.next()?, by)?;
            let at = map.masters.iter().position(|known| *known == master).unwrap_or_else(|| {
                map.masters.push(master);
                map.masters.len() - 1
            });
            map.ranges.push((from..=to, at));
            for replica in items.filter_map(|replica| host(replica, by)) {
                if !map.replicas.contains(&replica) {
                    map.replicas.push(replica);
                }
            }
        }
        map.ranges.sort_unstable_by_key(|(range, _)| *range.start());
        Some(map)
    }

    /// Returns the master of a slot; `None` if the slot has none.
    pub(crate) fn master(&self, slot: u16) -> Option<&Host> {
        let after = self.ranges.partition_point(|(range, _)| *range.start() <= slot);
        let (range, at) = self.ranges.get(after.checked_sub(1)?)?;
        self.masters.get(*at).filter(|_| range.contains(&slot))
    }

    /// Returns all masters with slots.
    pub(crate) fn masters(&self) -> &[Host] {
        &self.masters
    }

    /// Returns the masters and their replicas.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Host> {
        self.masters.iter().chain(&self.replicas)
    }
}

fn number(value: Value) -> Option<u16> {
    redis::from_redis_value(value).ok()
}

/// Reads `[host, port, id, …]`. A node without a known host has the host by which it was asked.
fn host(value: Value, by: &Host) -> Option<Host> {
    let Value::Array(items) = value else { return None };
    let mut items = items.into_iter();
    let name = match items.next()? {
        Value::BulkString(name) => String::from_utf8(name).ok()?,
        Value::SimpleString(name) => name,
        _ => String::new(),
    };
    let name = if name.is_empty() || name == "?" { by.name.clone() } else { name.into() };
    Some(Host::new(name, number(items.next()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_that_the_servers_give_them() {
        // As CLUSTER KEYSLOT reports.
        let rows: [(&str, u16); 9] = [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("x{foo}{bar}", 12_182),
            ("{}foo", 9_500),
            ("{foo", 13_308),
            ("foo}{", 8_134),
            ("a{{foo}}b", 13_308),
        ];
        for (key, slot) in rows {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    fn node(name: Option<&str>, port: i64) -> Value {
        let name = name.map_or(Value::Nil, |name| Value::BulkString(name.into()));
        Value::Array(vec![name, Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    #[test]
    fn a_slot_has_the_master_of_its_range() {
        let range = |from, to, nodes: &[Value]| {
            Value::Array([Value::Int(from), Value::Int(to)].into_iter().chain(nodes.iter().cloned()).collect())
        };
        let told = Value::Array(vec![
            range(11, 16_383, &[node(Some("two"), 2), node(Some(""), 4)]),
            range(0, 5, &[node(None, 1), node(Some("two"), 3)]),
            range(7, 9, &[node(Some("two"), 2)]),
        ]);
        let map = SlotMap::read(told, &Host::new("here", 9), 3).expect("it can be read");
        let master = |slot| map.master(slot).map(Host::to_string);
        for (slot, expected) in [
            (0, Some("here:1")),
            (5, Some("here:1")),
            (6, None),
            (7, Some("two:2")),
            (10, None),
            (11, Some("two:2")),
            (16_383, Some("two:2")),
        ] {
            assert_eq!(master(slot).as_deref(), expected, "{slot}");
        }
        let nodes: Vec<String> = map.nodes().map(Host::to_string).collect();
        assert_eq!(nodes, ["two:2", "here:1", "here:4", "two:3"].map(str::to_owned));
        assert_eq!(SlotMap::read(Value::Okay, &Host::new("here", 9), 3), None);
    }
}
