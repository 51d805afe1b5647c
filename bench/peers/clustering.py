#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""k-means with bounds on sizes, beside the package k-means-constrained: sets, starting centres and rules of bench/cluster/constrained_kmeans_bench.cpp.

    python bench/peers/clustering.py build/release/bench/cluster_constrained_kmeans_bench [--points 1000 --clusters 32 --sets 20 --starts 10]

Each set's starts are run on both sides in turn, each on one thread, with as many iterations at most (300) and the same tolerance (1e-4). Sizes are
n / k rounded down to n / k rounded up. Times are of the processor, medians over the starts of all sets; ratios are medians of ratios, start by start.
Inertias are those of the labels about their own means, computed here for both sides. One assignment is compared for the first start's centres: by
squared distances, which k-means lowers, and by the peer's own costs, distances times 1000 rounded, in which both sides have to reach the same sum.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
from k_means_constrained import KMeansConstrained
from k_means_constrained.k_means_constrained_ import _labels_constrained


class Set:
    def __init__(self, program, path, arguments, seed):
        self.program, self.path = program, path
        n, k = arguments.points, arguments.clusters
        subprocess.run([program, "--write", path, str(n), str(k), str(seed), str(arguments.starts)], check=True)
        n, k, starts, d = np.fromfile(path, np.int64, 4)
        values = np.fromfile(path, np.float64, offset=32)
        self.points = values[: n * d].reshape(n, d)
        self.centres = values[n * d :].reshape(starts, k, d)
        self.least, self.most = int(n // k), int(-(-n // k))

    def ours(self, mode, start):
        answer = subprocess.run([self.program, mode, self.path, str(start)], check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(answer), np.fromfile(str(self.path) + ".labels", np.int32)

    def peer(self, start):
        centres = self.centres[start].copy()
        solver = KMeansConstrained(len(centres), size_min=self.least, size_max=self.most, init=centres, n_init=1, max_iter=300, tol=1e-4)
        before = time.process_time()
        solver.fit(self.points)
        return time.process_time() - before, solver.labels_, solver.n_iter_

    def peer_assignment(self, start):
        distances = np.zeros(len(self.points))
        before = time.process_time()
        labels, _ = _labels_constrained(self.points, self.centres[start], self.least, self.most, distances)
        return time.process_time() - before, labels

    def inertia(self, labels):
        sizes = np.bincount(labels, minlength=self.centres.shape[1])
        assert self.least <= sizes.min() and sizes.max() <= self.most, sizes
        return sum(((self.points[labels == c] - self.points[labels == c].mean(0)) ** 2).sum() for c in range(self.centres.shape[1]))

    def squared(self, start, labels):
        return ((self.points - self.centres[start][labels]) ** 2).sum()

    def peer_cost(self, start, labels):
        return int(np.around(1000 * np.sqrt(((self.points - self.centres[start][labels]) ** 2).sum(1))).sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=32)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--starts", type=int, default=10)
    arguments = parser.parse_args()
    assignments, runs, bests = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, arguments.sets + 1):
            each = Set(Path(arguments.program).resolve(), Path(folder) / "set", arguments, seed)
            answer, labels = each.ours("--assign", 0)
            seconds, peer_labels = each.peer_assignment(0)
            assignments.append(dict(ratio=seconds / answer["seconds"], peer=seconds, ours=answer["seconds"],
                                    cost=each.squared(0, labels) / each.squared(0, peer_labels),
                                    difference=answer["peer_cost"] - each.peer_cost(0, peer_labels)))  # fmt: skip
            of_set = []
            for start in range(arguments.starts):
                answer, labels = each.ours("--run", start)
                seconds, peer_labels, peer_iterations = each.peer(start)
                ours = each.inertia(labels)
                assert abs(ours / answer["inertia"] - 1) < 1e-9
                of_set.append(dict(ratio=seconds / answer["seconds"], peer=seconds, ours=answer["seconds"], inertia=ours / each.inertia(peer_labels),
                                   ours_inertia=ours, peer_inertia=each.inertia(peer_labels), iterations=answer["iterations"],
                                   peer_iterations=peer_iterations))  # fmt: skip
            runs += of_set
            # Our best of all starts beside the peer's best of as many, and in time beside a single start of the peer's.
            bests.append(dict(inertia=min(r["ours_inertia"] for r in of_set) / min(r["peer_inertia"] for r in of_set),
                              one=min(r["ours_inertia"] for r in of_set) / statistics.median(r["peer_inertia"] for r in of_set),
                              ratio=statistics.median(r["peer"] for r in of_set) / sum(r["ours"] for r in of_set)))  # fmt: skip
            print(f"set {seed}: ratio {statistics.median(r['ratio'] for r in of_set):.1f}, inertia {statistics.median(r['inertia'] for r in of_set):.5f},"
                  f" best of {arguments.starts} {bests[-1]['inertia']:.5f}", file=sys.stderr, flush=True)  # fmt: skip
    show(arguments, assignments, runs, bests)


def show(arguments, assignments, runs, bests):
    def column(rows, name):
        return [row[name] for row in rows]

    def median(rows, name):
        return statistics.median(column(rows, name))

    def spread(rows, name, digits):
        return f"{median(rows, name):.{digits}f} [{min(column(rows, name)):.{digits}f}, {max(column(rows, name)):.{digits}f}]"

    print(f"n {arguments.points}, k {arguments.clusters}, d 16, {arguments.sets} sets of {arguments.starts} starts; medians [least, most]")
    print(f"one assignment: peer {1e3 * median(assignments, 'peer'):.1f} ms, ours {1e3 * median(assignments, 'ours'):.2f} ms,"
          f" ratio {spread(assignments, 'ratio', 1)}; squared cost, ours over peer's {spread(assignments, 'cost', 6)};"
          f" peer's cost, ours less peer's {min(column(assignments, 'difference'))} to {max(column(assignments, 'difference'))}")  # fmt: skip
    print(f"a start: peer {1e3 * median(runs, 'peer'):.0f} ms in {median(runs, 'peer_iterations'):.0f} iterations,"
          f" ours {1e3 * median(runs, 'ours'):.1f} ms in {median(runs, 'iterations'):.0f}, ratio {spread(runs, 'ratio', 1)};"
          f" inertia, ours over peer's {spread(runs, 'inertia', 5)}")  # fmt: skip
    print(f"best of {arguments.starts}: inertia, ours over peer's best of as many {spread(bests, 'inertia', 5)}, over the peer's median start"
          f" {spread(bests, 'one', 5)}; one start of the peer's takes {spread(bests, 'ratio', 1)} times all of ours")  # fmt: skip


if __name__ == "__main__":
    main()
