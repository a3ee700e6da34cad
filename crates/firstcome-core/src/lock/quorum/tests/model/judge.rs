//! Checks the reported grants, and the messages and answers, against the promises.

use super::{ToldGrant, World, passes_of};

impl World {
    pub(super) fn check_grant(&mut self, attempt: usize, fence: u64, until: u64) {
        let (now, begun) = (self.now, self.attempts[attempt].begun);
        let first = fence + 1 - u64::from(passes_of(attempt).get());
        self.seen.grants += 1;
        for told in &self.told {
            // A fence is above all that were reported before its attempt began. If clocks run alike, it is above all.
            let meet = first <= told.fence && told.first <= fence;
            if meet || fence < told.fence && (told.at < begun || !self.setting.jumps) {
                self.seen.broken.push(format!("fence {fence} after {}", told.fence));
            }
            self.seen.behind += usize::from(fence < told.fence);
            if now < told.until {
                self.seen.overlaps += 1;
            }
        }
        self.told.push(ToldGrant { attempt, first, fence, at: now, until });
    }

    /// Checks that each closed attempt was released on every node that may have its key, after that node's last answer.
    pub(super) fn check_undone(&mut self) {
        for (word, attempt) in self.attempts.iter().enumerate() {
            if attempt.closed == 0 || self.clients[attempt.client].life != attempt.life {
                continue;
            }
            for node in 0..self.setting.nodes {
                let (yes, released) = (attempt.yes_heard[node], attempt.released[node]);
                let needs = yes != 0 || !attempt.no_heard[node];
                if needs && released <= yes.max(attempt.closed) {
                    self.seen.broken.push(format!("attempt {word} is not undone on node {node}"));
                }
            }
        }
        if !self.setting.jumps && 0 < self.seen.overlaps {
            self.seen.broken.push(format!("{} holds overlap", self.seen.overlaps));
        }
    }
}
