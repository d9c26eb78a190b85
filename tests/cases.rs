//! Small landing folders with what must come of them, through the real program: one folder of `tests/data/cases` each.
//!
//! A case drops files and runs until idle, in steps. Then files, rows, quarantine and silver are compared with `case.json`;
//! the audit must find nothing, and one more run, a restart and a reset of all files must leave everything the same.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// The program waits for the disk most of the time.
const CASES_AT_ONCE: usize = 4;

#[test]
fn every_case_ends_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 39, "only {} cases were found", cases.len());
    let waiting = Mutex::new(cases.iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CASES_AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = next(&waiting) {
                    failures.lock().unwrap().extend(failure(case));
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n\n")
    );
}

fn next<'a>(waiting: &Mutex<std::slice::Iter<'a, PathBuf>>) -> Option<&'a PathBuf> {
    waiting.lock().unwrap().next()
}

fn failure(case: &Path) -> Option<String> {
    let description: Value =
        serde_json::from_str(&fs::read_to_string(case.join("case.json")).unwrap()).unwrap();
    let one = BTreeMap::from([(String::new(), String::new())]);
    let environments = description["environments"]
        .as_array()
        .map_or(vec![one], |list| {
            let pairs = |entry: &Value| {
                entry
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(k, v)| (k.clone(), v.as_str().unwrap().into()))
                    .collect()
            };
            list.iter().map(pairs).collect()
        });
    let name = case.file_name().unwrap().to_string_lossy().to_string();
    let run = |environment: BTreeMap<String, String>| {
        Run::new(case, environment).check(&description).err()
    };
    environments
        .into_iter()
        .find_map(run)
        .map(|difference| format!("{name}: {difference}"))
}

/// What the program says about a pipeline.
#[derive(Debug, PartialEq)]
struct Outcome {
    bronze_rows: i64,
    files: BTreeMap<String, File>,
    silver: BTreeSet<String>,
    quarantine: Vec<Record>,
}

#[derive(Debug, PartialEq)]
struct File {
    state: String,
    reason: Option<String>,
    detail: String,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    file: String,
    row: i64,
    line: Option<i64>,
    reason: String,
    detail: String,
}

struct Run<'a> {
    case: &'a Path,
    folder: tempfile::TempDir,
    environment: BTreeMap<String, String>,
}

impl<'a> Run<'a> {
    fn new(case: &'a Path, mut environment: BTreeMap<String, String>) -> Self {
        environment.remove("");
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("landing")).unwrap();
        fs::copy(
            case.join("landfall.toml"),
            folder.path().join("landfall.toml"),
        )
        .unwrap();
        Run {
            case,
            folder,
            environment,
        }
    }

    fn check(&self, description: &Value) -> Result<(), String> {
        for step in description["steps"].as_array().unwrap() {
            self.step(step)?;
        }
        let outcome = self.outcome()?;
        if let Some(difference) = outcome.difference(&description["expect"]) {
            return Err(difference);
        }
        self.landfall(&["verify", "orders"], &[0])?;
        self.load()?;
        if self.outcome()? != outcome {
            return Err(format!(
                "one more run changes {outcome:?}\ninto {:?}",
                self.outcome()?
            ));
        }
        self.landfall(&["reset", "orders", "--all", "--yes"], &[0])?;
        self.load()?;
        let again = self.outcome()?;
        if let Some(after) = description.get("after_reset") {
            return again.difference(after).map_or(Ok(()), |difference| {
                Err(format!("after a reset: {difference}"))
            });
        }
        if again == outcome {
            Ok(())
        } else {
            Err(format!("a reset turns {outcome:?}\ninto {again:?}"))
        }
    }

    fn step(&self, step: &Value) -> Result<(), String> {
        if step["run"] == true {
            return self.load();
        }
        let dropped = step["drop"].as_array().cloned().unwrap_or_default();
        for file in dropped.iter().chain(step.get("replace")) {
            let from = self.case.join(file["from"].as_str().unwrap());
            let temporary = self.folder.path().join("landing/.dropping");
            fs::copy(from, &temporary).unwrap();
            fs::rename(
                temporary,
                self.folder
                    .path()
                    .join("landing")
                    .join(file["as"].as_str().unwrap()),
            )
            .unwrap();
        }
        Ok(())
    }

    fn load(&self) -> Result<(), String> {
        self.landfall(&["run", "--available-now"], &[0, 3])
            .map(|_| ())
    }

    fn outcome(&self) -> Result<Outcome, String> {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_string();
        let status = &self.json(&["status", "--json=lines"])?[0];
        let file = |file: &Value| {
            let said = File {
                state: text(file, "state"),
                reason: file["reason"].as_str().map(str::to_string),
                detail: text(file, "detail"),
            };
            (text(file, "path"), said)
        };
        let silver = self.json(&[
            "show",
            "orders",
            "silver",
            "--include-deleted",
            "--json=lines",
        ]);
        let record = |record: &Value| Record {
            file: text(record, "file_path"),
            row: record["file_row"].as_i64().unwrap(),
            line: record["file_line"].as_i64(),
            reason: text(record, "reason"),
            detail: text(record, "detail"),
        };
        let mut quarantine: Vec<_> = self
            .json(&["quarantine", "orders", "--json=lines"])?
            .iter()
            .map(record)
            .collect();
        quarantine.sort();
        Ok(Outcome {
            bronze_rows: status["bronze"]["rows"].as_i64().unwrap_or(0),
            files: self
                .json(&["files", "orders", "--json=lines"])?
                .iter()
                .map(file)
                .collect(),
            silver: silver
                .unwrap_or_default()
                .iter()
                .map(Value::to_string)
                .collect(),
            quarantine,
        })
    }

    fn json(&self, arguments: &[&str]) -> Result<Vec<Value>, String> {
        let output = self.landfall(arguments, &[0, 3])?;
        let lines = String::from_utf8(output.stdout).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}")))
            .collect()
    }

    fn landfall(&self, arguments: &[&str], codes: &[i32]) -> Result<Output, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .args(arguments)
            .current_dir(self.folder.path())
            .envs(&self.environment)
            .output()
            .unwrap();
        let code = output.status.code().unwrap_or(-1);
        if codes.contains(&code) {
            return Ok(output);
        }
        Err(format!(
            "landfall {} ends with {code}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

impl Outcome {
    /// How this differs from what a case wants; what the case does not mention is not compared.
    fn difference(&self, wanted: &Value) -> Option<String> {
        let rows = wanted["bronze_rows"]
            .as_i64()
            .filter(|rows| *rows != self.bronze_rows);
        if let Some(rows) = rows {
            return Some(format!(
                "bronze has {} rows instead of {rows}: {self:?}",
                self.bronze_rows
            ));
        }
        let records = wanted["quarantined_records"].as_u64();
        if records.is_some_and(|records| records != self.quarantine.len() as u64) {
            return Some(format!("quarantine holds {:?}", self.quarantine));
        }
        for (path, wanted) in wanted["files"].as_object().into_iter().flatten() {
            let Some(file) = self.files.get(path) else {
                return Some(format!("no file {path}: {self:?}"));
            };
            let is_so = wanted["state"] == file.state.as_str()
                && is_one_of(&wanted["reason"], file.reason.as_deref())
                && says(&file.detail, &wanted["says"]);
            if !is_so {
                return Some(format!("{path} is {file:?} instead of {wanted}"));
            }
        }
        for wanted in wanted["quarantine"].as_array().into_iter().flatten() {
            let is_so = |held: &&Record| {
                wanted["file"] == held.file.as_str()
                    && wanted["row"] == held.row
                    && (wanted["line"].is_null() || wanted["line"] == serde_json::json!(held.line))
                    && is_one_of(&wanted["reason"], Some(&held.reason))
                    && says(&held.detail, &wanted["says"])
            };
            if self.quarantine.iter().find(is_so).is_none() {
                return Some(format!("{wanted} is not in {:#?}", self.quarantine));
            }
        }
        self.silver_difference(wanted["silver_rows"].as_array()?)
    }

    /// A wanted row names some columns; each must fit exactly one row.
    fn silver_difference(&self, wanted: &[Value]) -> Option<String> {
        let rows: Vec<Value> = self
            .silver
            .iter()
            .map(|row| serde_json::from_str(row).unwrap())
            .collect();
        let fits = |row: &Value, wanted: &Value| {
            wanted
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, value)| row.get(name).unwrap_or(&Value::Null) == value)
        };
        let missing = wanted
            .iter()
            .find(|wanted| rows.iter().filter(|row| fits(row, wanted)).count() != 1);
        if let Some(missing) = missing {
            return Some(format!(
                "silver lacks {missing}, it holds {:#?}",
                self.silver
            ));
        }
        (rows.len() != wanted.len()).then(|| format!("silver holds {:#?}", self.silver))
    }
}

/// Whether `reason` is in the list `wanted`, which may be absent.
fn is_one_of(wanted: &Value, reason: Option<&str>) -> bool {
    wanted
        .as_array()
        .is_none_or(|reasons| reasons.iter().any(|one| one.as_str() == reason))
}

/// Whether a detail has every part in the list `wanted`, which may be absent.
fn says(detail: &str, wanted: &Value) -> bool {
    let mut parts = wanted.as_array().into_iter().flatten();
    parts.all(|part| detail.contains(part.as_str().unwrap()))
}
