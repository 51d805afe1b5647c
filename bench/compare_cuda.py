# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""What `compare.py --device cuda` does: runs the CUDA programs and PyTorch on the same GPU alternately, and says of each work what part of its
ceiling it reaches and how many times faster it is than the peer, each beside what is aimed at. What fails is told in the table, and the rest runs.

Needs the programs that a build with CUDA makes, and for the peer a Python with PyTorch for CUDA; without one there is no peer.
"""

import json
import re
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import NamedTuple

from launches import ROOT, commit, faster_quarter, mark_disturbed, milliseconds

LONGEST = 240  # seconds of a launch
NO_GPU = 77  # what programs return then


class Work(NamedTuple):
    name: str
    program: str  # build/release/bench/<program>
    ceiling: str  # what it is a part of
    fraction: float = 0  # of it that is aimed at; 0: not stated
    beside: tuple = ()  # works of peers/cuda.py; the fastest counts
    ratio: float = 0  # the least that is aimed at; 0: not stated


def works():
    lookup, backward, cache = (f"embed_{name}_cuda_bench" for name in ("pooled_lookup", "pooled_lookup_backward", "row_cache"))
    copy, floor, bus, sectors, sort = "copy", "copy + CUB's sort", "bus", "random sectors", "CUB's sort"
    jagged, bucket, unique = "tensor_jagged_cuda_bench", "embed_bucket_table_cuda_bench", "core_unique_cuda_bench"

    def step(optimizer, shape, peers):
        return Work(f"step_{optimizer}_{shape}", backward, floor, 0, tuple(f"step_{peer}_{shape}" for peer in peers), 5)

    return [
        *(
            Work(f"lookup_forward_{shape}", lookup, copy, 0.85 if shape != "zipf" else 0, (f"lookup_forward_{shape}",), 1.2)
            for shape in ("d128", "d128_bf16", "d64", "d16", "zipf")
        ),
        *(Work(f"backward_rowwise_adagrad_{shape}", backward, floor, 0.7) for shape in ("d128", "zipf")),
        *(step("rowwise_adagrad", shape, ("sgd", "adagrad")) for shape in ("d128", "zipf")),
        *(step(optimizer, shape, (optimizer,)) for optimizer in ("sgd", "adagrad") for shape in ("d128", "zipf")),
        *(Work(name, jagged, copy, 0.7) for name in ("permute", "select_rows", "index_select", "to_padded", "from_padded")),
        *(Work(name, unique, sort, 0.7, (name,)) for name in ("unique", "unique_repeated")),
        Work("cache_hits", cache, "uncached lookup", 0.85),
        Work("cache_misses", cache, bus, 0.8),
        Work("cache_fills", cache, bus, 0.8),
        *(Work(name, bucket, sectors, 0.5) for name in ("bucket_locate", "bucket_find", "bucket_locate_large")),
    ]


def launch(command):
    """(standard output, why it failed or "")"""
    command = [str(part) for part in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return "", f"{command[0]}: took longer than {LONGEST} s"
    except OSError as failure:
        return "", str(failure)
    sys.stderr.write(done.stderr[-2000:])
    if done.returncode == NO_GPU:
        return "", f"{command[0]}: {done.stderr.strip() or 'there is no GPU'}"
    if done.returncode == 0:
        return done.stdout, ""
    return done.stdout, f"{command[0]} returned {done.returncode}: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]}"


def launch_ours(path, names, smoke):
    """({work: record or text of a failure}, context)"""
    pattern = f"^({'|'.join(map(re.escape, names))})$"
    smoke = ["--smoke"] if smoke else []
    out, problem = launch([path, f"--benchmark_filter={pattern}", "--benchmark_format=json", "--benchmark_min_time=0.1", *smoke])
    try:
        report = json.loads(out)
    except ValueError:
        return {name: problem or f"{path} printed no JSON" for name in names}, {}
    records = {name: problem or f"{path} has no such benchmark" for name in names}
    for run in report["benchmarks"]:
        failed = run.get("error_occurred")
        records[run["run_name"]] = run["error_message"] if failed else dict(run, seconds=run["real_time"] * 1e-3)
    return records, report["context"]


def launch_peer(python, names, smoke):
    smoke = ["--smoke"] if smoke else []
    out, problem = launch([python, ROOT / "bench/peers/cuda.py", "--works", ",".join(names), *smoke])
    try:
        records = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return {name: problem or "cuda.py printed no JSON" for name in names}
    return {record["work"]: record.get("error") or record for record in records}


class Launches:
    """What all launches found of each work of a side."""

    def __init__(self):
        self.records, self.failures = defaultdict(list), {}

    def add(self, found):
        for name, record in found.items():
            if isinstance(record, str):
                self.failures[name] = record
            else:
                self.records[name].append(record)

    def of(self, name):
        """Records, those of a busy GPU marked; none where it failed always."""
        mark_disturbed(self.records[name])
        return self.records[name]


def result_of(work, ours, peer):
    result = dict(work=work.name, ceiling=work.ceiling, ceiling_target=work.fraction or None, ratio_target=work.ratio or None)
    records = ours.of(work.name)
    if not records:
        return dict(result, failure=ours.failures.get(work.name, "not run"))
    quiet = [record for record in records if not record["disturbed"]]
    median = lambda key: statistics.median(record[key] for record in quiet)
    result.update(
        seconds=faster_quarter(records),
        ceiling_fraction=median("ceiling_fraction"),
        bytes_per_second=median("bytes_per_second"),
        machine=median("machine"),
        launches=records,
    )
    beside = {name: peer.of(name) for name in work.beside}
    times = {name: faster_quarter(some) for name, some in beside.items() if some}
    if times:
        best = min(times, key=times.get)
        result.update(peer=best, peer_seconds=times[best], ratio=times[best] / result["seconds"], peer_launches=beside)
    elif work.beside:
        result.update(peer_failure="; ".join(peer.failures.get(name, "not run") for name in work.beside))
    return result


def verdict(result):
    """Empty where all that is aimed at is reached."""
    pairs = ((result.get("ceiling_fraction"), result["ceiling_target"]), (result.get("ratio"), result["ratio_target"]))
    if any(found is not None and target is not None and found < target for found, target in pairs):
        return "missed"
    return "no peer" if "peer_failure" in result and result["ratio_target"] else ""


def markdown(results, lines):
    lines = [
        *lines,
        "",
        "| work | ms | GB/s | of the ceiling | aimed at | which ceiling | peer | peer, ms | times faster | aimed at | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    text = lambda value: "" if value is None else f"{value:.2f}"
    for r in results:
        if "failure" in r:
            lines.append(f"| `{r['work']}` | failed | | | {text(r['ceiling_target'])} | {r['ceiling']} | | | | {text(r['ratio_target'])} | |")
            continue
        peer = f"`{r['peer']}` | {milliseconds(r['peer_seconds'])} | {r['ratio']:.2f}" if "peer" in r else " | | "
        lines.append(
            f"| `{r['work']}` | {milliseconds(r['seconds'])} | {r['bytes_per_second'] * 1e-9:.0f} | {text(r['ceiling_fraction'])} "
            f"| {text(r['ceiling_target'])} | {r['ceiling']} | {peer} | {text(r['ratio_target'])} | {verdict(r)} |"
        )
    failures = [(r["work"], r.get("failure") or r.get("peer_failure")) for r in results if r.get("failure") or r.get("peer_failure")]
    if failures:
        lines += ["", "Failed:", "", *(f"- `{work}`: {why}" for work, why in failures)]
    lines += ["", "All launches, milliseconds (in brackets: on a busy GPU, not counted), then other numbers of the last one:", ""]
    common = {"name", "run_name", "aggregate_name", "time_unit", "real_time", "seconds", "bytes_per_second", "ceiling_fraction", "disturbed"}
    for r in results:
        if "failure" in r:
            continue
        for side, records in {"ours": r["launches"], **r.get("peer_launches", {})}.items():
            times = ", ".join(f"({milliseconds(x['seconds'])})" if x["disturbed"] else milliseconds(x["seconds"]) for x in records)
            if side == "ours":
                more = ", ".join(f"{key} {value:.4g}" for key, value in records[-1].items() if key not in common and value is not None)
            else:
                more = ", ".join(f"{name} {milliseconds(s)}" for x in records[-1:] for name, s in x["layouts"].items() if name)
            lines.append(f"- `{r['work']}` {side}: {times}{'; ' if more else ''}{more}")
    return "\n".join(lines) + "\n"


def machine_lines(context, peer, build):
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
    out, problem = launch(["nvidia-smi", f"--query-gpu={query}", "--format=csv"])
    versions = {record["torch"] for records in peer.records.values() for record in records}
    lines = [
        f"{context.get('gpu', 'unknown GPU')}, {context.get('memory_bytes', 0) / 2**30:.0f} GiB, {context.get('processors', 0):.0f} multiprocessors, "
        f"last cache {context.get('cache_bytes', 0) / 2**20:.0f} MiB; processors at {context.get('mhz_as_found') or 0:.0f} MHz as found, "
        f"{context.get('most_mhz', 0):.0f} at most, memory at {context.get('memory_mhz', 0):.0f}; CUDA {context.get('cuda_runtime', 0):.0f}, driver's "
        f"{context.get('cuda_of_driver', 0):.0f}; PyTorch {', '.join(sorted(versions)) or 'not there'}; commit {commit()}, {build.name} build.",
        "",
        f"`{shlex.join(sys.argv)}`",
        "",
        *(f"    {line}" for line in (out.strip().splitlines() or [problem])),
    ]
    if context.get("smoke"):
        lines += ["", "A run on small shapes, to see that all runs: of no worth as a measurement."]
    return lines


def run(arguments, chosen_by):
    """Runs the chosen works; returns what main does."""
    chosen = [work for work in works() if chosen_by(work.name)]
    if not chosen:
        sys.exit(f"compare: there is no such work on a GPU; there are {', '.join(work.name for work in works())}")
    groups = defaultdict(list)
    for work in chosen:
        groups[work.program].append(work)
    for program in groups:
        if not (arguments.build / "bench" / program).exists():
            sys.exit(f"compare: there is no {arguments.build / 'bench' / program}; a build with CUDA makes it: target tessera_cuda_benchmarks")
    ours, peer, context = Launches(), Launches(), {}
    for number in range(arguments.launches):
        for program, group in groups.items():
            print(f"compare: launch {number + 1}: {program}", file=sys.stderr, flush=True)
            found, described = launch_ours(arguments.build / "bench" / program, [work.name for work in group], arguments.smoke)
            if not described and all("there is no GPU" in failure for failure in found.values()):
                print(next(iter(found.values())), file=sys.stderr)
                return NO_GPU
            ours.add(found)
            context = described or context
            beside = list(dict.fromkeys(name for work in group for name in work.beside))
            if beside:
                peer.add(launch_peer(arguments.python, beside, arguments.smoke))
        results = [result_of(work, ours, peer) for work in chosen]
        table = markdown(results, machine_lines(context, peer, arguments.build))
        # After each round, so that who runs out of time has something.
        if arguments.json:
            arguments.json.write_text(json.dumps(dict(context=context, results=results), indent=1) + "\n")
        if arguments.markdown:
            arguments.markdown.write_text(table)
    if not arguments.markdown:
        print(table)
    met = sum(1 for r in results if "failure" not in r and not verdict(r))
    failed = sum(1 for r in results if "failure" in r)
    print(f"compare: {met} of {len(results)} works as aimed at, {failed} failed", file=sys.stderr)
    return 1 if failed else 0
