"""Reads Delta tables with readers that share no code with the loader, and prints JSON.

    read.py rows TABLE            the rows, as a list of objects
    read.py every TABLE...        the rows of each table as each reader sees them: {table: {reader: rows}}
    read.py changes TABLE FROM    the change data feed from version FROM
    read.py version TABLE         the newest version
    read.py transactions TABLE    how many log entries carry a transaction
"""

import datetime
import json
import os
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def text(value):
    if isinstance(value, datetime.datetime) and value.tzinfo:
        value = value.astimezone(datetime.timezone.utc)
    if isinstance(value, dict):
        return {name: text(inner) for name, inner in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def objects(reader):
    table = pa.table(reader)
    return [{name: text(value) for name, value in row.items()} for row in table.to_pylist()]


def rows(path):
    answer = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    return objects(answer.read_all())


def every(*paths):
    import duckdb
    import duckdb_extension_delta
    import polars

    folder = os.path.join(os.path.dirname(duckdb_extension_delta.__file__), "extensions")
    duck = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    duck.load_extension(os.path.join(folder, f"v{duckdb.__version__}", "delta.duckdb_extension"))
    readers = {
        "deltalake": rows,
        "polars": lambda path: objects(polars.scan_delta(path).collect().to_arrow()),
        "duckdb": lambda path: objects(duck.sql(f"SELECT * FROM delta_scan('{path}')").to_arrow_table()),
    }
    return {path: {name: reader(path) for name, reader in readers.items()} for path in paths}


def changes(path, first):
    return objects(DeltaTable(path).load_cdf(starting_version=int(first)).read_all())


def transactions(path):
    log = os.path.join(path, "_delta_log")
    entries = [os.path.join(log, name) for name in os.listdir(log) if name.endswith(".json")]
    return sum('"txn"' in open(entry, encoding="utf-8").read() for entry in entries)


def main():
    what, *rest = sys.argv[1:]
    answers = {
        "rows": rows,
        "every": every,
        "changes": changes,
        "version": lambda path: DeltaTable(path).version(),
        "transactions": transactions,
    }
    json.dump(answers[what](*rest), sys.stdout)


if __name__ == "__main__":
    main()
