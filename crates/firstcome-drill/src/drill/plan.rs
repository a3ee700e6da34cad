//! The plan of an event, made beforehand: when each person arrives, and with which role.

use crate::rng::Rng;

/// The most arrivals per second, on average over the rush: more would test only the generator.
const RUSH_PER_S: f64 = 6_000.0;
/// The shares of arrivals before the opening and in the rush; the others come late.
const EARLY: f64 = 0.30;
const RUSH: f64 = 0.45;

/// The role of a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Patient,
    /// Joins twice at the same time with the same key.
    DoubleClicks,
    /// Hangs up right after sending the join, and tries again.
    HangsUp,
    /// Stops polling without leaving.
    WalksAway,
    /// Leaves the line while waiting.
    Leaves,
    /// Is silent for longer than a present visitor may be, and comes back.
    ComesBack,
    /// Is absent when its turn comes, and never comes back.
    NeverComes,
    /// Is absent when its turn comes, and polls again after it lost the slot.
    ComesTooLate,
    /// Has the shop release its pass without a claim.
    ReleasesUnused,
    /// Leaves with a pass, without a claim.
    LeavesAdmitted,
    /// Never uses its pass: the slot ends by its time.
    BrowsesAway,
    Cheats(Cheat),
}

/// An attempt that the service must refuse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Cheat {
    ForgedTicket,
    FlippedTicket,
    ForeignTicket,
    NoPass,
    ForgedPass,
    ForeignPass,
    VerifyForged,
    VerifyForeign,
    FlippedPass,
    OtherUser,
    ReleasedPass,
    LeftPass,
    SharedPass,
    NoKey,
    WrongKey,
}

impl Cheat {
    pub(crate) const ALL: [Self; 15] = [
        Self::ForgedTicket,
        Self::FlippedTicket,
        Self::ForeignTicket,
        Self::NoPass,
        Self::ForgedPass,
        Self::ForeignPass,
        Self::VerifyForged,
        Self::VerifyForeign,
        Self::FlippedPass,
        Self::OtherUser,
        Self::ReleasedPass,
        Self::LeftPass,
        Self::SharedPass,
        Self::NoKey,
        Self::WrongKey,
    ];
    /// The number of cheats of a concert, which come first.
    const CONCERT: usize = 13;

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ForgedTicket => "a forged ticket",
            Self::FlippedTicket => "a ticket with one flipped character",
            Self::ForeignTicket => "a ticket of another room",
            Self::NoPass => "a claim without pass",
            Self::ForgedPass => "a claim with a forged pass",
            Self::ForeignPass => "a claim with a pass of another room",
            Self::VerifyForged => "a forged pass to verify",
            Self::VerifyForeign => "a pass of another room to verify",
            Self::FlippedPass => "a claim with one flipped character in the pass",
            Self::OtherUser => "a claim for another user than the pass's",
            Self::ReleasedPass => "a claim with a released pass",
            Self::LeftPass => "a claim with a pass whose holder left",
            Self::SharedPass => "a second claim with a shared pass",
            Self::NoKey => "a claim without key",
            Self::WrongKey => "a claim with a wrong key",
        }
    }

    /// Whether it is tried while waiting, before the person has a pass.
    pub(crate) const fn is_early(self) -> bool {
        (self as u8) < Self::FlippedPass as u8
    }
}

/// Draws the role of person number `person` of a concert.
pub(crate) const fn role(seed: u64, person: u32) -> Role {
    let mut rng = Rng::of(seed, person, 1);
    match rng.below(1_000) {
        0..50 => Role::DoubleClicks,
        50..90 => Role::HangsUp,
        90..140 => Role::WalksAway,
        140..190 => Role::Leaves,
        190..240 => Role::ComesBack,
        240..260 => Role::NeverComes,
        260..285 => Role::ComesTooLate,
        285..315 => Role::ReleasesUnused,
        315..340 => Role::LeavesAdmitted,
        340..370 => Role::BrowsesAway,
        370..450 => Role::Cheats(Cheat::ALL[rng.below(Cheat::CONCERT as u64) as usize]),
        _ => Role::Patient,
    }
}

/// Draws the role of a person of a sale without a room.
pub(crate) const fn role_at_counter(seed: u64, person: u32) -> Role {
    let mut rng = Rng::of(seed, person, 1);
    match rng.below(1_000) {
        0..80 => Role::DoubleClicks,
        80..150 => Role::HangsUp,
        150..170 => Role::Cheats(if rng.chance(500) { Cheat::NoKey } else { Cheat::WrongKey }),
        _ => Role::Patient,
    }
}

/// The share of admitted people who claim. Together with the stock it gives the admission rate.
pub(crate) const CLAIMING_SHARE: f64 = 0.85;

/// Draws when people arrive, in microseconds since the start, in order: a ramp up to the opening, then a rush that
/// fades, and late-comers.
pub(crate) fn arrivals_us(seed: u64, people: u32, seconds: f64, opens_s: f64) -> Vec<u64> {
    let mut rng = Rng::from_seed(seed);
    let rush_s = (f64::from(people) * RUSH / RUSH_PER_S).max(2.0).min(seconds * 0.5);
    let first_s = 0.2;
    let mut arrivals: Vec<u64> = (0..people)
        .map(|_| {
            let (kind, at) = (rng.unit(), rng.unit());
            let at_s = if kind < EARLY {
                // Denser and denser towards the opening.
                first_s + (opens_s - first_s) * at.sqrt()
            } else if kind < EARLY + RUSH {
                opens_s + rush_s * at * at.sqrt()
            } else {
                opens_s + (seconds * 0.85 - opens_s).max(0.0) * at
            };
            (at_s * 1e6) as u64
        })
        .collect();
    arrivals.sort_unstable();
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_plan_with_a_rush_at_the_opening() {
        let arrivals = arrivals_us(7, 10_000, 60.0, 9.0);
        assert_eq!(arrivals, arrivals_us(7, 10_000, 60.0, 9.0));
        assert_ne!(arrivals, arrivals_us(8, 10_000, 60.0, 9.0));
        let early = arrivals.partition_point(|&at| at < 9_000_000);
        let rush = arrivals.partition_point(|&at| at < 11_000_000) - early;
        assert!((2_700..3_300).contains(&early), "{early}");
        assert!((4_200..5_000).contains(&rush), "{rush}");
        assert!(arrivals.is_sorted() && arrivals[9_999] < 51_000_000);
    }

    #[test]
    fn every_sort_of_person_and_every_cheat_is_there() {
        let roles: Vec<Role> = (0..20_000).map(|person| role(3, person)).collect();
        for cheat in &Cheat::ALL[..Cheat::CONCERT] {
            assert!(roles.contains(&Role::Cheats(*cheat)), "{cheat:?}");
        }
        for wanted in [Role::Patient, Role::ComesBack, Role::NeverComes, Role::BrowsesAway, Role::HangsUp] {
            assert!(roles.contains(&wanted), "{wanted:?}");
        }
        let at_counter: Vec<Role> = (0..5_000).map(|person| role_at_counter(3, person)).collect();
        assert!(at_counter.contains(&Role::Cheats(Cheat::NoKey)) && at_counter.contains(&Role::DoubleClicks));
    }
}
