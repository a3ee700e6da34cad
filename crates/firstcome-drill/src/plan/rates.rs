//! The arithmetic: every limit is a rate of people per second, and the smallest binds.

use super::admit::Admit;
use super::inputs::Inputs;
use anyhow::{Context, anyhow, ensure};
use firstcome::core::limits::{ROOM_ACTIVE_MAX, ROOM_PERIOD_MS_MAX, ROOM_WAITING_MAX};
use firstcome::core::room::RoomSettings;
use serde_json::{Value, json};

/// Slots relative to the mean number of people inside: stays vary, and an unclaimed slot is occupied too.
pub(crate) const HEAD_ROOM: f64 = 1.2;
/// Visits with fewer queries than this do not limit a back end.
const QUERIES_MIN: f64 = 0.1;

/// A limit of the people per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Connection time of the database.
    DatabasePool,
    /// People inside at once.
    Slots,
    /// The people who come: no more arrive.
    Demand,
}

impl Limit {
    /// Returns the stable name in the JSON.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::DatabasePool => "database_pool",
            Self::Slots => "max_active",
            Self::Demand => "demand",
        }
    }

    /// Returns the description for people.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::DatabasePool => "database connection time",
            Self::Slots => "people inside at once",
            Self::Demand => "demand",
        }
    }
}

/// The results of the inputs. Rates are people per second.
pub(crate) struct Plan {
    pub(crate) inputs: Inputs,
    /// Connections that are busy on average.
    pub(crate) busy: f64,
    pub(crate) people: f64,
    /// Every limit with its rate, the smallest first.
    pub(crate) limits: Vec<(Limit, f64)>,
    /// The rate that the back end carries, or the given one.
    pub(crate) rate: f64,
    pub(crate) admit: Admit,
    pub(crate) max_active: u64,
}

impl Plan {
    /// Computes a plan. Fails if no room could have its settings.
    pub(crate) fn new(inputs: &Inputs) -> anyhow::Result<Self> {
        let visit_s = inputs.visit_s();
        ensure!(
            QUERIES_MIN <= inputs.queries(),
            "--reads and --writes are less than {QUERIES_MIN} together: too few to need a room"
        );
        let stay_s = inputs.stay.as_secs_f64();
        ensure!(visit_s < stay_s, "a stay of {stay_s} s is too short for {visit_s} s of queries, one after the other");
        let busy = inputs.pool as f64 * inputs.utilisation;
        let people = (inputs.mau as f64 * inputs.daily * inputs.peak).round().max(1.0);
        let slots = inputs.max_active.map(|people| (Limit::Slots, people as f64 / (stay_s * HEAD_ROOM)));
        let back_end: Vec<_> = [(Limit::DatabasePool, busy / visit_s)].into_iter().chain(slots).collect();
        let carried = back_end.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
        let mut limits = back_end;
        limits.push((Limit::Demand, people / inputs.spike.as_secs_f64()));
        limits.sort_by(|left, right| left.1.total_cmp(&right.1));
        let rate = inputs.rate.unwrap_or(carried);
        let beyond = || anyhow!("no room can be set to {rate} people per second: 1 a day to 1000000 per 100 ms");
        let admit = Admit::at_most(rate).with_context(beyond)?;
        let inside = (rate * stay_s * HEAD_ROOM).ceil();
        let max_active = inputs.max_active.map_or(inside, |people| inside.min(people as f64));
        ensure!(
            max_active <= f64::from(ROOM_ACTIVE_MAX),
            "{max_active} people inside at once: a room has at most {ROOM_ACTIVE_MAX} slots"
        );
        ensure!(
            people <= f64::from(ROOM_WAITING_MAX),
            "{people} people come at once: a room has at most {ROOM_WAITING_MAX} in line"
        );
        let (inputs, max_active) = (inputs.clone(), max_active as u64);
        Ok(Self { inputs, busy, people, limits, rate, admit, max_active })
    }

    /// Returns the limit that binds, with its rate.
    pub(crate) fn binding(&self) -> (Limit, f64) {
        self.limits[0]
    }

    /// Returns the rate that one limit allows.
    pub(crate) fn of(&self, limit: Limit) -> f64 {
        self.limits.iter().find(|(name, _)| *name == limit).map_or(f64::INFINITY, |(_, rate)| *rate)
    }

    /// Returns how long people wait in line, from the opening on; 0 if no line forms.
    pub(crate) fn line_s(&self) -> f64 {
        let rate = self.admit.per_second();
        if self.of(Limit::Demand) <= rate { 0.0 } else { self.people / rate }
    }

    /// Returns the demanded connection time per second as a share of the available time, while the room admits without
    /// a pause.
    pub(crate) fn offered(&self) -> f64 {
        self.admit.per_second() * self.inputs.visit_s() / self.inputs.pool as f64
    }

    /// Returns the same share at the busiest moment of this crowd: people who came less than a stay ago are inside.
    pub(crate) fn offered_by_crowd(&self) -> f64 {
        let (stay_s, spike_s) = (self.inputs.stay.as_secs_f64(), self.inputs.spike.as_secs_f64());
        let entering_s = self.line_s().max(spike_s);
        let entering = self.people / entering_s;
        entering * entering_s.min(stay_s) / stay_s * self.inputs.visit_s() / self.inputs.pool as f64
    }

    /// Returns the body for `PUT /v1/rooms/{room}`. Omitted settings keep their defaults.
    pub(crate) fn room(&self) -> Value {
        let defaults = RoomSettings::defaults();
        let mut room = json!({"admit": self.admit, "max_active": self.max_active});
        if f64::from(defaults.max_waiting) < self.people {
            room["max_waiting"] = (self.people as u64).into();
        }
        // A slot must not end in the middle of a usual visit.
        let twice_ms = self.inputs.stay.as_millis() as u64 * 2;
        if defaults.active_ttl_ms < twice_ms {
            room["active_ttl_ms"] = twice_ms.min(ROOM_PERIOD_MS_MAX).into();
        }
        room
    }

    /// Returns the command that sets the room.
    pub(crate) fn curl(&self) -> String {
        let head =
            "curl -X PUT http://127.0.0.1:8080/v1/rooms/concert -H \"authorization: Bearer $FIRSTCOME_ADMIN_KEY\"";
        format!("{head} -H 'content-type: application/json' -d '{}'", self.room())
    }
}
