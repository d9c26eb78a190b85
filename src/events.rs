//! Tells what each row of a batch is: an upsert, a delete, a truncate, or nothing that silver takes.
//!
//! The rules come from the settings; columns are found by name without regard to case, as in Spark. A predicate that
//! is NULL or false makes an upsert.

use crate::change::RejectReason;
use crate::error::{Error, Result};
use crate::settings::EventRules;
use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::datafusion::common::DFSchema;
use deltalake::datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use deltalake::datafusion::logical_expr::{Expr, Volatility};
use deltalake::datafusion::physical_expr::PhysicalExpr;
use deltalake::datafusion::physical_expr::utils::collect_columns;
use deltalake::datafusion::prelude::SessionContext;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// What one event does to silver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Sets the row of its key.
    Upsert,
    /// Deletes the row of its key.
    Delete,
    /// Deletes every key that has an event below it; it has no key of its own.
    Truncate,
    /// Stays in bronze and out of silver.
    Skip,
    /// An operation outside the closed set.
    Unknown,
}

/// The rules of the settings, ready for rows of one schema.
pub struct EventClassifier {
    rule: Rule,
}

enum Rule {
    Always(EventKind),
    Values {
        column: Option<usize>,
        kinds: HashMap<String, EventKind>,
    },
    Predicates {
        predicates: Vec<(Arc<dyn PhysicalExpr>, EventKind)>,
        schema: SchemaRef,
    },
}

impl EventClassifier {
    /// Prepares `rules` for batches of `schema`.
    ///
    /// Fails with a settings error when a predicate does not parse, names a column that the schema lacks, or is no
    /// condition.
    pub fn new(rules: &EventRules, schema: &SchemaRef) -> Result<Self> {
        let rule = match rules {
            EventRules::Predicates {
                deletes: None,
                truncates: None,
            } => Rule::Always(EventKind::Upsert),
            EventRules::Predicates { .. } => predicates_rule(rules, schema)?,
            EventRules::Operations {
                column,
                upsert,
                delete,
                truncate,
                skip,
            } => Rule::Values {
                column: find_column(schema, column),
                kinds: operation_kinds(&[
                    (upsert, EventKind::Upsert),
                    (delete, EventKind::Delete),
                    (truncate, EventKind::Truncate),
                    (skip, EventKind::Skip),
                ]),
            },
        };
        Ok(EventClassifier { rule })
    }

    /// Where the columns stand in the schema that tell the kinds, ascending.
    pub fn columns(&self) -> BTreeSet<usize> {
        match &self.rule {
            Rule::Always(_) => BTreeSet::new(),
            Rule::Values { column, .. } => column.iter().copied().collect(),
            Rule::Predicates { predicates, .. } => predicates
                .iter()
                .flat_map(|(predicate, _)| collect_columns(predicate))
                .map(|column| column.index())
                .collect(),
        }
    }

    /// One kind for each row of `batch`, which has the schema given to [`EventClassifier::new`].
    pub fn classify(&self, batch: &RecordBatch) -> Result<Vec<EventKind>> {
        let rows = batch.num_rows();
        match &self.rule {
            Rule::Always(kind) => Ok(vec![*kind; rows]),
            Rule::Values { column: None, .. } => Ok(vec![EventKind::Unknown; rows]),
            Rule::Values {
                column: Some(column),
                kinds,
            } => {
                let text = cast(batch.column(*column), &DataType::Utf8)?;
                let text = text.as_string::<i32>();
                Ok((0..rows).map(|row| operation(text, row, kinds)).collect())
            }
            Rule::Predicates { predicates, schema } => {
                let renamed = RecordBatch::try_new(schema.clone(), batch.columns().to_vec())?;
                let mut kinds = vec![EventKind::Upsert; rows];
                for (predicate, kind) in predicates {
                    mark(predicate, &renamed, *kind, &mut kinds);
                }
                Ok(kinds)
            }
        }
    }
}

impl EventKind {
    /// Why a row of this kind is refused, if it is.
    pub fn refusal(self) -> Option<RejectReason> {
        match self {
            EventKind::Upsert | EventKind::Delete | EventKind::Truncate | EventKind::Skip => None,
            EventKind::Unknown => Some(RejectReason::UnknownOp),
        }
    }
}

/// The index of the column of this name: exact, else the only one that differs in case alone.
pub fn find_column(schema: &Schema, name: &str) -> Option<usize> {
    let fields = schema.fields();
    let exact = fields.iter().position(|field| field.name() == name);
    exact.or_else(|| {
        fields
            .iter()
            .position(|field| field.name().to_lowercase() == name.to_lowercase())
    })
}

fn operation_kinds(lists: &[(&Vec<String>, EventKind)]) -> HashMap<String, EventKind> {
    let pairs = lists
        .iter()
        .flat_map(|(values, kind)| values.iter().map(|value| (value.clone(), *kind)));
    pairs.collect()
}

/// Gives `kind` to the rows that `predicate` is true for. A row whose values the predicate cannot take is told apart from
/// the others, which are classified all the same.
fn mark(
    predicate: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    kind: EventKind,
    kinds: &mut [EventKind],
) {
    let count = rows.num_rows();
    match predicate
        .evaluate(rows)
        .and_then(|value| value.into_array(count))
    {
        Ok(value) => {
            let value = value.as_boolean();
            // NULL is not true.
            let holds = match value.nulls() {
                Some(nulls) => value.values() & nulls.inner(),
                None => value.values().clone(),
            };
            for row in holds.set_indices() {
                // What another predicate could not take stays refused.
                if kinds[row] != EventKind::Unknown {
                    kinds[row] = kind;
                }
            }
        }
        Err(_) if count > 1 => {
            let half = count / 2;
            let (left, right) = kinds.split_at_mut(half);
            mark(predicate, &rows.slice(0, half), kind, left);
            mark(predicate, &rows.slice(half, count - half), kind, right);
        }
        Err(_) => kinds.fill(EventKind::Unknown),
    }
}

fn operation(text: &StringArray, row: usize, kinds: &HashMap<String, EventKind>) -> EventKind {
    if text.is_null(row) {
        return EventKind::Unknown;
    }
    kinds
        .get(text.value(row))
        .copied()
        .unwrap_or(EventKind::Unknown)
}

/// The predicates of `rules` by the name of their setting; where several hold, the last one counts.
fn named_predicates(rules: &EventRules) -> Vec<(&'static str, &str, EventKind)> {
    let EventRules::Predicates { deletes, truncates } = rules else {
        return Vec::new();
    };
    let named = [
        ("apply_as_deletes", deletes, EventKind::Delete),
        ("apply_as_truncates", truncates, EventKind::Truncate),
    ];
    named
        .into_iter()
        .filter_map(|(name, sql, kind)| Some((name, sql.as_deref()?, kind)))
        .collect()
}

fn predicates_rule(rules: &EventRules, schema: &SchemaRef) -> Result<Rule> {
    // DataFusion lowers unquoted names, so lower-case column names make them match whatever their case.
    let lowered = |field: &Arc<Field>| {
        field
            .as_ref()
            .clone()
            .with_name(field.name().to_lowercase())
    };
    let schema = Arc::new(Schema::new(
        schema.fields().iter().map(lowered).collect::<Vec<_>>(),
    ));
    let predicates = named_predicates(rules)
        .into_iter()
        .map(|(name, sql, kind)| Ok((predicate(name, sql, &schema)?, kind)))
        .collect::<Result<_>>()?;
    Ok(Rule::Predicates { predicates, schema })
}

fn predicate(name: &str, sql: &str, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let wrong = |error: String| {
        Error::settings(format!("{name} = {sql:?}: {error}"))
            .hint("a column that no file has brought yet must stand in schema_hints")
    };
    let context = SessionContext::new();
    let known = DFSchema::try_from(schema.clone()).map_err(|error| wrong(error.to_string()))?;
    let expr = context
        .parse_sql_expr(sql, &known)
        .map_err(|error| wrong(error.to_string()))?;
    refuse_changing(&expr).map_err(wrong)?;
    let predicate = context
        .create_physical_expr(expr, &known)
        .map_err(|error| wrong(error.to_string()))?;
    let data_type = predicate
        .data_type(schema)
        .map_err(|error| wrong(error.to_string()))?;
    if data_type != DataType::Boolean {
        return Err(wrong(format!(
            "is no condition but a value of type {data_type}"
        )));
    }
    Ok(predicate)
}

/// Silver is a function of the events alone, so a function that answers otherwise at another time has no place here.
fn refuse_changing(expr: &Expr) -> std::result::Result<(), String> {
    let mut found = None;
    let walked = expr.apply(|node| {
        if let Expr::ScalarFunction(function) = node
            && function.func.signature().volatility != Volatility::Immutable
        {
            found = Some(function.func.name().to_string());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(|error| error.to_string())?;
    match found {
        Some(name) => Err(format!("{name}() does not always give the same answer")),
        None => Ok(()),
    }
}

/// Checks what can be told without the columns: that each predicate reads as one condition. The settings that are wrong,
/// by name, each with a settings error.
pub fn check_rules(rules: &EventRules) -> Vec<(&'static str, Error)> {
    let wrong = |(name, sql, _)| Some((name, check_predicate(name, sql).err()?));
    named_predicates(rules)
        .into_iter()
        .filter_map(wrong)
        .collect()
}

fn check_predicate(name: &str, sql: &str) -> Result<()> {
    let dialect = deltalake::datafusion::sql::sqlparser::dialect::GenericDialect {};
    let parser = deltalake::datafusion::sql::sqlparser::parser::Parser::new(&dialect);
    let parsed = parser.try_with_sql(sql).and_then(|mut parser| {
        parser.parse_expr()?;
        parser.expect_token(&deltalake::datafusion::sql::sqlparser::tokenizer::Token::EOF)
    });
    parsed.map(|_| ()).map_err(|error| {
        Error::settings(format!("{name} = {sql:?} is no condition: {error}"))
            .hint("write a condition such as op = 'D'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};

    fn batch() -> RecordBatch {
        let op: ArrayRef = Arc::new(StringArray::from(vec![
            Some("D"),
            Some("I"),
            None,
            Some("X"),
        ]));
        let seq: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
        RecordBatch::try_from_iter([("Op", op), ("seq", seq)]).unwrap()
    }

    fn classify(rules: &EventRules) -> Result<Vec<EventKind>> {
        let batch = batch();
        EventClassifier::new(rules, &batch.schema())?.classify(&batch)
    }

    fn predicate(sql: &str) -> EventRules {
        EventRules::Predicates {
            deletes: Some(sql.into()),
            truncates: None,
        }
    }

    #[test]
    fn unknown_column_in_predicate_is_a_settings_error() {
        let error = classify(&predicate("nope = 'D'")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.message().contains("nope"), "{error}");
    }

    #[test]
    fn predicate_that_is_no_condition_is_a_settings_error() {
        assert_eq!(classify(&predicate("seq + 1")).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn predicate_that_answers_otherwise_at_another_time_is_refused() {
        for sql in ["random() > 0.5", "now() > '2020-01-01'"] {
            assert_eq!(
                classify(&predicate(sql)).unwrap_err().exit_code(),
                2,
                "{sql}"
            );
        }
    }

    #[test]
    fn text_that_is_no_condition_is_refused_before_any_column_is_known() {
        assert_eq!(check_rules(&predicate("op = = 'D'")).len(), 1);
        assert_eq!(check_rules(&predicate("op = 'D' extra")).len(), 1);
        assert!(check_rules(&predicate("nope = 'D'")).is_empty());
    }

    #[test]
    fn row_that_a_predicate_cannot_take_is_unknown_and_the_others_are_not() {
        use EventKind::{Delete, Unknown, Upsert};
        let flag: ArrayRef = Arc::new(StringArray::from(vec!["1", "x", "0", "1"]));
        let batch = RecordBatch::try_from_iter([("flag", flag)]).unwrap();
        let rules = predicate("cast(flag as int) = 1");
        let kinds = EventClassifier::new(&rules, &batch.schema())
            .unwrap()
            .classify(&batch);
        assert_eq!(kinds.unwrap(), [Delete, Unknown, Upsert, Delete]);
    }

    #[test]
    fn columns_are_those_that_tell_the_kind() {
        let columns = |rules: &EventRules| {
            let classifier = EventClassifier::new(rules, &batch().schema()).unwrap();
            classifier.columns().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(columns(&predicate("seq > 3")), [1]);
        assert_eq!(columns(&predicate("OP = 'D' AND seq + seq > 3")), [0, 1]);
        let closed = |column: &str| EventRules::Operations {
            column: column.into(),
            upsert: vec![],
            delete: vec!["D".into()],
            truncate: vec![],
            skip: vec![],
        };
        assert_eq!(columns(&closed("op")), [0]);
        assert_eq!(columns(&closed("kind")), [0; 0]);
    }

    #[test]
    fn null_predicate_is_an_upsert_and_names_ignore_case() {
        use EventKind::{Delete, Upsert};
        assert_eq!(
            classify(&predicate("OP = 'D'")).unwrap(),
            [Delete, Upsert, Upsert, Upsert]
        );
        assert_eq!(
            classify(&predicate("upper(op) = 'D' OR seq > 3")).unwrap(),
            [Delete, Upsert, Upsert, Delete]
        );
    }

    #[test]
    fn event_that_both_predicates_hold_for_is_a_truncate() {
        use EventKind::{Delete, Truncate, Upsert};
        let rules = EventRules::Predicates {
            deletes: Some("op = 'D' OR op = 'X'".into()),
            truncates: Some("op = 'X'".into()),
        };
        assert_eq!(
            classify(&rules).unwrap(),
            [Delete, Upsert, Upsert, Truncate]
        );
    }

    #[test]
    fn closed_set_knows_nothing_else() {
        use EventKind::{Delete, Skip, Truncate, Unknown};
        let rules = EventRules::Operations {
            column: "op".into(),
            upsert: vec![],
            delete: vec!["D".into()],
            truncate: vec!["X".into()],
            skip: vec!["I".into()],
        };
        assert_eq!(classify(&rules).unwrap(), [Delete, Skip, Unknown, Truncate]);
    }

    #[test]
    fn missing_operation_column_makes_every_event_unknown() {
        let rules = EventRules::Operations {
            column: "kind".into(),
            upsert: vec!["I".into()],
            delete: vec![],
            truncate: vec![],
            skip: vec![],
        };
        assert_eq!(classify(&rules).unwrap(), [EventKind::Unknown; 4]);
    }
}
