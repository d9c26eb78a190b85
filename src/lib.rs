//! Loads files of changes exactly once into a bronze Delta table and folds them into a silver one.
//!
//! What holds, whatever the arrival order, the batch split, crashes, restarts, resets and repeats:
//!
//! 1. Every record of every landing file is in bronze exactly once, or in quarantine with a reason.
//! 2. Silver is the fold of all events in bronze, sorted for each key by (sequence, file, row).
//! 3. A stop at any point, then a restart, ends in the same tables as no stop.
//! 4. A reset lists what it forgets, and earlier rows leave in the commit that brings the new ones.
//!
//! ```text
//!  landing/                 checkpoint (SQLite)                   tables (Delta)
//!
//!  *.jsonl ---- list ----> [ pending ]
//!    ^                        | plan: freeze the file list as batch N
//!    | watch: only a hint     v
//!    | to list again       [ planned N ] -- decode --> rows ----------------> bronze @ version V
//!                             |                 \---> rejects -----------> quarantine
//!                             v                                                 |
//!                          [ loaded N @ V ] <--------- confirm -----------------+
//!                             |
//!                             | net change per key, guarded by the sequence
//!                             v
//!                          [ applied up to V ] <------ silver @ version W ----> change data feed
//! ```
//!
//! Start with [`loader`] (the loop), [`protocol`] (the order of durable writes and recovery) and [`silver`] (the fold).
//! [`landing`], [`checkpoint`], [`bronze`](mod@bronze) and [`silver`] do not know each other; they meet in [`protocol`].

mod agreement;
pub mod backfill;
pub mod batch;
pub mod bronze;
pub mod change;
pub mod checkpoint;
pub mod clean;
pub mod clock;
pub mod crash;
pub mod decode;
pub mod delta;
pub mod envelope;
pub mod error;
pub mod events;
pub mod explain;
pub mod feed;
mod file_bytes;
pub mod huge_pages;
pub mod landing;
pub mod load;
pub mod loader;
pub mod maintain;
pub mod parallel;
pub mod plural;
pub mod preview;
pub mod propose;
pub mod protocol;
pub mod quarantine;
pub mod query;
pub mod rebuild;
pub mod reset;
pub mod schema;
pub mod settings;
pub mod silver;
pub mod status;
mod time_pattern;
pub mod verify;
