//! The program as its operator meets it: a child process, real files, real signals, HTTP over loopback.
//!
//! What a unit test cannot show is shown here: that a killed process loses nothing it has told, that an answer leaves
//! after the sync and not before, that a damaged or full disk stops the writes and nothing else.

mod archive;
mod archive_auction;
mod archive_faults;
mod archive_nodes;
mod archive_rooms;
mod backup;
mod backup_faults;
mod backup_resumed;
mod bad_files;
mod clocks;
mod cluster;
mod config;
mod container;
mod disk;
mod doctor;
mod documents;
mod drill;
mod erase;
mod graceful_stop;
mod heads;
mod keys;
mod keys_command;
mod killed;
mod killed_auction;
mod lock;
mod lock_hold;
mod lock_looks;
mod lock_once;
mod lock_quorum;
mod lock_shared;
mod log_lines;
mod logs;
mod manners;
mod ops;
mod pass_keys;
mod places;
mod plan;
mod purge_cluster;
mod purge_killed;
mod records;
mod stories;
mod supervisor;
mod support;
mod sync_faults;
mod synced;
mod tls;
mod tls_roots;
mod tls_stores;
mod traces;
mod upgrade;
mod verify_sql;
