//! What nothing rests on any more goes, and nothing that was told is contradicted.

mod keys;
