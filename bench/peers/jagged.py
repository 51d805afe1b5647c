# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Operations on jagged rows, and unique, in FBGEMM's CPU operators and in PyTorch: what bench/tensor/jagged_bench.cpp and
bench/core/unique_bench.cpp are compared with, on inputs of the same shapes and distributions.

Each peer is called in the form that was fastest: operators without their autograd wrappers, sums of lengths and offsets known beforehand. The
second peers are what a user could write instead; they have names of their own.
"""

import torch

import measure

KEYS, SAMPLES, LONGEST = 100, 4096, 40
ROWS, DIM, WIDTH = 40960, 64, 20
RANKS, IDS, REPEATED = 8, 1 << 23, 100_000
ID_BOUND = 1 << 40


def prepared(threads, bytes_a_batch, make):
    """As many inputs as the measurement goes round, each from a seed of its own."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return [make(torch.Generator().manual_seed(seed)) for seed in range(measure.batches_past_cache(bytes_a_batch))]


def offsets_of(lengths):
    return torch.cat([torch.zeros(1, dtype=lengths.dtype), lengths.cumsum(0)])


def lengths_of(count, generator):
    """Uniform in 0 … LONGEST."""
    return torch.randint(0, LONGEST + 1, (count,), generator=generator)


def fbgemm():
    import fbgemm_gpu  # noqa: F401  registers the operators

    return torch.ops.fbgemm


# A batch of ids: lengths (KEYS, SAMPLES), values.
def id_batches(threads):
    def make(generator):
        lengths = lengths_of(KEYS * SAMPLES, generator).view(KEYS, SAMPLES)
        return lengths, torch.randint(0, ID_BOUND, (int(lengths.sum()),), generator=generator)

    return prepared(threads, 2 * 8 * KEYS * SAMPLES * LONGEST // 2, make)


def permute(threads):
    operators, batches = fbgemm(), id_batches(threads)
    order = torch.randperm(KEYS, generator=torch.Generator().manual_seed(7), dtype=torch.int32)

    def run(i):
        lengths, values = batches[i % len(batches)]
        operators.permute_2D_sparse_data(order, lengths, values, None, values.numel())

    return run


def bucketize(threads):
    operators, batches = fbgemm(), id_batches(threads)
    block_sizes = torch.full((KEYS,), ID_BOUND // RANKS, dtype=torch.int64)

    def run(i):
        lengths, values = batches[i % len(batches)]
        operators.block_bucketize_sparse_features(lengths.view(-1), values, False, False, block_sizes, RANKS)

    return run


# Rows of vectors: offsets (ROWS + 1,), values (sum of lengths, DIM).
def vector_batches(threads):
    def make(generator):
        offsets = offsets_of(lengths_of(ROWS, generator))
        return offsets, torch.rand(int(offsets[-1]), DIM, generator=generator)

    return prepared(threads, 2 * 4 * DIM * ROWS * LONGEST // 2, make)


def selections(batches):
    """For each batch: the rows that are selected, and the offsets of the result."""
    generator = torch.Generator().manual_seed(7)
    chosen = [torch.randint(0, ROWS, (ROWS,), generator=generator) for _ in batches]
    return [(rows, offsets.diff()[rows]) for rows, (offsets, _) in zip(chosen, batches)]


def index_select(threads):
    operators, batches = fbgemm(), vector_batches(threads)
    selected = selections(batches)

    def run(i):
        (offsets, values), (rows, _) = batches[i % len(batches)], selected[i % len(batches)]
        ends = offsets.diff()[rows].cumsum(0)
        operators.jagged_index_select_2d_forward(values, rows, offsets[1:], ends, int(ends[-1]))

    return run


def index_select_torch(threads):
    batches = vector_batches(threads)
    selected = selections(batches)

    def run(i):
        (offsets, values), (rows, lengths) = batches[i % len(batches)], selected[i % len(batches)]
        starts = offsets[rows] - offsets_of(lengths)[:-1]
        positions = torch.repeat_interleave(starts, lengths)
        positions += torch.arange(positions.numel())
        torch.index_select(values, 0, positions)

    return run


def to_padded(threads):
    operators, batches = fbgemm(), vector_batches(threads)

    def run(i):
        offsets, values = batches[i % len(batches)]
        operators.jagged_2d_to_dense(values, offsets, WIDTH)

    return run


def from_padded(threads):
    operators, batches = fbgemm(), vector_batches(threads)
    cut = [offsets_of(offsets.diff().clamp(max=WIDTH)) for offsets, _ in batches]
    dense = [operators.jagged_2d_to_dense(values, offsets, WIDTH) for offsets, values in batches]
    sizes = [int(offsets[-1]) for offsets in cut]

    def run(i):
        i %= len(batches)
        operators.dense_to_jagged_forward(dense[i], [cut[i]], sizes[i])

    return run


def segment_sum(threads):
    batches = vector_batches(threads)

    def run(i):
        offsets, values = batches[i % len(batches)]
        torch.segment_reduce(values, "sum", offsets=offsets, axis=0, unsafe=True)

    return run


def segment_sum_bag(threads):
    """A pooled lookup of every row of a table."""
    batches = vector_batches(threads)
    ids = torch.arange(max(len(values) for _, values in batches))

    def run(i):
        offsets, values = batches[i % len(batches)]
        torch.nn.functional.embedding_bag(ids[: len(values)], values, offsets[:-1], mode="sum")

    return run


def unique_of(bound, count=None):
    """Ids below the bound; `count` of them, again and again, unless all are drawn."""

    def make(generator):
        if count is None:
            return torch.randint(0, bound, (IDS,), generator=generator)
        some = torch.randint(0, bound, (count,), generator=generator)
        return some[torch.randint(0, count, (IDS,), generator=generator)]

    def prepare(threads):
        batches = prepared(threads, 3 * 8 * IDS, make)

        def run(i):
            torch.unique(batches[i % len(batches)], return_inverse=True)

        return run

    return prepare


WORKS = {
    "permute": {"fbgemm": permute},
    "bucketize": {"fbgemm": bucketize},
    "index_select": {"fbgemm": index_select, "torch_indices": index_select_torch},
    "to_padded": {"fbgemm": to_padded},
    "from_padded": {"fbgemm": from_padded},
    "segment_sum": {"torch": segment_sum, "torch_bag": segment_sum_bag},
    "unique": {"torch": unique_of(ID_BOUND)},
    "unique_repeated": {"torch": unique_of(REPEATED)},
    "unique_repeated_anywhere": {"torch": unique_of(ID_BOUND, REPEATED)},
}

if __name__ == "__main__":
    measure.main(WORKS)
