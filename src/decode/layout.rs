//! Reads JSON records that are laid out like earlier ones by comparing what stands between their values.
//!
//! The records of a feed have the same few texts between their values: names, colons, commas, the brackets of objects that
//! are STRUCT values. They are learned where they are met first, and then only compared, while the values go straight into
//! their columns. A record that is not sound in anything, or holds a name or a value that does not fit its column, is taken
//! out of the columns again and left whole to the scanner, which alone says what is wrong with a record; so what is read
//! here is what the scanner would read.

mod gap;
mod walk;

use super::RECORD_BYTES_MAX;
use super::columns::fields_of;
use super::leaf::Leaf;
use super::rows::Rows;
use super::token::Scanner;
use arrow::datatypes::DataType;
use gap::Gap;

/// Behind so many records in a row that were not read here, one of so many more is tried.
const FAILURES_MAX: u64 = 64;
const TRIED: u64 = 16;
/// So many texts are kept that may follow one value.
const STEPS_MAX: usize = 8;

/// What follows the start of a record, or one of its values.
type State = usize;
/// The state before the first value.
const START: State = 0;

/// The layouts of the records of one source, as a graph: from each value to those that may follow.
pub(super) struct Layouts {
    /// For each state, what may follow. Behind the start come the states behind the value of each column, by its place, and
    /// then those behind the values that no column takes.
    steps: Vec<Vec<Step>>,
    /// For each place, the column that takes values there; STRUCTs whose fields are told apart take none themselves.
    leaves: Vec<Option<Leaf>>,
    /// For each place, that of the STRUCT column around it.
    parents: Vec<Option<usize>>,
    /// Names that no column takes.
    unknown: Vec<Unknown>,
    /// Each record is a line, so that none goes on behind the end of one.
    are_lines: bool,
    /// Records begun.
    record: u64,
    /// Records in a row that were not read.
    failures: u64,
    /// Records that differed from those before, and the last of them.
    differing: u64,
    differed_at: u64,
}

/// A text between two values, and what comes behind it.
struct Step {
    gap: Gap,
    /// The STRUCT columns that have a value in it: it begins there, or is NULL.
    structs: Box<[Opened]>,
    to: Target,
}

impl Step {
    /// Whether all that stands before the next value is the text.
    #[inline]
    fn stands_at(&self, rest: &[u8]) -> bool {
        let goes_on = || matches!(rest.get(self.gap.len()), Some(b' ' | b'\t' | b'\r' | b'\n'));
        self.gap.stands_at(rest) && (matches!(self.to, Target::End) || !goes_on())
    }
}

/// A STRUCT column in a text between two values.
#[derive(Clone, Copy, PartialEq)]
struct Opened {
    place: usize,
    /// The column of the schema, where it is in no other STRUCT.
    index: Option<usize>,
    is_null: bool,
}

#[derive(Clone, Copy)]
enum Target {
    /// A value of the column at a place.
    Column(usize),
    /// One that no column takes, by its number.
    Unknown(usize),
    /// The record ends with the text.
    End,
}

/// A name that no column takes.
struct Unknown {
    /// The STRUCT column that lacks it.
    inside: Option<usize>,
    name: String,
    /// The objects around its value.
    depth: usize,
    /// The last record that had it: a name stands once in an object.
    seen: u64,
}

impl Layouts {
    /// Knows nothing yet.
    pub(super) fn new(rows: &Rows<'_>, are_lines: bool) -> Self {
        let schema = &rows.schema().columns;
        let mut leaves = Vec::with_capacity(rows.columns.count());
        let mut parents = Vec::with_capacity(rows.columns.count());
        let (mut roots, mut around) = (0.., Vec::new());
        for (place, (field, depth)) in fields_of(schema.fields()).iter().enumerate() {
            let index = (*depth == 0).then(|| roots.next()).flatten();
            around.truncate(*depth);
            parents.push(around.last().copied());
            around.push(place);
            let is_leaf = !matches!(field.data_type(), DataType::Struct(_));
            leaves.push(is_leaf.then(|| Leaf::new(place, index, field, *depth)));
        }
        Layouts {
            steps: (0..=leaves.len()).map(|_| Vec::new()).collect(),
            leaves,
            parents,
            unknown: Vec::new(),
            are_lines,
            record: 0,
            failures: 0,
            differing: 0,
            differed_at: 0,
        }
    }

    /// Reads the record at `at` into the columns of `rows` and gives the byte behind it; whether a record may end there is for
    /// others to say.
    ///
    /// `None` leaves no trace: the record is one for the scanner.
    pub(super) fn read<'a>(
        &mut self,
        text: &'a str,
        at: usize,
        rows: &mut Rows<'a>,
    ) -> Option<usize> {
        self.record += 1;
        if self.failures > FAILURES_MAX && !self.record.is_multiple_of(TRIED) {
            return None;
        }
        let end = self.values(text, at, rows);
        if end.is_some() {
            self.failures = 0;
        } else {
            self.failures += 1;
            rows.forget();
        }
        end
    }

    fn values<'a>(&mut self, text: &'a str, start: usize, rows: &mut Rows<'a>) -> Option<usize> {
        let before = rows.count();
        let mut scanner = Scanner::at(text, start);
        if self.are_lines {
            scanner = scanner.of_a_line();
        }
        let mut state = START;
        let mut pushed = 0;
        loop {
            let rest = scanner.rest();
            let mut steps = self.steps[state].iter();
            let to = match steps.find(|step| step.stands_at(rest)) {
                Some(step) => {
                    scanner.skip(step.gap.len());
                    for opened in &step.structs {
                        open(opened, before, rows)?;
                    }
                    pushed += step.structs.len();
                    step.to
                }
                None => {
                    let (to, opened) = self.walk(state, &mut scanner, before, rows)?;
                    pushed += opened;
                    to
                }
            };
            state = match to {
                Target::Column(place) => {
                    let leaf = self.leaves[place].as_ref()?;
                    // A column that has one more holds the value of another member of this name.
                    if rows.columns.at(place).len() != before {
                        return None;
                    }
                    leaf.read(&mut scanner, rows)?;
                    pushed += 1;
                    if let Some(index) = leaf.index {
                        rows.note(index);
                    }
                    1 + place
                }
                Target::Unknown(number) => {
                    let unknown = &mut self.unknown[number];
                    if std::mem::replace(&mut unknown.seen, self.record) == self.record {
                        return None;
                    }
                    let token = scanner.value(unknown.depth).ok()?;
                    if unknown.inside.is_none() {
                        rows.set_unknown(&unknown.name, &token).ok()?;
                    }
                    1 + self.leaves.len() + number
                }
                Target::End => {
                    if self.are_lines {
                        // A carriage return may be a part of the line end.
                        while matches!(scanner.peek(), Some(b' ' | b'\t')) {
                            scanner.skip(1);
                        }
                    }
                    let end = scanner.place();
                    rows.pushed = pushed;
                    return (end - start <= RECORD_BYTES_MAX).then_some(end);
                }
            };
        }
    }
}

/// Puts a STRUCT of the present record, behind so many others, into its column; its fields follow, or are NULL.
fn open(opened: &Opened, before: usize, rows: &mut Rows<'_>) -> Option<()> {
    let column = rows.columns.at(opened.place);
    if column.len() != before {
        return None;
    }
    match opened.is_null {
        true => column.push_null(),
        false => column.push_struct()?,
    }
    if let Some(index) = opened.index {
        rows.note(index);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::Layouts;
    use crate::decode::Decoded;
    use crate::decode::rows::{Place, Rows};
    use crate::decode::testing::*;
    use crate::decode::time::TimeFormats;
    use crate::decode::value::ValueReader;
    use crate::settings::{AbsentColumns, SchemaEvolutionMode};

    const HINTS: &str = "op STRING, id BIGINT, small TINYINT, amount DECIMAL(10,2), at TIMESTAMP, \
                         day DATE, ok BOOLEAN, ratio DOUBLE, tags ARRAY<STRING>, who STRUCT<a: INT>, \
                         deep STRUCT<n: BIGINT, inner: STRUCT<x: DOUBLE, s: STRING, t: ARRAY<INT>>, \
                         price: FLOAT, ok: BOOLEAN, day: DATE, at: TIMESTAMP_NTZ, amount: DECIMAL(5,1)>";

    const LAYOUTS: [&str; 12] = [
        r#"{"id":21,"who":{"a":5},"deep":{"n":1,"inner":{"x":0.5,"s":"t","t":[1,null]},"ok":true,"day":"2024-02-29"}}"#,
        r#"{"id":22,"who":null,"deep":{"inner":null,"n":-3,"at":"2024-05-01 10:00:00","amount":1.5}}"#,
        r#"{"id":23,"who":{},"deep":{"inner":{},"price":1.5e30,"ok":false}}"#,
        r#"{"id":24,"deep":{"n":null,"more":null,"inner":{"s":"caf\u00e9","x":-0.0,"t":null}},"op":"U"}"#,
        r#"{ "deep" : { "inner" : { "x" : 12345678.25 } , "price" : 0.1 } , "id" : 25 , "who" : { } }"#,
        r#"{"id":26,"deep":{"inner":{"x":9007199254740992,"s":5,"X":1},"price":16777216,"ok":"true"},"DEEP":{"n":1}}"#,
        r#"{"id":27,"deep":{"more":{"a":[{"b":1}]},"inner":{"more":"x","s":"y"},"n":4,"other":1},"who":{"b":1,"a":2}}"#,
        r#"{"id": 5, "amount": -0.05, "at": "2024-05-01 10:00:00.25+02:00", "op": "U", "small": -7}"#,
        r#"{"op": "I", "id": 17, "small": 7, "amount": 12.50, "at": "2024-05-01T10:00:00Z", "tags": ["x"], "who": {"a": 1}}"#,
        r#"{"op":"U","id":18,"amount":"3.1","day":"2024-02-29","ok":true,"ratio":0.5}"#,
        r#"  { "id" : 19 , "op" : "D" }  "#,
        r#"{"id":20,"op":"caf\u00e9 \"x\"","other":[1,{"b":null}],"small":null}"#,
    ];

    /// What stands in the only or last row, or why it was refused.
    fn last(decoded: &Decoded) -> String {
        let is_reject = decoded.rejects.last().is_some_and(|reject| {
            let row = decoded.positions.last();
            row.is_none_or(|row| row.file_row < reject.file_row)
        });
        if is_reject {
            let reject = &decoded.rejects[decoded.rejects.len() - 1];
            return format!("{:?} {} {}", reject.reason, reject.detail, reject.raw);
        }
        let row = decoded.positions.len() - 1;
        let names = decoded.rows.schema();
        let cells = names.fields().iter().map(|field| {
            let mut values = column(decoded, field.name());
            format!("{}={}", field.name(), values.swap_remove(row))
        });
        let cells: Vec<String> = cells.collect();
        format!("{} {}", cells.join(" "), decoded.raw(row))
    }

    #[test]
    fn a_carriage_return_before_the_line_end_is_no_part_of_later_records() {
        let text = "{\"a\":1}\r\r\n{\"a\":2}\r\n{\"a\":3}\r\r\n{\"a\":4}\r";
        let decoded = Case::json("a INT").read(text);
        let raw: Vec<String> = (0..4).map(|row| decoded.raw(row)).collect();
        assert_eq!(
            raw,
            ["{\"a\":1}\r", "{\"a\":2}", "{\"a\":3}\r", "{\"a\":4}"]
        );
    }

    fn cases() -> Vec<Case> {
        let mut all = Vec::new();
        for mode in [
            SchemaEvolutionMode::None,
            SchemaEvolutionMode::Rescue,
            SchemaEvolutionMode::AddNewColumns,
        ] {
            all.push(Case::json(HINTS).evolution(mode));
            all.push(Case::json(HINTS).evolution(mode).rescuing());
        }
        let mut keeping = Case::json(HINTS);
        keeping.settings.absent_columns = AbsentColumns::Keep;
        keeping.schema = keeping
            .schema
            .with_own_column("_present_columns", arrow::datatypes::DataType::Utf8);
        all.push(keeping);
        all
    }

    /// One of the records, which may be changed in a few places.
    fn any_record(next: &mut impl FnMut(usize) -> usize) -> String {
        const PIECES: [&str; 35] = [
            "\n",
            "\r\n",
            "\"deep\":{",
            "\"inner\":{",
            "\"who\":{}",
            "\"who\":null,",
            "\"n\":1,",
            "\"x\":0.1,",
            "},",
            "}}",
            "{}",
            "\"",
            "\\",
            "\\u00e9",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "0",
            "1",
            "-",
            ".",
            "e9",
            "null",
            "true",
            "x",
            "\u{e9}",
            "\r",
            "\t",
            "99999999999999999999",
            "\"id\":",
            "\"op\"",
        ];
        let mut record = LAYOUTS[next(LAYOUTS.len())].to_string();
        for _ in 0..next(3) {
            let mut at = next(record.len() + 1);
            while !record.is_char_boundary(at) {
                at -= 1;
            }
            let piece = PIECES[next(PIECES.len())];
            match next(4) {
                // Whole members, from where one ends in another record.
                0 => {
                    let other = LAYOUTS[next(LAYOUTS.len())];
                    let ends = |text: &str| {
                        let ends = text.match_indices([',', '}', '{']);
                        ends.map(|(place, _)| place).collect::<Vec<_>>()
                    };
                    let (here, there) = (ends(&record), ends(other));
                    if here.is_empty() {
                        continue;
                    }
                    let (here, there) = (here[next(here.len())], there[next(there.len())]);
                    record.replace_range(here.., &other[there..]);
                }
                3 => record.insert_str(at, piece),
                1 => {
                    let mut end = (at + next(12)).min(record.len());
                    while !record.is_char_boundary(end) {
                        end -= 1;
                    }
                    record.replace_range(at..end.max(at), "");
                }
                _ => {
                    let mut end = (at + 1).min(record.len());
                    while !record.is_char_boundary(end) {
                        end += 1;
                    }
                    record.replace_range(at..end, piece);
                }
            }
        }
        record
    }

    #[test]
    fn record_reads_the_same_behind_records_that_are_laid_out_alike() {
        let mut next = numbers(11);
        let lines = cases();
        let mut documents = cases();
        for case in &mut documents {
            case.settings.json.multi_line = true;
        }
        for round in 0..3_000 {
            let record = any_record(&mut next);
            if record.trim_ascii().is_empty() {
                continue;
            }
            let case = &lines[round % lines.len()];
            // Of a text that is not UTF-8 all is left to the scanner.
            let alone = case.read([b"\xff\n", record.as_bytes()].concat());
            let behind = LAYOUTS.join("\n");
            let text = format!("{behind}\n{record}\n{behind}\n{record}");
            assert_eq!(last(&case.read(&text)), last(&alone), "{record}");
            assert_eq!(last(&case.read(&record)), last(&alone), "{record}");
            let documents = &documents[round % lines.len()];
            let read = |text: &[u8]| match documents.try_read(text) {
                Ok(decoded) => last(&decoded),
                Err(fault) => format!("{:?}", fault.reason),
            };
            let behind = LAYOUTS.join(" ,");
            let text = format!("[{behind},\r\n{record}]");
            let alone = [b"[{\"op\":\"\xff\"},", record.as_bytes(), b"]"].concat();
            assert_eq!(read(text.as_bytes()), read(&alone), "{record}");
        }
    }

    #[test]
    fn text_reads_the_same_by_layouts_and_by_the_scanner() {
        let shown = |decoded: &Decoded| {
            let schema = decoded.rows.schema();
            let names = schema.fields().iter().map(|field| field.name());
            let cells: Vec<Vec<String>> = names.map(|name| column(decoded, name)).collect();
            (cells, decoded.positions.clone(), new_columns(decoded))
        };
        let mut next = numbers(23);
        let cases = cases();
        for round in 0..200 {
            let case = &cases[round % cases.len()];
            let mut text = String::new();
            for _ in 0..40 {
                let record = match next(4) {
                    0 => any_record(&mut next),
                    _ => LAYOUTS[next(LAYOUTS.len())].to_string(),
                };
                // Names that no column takes, in an order of their own.
                let more = [
                    "",
                    "",
                    "\"new\":1,",
                    "\"b\":\"x\",",
                    "\"new\":2.5,\"c\":[null],",
                ];
                text.push_str(&record.replacen("\"id\"", &format!("{}\"id\"", more[next(5)]), 1));
                text.push('\n');
            }
            let by_layouts = case.read(&text);
            let mut by_scanner = case.read([text.as_bytes(), b"\xff"].concat());
            by_scanner.rejects.pop();
            assert_eq!(by_layouts.rejects, by_scanner.rejects);
            assert_eq!(shown(&by_layouts), shown(&by_scanner));
        }
    }

    #[test]
    fn records_that_are_laid_out_alike_are_read_and_others_leave_no_trace() {
        let learned = [
            r#"{"id":1,"deep":{"n":1,"inner":{"x":0.5,"s":"a"}},"tags":["x"]}"#,
            r#"{"id":2,"deep":null,"tags":[]}"#,
            r#"{"id":3,"deep":{},"who":{"a":1}}"#,
            r#"{"id": 3 , "deep":{}}"#,
        ];
        let case = Case::json(HINTS);
        let reader = ValueReader::new(TimeFormats::default());
        let mut rows = Rows::new(case.path, &case.schema, &case.settings, reader);
        let mut layouts = Layouts::new(&rows, true);
        for record in learned {
            assert_eq!(layouts.read(record, 0, &mut rows), Some(record.len()));
            rows.forget();
        }
        for other in [
            r#"{"id":4,"deep":{"n":2,"inner":{"x":0.5,"s":"a"}},"tags":["x"],"id":4}"#,
            r#"{"id":4,"deep":{"n":2,"inner":{"x":true,"s":"a"}},"tags":["x"]}"#,
            r#"{"id":4,"deep":{"n":2,"inner":{"x":0.5,"s":"a"}},"tags":["x"}"#,
            r#"{"id":4,"deep":{"n":99999999999999999999,"inner":{"x":0.5,"s":"a"}},"tags":["x"]}"#,
            r#"{"id":4,"deep":null,"tags":[],"deep":null,"tags":[]}"#,
            r#"{"id":4,"deep":{},"who":{"a":1,"a":1}}"#,
        ] {
            assert_eq!(layouts.read(other, 0, &mut rows), None, "{other}");
        }
        let known: Vec<usize> = layouts.steps.iter().map(Vec::len).collect();
        let alike = [
            r#"{"id":5,"deep":{"n":-7,"inner":{"x":1e3,"s":"\u0041"}},"tags":["y","z"]}"#,
            r#"{"id":null,"deep":null,"tags":[]}"#,
            r#"{"id":"6","deep":{},"who":{"a":null}}"#,
        ];
        for record in alike {
            assert_eq!(layouts.read(record, 0, &mut rows), Some(record.len()));
            rows.take_pushed(Place::default());
        }
        let steps = layouts.steps.iter().map(Vec::len);
        assert!(steps.eq(known), "nothing new is learned from what is alike");
        let decoded = rows.finish().unwrap();
        assert_eq!(column(&decoded, "id"), ["5", "-", "6"]);
        let [all, none, empty] = &column(&decoded, "deep")[..] else {
            panic!("three records are read");
        };
        assert!(
            all.starts_with("{n: -7, inner: {x: 1000.0, s: A, t: }, price: "),
            "{all}"
        );
        assert_eq!(none, "-");
        assert!(empty.starts_with("{n: , inner: , price: "), "{empty}");
        assert_eq!(column(&decoded, "who"), ["-", "-", "{a: }"]);
        assert_eq!(column(&decoded, "tags"), ["[y, z]", "[]", "-"]);
    }

    #[test]
    fn line_ends_and_places_are_those_of_the_lines() {
        let text = "{\"id\":1}\r\n{\"id\":2}\n\n{\"id\":3} \n{\"id\":4}\r";
        let decoded = Case::json("id INT").read(text);
        assert_eq!(column(&decoded, "id"), ["1", "2", "3", "4"]);
        let lines: Vec<_> = decoded.positions.iter().map(|p| p.file_line).collect();
        assert_eq!(lines, [Some(1), Some(2), Some(4), Some(5)]);
        assert_eq!(decoded.raw(1), "{\"id\":2}");
        assert_eq!(decoded.raw(2), "{\"id\":3} ");
        assert_eq!(decoded.raw(3), "{\"id\":4}");
    }

    #[test]
    fn a_value_that_its_line_does_not_end_is_refused() {
        let text = "{\"a\":[1],\"b\":1}\n{\"a\":[1,\n2],\"b\":2}\n{\"a\":[3],\n\"b\":3}\n{\"a\":[4],\"b\":4}";
        let decoded = Case::json("a ARRAY<INT>, b INT").read(text);
        assert_eq!(column(&decoded, "b"), ["1", "4"]);
        let rows: Vec<i64> = rejects(&decoded).iter().map(|reject| reject.0).collect();
        assert_eq!(rows, [2, 3, 4, 5]);
        let mut case = Case::json("a ARRAY<INT>, b INT");
        case.settings.json.multi_line = true;
        assert_eq!(
            column(&case.read(text), "a"),
            ["[1]", "[1, 2]", "[3]", "[4]"]
        );
    }

    #[test]
    fn name_that_comes_twice_is_refused_though_each_step_is_known() {
        let text = "{\"a\":1,\"b\":2}\n{\"b\":1,\"a\":2}\n{\"a\":1,\"b\":2,\"a\":3}\n";
        let decoded = Case::json("a INT, b INT").read(text);
        assert_eq!(
            rejects(&decoded),
            [(3, crate::change::RejectReason::DuplicateKey)]
        );
        assert_eq!(column(&decoded, "a"), ["1", "2"]);
    }
}
