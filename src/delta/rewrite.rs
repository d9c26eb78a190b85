//! Writes the rows of some data files again, changed, in one commit.
//!
//! The files leave and new ones with as many rows come. What changes in a row is left to the caller, and so is what to do
//! when another writer was faster: nothing is rebased.

use super::append::column_names;
use super::{CommitOutcome, Operation, Table, TableCommit};
use crate::crash::{CrashPoint, CrashSwitch};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use deltalake::kernel::Add;

/// Writes all rows of `files` again as `changed` makes them: batches of the columns of the table become batches of the
/// columns of `schema`, which are those of the table and perhaps new ones behind them.
///
/// If the program stops inside, all rows are as before or all are changed; files without a log entry are left to vacuum.
pub async fn rewrite(
    table: &mut Table,
    schema: &SchemaRef,
    files: &[String],
    changed: &mut dyn FnMut(&RecordBatch) -> Result<RecordBatch>,
    crash: &CrashSwitch,
) -> Result<CommitOutcome> {
    let mut commit = TableCommit::new(Operation::Merge);
    let mut rows = 0;
    let mut writer = table.row_writer(schema.clone())?;
    for path in files {
        let file = table
            .file(path)
            .ok_or_else(|| Error::bug(format!("no such data file: {path}")))?;
        for scanned in table.scan(file, &column_names(&table.schema()))? {
            let old = scanned?.rows;
            let new = changed(&old)?;
            if new.num_rows() != old.num_rows() {
                return Err(Error::bug(format!(
                    "{} rows of {path} became {}",
                    old.num_rows(),
                    new.num_rows()
                )));
            }
            rows += new.num_rows();
            writer.write(&new).await?;
        }
        commit.removes.push(table.remove_of(file, true));
    }
    commit.adds = writer.close().await?;
    if schema.fields().len() > table.schema().fields().len() {
        commit.schema = Some(schema.clone());
    }
    let bytes = |adds: &[Add]| adds.iter().map(|add| add.size).sum::<i64>();
    commit.metric("numFiles", commit.adds.len());
    commit.metric("numRemovedFiles", commit.removes.len());
    commit.metric("numOutputRows", rows);
    commit.metric("numOutputBytes", bytes(&commit.adds));
    crash.reach(CrashPoint::BeforeBronzeCommit)?;
    table.commit(commit).await
}
