//! The beginning of a landing file, for a look at what it holds.
//!
//! Of a file of any size only a bounded part comes into memory, and of that only whole records are decoded, in the way of
//! `decode`. A text that is plainly no UTF-8 is looked at in the encoding that it seems to have. What is learned from it is left
//! to the caller.

use super::format::{self, FileFormat};
use super::packing::{Packing, split_packing};
use super::parquet::{self, Part};
use super::rows::Rows;
use super::unpack::{UnpackLimit, unpack, unpack_front};
use super::{Decoded, csv, decode, json, reader};
use super::{avro, encoding};
use crate::change::{FileFault, ParkReason};
use crate::schema::TableSchema;
use crate::settings::{CsvSettings, Format, SourceSettings, TextEncoding};
use bytes::Bytes;
use std::fs::File;
use std::io::Read;

/// So many bytes of a file are read, and so many unpacked.
pub const HEAD_BYTES_MAX: u64 = 1 << 20;
/// So many records of a file are decoded.
pub const HEAD_RECORDS_MAX: usize = 2000;
/// So many columns of a Parquet file are decoded.
pub const HEAD_COLUMNS_MAX: usize = 500;

/// The beginning of one file.
#[derive(Debug)]
pub struct Head {
    /// The path without the ending that tells the packing.
    name: String,
    packing: Option<Packing>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// Unpacked; with its text, where that seems to be in another encoding than UTF-8.
    Text {
        bytes: Bytes,
        is_whole: bool,
        recoded: Option<(TextEncoding, Bytes)>,
    },
    /// Its footer stands at its end, so the file stays open.
    Parquet(File),
}

impl Head {
    /// Reads the beginning of the open file that stands at `path`.
    pub fn read(path: &str, mut file: File) -> Result<Head, FileFault> {
        let name = split_packing(path).0.to_string();
        let mut front = Vec::new();
        (&mut file)
            .take(HEAD_BYTES_MAX)
            .read_to_end(&mut front)
            .map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let packing = Packing::of(path, &front);
        let content = if parquet::is_whole(&file).map_err(unreadable)? {
            Content::Parquet(file)
        } else if format::extension_of(&name) == "parquet" {
            return Err(parquet::not_whole());
        } else {
            text(path, Bytes::from(front), packing, size)?
        };
        Ok(Head {
            name,
            packing,
            content,
        })
    }

    /// The path without the ending that tells the packing.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is nothing in the file.
    pub fn is_empty(&self) -> bool {
        matches!(&self.content, Content::Text { bytes, .. } if bytes.is_empty())
    }

    /// How the file is packed, if it is.
    pub fn packing(&self) -> Option<&'static str> {
        self.packing.map(Packing::word)
    }

    /// The encoding that the text seems to have; UTF-8 also where it is no text.
    pub fn encoding(&self) -> TextEncoding {
        match &self.content {
            Content::Text {
                recoded: Some((encoding, _)),
                ..
            } => *encoding,
            Content::Text { .. } | Content::Parquet(_) => TextEncoding::Utf8,
        }
    }

    /// Whether every single-byte encoding, and UTF-8, reads the same text.
    pub fn is_ascii(&self) -> bool {
        matches!(&self.content, Content::Text { bytes, .. } if bytes.is_ascii())
    }

    /// How the loader reads the file by its name and first bytes alone, once its encoding is set.
    pub fn format(&self, settings: &SourceSettings) -> Result<Format, FileFault> {
        let Content::Text { bytes, recoded, .. } = &self.content else {
            return Ok(Format::Parquet);
        };
        let settings = in_utf8(SourceSettings {
            format: Format::Auto,
            ..settings.clone()
        });
        let bytes = recoded.as_ref().map_or(bytes, |(_, text)| text);
        encoding::utf8_start(bytes)?;
        Ok(
            match format::open(&self.name, bytes.clone(), &settings)?.0 {
                FileFormat::Json => Format::Json,
                FileFormat::Csv { .. } => Format::Csv,
                FileFormat::Parquet => Format::Parquet,
                FileFormat::Avro => Format::Avro,
            },
        )
    }

    /// The fields of the first records, read as CSV; none where it is no text.
    pub fn csv_records(&self, dialect: &CsvSettings, records_max: usize) -> Vec<Vec<String>> {
        match &self.content {
            Content::Text {
                bytes,
                is_whole,
                recoded,
            } => {
                let bytes = recoded.as_ref().map_or(bytes, |(_, text)| text);
                let end = end_of_records(bytes, *is_whole, dialect.quote, records_max);
                let records = encoding::utf8_start(bytes)
                    .map(|start| csv::first_records(&bytes[..end], start, dialect, records_max));
                records.unwrap_or_default()
            }
            Content::Parquet(_) => Vec::new(),
        }
    }

    /// Decodes the whole records of the beginning as `decode` would.
    pub fn decode(
        &self,
        schema: &TableSchema,
        settings: &SourceSettings,
    ) -> Result<Decoded, FileFault> {
        match &self.content {
            Content::Text {
                bytes, is_whole, ..
            } => self.decode_text(bytes, *is_whole, schema, settings),
            Content::Parquet(file) => {
                let part = Part {
                    columns_max: HEAD_COLUMNS_MAX,
                    rows_max: HEAD_RECORDS_MAX,
                };
                let loaded = parquet::load_part(&|_| file.try_clone(), part)?;
                let mut rows = Rows::new(&self.name, schema, settings, reader(None, None)?);
                parquet::read(&loaded, &mut rows);
                let decoded = rows.finish()?;
                Ok(decoded)
            }
        }
    }
}

impl Head {
    fn decode_text(
        &self,
        bytes: &Bytes,
        is_whole: bool,
        schema: &TableSchema,
        settings: &SourceSettings,
    ) -> Result<Decoded, FileFault> {
        let opened = format::open(&self.name, bytes.clone(), settings)?.0;
        let set = match opened {
            FileFormat::Csv { .. } => settings.csv.encoding,
            FileFormat::Json => settings.json.encoding,
            FileFormat::Parquet | FileFormat::Avro => TextEncoding::Utf8,
        };
        if set != TextEncoding::Utf8 {
            let text = encoding::read(bytes, set)?;
            let text = text.bytes.slice(text.start..);
            return self.decode_text(&text, is_whole, schema, &in_utf8(settings.clone()));
        }
        let quote = match opened {
            FileFormat::Csv { .. } => settings.csv.quote,
            FileFormat::Json | FileFormat::Parquet | FileFormat::Avro => None,
        };
        let end = match opened {
            FileFormat::Json if settings.json.multi_line && !is_whole => {
                return self.decode_documents(bytes, schema, settings);
            }
            FileFormat::Avro if is_whole => bytes.len(),
            FileFormat::Avro => avro::end_of_blocks(bytes, HEAD_RECORDS_MAX)?,
            FileFormat::Json | FileFormat::Csv { .. } | FileFormat::Parquet => {
                end_of_records(bytes, is_whole, quote, HEAD_RECORDS_MAX)
            }
        };
        if end == 0 && !bytes.is_empty() {
            let detail = format!("the first record has more than {HEAD_BYTES_MAX} bytes");
            return Err(FileFault::new(ParkReason::TooLarge, detail));
        }
        decode(&self.name, bytes.slice(..end), schema, settings)
    }

    /// The whole records of documents that are cut off.
    fn decode_documents(
        &self,
        bytes: &Bytes,
        schema: &TableSchema,
        settings: &SourceSettings,
    ) -> Result<Decoded, FileFault> {
        let text = encoding::read(bytes, TextEncoding::Utf8)?;
        let (date, timestamp) = (&settings.json.date_format, &settings.json.timestamp_format);
        let values = reader(date.as_deref(), timestamp.as_deref())?;
        let mut rows = Rows::new(&self.name, schema, settings, values).of_text(text.origin());
        match json::read_documents(&text.bytes, text.start, settings, &mut rows) {
            Err(fault) if fault.reason != ParkReason::TruncatedStream => return Err(fault),
            Ok(()) | Err(_) => {}
        }
        rows.finish()
    }
}

fn in_utf8(mut settings: SourceSettings) -> SourceSettings {
    settings.json.encoding = TextEncoding::Utf8;
    settings.csv.encoding = TextEncoding::Utf8;
    settings
}

/// The encoding that a text seems to have, and the text, where that is not UTF-8.
fn recoded(bytes: &Bytes, is_whole: bool) -> Option<(TextEncoding, Bytes)> {
    let encoding = match encoding::utf8_start(bytes) {
        Err(_) => TextEncoding::Utf16,
        Ok(start) => match std::str::from_utf8(&bytes[start..]) {
            Err(fault) if fault.error_len().is_some() || is_whole => {
                single_byte(&bytes[start..]).then(|| TextEncoding::of_name("windows-1252"))??
            }
            Ok(_) | Err(_) => return None,
        },
    };
    let text = encoding::read(bytes, encoding).ok()?;
    // What is no character stands there as a byte that no text has.
    let is_text = memchr::memchr(0xFF, &text.bytes).is_none() || encoding == TextEncoding::Utf16;
    is_text.then(|| (encoding, text.bytes.slice(text.start..)))
}

/// Whether these bytes, which are no UTF-8, may be a text of one byte a character: without a character of UTF-8 beyond ASCII,
/// which would not come about by chance, and without control characters.
fn single_byte(bytes: &[u8]) -> bool {
    let is_blank = |byte: &u8| b"\t\n\r".contains(byte);
    bytes.utf8_chunks().all(|chunk| chunk.valid().is_ascii())
        && bytes.iter().all(|byte| *byte >= b' ' || is_blank(byte))
}

/// A file that fits is unpacked as the loader does it, so that damage shows.
fn text(
    path: &str,
    front: Bytes,
    packing: Option<Packing>,
    size: u64,
) -> Result<Content, FileFault> {
    let is_all = front.len() as u64 == size;
    if packing.is_none() || is_all {
        let limit = UnpackLimit::of_bytes(HEAD_BYTES_MAX);
        match unpack(path, front.clone(), limit) {
            Ok(bytes) => return Ok(of_text(bytes, is_all)),
            Err(fault) if fault.reason != ParkReason::TooLarge => return Err(fault),
            Err(_) => {}
        }
    }
    let bytes = match packing {
        Some(packing) => unpack_front(&front, packing, HEAD_BYTES_MAX).into(),
        None => front,
    };
    Ok(of_text(bytes, false))
}

fn of_text(bytes: Bytes, is_whole: bool) -> Content {
    Content::Text {
        recoded: recoded(&bytes, is_whole),
        bytes,
        is_whole,
    }
}

/// Where the last of the first `records_max` whole records ends; a line end between quotes is none.
fn end_of_records(bytes: &[u8], is_whole: bool, quote: Option<u8>, records_max: usize) -> usize {
    let (mut in_quotes, mut records, mut end) = (false, 0, 0);
    for at in memchr::memchr2_iter(b'\n', quote.unwrap_or(b'\n'), bytes) {
        if bytes[at] != b'\n' {
            in_quotes = !in_quotes;
        } else if !in_quotes {
            records += 1;
            end = at + 1;
            if records == records_max {
                return end;
            }
        }
    }
    match memchr::memrchr(b'\n', bytes) {
        _ if is_whole => bytes.len(),
        // A quote that stands inside of a field without quotes opens nothing.
        Some(last) if end == 0 => last + 1,
        _ => end,
    }
}

fn unreadable(error: std::io::Error) -> FileFault {
    FileFault::new(ParkReason::Unreadable, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::{column, settings};
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use std::io::{Seek, Write};
    use std::sync::Arc;

    fn head(path: &str, bytes: &[u8]) -> Result<Head, FileFault> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        Head::read(path, file)
    }

    fn rows(path: &str, bytes: &[u8], format: Format) -> usize {
        let schema = TableSchema::from_hints("a STRING").unwrap();
        let decoded = head(path, bytes)
            .unwrap()
            .decode(&schema, &settings(format));
        decoded.unwrap().positions.len()
    }

    fn fault(path: &str, bytes: &[u8]) -> ParkReason {
        let schema = TableSchema::from_hints("a STRING").unwrap();
        let settings = settings(Format::Auto);
        let decoded = head(path, bytes).and_then(|head| head.decode(&schema, &settings));
        decoded.unwrap_err().reason
    }

    #[test]
    fn file_that_is_not_what_its_name_says_is_refused() {
        assert_eq!(fault("a.json.gz", b"{}"), ParkReason::NotThisFormat);
        assert_eq!(fault("a.parquet", b"{}"), ParkReason::NotThisFormat);
        assert_eq!(fault("a.json", b"PK\x03\x04"), ParkReason::NotThisFormat);
        assert_eq!(
            fault("a.parquet", b"PAR1....PAR1"),
            ParkReason::NotThisFormat
        );
        let packed = zstd::encode_all(&b"{\"a\": 1}\n"[..], 1).unwrap();
        let cut = &packed[..packed.len() - 2];
        assert_eq!(fault("a.json.zst", cut), ParkReason::TruncatedStream);
    }

    #[test]
    fn record_that_is_longer_than_the_head_is_named() {
        let line = format!("{{\"a\": \"{}\"}}\n", "x".repeat(HEAD_BYTES_MAX as usize));
        assert_eq!(fault("a.json", line.as_bytes()), ParkReason::TooLarge);
    }

    #[test]
    fn no_more_than_the_head_is_decoded_and_whole_records_only() {
        let line = format!("{{\"a\": \"{}\"}}\n", "x".repeat(1000));
        let long = line.repeat(2 * HEAD_BYTES_MAX as usize / line.len());
        let expected = HEAD_BYTES_MAX as usize / line.len();
        assert_eq!(rows("a.json", long.as_bytes(), Format::Json), expected);
        let zst = zstd::encode_all(long.as_bytes(), 1).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(long.repeat(200).as_bytes()).unwrap();
        let level = flate2::Compression::none();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(long.as_bytes()).unwrap();
        for (path, packed) in [
            ("a.json.zst", zst),
            ("a.json.lz4", lz4.finish().unwrap()),
            ("a.json.zz", zlib.finish().unwrap()),
        ] {
            assert_eq!(rows(path, &packed, Format::Json), expected, "{path}");
        }
        let many = "{}\n".repeat(2 * HEAD_RECORDS_MAX);
        assert_eq!(
            rows("a.json", many.as_bytes(), Format::Json),
            HEAD_RECORDS_MAX
        );
    }

    #[test]
    fn csv_is_not_cut_inside_of_quotes() {
        let record = format!("\"{}\n\"\n", "x".repeat(700));
        let text = format!(
            "a\n{}",
            record.repeat(2 * HEAD_BYTES_MAX as usize / record.len())
        );
        let expected = (HEAD_BYTES_MAX as usize - 2) / record.len();
        assert_eq!(rows("a.csv", text.as_bytes(), Format::Csv), expected);
        assert_eq!(
            fault("a.csv", b"a\n\"never closed\n"),
            ParkReason::UnclosedQuote
        );
    }

    #[test]
    fn text_with_plain_evidence_of_utf8_or_of_no_text_is_not_looked_at_otherwise() {
        let cut = "x".repeat(HEAD_BYTES_MAX as usize - 1) + "\u{e9}";
        for bytes in [
            b"".as_slice(),
            "a,\u{e9}\n".as_bytes(),
            b"a,\xe9\nb,\xc3\xa9\n",
            b"a,\xe9\x01\n",
            b"a,\xe9\0\n",
            b"a,\x81\n",
            cut.as_bytes(),
        ] {
            let encoding = head("a.csv", bytes).unwrap().encoding();
            assert_eq!(
                encoding,
                TextEncoding::Utf8,
                "{:?}",
                &bytes[..bytes.len().min(9)]
            );
        }
    }

    #[test]
    fn text_that_is_no_utf8_is_looked_at_in_its_encoding() {
        let units =
            |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
        for (bytes, encoding) in [
            (b"a;\x80\n1;caf\xe9\n".to_vec(), "windows-1252"),
            (units("\u{feff}a;\u{20ac}\n1;caf\u{e9}\n"), "UTF-16"),
            (units("a;bcd\u{20ac}\n1;caf\u{e9}\n"), "UTF-16"),
        ] {
            let head = head("a.csv", &bytes).unwrap();
            assert_eq!(head.encoding().name(), encoding);
            let dialect = CsvSettings {
                delimiter: b';',
                ..CsvSettings::default()
            };
            assert_eq!(head.csv_records(&dialect, 9)[1][1], "caf\u{e9}");
        }
    }

    #[test]
    fn documents_that_are_cut_off_give_their_whole_records() {
        let record = format!("{{\"a\": \"{}\"}}", "x".repeat(1000));
        let long = format!("[{}]", vec![record.as_str(); 2000].join(",\n"));
        let mut settings = settings(Format::Json);
        settings.json.multi_line = true;
        let schema = TableSchema::from_hints("a STRING").unwrap();
        let head = head("a.json", long.as_bytes()).unwrap();
        let decoded = head.decode(&schema, &settings).unwrap();
        let expected = (HEAD_BYTES_MAX as usize - 1) / (record.len() + 2);
        assert_eq!(
            (decoded.positions.len(), decoded.rejects.len()),
            (expected, 0)
        );
    }

    #[test]
    fn avro_gives_its_first_blocks() {
        // A header, then blocks of one long and a text that fills them.
        let text = "x".repeat(3000);
        let schema =
            r#"{"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}"#;
        let long = |value: usize| [(value * 2) as u8 | 0x80, (value >> 6) as u8];
        let header = [b"Obj\x01\x02\x16avro.schema", &long(schema.len())[..]].concat();
        let mut file = [&header, schema.as_bytes(), &[0; 17]].concat();
        let block = [
            &[2][..],
            &long(3002),
            &long(3000),
            text.as_bytes(),
            &[0; 16],
        ]
        .concat();
        let whole = [file.clone(), block.clone()].concat();
        assert_eq!(rows("a", &whole, Format::Auto), 1);
        (0..500).for_each(|_| file.extend(&block));
        let expected = (HEAD_BYTES_MAX as usize - 120) / block.len();
        assert_eq!(rows("a.avro", &file, Format::Auto), expected);
        assert_eq!(
            fault("a.avro", &whole[..whole.len() - 1]),
            ParkReason::TruncatedStream
        );
        let head = head("a.avro", &file).unwrap();
        assert_eq!(head.format(&settings(Format::Json)).unwrap(), Format::Avro);
    }

    #[test]
    fn parquet_gives_its_first_rows() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let batch = RecordBatch::try_from_iter([("a", numbers)]).unwrap();
        let mut writer =
            ::parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        let head = head("numbers", &writer.into_inner().unwrap()).unwrap();
        let settings = settings(Format::Auto);
        assert_eq!(head.format(&settings).unwrap(), Format::Parquet);
        let schema = TableSchema::from_hints("a BIGINT").unwrap();
        let values = column(&head.decode(&schema, &settings).unwrap(), "a");
        assert_eq!(
            (values.len(), values[1999].as_str()),
            (HEAD_RECORDS_MAX, "1999")
        );
    }
}
