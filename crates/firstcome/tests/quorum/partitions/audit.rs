//! What processes wrote down about their holds, and what must be true of it.

use std::collections::BTreeMap;
use std::path::Path;

/// One hold, as its holder saw it. Times are those of [`super::now_us`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) fence: u64,
    /// Before its attempt began.
    pub(super) asked_us: u64,
    /// After its holder was told.
    pub(super) told_us: u64,
    /// Until then it is certainly had, and not given back.
    pub(super) until_us: u64,
}

/// What should not be. An example of each.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Two grants of one fence.
    pub(super) same_fence: Vec<(Grant, Grant)>,
    /// A grant with a lower fence than one that was told before its attempt began.
    pub(super) fell: Vec<(Grant, Grant)>,
    /// Two that believe it at the same time.
    pub(super) overlaps: Vec<(Grant, Grant)>,
    /// Certain holds of which the later one has the lower fence.
    pub(super) out_of_order: Vec<(Grant, Grant)>,
}

impl Found {
    pub(super) fn add(&mut self, other: Self) {
        self.same_fence.extend(other.same_fence);
        self.fell.extend(other.fell);
        self.overlaps.extend(other.overlaps);
        self.out_of_order.extend(other.out_of_order);
    }
}

/// All grants of a lock that processes wrote down in this directory.
pub(super) fn read(directory: &Path, lock: &str) -> Vec<Grant> {
    let mut grants = Vec::new();
    for file in std::fs::read_dir(directory).expect("the directory can be read") {
        let path = file.expect("it can be read").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("grants-")) {
            let text = std::fs::read_to_string(&path).expect("the file can be read");
            grants.extend(grants_of(&text, lock));
        }
    }
    grants
}

/// What all processes have counted, killed ones too.
pub(super) fn counts(directory: &Path) -> [u64; 3] {
    let mut sums = [0; 3];
    for file in std::fs::read_dir(directory).expect("the directory can be read") {
        let path = file.expect("it can be read").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("counts-")) {
            let text = std::fs::read_to_string(&path).expect("the file can be read");
            let counts = text.split(' ').map(|count| count.parse::<u64>().unwrap_or(0));
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    sums
}

/// Lines of one process: `granted LOCK FENCE ASKED TOLD UNTIL`, `renewed LOCK FENCE UNTIL`, `ended LOCK FENCE AT`.
fn grants_of(text: &str, lock: &str) -> Vec<Grant> {
    let mut grants: BTreeMap<u64, Grant> = BTreeMap::new();
    let mut twice = Vec::new();
    // Who was killed may have left half a line.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        if words.get(1) != Some(&lock) {
            continue;
        }
        let numbers: Vec<u64> = words[2..].iter().map(|word| word.parse().expect("a number")).collect();
        match (words[0], &numbers[..]) {
            ("granted", &[fence, asked_us, told_us, until_us]) => {
                twice.extend(grants.insert(fence, Grant { fence, asked_us, told_us, until_us }));
            }
            ("renewed", &[fence, until_us]) => {
                let grant = grants.get_mut(&fence).expect("it was granted before");
                grant.until_us = grant.until_us.max(until_us);
            }
            ("ended", &[fence, at_us]) => {
                let grant = grants.get_mut(&fence).expect("it was granted before");
                grant.until_us = grant.until_us.min(at_us);
            }
            _ => panic!("{line}?"),
        }
    }
    grants.into_values().chain(twice).collect()
}

/// Looks at all grants of a lock.
pub(super) fn audit(grants: &[Grant]) -> Found {
    let mut found = Found::default();
    let mut sorted = grants.to_vec();
    sorted.sort_by_key(|grant| grant.fence);
    found.same_fence.extend(sorted.windows(2).filter(|two| two[0].fence == two[1].fence).map(pair));
    sorted.sort_by_key(|grant| grant.told_us);
    let mut highest: Vec<&Grant> = Vec::new();
    for grant in &sorted {
        highest.push(highest.last().map_or(grant, |last| if last.fence < grant.fence { grant } else { last }));
    }
    for grant in &sorted {
        let before = sorted.partition_point(|before| before.told_us < grant.asked_us);
        if let Some(before) = before.checked_sub(1).map(|last| highest[last]).filter(|it| grant.fence <= it.fence) {
            found.fell.push((before.clone(), grant.clone()));
        }
    }
    // Who was told when it was over already has not believed it for a moment.
    let certain: Vec<Grant> = sorted.into_iter().filter(|grant| grant.told_us < grant.until_us).collect();
    found.out_of_order.extend(certain.windows(2).filter(|two| two[1].fence <= two[0].fence).map(pair));
    let mut last: Option<&Grant> = None;
    for grant in &certain {
        if let Some(last) = last.filter(|last| grant.told_us < last.until_us) {
            found.overlaps.push((last.clone(), grant.clone()));
        }
        if last.is_none_or(|last| last.until_us < grant.until_us) {
            last = Some(grant);
        }
    }
    found
}

fn pair(two: &[Grant]) -> (Grant, Grant) {
    (two[0].clone(), two[1].clone())
}

/// What an audit that never saw a breach says is worth nothing.
#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: fence, asked, told, until. Same fence, fell, overlaps, out of order.
    #[track_caller]
    fn check(rows: &[(u64, u64, u64, u64)], wanted: [usize; 4]) {
        let of = |&(fence, asked_us, told_us, until_us): &_| Grant { fence, asked_us, told_us, until_us };
        let Found { same_fence, fell, overlaps, out_of_order } = audit(&rows.iter().map(of).collect::<Vec<_>>());
        assert_eq!([same_fence.len(), fell.len(), overlaps.len(), out_of_order.len()], wanted, "{rows:?}");
    }

    #[test]
    fn each_breach_is_seen() {
        check(&[(1, 0, 10, 20), (2, 5, 20, 30), (3, 31, 40, 50)], [0, 0, 0, 0]);
        check(&[(1, 0, 10, 20), (2, 5, 19, 30)], [0, 0, 1, 0]);
        // A long one, and two that are within it.
        check(&[(1, 0, 10, 99), (2, 5, 19, 30), (3, 5, 40, 50)], [0, 0, 2, 0]);
        check(&[(2, 0, 10, 20), (1, 11, 30, 40)], [0, 1, 0, 1]);
        // Asked before the other one was told: it may have been first, if clocks jump.
        check(&[(2, 0, 10, 20), (1, 9, 30, 40)], [0, 0, 0, 1]);
        check(&[(2, 0, 10, 20), (2, 9, 30, 40)], [1, 0, 0, 1]);
        // It was over when its holder was told, who was stopped in between.
        check(&[(1, 0, 30, 20), (2, 9, 15, 40)], [0, 0, 0, 0]);
    }

    #[test]
    fn lines_of_a_process_are_read() {
        let text = "granted a 7 1 2 30\ngranted b 9 1 2 30\nrenewed a 7 50\nended a 7 40\ngranted a 8 41 42 60\ngran";
        let grants = grants_of(text, "a");
        let of = |fence, asked_us, told_us, until_us| Grant { fence, asked_us, told_us, until_us };
        assert_eq!(grants, [of(7, 1, 2, 40), of(8, 41, 42, 60)]);
        assert_eq!(grants_of("granted a 7 1 2 3\ngranted a 7 4 5 6\n", "a").len(), 2);
    }
}
