#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains DLRM and DCN V2 on planted clicks, whose best possible AUC is known, and the same models in PyTorch on the same files.

    build/release/bench/planted_clicks DIR              # writes DIR/train.tsv and DIR/test.tsv, prints the best AUC
    python3 bench/quality/planted.py DIR --best 0.NNNN [--peer-python PYTHON] [--formats fp32 fp16 bf16]
                                    [--gemms eigen blas dnnl dnnl_bf16] [--ranks N] [--codecs fp32 fp16 bf16] [--seeds N]

One table of final test AUCs, of their distance to the best one, and of the seconds of training after which the AUC of the last 65,536
samples, each predicted before it was learned from, first reached 99 % of its final value. With more formats, gemms or codecs, a second table: AUC of
rows in 16 bits, of training by the program train_ctr_GEMM of the build folder's bench/, and of vectors and gradients that travel in 16 bits, minus that
of float rows, Eigen's products and messages in float, seed by seed. With --ranks, ours trains on N threads as ranks, so that codecs have something to
do; "fp16,bf16" names two: of vectors, and of gradients. The AUC of each run of ours goes to the standard error as it ends.
PYTHON is one with the packages of bench/peers/requirements.txt.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINING = ["--batch-size", "2048", "--embedding-lr", "0.03", "--lr", "0.003"]


def run(command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return result.stdout


def seconds_to(share, points):
    """Seconds until the windowed AUC first reached that share of its last value."""
    last = points[-1][1]
    return next(seconds for seconds, auc in points if auc >= share * last)


def ours(a, model, seed, rows="fp32", gemm="eigen", codec="fp32"):
    program = a.train_ctr if gemm == "eigen" else a.train_ctr.resolve().parents[1] / "bench" / f"train_ctr_{gemm}"
    on_ranks = ["--ranks", f"threads:{a.ranks}", "--codec", codec] if a.ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        run([program, "--train", a.folder / "train.tsv", "--test", a.folder / "test.tsv", "--model", model, "--row-format", rows,
             "--seed", seed, "--epochs", a.epochs, "--threads", max(1, a.threads // a.ranks), "--dense", "standard", "--dense-as-category", "off",
             "--embedding-optimizer", "adagrad", "--metrics", metrics, *on_ranks, *TRAINING])
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    auc, rate = [(line["auc"], line["samples_per_second"]) for line in lines if line["event"] == "test"][-1]
    points = [(line["samples"] / rate + line["epoch"] * a.rows / rate, line["auc"]) for line in lines if line["event"] == "train"]
    print(f"{model} seed {seed} rows {rows} gemm {gemm} ranks {a.ranks} codec {codec}: {auc:.6f}", file=sys.stderr, flush=True)
    return auc, seconds_to(0.99, points), rate


def peer(a, model, seed):
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        out = run([a.peer_python, ROOT / "bench" / "peers" / "click_models.py", "--train", a.folder / "train.tsv", "--test",
                   a.folder / "test.tsv", "--model", model, "--seed", seed, "--epochs", a.epochs, "--threads", a.threads, "--metrics",
                   metrics, *TRAINING])
        points = [(line["seconds"], line["auc"]) for line in map(json.loads, metrics.read_text().splitlines())]
    found = re.findall(r"test auc (\d\.\d+) .* (\d+) samples/s", out)
    return float(found[-1][0]), seconds_to(0.99, points), float(found[-1][1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--best", type=float, required=True, help="best possible AUC of the test file")
    p.add_argument("--train-ctr", type=pathlib.Path, default=ROOT / "build" / "release" / "examples" / "train_ctr")
    p.add_argument("--peer-python")
    p.add_argument("--models", nargs="+", default=["dlrm", "dcn"], choices=["dlrm", "dcn"])
    p.add_argument("--formats", nargs="+", default=["fp32"], choices=["fp32", "fp16", "bf16"])
    p.add_argument("--gemms", nargs="+", default=["eigen"], choices=["eigen", "blas", "dnnl", "dnnl_bf16"])
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--codecs", nargs="+", default=["fp32"])
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    if a.codecs != ["fp32"] and a.ranks < 2:
        p.error("--codecs: vectors travel between --ranks, two at least")
    with open(a.folder / "train.tsv", "rb") as file:
        a.rows = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 24), b""))

    choices = [("", {})] + [(rows, {"rows": rows}) for rows in a.formats if rows != "fp32"]
    choices += [(gemm, {"gemm": gemm}) for gemm in a.gemms if gemm != "eigen"]
    choices += [(f"codec {codec}", {"codec": codec}) for codec in a.codecs if codec != "fp32"]
    # Seed by seed, so that what is compared runs side by side.
    seeds = range(1, a.seeds + 1)
    results = {(model, seed, name): ours(a, model, seed, **choice) for model in a.models for seed in seeds for name, choice in choices}

    print(f"best possible AUC {a.best:.4f}, {a.rows} training rows, {a.epochs} epoch(s), medians of {a.seeds} seed(s)"
          + (f", {a.ranks} ranks" if a.ranks > 1 else "") + "\n")
    print("| model | Tessera AUC | below best | s to 99 % | samples/s | PyTorch AUC | below best | s to 99 % | samples/s |")
    print("|---" * 9 + "|")
    for model in a.models:
        cells = []
        for side in ["ours", "peer"]:
            if side == "peer" and not a.peer_python:
                cells += ["-"] * 4
                continue
            of_seeds = [results[model, s, ""] if side == "ours" else peer(a, model, s) for s in seeds]
            auc, seconds, rate = (statistics.median(column) for column in zip(*of_seeds))
            cells += [f"{auc:.4f}", f"{a.best - auc:.4f}", f"{seconds:.1f}", f"{rate:.0f}"]
        print(f"| {model} | " + " | ".join(cells) + " |", flush=True)
    if len(choices) == 1:
        return
    print("\n| model | with | AUC minus that without, seed by seed | median | smallest | largest |")
    print("|---" * 6 + "|")
    for model in a.models:
        for name, _ in choices[1:]:
            difference = [results[model, s, name][0] - results[model, s, ""][0] for s in seeds]
            print(f"| {model} | {name} | {', '.join(f'{d:+.5f}' for d in difference)} | {statistics.median(difference):+.5f} | "
                  f"{min(difference):+.5f} | {max(difference):+.5f} |", flush=True)


if __name__ == "__main__":
    main()
