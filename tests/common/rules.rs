//! The settings of silver that decide its rows, and the fold under them, dully. Shares no code with the crate.

use super::history::{Event, History, Random};
use std::collections::{BTreeMap, BTreeSet};

/// What decides the rows of silver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// SCD type 2, with the tracked columns.
    pub tracked: Option<Vec<&'static str>>,
    /// A delete leaves no row (SCD type 1).
    pub hard: bool,
    /// Columns in which a NULL keeps the value so far.
    pub ignore_null: Vec<&'static str>,
    /// A column lists the columns that an event carries.
    pub lists_columns: bool,
    /// The sequence is two columns.
    pub two_sequences: bool,
    /// The sequence stays out of a silver of type 2.
    pub without_sequence: bool,
}

const VALUES: [&str; 2] = ["status", "amount"];

impl Rules {
    pub(crate) fn random(random: &mut Random) -> Self {
        let some_of = |random: &mut Random| match random.below(4) {
            0 => vec![],
            1 => vec!["status"],
            2 => vec!["amount"],
            _ => VALUES.to_vec(),
        };
        let has_history = random.below(5) < 2;
        let lists_columns = random.one_in(4);
        Rules {
            tracked: has_history.then(|| match random.below(3) {
                0 => vec!["status"],
                1 => vec!["amount"],
                _ => VALUES.to_vec(),
            }),
            hard: !has_history && random.one_in(2),
            ignore_null: match lists_columns || random.one_in(3) {
                true => vec![],
                false => some_of(random),
            },
            lists_columns,
            two_sequences: random.one_in(4),
            without_sequence: random.one_in(2),
        }
    }

    pub(crate) fn has_truncates(&self) -> bool {
        self.tracked.is_none()
    }

    /// The lines of `[pipeline.P.silver]`.
    pub(crate) fn settings(&self) -> String {
        let mut lines = Vec::new();
        let mut excepted = vec!["op"];
        match &self.tracked {
            Some(tracked) => {
                lines.push("stored_as_scd_type = 2".to_string());
                lines.push(format!("track_history_column_list = {tracked:?}"));
                if self.without_sequence {
                    excepted.push("seq");
                    excepted.push("n");
                }
            }
            None => lines.push(format!(
                "deletes = {:?}",
                if self.hard { "hard" } else { "soft" }
            )),
        }
        if !self.ignore_null.is_empty() {
            lines.push(format!("ignore_null_updates = {:?}", self.ignore_null));
        }
        if self.lists_columns {
            lines.push("columns_to_update = \"fields\"".into());
        }
        let sequence = match self.two_sequences {
            true => vec!["seq", "n"],
            false => vec!["seq"],
        };
        let truncate = if self.has_truncates() { "\"T\"" } else { "" };
        lines.push(format!("sequence_by = {sequence:?}"));
        lines.push(format!(
            "operations = {{ column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"], truncate = [{truncate}] }}"
        ));
        if !self.two_sequences {
            excepted.push("n");
        }
        if !self.lists_columns {
            excepted.push("fields");
        }
        excepted.dedup();
        lines.push(format!("except_column_list = {excepted:?}"));
        lines.join("\n")
    }

    /// Hints for every column that an event may have.
    pub(crate) const HINTS: &'static str = "op STRING, order_id BIGINT, status STRING, amount DECIMAL(10,2), seq BIGINT, n INT, fields STRING";

    /// The columns of silver, in the order in which [`Rules::silver`] tells them.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        let sequence: &[&str] = match (self.two_sequences, self.shows_sequence()) {
            (_, false) => &[],
            (true, true) => &["seq", "n"],
            (false, true) => &["seq"],
        };
        let own: &[&str] = match (&self.tracked, self.hard) {
            (Some(_), _) => &["__START_AT", "__END_AT"],
            (None, true) => &[],
            (None, false) => &["deleted"],
        };
        [&["order_id", "status", "amount"], sequence, own].concat()
    }

    fn shows_sequence(&self) -> bool {
        self.tracked.is_none() || !self.without_sequence
    }

    /// What one line of a file says.
    pub(crate) fn line(&self, event: &Event) -> String {
        let mut line = event.line();
        if event.op == 'T' {
            line = line.replace(&format!("\"order_id\":{}", event.key), "\"order_id\":null");
        }
        if self.two_sequences {
            let sequence = format!("\"seq\":{}", event.seq);
            let two = format!("\"seq\":{},\"n\":{}", event.seq / 3, event.seq % 3);
            line = line.replace(&sequence, &two);
        }
        if self.lists_columns {
            let fields = self.carried(event).join(",");
            line = line.replace('}', &format!(",\"fields\":{fields:?}}}"));
        }
        line
    }

    pub(crate) fn text(&self, events: &[Event]) -> String {
        let lines = events.iter().map(|event| self.line(event) + "\n");
        lines.collect()
    }

    /// Which columns an event carries, told by its own numbers.
    fn carried(&self, event: &Event) -> Vec<&'static str> {
        match (event.seq + event.key) % 4 {
            _ if !self.lists_columns => VALUES.to_vec(),
            0 => vec!["amount"],
            1 => vec!["status"],
            _ => VALUES.to_vec(),
        }
    }

    /// Sorts each key's events by (sequence, file, row) and folds them. The rows are told as text, sorted.
    pub(crate) fn silver(&self, history: &History) -> Vec<String> {
        let mut events: Vec<(i64, &str, usize, &Event)> = Vec::new();
        for (file, lines) in &history.files {
            let rows = lines.iter().enumerate();
            events.extend(rows.map(|(row, event)| (event.seq, file.as_str(), row, event)));
        }
        events.sort_by_key(|(seq, file, row, _)| (*seq, *file, *row));
        let is_truncate = |event: &Event| event.op == 'T';
        let truncates: BTreeSet<i64> = events
            .iter()
            .filter(|(.., event)| is_truncate(event))
            .map(|(seq, ..)| *seq)
            .collect();
        let mut keys: BTreeMap<i64, Vec<&Event>> = BTreeMap::new();
        for (.., event) in events {
            if !is_truncate(event) {
                keys.entry(event.key).or_default().push(event);
            }
        }
        let mut rows: Vec<String> = Vec::new();
        for (key, events) in keys {
            rows.extend(match &self.tracked {
                Some(tracked) => self.history_of(key, &events, tracked),
                None => Vec::from_iter(self.row_of(key, &events, &truncates)),
            });
        }
        rows.sort();
        rows
    }

    /// The values after an event, where `so_far` were the values before it.
    fn values_after(&self, event: &Event, so_far: &[Option<String>; 2]) -> [Option<String>; 2] {
        let own = [event.status.clone(), event.amount.map(money)];
        let mut values = own.clone();
        for (place, name) in VALUES.iter().enumerate() {
            let null_keeps = event.op == 'D' || self.ignore_null.contains(name);
            let keeps = !self.carried(event).contains(name) || (null_keeps && own[place].is_none());
            if keeps {
                values[place] = so_far[place].clone();
            }
        }
        values
    }

    fn row_of(&self, key: i64, events: &[&Event], truncates: &BTreeSet<i64>) -> Option<String> {
        let mut state: Option<([Option<String>; 2], i64, bool)> = None;
        let mut truncates: Vec<i64> = truncates.iter().rev().copied().collect();
        let truncate = |state: &mut Option<([Option<String>; 2], i64, bool)>, at: i64| {
            if self.hard {
                *state = None;
            } else if let Some((_, seq, deleted)) = state {
                *seq = at;
                *deleted = true;
            }
        };
        for event in events {
            while truncates.last().is_some_and(|at| *at <= event.seq) {
                truncate(&mut state, truncates.pop().unwrap());
            }
            if event.op == 'D' && self.hard {
                state = None;
                continue;
            }
            let so_far = state.map_or([None, None], |(values, ..)| values);
            state = Some((
                self.values_after(event, &so_far),
                event.seq,
                event.op == 'D',
            ));
        }
        while let Some(at) = truncates.pop() {
            truncate(&mut state, at);
        }
        let (values, seq, deleted) = state?;
        let own = match self.hard {
            true => String::new(),
            false => format!(" deleted={deleted}"),
        };
        Some(format!("{}{}{own}", told(key, &values), self.sequence(seq)))
    }

    fn history_of(&self, key: i64, events: &[&Event], tracked: &[&str]) -> Vec<String> {
        struct Version {
            values: [Option<String>; 2],
            seq: i64,
            start: i64,
            end: Option<i64>,
        }
        let mut versions: Vec<Version> = Vec::new();
        let mut is_live = false;
        for event in events {
            let open = versions.last_mut().filter(|_| is_live);
            if event.op == 'D' {
                if let Some(open) = open {
                    open.end = Some(event.seq);
                }
                is_live = false;
                continue;
            }
            let so_far = open
                .as_ref()
                .map_or([None, None], |open| open.values.clone());
            let values = self.values_after(event, &so_far);
            let same = |name: &&str| {
                let place = VALUES.iter().position(|value| value == name).unwrap();
                values[place] == so_far[place]
            };
            match open {
                Some(open) if tracked.iter().all(same) => {
                    open.values = values;
                    open.seq = event.seq;
                    continue;
                }
                Some(open) => open.end = Some(event.seq),
                None => {}
            }
            is_live = true;
            versions.push(Version {
                values,
                seq: event.seq,
                start: event.seq,
                end: None,
            });
        }
        let wide = versions
            .iter()
            .filter(|version| version.end != Some(version.start));
        wide.map(|version| {
            let (values, seq) = (told(key, &version.values), self.sequence(version.seq));
            let end = version.end.map_or("NULL".into(), |end| self.span(end));
            format!(
                "{values}{seq} __START_AT={} __END_AT={end}",
                self.span(version.start)
            )
        })
        .collect()
    }

    fn sequence(&self, seq: i64) -> String {
        match (self.shows_sequence(), self.two_sequences) {
            (false, _) => String::new(),
            (true, true) => format!(" seq={} n={}", seq / 3, seq % 3),
            (true, false) => format!(" seq={seq}"),
        }
    }

    fn span(&self, seq: i64) -> String {
        match self.two_sequences {
            true => format!("{{seq: {}, n: {}}}", seq / 3, seq % 3),
            false => seq.to_string(),
        }
    }
}

fn told(key: i64, values: &[Option<String>; 2]) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or("NULL".into());
    format!(
        "order_id={key} status={} amount={}",
        text(&values[0]),
        text(&values[1])
    )
}

fn money(hundredths: i64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
