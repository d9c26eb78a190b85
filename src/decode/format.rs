//! Finds out how a file is to be read: by the settings, else by its name and its first bytes.
//!
//! What plainly is something else is refused here as a whole, before a single record is looked at.

use super::parquet;
use super::unpack::{UNPACKED_BYTES_MAX, split_packing, unpack};
use crate::change::{FileFault, ParkReason};
use crate::settings::{Format, SourceSettings};
use bytes::Bytes;

/// How one file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    Json,
    Csv { delimiter: u8 },
    Parquet,
}

const UTF8_BOM: &[u8] = &[0xEF, 0xBB, 0xBF];

/// Encodings that are known by their first bytes; UTF-32 before UTF-16, which begins alike.
const FOREIGN_BOMS: [(&[u8], &str); 4] = [
    (&[0xFF, 0xFE, 0, 0], "UTF-32LE"),
    (&[0, 0, 0xFE, 0xFF], "UTF-32BE"),
    (&[0xFF, 0xFE], "UTF-16LE"),
    (&[0xFE, 0xFF], "UTF-16BE"),
];

/// So many characters must alternate with zeros to be taken for UTF-16 without a mark.
const UNITS_SEEN: usize = 4;

/// The first bytes of formats that are neither JSON nor CSV.
const FOREIGN_MAGIC: [(&[u8], &str); 9] = [
    (b"PK\x03\x04", "a ZIP archive"),
    (b"Obj\x01", "Avro"),
    (b"ORC", "ORC"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"BZh9", "bzip2"),
    (b"\xFD7zXZ\0", "xz"),
    (b"\x1F\x8B", "gzip inside of another packing"),
    (b"\x28\xB5\x2F\xFD", "zstd inside of another packing"),
    (b"%PDF-", "a PDF document"),
];

/// Chooses the format and unpacks the file.
pub(super) fn open(
    path: &str,
    bytes: Bytes,
    settings: &SourceSettings,
) -> Result<(FileFormat, Bytes), FileFault> {
    let is_parquet = bytes.starts_with(parquet::MAGIC) && bytes.ends_with(parquet::MAGIC);
    let extension = extension_of(split_packing(path).0);
    match settings.format {
        Format::Parquet => return Ok((FileFormat::Parquet, bytes)),
        Format::Auto if is_parquet || extension == "parquet" => {
            return Ok((FileFormat::Parquet, bytes));
        }
        Format::Json | Format::Csv | Format::Auto if is_parquet => {
            return Err(not_this("the bytes are Parquet"));
        }
        Format::Json | Format::Csv | Format::Auto => {}
    }
    let bytes = unpack(path, bytes, UNPACKED_BYTES_MAX)?;
    if let Some((_, name)) = FOREIGN_MAGIC
        .iter()
        .find(|(magic, _)| bytes.starts_with(magic))
    {
        // ORC may be the name of a column; what follows it in an ORC file is no text.
        if *name != "ORC" || bytes.get(3).is_some_and(|byte| *byte < b' ') {
            return Err(not_this(&format!("the bytes are {name}")));
        }
    }
    let csv = FileFormat::Csv {
        delimiter: delimiter_of(&extension, settings),
    };
    let format = match settings.format {
        Format::Json => FileFormat::Json,
        Format::Csv => csv,
        Format::Parquet => FileFormat::Parquet,
        Format::Auto => match extension.as_str() {
            "json" | "jsonl" | "ndjson" => FileFormat::Json,
            "csv" | "tsv" => csv,
            _ => sniff(&bytes)?,
        },
    };
    Ok((format, bytes))
}

/// The bytes are plainly something else.
pub(super) fn not_this(detail: &str) -> FileFault {
    FileFault::new(ParkReason::NotThisFormat, detail)
}

/// What stands behind the last dot of the name, in lower case.
pub(super) fn extension_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.')
        .map(|(_, extension)| extension.to_ascii_lowercase())
        .unwrap_or_default()
}

/// Tabs in `.tsv`, unless another delimiter than the default is set.
fn delimiter_of(extension: &str, settings: &SourceSettings) -> u8 {
    if extension == "tsv" && settings.csv.delimiter == b',' {
        b'\t'
    } else {
        settings.csv.delimiter
    }
}

/// A file whose name says nothing: only JSON shows itself by its first byte.
fn sniff(bytes: &[u8]) -> Result<FileFormat, FileFault> {
    let start = text_start(bytes)?;
    match bytes[start..]
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
    {
        None | Some(b'{' | b'[') => Ok(FileFormat::Json),
        Some(_) => Err(not_this(
            "neither the name nor the first bytes tell the format; set it, or name the file so",
        )),
    }
}

/// Where the text begins, behind a UTF-8 mark; other encodings are a fault.
pub(super) fn text_start(bytes: &[u8]) -> Result<usize, FileFault> {
    let unsupported = |encoding: &str| {
        let detail = format!("the text is {encoding}, only UTF-8 is read");
        Err(FileFault::new(ParkReason::UnsupportedEncoding, detail))
    };
    if bytes.starts_with(UTF8_BOM) {
        return Ok(UTF8_BOM.len());
    }
    if let Some((_, encoding)) = FOREIGN_BOMS.iter().find(|(bom, _)| bytes.starts_with(bom)) {
        return unsupported(encoding);
    }
    match unmarked_encoding(bytes) {
        Some(encoding) => unsupported(encoding),
        None => Ok(0),
    }
}

/// Zeros between the first characters betray wide encodings.
fn unmarked_encoding(bytes: &[u8]) -> Option<&'static str> {
    let all_of = |width: usize, filled: usize| {
        let mut units = bytes.chunks_exact(width).take(UNITS_SEEN);
        units.len() == UNITS_SEEN
            && units.all(|unit| {
                unit.iter()
                    .enumerate()
                    .all(|(i, byte)| (*byte != 0) == (i == filled))
            })
    };
    if all_of(4, 0) {
        Some("UTF-32LE")
    } else if all_of(4, 3) {
        Some("UTF-32BE")
    } else if all_of(2, 0) {
        Some("UTF-16LE")
    } else if all_of(2, 1) {
        Some("UTF-16BE")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::settings;

    fn chosen(format: Format, path: &str, bytes: &[u8]) -> Result<FileFormat, ParkReason> {
        let opened = open(path, Bytes::copy_from_slice(bytes), &settings(format));
        opened
            .map(|(format, _)| format)
            .map_err(|fault| fault.reason)
    }

    #[test]
    fn bytes_of_another_format_are_refused() {
        let zip = b"PK\x03\x04 and more";
        for format in [Format::Json, Format::Csv, Format::Auto] {
            assert_eq!(
                chosen(format, "a.json", zip),
                Err(ParkReason::NotThisFormat)
            );
        }
        assert_eq!(
            chosen(Format::Csv, "a.csv", b"PAR1....PAR1"),
            Err(ParkReason::NotThisFormat)
        );
        assert_eq!(
            chosen(Format::Csv, "a.csv", b"ORC\x08\x03\x10"),
            Err(ParkReason::NotThisFormat)
        );
        assert_eq!(
            chosen(Format::Auto, "a.log", b"a,b\n1,2\n"),
            Err(ParkReason::NotThisFormat)
        );
        let twice = zstd::encode_all(&zstd::encode_all(&b"{}"[..], 1).unwrap()[..], 1).unwrap();
        assert_eq!(
            chosen(Format::Json, "a.json", &twice),
            Err(ParkReason::NotThisFormat)
        );
    }

    #[test]
    fn auto_goes_by_name_and_by_first_bytes() {
        let csv = FileFormat::Csv { delimiter: b',' };
        let packed = zstd::encode_all(&b"{}"[..], 1).unwrap();
        for (path, bytes, format) in [
            ("a/b.jsonl", &b"a,b"[..], FileFormat::Json),
            ("b.NDJSON", b"", FileFormat::Json),
            ("b.json.zst", &packed, FileFormat::Json),
            ("b.csv", b"{\"a\"}", csv),
            ("b.tsv", b"", FileFormat::Csv { delimiter: b'\t' }),
            ("b.parquet", b"", FileFormat::Parquet),
            ("b.csv", b"PAR1....PAR1", FileFormat::Parquet),
            ("part-0000", b" \n{\"a\": 1}", FileFormat::Json),
            ("part-0000", b"", FileFormat::Json),
            ("part.x/data", &packed, FileFormat::Json),
            ("b.csv", b"ORC,b\n", csv),
            ("b.csv", b"PAR1,b\n", csv),
        ] {
            assert_eq!(chosen(Format::Auto, path, bytes), Ok(format), "{path}");
        }
    }

    #[test]
    fn only_text_that_is_wide_is_taken_for_wide() {
        assert_eq!(text_start(b"\xEF\xBB\xBFa"), Ok(3));
        assert_eq!(text_start(b"a\0b,c\0d"), Ok(0));
        assert_eq!(text_start(b"\0\0\0\0\0\0\0\0"), Ok(0));
        let wide = text_start(b"\0a\0,\0b\0\n").unwrap_err();
        assert!(wide.detail.contains("UTF-16BE"));
        assert!(
            text_start(b"\xFF\xFE\0\0a\0\0\0")
                .unwrap_err()
                .detail
                .contains("UTF-32LE")
        );
    }
}
