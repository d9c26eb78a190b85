//! Finds out how a file is to be read: by the settings, else by its name and its first bytes.
//!
//! What plainly is something else is refused here as a whole, before a single record is looked at.

use super::packing::{Packing, split_packing};
use super::unpack::{UnpackLimit, unpack};
use super::{avro, encoding, parquet};
use crate::change::{FileFault, ParkReason};
use crate::settings::{Format, SourceSettings};
use bytes::Bytes;

/// How one file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    Json,
    Csv { delimiter: u8 },
    Parquet,
    Avro,
}

/// The first bytes of formats that are neither JSON nor CSV.
const FOREIGN_MAGIC: [(&[u8], &str); 5] = [
    (b"PK\x03\x04", "a ZIP archive"),
    (avro::MAGIC, "Avro"),
    (b"ORC", "ORC"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"%PDF-", "a PDF document"),
];

/// What stands behind the last dot of JSON files.
const JSON_NAMES: [&str; 3] = ["json", "jsonl", "ndjson"];

/// Whether the name alone says that a file is JSON.
pub(super) fn has_json_name(path: &str) -> bool {
    JSON_NAMES.contains(&extension_of(path).as_str())
}

/// The format of a text, where name and settings tell it; the bytes may show another one.
pub(super) fn of_text_name(path: &str, settings: &SourceSettings) -> Option<FileFormat> {
    let extension = extension_of(split_packing(path).0);
    let csv = FileFormat::Csv {
        delimiter: delimiter_of(&extension, settings),
    };
    match (settings.format, extension.as_str()) {
        (Format::Json, _) => Some(FileFormat::Json),
        (Format::Csv, _) => Some(csv),
        (Format::Auto, json) if JSON_NAMES.contains(&json) => Some(FileFormat::Json),
        (Format::Auto, "csv" | "tsv") => Some(csv),
        (Format::Auto | Format::Parquet | Format::Avro, _) => None,
    }
}

/// Whether name and settings tell that a file is Parquet, whatever its bytes are.
pub(super) fn is_parquet_name(path: &str, settings: &SourceSettings) -> bool {
    match settings.format {
        Format::Parquet => true,
        Format::Auto => extension_of(split_packing(path).0) == "parquet",
        Format::Json | Format::Csv | Format::Avro => false,
    }
}

/// Chooses the format and unpacks the file.
pub(super) fn open(
    path: &str,
    bytes: Bytes,
    settings: &SourceSettings,
) -> Result<(FileFormat, Bytes), FileFault> {
    let is_parquet = bytes.starts_with(parquet::MAGIC) && bytes.ends_with(parquet::MAGIC);
    let extension = extension_of(split_packing(path).0);
    if is_parquet_name(path, settings) || (settings.format == Format::Auto && is_parquet) {
        return Ok((FileFormat::Parquet, bytes));
    }
    if is_parquet {
        return Err(not_this("the bytes are Parquet"));
    }
    let limit = UnpackLimit::of_file(bytes.len() as u64);
    let bytes = unpack(path, bytes, limit)?;
    let is_avro = bytes.starts_with(avro::MAGIC) || extension == "avro";
    if settings.format == Format::Avro || (settings.format == Format::Auto && is_avro) {
        return Ok((FileFormat::Avro, bytes));
    }
    if let Some(name) = foreign(&bytes) {
        return Err(not_this(&format!("the bytes are {name}")));
    }
    let format = match of_text_name(path, settings) {
        Some(format) => format,
        None => sniff(&bytes, settings)?,
    };
    Ok((format, bytes))
}

/// What the bytes plainly are, where that is no text.
pub(super) fn foreign(bytes: &[u8]) -> Option<String> {
    if let Some(packing) = Packing::of_bytes(bytes) {
        return Some(format!("{} inside of another packing", packing.word()));
    }
    let (_, name) = FOREIGN_MAGIC
        .iter()
        .find(|(magic, _)| bytes.starts_with(magic))?;
    // ORC may be the name of a column; what follows it in an ORC file is no text.
    let is_text = *name == "ORC" && bytes.get(3).is_none_or(|byte| *byte >= b' ');
    (!is_text).then(|| name.to_string())
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
fn sniff(bytes: &Bytes, settings: &SourceSettings) -> Result<FileFormat, FileFault> {
    let text = encoding::read(bytes, settings.json.encoding)?;
    match text.bytes[text.start..]
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
    {
        None | Some(b'{' | b'[') => Ok(FileFormat::Json),
        Some(_) => Err(not_this(
            "neither the name nor the first bytes tell the format; set it, or name the file so",
        )),
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
}
