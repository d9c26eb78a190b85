"""Reads a Delta table with a reader that shares no code with the loader, and prints JSON.

    read.py rows TABLE            the rows, as a list of objects
    read.py changes TABLE FROM    the change data feed from version FROM
    read.py version TABLE         the newest version
    read.py transactions TABLE    how many log entries carry a transaction
"""

import json
import os
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def text(value):
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def objects(reader):
    table = pa.table(reader)
    return [{name: text(value) for name, value in row.items()} for row in table.to_pylist()]


def rows(path):
    answer = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    return objects(answer.read_all())


def changes(path, first):
    return objects(DeltaTable(path).load_cdf(starting_version=int(first)).read_all())


def transactions(path):
    log = os.path.join(path, "_delta_log")
    entries = [os.path.join(log, name) for name in os.listdir(log) if name.endswith(".json")]
    return sum('"txn"' in open(entry, encoding="utf-8").read() for entry in entries)


def main():
    what, path, *rest = sys.argv[1:]
    answers = {
        "rows": rows,
        "changes": changes,
        "version": lambda path: DeltaTable(path).version(),
        "transactions": transactions,
    }
    json.dump(answers[what](path, *rest), sys.stdout)


main()
