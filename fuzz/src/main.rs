//! Fuzz targets for everything that reads what a stranger wrote: landing files, names, settings.
//!
//! Every target is a function of some bytes that panics where a law does not hold. `FUZZ_TARGET` names the one that runs;
//! the loop around it is libFuzzer's. A target also fails when one input takes more memory than its length allows.
#![no_main]

mod heap;
mod input;
mod laws;
mod oracle;
mod source;
mod targets;

use std::backtrace::Backtrace;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, OnceLock};

#[global_allocator]
static HEAP: heap::Counted = heap::Counted;

static TARGET: OnceLock<targets::Target> = OnceLock::new();

/// What the last panic said, and from where; that is resolved only when it is printed. The reader of Parquet catches the
/// panics of its library, so they are not printed at once.
static LAST_PANIC: Mutex<Option<(String, Backtrace)>> = Mutex::new(None);

libfuzzer_sys::fuzz_target!(init: choose(), |bytes: &[u8]| run(bytes));

fn choose() {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let Some(target) = targets::named(&name) else {
        eprintln!("FUZZ_TARGET must be one of {}", targets::names().join(", "));
        std::process::exit(2);
    };
    let _ = TARGET.set(target);
    std::panic::set_hook(Box::new(|panic| {
        let told = (panic.to_string(), Backtrace::capture());
        *LAST_PANIC.lock().expect("nothing panics while it is held") = Some(told);
    }));
}

fn run(bytes: &[u8]) {
    let target = TARGET.get().expect("it was chosen before");
    let before = heap::start();
    let result = catch_unwind(AssertUnwindSafe(|| {
        target(bytes);
        heap::assert_bounded(before, bytes.len());
    }));
    if let Err(panic) = result {
        if let Some((message, trace)) = LAST_PANIC.lock().expect("as above").take() {
            eprintln!("{message}\n{trace}");
        }
        resume_unwind(panic);
    }
}
