//! Hand-off codes and renewals over HTTP: calls that give a place another ticket.

use crate::HttpStore;
use crate::call::Call;
use crate::instant;
use crate::room::{TicketBody, TicketShown, path, refused};
use firstcome_store::core::id::{RequestId, RoomName};
use firstcome_store::core::room::RenewalKey;
use firstcome_store::{Handoff, RoomAnswer, TicketAnswer};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct HandoffBody<'a> {
    code: &'a str,
}

#[derive(Deserialize)]
struct HandoffShown {
    code: Box<str>,
    expires_at: String,
}

impl HttpStore {
    /// Makes a hand-off code. The text must have the form of a ticket.
    pub(crate) async fn make_handoff(&self, room: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        let call = Call::post(format!("{}/tickets/{ticket}/handoff", path(room)), &TicketBody { user: None });
        let told = self.service.call(&call).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let HandoffShown { code, expires_at } = told.read()?;
        let until = instant::parse(&expires_at).ok_or_else(|| told.strange())?;
        Ok(Ok(Handoff { code, until }))
    }

    /// Redeems a hand-off code like [`RoomStore::redeem_handoff`](firstcome_store::RoomStore::redeem_handoff), and also returns the pass of the visitor; `None` if the slot has
    /// ended meanwhile. Needs a service key. One request; repeats under the same key.
    pub async fn redeem_pass(
        &self,
        room: &RoomName,
        code: &str,
        key: RenewalKey,
    ) -> RoomAnswer<(TicketAnswer, Option<Box<str>>)> {
        let told = self.redeem(room, code, key).await?;
        Ok(told.map(|(answer, shown)| (answer, shown.pass)))
    }

    pub(crate) async fn redeem(
        &self,
        room: &RoomName,
        code: &str,
        key: RenewalKey,
    ) -> RoomAnswer<(TicketAnswer, TicketShown)> {
        self.renewed(format!("{}/handoffs", path(room)), &HandoffBody { code }, key).await
    }

    /// Renews a ticket by a call under a key.
    pub(crate) async fn renewed(
        &self,
        path: String,
        body: &impl Serialize,
        key: RenewalKey,
    ) -> RoomAnswer<(TicketAnswer, TicketShown)> {
        // The service compares the key alone: a ticket has one meaning.
        let request = RequestId { key: key.get(), body: 0 };
        let told = self.service.call(&Call::post_once(path, body, Some(request))?).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let shown = told.read::<TicketShown>()?;
        let answer = shown.ticket.as_deref().and_then(|ticket| shown.answer(ticket));
        Ok(Ok((answer.ok_or_else(|| told.strange())?, shown)))
    }
}
