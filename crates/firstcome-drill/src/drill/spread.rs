//! Chooses the node of each request, like a balancer: some people stay with one node, others change it at every
//! request.

use crate::rng::Rng;
use std::cell::Cell;

/// How many of a thousand people stay with one node while it is up.
const STICKY_PER_MILLE: u64 = 400;

/// The nodes as the crowd sees them.
pub(crate) struct Spread {
    nodes: Vec<Node>,
    seed: u64,
}

#[derive(Default)]
struct Node {
    is_down: Cell<bool>,
    in_flight: Cell<u64>,
    /// How often it was restarted: connections to an earlier start are dead.
    start: Cell<u32>,
}

impl Spread {
    /// Creates the spread over the nodes of a cluster, all of which are up.
    pub(crate) fn over(nodes: usize, seed: u64) -> Self {
        Self { nodes: (0..nodes).map(|_| Node::default()).collect(), seed }
    }

    /// Returns the node for a request of this person now. If that node is down, the next one that is up; `None` if all
    /// are down.
    pub(crate) fn node_for(&self, person: u32, now_us: u64) -> Option<usize> {
        let count = self.nodes.len() as u64;
        let mut own = Rng::of(self.seed, person, 60);
        let is_sticky = own.chance(STICKY_PER_MILLE);
        let drawn = if is_sticky { own.below(count) } else { Rng::of(self.seed, person, now_us).below(count) };
        let from = drawn as usize;
        (from..from + self.nodes.len()).map(|at| at % self.nodes.len()).find(|at| self.is_up(*at))
    }

    pub(crate) fn is_up(&self, node: usize) -> bool {
        !self.nodes[node].is_down.get()
    }

    /// Returns the number of the node's current start.
    pub(crate) fn start_of(&self, node: usize) -> u32 {
        self.nodes[node].start.get()
    }

    /// Marks a node as down: no new connection goes to it.
    pub(crate) fn goes_down(&self, node: usize) {
        self.nodes[node].is_down.set(true);
    }

    /// Marks a node as up again.
    pub(crate) fn comes_up(&self, node: usize) {
        let node = &self.nodes[node];
        node.start.set(node.start.get() + 1);
        node.is_down.set(false);
    }

    pub(crate) fn sent(&self, node: usize) {
        let in_flight = &self.nodes[node].in_flight;
        in_flight.set(in_flight.get() + 1);
    }

    pub(crate) fn ended(&self, node: usize) {
        let in_flight = &self.nodes[node].in_flight;
        in_flight.set(in_flight.get() - 1);
    }

    /// Returns how many requests this node has not answered yet.
    pub(crate) fn in_flight_at(&self, node: usize) -> u64 {
        self.nodes[node].in_flight.get()
    }

    /// Returns how many requests are not answered yet.
    pub(crate) fn in_flight(&self) -> u64 {
        self.nodes.iter().map(|node| node.in_flight.get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn some_stay_with_one_node_and_others_change_all_the_time() {
        let spread = Spread::over(3, 7);
        let nodes = |person| (0..40).filter_map(|at_us| spread.node_for(person, at_us)).collect::<BTreeSet<_>>();
        let counts: Vec<usize> = (0..1_000).map(|person| nodes(person).len()).collect();
        let sticky = counts.iter().filter(|count| **count == 1).count();
        assert!((330..470).contains(&sticky) && counts.iter().filter(|count| **count == 3).count() + sticky == 1_000);
        let homes: BTreeSet<usize> = (0..1_000).filter(|at| counts[*at as usize] == 1).flat_map(nodes).collect();
        assert_eq!(homes.len(), 3, "those who stay are spread too");
    }

    #[test]
    fn no_person_goes_to_a_node_that_is_down() {
        let spread = Spread::over(3, 7);
        spread.goes_down(1);
        let all: BTreeSet<_> = (0..1_000).map(|person| spread.node_for(person, 5)).collect();
        assert_eq!(all, BTreeSet::from([Some(0), Some(2)]));
        spread.goes_down(0);
        spread.goes_down(2);
        assert_eq!(spread.node_for(3, 5), None);
        spread.comes_up(1);
        assert_eq!((spread.node_for(3, 5), spread.start_of(1), spread.start_of(0)), (Some(1), 1, 0));
    }
}
