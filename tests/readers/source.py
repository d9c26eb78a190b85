"""Writes random records in many formats, and prints what readers that share no code with the loader see in them.

    source.py FOLDER SEED         {part: rows}; the files of each part are in FOLDER/part
"""

import bz2
import datetime
import decimal
import io
import json
import lzma
import os
import random
import sys

import duckdb
import fastavro
import polars

from read import objects

NAMES = ["id", "text", "amount", "ratio", "day", "at"]
AVRO = {"type": "record", "name": "event", "fields": [
    {"name": "id", "type": "long"},
    {"name": "text", "type": ["null", "string"]},
    {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
    {"name": "ratio", "type": ["null", "double"]},
    {"name": "day", "type": [{"type": "int", "logicalType": "date"}, "null"]},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
]}
# What windows-1252 has, with all that CSV and JSON must quote.
LETTERS = "ab 7,\"'\\\n\t{}[]:;\u00e9\u00df\u20ac\u0153"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def record(rng, number):
    values = {
        "text": "".join(rng.choices(LETTERS, k=rng.randrange(12))),
        "amount": decimal.Decimal(rng.randrange(-10**9, 10**9)).scaleb(-2),
        "ratio": rng.choice([rng.random(), rng.uniform(-1e9, 1e9), 0.0]),
        "day": datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(-40000, 40000)),
        "at": EPOCH + datetime.timedelta(microseconds=rng.randrange(-10**15, 4 * 10**15)),
    }
    return {"id": number} | {name: None if rng.random() < 0.2 else value for name, value in values.items()}


def plain(value):
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, datetime.date) else value


def as_json(row, rng):
    # Decimals are written as texts, which keeps their digits.
    values = {name: str(value) if isinstance(value, decimal.Decimal) else plain(value) for name, value in row.items()}
    return json.dumps(values, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2]))


def as_csv(rows, line_end):
    def field(value):
        if value is None:
            return ""
        return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else str(plain(value))

    lines = [",".join(NAMES)] + [",".join(field(row[name]) for name in NAMES) for row in rows]
    return line_end.join(lines) + line_end


def instants(frame):
    return frame.with_columns(polars.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us", time_zone="UTC"))


def read_json(text, form):
    columns = '{id: BIGINT, text: VARCHAR, amount: DECIMAL(12,2), ratio: DOUBLE, day: DATE, "at": VARCHAR}'
    columns = columns.replace(": ", ": '").replace(", ", "', ").replace("(12,2')", "(12,2)").replace("}", "'}")
    path = "document.json"
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    rows = duckdb.sql(f"SELECT * FROM read_json('{path}', format='{form}', columns={columns})").pl()
    os.remove(path)
    return instants(rows)


def read_csv(text):
    kinds = {"id": polars.Int64, "text": polars.String, "amount": polars.Decimal(12, 2),
             "ratio": polars.Float64, "day": polars.Date, "at": polars.String}
    return instants(polars.read_csv(io.BytesIO(text.encode()), schema=kinds))


def parts(rng):
    """Each part as (name of the part, name of the file, its bytes, what is in it)."""
    rows = [record(rng, number) for number in range(300)]
    array = "[" + ",\n ".join(as_json(row, rng) for row in rows) + "]\n"
    yield "documents", "array.json.xz", lzma.compress(array.encode()), read_json(array, "array")
    rows = [record(rng, number) for number in range(300, 600)]
    joined = "".join(as_json(row, rng) + rng.choice(["", "\n", " \r\n"]) for row in rows)
    yield "documents", "joined.json.bz2", bz2.compress(joined.encode()), read_json(joined, "unstructured")
    for part, encoding in [("utf16", "utf-16"), ("windows1252", "windows-1252")]:
        text = as_csv([record(rng, number) for number in range(300)], rng.choice(["\n", "\r\n"]))
        yield part, "rows.csv", text.encode(encoding), read_csv(text)
    for number, codec in enumerate(["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]):
        rows = [record(rng, row) for row in range(number * 100, number * 100 + 100)]
        out = io.BytesIO()
        fastavro.writer(out, AVRO, rows, codec=codec, sync_interval=rng.choice([100, 1000, 16000]))
        # Polars has not all codecs; what is in the file is the same for all.
        again = io.BytesIO()
        fastavro.writer(again, AVRO, rows)
        again.seek(0)
        yield "avro", f"{codec}.avro", out.getvalue(), polars.read_avro(again)


def main(folder, seed):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    seen = {}
    for part, name, content, frame in parts(random.Random(int(seed))):
        os.makedirs(part, exist_ok=True)
        with open(os.path.join(part, name), "wb") as out:
            out.write(content)
        seen.setdefault(part, []).extend(objects(frame.to_arrow()))
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
