//! Shows that the invariants can see: each deliberate bug must be caught, and by the invariant that it breaks.
//!
//! An assertion of the rules may stop a bug before any client could notice. That counts as caught, not as seen: the
//! invariants are there for the bugs that no assertion stops, so each bug has the one that must name it.

use crate::{Violation, run_seed};
use firstcome_core::planted::{Bug, plant};
use std::ops::Range;

/// One bug, and how it fared.
pub struct Hunt {
    /// Its name; "nothing planted" for the run that must find nothing.
    pub bug: &'static str,
    /// The invariant that must name it, if there is a bug.
    pub expected: Option<&'static str>,
    /// What was found first.
    pub found: Option<Violation>,
    /// Seeds that were played.
    pub played: u64,
}

impl Hunt {
    /// Whether exactly what must be found was found.
    pub fn is_right(&self) -> bool {
        self.found.as_ref().map(|violation| violation.invariant) == self.expected
    }
}

/// The invariant that must name a bug.
pub const fn expected(bug: Bug) -> &'static str {
    match bug {
        Bug::OversellByOne | Bug::SoldOutTooEarly => "no_oversell",
        Bug::OneUserTwice => "one_each",
        Bug::GapInSerials | Bug::OrderSwapped | Bug::ClaimsNotTakenBack => "gapless_in_order",
        Bug::AnswerBeforeCommit => "acknowledged_stays",
        Bug::AuctionNotTakenBack => "points_conserved",
        Bug::NumberTwice | Bug::InBothSets | Bug::RoomNotTakenBack => "one_place",
        Bug::RateTooHigh | Bug::AbsentAdmitted | Bug::SlotLost => "admission_pace",
        Bug::PassOutlivesSlot | Bug::RenewedTicketLives => "acknowledged_rooms",
        Bug::LatecomerDrawn => "places_drawn",
        Bug::DepartedCounted => "position_falls",
        Bug::AnybodyReleases | Bug::TooManyShare => "fenced_exclusion",
        Bug::FenceStands => "fences_grow",
        Bug::DeadServed => "fifo_grants",
        Bug::WakeUpLost => "no_lost_wake_up",
        Bug::RenewedAfterRelease => "lock_replies",
        Bug::DeadlineFromArrival => "hold_deadline",
        Bug::ReleasedTwice | Bug::HoldNotReleased => "holds_end_once",
        Bug::ClosedTwice => "one_sale",
        Bug::ExtendedByRefused => "acknowledged_auctions",
        Bug::WentBackUnseen => "loss_is_noticed",
        Bug::UnfitUnseen => "acknowledged_nodes",
        Bug::JudgedBeforeLock | Bug::UnlockedBeforeCommit | Bug::WalletsUnordered | Bug::NamesFolded => {
            "none: no database"
        }
        Bug::MajorityEvenSplit | Bug::ValidityWithoutDrift | Bug::LateGrantNotUndone | Bug::FenceFromMinority => {
            "none: no quorum"
        }
        Bug::ReleasedOnDemoted => "none: no server that is replaced",
    }
}

/// Hunts every bug through these seeds, and plays them all once more with nothing planted.
pub fn hunt_all(seeds: &Range<u64>) -> Vec<Hunt> {
    let clean = hunt(seeds, None, "nothing planted");
    let planted = Bug::ALL.iter().map(|&(bug, name)| hunt(seeds, Some(bug), name));
    std::iter::once(clean).chain(planted).collect()
}

fn hunt(seeds: &Range<u64>, bug: Option<Bug>, name: &'static str) -> Hunt {
    plant(bug);
    let mut played = 0;
    let found = seeds.clone().find_map(|seed| {
        played += 1;
        // Stopped by an assertion is caught, but seen by no client: the hunt goes on.
        run_seed(seed).err().filter(|found| bug.is_none() || found.invariant != "assertion")
    });
    plant(None);
    Hunt { bug: name, expected: bug.map(expected), found, played }
}
