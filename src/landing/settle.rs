//! Says which files no longer change. Pure.
//!
//! Times of a file come from clocks and programs that may be wrong: they only ever shorten the wait for a file whose times
//! lie in the past. What we saw ourselves decides otherwise. Memory is held only for files that wait for a batch.

use super::LandingFile;
use crate::parallel::map_in_parallel;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Two looks that are closer together than this, or than `settle`, count as one.
const LOOKS_APART: Duration = Duration::from_millis(100);
/// Whether somebody writes is asked of so many files in a row by one core.
const ASKED_IN_A_ROW: usize = 256;

/// Remembers earlier looks at files that wait.
#[derive(Debug)]
pub struct Settler {
    settle: i64,
    looks_apart: i64,
    seen: HashMap<String, Observation>,
    announced: HashSet<String>,
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    size: u64,
    modified_at: i64,
    changed_at: i64,
    /// When a look first found the file so.
    since: i64,
    renamed_into_place: bool,
}

/// What one look says.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Paths that may be planned.
    pub settled: HashSet<String>,
    /// When the next look is useful; `None` when every waiting file is settled.
    pub look_again_in: Option<Duration>,
}

impl Settler {
    /// A file must be unchanged for `settle`; with zero one look is enough.
    pub fn new(settle: Duration) -> Self {
        Settler {
            settle: micros(settle),
            looks_apart: micros(settle.min(LOOKS_APART)),
            seen: HashMap::new(),
            announced: HashSet::new(),
        }
    }

    /// Tells names that were renamed into place since the last look, before the listing that follows.
    pub fn announce(&mut self, renamed_into_place: impl IntoIterator<Item = String>) {
        self.announced.extend(renamed_into_place);
    }

    /// Looks at the files that wait for a batch (`Reconciled::waiting`), as one listing saw them. All others are
    /// forgotten. `now` is in microseconds since the epoch.
    ///
    /// A file is settled when it was renamed into place while watched and is as it was then; or its last write is `settle`
    /// ago by its own time and `nobody_writes` to it, which the system knows (the look at its stamp before it is read is
    /// the second one); or its last change is `settle` ago and an earlier look found it the same; or looks found it the
    /// same for `settle`. `nobody_writes` answers `false` where the system cannot tell.
    pub fn look(
        &mut self,
        waiting: &[LandingFile],
        now: i64,
        nobody_writes: &(dyn Fn(&str) -> bool + Sync),
    ) -> Look {
        let mut look = Look::default();
        let mut next_at: Option<i64> = None;
        let mut seen = HashMap::with_capacity(waiting.len());
        let observations: Vec<Observation> =
            waiting.iter().map(|file| self.observe(file, now)).collect();
        let is_written_long_ago =
            |place: &usize| self.is_written_long_ago(&observations[*place], now);
        let asked: Vec<usize> = (0..waiting.len()).filter(is_written_long_ago).collect();
        let mut left_alone = vec![false; waiting.len()];
        let ask = |place: &usize| nobody_writes(&waiting[*place].path);
        let answers = map_in_parallel(&asked, ASKED_IN_A_ROW, ask);
        for (place, answer) in asked.into_iter().zip(answers) {
            left_alone[place] = answer;
        }
        for ((file, observation), left_alone) in waiting.iter().zip(observations).zip(left_alone) {
            let settled_at = self.settled_at(&observation, now, left_alone);
            seen.insert(file.path.clone(), observation);
            if settled_at <= now {
                look.settled.insert(file.path.clone());
            } else {
                next_at = Some(next_at.map_or(settled_at, |at| at.min(settled_at)));
            }
        }
        self.seen = seen;
        self.announced.clear();
        look.look_again_in = next_at
            .map(|at| Duration::from_micros(u64::try_from(at.saturating_sub(now)).unwrap_or(0)));
        look
    }

    fn observe(&self, file: &LandingFile, now: i64) -> Observation {
        let known = self.seen.get(&file.path).filter(|known| {
            (known.size, known.modified_at, known.changed_at)
                == (file.size, file.modified_at, file.changed_at)
        });
        Observation {
            size: file.size,
            modified_at: file.modified_at,
            changed_at: file.changed_at,
            // A clock that was set back must not make the file wait for the old time to come again.
            since: known.map_or(now, |known| known.since.min(now)),
            renamed_into_place: self.announced.contains(&file.path)
                || known.is_some_and(|known| known.renamed_into_place),
        }
    }

    /// Whether the file is settled if nobody writes to it, and not without.
    fn is_written_long_ago(&self, observation: &Observation, now: i64) -> bool {
        let is_settled = self.settle == 0 || observation.renamed_into_place;
        !is_settled && observation.modified_at.saturating_add(self.settle) <= now
    }

    /// When the file is settled if it stays as it is. `left_alone` says that it was written long ago and nobody writes to it.
    fn settled_at(&self, observation: &Observation, now: i64, left_alone: bool) -> i64 {
        if self.settle == 0 || observation.renamed_into_place || left_alone {
            return now;
        }
        let by_our_looks = observation.since.saturating_add(self.settle);
        let last_change = [observation.modified_at, observation.changed_at]
            .into_iter()
            .filter(|at| *at <= now)
            .max();
        let second_look = observation.since.saturating_add(self.looks_apart);
        match last_change {
            Some(at) => by_our_looks.min(second_look.max(at.saturating_add(self.settle))),
            None => by_our_looks,
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const NOW: i64 = 1_700_000_000 * SECOND;

    fn file(path: &str, size: u64, modified_at: i64, changed_at: i64) -> LandingFile {
        LandingFile {
            path: path.into(),
            size,
            modified_at,
            changed_at,
        }
    }

    fn settler() -> Settler {
        Settler::new(Duration::from_secs(1))
    }

    impl Settler {
        /// A look where the system cannot tell who writes.
        fn look_unsure(&mut self, waiting: &[LandingFile], now: i64) -> Look {
            self.look(waiting, now, &|_| false)
        }
    }

    fn is_settled(look: &Look, path: &str) -> bool {
        look.settled.contains(path)
    }

    #[test]
    fn file_that_grows_at_every_look_never_settles() {
        let mut settler = settler();
        for step in 0..10 {
            let at = NOW + step * SECOND / 2;
            let look = settler.look_unsure(&[file("a", step as u64, at, at)], at);
            assert!(look.settled.is_empty());
            assert_eq!(look.look_again_in, Some(Duration::from_secs(1)));
        }
    }

    #[test]
    fn growing_file_with_an_old_time_waits_for_our_own_looks() {
        // A copy that keeps times, over a mount whose change time stands still.
        let mut settler = settler();
        let old = NOW - 1_000 * SECOND;
        assert!(
            settler
                .look_unsure(&[file("a", 1, old, old)], NOW)
                .settled
                .is_empty()
        );
        assert!(
            settler
                .look_unsure(&[file("a", 2, old, old)], NOW + SECOND)
                .settled
                .is_empty()
        );
        assert!(is_settled(
            &settler.look_unsure(&[file("a", 2, old, old)], NOW + 2 * SECOND),
            "a"
        ));
    }

    #[test]
    fn old_file_settles_at_the_second_look_and_not_at_one_right_behind_the_first() {
        let mut settler = settler();
        let waiting = [file("a", 1, NOW - 10 * SECOND, NOW - 2 * SECOND)];
        let first = settler.look_unsure(&waiting, NOW);
        assert!(first.settled.is_empty());
        assert_eq!(first.look_again_in, Some(LOOKS_APART));
        assert!(settler.look_unsure(&waiting, NOW + 1).settled.is_empty());
        let second = settler.look_unsure(&waiting, NOW + SECOND / 10);
        assert!(is_settled(&second, "a"));
        assert_eq!(second.look_again_in, None);
    }

    #[test]
    fn old_file_that_nobody_writes_to_settles_at_once_and_a_fresh_one_does_not() {
        let mut settler = settler();
        let waiting = [
            file("old", 1, NOW - 10 * SECOND, NOW),
            file("fresh", 1, NOW - SECOND / 2, NOW),
            file("future", 1, NOW + 99 * SECOND, NOW),
            file("written", 1, NOW - 10 * SECOND, NOW),
        ];
        let look = settler.look(&waiting, NOW, &|path| path != "written");
        assert_eq!(look.settled, HashSet::from(["old".to_owned()]));
    }

    #[test]
    fn each_of_many_files_has_its_own_answer() {
        let count = 3 * ASKED_IN_A_ROW + 1;
        let path = |place: usize| format!("{place:04}");
        let waiting: Vec<LandingFile> = (0..count)
            .map(|place| file(&path(place), 1, NOW - 10 * SECOND, NOW))
            .collect();
        let look = settler().look(&waiting, NOW, &|path| path.ends_with('3'));
        let expected = (0..count).map(path).filter(|path| path.ends_with('3'));
        assert_eq!(look.settled, expected.collect());
    }

    #[test]
    fn file_with_a_future_time_settles_by_our_own_looks() {
        let mut settler = settler();
        let waiting = [file(
            "a",
            1,
            NOW + 1_000_000 * SECOND,
            NOW + 1_000_000 * SECOND,
        )];
        assert!(settler.look_unsure(&waiting, NOW).settled.is_empty());
        assert!(
            settler
                .look_unsure(&waiting, NOW + SECOND / 2)
                .settled
                .is_empty()
        );
        assert!(is_settled(
            &settler.look_unsure(&waiting, NOW + SECOND),
            "a"
        ));
    }

    #[test]
    fn future_modification_time_does_not_hide_a_recent_change() {
        let mut settler = settler();
        let waiting = [file("a", 1, NOW + 99 * SECOND, NOW)];
        settler.look_unsure(&waiting, NOW);
        assert!(
            settler
                .look_unsure(&waiting, NOW + SECOND / 2)
                .settled
                .is_empty()
        );
        assert!(is_settled(
            &settler.look_unsure(&waiting, NOW + SECOND),
            "a"
        ));
    }

    #[test]
    fn renamed_file_settles_at_once_and_only_as_it_was_then() {
        let mut settler = settler();
        settler.announce(["a".to_owned(), "elsewhere".to_owned()]);
        assert!(is_settled(
            &settler.look_unsure(&[file("a", 1, NOW, NOW)], NOW),
            "a"
        ));
        assert!(
            is_settled(
                &settler.look_unsure(&[file("a", 1, NOW, NOW)], NOW + 1),
                "a"
            ),
            "until it is planned"
        );
        assert!(
            settler
                .look_unsure(&[file("a", 2, NOW + 2, NOW + 2)], NOW + 2)
                .settled
                .is_empty()
        );
        let look = settler.look_unsure(&[file("elsewhere", 1, NOW, NOW)], NOW + 3);
        assert!(
            look.settled.is_empty(),
            "an announcement is for the next listing only"
        );
    }

    #[test]
    fn settle_of_zero_takes_every_file_at_once() {
        let mut settler = Settler::new(Duration::ZERO);
        let look = settler.look_unsure(&[file("a", 1, NOW + SECOND, NOW)], NOW);
        assert!(is_settled(&look, "a"));
        assert_eq!(look.look_again_in, None);
    }

    #[test]
    fn clock_set_back_delays_by_one_settle_at_most() {
        let mut settler = settler();
        let waiting = [file("a", 1, NOW, NOW)];
        settler.look_unsure(&waiting, NOW);
        let earlier = NOW - 10_000 * SECOND;
        assert_eq!(
            settler.look_unsure(&waiting, earlier).look_again_in,
            Some(Duration::from_secs(1))
        );
        assert!(is_settled(
            &settler.look_unsure(&waiting, earlier + SECOND),
            "a"
        ));
    }

    #[test]
    fn files_that_no_longer_wait_are_forgotten() {
        let mut settler = settler();
        settler.look_unsure(&[file("a", 1, 0, 0), file("b", 1, 0, 0)], NOW);
        settler.look_unsure(&[file("b", 1, 0, 0)], NOW + SECOND);
        assert_eq!(settler.seen.len(), 1);
    }
}
