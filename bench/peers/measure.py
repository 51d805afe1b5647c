# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""What every peer program shares: its arguments, its clock, and the line of JSON that bench/compare.py reads.

A peer program names its works and gives a function for each:

    measure.main({"auc": {"sklearn": auc_sklearn}})

where `auc_sklearn(threads)` prepares its inputs and returns a function of the iteration's number, which is timed. It is called as
`program.py --peer sklearn --works auc,other --threads 2 [--seconds 2]` and prints a JSON list of {work, peer, threads, seconds, machine, moved,
others}: the median seconds of an iteration, and that by which a busy machine is told from a quiet one, in the words of bench/report.hpp.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

import numpy as np


def copy_rate(threads):
    """Bytes a second of a copy between two arrays of 256 MiB, both counted: the best of five."""
    from concurrent.futures import ThreadPoolExecutor

    size = 1 << 28
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    parts = [slice(size * t // threads, size * (t + 1) // threads) for t in range(threads)]
    best = 1e9
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))
            best = min(best, time.perf_counter() - start)
    return 2 * size / best


class NeighbourWatch:
    """How many cores, on the average, worked for others since it was made, as bench/neighbours.hpp tells it."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        """Seconds of the clock, of all cores at work, of this process and its children."""
        own = os.times()
        return time.perf_counter(), busy_seconds(), time.process_time() + own.children_user + own.children_system

    def cores(self):
        wall, busy, own = (end - start for end, start in zip(self.now(), self.start))
        return (busy - own) / max(wall, 1e-9)


def busy_seconds():
    try:
        with open("/proc/stat") as file:
            user, nice, system, _, _, interrupts, soft_interrupts, steal = (int(word) for word in file.readline().split()[1:9])
    except (OSError, ValueError):
        return 0
    return (user + nice + system + interrupts + soft_interrupts + steal) / os.sysconf("SC_CLK_TCK")


def cache_bytes():
    """Bytes that the last level of cache may have: what the system says, but 256 MiB at least (as bench/inputs.hpp does)."""
    answer = subprocess.run(["getconf", "LEVEL3_CACHE_SIZE"], capture_output=True, text=True).stdout.strip()
    return max(int(answer) if answer.isdigit() else 0, 1 << 28)


def batches_past_cache(bytes_a_batch):
    """How many batches to go round so that what they touch exceeds four times the cache (as bench/inputs.hpp does)."""
    return min(max(4 * cache_bytes() // max(bytes_a_batch, 1) + 1, 2), 512)


def zipf_ids(generator, count, exponent, shape):
    """Ids 0 … count - 1 with probability proportional to (1 + id)^-exponent; exponent 0: uniform."""
    if exponent == 0:
        return generator.integers(0, count, shape)
    cumulative = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    return np.searchsorted(cumulative, generator.random(shape) * cumulative[-1]).astype(np.int64)


def median_seconds(run, least_seconds, warm_up):
    """The median of single iterations, at least five and at least `least_seconds` of them."""
    for i in range(warm_up):
        run(i)
    times, i = [], warm_up
    while len(times) < 5 or sum(times) < least_seconds:
        start = time.perf_counter()
        run(i)
        times.append(time.perf_counter() - start)
        i += 1
    return statistics.median(times)


def main(works):
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, choices=sorted({peer for peers in works.values() for peer in peers}))
    parser.add_argument("--works", required=True, help="names, separated by commas")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=2, help="least time spent on a work")
    parser.add_argument("--warm-up", type=int, default=3, help="iterations that are not counted")
    arguments = parser.parse_args()
    records = []
    for name in arguments.works.split(","):
        run = works[name][arguments.peer](arguments.threads)
        before, watch = copy_rate(arguments.threads), NeighbourWatch()
        seconds = median_seconds(run, arguments.seconds, arguments.warm_up)
        others, after = watch.cores(), copy_rate(arguments.threads)
        machine, moved = max(before, after), 1 - min(before, after) / max(before, after)
        record = dict(work=name, peer=arguments.peer, threads=arguments.threads, seconds=seconds, machine=machine)
        records.append(record | dict(moved=moved, others=others))
    print(json.dumps(records))
