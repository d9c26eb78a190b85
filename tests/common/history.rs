//! A random history of one table's changes, from one seed: events, a cut into files, an order of arrival.

use std::fmt::Write;

/// A small generator of random numbers (SplitMix64), so that a seed means the same on every machine, and neighbouring
/// seeds have nothing in common.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 1) % bound
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
                if random.one_in(10) {
                    event.op = 'T';
                } else if random.one_in(3) {
                    // What an event leaves out shows what was kept below it.
                    event.status = None;
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
        // Half of the histories arrive in disorder, half nearly in order, as feeds do: new events that build on what
        // earlier batches made are rare in the former.
        let is_orderly = random.one_in(2);
        if is_orderly {
            for (event, seq) in events.iter_mut().zip(1..) {
                event.seq = seq;
            }
            for _ in 0..events.len() / 8 {
                let places = [(); 2].map(|()| random.below(events.len() as u64) as usize);
                events.swap(places[0], places[1]);
            }
        } else {
            random.shuffle(&mut events);
        }
        let mut files: Vec<(String, Vec<Event>)> = Vec::new();
        // In small files an event seldom hides what an earlier batch made.
        let size_max = if random.one_in(3) { 7 } else { 2 };
        while !events.is_empty() {
            let size = (1 + random.below(size_max) as usize).min(events.len());
            files.push((
                format!("f{:05}.jsonl", random.below(100_000)),
                events.drain(..size).collect(),
            ));
        }
        let mut names = std::collections::HashSet::new();
        files.retain(|(name, _)| names.insert(name.clone()));
        if !is_orderly {
            random.shuffle(&mut files);
        }
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
    let sparse = if op == 'D' { 2 } else { 3 };
    Event {
        op,
        key: 1 + random.below(keys as u64) as i64,
        status: (!random.one_in(sparse)).then(|| format!("s{}", random.below(4))),
        amount: (!random.one_in(sparse)).then(|| random.below(1000) as i64),
        seq: 1 + random.below(sequences as u64) as i64,
    }
}
