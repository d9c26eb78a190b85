//! `explain`: every event of one key with its fate, and what comes of them.

use super::counted;
use crate::cli::JsonMode;
use crate::cli::checked::Explain;
use crate::message::{Level, Messages};
use crate::output;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use landfall::error::Result;
use landfall::explain::{Agreement, ExplainedEvent, Explanation, Place, explain as explain_key};
use serde::Serialize;
use serde_json::value::RawValue;
use std::process::ExitCode;
use std::sync::Arc;

/// Prints the events of a key; 1 where there are none, and where silver does not hold what they give.
pub(crate) async fn explain(command: Explain, messages: Messages) -> Result<ExitCode> {
    let pipeline = &command.pipeline.name;
    let explanation = explain_key(&command.pipeline, &command.key).await?;
    let key = key_text(&explanation)?;
    match command.json {
        Some(JsonMode::Document) => output::print_json(&document(pipeline, &explanation)?)?,
        Some(JsonMode::Lines) => output::print_json_list(&events(&explanation)?, JsonMode::Lines)?,
        None => print_tables(pipeline, &key, &explanation)?,
    }
    let finding = match &explanation.agreement {
        Agreement::Agrees if explanation.events.is_empty() => {
            format!("{pipeline} has no event of {key}")
        }
        Agreement::Agrees => return Ok(ExitCode::SUCCESS),
        Agreement::Unsettled(why) => {
            messages.say(Level::Warning, &format!("{pipeline}: {why}"));
            return Ok(ExitCode::SUCCESS);
        }
        Agreement::Differs => {
            format!("silver of {pipeline} does not hold what the events of {key} give")
        }
        Agreement::Behind => {
            format!("silver of {pipeline} lacks versions of bronze: run landfall run first")
        }
    };
    messages.say(Level::Error, &finding);
    Ok(ExitCode::FAILURE)
}

fn key_text(explanation: &Explanation) -> Result<String> {
    let key = &explanation.key;
    let named = key.fields.iter().zip(&key.values);
    let texts = named.map(|(field, value)| format!("{}={}", field.name(), output::cell(value, 0)));
    Ok(texts.collect::<Vec<_>>().join(" "))
}

fn print_tables(pipeline: &str, key: &str, explanation: &Explanation) -> Result<()> {
    let events = counted(explanation.events.len() as u64, "event");
    output::print_text(&format!("{pipeline} {key}: {events}\n"))?;
    if !explanation.events.is_empty() {
        let names = [
            "sequence",
            "kind",
            "record",
            "batch",
            "late after",
            "fate",
            "why",
        ];
        let rows = explanation.events.iter().enumerate();
        let rows: Vec<Vec<String>> = rows
            .map(|(row, event)| event_cells(explanation, row, event))
            .collect();
        output::print_text("\n")?;
        output::print_table(&names, &rows)?;
    } else if explanation.agreement == Agreement::Agrees {
        return Ok(());
    }
    if explanation.agreement == Agreement::Agrees {
        return print_rows("silver holds what they give", &explanation.silver);
    }
    print_rows("the events give", &explanation.folded)?;
    print_rows("silver holds", &explanation.silver)
}

fn print_rows(title: &str, rows: &RecordBatch) -> Result<()> {
    if rows.num_rows() == 0 {
        return output::print_text(&format!("\n{title}: no row\n"));
    }
    output::print_text(&format!("\n{title}:\n"))?;
    output::print_batch(rows)
}

fn event_cells(explanation: &Explanation, row: usize, event: &ExplainedEvent) -> Vec<String> {
    let sequence = match row < explanation.sequences.num_rows() {
        true => {
            let columns = explanation.sequences.columns().iter();
            let cells = columns.map(|column| output::cell(column, row));
            cells.collect::<Vec<_>>().join(", ")
        }
        false => String::new(),
    };
    vec![
        sequence,
        event.kind.unwrap_or_default().to_string(),
        event.place.to_string(),
        event.batch_id.to_string(),
        event
            .late_after
            .as_ref()
            .map_or_else(String::new, Place::to_string),
        event.fate.as_str().replace('_', " "),
        event.reason.clone(),
    ]
}

fn arrival_text(event: &ExplainedEvent) -> Option<&'static str> {
    let word = |is_in_order| match is_in_order {
        true => "in_order",
        false => "late",
    };
    event.is_in_order.map(word)
}

/// One event in JSON.
#[derive(Serialize)]
struct EventJson<'a> {
    file_path: &'a str,
    file_row: Option<i64>,
    batch_id: i64,
    sequence: Option<Box<RawValue>>,
    kind: Option<&'static str>,
    arrival: Option<&'static str>,
    late_after: Option<PlaceJson<'a>>,
    fate: &'static str,
    other: Option<PlaceJson<'a>>,
    reason: &'a str,
    values: Option<Box<RawValue>>,
}

/// A record of a file in JSON.
#[derive(Serialize)]
struct PlaceJson<'a> {
    file_path: &'a str,
    file_row: Option<i64>,
}

/// Everything in JSON.
#[derive(Serialize)]
struct Document<'a> {
    pipeline: &'a str,
    key: Box<RawValue>,
    events: Vec<EventJson<'a>>,
    folded: Vec<Box<RawValue>>,
    silver: Vec<Box<RawValue>>,
    agrees: bool,
    silver_behind: bool,
    unsettled: Option<&'a str>,
}

fn document<'a>(pipeline: &'a str, explanation: &'a Explanation) -> Result<Document<'a>> {
    let agreement = &explanation.agreement;
    let key = &explanation.key;
    let schema = Arc::new(Schema::new(key.fields.clone()));
    let key = RecordBatch::try_new(schema, key.values.clone())?;
    Ok(Document {
        pipeline,
        key: output::row_json(&key, 0)?,
        events: events(explanation)?,
        folded: output::rows_json(&explanation.folded)?,
        silver: output::rows_json(&explanation.silver)?,
        agrees: *agreement == Agreement::Agrees,
        silver_behind: *agreement == Agreement::Behind,
        unsettled: match agreement {
            Agreement::Unsettled(why) => Some(why),
            Agreement::Agrees | Agreement::Differs | Agreement::Behind => None,
        },
    })
}

fn events(explanation: &Explanation) -> Result<Vec<EventJson<'_>>> {
    let events = explanation.events.iter().enumerate();
    events
        .map(|(row, event)| event_json(explanation, row, event))
        .collect()
}

fn event_json<'a>(
    explanation: &Explanation,
    row: usize,
    event: &'a ExplainedEvent,
) -> Result<EventJson<'a>> {
    // Refused records come last and have neither sequence nor values.
    let of_event = |rows: &RecordBatch| {
        let is_there = row < rows.num_rows();
        is_there.then(|| output::row_json(rows, row)).transpose()
    };
    Ok(EventJson {
        file_path: &event.place.file_path,
        file_row: event.place.file_row,
        batch_id: event.batch_id,
        sequence: of_event(&explanation.sequences)?,
        kind: event.kind,
        arrival: arrival_text(event),
        late_after: event.late_after.as_ref().map(place_json),
        fate: event.fate.as_str(),
        other: event.other.as_ref().map(place_json),
        reason: &event.reason,
        values: of_event(&explanation.values)?,
    })
}

fn place_json(place: &Place) -> PlaceJson<'_> {
    PlaceJson {
        file_path: &place.file_path,
        file_row: place.file_row,
    }
}
