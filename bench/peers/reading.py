# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Reads the click log of bench/data/read_tsv_bench.cpp, which tells where it is and writes it at need, with pyarrow.csv and with polars. The
environment's TESSERA_BUILD is the build that has the program, build/release unless it is set.

The table that comes is less than a batch: integers as they stand, categories as text, no logarithm and no hash.
"""

import os
import subprocess
from pathlib import Path

import measure

NAMES = [f"c{i}" for i in range(40)]


def log():
    build = os.environ.get("TESSERA_BUILD") or Path(__file__).resolve().parent.parent.parent / "build/release"
    program = Path(build) / "bench/data_read_tsv_bench"
    return subprocess.run([program, "--log"], check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip("\n")


def read_tsv_pyarrow(threads):
    import pyarrow as pa
    from pyarrow import csv

    pa.set_cpu_count(threads)
    # Found fastest of blocks of 256 KiB to 16 MiB, text checked or not, and categories as string, binary or dictionary.
    types = {name: pa.int32() if i < 14 else pa.string() for i, name in enumerate(NAMES)}
    read = csv.ReadOptions(use_threads=threads > 1, block_size=1 << 20, column_names=NAMES)
    parse = csv.ParseOptions(delimiter="\t", quote_char=False)
    convert = csv.ConvertOptions(column_types=types, check_utf8=False, null_values=[""], strings_can_be_null=True)
    path = log()
    return lambda i: csv.read_csv(path, read, parse, convert)


def read_tsv_polars(threads):
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    import polars

    types = {name: polars.Int32 if i < 14 else polars.String for i, name in enumerate(NAMES)}
    scan = polars.scan_csv(log(), separator="\t", has_header=False, schema=types, quote_char=None)
    return lambda i: scan.collect(engine="streaming")


if __name__ == "__main__":
    measure.main({"read_tsv": {"pyarrow": read_tsv_pyarrow, "polars": read_tsv_polars}})
