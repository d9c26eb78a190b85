//! The table function `table_changes('silver.P', from [, to])`.
//!
//! `from` and `to` are versions, or times as text; both ends count.

use crate::change::Version;
use crate::feed::{self, ChangePoint, ChangeRange};
use deltalake::DeltaTable;
use deltalake::datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use deltalake::datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};
use deltalake::datafusion::datasource::ViewTable;
use deltalake::datafusion::logical_expr::Expr;
use std::collections::HashMap;
use std::sync::Arc;

/// The function over the tables that the statement may name.
#[derive(Debug)]
pub(super) struct TableChanges {
    /// By `layer.pipeline`.
    tables: HashMap<String, DeltaTable>,
}

impl TableChanges {
    pub(super) fn new(tables: HashMap<String, DeltaTable>) -> Self {
        TableChanges { tables }
    }
}

impl TableFunctionImpl for TableChanges {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let (name, from, to) = match args.exprs() {
            [name, from] => (name, from, None),
            [name, from, to] => (name, from, Some(to)),
            _ => return plan_err!("write table_changes('silver.PIPELINE', from [, to])"),
        };
        let name = match text(name) {
            Some(name) => name,
            None => {
                return plan_err!(
                    "the table of table_changes must be a text such as 'silver.orders', not {name}"
                );
            }
        };
        let Some(table) = self.tables.get(&name) else {
            return plan_err!("table_changes knows no table {name}");
        };
        let range = ChangeRange {
            from: point(from)?,
            to: to.map(point).transpose()?,
        };
        let plan = feed::changes_plan(table, range)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

fn text(argument: &Expr) -> Option<String> {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_string),
        _ => None,
    }
}

fn point(argument: &Expr) -> Result<ChangePoint> {
    match argument {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if *number >= 0 => {
            Ok(ChangePoint::Version(Version(*number)))
        }
        _ => match text(argument).and_then(|text| ChangePoint::parse_time(&text)) {
            Some(time) => Ok(time),
            None => plan_err!(
                "a range of table_changes must be a version or a time such as '2026-01-31T12:00:00Z', not {argument}"
            ),
        },
    }
}
