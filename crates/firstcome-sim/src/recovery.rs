//! Shows that a start from what survived changes nothing.

use crate::primitive::Breach;

/// Recovers from rows twice, the second time from what the first recovery would write again, and checks that neither
/// changes a row.
pub fn twice<S, R>(
    stored: &S,
    recover: impl Fn(&S) -> Result<R, String>,
    written_again: impl Fn(&R, &S) -> S,
    difference: impl Fn(&S, &S) -> Option<String>,
) -> Result<R, Breach> {
    let broken = |detail| ("recovery", detail);
    let same = |before: &S, after: &S| difference(before, after).map_or(Ok(()), |detail| Err(broken(detail)));
    let written = written_again(&recover(stored).map_err(broken)?, stored);
    same(stored, &written)?;
    let recovered = recover(&written).map_err(broken)?;
    same(&written, &written_again(&recovered, &written))?;
    Ok(recovered)
}
