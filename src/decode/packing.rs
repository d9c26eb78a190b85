//! How a file is packed, by its first bytes and by its name.

/// The packings that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
    /// The framed form; bare blocks of Snappy have no beginning to know them by.
    Snappy,
    Lz4,
    /// Known by its name alone, since its two first bytes may be text.
    Zlib,
}

impl Packing {
    const ALL: [Packing; 7] = [
        Packing::Gzip,
        Packing::Zstd,
        Packing::Bzip2,
        Packing::Xz,
        Packing::Snappy,
        Packing::Lz4,
        Packing::Zlib,
    ];

    /// How a file is packed: by its first bytes, and by its name where they are too few to know it or may be text.
    pub(super) fn of(path: &str, bytes: &[u8]) -> Option<Packing> {
        let by_name = || Packing::of_name(path).filter(|packing| packing.may_begin_as(bytes));
        Packing::of_bytes(bytes).or_else(by_name)
    }

    /// The packing that begins so.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Packing> {
        let begins = |packing: &Packing| {
            let head = packing.head(bytes);
            packing.magics().iter().any(|magic| head.starts_with(magic))
        };
        Packing::ALL.into_iter().find(begins)
    }

    /// The packing that a name promises.
    pub(super) fn of_name(path: &str) -> Option<Packing> {
        let ending = split_packing(path).1?;
        let is_meant = |packing: &Packing| {
            let endings = packing.endings();
            endings
                .iter()
                .any(|known| ending.eq_ignore_ascii_case(known))
        };
        Packing::ALL.into_iter().find(is_meant)
    }

    /// Whether bytes that are too few to know a packing may be the beginning of this one.
    fn may_begin_as(self, bytes: &[u8]) -> bool {
        if self == Packing::Zlib {
            return bytes.len() < 2 || is_zlib_header(bytes);
        }
        let head = self.head(bytes);
        self.magics().iter().any(|magic| magic.starts_with(&head))
    }

    /// The name for messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
            Packing::Bzip2 => "bzip2",
            Packing::Xz => "xz",
            Packing::Snappy => "framed Snappy",
            Packing::Lz4 => "lz4",
            Packing::Zlib => "zlib",
        }
    }

    fn endings(self) -> &'static [&'static str] {
        match self {
            Packing::Gzip => &["gz"],
            Packing::Zstd => &["zst", "zstd"],
            Packing::Bzip2 => &["bz2"],
            Packing::Xz => &["xz"],
            Packing::Snappy => &["sz", "snappy"],
            Packing::Lz4 => &["lz4"],
            Packing::Zlib => &["zz", "zlib", "deflate"],
        }
    }

    fn magics(self) -> &'static [&'static [u8]] {
        match self {
            Packing::Gzip => &[b"\x1F\x8B"],
            Packing::Zstd => &[b"\x28\xB5\x2F\xFD", b"\x50\x2A\x4D\x18"],
            // Behind the mark comes a block or, where nothing is packed, the end.
            Packing::Bzip2 => &[b"BZh\x31AY&SY", b"BZh\x17\x72\x45\x38\x50\x90"],
            Packing::Xz => &[b"\xFD7zXZ\0"],
            Packing::Snappy => &[b"\xFF\x06\0\0sNaPpY"],
            Packing::Lz4 => &[b"\x04\x22\x4D\x18"],
            Packing::Zlib => &[],
        }
    }

    /// The first bytes, without what differs from file to file.
    fn head(self, bytes: &[u8]) -> Vec<u8> {
        let mut head = bytes[..bytes.len().min(16)].to_vec();
        match self {
            // The size of its blocks.
            Packing::Bzip2 if matches!(head.get(3), Some(b'1'..=b'9')) => {
                head.remove(3);
            }
            // A zstd stream may begin with a frame to be skipped; there are sixteen of them.
            Packing::Zstd if head.first().is_some_and(|byte| byte & 0xF0 == 0x50) => head[0] = 0x50,
            _ => {}
        }
        head
    }
}

/// A name without its packing extension, and that extension.
pub(super) fn split_packing(path: &str) -> (&str, Option<&str>) {
    let is_known = |ending: &str| {
        let mut endings = Packing::ALL.iter().flat_map(|packing| packing.endings());
        endings.any(|known| ending.eq_ignore_ascii_case(known))
    };
    match path.rsplit_once('.') {
        Some((stem, ending)) if is_known(ending) => (stem, Some(ending)),
        _ => (path, None),
    }
}

fn is_zlib_header(bytes: &[u8]) -> bool {
    match bytes {
        [method, flags, ..] => {
            method & 0x0F == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PACKED_ENDINGS;

    #[test]
    fn text_is_not_taken_for_a_packing() {
        for text in [&b"BZh9,a\n"[..], b"BZh", b"PAR1", b"x^2,y\n", b"", b"\x1F"] {
            assert_eq!(Packing::of_bytes(text), None, "{text:?}");
        }
        assert!(!Packing::Zlib.may_begin_as(b"a,b\n"));
        assert!(!Packing::Bzip2.may_begin_as(b"BZh9,a\n"));
        assert!(!Packing::Gzip.may_begin_as(b"{}"));
    }

    #[test]
    fn the_endings_of_the_default_filters_are_those_of_the_packings() {
        let endings: Vec<_> = Packing::ALL.iter().flat_map(|p| p.endings()).collect();
        assert_eq!(endings, PACKED_ENDINGS.iter().collect::<Vec<_>>());
        assert_eq!(split_packing("a/b.csv.BZ2"), ("a/b.csv", Some("BZ2")));
        assert_eq!(Packing::of_name("a/b.csv.BZ2"), Some(Packing::Bzip2));
        assert_eq!(split_packing("b.json"), ("b.json", None));
        assert_eq!(Packing::of_name("gz"), None);
    }
}
