//! Runs independent pieces of work on all cores, and waits for what they share.

use crate::error::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How many pieces of work run at once. Asked once: the answer is put together from several files of the system.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Runs `work` for 0..count on all cores; results in order, the first error wins.
pub fn in_parallel<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = cores().min(count);
    match threads {
        0 | 1 => (0..count).map(work).collect(),
        _ => in_threads(threads, count, work).into_iter().collect(),
    }
}

/// The same, never on the thread of the caller, where `work` may not wait for a runtime of its own.
pub fn in_parallel_elsewhere<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    in_threads(cores().min(count), count, work)
        .into_iter()
        .collect()
}

/// What `work` makes of each item, in their order; on all cores where there are more than `share` items, so many in a row.
pub fn map_in_parallel<I: Sync, T: Send>(
    items: &[I],
    share: usize,
    work: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    let shares: Vec<&[I]> = items.chunks(share.max(1)).collect();
    match cores().min(shares.len()) {
        0 | 1 => items.iter().map(work).collect(),
        threads => {
            let of_share = |share: usize| shares[share].iter().map(&work).collect::<Vec<T>>();
            let made = in_threads(threads, shares.len(), of_share);
            made.into_iter().flatten().collect()
        }
    }
}

/// Runs `here` on this thread and `elsewhere` on another one at the same time; one after the other, `here` first, where that is
/// not worth a thread.
pub fn beside<A, B: Send>(
    is_worth_a_thread: bool,
    here: impl FnOnce() -> A,
    elsewhere: impl FnOnce() -> B + Send,
) -> (A, B) {
    if !is_worth_a_thread {
        let done = here();
        return (done, elsewhere());
    }
    std::thread::scope(|scope| {
        let running = scope.spawn(elsewhere);
        let done = here();
        let done_elsewhere = running.join();
        (
            done,
            done_elsewhere.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    })
}

/// Waits for what is shared. A thread that panicked with it ends the work in any case.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_threads<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= count {
                return done;
            }
            done.push((item, work(item)));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| match handle.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        handles.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    results.sort_unstable_by_key(|(item, _)| *item);
    results.into_iter().map(|(_, result)| result).collect()
}
