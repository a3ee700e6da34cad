//! The rules of firstcome, and nothing else.
//!
//! Every rule has the form `state + command + now → answer + change`. Time, identifiers and hash seeds come in as
//! values, so the same input always gives the same answer. The embedded store runs these rules unchanged. The other
//! stores restate them and are compared with them. The simulator runs them in millions of random schedules.
//!
//! # What is never here
//! IO, `async`, a clock, randomness, HTTP, JSON, SQL. No rule can fail for a reason of the machine.
//!
//! One file per primitive ([`coupon`], [`room`], [`lock`], [`auction`] over [`points`]). What they share: names and request
//! ids ([`id`]), the erasure of a person ([`erase`]), instants ([`time`]), every limit with what it protects ([`limits`]), and settings that replace others
//! ([`revision`]).

#![warn(missing_debug_implementations)]

/// Implements `Debug` by the name of the type alone, for types whose fields are handles, secrets or large tables.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_by_name {
    ($([$($generic:tt),*])? $type:ident $(<$($argument:tt),*>)?) => {
        impl$(<$($generic),*>)? ::core::fmt::Debug for $type$(<$($argument),*>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    };
}

pub mod api_key;
pub mod auction;
pub mod coupon;
pub mod erase;
pub mod id;
mod index;
pub mod limits;
pub mod lock;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod points;
pub mod receipt;
pub mod revision;
pub mod room;
pub mod time;
