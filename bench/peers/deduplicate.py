# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Distinct rows with their inverse in PyTorch, pandas and NumPy: what bench/tensor/deduplicate_bench.cpp is compared with, on inputs of the
same distribution. All need rows of one length: the features of a group side by side, each padded to its longest list, with the lengths in front.
The strongest is no operator made for it: each row is hashed by a random vector, and the hashes are made distinct.
"""

import numpy as np
import torch

import measure

SAMPLES, GROUPS, LONGEST, MEAN, STAYS, SESSION = 2048, (4, 4, 3, 3, 2), 200, 50, 0.95, 16.5


def batches(threads):
    torch.set_num_threads(threads)

    def make(seed):
        draw = np.random.default_rng(seed)
        groups = []
        starts = draw.random(SAMPLES) < 1 / SESSION
        for keys in GROUPS:
            padded = np.full((SAMPLES, keys * (1 + LONGEST)), -1, np.int64)
            changes = starts | (draw.random(SAMPLES) >= STAYS)
            for i in range(SAMPLES):
                if i > 0 and not changes[i]:
                    padded[i] = padded[i - 1]
                    continue
                length = min(int(draw.geometric(1 / MEAN)), LONGEST)
                for key in range(keys):
                    first = key * (1 + LONGEST)
                    padded[i, first] = length
                    padded[i, first + 1 : first + 1 + length] = draw.integers(0, 100_000, length)
            longest = int(padded[:, 0].max())
            columns = np.concatenate([np.arange(key * (1 + LONGEST), key * (1 + LONGEST) + 1 + longest) for key in range(keys)])
            groups.append(np.ascontiguousarray(padded[:, columns]))
        return groups

    return [make(seed) for seed in range(4)]


def deduplicate_torch(threads):
    made = [[torch.from_numpy(rows) for rows in groups] for groups in batches(threads)]

    def run(i):
        for rows in made[i % len(made)]:
            torch.unique(rows, dim=0, return_inverse=True)

    return run


def deduplicate_pandas(threads):
    import pandas

    made = [[pandas.DataFrame(rows) for rows in groups] for groups in batches(threads)]

    def run(i):
        for rows in made[i % len(made)]:
            rows.drop_duplicates()  # without an inverse, which it has none of

    return run


def distinct_by_hash(rows, vector):
    """(first row of each distinct one, which of them each row is). Rows of one hash are taken for equal."""
    hashes = np.einsum("ij,j->i", rows, vector)  # three times as fast as rows @ vector, as products of integers have no library
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return first, inverse


def deduplicate_numpy(threads):
    made = batches(threads)
    draw = np.random.default_rng(1)
    vector = draw.integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max, max(rows.shape[1] for groups in made for rows in groups))
    for rows in (rows for groups in made for rows in groups):
        first, inverse = distinct_by_hash(rows, vector[: rows.shape[1]])
        if not np.array_equal(rows[first][inverse], rows):
            raise RuntimeError("two distinct rows have one hash")

    def run(i):
        for rows in made[i % len(made)]:
            first, _ = distinct_by_hash(rows, vector[: rows.shape[1]])
            rows[first]

    return run


if __name__ == "__main__":
    measure.main({"deduplicate": {"torch": deduplicate_torch, "pandas": deduplicate_pandas, "numpy": deduplicate_numpy}})
