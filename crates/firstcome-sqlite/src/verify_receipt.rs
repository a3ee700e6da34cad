//! Checks the published heads from the rows alone.

use super::coupon::coupons;
use super::receipt::for_each_head;
use super::room::{last_number, rooms};
use firstcome_core::receipt::{Digest, Figures, Head, Object};
use firstcome_store::Fault;
use firstcome_store::check::Check;
use firstcome_store::receipt::{HeadPublicKey, SignedHead};
use rusqlite::Connection;
use std::collections::HashMap;

/// What a room or a coupon has, as far as heads say it.
struct Standing {
    key: HeadPublicKey,
    /// The last number, and how far the line is; for a coupon the issued claims.
    figures: Figures,
}

fn standings(snapshot: &Connection) -> Result<HashMap<Object, Standing>, Fault> {
    let mut standings = HashMap::new();
    for row in rooms(snapshot)? {
        let given = last_number(snapshot, row.id)?.unwrap_or(row.first - 1);
        let figures = Figures::Room { first: row.first, given, front: row.reached };
        standings.insert(Object::Room(row.name), Standing { key: row.ticket_key.head_key().public(), figures });
    }
    for row in coupons(snapshot)? {
        let query = "SELECT count(*) FROM claim WHERE id BETWEEN ?1 AND ?2";
        let issued = snapshot.query_row(query, super::coupon::range(row.id), |row| row.get(0));
        let issued = issued.map_err(|error| super::faults::fault(&error, "cannot count the claims"))?;
        let figures = Figures::Coupon { limit: row.settings.limit.get(), issued };
        standings.insert(Object::Coupon(row.name), Standing { key: row.voucher_key.head_key().public(), figures });
    }
    Ok(standings)
}

/// Whether a head promises no more than is stored.
const fn is_kept(head: Figures, stored: Figures) -> bool {
    match (head, stored) {
        (Figures::Room { first, given, front }, Figures::Room { first: void, given: drawn, front: reached }) => {
            first <= void && given <= drawn && front <= reached
        }
        (Figures::Coupon { issued, .. }, Figures::Coupon { issued: stored, .. }) => issued <= stored,
        _ => false,
    }
}

/// Checks all heads. Each names the digest of the one before it, so the signature of the last one covers the chain.
pub(super) fn check(snapshot: &Connection) -> Result<[Check; 2], Fault> {
    let mut chain = Check::new("heads of a room or coupon are one chain, which its key has signed");
    let mut kept = Check::new("the store has all that a head has published");
    let standings = standings(snapshot)?;
    let mut last: Option<SignedHead> = None;
    let mut end = |signed: Option<SignedHead>, chain: &mut Check| {
        let Some(SignedHead { head, signature }) = signed else { return };
        let here = format!("{}, head {}", head.object, head.sequence);
        let Some(standing) = standings.get(&head.object) else {
            return chain.check(false, || format!("{here}: there is no such thing"));
        };
        kept.check(is_kept(head.figures, standing.figures), || here.clone());
        chain.check(SignedHead { head, signature }.is_signed_by(&standing.key), || here);
    };
    for_each_head(snapshot, |signed| {
        let head = &signed.head;
        let before = last.take_if(|before| before.head.object != head.object);
        end(before, &mut chain);
        let follows = follows(head, last.as_ref().map(|before| &before.head));
        chain.check(follows, || format!("{}, head {}", head.object, head.sequence));
        last = Some(signed);
        Ok(())
    })?;
    end(last.take(), &mut chain);
    Ok([chain, kept])
}

fn follows(head: &Head, before: Option<&Head>) -> bool {
    match before {
        Some(before) => head.follows(before).is_ok(),
        None => head.sequence == 1 && head.previous == Digest::NONE,
    }
}
