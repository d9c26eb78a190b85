"""Writes to Delta tables as another program would, without changing a row, until a file appears; prints what it did.

    disturb.py STOP_FILE TABLE...
"""

import json
import os
import sys
import time

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError


def compact(table):
    table.optimize.compact()


def append_nothing(table):
    write_deltalake(table, pa.schema(table.schema().to_arrow()).empty_table(), mode="append")


def rewrite(table):
    column = table.schema().fields[1].name
    table.update(updates={column: f"`{column}`"})


def main():
    stop, *paths = sys.argv[1:]
    works = [compact, compact, append_nothing, compact, rewrite]
    done = {f"{work.__name__} {os.path.basename(path)}": 0 for work in works for path in paths}
    lost, turn = 0, 0
    while not os.path.exists(stop):
        work = works[turn % len(works)]
        turn += 1
        for path in paths:
            if not os.path.isdir(os.path.join(path, "_delta_log")):
                continue
            table = DeltaTable(path)
            before = table.version()
            try:
                work(table)
                done[f"{work.__name__} {os.path.basename(path)}"] += DeltaTable(path).version() > before
            except DeltaError as error:
                if "transaction" not in str(error).lower() and "commit" not in str(error).lower():
                    raise
                lost += 1
        time.sleep(0.1)
    json.dump({"done": done, "lost": lost}, sys.stdout)


main()
