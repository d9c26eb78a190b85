//! A seeded walk over everything that can happen to a checkpoint, against a model that knows only the rules.

use super::fixture::*;
use super::{ApplyCounters, CheckpointStore, FileOutcome, FileState, OutcomeKind};
use crate::batch::{BatchId, BatchLimits};
use crate::change::{FileFault, ParkReason, Version};
use crate::settings::AllowOverwrites;
use std::collections::BTreeMap;

/// A small generator of its own, so that a seed means the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A file on disk is its content: a number that is its size too.
#[derive(Default)]
struct Model {
    disk: BTreeMap<String, u64>,
    /// What bronze holds.
    bronze: BTreeMap<String, u64>,
    /// Files whose rows someone asked to be loaded again.
    wanted: BTreeMap<String, bool>,
    last_id: i64,
    version: i64,
}

struct Walk {
    bench: Bench,
    model: Model,
    dice: Dice,
    now: i64,
}

impl Walk {
    fn step(&mut self) {
        self.now += SECOND;
        match self.dice.below(12) {
            0..3 => self.change_disk(),
            3..6 => self.reconcile(),
            6..9 => self.run_batch(),
            9 => self.reset(),
            10 => self.clean(),
            _ => self.restart(),
        }
        self.check();
    }

    fn change_disk(&mut self) {
        for _ in 0..=self.dice.below(3) {
            let path = format!("{}", self.dice.below(8));
            match self.dice.below(3) {
                0 => self.model.disk.remove(&path),
                _ => self.model.disk.insert(path, self.dice.below(5)),
            };
        }
    }

    fn reconcile(&mut self) {
        let files: Vec<(&str, u64, i64)> = self
            .model
            .disk
            .iter()
            .map(|(path, content)| (path.as_str(), *content, 1))
            .collect();
        let policy = match self.dice.below(3) {
            0 => AllowOverwrites::Replace,
            _ => AllowOverwrites::Park,
        };
        let seen = self
            .bench
            .store
            .reconcile(&listing(&files), policy, true, self.now)
            .unwrap();
        for file in seen.to_rehash {
            if self.model.bronze.get(&file.path) == Some(&file.size) {
                self.bench.store.confirm_touched(&file).unwrap();
            } else if self.bench.store.confirm_changed(&file, policy).unwrap() == FileState::Pending
            {
                self.model.wanted.insert(file.path, true);
            }
        }
    }

    fn run_batch(&mut self) {
        let limits = BatchLimits {
            files_max: 3,
            bytes_max: 1_000,
        };
        let Some(batch) = self.bench.store.plan(&|_| true, limits, self.now).unwrap() else {
            return;
        };
        assert!(batch.id.0 > self.model.last_id, "an id is used twice");
        self.model.last_id = batch.id.0;
        for file in &batch.files {
            let is_in_bronze = self.model.bronze.contains_key(&file.path);
            let is_wanted = self.model.wanted.get(&file.path).copied().unwrap_or(false);
            assert!(!is_in_bronze || is_wanted, "{} is loaded twice", file.path);
            assert!(
                !is_in_bronze || file.replaces,
                "{} is added to its earlier rows",
                file.path
            );
        }
        if self.dice.below(4) == 0 {
            self.bench.store.release(batch.id).unwrap();
            return;
        }
        let outcomes: Vec<FileOutcome> = batch
            .files
            .iter()
            .map(|file| self.read(&file.path, file.size))
            .collect();
        self.bench.store.prepare(batch.id, &outcomes).unwrap();
        if self.dice.below(3) == 0 {
            self.restart();
            assert_eq!(self.bench.store.planned().unwrap().as_ref(), Some(&batch));
            assert_eq!(
                self.bench.store.prepared(batch.id).unwrap().as_ref(),
                Some(&outcomes)
            );
        }
        self.model.version += 1;
        let version = Version(self.model.version);
        for outcome in &outcomes {
            if let OutcomeKind::Loaded { rows, .. } = outcome.result {
                self.model.bronze.insert(outcome.path.clone(), rows);
                self.model.wanted.remove(&outcome.path);
            }
        }
        self.bench
            .store
            .confirm_loaded(batch.id, Some(version), self.now)
            .unwrap();
        if self.dice.below(2) == 0 {
            let counters = ApplyCounters::default();
            self.bench
                .store
                .confirm_applied(version, Some(version), &counters)
                .unwrap();
        }
    }

    fn read(&mut self, path: &str, planned: u64) -> FileOutcome {
        match self.model.disk.get(path) {
            None => unread(path, OutcomeKind::Vanished),
            Some(content) if *content != planned => unread(path, OutcomeKind::Again),
            Some(_) if self.dice.below(5) == 0 => {
                let next_try_at = (self.dice.below(2) == 0).then_some(self.now + 3 * SECOND);
                let fault = FileFault::new(ParkReason::Unreadable, "a passing fault");
                unread(path, OutcomeKind::Parked { fault, next_try_at })
            }
            Some(content) => outcome(path, loaded(*content, 0)),
        }
    }

    fn reset(&mut self) {
        let mut chosen = Vec::new();
        let all = self
            .bench
            .store
            .reset_candidates(&super::Selector::All)
            .unwrap();
        for record in all {
            if self.model.disk.contains_key(&record.path) && self.dice.below(4) == 0 {
                chosen.push(record.path);
            }
        }
        self.bench.store.reset(&chosen).unwrap();
        for path in chosen {
            self.model.wanted.insert(path, true);
        }
    }

    fn clean(&mut self) {
        for record in self.bench.store.to_clean(self.now).unwrap() {
            if self.model.disk.get(&record.path) == Some(&record.size) {
                assert_eq!(
                    self.model.bronze.get(&record.path),
                    Some(&record.size),
                    "bytes not loaded are deleted"
                );
                self.model.disk.remove(&record.path);
                self.bench.store.confirm_cleaned(&record.path).unwrap();
            }
        }
    }

    fn restart(&mut self) {
        let spare = Bench::new();
        self.bench = std::mem::replace(&mut self.bench, spare).reopen();
    }

    fn check(&self) {
        assert_eq!(self.bench.store.planned().unwrap(), None);
        assert_eq!(
            self.bench.store.next_batch_id().unwrap(),
            BatchId(self.model.last_id + 1)
        );
        let mut rows = BTreeMap::new();
        self.bench
            .store
            .files(None, &mut |record| {
                if record.content_hash.is_some() {
                    rows.insert(record.path, record.rows_loaded);
                }
            })
            .unwrap();
        assert_eq!(rows, self.model.bronze, "the ledger and bronze differ");
    }
}

/// After the last change on disk a few rounds are enough: whatever is there and not parked is loaded.
fn finish(walk: &mut Walk) {
    for _ in 0..20 {
        walk.now += 10 * SECOND;
        walk.reconcile();
        walk.run_batch();
        walk.check();
    }
    let store: &CheckpointStore = &walk.bench.store;
    for path in walk.model.disk.keys() {
        let record = store.file(path).unwrap().unwrap();
        let explained = record.state == FileState::Parked && record.reason.is_some();
        let loaded = walk.model.bronze.get(path) == Some(&record.size);
        assert!(explained || loaded, "{record:?}");
    }
}

#[test]
fn ledger_agrees_with_bronze_after_every_step_of_a_random_walk() {
    for seed in 1..=10 {
        println!("seed {seed}");
        let mut walk = Walk {
            bench: Bench::new(),
            model: Model::default(),
            dice: Dice(seed),
            now: NOW,
        };
        for _ in 0..120 {
            walk.step();
        }
        finish(&mut walk);
    }
}
