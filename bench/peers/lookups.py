# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""The works of bench/embed/pooled_lookup_bench.cpp in PyTorch and FBGEMM: pooled lookup, and lookup + backward + row update.

torch: nn.EmbeddingBag, one a table or one over the rows of all tables, whichever is faster for the work; training with sparse gradients and
torch.optim's SGD or Adagrad, which has no row-wise kind. fbgemm: SplitTableBatchedEmbeddingBagsCodegen with its fused optimizers, without its
check of bounds.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch

import measure


class Shape(NamedTuple):
    tables: int
    rows: int
    dim: int
    samples: int
    length: int
    exponent: float = 0  # of Zipf; 0: uniform

    def batches(self):
        """Ids (tables, samples · length), one array a batch."""
        generator = np.random.default_rng(1)
        count = measure.batches_past_cache(self.tables * self.samples * self.length * self.dim * 4)
        size = (self.tables, self.samples * self.length)
        return [torch.from_numpy(measure.zipf_ids(generator, self.rows, self.exponent, size)) for _ in range(count)]

    def gradient(self, *size):
        return (torch.rand(*size) - 0.5) * 0.01


SHAPES = {
    "d128": Shape(8, 400_000, 128, 512, 20),
    "d16": Shape(26, 200_000, 16, 2048, 1),
    "d64": Shape(26, 200_000, 64, 2048, 10),
    "zipf": Shape(8, 400_000, 128, 512, 20, 1.05),
}
RATE = 0.01


def merged_bag(shape, sparse):
    """One bag over all tables: ids are shifted beforehand, which a pipeline of this layout does where it reads them."""
    bag = torch.nn.EmbeddingBag(shape.tables * shape.rows, shape.dim, mode="sum", sparse=sparse)
    first_row = torch.arange(shape.tables).unsqueeze(1) * shape.rows
    inputs = [(ids + first_row).flatten() for ids in shape.batches()]
    offsets = torch.arange(shape.tables * shape.samples) * shape.length
    gradient = shape.gradient(shape.tables * shape.samples, shape.dim)
    return bag, lambda i: [bag(inputs[i % len(inputs)], offsets)], [gradient]


def bag_a_table(shape, sparse):
    bags = torch.nn.ModuleList(torch.nn.EmbeddingBag(shape.rows, shape.dim, mode="sum", sparse=sparse) for _ in range(shape.tables))
    inputs = [list(ids) for ids in shape.batches()]
    offsets = torch.arange(shape.samples) * shape.length
    gradients = [shape.gradient(shape.samples, shape.dim) for _ in range(shape.tables)]
    return bags, lambda i: [bag(ids, offsets) for bag, ids in zip(bags, inputs[i % len(inputs)])], gradients


def torch_forward(make, shape):
    _, forward, _ = make(shape, sparse=False)
    return torch.inference_mode()(forward)


def torch_step(optimizer_type, make, shape):
    module, forward, gradients = make(shape, sparse=True)
    optimizer = optimizer_type(module.parameters(), lr=RATE)

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(forward(i), gradients)
        optimizer.step()

    return step


def faster(prepare, shape, threads):
    """The layout of tables that takes less time; only one is in memory at a time."""
    torch.set_num_threads(threads)

    def seconds(make):
        run = prepare(make, shape)
        return measure.median_seconds(run, 0.2, 2)

    return prepare(min((bag_a_table, merged_bag), key=seconds), shape)


def fbgemm(optimizer, shape, threads):
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

    torch.set_num_threads(threads)
    table = (shape.rows, shape.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
    bags = SplitTableBatchedEmbeddingBagsCodegen(
        [table] * shape.tables,
        optimizer=EmbOptimType[optimizer or "EXACT_SGD"],
        learning_rate=RATE,
        bounds_check_mode=BoundsCheckMode.NONE,
        device="cpu",
    )
    bags.init_embedding_weights_uniform(-0.1, 0.1)
    inputs = [ids.flatten() for ids in shape.batches()]
    offsets = torch.arange(shape.tables * shape.samples + 1) * shape.length
    gradient = shape.gradient(shape.samples, shape.tables * shape.dim)
    forward = lambda i: bags(inputs[i % len(inputs)], offsets)
    return (lambda i: forward(i).backward(gradient)) if optimizer else torch.no_grad()(forward)


WORKS = {}
for name, shape in SHAPES.items():
    if name != "zipf":
        WORKS[f"lookup_forward_{name}"] = {"torch": partial(faster, torch_forward, shape), "fbgemm": partial(fbgemm, None, shape)}
    torch_sgd = partial(faster, partial(torch_step, torch.optim.SGD), shape)
    WORKS[f"step_sgd_{name}"] = {"torch": torch_sgd, "fbgemm": partial(fbgemm, "EXACT_SGD", shape)}
    WORKS[f"step_adagrad_{name}"] = {"torch": partial(faster, partial(torch_step, torch.optim.Adagrad), shape)}
    WORKS[f"step_rowwise_adagrad_{name}"] = {"fbgemm": partial(fbgemm, "EXACT_ROWWISE_ADAGRAD", shape)}

if __name__ == "__main__":
    measure.main(WORKS)
