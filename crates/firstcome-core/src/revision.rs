//! New settings of a coupon, a room or a listing, and the settings that they may replace.

/// Settings that an operator puts.
///
/// Two operators may read the same settings and each change something: the second put would undo the first change.
/// [`Self::replaces`] prevents this: the put carries the settings that the operator read, and the store refuses it if
/// others are in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revision<S> {
    /// The settings in force from then on.
    pub settings: S,
    /// The only settings that this put may replace; with it, the put creates nothing. `None`: the put replaces any settings,
    /// and creates what does not exist.
    pub replaces: Option<S>,
}

impl<S> From<S> for Revision<S> {
    /// Makes a revision that replaces any settings.
    fn from(settings: S) -> Self {
        Self { settings, replaces: None }
    }
}

impl<S: PartialEq> Revision<S> {
    /// Returns whether this revision may replace the settings in force.
    pub fn may_replace(&self, in_force: &S) -> bool {
        self.replaces.as_ref().is_none_or(|replaces| replaces == in_force)
    }
}
