//! Deliberate bugs, compiled in only by the test-only feature `planted-bugs`.
//!
//! A checker that never saw a bug proves nothing. Each bug here breaks one promise on purpose. The simulator must name the
//! invariant that the bug breaks. A thread has at most one planted bug at a time.

use std::cell::Cell;
use std::sync::OnceLock;

/// One deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// One coupon more than the limit is issued.
    OversellByOne,
    /// A user's second claim is not recognised.
    OneUserTwice,
    /// A serial is left out.
    GapInSerials,
    /// Two claims of one batch get each other's serial.
    OrderSwapped,
    /// A caller gets its answer before the commit.
    AnswerBeforeCommit,
    /// A caller is told "sold out" while the last claims are not yet durable.
    SoldOutTooEarly,
    /// Claims of a commit that failed stay in memory.
    ClaimsNotTakenBack,
    /// Changes to a room from a commit that failed stay in memory.
    RoomNotTakenBack,
    /// Bids and points of a commit that failed stay in memory.
    AuctionNotTakenBack,
    /// A room admits a tenth more than its rate.
    RateTooHigh,
    /// Two visitors get the same number.
    NumberTwice,
    /// A visitor who fell silent is admitted all the same.
    AbsentAdmitted,
    /// After a restart a visitor with a slot waits in line too.
    InBothSets,
    /// The pass of a visitor who left is still valid.
    PassOutlivesSlot,
    /// A position counts visitors who left.
    DepartedCounted,
    /// A slot whose visitor does not take it up is never given to the next one.
    SlotLost,
    /// A visitor who joins after the opening takes part in the draw.
    LatecomerDrawn,
    /// A ticket that was renewed still leads to its place.
    RenewedTicketLives,
    /// Any caller can release a lock, not only its holder.
    AnybodyReleases,
    /// A lock is granted again with the fence of the grant before.
    FenceStands,
    /// A lock is granted to a waiter whose process counts as dead.
    DeadServed,
    /// More requests share a lock than it has permits.
    TooManyShare,
    /// A waiter never notices a grant whose push is lost.
    WakeUpLost,
    /// A lock is still renewed after its release.
    RenewedAfterRelease,
    /// A holder counts its lease from the arrival of the grant.
    DeadlineFromArrival,
    /// The hold of a bidder who was outbid is released twice.
    ReleasedTwice,
    /// The hold of a bidder who was outbid is never released.
    HoldNotReleased,
    /// An auction whose winner did not settle is closed again and again, and releases the winner's hold each time.
    ClosedTwice,
    /// A refused bid extends the auction.
    ExtendedByRefused,
    /// A database that lost commits that it had acknowledged is taken for up to date.
    WentBackUnseen,
    /// Claims are acknowledged early on a Redis that may lose them.
    UnfitUnseen,
    /// A batch of bids is judged by a state that was read before the lock was obtained.
    JudgedBeforeLock,
    /// The lock of a listing is released before the transaction under it commits.
    UnlockedBeforeCommit,
    /// Wallets are locked in the order in which bids name them.
    WalletsUnordered,
    /// Names that differ only in case count as one name.
    NamesFolded,
    /// Half of an even number of nodes counts as a majority.
    MajorityEvenSplit,
    /// A client counts on a quorum lock until its lease ends, with no allowance for clock drift.
    ValidityWithoutDrift,
    /// A node whose grant arrives after the attempt was given up keeps the lock.
    LateGrantNotUndone,
    /// A grant is reported though only one node knows its fence.
    FenceFromMinority,
    /// The answer of a demoted primary still counts.
    ReleasedOnDemoted,
}

impl Bug {
    /// The bugs that the simulator must find, with a name for tables.
    pub const ALL: [(Self, &'static str); 31] = [
        (Self::OversellByOne, "oversell by one"),
        (Self::OneUserTwice, "one user twice"),
        (Self::GapInSerials, "gap in serials"),
        (Self::OrderSwapped, "order swapped"),
        (Self::AnswerBeforeCommit, "answer before commit"),
        (Self::SoldOutTooEarly, "sold out told too early"),
        (Self::ClaimsNotTakenBack, "claims not taken back"),
        (Self::RoomNotTakenBack, "room not taken back"),
        (Self::AuctionNotTakenBack, "auctions not taken back"),
        (Self::RateTooHigh, "rate too high"),
        (Self::NumberTwice, "number drawn twice"),
        (Self::AbsentAdmitted, "absent person admitted"),
        (Self::InBothSets, "person in both sets"),
        (Self::PassOutlivesSlot, "pass outlives its slot"),
        (Self::DepartedCounted, "departed people counted"),
        (Self::SlotLost, "slot lost"),
        (Self::LatecomerDrawn, "latecomer in the draw"),
        (Self::RenewedTicketLives, "renewed ticket lives"),
        (Self::AnybodyReleases, "released by anybody"),
        (Self::FenceStands, "fence not raised"),
        (Self::DeadServed, "granted to the skipped dead"),
        (Self::TooManyShare, "more holders than permits"),
        (Self::WakeUpLost, "wake-up lost"),
        (Self::RenewedAfterRelease, "renewed after release"),
        (Self::DeadlineFromArrival, "deadline from arrival"),
        (Self::ReleasedTwice, "hold released twice"),
        (Self::HoldNotReleased, "hold not released"),
        (Self::ClosedTwice, "closed twice"),
        (Self::ExtendedByRefused, "extended by a refused bid"),
        (Self::WentBackUnseen, "database went back unseen"),
        (Self::UnfitUnseen, "unfit redis unseen"),
    ];

    /// The bugs of stores on SQL databases. Those stores' own tests must find them: the simulator has no database.
    pub const ON_SQL: [(Self, &'static str); 4] = [
        (Self::JudgedBeforeLock, "judged before the lock"),
        (Self::UnlockedBeforeCommit, "unlocked before the commit"),
        (Self::WalletsUnordered, "wallets locked in any order"),
        (Self::NamesFolded, "names folded"),
    ];

    /// The bugs of locks on a quorum. The model beside the quorum's rules must find them.
    pub const ON_QUORUM: [(Self, &'static str); 4] = [
        (Self::MajorityEvenSplit, "half is a majority"),
        (Self::ValidityWithoutDrift, "validity without drift"),
        (Self::LateGrantNotUndone, "late grant not undone"),
        (Self::FenceFromMinority, "fence from a minority"),
    ];

    /// The bugs of a server that was replaced. The tests of the link to the server must find them.
    pub const ON_REPLACED: [(Self, &'static str); 1] = [(Self::ReleasedOnDemoted, "released on a demoted primary")];
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Plants a bug in this thread, or removes it with `None`.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

static EVERYWHERE: OnceLock<Bug> = OnceLock::new();

/// Plants a bug in the whole process for good, by its name in [`Bug::ALL`]. Drills run such a service and must detect the
/// bug. Returns false if no bug has this name, or if one is planted already.
pub fn plant_everywhere(name: &str) -> bool {
    let known = Bug::ALL.iter().find(|(_, known)| *known == name);
    known.is_some_and(|(bug, _)| EVERYWHERE.set(*bug).is_ok())
}

/// Returns whether this bug is planted in this thread or in the whole process.
pub fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug) || EVERYWHERE.get() == Some(&bug)
}
