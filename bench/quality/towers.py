#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains models with and without towers over seeds, and prints the rows of the DMT paper's Tables 3 to 6 as medians of test AUCs.

    cmake --build build/release --target tower_quality
    python3 bench/quality/towers.py                          # trains what is not in build/tower_quality/runs.csv yet, then prints
    python3 bench/quality/towers.py --print                  # prints what is there
    python3 bench/quality/towers.py --rand                   # adjusted Rand indices of learned towers against the planted blocks
    python3 bench/quality/towers.py --selftest

A cell: median over seeds (standard deviation). p-values are of Mann-Whitney U tests, two-sided and exact. Learned towers of a seed come from the
affinities of the flat DLRM of that seed. The table of runs is one line a run, so that a run that was cut off goes on where it was.
"""

import argparse
import concurrent.futures
import csv
import itertools
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIELDS = ["set", "row", "seed", "auc", "log_loss", "best_auc", "compression", "seconds", "arguments", "features"]

# What the programs get for a set: all models, DLRM alone, DCN alone.
PLANTED = (["--train-rows", "393216", "--test-rows", "32768", "--batch", "128", "--dim", "64", "--bottom", "64", "--row-rate", "0.1"],
           ["--top", "128,64", "--rate", "0.001", "--init", "0.1"], ["--top", "64,32", "--rank", "16", "--rate", "0.001", "--init", "0.3"])
ADULT = (["--batch", "128", "--dim", "16", "--bottom", "64,32", "--top", "128,64", "--row-rate", "0.03", "--rate", "0.003"],
         [], ["--rank", "0"])
SETS = {"pairs": PLANTED, "classes": PLANTED, "adult": ADULT}


def rows_of(name):
    """Row -> model and arguments. On adult, of 13 features, there are half as many towers, so that towers are as large as in the paper."""
    few, some, middle, many, all_features, n = (2, 2, 4, 8, 13, 16) if name == "adult" else (2, 4, 8, 16, 26, 64)
    learned = ["--partition", "coherent"]

    def towers(count, *others):
        return ["--towers", str(count), *map(str, others)]

    rows = {"DLRM": ("dlrm", []), "SPTT-DLRM": ("dlrm", towers(all_features, "--pass")),
            "DCN": ("dcn", []), "SPTT-DCN": ("dcn", towers(all_features, "--pass"))}
    for count in sorted({few, some, middle}):
        rows[f"DMT {count}T-DLRM"] = ("dlrm", towers(count, "--tower-dim", n // 2, *learned))
        rows[f"DMT {count}T-DCN"] = ("dcn", towers(count, "--tower-dim", n, *learned))
    rows[f"DMT {many}T-DLRM"] = ("dlrm", towers(many, "--tower-dim", n, "--p", 1, "--c", 0, *learned))
    rows[f"DMT {many}T-DLRM strided"] = ("dlrm", towers(many, "--tower-dim", n, "--p", 1, "--c", 0))
    rows[f"DMT {many}T-DCN"] = ("dcn", towers(many, "--tower-dim", n, *learned))
    rows[f"DMT {all_features}T-DLRM"] = ("dlrm", towers(all_features, "--tower-dim", n // 2))
    rows[f"DMT {middle}T-DCN strided"] = ("dcn", towers(middle, "--tower-dim", n))
    for ratio in (4, 8, 16):
        rows[f"DMT {middle}T-DLRM CR {ratio}"] = ("dlrm", towers(middle, "--tower-dim", n // ratio, *learned))
    for ratio in (2, 16):
        rows[f"DMT {middle}T-DCN CR {ratio}"] = ("dcn", towers(middle, "--tower-dim", all_features * n // middle // ratio, *learned))
    of_four = all_features * n // middle // 4
    for how in ("coherent", "diverse", "strided", "random", "greedy"):
        rows[f"DMT {middle}T-DCN CR 4 {how}"] = ("dcn", towers(middle, "--tower-dim", of_four, "--partition", how))
        if how != "coherent":
            rows[f"DMT {middle}T-DLRM CR 4 {how}"] = ("dlrm", towers(middle, "--tower-dim", n // 4, "--partition", how))
    return rows


def paper_tables(name):
    """Table -> rows, the first of which others are compared with."""
    few, some, middle, many, all_features = (2, 2, 4, 8, 13) if name == "adult" else (2, 4, 8, 16, 26)
    counts = sorted({few, some, middle, many})
    return {
        "3, DLRM": ["DLRM", "SPTT-DLRM"],
        "3, DCN": ["DCN", "SPTT-DCN"],
        "4, DLRM": ["DLRM", *(f"DMT {count}T-DLRM" for count in counts), f"DMT {all_features}T-DLRM"],
        "4, DCN": ["DCN", *(f"DMT {count}T-DCN" for count in counts), "SPTT-DCN"],
        "5, DLRM": ["DLRM", f"DMT {middle}T-DLRM", *(f"DMT {middle}T-DLRM CR {ratio}" for ratio in (4, 8, 16))],
        "5, DCN": ["DCN", f"DMT {middle}T-DCN CR 2", f"DMT {middle}T-DCN CR 4 coherent", f"DMT {middle}T-DCN CR 16"],
        "6, DLRM": [f"DMT {many}T-DLRM strided", f"DMT {many}T-DLRM"],
        "6, DCN": [f"DMT {middle}T-DCN strided", f"DMT {middle}T-DCN"],
        "partitions, DCN, CR 4": [f"DMT {middle}T-DCN CR 4 {how}" for how in ("strided", "coherent", "diverse", "random", "greedy")],
        "partitions, DLRM, CR 4": [f"DMT {middle}T-DLRM CR 4 strided", f"DMT {middle}T-DLRM CR 4",
                                   *(f"DMT {middle}T-DLRM CR 4 {how}" for how in ("diverse", "random", "greedy"))],
    }


def most_wanted(name, row):
    """Rows of the targets come before others."""
    middle = 4 if name == "adult" else 8
    targets = ["DLRM", "DCN", f"DMT {middle}T-DCN CR 2", f"DMT {middle}T-DCN CR 16", f"DMT {middle}T-DCN CR 4 coherent", f"DMT {middle}T-DCN CR 4 strided", f"DMT {middle}T-DLRM", f"DMT {middle}T-DLRM CR 16"]
    late = ["SPTT-DLRM", "SPTT-DCN"]
    return 0 if row in targets else 2 if row in late or row.endswith(("random", "greedy")) else 1


def u_test(a, b):
    """The exact two-sided p-value of the Mann-Whitney U test, ties by mid-ranks: of all ways to choose len(a) of the pooled ranks, the share whose
    sum is as far from its mean as that of `a`, or farther."""
    pooled = sorted(a + b)
    doubled = {x: 2 * pooled.index(x) + 1 + pooled.count(x) for x in pooled}  # twice the mid-rank
    ways = [{} for _ in range(len(a) + 1)]  # chosen so far -> sum -> ways
    ways[0][0] = 1
    for x in pooled:
        for chosen in range(len(a) - 1, -1, -1):
            for total, count in ways[chosen].items():
                to = ways[chosen + 1]
                to[total + doubled[x]] = to.get(total + doubled[x], 0) + count
    mean = len(a) * (len(pooled) + 1)
    off = abs(sum(doubled[x] for x in a) - mean)
    return sum(count for total, count in ways[-1].items() if abs(total - mean) >= off) / sum(ways[-1].values())


def adjusted_rand(a, b):
    """Of two labellings of the same things (Hubert and Arabie, 1985)."""
    def pairs(counts):
        return sum(n * (n - 1) // 2 for n in counts.values())

    def count(labels):
        counts = {}
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
        return pairs(counts)

    both, of_a, of_b, every = count(zip(a, b)), count(a), count(b), len(a) * (len(a) - 1) // 2
    expected = of_a * of_b / every
    most = (of_a + of_b) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def rand_of_blocks(towers):
    """Of towers of 26 features against the planted blocks."""
    of = {feature: tower for tower, features in enumerate(towers) for feature in features}
    return adjusted_rand([of[f] for f in range(26)], [f * 8 // 26 for f in range(26)])


def selftest():
    def naive(a, b):
        def u(x, y):
            return sum((p > q) + (p == q) / 2 for p in x for q in y)

        middle = len(a) * len(b) / 2
        pooled = a + b
        off = abs(u(a, b) - middle)
        splits = list(itertools.combinations(range(len(pooled)), len(a)))
        far = 0
        for chosen in splits:
            x = [pooled[i] for i in chosen]
            y = [pooled[i] for i in range(len(pooled)) if i not in chosen]
            far += abs(u(x, y) - middle) >= off
        return far / len(splits)

    for a, b in (([1, 2, 3], [4, 5, 6]), ([1, 5, 2], [3, 4]), ([1, 1, 2], [1, 2, 3, 3]), ([2, 2], [2, 2]), ([0.5, 3, 3, 7], [1, 3, 9])):
        assert abs(u_test(a, b) - naive(a, b)) < 1e-12, (a, b)
    assert abs(u_test(list(range(9)), list(range(9, 18))) - 2 / 48620) < 1e-15  # of 18 over 9 splits, both ends
    assert adjusted_rand([0, 0, 1, 1], [5, 5, 3, 3]) == 1
    assert adjusted_rand([0, 0, 0, 0], [0, 1, 2, 3]) == 0
    assert abs(adjusted_rand([0, 0, 1, 1], [0, 0, 1, 2]) - 4 / 7) < 1e-12
    assert abs(adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]) + 0.5) < 1e-12
    blocks = [[f for f in range(26) if f * 8 // 26 == block] for block in range(8)]
    assert rand_of_blocks(blocks) == 1
    assert rand_of_blocks([list(range(t, 26, 8)) for t in range(8)]) < 0


class runs:
    """The table of runs: what is done is read from it, what is done next is added to it."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.done = {}
        if path.exists():
            with path.open(newline="") as file:
                for line in csv.DictReader(file):
                    self.done[line["set"], line["row"], int(line["seed"])] = line

    def has(self, key, arguments):
        return key in self.done and self.done[key]["arguments"] == arguments

    def add(self, line):
        with self.lock:
            is_new = not self.path.exists()
            with self.path.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if is_new:
                    writer.writeheader()
                writer.writerow(line)
            self.done[line["set"], line["row"], int(line["seed"])] = line

    def aucs(self, name, row, most_seeds):
        return [float(line["auc"]) for (s, r, seed), line in sorted(self.done.items()) if (s, r) == (name, row) and seed <= most_seeds]


def launch(arguments, words):
    result = subprocess.run([*shlex.split(arguments.launcher), arguments.program, *words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{result.stderr}")
    return json.loads(result.stdout)


def command(arguments, name, model, own, seed):
    everywhere, of_dlrm, of_dcn = SETS[name]
    words = ["--set", name, "--model", model, *everywhere, *(of_dlrm if model == "dlrm" else of_dcn), *own, "--seed", str(seed)]
    text = " ".join(words)
    if name == "adult":
        words += ["--data", str(ROOT / "examples" / "data" / "adult")]
    if model == "dlrm" or "--partition" in own:
        words += ["--affinity", str(arguments.folder / f"{name}_{seed}.json")]
    return words, text


def train(arguments, table):
    """Flat DLRMs first, as learned towers need what they find."""
    def one(name, row, model, own, seed):
        words, text = command(arguments, name, model, own, seed)
        found = launch(arguments, words)
        table.add({"set": name, "row": row, "seed": seed, "arguments": text, "compression": found.get("compression", 1),
                   "features": json.dumps(found.get("features", [])), "best_auc": found.get("best_auc", ""),
                   **{field: found[field] for field in ("auc", "log_loss", "seconds")}})
        print(f"{name}, {row}, seed {seed}: {found['auc']:.5f} in {found['seconds']:.1f} s", file=sys.stderr, flush=True)

    jobs = []
    for name in arguments.sets:
        for row, (model, own) in rows_of(name).items():
            if arguments.rows and row not in arguments.rows:
                continue
            for seed in range(1, arguments.seeds + 1):
                if not table.has((name, row, seed), command(arguments, name, model, own, seed)[1]):
                    jobs.append((most_wanted(name, row), seed, name, row, model, own))
    jobs.sort(key=lambda job: (job[0], job[1]))
    for flat in (True, False):
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            waiting = [pool.submit(one, name, row, model, own, seed) for _, seed, name, row, model, own in jobs if (row == "DLRM") == flat]
            for run in concurrent.futures.as_completed(waiting):
                run.result()


def print_tables(arguments, table):
    for name in arguments.sets:
        best = next((float(line["best_auc"]) for (s, _, _), line in table.done.items() if s == name and line["best_auc"]), None)
        print(f"\n*{name}*" + (f", best possible AUC {best:.4f}" if best else "") + "\n")
        print("| paper's table | row | CR | seeds | AUC | against the first | p |\n|---|---|---|---|---|---|---|")
        for title, rows in paper_tables(name).items():
            first = table.aucs(name, rows[0], arguments.seeds)
            for row in rows:
                aucs = table.aucs(name, row, arguments.seeds)
                if not aucs:
                    continue
                line = next(line for (s, r, _), line in table.done.items() if (s, r) == (name, row))
                deviation = statistics.stdev(aucs) if len(aucs) > 1 else float("nan")
                against = p = ""
                if row != rows[0] and first:
                    against = f"{statistics.median(aucs) - statistics.median(first):+.4f}"
                    p = f"{u_test(aucs, first):.2g}"
                print(f"| {title} | {row} | {float(line['compression']):.3g} | {len(aucs)} | {statistics.median(aucs):.4f} ({deviation:.4f}) "
                      f"| {against} | {p} |")


def print_rand(arguments):
    print("| set | affinity | dims | adjusted Rand: median | of each seed |\n|---|---|---|---|---|")
    for name in arguments.sets:
        if name == "adult":
            continue
        for kind, dims in itertools.product(("abs_of_mean", "mean_of_abs"), (8, 2)):
            found = []
            for seed in range(1, arguments.seeds + 1):
                affinity = arguments.folder / f"{name}_{seed}.json"
                if affinity.exists():
                    made = launch(arguments, ["--set", name, "--towers", "8", "--partition", "coherent", "--kind", kind, "--dims", str(dims),
                                              "--affinity", str(affinity), "--only-partition"])
                    found.append(rand_of_blocks(made["features"]))
            if found:
                print(f"| *{name}* | `{kind}` | {dims} | {statistics.median(found):.2f} | {', '.join(f'{x:.2f}' for x in found)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "bench" / "tower_quality"))
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "tower_quality", help="of the table of runs and of affinities")
    parser.add_argument("--launcher", default="nice -n 19", help="before each command")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--rows", nargs="+", default=[], help="these alone; none: all")
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--rand", action="store_true")
    parser.add_argument("--selftest", action="store_true")
    arguments = parser.parse_args()
    if arguments.selftest:
        return selftest()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.rand:
        return print_rand(arguments)
    table = runs(arguments.folder / "runs.csv")
    if not arguments.only_print:
        train(arguments, table)
    return print_tables(arguments, table)


if __name__ == "__main__":
    sys.exit(main())
