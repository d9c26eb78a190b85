"""Writes the Avro files of this folder with fastavro, one for each codec, all with the same records."""

import datetime
import decimal
import pathlib
import uuid

import fastavro

UTC = datetime.timezone.utc
FIELDS = [
    ("id", "long"),
    ("small", ["null", "int"]),
    ("flag", "boolean"),
    ("single", "float"),
    ("double", "double"),
    ("text", ["string", "null"]),
    ("raw", "bytes"),
    ("code", {"type": "fixed", "name": "code", "size": 3}),
    ("kind", {"type": "enum", "name": "kind", "symbols": ["NEW", "OLD"]}),
    ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("total", {"type": "fixed", "name": "total", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 0}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("clock_ms", {"type": "int", "logicalType": "time-millis"}),
    ("clock_us", {"type": "long", "logicalType": "time-micros"}),
    ("at_ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("at_us", {"type": "long", "logicalType": "timestamp-micros"}),
    ("at_ns", {"type": "long", "logicalType": "timestamp-nanos"}),
    ("local_ms", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("local_us", ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]),
    ("key", {"type": "string", "logicalType": "uuid"}),
    ("span", {"type": "fixed", "name": "span", "size": 12, "logicalType": "duration"}),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("counts", {"type": "map", "values": "int"}),
    ("place", ["null", {"type": "record", "name": "place", "fields": [
        {"name": "city", "type": "string"}, {"name": "kind", "type": "kind"}]}]),
    ("either", ["null", "long", "string"]),
]
SCHEMA = {"type": "record", "name": "event", "namespace": "shop",
          "fields": [{"name": name, "type": kind} for name, kind in FIELDS]}
FIRST = {
    "id": 1, "small": -5, "flag": True, "single": 0.1, "double": 0.1, "text": "caf\u00e9 \u20ac", "raw": b"\x00\xff",
    "code": b"abc", "kind": "OLD", "amount": decimal.Decimal("-12.34"), "total": decimal.Decimal("9" * 38),
    "day": datetime.date(2024, 2, 29), "clock_ms": datetime.time(23, 59, 59, 999000),
    "clock_us": datetime.time(0, 0, 0, 1), "at_ms": datetime.datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    "at_us": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "at_ns": 1_711_848_600_123_456_000,
    "local_ms": datetime.datetime(2024, 3, 31, 2, 30), "local_us": None,
    "key": uuid.UUID("12345678-1234-5678-1234-567812345678"),
    "span": (14).to_bytes(4, "little") + (3).to_bytes(4, "little") + (250).to_bytes(4, "little"),
    "tags": ["a", None, ""], "counts": {"x": 1, "y": -1}, "place": {"city": "Oslo", "kind": "NEW"}, "either": 7,
}
# Finer than a microsecond: refused by a TIMESTAMP column.
SECOND = FIRST | {"id": 2, "at_ns": 1_711_848_600_123_456_789}
THIRD = FIRST | {
    "id": 9_223_372_036_854_775_807, "small": None, "text": None, "local_us": datetime.datetime(1, 1, 1),
    "tags": [], "counts": {}, "place": None, "either": "seven", "amount": decimal.Decimal("0"),
}

if __name__ == "__main__":
    for codec in ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]:
        path = pathlib.Path(__file__).parent / f"{codec}.avro"
        with path.open("wb") as out:
            fastavro.writer(out, SCHEMA, [FIRST, SECOND, THIRD], codec=codec, sync_interval=400)
