//! Decodes small files of JSON lines as one text, where nothing about any of them is remarkable.
//!
//! What a file costs by itself (a reader, columns, arrays) is paid once for many. A record that is refused, a value that no
//! column takes and a column that is new are of one file, and told by its name and its places: where there is any, all of
//! the files are to be decoded one by one.

use super::encoding::{Text, utf8_start};
use super::format::FileFormat;
use super::rows::Rows;
use super::{begins_as_text, format_of_blocks, is_plain_text_name, json, json_values};
use crate::change::RESCUED_DATA;
use crate::schema::TableSchema;
use crate::settings::SourceSettings;
use arrow::array::{Array, RecordBatch};

/// The texts of small files, one behind the other.
#[derive(Debug)]
pub struct Together {
    text: Vec<u8>,
    /// Where the text of each file ends.
    ends: Vec<usize>,
}

/// Whether a file can be decoded together with others, told by its name and the settings; its bytes must be asked, too.
pub fn is_for_together(path: &str, settings: &SourceSettings) -> bool {
    format_of_blocks(path, settings) == Some(FileFormat::Json)
        && is_plain_text_name(path)
        && !settings.json.multi_line
}

impl Together {
    /// None yet, with room for so many files of so many bytes in all.
    pub fn new(files: usize, bytes: usize) -> Self {
        Together {
            // The last line of each may lack its end.
            text: Vec::with_capacity(bytes + files),
            ends: Vec::with_capacity(files),
        }
    }

    /// Takes the bytes of the next file; `false`, and nothing is taken, where they show something else than lines in UTF-8.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        if !begins_as_text(bytes) || utf8_start(bytes).ok() != Some(0) {
            return false;
        }
        self.text.extend_from_slice(bytes);
        if bytes.last().is_some_and(|last| *last != b'\n') {
            self.text.push(b'\n');
        }
        self.ends.push(self.text.len());
        true
    }

    /// The rows of all files in their order, and how many each has; `None` where they are to be decoded one by one.
    pub fn decode(
        self,
        schema: &TableSchema,
        settings: &SourceSettings,
    ) -> Option<(RecordBatch, Vec<usize>)> {
        let text = Text::of_utf8(&self.text.into());
        // No row tells the name of its file.
        let mut rows = Rows::new("", schema, settings, json_values(settings).ok()?);
        json::read_lines(&text.bytes, text.start, settings, &mut rows);
        let decoded = rows.finish().ok()?;
        let rescued = decoded.rows.column_by_name(RESCUED_DATA)?;
        let is_plain = decoded.rejects.is_empty()
            && decoded.new_columns.is_empty()
            && rescued.null_count() == rescued.len();
        if !is_plain {
            return None;
        }
        let mut counts = Vec::with_capacity(self.ends.len());
        let mut left = decoded.positions.as_slice();
        for end in self.ends {
            let is_before = |offset: i64| usize::try_from(offset).is_ok_and(|offset| offset < end);
            let count = left.partition_point(|at| at.byte_offset.is_some_and(is_before));
            counts.push(count);
            left = &left[count..];
        }
        left.is_empty().then_some((decoded.rows, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::PRESENT_COLUMNS;
    use crate::decode::testing::*;
    use crate::settings::{AbsentColumns, Format, SchemaEvolutionMode};
    use arrow::datatypes::DataType;
    use std::io::Write;

    fn together(case: &Case, files: &[&str]) -> Option<(RecordBatch, Vec<usize>)> {
        let mut together = Together::new(2, 100);
        assert!(files.iter().all(|file| together.push(file.as_bytes())));
        together.decode(&case.schema, &case.settings)
    }

    fn order(id: usize) -> String {
        format!("{{\"order_id\": {id}, \"status\": \"s{id}\", \"amount\": {id}.25}}")
    }

    #[test]
    fn rows_are_those_of_the_files_one_by_one() {
        let mut case = Case::json(ORDERS);
        case.schema = case.schema.with_own_column(PRESENT_COLUMNS, DataType::Utf8);
        case.settings.absent_columns = AbsentColumns::Keep;
        let files = [
            format!("{}\n{}\n", order(1), order(2)),
            String::new(),
            format!("\r\n{}\r\n\n{}", order(3), order(4)),
            "\n".to_owned(),
            format!("{}\r", "{\"seq\": 5, \"op\": \"I\"}"),
            format!("{}\n", "{\"order_id\": null}"),
        ];
        let texts: Vec<&str> = files.iter().map(String::as_str).collect();
        let (rows, counts) = together(&case, &texts).unwrap();
        assert_eq!(counts, [2, 0, 2, 0, 1, 1]);
        let mut start = 0;
        for (file, count) in texts.iter().zip(counts) {
            let alone = case.read(file).rows;
            assert_eq!(rows.slice(start, count), alone, "{file}");
            start += count;
        }
    }

    #[test]
    fn what_is_of_one_file_is_left_to_be_told_of_it() {
        let case = || Case::json(ORDERS).evolution(SchemaEvolutionMode::Rescue);
        let plain = order(1);
        assert!(together(&case(), &[&plain, &plain]).is_some());
        for remarkable in [
            "{\"order_id\": 1",
            "{\"order_id\": \"x\"}",
            "{\"order_id\": 1, \"other\": 2}",
            "{\"order_id\": 1}{\"order_id\": 2}",
            "[]",
        ] {
            let files = [plain.as_str(), remarkable, &plain];
            assert!(together(&case(), &files).is_none(), "{remarkable}");
        }
        let brings = ["{\"order_id\": 1, \"other\": 2}", &plain];
        for mode in [
            SchemaEvolutionMode::AddNewColumns,
            SchemaEvolutionMode::FailOnNewColumns,
        ] {
            assert!(together(&case().evolution(mode), &brings).is_none());
        }
        let ignores = case().evolution(SchemaEvolutionMode::None);
        assert!(together(&ignores, &brings).is_some());
    }

    #[test]
    fn files_of_random_lines_are_decoded_alike_or_left() {
        const LINES: [&str; 14] = [
            "{\"order_id\": 1, \"status\": \"a\", \"amount\": 1.5, \"seq\": 9}\n",
            "{\"order_id\": 2, \"status\": \"bc\", \"amount\": 2.5, \"seq\": 10}\n",
            "{\"order_id\": 3, \"status\": \"\\u00e9\\\"}\", \"seq\": 11}\r\n",
            "{\"status\": null, \"order_id\": 4}\n",
            "{ }\n",
            "\n",
            " \t\r\n",
            "{\"order_id\": 5, \"op\": \"U\"}",
            "{\"order_id\": 5,",
            "\"seq\": 1}\n",
            "{\"order_id\": 6}\r",
            "{\"order_id\": \"six\"}\n",
            "{\"other\": 7}\n",
            "{\"amount\": 1.234}\n",
        ];
        let case = Case::json(ORDERS).evolution(SchemaEvolutionMode::Rescue);
        let mut next = numbers(11);
        let (mut alike, mut left) = (0, 0);
        for round in 0..3_000 {
            // Mostly lines about which there is nothing to be told.
            let kinds = if round % 3 == 0 { LINES.len() } else { 7 };
            let mut file = || -> String {
                let lines = 0..next(5);
                lines.map(|_| LINES[next(kinds)]).collect()
            };
            let files: Vec<String> = (0..4).map(|_| file()).collect();
            let texts: Vec<&str> = files.iter().map(String::as_str).collect();
            let alone: Vec<_> = texts.iter().map(|text| case.read(text)).collect();
            let is_plain = alone.iter().all(|decoded| {
                let rescued = decoded.rows.column_by_name(RESCUED_DATA).unwrap();
                decoded.rejects.is_empty() && rescued.null_count() == rescued.len()
            });
            let Some((rows, counts)) = together(&case, &texts) else {
                assert!(!is_plain, "{files:?}");
                left += 1;
                continue;
            };
            assert!(is_plain, "{files:?}");
            alike += 1;
            let mut start = 0;
            for (decoded, count) in alone.iter().zip(counts) {
                assert_eq!(rows.slice(start, count), decoded.rows, "{files:?}");
                start += count;
            }
            assert_eq!(start, rows.num_rows());
        }
        assert!(alike > 500 && left > 500, "{alike} alike, {left} left");
    }

    #[test]
    fn other_files_are_not_taken() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(order(1).as_bytes()).unwrap();
        let wide: Vec<u8> = order(1).encode_utf16().flat_map(u16::to_le_bytes).collect();
        let marked = [b"\xEF\xBB\xBF", order(1).as_bytes()].concat();
        for bytes in [packed.finish().unwrap(), wide, marked, b"PAR1 ".to_vec()] {
            let mut together = Together::new(2, 100);
            assert!(!together.push(&bytes), "{bytes:?}");
            assert_eq!(together.text, b"");
        }
        let json = settings(Format::Auto);
        assert!(is_for_together("a.jsonl", &json) && is_for_together("b/a.json", &json));
        for path in ["a.jsonl.gz", "a.csv", "a.parquet", "a"] {
            assert!(!is_for_together(path, &json), "{path}");
        }
        let mut documents = settings(Format::Json);
        documents.json.multi_line = true;
        assert!(!is_for_together("a.json", &documents));
    }
}
