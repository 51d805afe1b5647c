# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Files of numbers, and what they say."""

import csv
import math
import zlib


def read_csv(path, skip=0):
    """The lines of a CSV file as dicts; `skip` lines come before the names of columns. [] where there is no file. Where lines end with
    their checksums, it exits at one that was altered, and names it."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        lines = list(file)[skip:]
    if lines and lines[0].endswith(",crc32\n"):
        for number, line in enumerate(lines[1:], skip + 2):
            if line != with_checksum(line.rpartition(",")[0]):
                raise SystemExit(f"{path}: line {number} was altered")
    return list(csv.DictReader(lines))


def with_checksum(text):
    """A line of these fields and their checksum, as `plan_tables` writes it."""
    return f"{text},{zlib.crc32((text + ',').encode()):08x}\n"


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def kendall_tau(first, second):
    """Kendall's tau-b of pairs of numbers; NaN where one of them does not vary."""
    concordant = ties_first = ties_second = pairs = 0
    for i in range(len(first)):
        for j in range(i):
            a, b = first[i] - first[j], second[i] - second[j]
            concordant += (a * b > 0) - (a * b < 0)
            ties_first += a == 0
            ties_second += b == 0
            pairs += 1
    scale = math.sqrt((pairs - ties_first) * (pairs - ties_second))
    return concordant / scale if scale else math.nan


def pearson(first, second):
    """The correlation of pairs of numbers; NaN where one of them does not vary."""
    a, b = mean(first), mean(second)
    product = sum((x - a) * (y - b) for x, y in zip(first, second))
    scale = math.sqrt(sum((x - a) ** 2 for x in first) * sum((y - b) ** 2 for y in second))
    return product / scale if scale else math.nan


def predicted(path, part, devices=None):
    """What `predict` wrote of a part, step, forward or backward: [(sample, repeat, rank, measured, predicted)]."""
    return [(int(row["sample"]), row["repeat"] == "1", int(row["rank"]), float(row["measured_ms"]), float(row["predicted_ms"]))
            for row in read_csv(path) if row["part"] == part and (devices is None or int(row["devices"]) == devices)]


def of_passes(rows, passes):
    """`rows` of `predicted` with the least of what was measured of the same in all passes, lists of such rows too; those of no pass are left
    out."""
    of = {}
    for one in passes:
        for sample, repeat, rank, measured, _ in one:
            of.setdefault((sample, repeat, rank), []).append(measured)
    return [(sample, repeat, rank, min(of[sample, repeat, rank]), value) for sample, repeat, rank, _, value in rows
            if (sample, repeat, rank) in of]


def costs(rows):
    """Measured and predicted cost of each sample, of its slowest device, in the order of samples; repeats are left out."""
    of = {}
    for sample, repeat, _, measured, value in rows:
        if not repeat:
            a, b = of.get(sample, (-math.inf, -math.inf))
            of[sample] = max(a, measured), max(b, value)
    return [of[sample][0] for sample in sorted(of)], [of[sample][1] for sample in sorted(of)]


def compared(*paths):
    """What `compare` wrote, of several files that are there: {task: {method: (cost or None, seconds)}}."""
    tasks = {}
    for row in (row for path in paths for row in read_csv(path)):
        cost = float(row["cost_ms"]) if row["cost_ms"] else None
        tasks.setdefault(row["task"], {})[row["method"]] = cost, float(row["seconds"])
    return tasks


def measured(path):
    """What `measure` wrote: {plan: [(compute, backward, forward) of each device]}; None for what was not measured."""
    plans = {}
    number = lambda text: float(text) if text else None
    for row in read_csv(path):
        plans.setdefault(row["plan"], []).append((number(row["compute_ms"]), number(row["backward_ms"]), number(row["forward_ms"])))
    return plans


def slowest(devices):
    """The largest sum of a device's costs."""
    return max(sum(one) for one in devices)
