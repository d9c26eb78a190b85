//! A random history of one table's changes, from one seed: events, a cut into files, an order of arrival.

use std::fmt::Write;

/// A small generator of random numbers (xorshift), so that a seed means the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66_D1CE_4E5B | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place as u64 + 1) as usize);
        }
    }
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub op: char,
    pub key: i64,
    pub status: Option<String>,
    /// Hundredths.
    pub amount: Option<i64>,
    pub seq: i64,
}

impl Event {
    pub(crate) fn line(&self) -> String {
        let status = self
            .status
            .as_ref()
            .map_or("null".into(), |status| format!("{status:?}"));
        let amount = self.amount.map_or("null".into(), |amount| {
            format!("{}.{:02}", amount / 100, amount % 100)
        });
        format!(
            r#"{{"op":"{}","order_id":{},"status":{status},"amount":{amount},"seq":{}}}"#,
            self.op, self.key, self.seq
        )
    }
}

/// Files of a history, in the order in which they arrive.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub files: Vec<(String, Vec<Event>)>,
}

impl History {
    /// The same, with truncates among the events.
    pub(crate) fn random_with_truncates(seed: u64) -> Self {
        let mut history = History::random(seed);
        let mut random = Random::new(seed ^ 0x7777);
        for (_, events) in &mut history.files {
            for event in events {
                if random.one_in(12) {
                    event.op = 'T';
                }
            }
        }
        history
    }

    /// Few keys, with late, repeated and equal-sequence events, deletes and re-inserts.
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let keys = 1 + random.below(5) as i64;
        let count = 4 + random.below(36);
        let sequences = 2 + random.below(count);
        let mut events: Vec<Event> = (0..count)
            .map(|_| event(&mut random, keys, sequences as i64))
            .collect();
        for _ in 0..random.below(6) {
            let repeated = events[random.below(events.len() as u64) as usize].clone();
            events.push(repeated);
        }
        random.shuffle(&mut events);
        let mut files: Vec<(String, Vec<Event>)> = Vec::new();
        while !events.is_empty() {
            let size = (1 + random.below(7) as usize).min(events.len());
            files.push((
                format!("f{:03}.jsonl", random.below(1000)),
                events.drain(..size).collect(),
            ));
        }
        files.sort_by(|left, right| left.0.cmp(&right.0));
        files.dedup_by(|left, right| {
            let same = left.0 == right.0;
            if same {
                right.1.append(&mut left.1);
            }
            same
        });
        random.shuffle(&mut files);
        History { files }
    }

    pub(crate) fn text(events: &[Event]) -> String {
        events.iter().fold(String::new(), |mut text, event| {
            writeln!(text, "{}", event.line()).expect("writing to a text never fails");
            text
        })
    }

    pub(crate) fn event_count(&self) -> usize {
        self.files.iter().map(|(_, events)| events.len()).sum()
    }
}

fn event(random: &mut Random, keys: i64, sequences: i64) -> Event {
    let op = match random.below(10) {
        0..=1 => 'D',
        2..=5 => 'I',
        _ => 'U',
    };
    let sparse = if op == 'D' { 2 } else { 5 };
    Event {
        op,
        key: 1 + random.below(keys as u64) as i64,
        status: (!random.one_in(sparse)).then(|| format!("s{}", random.below(4))),
        amount: (!random.one_in(sparse)).then(|| random.below(1000) as i64),
        seq: 1 + random.below(sequences as u64) as i64,
    }
}
