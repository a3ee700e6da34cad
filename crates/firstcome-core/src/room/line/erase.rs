//! Forgets the user of tickets.

use super::{Columns, Line};

impl Line {
    /// Forgets a user who has no living ticket: no ticket in memory names the user any more. Returns the numbers, rising.
    pub(in crate::room) fn forget_user(&mut self, user: &str) -> Vec<u32> {
        assert!(self.of_user(user).is_none(), "a living ticket leaves before its user is forgotten");
        let mut forgotten = Vec::new();
        if user.is_empty() {
            return forgotten;
        }
        for segment in 0..self.segments.len() {
            let first = self.first_of(segment);
            if let Some(columns) = &mut self.segments[segment].columns {
                forgotten.extend(columns.forget_user(user).into_iter().map(|at| first + at));
            }
        }
        forgotten
    }
}

impl Columns {
    fn forget_user(&mut self, user: &str) -> Vec<u32> {
        // One search of the whole text tells most segments apart without a look at each ticket.
        if !self.users.contains(user) {
            return Vec::new();
        }
        let named: Vec<usize> = (0..self.ends.len()).filter(|at| self.user(*at) == user).collect();
        for at in &named {
            let start = if *at == 0 { 0 } else { self.ends[*at - 1] as usize };
            self.users.replace_range(start..self.ends[*at] as usize, "");
            self.ends[*at..].iter_mut().for_each(|end| *end -= user.len() as u32);
        }
        self.requests.retain(|(at, _)| !named.contains(&usize::from(*at)));
        named.into_iter().map(|at| at as u32).collect()
    }
}
