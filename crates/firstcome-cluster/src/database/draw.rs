//! The columns of a room's draw.

use firstcome_core::room::{Draw, DrawSeed};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::Dialect;
use firstcome_sql::reader::{Reader, wrong};
use std::fmt::Write as _;

/// Takes the draw away.
pub(super) const UNDRAWN: &str = ",draw_seed=NULL,draw_first=NULL,draw_entrants=NULL,drawn_at=NULL";

/// Sets the columns of a draw, with a comma before.
pub(super) fn drawn(dialect: Dialect, draw: &Draw) -> String {
    let mut set = String::from(",draw_seed=");
    dialect.bytes(&mut set, draw.seed.as_bytes());
    let (first, entrants, drawn_at) = (draw.first, draw.entrants, draw.drawn_at.as_us());
    let _ = write!(set, ",draw_first={first},draw_entrants={entrants},drawn_at={drawn_at}");
    set
}

/// The columns of a draw, as [`draw_of`] reads them.
pub(crate) const DRAW_COLUMNS: &str = "draw_seed,draw_first,draw_entrants,drawn_at";

/// Reads the draw, if it took place.
pub(crate) fn draw_of(columns: &mut Reader<'_>) -> Result<Option<Draw>, SqlError> {
    let (seed, first, entrants) = (columns.maybe_blob()?, columns.maybe_count()?, columns.maybe_count()?);
    let drawn_at = columns.maybe_instant()?;
    let (Some(seed), Some(first), Some(entrants), Some(drawn_at)) = (seed, first, entrants, drawn_at) else {
        return Ok(None);
    };
    let small = |number: u64| u32::try_from(number).map_err(|_| wrong("a number of a draw"));
    let seed = DrawSeed::new(seed.try_into().map_err(|_| wrong("a seed of another length"))?);
    Ok(Some(Draw { seed, first: small(first)?, entrants: small(entrants)?, drawn_at }))
}
