//! Loads files of changes exactly once into a bronze Delta table and folds them into a silver one.
pub mod batch;
pub mod bronze;
pub mod change;
pub mod checkpoint;
pub mod clock;
pub mod crash;
pub mod decode;
pub mod delta;
pub mod error;
pub mod feed;
pub mod landing;
pub mod quarantine;
pub mod query;
pub mod schema;
pub mod settings;
