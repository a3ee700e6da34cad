//! Futures as callers get them.

use std::pin::Pin;

/// A future of which callers know no more than what it comes to. A caller that awaits one as it is compiles all of it, with every
/// query in it: here that is done once instead of in each program and each test. Costs one allocation.
pub fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    Box::pin(future)
}
