//! Work before a join by the page: a script does it, and a visitor without scripts waits.

use super::super::Format;
use super::{Visit, see_other};
use crate::accept::Peer;
use crate::error::{Code, Problem};
use axum::response::Response;
use firstcome::core::id::RequestId;

pub(super) const SCRIPT: &str = include_str!("../../../assets/room.work.js");

impl Visit<'_> {
    /// Judges the work of a join and counts the join. Returns the id of the join, which the work names, or the way back to
    /// the page, which says what to do before. The wait for the shown challenge goes on there.
    pub(super) fn earned(&self) -> Result<Result<Option<RequestId>, Response>, Problem> {
        if self.app.is_dev() {
            return Ok(Ok(None));
        }
        let (shown, peer) = (self.query.work.as_deref(), self.parts.extensions.get::<Peer>().map(|peer| peer.0));
        match self.app.may_join(&self.room, shown, peer, &self.parts.headers) {
            Ok(work) => Ok(Ok(work.map(|work| work.request(&self.room, None)))),
            Err(problem) if problem.code() == Code::WorkRequired && Format::of(&self.parts.headers) == Format::Html => {
                // With `asked` the script of the page does not press the button again by itself.
                let added: Vec<_> = [("asked", "1")].into_iter().chain(shown.map(|shown| ("work", shown))).collect();
                Ok(Err(see_other(&self.address("", &added))?))
            }
            Err(problem) => Err(problem),
        }
    }
}
