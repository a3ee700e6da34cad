//! Invariant 8, of a database that goes back: it hands out nothing until the operator has decided.
//!
//! - A node that was told of more than the database holds sends no claim, unless the operator has accepted the loss since.
//! - Nor does any node with entries of a sequencer that had heard of more than the database holds.

use super::{NodesEvidence, Violation};
use crate::cluster::history::Write;

const NAME: &str = "loss_is_noticed";

/// Looks for a claim that was written over one that was told.
pub fn check(evidence: &NodesEvidence<'_>) -> Result<(), Violation> {
    for write in &evidence.history.writes {
        judge(write).map_err(|detail| Violation::new(NAME, evidence.seed, detail))?;
    }
    Ok(())
}

fn judge(write: &Write) -> Result<(), String> {
    let Write { node, before, acknowledged, sequencer } = write;
    if let Some(known) = acknowledged
        && before.position < known.position
        && before.loss_accepted <= known.generation
    {
        return Err(format!("node {node} was told of {known:?}, and wrote a claim into {before:?}"));
    }
    match sequencer {
        Some((generation, position)) if *generation == before.generation && before.position < *position => Err(
            format!("the sequencer had heard of position {position}, and node {node} wrote a claim into {before:?}"),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::sql::NodeCouponRow;

    const fn row(generation: i64, position: u64, loss_accepted: i64) -> NodeCouponRow {
        NodeCouponRow { issued: position as u32, generation, position, anchor: 0, loss_accepted }
    }

    #[test]
    fn a_claim_written_over_a_told_one_is_found() {
        let write = Write { node: 0, before: row(1, 1, 0), acknowledged: Some(row(1, 2, 0)), sequencer: None };
        assert!(judge(&write).is_err(), "the node knew");
        assert!(judge(&Write { acknowledged: None, sequencer: Some((1, 2)), ..write }).is_err(), "the sequencer knew");
        assert!(judge(&Write { before: row(2, 1, 0), ..write }).is_err(), "another generation hides nothing");
        for fine in [
            Write { before: row(1, 2, 0), ..write },
            Write { before: row(2, 1, 2), ..write },
            Write { acknowledged: None, sequencer: Some((0, 2)), ..write },
        ] {
            assert_eq!(judge(&fine), Ok(()), "{fine:?}");
        }
    }
}
