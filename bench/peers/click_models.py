#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains DLRM or DCNv2 in PyTorch on click logs in Criteo's layout: the peer of examples/01_train_ctr.cpp on the same files.

The same model, batches of the same size, rows of all tables in one sparse nn.Embedding (PyTorch's fastest form for one id a feature).
Prints, as train_ctr does, the test AUC of each epoch; with --metrics, a line of JSON every 100 steps: seconds of training so far and the AUC
of the last 65,536 samples, each predicted before it was trained on. Needs the packages of requirements.txt beside this file.
"""

import argparse
import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from torch import nn

DENSE, SPARSE = 13, 26


def read(path):
    """(labels, integers with NaN where empty, category strings as dictionary-encoded columns)."""
    names = ["label"] + [f"I{i + 1}" for i in range(DENSE)] + [f"C{i + 1}" for i in range(SPARSE)]
    types = {n: pa.float32() if n[0] in "lI" else pa.dictionary(pa.int32(), pa.string()) for n in names}
    table = pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(column_names=names),
        parse_options=pa.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pa.csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True),
    ).combine_chunks()
    labels = table["label"].to_numpy()
    dense = np.stack([table[f"I{i + 1}"].to_numpy() for i in range(DENSE)], 1)
    return labels, dense, [table[f"C{i + 1}"].unify_dictionaries().combine_chunks() for i in range(SPARSE)]


def ids_of(column, vocabulary):
    """Numbers of a column's values in a vocabulary; 0: empty, 1: unknown."""
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    known = np.array([vocabulary.get(v, 1) for v in column.dictionary.to_pylist()] + [0], dtype=np.int64)
    codes = column.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    return known[codes]


class Preprocessing:
    """Standardised integers and exact vocabularies of the training data; columns that are empty everywhere are dropped."""

    def __init__(self, dense, columns):
        self.used_dense = [i for i in range(DENSE) if not np.isnan(dense[:, i]).all()]
        self.used = [c for c in range(SPARSE) if columns[c].null_count < len(columns[c])]
        filled = np.nan_to_num(dense[:, self.used_dense])
        self.mean, self.deviation = filled.mean(0, dtype=np.float64), filled.std(0, dtype=np.float64) + 1e-12
        self.vocabularies = []
        for c in self.used:
            column = columns[c].chunk(0) if isinstance(columns[c], pa.ChunkedArray) else columns[c]
            self.vocabularies.append({v: i + 2 for i, v in enumerate(column.dictionary.to_pylist())})
        self.rows = [len(v) + 2 for v in self.vocabularies]
        self.first = np.concatenate([[0], np.cumsum(self.rows)])

    def __call__(self, labels, dense, columns):
        x = (np.nan_to_num(dense[:, self.used_dense]) - self.mean) / self.deviation
        ids = [ids_of(columns[c], v) + f for c, v, f in zip(self.used, self.vocabularies, self.first)]
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(np.stack(ids, 1)), torch.from_numpy(labels.copy())


def layers(widths, last_relu):
    stack = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        stack.append(nn.Linear(a, b))
        if last_relu or i + 2 < len(widths):
            stack.append(nn.ReLU())
    return nn.Sequential(*stack)


class Model(nn.Module):
    def __init__(self, kind, dense, rows, dim, bottom, top, cross_layers, init):
        super().__init__()
        self.rows = nn.Embedding(sum(rows), dim, sparse=True)
        nn.init.uniform_(self.rows.weight, -init, init)
        self.bottom = layers([dense, *bottom, dim], True)
        vectors = 1 + len(rows)
        width = vectors * dim
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(cross_layers)) if kind == "dcn" else None
        self.pairs = torch.tril_indices(vectors, vectors, -1)
        self.top = layers([width if kind == "dcn" else dim + vectors * (vectors - 1) // 2, *top, 1], False)

    def forward(self, dense, ids):
        x = self.bottom(dense)
        vectors = torch.cat([x[:, None], self.rows(ids)], 1)
        if self.cross is None:
            products = torch.bmm(vectors, vectors.transpose(1, 2))
            return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1))[:, 0]
        first = out = vectors.flatten(1)
        for layer in self.cross:
            out = first * layer(out) + out
        return self.top(out)[:, 0]


def auc(scores, labels):
    order = np.argsort(scores, kind="stable")
    s, y = scores[order], labels[order]
    ends = np.flatnonzero(np.append(s[1:] != s[:-1], True))  # tied scores share their mean rank
    ranks = np.repeat((np.append(-1, ends[:-1]) + 1 + ends) / 2 + 1, np.diff(np.append(-1, ends)))
    positives = y.sum()
    return (ranks[y > 0].sum() - positives * (positives + 1) / 2) / (positives * (len(y) - positives))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--train", required=True)
    p.add_argument("--test", required=True)
    p.add_argument("--model", choices=["dlrm", "dcn"], default="dlrm")
    p.add_argument("--embedding-dim", type=int, default=16)
    p.add_argument("--bottom", type=int, nargs="*", default=[64, 32])
    p.add_argument("--top", type=int, nargs="*", default=[128, 64])
    p.add_argument("--cross-layers", type=int, default=3)
    p.add_argument("--embedding-init", type=float, default=0.1)
    p.add_argument("--embedding-optimizer", choices=["adagrad", "sgd"], default="adagrad")
    p.add_argument("--embedding-lr", type=float, default=0.03)
    p.add_argument("--lr", type=float, default=0.003)
    p.add_argument("--batch-size", type=int, default=2048)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--threads", type=int, default=torch.get_num_threads())
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--metrics")
    a = p.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)

    raw = read(a.train)
    preprocess = Preprocessing(raw[1], raw[2])
    dense, ids, labels = preprocess(*raw)
    del raw
    test_dense, test_ids, test_labels = preprocess(*read(a.test))
    model = Model(a.model, dense.shape[1], preprocess.rows, a.embedding_dim, a.bottom, a.top, a.cross_layers, a.embedding_init)
    kind = torch.optim.Adagrad if a.embedding_optimizer == "adagrad" else torch.optim.SGD
    rows = kind(model.rows.parameters(), lr=a.embedding_lr)
    rest = torch.optim.Adam([w for n, w in model.named_parameters() if not n.startswith("rows.")], lr=a.lr)
    loss_of = nn.BCEWithLogitsLoss()
    metrics = open(a.metrics, "w") if a.metrics else None

    seconds, step, recent = 0.0, 0, []
    for epoch in range(a.epochs):
        order = torch.randperm(len(labels))
        begun = time.perf_counter()
        for batch in order.split(a.batch_size):
            y = labels[batch]
            logits = model(dense[batch], ids[batch])
            loss = loss_of(logits, y)
            rows.zero_grad()
            rest.zero_grad()
            loss.backward()
            rows.step()
            rest.step()
            step += 1
            if metrics:
                recent.append((logits.detach().numpy(), y.numpy()))
                if step % 100 == 0:
                    seconds += time.perf_counter() - begun
                    while sum(len(r[0]) for r in recent[1:]) >= 65536:
                        recent.pop(0)
                    window = auc(np.concatenate([r[0] for r in recent]), np.concatenate([r[1] for r in recent]))
                    print(json.dumps({"step": step, "seconds": seconds, "loss": loss.item(), "auc": window}), file=metrics)
                    begun = time.perf_counter()
        seconds += time.perf_counter() - begun
        with torch.no_grad():
            scores = torch.cat([model(d, i) for d, i in zip(test_dense.split(16384), test_ids.split(16384))])
        print(
            f"epoch {epoch + 1}/{a.epochs}: test auc {auc(scores.numpy(), test_labels.numpy()):.4f} "
            f"logloss {loss_of(scores, test_labels).item():.4f}, {(epoch + 1) * len(labels) / seconds:.0f} samples/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
