//! New settings of a coupon, a room or a listing, and which ones they may replace.

/// Settings that an operator puts.
///
/// Two operators who read the same settings, and each change something, would undo each other's change: the second put
/// carries what the first one found. With [`Self::replaces`] it is refused instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revision<S> {
    /// The settings in force from then on.
    pub settings: S,
    /// Only these may be replaced, and only these: nothing is created. Without it anything may be.
    pub replaces: Option<S>,
}

impl<S> From<S> for Revision<S> {
    /// Settings that replace any others.
    fn from(settings: S) -> Self {
        Self { settings, replaces: None }
    }
}

impl<S: PartialEq> Revision<S> {
    /// Whether these may be replaced.
    pub fn may_replace(&self, in_force: &S) -> bool {
        self.replaces.as_ref().is_none_or(|replaces| replaces == in_force)
    }
}
