//! Reads a coupon from SQL: callers that ask at the same time share one query.

use super::coupon_state::{CouponState, ReadRequest, StoredCoupon};
use crate::node::Node;
use firstcome_core::id::RequestId;
use firstcome_store::StoreError;
use firstcome_store::batcher::Service;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Questions in one query.
pub(super) const LOOKS_MAX: usize = 512;

impl Node {
    /// What SQL holds, not before this call. One round trip, shared with others.
    pub(super) async fn look(
        self: &Arc<Self>,
        state: &Arc<CouponState>,
        user: Option<&str>,
        request: Option<RequestId>,
    ) -> Result<StoredCoupon, StoreError> {
        let (tell, told) = oneshot::channel();
        let looking = ReadRequest { user: user.map(Into::into), request, tell };
        if state.looking.push(looking)? == Service::Wanted {
            tokio::spawn(serve(Arc::clone(self), Arc::clone(state)));
        }
        told.await.unwrap_or(Err(StoreError::Unknown))
    }
}

async fn serve(node: Arc<Node>, state: Arc<CouponState>) {
    for mut batch in state.looking.serve() {
        batch.retain(|looking| !looking.tell.is_closed());
        if batch.is_empty() {
            continue;
        }
        let users = batch.iter().filter_map(|looking| looking.user.as_deref()).collect();
        let keys = batch.iter().filter_map(|looking| Some(looking.request?.key)).collect();
        let before = state.known();
        let known = node.database.known(state.keys.coupon, &users, &keys).await;
        match known {
            Ok(known) => {
                let is_back = node.take_in(&state, &before, &known.row).await.and_then(|()| node.stopped(&state));
                for ReadRequest { user, request, tell } in batch {
                    let seen = StoredCoupon {
                        row: known.row.clone(),
                        claim: user.and_then(|user| known.claims.get(&user).cloned()),
                        request: request.and_then(|request| known.requests.get(&request.key).cloned()),
                        now: known.now,
                    };
                    // What is there may be told. What is not there says nothing while SQL lacks something.
                    let is_there = seen.claim.is_some() || seen.request.is_some();
                    let seen = if is_there { Ok(seen) } else { is_back.clone().map(|()| seen) };
                    // A caller that has gone does not hear it.
                    let _ = tell.send(seen);
                }
            }
            Err(error) => {
                for looking in batch {
                    let _ = looking.tell.send(Err(error.clone().into()));
                }
            }
        }
    }
}
