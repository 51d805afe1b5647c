#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains train_ctr's models on the adult data over seeds and prints the test AUC beside that of a PyTorch implementation.

    python3 bench/quality/adult.py --train-ctr build/release/examples/train_ctr

A cell: median over the seeds of the test AUC after one epoch, or of the best epoch of ten; [largest - smallest]; (difference to the
reference). "stalled": seeds whose best epoch of ten stays below 0.90. Bottom 13-64-32-dim, top 128-64-1, dim 16, batch 128, three full-rank cross layers.
"""

import argparse
import concurrent.futures
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

PREPROCESSING = {
    "log dense": ["--dense", "log", "--dense-as-category", "off"],
    "standardised dense": ["--dense", "standard", "--dense-as-category", "off"],
    "integers also as categories": ["--dense", "log", "--dense-as-category", "on"],
}

# Optimizer and rate of the embeddings, of the dense parameters, and the bound of initial rows.
RATES = {
    ("dlrm", 1): ("adagrad", "0.03", "adam", "0.003", "0.1"),
    ("dlrm", 10): ("rowwise-adagrad", "0.01", "adam", "0.001", "0.1"),
    ("dcn", 1): ("rowwise-adagrad", "0.003", "adagrad", "0.01", "0.01"),
    ("dcn", 10): ("adagrad", "0.003", "adagrad", "0.01", "0.1"),
}
RATES["deepfm", 1] = RATES["dlrm", 1]
RATES["deepfm", 10] = RATES["dlrm", 10]

# Medians of three seeds of the same models, rates and data in PyTorch, and by how much ours may be below.
REFERENCE = {
    ("dlrm", 1): (0.8968, 0.9031, 0.9264),
    ("dlrm", 10): (0.9099, 0.9119, 0.9294),
    ("dcn", 1): (0.8958, 0.9037, 0.9276),
    ("dcn", 10): (0.9090, 0.9116, 0.9296),
}
TOLERANCE = (0.003, 0.001, 0.0005)
STALLED = 0.90


def test_auc(arguments, model, preprocessing, epochs, seed):
    """The test AUC of the best epoch."""
    embedding, embedding_rate, dense, rate, init = RATES[model, epochs]
    data = ROOT / "examples" / "data" / "adult"
    command = [arguments.train_ctr, "--train", data / "train.tsv", "--test", data / "test.tsv", "--threads", "1", "--model", model,
               "--epochs", epochs, "--seed", seed, "--embedding-dim", arguments.dim, "--embedding-optimizer", embedding,
               "--embedding-lr", embedding_rate, "--optimizer", dense, "--lr", rate, "--embedding-init", init, *PREPROCESSING[preprocessing]]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    found = [float(auc) for auc in re.findall(r"test auc (\d\.\d+)", result.stdout)]
    if len(found) != epochs:
        sys.exit("no test AUC of each epoch in:\n" + result.stdout)
    return max(found)


def cell(aucs, epochs, reference, tolerance):
    median = statistics.median(aucs)
    text = f"{median:.4f} [{max(aucs) - min(aucs):.4f}]"
    stalled = sum(auc < STALLED for auc in aucs) if epochs > 1 else 0
    if stalled:
        text += f", {stalled} stalled"
    if reference is not None:
        text += f" ({median - reference:+.4f})"
        if median < reference - tolerance:
            text = "**below** " + text
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-ctr", default=str(ROOT / "build" / "release" / "examples" / "train_ctr"))
    parser.add_argument("--models", nargs="+", default=["dlrm", "dcn"], choices=["dlrm", "dcn", "deepfm"])
    parser.add_argument("--epochs", nargs="+", type=int, default=[1, 10], choices=[1, 10])
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    arguments = parser.parse_args()
    settings = [(model, epochs) for model in arguments.models for epochs in arguments.epochs]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = {(model, epochs, preprocessing): [pool.submit(test_auc, arguments, model, preprocessing, epochs, seed) for seed in seeds]
                for preprocessing in PREPROCESSING for model, epochs in settings}
        print("| dim %d, seeds %d to %d | " % (arguments.dim, seeds[0], seeds[-1]) +
              " | ".join(f"{model}, " + ("1 epoch" if epochs == 1 else f"best of {epochs}") for model, epochs in settings) + " |")
        print("|---" * (1 + len(settings)) + "|")
        for row, preprocessing in enumerate(PREPROCESSING):
            cells = []
            for model, epochs in settings:
                aucs = [run.result() for run in runs[model, epochs, preprocessing]]
                reference = REFERENCE[model, epochs][row] if (model, epochs) in REFERENCE and arguments.dim == 16 else None
                cells.append(cell(aucs, epochs, reference, TOLERANCE[row]))
                failed |= "below" in cells[-1] or "stalled" in cells[-1]
            print(f"| {preprocessing} | " + " | ".join(cells) + " |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
