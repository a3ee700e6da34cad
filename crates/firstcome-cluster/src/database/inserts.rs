//! Inserts claims and their requests: by the outbox writer, or many at once by an import.

use crate::outbox::Tag;
use firstcome_core::coupon::{Claim, Issued, Serial};
use firstcome_core::id::RequestId;
use firstcome_sql::dialect::{Column, Dialect, Value};

/// A claim to be written.
#[derive(Clone, Copy)]
pub(crate) struct NewClaim<'a> {
    /// The number of its coupon.
    pub(crate) coupon: i64,
    pub(crate) issued: Issued,
    pub(crate) claim: &'a Claim,
    pub(crate) tag: Tag,
}

/// A request that had an effect: of which kind, see [`super::kind`].
#[derive(Clone, Copy)]
pub(crate) struct NewRequest {
    /// The number of its coupon.
    pub(crate) coupon: i64,
    pub(crate) kind: i64,
    pub(crate) request: RequestId,
    pub(crate) serial: Serial,
}

/// Writes claims, of which there is at least one.
pub(crate) fn write_claims<'a>(dialect: Dialect, claims: impl Iterator<Item = NewClaim<'a>> + Clone) -> String {
    let columns = [
        Column::Number("coupon"),
        Column::Number("serial"),
        Column::Name("name"),
        Column::Number("issued_at"),
        Column::Bytes("attributes"),
        Column::Number("tag"),
    ];
    let row = |NewClaim { coupon, issued, claim, tag }: NewClaim<'a>| {
        let attributes = claim.attributes.as_ref();
        [
            Value::Number(coupon),
            Value::Number(issued.serial.get().into()),
            Value::Name(claim.user.as_str()),
            Value::Number(issued.issued_at.as_us()),
            attributes.map_or(Value::Nothing, |attributes| Value::Bytes(attributes.as_str().as_bytes())),
            Value::Number(tag.0.cast_signed()),
        ]
    };
    dialect.insert("firstcome_claim", columns, claims.map(row))
}

/// Writes requests, of which there is at least one.
pub(crate) fn write_requests(dialect: Dialect, requests: impl Iterator<Item = NewRequest> + Clone) -> String {
    let columns = [
        Column::Number("coupon"),
        Column::Number("kind"),
        Column::Bytes("request"),
        Column::Number("body"),
        Column::Number("serial"),
    ];
    let row = |NewRequest { coupon, kind, request, serial }| {
        [
            Value::Number(coupon),
            Value::Number(kind),
            Value::Key(request.key),
            Value::Number(request.body.cast_signed()),
            Value::Number(serial.get().into()),
        ]
    };
    dialect.insert("firstcome_coupon_request", columns, requests.map(row))
}
