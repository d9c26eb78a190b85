//! The change feed as a relation of a query.
//!
//! The range is resolved when the plan is scanned, since that alone may wait for the log.

use super::range::{self, Resolved};
use super::{CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeRange};
use crate::error::{Error, Result};
use crate::query;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use async_trait::async_trait;
use deltalake::DeltaTable;
use deltalake::datafusion::catalog::{Session, TableProvider};
use deltalake::datafusion::common::{Column, DataFusionError, Result as PlanResult};
use deltalake::datafusion::datasource::provider_as_source;
use deltalake::datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType, cast};
use deltalake::datafusion::physical_plan::ExecutionPlan;
use deltalake::datafusion::physical_plan::empty::EmptyExec;
use deltalake::delta_datafusion::DeltaCdfTableProvider;
use std::sync::Arc;

/// A plan that reads the changes of `table` in `range`: versions as BIGINT, times as TIMESTAMP in UTC.
pub(crate) fn changes_plan(table: &DeltaTable, range: ChangeRange) -> Result<LogicalPlan> {
    let provider = ChangesProvider::new(table, range)?;
    let columns: Vec<Expr> = provider
        .schema
        .fields()
        .iter()
        .map(|field| exact(field.name()))
        .collect();
    LogicalPlanBuilder::scan("changes", provider_as_source(Arc::new(provider)), None)
        .and_then(|scan| scan.project(columns))
        .and_then(LogicalPlanBuilder::build)
        .map_err(query::plan_error)
}

/// The feed's own columns with the types that the other tables have.
fn exact(name: &str) -> Expr {
    let column = Expr::Column(Column::from_name(name));
    match name {
        COMMIT_VERSION => cast(column, DataType::Int64).alias(name),
        COMMIT_TIMESTAMP => cast(
            column,
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        )
        .alias(name),
        CHANGE_TYPE => column.alias(name),
        _ => column,
    }
}

#[derive(Debug)]
struct ChangesProvider {
    table: DeltaTable,
    range: ChangeRange,
    schema: SchemaRef,
}

impl ChangesProvider {
    fn new(table: &DeltaTable, range: ChangeRange) -> Result<Self> {
        let feed = DeltaCdfTableProvider::try_new(table.clone().scan_cdf())
            .map_err(|error| Error::unavailable(format!("change data feed: {error}")))?;
        Ok(ChangesProvider {
            table: table.clone(),
            range,
            schema: feed.schema(),
        })
    }
}

#[async_trait]
impl TableProvider for ChangesProvider {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let resolved = range::check(&self.table, self.range).await;
        let resolved = resolved.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let Some(Resolved { from, to }) = resolved else {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema.project(columns)?),
                None => self.schema(),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        };
        let builder = self
            .table
            .clone()
            .scan_cdf()
            .with_starting_version(from)
            .with_ending_version(to);
        let feed = DeltaCdfTableProvider::try_new(builder)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        feed.scan(session, projection, filters, limit).await
    }
}
