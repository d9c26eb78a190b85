//! The real program in a folder of its own: drop files, run commands, read what they print.
#![allow(dead_code, reason = "each test uses its part")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a condition may take to come true. Far more than any takes, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two looks at a condition.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The columns of the orders that the tests load.
pub(crate) const HINTS: &str =
    "op STRING, order_id BIGINT, status STRING, amount DECIMAL(10,2), seq BIGINT";

/// One pipeline called `orders`.
pub(crate) struct Program {
    folder: TempDir,
}

impl Program {
    /// Orders as JSON lines.
    pub(crate) fn orders() -> Self {
        Program::with("", "")
    }

    /// Orders, with further settings of the source and of silver.
    pub(crate) fn with(source: &str, silver: &str) -> Self {
        Program::new(&orders_source(source), "", &orders_silver(silver))
    }

    /// Writes the settings file of orders again, with other further settings of silver.
    pub(crate) fn set_silver(&self, silver: &str) {
        self.set(&orders_source(""), "", &orders_silver(silver));
    }

    /// With all settings but the places. The source settles at once unless `source` says otherwise; with an empty
    /// `silver` there is none.
    pub(crate) fn new(source: &str, bronze: &str, silver: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("landing")).unwrap();
        let program = Program { folder };
        program.set(source, bronze, silver);
        program
    }

    /// Writes the settings file again.
    pub(crate) fn set(&self, source: &str, bronze: &str, silver: &str) {
        let settle = if source.contains("settle") {
            ""
        } else {
            "settle = \"0s\"\n"
        };
        let silver = if silver.is_empty() {
            String::new()
        } else {
            format!("[pipeline.orders.silver]\npath = \"lake/silver\"\n{silver}\n")
        };
        let text = format!(
            "[pipeline.orders]\ncheckpoint = \"checkpoints/orders.db\"\n\
             [pipeline.orders.source]\npath = \"landing\"\n{settle}{source}\n\
             [pipeline.orders.bronze]\npath = \"lake/bronze\"\n{bronze}\n{silver}"
        );
        fs::write(self.path("landfall.toml"), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn landing(&self, name: &str) -> PathBuf {
        self.path("landing").join(name)
    }

    /// Writes outside of the landing folder, then renames into place.
    pub(crate) fn drop_file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let target = self.landing(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let temporary = self.path("dropping");
        fs::write(&temporary, bytes).unwrap();
        fs::rename(temporary, target).unwrap();
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("LANDFALL_CONFIG");
        command
    }

    /// Runs until idle; gives the exit code.
    pub(crate) fn run(&self) -> i32 {
        code(&self.call(&["run", "--available-now"]))
    }

    /// Runs until idle; everything must load.
    pub(crate) fn load(&self) {
        let output = self.call(&["run", "--available-now"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }

    /// Drops one file and runs.
    pub(crate) fn drop_and_load(&self, name: &str, bytes: impl AsRef<[u8]>) {
        self.drop_file(name, bytes);
        self.load();
    }

    /// The JSON lines that a command prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.call(&[arguments, &["--json=lines"]].concat());
        assert!(matches!(code(&output), 0 | 3), "{}", stderr(&output));
        lines(&output)
    }

    pub(crate) fn status(&self) -> Value {
        self.json(&["status"]).remove(0)
    }

    /// What `files` says, by path.
    pub(crate) fn files(&self) -> BTreeMap<String, Value> {
        let path = |file: &Value| file["path"].as_str().unwrap().to_string();
        self.json(&["files", "orders"])
            .into_iter()
            .map(|file| (path(&file), file))
            .collect()
    }

    /// State and reason of a file, as `loaded` or `parked unreadable`; empty when it is not known.
    pub(crate) fn file(&self, path: &str) -> String {
        let Some(file) = self.files().remove(path) else {
            return String::new();
        };
        let reason = file["reason"].as_str().unwrap_or_default();
        format!("{} {reason}", file["state"].as_str().unwrap())
            .trim_end()
            .to_string()
    }

    /// `file` and row of every row of bronze, sorted.
    pub(crate) fn bronze_places(&self) -> Vec<(String, i64)> {
        let place = |row: &Value| {
            let path = row["_file_path"].as_str().unwrap().to_string();
            (path, row["_file_row"].as_i64().unwrap())
        };
        let mut places: Vec<_> = self.bronze().iter().map(place).collect();
        places.sort();
        places
    }

    pub(crate) fn bronze(&self) -> Vec<Value> {
        self.json(&["show", "orders", "bronze", "--limit", "1000000"])
    }

    /// The rows of silver, deleted ones too, as JSON texts in order.
    pub(crate) fn silver(&self) -> Vec<String> {
        let arguments = [
            "show",
            "orders",
            "silver",
            "--include-deleted",
            "--limit",
            "1000000",
        ];
        let mut rows: Vec<String> = self.json(&arguments).iter().map(Value::to_string).collect();
        rows.sort();
        rows
    }

    pub(crate) fn quarantine(&self) -> Vec<Value> {
        self.json(&["quarantine", "orders"])
    }

    /// Rows of the change feed of silver from this version on.
    pub(crate) fn changes(&self, from: i64) -> Vec<Value> {
        let version = from.to_string();
        let output = self.call(&[
            "changes",
            "orders",
            "--from-version",
            &version,
            "--json=lines",
        ]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        lines(&output)
    }

    /// Paths of the data files that a table holds now, by its log.
    pub(crate) fn data_files(&self, table: &str) -> Vec<String> {
        let log = self.path(table).join("_delta_log");
        let mut entries: Vec<PathBuf> = fs::read_dir(log)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .collect();
        entries.sort();
        let mut present: BTreeMap<String, ()> = BTreeMap::new();
        for entry in entries {
            let actions = fs::read_to_string(entry).unwrap();
            let actions: Vec<Value> = actions
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let path = |action: &Value| action["path"].as_str().map(str::to_string);
            for removed in actions.iter().filter_map(|action| path(&action["remove"])) {
                present.remove(&removed);
            }
            present.extend(
                actions
                    .iter()
                    .filter_map(|action| path(&action["add"]))
                    .map(|added| (added, ())),
            );
        }
        present.into_keys().collect()
    }

    /// The audit finds nothing.
    pub(crate) fn assert_sound(&self) {
        let output = self.call(&["verify", "orders"]);
        assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    }

    /// Starts to watch.
    pub(crate) fn watch(&self) -> Watching<'_> {
        let file = |name: &str| fs::File::create(self.path(name)).unwrap();
        let child = self
            .command(&["run"])
            .stdout(Stdio::from(file("stdout.txt")))
            .stderr(Stdio::from(file("stderr.txt")))
            .spawn()
            .unwrap();
        let watching = Watching {
            program: self,
            child,
        };
        watching.until("the run has begun", || self.path("checkpoints").exists());
        watching
    }
}

fn orders_source(source: &str) -> String {
    format!("format = \"json\"\nschema_hints = \"{HINTS}\"\n{source}")
}

/// The settings of silver for orders, with others behind them.
pub(crate) fn orders_silver(silver: &str) -> String {
    format!(
        r#"keys = ["order_id"]
sequence_by = ["seq"]
operations = {{ column = "op", upsert = ["I", "U"], delete = ["D"] }}
except_column_list = ["op"]
{silver}"#
    )
}

/// A program that watches; it is killed when this is dropped.
pub(crate) struct Watching<'a> {
    program: &'a Program,
    child: Child,
}

impl Watching<'_> {
    /// Looks again and again until the condition holds.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(
                begun.elapsed() < PATIENCE,
                "waited in vain until {what}\n{}",
                self.said()
            );
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    /// Waits until every one of these files is in this state.
    pub(crate) fn until_files(&self, state: &str, paths: &[&str]) {
        self.until(&format!("{paths:?} are {state}"), || {
            let output = self.program.call(&["files", "orders", "--json=lines"]);
            if !matches!(code(&output), 0 | 3) {
                return false;
            }
            let files = lines(&output);
            let is_so = |path: &&str| {
                files
                    .iter()
                    .any(|file| file["path"] == **path && file["state"] == state)
            };
            paths.iter().all(is_so)
        });
    }

    /// Everything that it said so far.
    pub(crate) fn said(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.program.path(name)).unwrap_or_default();
        read("stdout.txt") + &read("stderr.txt")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success(), "kill {name} {id}");
    }

    /// Asks it to end and gives the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn lines(output: &Output) -> Vec<Value> {
    stdout(output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A JSON line of one order; `amount` in hundredths.
pub(crate) fn order(op: &str, key: i64, status: &str, amount: i64, seq: i64) -> String {
    format!(
        "{{\"op\":\"{op}\",\"order_id\":{key},\"status\":\"{status}\",\"amount\":{}.{:02},\"seq\":{seq}}}\n",
        amount / 100,
        amount % 100
    )
}

/// A row of silver as `Program::silver` gives it.
pub(crate) fn row(key: i64, status: &str, amount: &str, seq: i64, deleted: bool) -> String {
    let row = serde_json::json!({
        "order_id": key, "status": status, "amount": amount, "seq": seq, "deleted": deleted
    });
    row.to_string()
}
