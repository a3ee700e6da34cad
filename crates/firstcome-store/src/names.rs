//! Pages of names, for operators who look at all that a store has.

use std::collections::BinaryHeap;

/// A page of names in the order of their bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names<N> {
    /// The names.
    pub items: Vec<N>,
    /// The name after which the next page begins; `None` on the last page.
    pub next: Option<N>,
}

impl<N: Ord + Clone> Names<N> {
    /// Takes the first `count` names after `after` out of names in any order. Looks at each name once, and keeps `count`
    /// and one of them.
    pub fn select<'a>(names: impl IntoIterator<Item = &'a N>, after: Option<&N>, count: usize) -> Self
    where
        N: 'a,
    {
        let mut least = BinaryHeap::new();
        for name in names.into_iter().filter(|&name| after.is_none_or(|after| after < name)) {
            least.push(name);
            if count + 1 < least.len() {
                least.pop();
            }
        }
        Self::of_sorted(least.into_sorted_vec().into_iter().cloned().collect(), count)
    }

    /// Makes a page from sorted names that were read with one more than `count`.
    pub fn of_sorted(mut items: Vec<N>, count: usize) -> Self {
        let more = count < items.len();
        items.truncate(count);
        let next = items.last().filter(|_| more).cloned();
        Self { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_each_name_once_and_in_order() {
        let all = ["pear", "fig", "apple", "plum", "kiwi"].map(str::to_owned);
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = Names::select(&all, after.as_ref(), 2);
            assert!(page.items.len() <= 2);
            seen.extend(page.items);
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        assert_eq!(seen, ["apple", "fig", "kiwi", "pear", "plum"]);
        assert_eq!(Names::select(&all, None, 5).next, None, "no empty page follows");
        assert_eq!(Names::select(&all, Some(&"plum".to_owned()), 5).items, [""; 0]);
    }
}
