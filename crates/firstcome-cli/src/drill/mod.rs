//! `firstcome drill`: plays an event and audits every answer from the outside.

pub(crate) mod facts;
pub(crate) mod report;
