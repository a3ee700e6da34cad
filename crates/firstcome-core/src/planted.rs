//! Deliberate bugs, compiled in only by the test-only feature `planted-bugs`.
//!
//! A checker that never saw a bug proves nothing. Each bug here breaks one promise on purpose; the simulator must
//! name the invariant that it breaks, else its checker is blind. At most one is planted at a time.

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
    /// Two claims of one batch get each other's place.
    OrderSwapped,
    /// An answer leaves before its commit.
    AnswerBeforeCommit,
    /// "Sold out" is told while the last claims are not yet durable.
    SoldOutTooEarly,
    /// Claims of a commit that failed stay in memory.
    ClaimsNotTakenBack,
    /// What was decided about a room in a commit that failed stays in memory.
    RoomNotTakenBack,
    /// Bids and points of a commit that failed stay in memory.
    AuctionNotTakenBack,
    /// A room admits a tenth more than its rate.
    RateTooHigh,
    /// Two people get the same number.
    NumberTwice,
    /// Who has gone silent is admitted all the same.
    AbsentAdmitted,
    /// After a restart a caller with a slot waits in line too.
    InBothSets,
    /// The pass of a caller that left is still valid.
    PassOutlivesSlot,
    /// A position counts those who left.
    DepartedCounted,
    /// A slot that is not taken up is never given to anybody else.
    SlotLost,
    /// A lock is given up by the caller that asks.
    AnybodyReleases,
    /// A lock is granted again with the fence that it had.
    FenceStands,
    /// A lock is granted to a waiter whose process counts as dead, for ever.
    DeadServed,
    /// A grant whose push is lost is never noticed.
    WakeUpLost,
    /// A lock that was given up goes on being renewed.
    RenewedAfterRelease,
    /// A holder counts its lease from when it heard of the grant.
    DeadlineFromArrival,
    /// The hold of a bidder who was outbid is released twice.
    ReleasedTwice,
    /// The hold of a bidder who was outbid is never released.
    HoldNotReleased,
    /// An auction whose winner did not settle is closed, and its hold released, again and again.
    ClosedTwice,
    /// A refused bid puts the end off.
    ExtendedByRefused,
    /// A database that lacks what it acknowledged is taken for one that is up to date.
    WentBackUnseen,
    /// Claims are acknowledged early though Redis may lose their places.
    UnfitUnseen,
    /// A batch of bids is judged by what was read before the lock was got.
    JudgedBeforeLock,
    /// The lock of a listing is given up before what was done under it is committed.
    UnlockedBeforeCommit,
    /// Wallets are locked in any order the bids name them.
    WalletsUnordered,
    /// Names that differ in case alone are one.
    NamesFolded,
    /// Half of an even number of nodes counts as a majority.
    MajorityEvenSplit,
    /// A lock over several nodes is believed to be held until its lease ends, as if all clocks ran alike.
    ValidityWithoutDrift,
    /// A node that grants after its answer was given up keeps the lock.
    LateGrantNotUndone,
    /// A grant is told though its fence is known to one node alone.
    FenceFromMinority,
    /// What a primary answers counts though another stands in its place.
    ReleasedOnDemoted,
}

impl Bug {
    /// All that the simulator must find, with a name for tables.
    pub const ALL: [(Self, &'static str); 28] = [
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
        (Self::AnybodyReleases, "released by anybody"),
        (Self::FenceStands, "fence not raised"),
        (Self::DeadServed, "granted to the skipped dead"),
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

    /// Those of stores on SQL databases, which their own tests must find: the simulator has no database.
    pub const ON_SQL: [(Self, &'static str); 4] = [
        (Self::JudgedBeforeLock, "judged before the lock"),
        (Self::UnlockedBeforeCommit, "unlocked before the commit"),
        (Self::WalletsUnordered, "wallets locked in any order"),
        (Self::NamesFolded, "names folded"),
    ];

    /// Those of locks over several nodes, which the model beside their rules must find.
    pub const ON_QUORUM: [(Self, &'static str); 4] = [
        (Self::MajorityEvenSplit, "half is a majority"),
        (Self::ValidityWithoutDrift, "validity without drift"),
        (Self::LateGrantNotUndone, "late grant not undone"),
        (Self::FenceFromMinority, "fence from a minority"),
    ];

    /// Those of a server that is replaced, which the tests of the link to it must find.
    pub const ON_REPLACED: [(Self, &'static str); 1] = [(Self::ReleasedOnDemoted, "released on a demoted primary")];
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Plants a bug in this thread, or takes it out again.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

static EVERYWHERE: OnceLock<Bug> = OnceLock::new();

/// Plants a bug in the whole process for good, by its name in [`Bug::ALL`]: for a service that a drill is to find out.
/// False if there is no such bug, or another one is planted already.
pub fn plant_everywhere(name: &str) -> bool {
    let known = Bug::ALL.iter().find(|(_, known)| *known == name);
    known.is_some_and(|(bug, _)| EVERYWHERE.set(*bug).is_ok())
}

/// Whether this bug is planted in this thread, or in the whole process.
pub fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug) || EVERYWHERE.get() == Some(&bug)
}
