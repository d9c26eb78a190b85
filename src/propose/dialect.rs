//! Tells the delimiter of CSV files and whether their first record is a header.
//!
//! Fields are cut by the loader's own reader. Which files are CSV is left to `source`.

use super::write::Sureness;
use crate::decode::{Head, text_type};
use crate::schema::check_column_name;
use crate::settings::CsvSettings;
use arrow::datatypes::DataType;
use std::collections::{BTreeMap, HashSet};

/// In the order of preference.
const DELIMITERS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// So many records are looked at.
const RECORDS_MAX: usize = 200;
/// So many of a hundred records must have the same number of fields.
const ALIKE_MIN: usize = 90;

/// How some CSV files are cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    /// The delimiter, and whether the files agree on it.
    pub(super) delimiter: u8,
    pub(super) delimiter_sureness: Sureness,
    /// The first record names the columns.
    pub(super) header: bool,
    pub(super) header_sureness: Sureness,
    /// Fields of most records.
    pub(super) width: usize,
}

/// The dialect of most of the files.
pub(super) fn tell(heads: &[&Head]) -> Dialect {
    let mut found: BTreeMap<u8, usize> = BTreeMap::new();
    // A file called .tsv is read with tabs where the others have the default.
    let all_tsv = heads.iter().all(|head| is_tsv(head));
    for head in heads.iter().filter(|head| all_tsv || !is_tsv(head)) {
        if let Some((delimiter, _)) = delimiter_of(head) {
            *found.entry(delimiter).or_default() += 1;
        }
    }
    let most = found.iter().max_by_key(|(_, count)| **count);
    let delimiter = most.map_or(b',', |(delimiter, _)| *delimiter);
    let delimiter_sureness = match found.len() {
        1 => Sureness::Sure,
        _ => Sureness::Guess,
    };
    let of_head = |head: &&Head| records(head, if is_tsv(head) { b'\t' } else { delimiter });
    let tables: Vec<Vec<Vec<String>>> = heads.iter().map(of_head).collect();
    let (header, header_sureness) = header_of(&tables);
    let width = tables.iter().filter_map(|table| usual_width(table)).max();
    Dialect {
        delimiter,
        delimiter_sureness,
        header,
        header_sureness,
        width: width.map_or(1, |(width, _)| width),
    }
}

fn is_tsv(head: &Head) -> bool {
    head.name().to_ascii_lowercase().ends_with(".tsv")
}

/// Whether a file of another name is plainly CSV.
pub(super) fn is_csv(head: &Head) -> bool {
    let Some((delimiter, alike)) = delimiter_of(head) else {
        return false;
    };
    let records = records(head, delimiter);
    let is_text = |text: &String| !text.contains(|c: char| c.is_control() && !c.is_whitespace());
    alike >= ALIKE_MIN && records.len() > 1 && records.iter().flatten().all(is_text)
}

fn records(head: &Head, delimiter: u8) -> Vec<Vec<String>> {
    let dialect = CsvSettings {
        delimiter,
        ..CsvSettings::default()
    };
    head.csv_records(&dialect, RECORDS_MAX)
}

/// The delimiter that gives the most records of one width, and the share of those in percent.
fn delimiter_of(head: &Head) -> Option<(u8, usize)> {
    let mut best: Option<(u8, (usize, usize))> = None;
    for delimiter in DELIMITERS {
        let records = records(head, delimiter);
        let Some((width, count)) = usual_width(&records).filter(|(width, _)| *width > 1) else {
            continue;
        };
        let score = (count * 100 / records.len(), width);
        if best.is_none_or(|(_, known)| score > known) {
            best = Some((delimiter, score));
        }
    }
    best.map(|(delimiter, (alike, _))| (delimiter, alike))
}

/// The most frequent number of fields, and how many records have it.
fn usual_width(records: &[Vec<String>]) -> Option<(usize, usize)> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for record in records {
        *counts.entry(record.len()).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

/// Whether most files begin with a header, and how sure that is.
fn header_of(tables: &[Vec<Vec<String>>]) -> (bool, Sureness) {
    let tables: Vec<_> = tables.iter().filter(|table| !table.is_empty()).collect();
    let with: Vec<_> = tables.iter().filter(|table| can_be_header(table)).collect();
    let header = with.len() * 2 >= tables.len();
    let is_shared = with.len() > 1 && with.windows(2).all(|pair| pair[0][0] == pair[1][0]);
    let sureness = if with.len() != tables.len() && !with.is_empty() {
        Sureness::Guess
    } else if !header {
        Sureness::Likely
    } else if is_shared || with.iter().any(|table| has_typed_column(table)) {
        Sureness::Sure
    } else {
        Sureness::Guess
    };
    (header, sureness)
}

/// Names are texts, each stands once, and none of them is a value of its own column.
fn can_be_header(records: &[Vec<String>]) -> bool {
    let Some((first, rest)) = records.split_first() else {
        return false;
    };
    let mut seen = HashSet::new();
    let named = first.strip_suffix(&[String::new()]).unwrap_or(first);
    named.iter().enumerate().all(|(place, name)| {
        let is_value = rest.iter().any(|record| record.get(place) == Some(name));
        !name.is_empty() && seen.insert(name) && text_type(name) == DataType::Utf8 && !is_value
    }) && (named.iter().any(|name| check_column_name(name).is_ok()))
}

/// Whether a column holds numbers, dates or booleans below its first record.
fn has_typed_column(records: &[Vec<String>]) -> bool {
    let Some((first, rest)) = records.split_first() else {
        return false;
    };
    (0..first.len()).any(|place| {
        let mut values = rest
            .iter()
            .filter_map(|record| record.get(place))
            .filter(|value| !value.is_empty())
            .peekable();
        values.peek().is_some() && values.all(|value| text_type(value) != DataType::Utf8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    fn head(name: &str, text: &str) -> Head {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        Head::read(name, file).unwrap()
    }

    fn dialect(text: &str) -> (u8, bool, Sureness) {
        let dialect = tell(&[&head("a.csv", text)]);
        (dialect.delimiter, dialect.header, dialect.header_sureness)
    }

    #[test]
    fn text_that_is_no_table_is_no_csv() {
        for text in [
            "",
            "one\ntwo\n",
            "Dear all,\nthis is a letter; it has one, two or three commas, or none.\nBye\n",
            "a,b\n",
            "a\u{1},b\n1,2\n",
        ] {
            assert!(!is_csv(&head("a.txt", text)), "{text:?}");
        }
        assert!(is_csv(&head("a.txt", "a|b\n1|2\n")));
    }

    #[test]
    fn records_that_begin_with_values_have_no_header() {
        for text in [
            "1,new,7\n2,paid,8\n",
            "I,x,new\nU,y,new\nI,z,paid\n",
            "a,a\nb,c\n",
            "2026-01-01;x\n2026-01-02;y\n",
        ] {
            assert!(!dialect(text).1, "{text:?}");
        }
    }

    #[test]
    fn header_over_numbers_is_sure_and_over_texts_a_guess() {
        assert_eq!(dialect("id,name\n1,x\n2,y\n"), (b',', true, Sureness::Sure));
        assert_eq!(dialect("a,b\nx,y\nz,w\n"), (b',', true, Sureness::Guess));
        let (first, second) = (head("a.csv", "a,b\nx,y\n"), head("b.csv", "a,b\nz,w\n"));
        assert_eq!(tell(&[&first, &second]).header_sureness, Sureness::Sure);
    }

    #[test]
    fn delimiter_is_the_one_that_gives_records_of_one_width() {
        assert_eq!(dialect("id;amount\n1;2,50\n2;3,75\n3;4\n").0, b';');
        assert_eq!(dialect("id\tnote\n1\ta, b\n2\tc\n").0, b'\t');
        assert_eq!(dialect("id|note\n1|\"a|b\nc\"\n2|c\n").0, b'|');
        assert_eq!(dialect("id\n1\n").0, b',');
    }

    #[test]
    fn files_called_tsv_do_not_set_the_delimiter_of_the_others() {
        let (tsv, csv) = (head("a.tsv", "id\tn\n1\t2\n"), head("b.csv", "id,n\n1,2\n"));
        let dialect = tell(&[&tsv, &csv]);
        assert_eq!(
            (dialect.delimiter, dialect.delimiter_sureness),
            (b',', Sureness::Sure)
        );
        assert_eq!(tell(&[&tsv]).delimiter, b'\t');
    }
}
