#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Runs each work beside the peers that a user would pick instead, and says how many times faster it is.

Both sides are launched alternately, at least five times each: a launch is a process that prepares its inputs, measures the machine by a copy (or by
products of matrices) and times the work. A launch was disturbed, and is repeated, where the machine ran under 0.8 of the best one's on that side
("slow"), reached a tenth less before the work than after it or the other way ("moved"), or worked for others by a tenth of one core meanwhile
("neighbour"). Of what remains, the mean of the faster quarter is a side's time; a result of launches of which all were disturbed says so. Each
peer runs with its memory kept between calls, with huge pages allowed, and with the number of threads that two first launches found fastest.

Needs the programs of `sh cmake/bootstrap.sh bench` and the packages of peers/requirements.txt; `sh cmake/bootstrap.sh compare` brings both.
`--device cuda` runs the works on a GPU instead, as compare_cuda.py says.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import compare_cuda
from launches import ROOT, commit, faster_quarter, mark_disturbed, milliseconds, quiet_seconds


class Work(NamedTuple):
    name: str
    program: str  # build/release/bench/<program>
    script: str  # peers/<script>
    peers: tuple
    ratio: float  # the least that is aimed at, against the best peer
    fraction: float = 0  # of the machine's ceiling that is aimed at; 0: not stated
    ours: str = ""  # the benchmark, where its name is another
    beside: str = ""  # the peers' work, where its name is another

    def our_name(self):
        return self.ours or self.name

    def peer_name(self):
        return self.beside or self.name


def works():
    lookup, jagged = ("embed_pooled_lookup_bench", "lookups.py"), ("tensor_jagged_bench", "jagged.py")
    both = ("torch", "fbgemm")
    return [
        Work("lookup_forward_d128", *lookup, both, 1.0, 0.95),
        Work("lookup_forward_d16", *lookup, both, 1.4, 0.95),
        Work("lookup_forward_d64", *lookup, both, 1.0, 0.95),
        *(Work(f"step_sgd_{shape}", *lookup, both, 3, 0.75) for shape in ("d128", "d16", "d64", "zipf")),
        *(Work(f"step_rowwise_adagrad_{shape}", *lookup, ("fbgemm",), 20) for shape in ("d128", "d16", "d64", "zipf")),
        # A sum of squares an element, which PyTorch has, beside the one a row of FBGEMM's.
        *(Work(f"step_adagrad_{shape}", *lookup, ("torch",), 3) for shape in ("d128", "d16", "d64", "zipf")),
        Work("permute", *jagged, ("fbgemm",), 1.7, 0.7),
        Work("index_select", *jagged, ("fbgemm",), 4),
        # Not the operator made for it, but what a user of PyTorch may write.
        Work("index_select_by_positions", *jagged, ("torch_indices",), 1, ours="index_select", beside="index_select"),
        Work("to_padded", *jagged, ("fbgemm",), 1.7),
        Work("from_padded", *jagged, ("fbgemm",), 3),
        Work("bucketize", *jagged, ("fbgemm",), 4),
        Work("segment_sum", *jagged, ("torch",), 4),
        Work("segment_sum_by_embedding_bag", *jagged, ("torch_bag",), 1, ours="segment_sum", beside="segment_sum"),
        Work("unique", "core_unique_bench", "jagged.py", ("torch",), 3),
        Work("unique_repeated", "core_unique_bench", "jagged.py", ("torch",), 6),
        *(
            Work(f"{step}{products}", program, "training.py", ("eager", "compiled", "fbgemm", "fbgemm_compiled"), ratio, beside=step)
            for step, program, ratio in (
                ("dlrm_step_b128", "train_dlrm_bench", 1.6),
                ("dlrm_step_b2048", "train_dlrm_bench", 1.8),
                ("dcn_step", "train_dcn_bench", 1.5),
            )
            for products in ("", "_eigen")
        ),
        *(
            Work(f"jagged_attention_step_{lengths}", "nn_jagged_attention_bench", "jagged_attention.py", ("torch", "torch_unmasked"), ratio)
            for lengths, ratio in (("m50", 3.3), ("m200", 2.4))
        ),
        Work("deduplicate", "tensor_deduplicate_bench", "deduplicate.py", ("torch", "pandas", "numpy"), 10, 0.3),
        Work("read_tsv", "data_read_tsv_bench", "reading.py", ("pyarrow", "polars"), 3),
        Work("auc", "nn_auc_bench", "auc.py", ("sklearn",), 5),
    ]


class Failed(Exception):
    """A program of a group of works, and what it said."""


def launch(command, environment=None):
    done = subprocess.run([str(part) for part in command], env={**os.environ, **(environment or {})}, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(str(part) for part in command)} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def launch_ours(build, program, names):
    """{work: record} of one launch: the medians of nine repetitions, as a peer's is that of its iterations."""
    pattern = f"^({'|'.join(map(re.escape, names))})(/.*)?$"
    path = build / "bench" / program
    if not path.exists():
        raise Failed(f"there is no {path}; sh cmake/bootstrap.sh bench builds it")
    repeat = ["--benchmark_repetitions=9", "--benchmark_min_time=0.1"]
    report = json.loads(launch([path, f"--benchmark_filter={pattern}", "--benchmark_format=json", *repeat]))
    unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
    records = {}
    for run in report["benchmarks"]:
        if run.get("error_occurred"):
            raise Failed(f"{run['name']}: {run['error_message']}")
        if run.get("aggregate_name") == "median":
            seconds = run["real_time"] * unit[run["time_unit"]]
            told = dict(machine=run["machine"], moved=run.get("moved"), others=run.get("others"), fraction=run.get("ceiling_fraction"))
            records[run["run_name"].split("/")[0]] = dict(seconds=seconds, **told)
    return records


def launch_peer(build, python, script, peer, names, threads):
    environment = {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 36),
        "THP_MEM_ALLOC_ENABLE": "1",
        "OMP_NUM_THREADS": str(threads),
        "TESSERA_BUILD": str(build.resolve()),
    }
    out = launch([python, ROOT / "bench/peers" / script, "--peer", peer, "--works", ",".join(names), "--threads", threads], environment)
    return {record["work"]: record for record in json.loads(out.splitlines()[-1])}


def fastest_threads(build, python, script, peer, names):
    """{number of threads: [works that it suits best]}, by the faster of two launches with one thread and two with all."""
    launches = [(threads, launch_peer(build, python, script, peer, names, threads)) for threads in sorted({1, os.cpu_count()}) * 2]
    suited = defaultdict(list)
    for name in names:
        suited[min(launches, key=lambda launch: launch[1][name]["seconds"])[0]].append(name)
    return suited


class Side:
    """One side's launches of a group of works: ours, or one peer's."""

    def __init__(self, names, run):
        self.names, self.run, self.records = names, run, defaultdict(list)

    def launch(self, names):
        for name, record in self.run(names).items():
            self.records[name].append(record)
        for name in names:
            mark_disturbed(self.records[name])

    def repeat_disturbed(self, launches, most_repeats=3):
        """Until each work has its number of launches on a quiet machine, or the machine will not be quiet."""
        for _ in range(most_repeats):
            short = [name for name in self.names if sum(not r["disturbed"] for r in self.records[name]) < launches]
            if short:
                self.launch(short)


def compare(group, arguments):
    """Runs the works of one program beside their peers; a result for each."""
    program, script = group[0].program, group[0].script
    names = list(dict.fromkeys(work.our_name() for work in group))
    sides = {"ours": Side(names, lambda some: launch_ours(arguments.build, program, some))}
    for peer in dict.fromkeys(peer for work in group for peer in work.peers):
        wanted = list(dict.fromkeys(work.peer_name() for work in group if peer in work.peers))
        suited = fastest_threads(arguments.build, arguments.python, script, peer, wanted)

        def run(some, peer=peer, suited=suited):
            records = {}
            for threads, best in suited.items():
                chosen = [name for name in best if name in some]
                if chosen:
                    records.update(launch_peer(arguments.build, arguments.python, script, peer, chosen, threads))
            return records

        sides[peer] = Side(wanted, run)
    for _ in range(arguments.launches):
        for side in sides.values():
            side.launch(side.names)
    for side in sides.values():
        side.repeat_disturbed(arguments.launches)
    return [result_of(work, sides) for work in group]


def result_of(work, sides):
    ours = sides["ours"].records[work.our_name()]
    seconds = faster_quarter(ours)
    beside = {peer: sides[peer].records[work.peer_name()] for peer in work.peers}
    peers = {peer: faster_quarter(records) for peer, records in beside.items()}
    best = min(peers, key=peers.get)
    pairs = sorted(p / o for p in quiet_seconds(beside[best]) for o in quiet_seconds(ours))
    fractions = sorted(r["fraction"] for r in ours if r["fraction"] is not None and not r["disturbed"])
    return dict(
        work=work.name,
        peer=best,
        ours_seconds=seconds,
        peer_seconds=peers[best],
        ratio=peers[best] / seconds,
        ratio_low=pairs[len(pairs) // 10],
        ratio_high=pairs[-1 - len(pairs) // 10],
        ratio_target=work.ratio,
        disturbed=[side for side, records in (("ours", ours), (best, beside[best])) if all(r["disturbed"] for r in records)],
        ceiling_fraction=statistics.median(fractions) if fractions else None,
        ceiling_target=work.fraction or None,
        all_peers=peers,
        launches={
            name: [{k: r.get(k) for k in ("seconds", "machine", "moved", "others", "disturbed", "threads")} for r in records]
            for name, records in {"ours": ours, **beside}.items()
        },
    )


def markdown(results, machine):
    lines = [
        machine,
        "",
        "| work | best peer | peer, ms | ours, ms | times faster [spread] | aimed at | of the ceiling | aimed at |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        fraction = f"{r['ceiling_fraction']:.2f}" if r["ceiling_fraction"] is not None else ""
        aimed = f"{r['ceiling_target']:.2f}" if r["ceiling_target"] else ""
        lines.append(
            f"| `{r['work']}` | {r['peer']} | {milliseconds(r['peer_seconds'])} | {milliseconds(r['ours_seconds'])} "
            f"| {r['ratio']:.2f} [{r['ratio_low']:.2f} – {r['ratio_high']:.2f}]{', disturbed' if r['disturbed'] else ''} "
            f"| {r['ratio_target']:g} | {fraction} | {aimed} |"
        )
    lines += ["", "All launches, milliseconds (in brackets: on a disturbed machine, and by what; not counted where others are):", ""]
    for r in results:
        for side, launches in r["launches"].items():
            told = lambda x: f"({milliseconds(x['seconds'])} {x['disturbed']})" if x["disturbed"] else milliseconds(x["seconds"])
            times = ", ".join(told(x) for x in launches)
            threads = launches[0]["threads"]
            lines.append(f"- `{r['work']}` {side}{f', threads {threads}' if threads else ''}: {times}")
    return "\n".join(lines) + "\n"


def picture(results):
    """An SVG bar for each work: how many times faster, on a logarithmic scale; the mark is what was aimed at."""
    from math import log2

    left, width, row = 210, 460, 22
    least, most = -1, max(2, *(log2(r["ratio"]) for r in results), *(log2(r["ratio_target"]) for r in results)) + 0.5
    x = lambda ratio: left + width * (min(max(log2(ratio), least), most) - least) / (most - least)
    height = row * len(results) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 130} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><line x1="{x(1):.1f}" y1="8" x2="{x(1):.1f}" y2="{height - 26}" stroke="#888"/>',
        f'<text x="{x(1):.1f}" y="{height - 10}" text-anchor="middle" fill="#555">as fast as the best peer</text>',
    ]
    for i, r in enumerate(results):
        y = 12 + row * i
        start, end = sorted((x(1), x(r["ratio"])))
        colour = "#2a7f62" if r["ratio"] >= r["ratio_target"] else "#c0792a"
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{r["work"]}</text>')
        parts.append(f'<rect x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="{row - 6}" fill="{colour}"/>')
        mark = x(r["ratio_target"])
        parts.append(f'<line x1="{mark:.1f}" y1="{y - 2}" x2="{mark:.1f}" y2="{y + row - 4}" stroke="black" stroke-dasharray="3 2"/>')
        parts.append(f'<text x="{max(end, mark) + 6:.1f}" y="{y + 12}">{r["ratio"]:.2g}× {r["peer"]}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def machine_line(build):
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown processor")
    cache = subprocess.run(["getconf", "LEVEL3_CACHE_SIZE"], capture_output=True, text=True).stdout.strip()
    cache = int(cache) >> 20 if cache.isdigit() else "unknown"
    return f"{model}, {os.cpu_count()} virtual cores, last cache {cache} MiB; commit {commit()}, {build.name} build."


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", action="append", help="works to run (names, or their beginnings); else all")
    parser.add_argument("--device", choices=("host", "cuda"), default="host", help="what runs the works")
    parser.add_argument("--launches", type=int, help="of each side: 5, or 3 on a GPU, unless given")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--markdown", type=Path, help="write the table there, not to the standard output")
    parser.add_argument("--svg", type=Path, help="write the bar chart there")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--python", default=sys.executable, help="one that has the peers")
    parser.add_argument("--smoke", action="store_true", help="cuda: small shapes, to see that all runs")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    if arguments.launches is None:
        arguments.launches = 3 if on_gpu else 5
    if arguments.launches < 1 or (arguments.smoke and not on_gpu):
        parser.error("a side has at least one launch, and --smoke is for --device cuda")
    wanted = [name for some in arguments.only or [] for name in some.split(",")]
    chosen_by = lambda name: not wanted or any(name.startswith(beginning) for beginning in wanted)
    if on_gpu:
        sys.exit(compare_cuda.run(arguments, chosen_by))
    chosen = [work for work in works() if chosen_by(work.name)]
    if not chosen:
        sys.exit(f"compare: no work begins with {', '.join(wanted)}; there are {', '.join(work.name for work in works())}")
    groups = defaultdict(list)
    for work in chosen:
        groups[work.program, work.script].append(work)
    results, failures = [], []
    for group in groups.values():
        names = ", ".join(work.name for work in group)
        print(f"compare: {names}", file=sys.stderr)
        try:
            results += compare(group, arguments)
        except Failed as failure:
            failures.append(names)
            print(f"compare: {failure}", file=sys.stderr)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    table = markdown(results, machine_line(arguments.build))
    if arguments.markdown:
        arguments.markdown.write_text(table)
    else:
        print(table)
    if arguments.svg:
        arguments.svg.write_text(picture(results))
    disturbed = [f"{r['work']} ({', '.join(r['disturbed'])})" for r in results if r["disturbed"]]
    if disturbed:
        print(f"compare: every launch was disturbed, so that the figure is of no worth: {'; '.join(disturbed)}", file=sys.stderr)
    if failures:
        sys.exit(f"compare: failed: {'; '.join(failures)}")


if __name__ == "__main__":
    main()
