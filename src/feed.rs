//! Reads the change data feed of a Delta table.
//!
//! A range is checked against the table before anything is read, so a range that the feed cannot answer is an error
//! that names the range it can answer, never an empty or a wrong result. How rows are printed is left to the caller.

mod net;
mod provider;
mod range;

pub(crate) use provider::changes_plan;

use crate::change::Version;
use crate::error::Result;
use crate::query::{self, Rows};
use chrono::{DateTime, NaiveDateTime, Utc};
use deltalake::datafusion::common::Column;
use deltalake::datafusion::logical_expr::{Expr, SortExpr, case, lit};
use deltalake::datafusion::prelude::DataFrame;
use std::path::Path;

/// One end of a range of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePoint {
    /// This commit.
    Version(Version),
    /// The first commit at or after this time as a start, the last one at or before it as an end.
    Timestamp(DateTime<Utc>),
}

impl ChangePoint {
    /// A time in ISO 8601: with an offset, or UTC without one; a date alone is its first moment.
    pub fn parse_time(text: &str) -> Option<ChangePoint> {
        if let Ok(time) = DateTime::parse_from_rfc3339(text) {
            return Some(ChangePoint::Timestamp(time.to_utc()));
        }
        let midnight = format!("{text}T00:00:00");
        let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
        [text, &midnight].into_iter().find_map(|candidate| {
            let times = formats
                .iter()
                .map(|format| NaiveDateTime::parse_from_str(candidate, format));
            times
                .flatten()
                .next()
                .map(|time| ChangePoint::Timestamp(time.and_utc()))
        })
    }
}

/// The commits whose changes are read; both ends count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRange {
    /// The first commit.
    pub from: ChangePoint,
    /// The last commit; `None` is the newest.
    pub to: Option<ChangePoint>,
}

/// The kind of a change: `insert`, `update_preimage`, `update_postimage` or `delete`.
pub const CHANGE_TYPE: &str = "_change_type";
/// The commit of a change.
pub const COMMIT_VERSION: &str = "_commit_version";
/// When the commit was made.
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";

/// The changes of the table at `path` in `range`, in the order of the commits and inside a commit by `order_by`.
///
/// The columns are those of the table and `_change_type`, `_commit_version`, `_commit_timestamp`. Two times between
/// which no commit lies have no changes. Fails with the kind `Settings` when the feed does not hold the range.
pub async fn changes(path: &Path, range: ChangeRange, order_by: &[String]) -> Result<Rows> {
    let frame = frame(path, range).await?;
    let order_by = query::names_in(frame.schema().inner(), order_by);
    let mut order = vec![ascending(COMMIT_VERSION)];
    order.extend(order_by.iter().map(|name| ascending(name)));
    order.push(change_order()?.sort(true, false));
    let sorted = frame.sort(order).map_err(query::plan_error)?;
    query::rows(sorted).await
}

/// What `range` changed in all at the table at `path`, by key: at most one insert, one delete, or one update of two rows.
///
/// The columns are those of [`changes`], the commit is the last that changed the key; in the order of `keys`. Fails like it.
pub async fn net_changes(path: &Path, range: ChangeRange, keys: &[String]) -> Result<Rows> {
    let frame = frame(path, range).await?;
    let keys = query::names_in(frame.schema().inner(), keys);
    let mut order: Vec<SortExpr> = keys.iter().map(|name| ascending(name)).collect();
    order.push(ascending(COMMIT_VERSION));
    order.push(change_order()?.sort(true, false));
    let sorted = frame.sort(order).map_err(query::plan_error)?;
    Ok(net::of(query::rows(sorted).await?, keys))
}

async fn frame(path: &Path, range: ChangeRange) -> Result<DataFrame> {
    let table = query::open(path, None).await?;
    // A range that cannot be read is told before anything is printed.
    range::check(&table, range).await?;
    let plan = changes_plan(&table, range)?;
    Ok(DataFrame::new(query::session().state(), plan))
}

fn ascending(name: &str) -> SortExpr {
    column(name).sort(true, false)
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// What went away before what came.
fn change_order() -> Result<Expr> {
    case(column(CHANGE_TYPE))
        .when(lit("delete"), lit(0))
        .when(lit("update_preimage"), lit(1))
        .when(lit("update_postimage"), lit(2))
        .otherwise(lit(3))
        .map_err(query::plan_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_time_is_refused() {
        for text in ["", "5", "yesterday", "2026-02-30", "2026-01-31T25:00:00Z"] {
            assert_eq!(ChangePoint::parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn times_without_offset_are_utc() {
        let expected = ChangePoint::parse_time("2026-01-31T01:00:00+01:00");
        assert!(expected.is_some());
        for text in [
            "2026-01-31",
            "2026-01-31T00:00:00",
            "2026-01-31 00:00:00.000",
            "2026-01-31T00:00:00Z",
        ] {
            assert_eq!(ChangePoint::parse_time(text), expected, "{text}");
        }
    }
}
