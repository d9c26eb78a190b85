//! Silver equals the fold and bronze holds each record once, over many random histories, batch cuts and crash points.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use common::history::{History, Random};
use common::rules::Rules;
use landfall::crash::CrashSwitch;
use landfall::explain::{Agreement, ExplainedEvent, explain};
use std::collections::BTreeMap;

/// Seeds of a normal run; `LANDFALL_SEEDS=first..last` runs others.
const SEEDS: std::ops::Range<u64> = 0..300;

#[test]
fn any_arrival_any_batches_any_crashes_end_in_the_fold() {
    let seeds = seeds();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let seeds = seeds.clone();
            scope.spawn(move || {
                seeds
                    .filter(|seed| seed % threads == thread)
                    .for_each(check)
            });
        }
    });
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("LANDFALL_SEEDS") else {
        return SEEDS;
    };
    let (first, last) = text
        .split_once("..")
        .expect("LANDFALL_SEEDS is first..last");
    first.parse().unwrap()..last.parse().unwrap()
}

fn check(seed: u64) {
    let mut random = Random::new(seed ^ 0x5A5A);
    let rules = Rules::random(&mut random);
    let history = match rules.has_truncates() && random.one_in(2) {
        true => History::random_with_truncates(seed),
        false => History::random(seed),
    };
    if let Err(difference) = run(seed, &rules, &history) {
        let smallest = shrunk(seed, &rules, history);
        let difference = run(seed, &rules, &smallest).err().unwrap_or(difference);
        panic!(
            "seed {seed}: {difference}\n{rules:?}\nsmallest history that differs: {smallest:#?}"
        );
    }
}

/// Drops events one by one while the history still differs.
fn shrunk(seed: u64, rules: &Rules, mut history: History) -> History {
    let mut place = 0;
    while place < history.event_count() {
        let mut smaller = history.clone();
        remove_event(&mut smaller, place);
        if run(seed, rules, &smaller).is_err() {
            history = smaller
        } else {
            place += 1
        }
    }
    history
}

fn remove_event(history: &mut History, mut place: usize) {
    for (_, events) in &mut history.files {
        if place < events.len() {
            events.remove(place);
            break;
        }
        place -= events.len();
    }
    history.files.retain(|(_, events)| !events.is_empty());
}

fn run(seed: u64, rules: &Rules, history: &History) -> Result<(), String> {
    let mut random = Random::new(seed ^ 0xA5A5);
    let mode = if random.one_in(3) {
        "copy_on_write"
    } else {
        "merge_on_read"
    };
    let index = if random.one_in(2) { "on" } else { "auto" };
    let source = format!("max_files_per_trigger = {}", 1 + random.below(4));
    // Compactions and log checkpoints come at moments of their own.
    let upkeep = format!(
        "[pipeline.orders.maintenance]\nmin_num_files = {}\nlog_checkpoint_interval = {}",
        2 + random.below(4),
        1 + random.below(6)
    );
    let loader = TestLoader::under(
        rules,
        &source,
        &format!("write_mode = \"{mode}\"\nkey_index = \"{index}\"\n{upkeep}"),
    );
    let loader = match random.one_in(6) {
        true => loader.with_little_memory(),
        false => loader,
    };
    let mut waiting = history.files.as_slice();
    let files_max = if random.one_in(3) { 4 } else { 1 };
    while !waiting.is_empty() {
        let count = 1 + random.below(files_max) as usize;
        let (now, later) = waiting.split_at(count.min(waiting.len()));
        now.iter()
            .for_each(|(name, events)| loader.drop_file(name, rules.text(events)));
        waiting = later;
        run_with_crashes(&loader, &mut random)?;
    }
    if random.one_in(4) {
        reset(&loader, &mut random);
        run_with_crashes(&loader, &mut random)?;
    }
    compare(&loader, rules, history)
}

fn run_with_crashes(loader: &TestLoader, random: &mut Random) -> Result<(), String> {
    for _ in 0..random.below(3) {
        let _ = loader.try_run(&CrashSwitch::stop_at(random.below(20) as usize));
    }
    loader
        .try_run(&CrashSwitch::default())
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn reset(loader: &TestLoader, random: &mut Random) {
    use landfall::checkpoint::Selector;
    let selector = if random.one_in(2) {
        Selector::All
    } else {
        Selector::Glob("f*[02468].jsonl".into())
    };
    let mut pipeline = loader.pipeline();
    let plan = pipeline.plan_reset(&selector).unwrap();
    pipeline.reset(&plan).unwrap();
}

fn compare(loader: &TestLoader, rules: &Rules, history: &History) -> Result<(), String> {
    let mut places = Vec::new();
    for (name, events) in &history.files {
        places.extend((1..=events.len() as i64).map(|row| (name.clone(), row)));
    }
    places.sort();
    equal("bronze", &loader.bronze_places(), &places)?;
    let silver = rules.silver(history);
    equal("silver", &loader.silver_texts(&rules.columns()), &silver)?;
    equal("feed", &loader.replayed_feed(&rules.columns()), &silver)?;
    explained(loader, history)?;
    for (name, _) in &history.files {
        equal("state", &loader.file(name).0, &"loaded".to_string())?;
    }
    let before = loader.versions();
    let summary = loader.run();
    equal("batches of one more run", &summary.batches, &0)?;
    equal("versions after one more run", &loader.versions(), &before)
}

/// What is told of the key with the most events are all of them, and they give what silver has.
fn explained(loader: &TestLoader, history: &History) -> Result<(), String> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    let events = history.files.iter().flat_map(|(_, events)| events);
    for event in events.filter(|event| event.op != 'T') {
        *counts.entry(event.key).or_default() += 1;
    }
    let Some((key, count)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
        return Ok(());
    };
    let given = [format!("order_id={key}")];
    let told = loader.block_on(explain(&loader.settings, &given));
    let told = told.map_err(|error| error.to_string())?;
    equal("agreement", &told.agreement, &Agreement::Agrees)?;
    let is_own = |event: &&ExplainedEvent| event.kind != Some("truncate");
    equal("events", &told.events.iter().filter(is_own).count(), &count)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    if is == should {
        Ok(())
    } else {
        Err(format!("{what} is {is:?}\nshould be {should:?}"))
    }
}
