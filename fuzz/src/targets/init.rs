//! A folder of unknown files: the beginning of each is read as the loader reads the whole, and what is proposed loads.

use crate::input::Input;
use crate::laws::{assert_same, plain};
use crate::source::Source;
use landfall::decode::Head;
use landfall::propose::propose;
use landfall::settings::{Format, Request, Settings};
use std::fs::File;
use std::path::{Path, PathBuf};

const NAMES: [&str; 12] = [
    "orders.jsonl",
    "orders.csv",
    "orders.json",
    "orders.avro",
    "orders.parquet",
    "orders",
    "orders.csv.gz",
    "orders.jsonl.zst",
    "orders.tsv",
    "2024-01-31.csv",
    "day=1/LOAD00000001.csv",
    "day=2/x.json.bz2",
];

pub(super) fn init(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let folder = folder();
    let landing = folder.path().join("landing");
    let mut files = Vec::new();
    for _ in 0..input.below(3) + 1 {
        let name = input.one_of(&NAMES);
        let path = landing.join(name);
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("there is room");
        // Files are parted by a byte that only binary ones hold.
        let is_last = input.flag();
        let content = if is_last {
            input.rest()
        } else {
            input.until(0)
        };
        std::fs::write(&path, content).expect("there is room");
        files.push((name, path, content));
        if is_last {
            break;
        }
    }
    for (name, path, content) in &files {
        // Another file of this name may have come later.
        if std::fs::read(path).is_ok_and(|now| now == *content) {
            assert_head(name, path, content);
        }
    }
    let Ok(proposal) = propose(Path::new("landing"), folder.path()) else {
        return;
    };
    let request = Request::in_folder(folder.path());
    let settings = Settings::load_text(&request, proposal.text.clone());
    let settings = settings.unwrap_or_else(|error| panic!("{error}\n{}", proposal.text));
    assert_eq!(settings.pipelines.len(), proposal.pipelines.len());
    let again = propose(Path::new("landing"), folder.path()).expect("the folder is the same");
    assert_eq!(again.text, proposal.text);
}

fn assert_head(name: &str, path: &PathBuf, content: &[u8]) {
    let source = Source::new(Format::Auto, name, "");
    let head = File::open(path).expect("it was written");
    let head =
        Head::read(name, head).and_then(|head| head.decode(&source.schema, &source.settings));
    match (head, plain(&source, content)) {
        (Ok(head), Ok(whole)) => assert_same(&head, &whole),
        (Err(_), Err(_)) => {}
        (head, whole) => panic!("the beginning is {head:?}, the whole {whole:?}"),
    }
}

fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a folder can be made")
}
