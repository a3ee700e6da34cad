//! The program as a person meets it who measures: a child process, real stores, HTTP over loopback.

mod bench;
mod field;
mod support;
