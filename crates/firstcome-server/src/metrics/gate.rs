//! Metrics of gates.

use crate::grace::GateMode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ModeLabels {
    mode: &'static str,
}

/// The metric handles, looked up once.
pub(crate) struct GateFigures {
    rooms: [Gauge; GateMode::ALL.len()],
    changes: [Counter; GateMode::ALL.len()],
}

impl GateFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let rooms = Family::<ModeLabels, Gauge>::default();
        registry.register("gate_rooms", "Rooms that gates are asked about, by how the gate decides", rooms.clone());
        let changes = Family::<ModeLabels, Counter>::default();
        let help = "Changes of how the gate of a room decides, by how it decides then";
        registry.register("gate_mode_changes", help, changes.clone());
        Self {
            rooms: GateMode::ALL.map(|(_, mode)| rooms.get_or_create(&ModeLabels { mode }).clone()),
            changes: GateMode::ALL.map(|(_, mode)| changes.get_or_create(&ModeLabels { mode }).clone()),
        }
    }

    /// Counts a room that a gate is asked about from now on.
    pub(crate) fn begun(&self, mode: GateMode) {
        self.rooms[mode as usize].inc();
    }

    /// Counts a change.
    pub(crate) fn changed(&self, before: GateMode, now: GateMode) {
        self.rooms[before as usize].dec();
        self.rooms[now as usize].inc();
        self.changes[now as usize].inc();
    }

    /// Takes off a room that no gate is asked about any more.
    pub(crate) fn ended(&self, mode: GateMode) {
        self.rooms[mode as usize].dec();
    }
}
