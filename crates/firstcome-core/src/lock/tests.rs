//! Tests of locks.
