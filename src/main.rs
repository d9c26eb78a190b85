//! Parses the command line, runs one command and ends with its exit code.

mod cli;

use clap::Parser;

fn main() {
    let _ = cli::Cli::parse().check();
}
