# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Histories that repeat within sessions, each looked up once: by Tessera's deduplicated batches, and by three lines of PyTorch or NumPy.

A step builds what the lookup takes, looks up, pools by sum, and updates rows by SGD. All ways are checked to give the same vectors and the
same rows, then timed by turns; the fastest round of each counts.
"""

import argparse
import sys
import time

try:
    import numpy as np
    import torch
except ModuleNotFoundError as missing:
    print(f"SKIPPED: {missing.name} is not installed for this Python")
    sys.exit(77)

from tessera_embedding import TesseraEmbeddingBags, deduplicate

RATE = 0.01


def histories(options, seed):
    """Lists of ids (samples, features, longest) and their lengths (samples, features); all lists of a sample change together."""
    draw = np.random.default_rng(seed)
    starts = draw.random(options.batch) < 1 / options.session
    changes = starts | (draw.random(options.batch) >= options.stays)
    changes[0] = True
    made = np.cumsum(changes) - 1
    shape = (made[-1] + 1, options.features)
    lengths = draw.integers(options.length // 2, options.length * 3 // 2 + 1, shape)
    lists = draw.integers(0, options.rows, (*shape, lengths.max()))
    return torch.from_numpy(lists[made]), torch.from_numpy(lengths[made])


class Batch:
    """The same lists as each way wants them: bags for Tessera and nn.EmbeddingBag, padded rows for what makes rows distinct."""

    def __init__(self, options, seed):
        lists, lengths = histories(options, seed)
        there = torch.arange(lists.shape[2]) < lengths[..., None]
        self.ids = lists.transpose(0, 1)[there.transpose(0, 1)]
        self.offsets = torch.nn.functional.pad(lengths.t().reshape(-1).cumsum(0), (1, 0))
        self.ends = self.offsets[:: options.batch].tolist()
        self.padded = torch.where(there, lists, options.rows).flatten(1)  # row `rows` of a table is the padding's


class TorchTables:
    """nn.EmbeddingBag a feature, with a row for padding, and torch.optim.SGD."""

    def __init__(self, options, weights):
        self.features = options.features
        self.bags = []
        for weight in weights:
            weight = torch.cat([weight, torch.zeros(1, options.dim)])
            self.bags.append(torch.nn.EmbeddingBag.from_pretrained(weight, False, mode="sum", sparse=True, padding_idx=options.rows))
        self.optimizer = torch.optim.SGD([bag.weight for bag in self.bags], RATE)

    def whole(self, batch):
        samples = (len(batch.offsets) - 1) // self.features
        parts = zip(self.bags, batch.ends, batch.ends[1:], batch.offsets[:-1].split(samples))
        return torch.cat([bag(batch.ids[first:last], offsets - first) for bag, first, last, offsets in parts], 1)

    def by_unique(self, batch):
        distinct, inverse = torch.unique(batch.padded, dim=0, return_inverse=True)
        pooled = torch.cat([bag(ids) for bag, ids in zip(self.bags, distinct.chunk(self.features, 1))], 1)
        return pooled.index_select(0, inverse)

    def by_hash(self, batch):
        """Rows whose hashes are the same are taken for the same."""
        hashes = np.einsum("ij,j->i", batch.padded.numpy(), HASH[: batch.padded.shape[1]])
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        distinct = batch.padded[torch.from_numpy(first)]
        pooled = torch.cat([bag(ids) for bag, ids in zip(self.bags, distinct.chunk(self.features, 1))], 1)
        return pooled.index_select(0, torch.from_numpy(inverse))

    def step(self, look_up, batch, gradient):
        self.optimizer.zero_grad()
        pooled = look_up(batch)
        pooled.backward(gradient)
        self.optimizer.step()
        return pooled.detach()

    def weight(self, k):
        return self.bags[k].weight.detach()[:-1]


HASH = np.random.default_rng(1).integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max, 1 << 20)


class TesseraTables:
    def __init__(self, options, weights):
        self.features = options.features
        self.embedding = TesseraEmbeddingBags([(options.rows, options.dim)] * options.features, "sgd", RATE, threads=options.threads)
        for k, weight in enumerate(weights):
            self.embedding.weight(k).copy_(weight)

    def whole(self, batch):
        return self.embedding(batch.ids, batch.offsets)

    def distinct(self, batch):
        return self.embedding(*deduplicate(batch.ids, batch.offsets, self.features, [self.features]))

    def step(self, look_up, batch, gradient):
        pooled = look_up(batch)
        pooled.backward(gradient)
        return pooled.detach()

    def weight(self, k):
        return self.embedding.weight(k)


def ways(options):
    """Name, tables of its own that begin as all others do, and how they look up."""
    weights = [torch.empty(options.rows, options.dim).uniform_(-0.05, 0.05) for _ in range(options.features)]
    for name, kind, look_up in (("torch, whole batch", TorchTables, "whole"), ("torch.unique", TorchTables, "by_unique"),
                                ("numpy.unique of hashes", TorchTables, "by_hash"), ("tessera, whole batch", TesseraTables, "whole"),
                                ("tessera, deduplicated", TesseraTables, "distinct")):
        tables = kind(options, weights)
        yield name, tables, getattr(tables, look_up)


def check(options, batches, gradient):
    """Two steps by each way: vectors and rows are those of autograd over the whole batch, to within rounding; ours have the same bits."""
    results = {}
    for name, tables, look_up in ways(options):
        vectors = [tables.step(look_up, batch, gradient) for batch in batches[:2]]
        results[name] = vectors, [tables.weight(k) for k in range(options.features)]
    vectors, rows = results["torch, whole batch"]
    for name, (others, other_rows) in results.items():
        of_vectors = max((a - b).abs().max().item() for a, b in zip(vectors, others))
        of_rows = max((a - b).abs().max().item() for a, b in zip(rows, other_rows))
        print(f"{name}: largest difference of vectors {of_vectors:.1e}, of rows {of_rows:.1e}")
        for a, b in zip([*vectors, *rows], [*others, *other_rows]):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    if not torch.equal(results["tessera, whole batch"][0][0], results["tessera, deduplicated"][0][0]):
        raise RuntimeError("a deduplicated lookup has other bits than that of the whole batch")


def seconds(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def measure(options, batches, gradient):
    """Milliseconds a step, the fastest of all rounds."""
    compared = list(ways(options))
    best = dict.fromkeys((name for name, _, _ in compared), float("inf"))
    for round_ in range(options.rounds):
        batch = batches[round_ % len(batches)]
        for name, tables, look_up in compared:
            best[name] = min(best[name], 1000 * seconds(lambda: tables.step(look_up, batch, gradient)))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--features", type=int, default=4, help="histories, which change together")
    parser.add_argument("--length", type=int, default=50, help="ids a list, in the mean")
    parser.add_argument("--session", type=float, default=10, help="samples a session, in the mean")
    parser.add_argument("--stays", type=float, default=0.95, help="how probably a list is that of the session's sample before")
    parser.add_argument("--rows", type=int, default=100_000, help="of each table")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--check", action="store_true", help="only compare results, of a small batch")
    options = parser.parse_args()
    if options.check:
        options.batch, options.rows, options.dim = 300, 1000, 16
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    torch.sparse.check_sparse_tensor_invariants.disable()
    batches = [Batch(options, seed) for seed in range(4)]
    gradient = torch.randn(options.batch, options.features * options.dim)
    check(options, batches, gradient)
    if options.check:
        return
    kept = deduplicate(batches[0].ids, batches[0].offsets, options.features, [options.features])
    print(f"\n{len(batches[0].ids)} ids, {len(kept.ids)} in distinct lists; {options.threads} threads")
    best = measure(options, batches, gradient)
    for name, milliseconds in best.items():
        print(f"{name:24} {milliseconds:8.2f} ms a step, {milliseconds / best['tessera, deduplicated']:5.2f} times ours")


if __name__ == "__main__":
    main()
