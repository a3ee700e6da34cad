//! What goes over the wire: the messages of etcd's API that locks need, written down by hand.
//!
//! They are the same in all of version 3, and few. Made from the files of etcd they would be many, and their compiler
//! (`protoc`) would have to be on every machine that builds this. A field that is not named here is left out, or passed over.

/// One value of a key.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

/// What stands over each answer.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Header {
    /// Of the whole store, when the answer was made; of a write, the one that it made.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

/// In which order keys are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SortOrder {
    None = 0,
    Ascend = 1,
    Descend = 2,
}

/// By what they are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SortTarget {
    Key = 0,
    Create = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first key after the range; one key only without it.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    /// Keys that were made later are left out.
    #[prost(int64, tag = "13")]
    pub(crate) max_create_revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    /// Of all keys in the range, with the limit left out.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PutResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct DeleteRangeResponse {}

/// One step of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3")]
    pub(crate) request: Option<Op>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

impl From<Op> for RequestOp {
    fn from(op: Op) -> Self {
        Self { request: Some(op) }
    }
}

/// What became of one step.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Did", tags = "1, 2, 3")]
    pub(crate) response: Option<Did>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Did {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
}

/// What a condition looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
}

/// A condition: that it is equal. (The way of comparing is field 1, and equality is its 0.)
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Wanted", tags = "5, 6")]
    pub(crate) wanted: Option<Wanted>,
    /// The first key after the range, in which it holds for every key; and for nothing, which was created at 0.
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub(crate) enum Wanted {
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Modified(i64),
}

impl Compare {
    /// That the key was made by this revision; by 0 if there is none.
    pub(crate) fn created(key: &[u8], revision: i64) -> Self {
        let (target, wanted) = (CompareTarget::Create as i32, Some(Wanted::Created(revision)));
        Self { target, key: key.to_vec(), wanted, range_end: Vec::new() }
    }

    /// That the key was last written by this revision.
    pub(crate) fn modified(key: &[u8], revision: i64) -> Self {
        let (target, wanted) = (CompareTarget::Mod as i32, Some(Wanted::Modified(revision)));
        Self { target, key: key.to_vec(), wanted, range_end: Vec::new() }
    }

    /// That no key begins so.
    pub(crate) fn none_within(prefix: &[u8]) -> Self {
        Self { range_end: after(prefix), ..Self::created(prefix, 0) }
    }
}

/// The first key that no longer begins so. A prefix of ours never ends in the last byte there is.
pub(crate) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

impl TxnResponse {
    pub(crate) fn revision(&self) -> i64 {
        self.header.map_or(0, |header| header.revision)
    }

    /// What the ranges among the steps found, in their order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = RangeResponse> {
        self.responses.into_iter().filter_map(|did| match did.response {
            Some(Did::Range(range)) => Some(range),
            _ => None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl_s: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// Which the server may have made longer than it was asked for.
    #[prost(int64, tag = "3")]
    pub(crate) ttl_s: i64,
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

/// Asks for its end, or, elsewhere, for its going on.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseRevokeResponse {}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseKeepAliveResponse {
    /// 0 if there is no such lease any more.
    #[prost(int64, tag = "3")]
    pub(crate) ttl_s: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchOrder", tags = "1, 2")]
    pub(crate) order: Option<WatchOrder>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum WatchOrder {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// What is not wanted: [`NO_PUTS`].
    #[prost(int32, repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
    /// Chosen by us.
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

/// Leaves ends of keys alone to be told.
pub(crate) const NO_PUTS: i32 = 0;

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct WatchCancel {
    #[prost(int64, tag = "1")]
    pub(crate) watch_id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchResponse {
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// Something that happened to a key: what does not matter, since only ends are asked for.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Event {}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}
