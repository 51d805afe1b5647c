#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Training steps of click models in PyTorch and FBGEMM: the peers of bench/train/dlrm_bench.cpp and dcn_bench.cpp, of the same shapes.

- eager: PyTorch as it is. All tables are one nn.Embedding, or one nn.EmbeddingBag where bags hold several ids, with sparse gradients and
  sparse SGD, less work than the row-wise Adagrad that it stands beside. Ids come sample by sample with each table's first row added, so that
  the vectors lie side by side without a copy.
- compiled: the same with everything but the tables through torch.compile, backward and loss too.
- eager_adagrad: eager with sparse Adagrad, which is of elements: PyTorch has none of rows.
- fbgemm, fbgemm_compiled: tables of FBGEMM's CPU operator, updated in its backward by row-wise Adagrad.

Dense parameters are updated by PyTorch's fused SGD.
Compiled code is kept in TORCHINDUCTOR_CACHE_DIR, by default a folder of the user's cache, and used by later launches.
"""

import os
from pathlib import Path

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "tessera_peers" / "inductor"))

import numpy as np
import torch
from torch import nn

import measure
from click_models import layers

DENSE = 13
DLRM = dict(
    dim=16,
    # fmt: off
    rows=[1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18,
          15, 286181, 105, 142572],
    # fmt: on
    lengths=[1] * 26,
    bottom=[512, 256, 64],
    top=[512, 256],
    cross=None,
)
DCN = dict(
    dim=128,
    # fmt: off
    rows=[min(n, 1_000_000) for n in
          [40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14, 40000000,
           40000000, 40000000, 590152, 12973, 108, 36]],
    lengths=[3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1],
    # fmt: on
    bottom=[512, 256],
    top=[1024, 1024, 512, 256],
    cross=(3, 512),
)


class DensePart(nn.Module):
    """The loss of a batch, from its dense features, the pooled vectors side by side and the labels."""

    def __init__(self, shape):
        super().__init__()
        self.dim, self.vectors = shape["dim"], 1 + len(shape["rows"])
        width = self.vectors * self.dim
        self.bottom = layers([DENSE, *shape["bottom"], self.dim], True)
        self.cross = None
        if shape["cross"]:
            count, rank = shape["cross"]
            self.cross = nn.ModuleList(nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width)) for _ in range(count))
        else:
            row, column = torch.tril_indices(self.vectors, self.vectors, -1)
            self.register_buffer("pairs", row * self.vectors + column)
        self.top = layers([width if self.cross else self.dim + self.vectors * (self.vectors - 1) // 2, *shape["top"], 1], False)

    def forward(self, dense, pooled, labels):
        x = self.bottom(dense)
        joined = torch.cat([x, pooled], 1)
        if self.cross is None:
            vectors = joined.view(-1, self.vectors, self.dim)
            products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
            out = torch.cat([x, products.index_select(1, self.pairs)], 1)
        else:
            out = joined
            for layer in self.cross:
                out = torch.addcmul(out, joined, layer(out))
        return nn.functional.binary_cross_entropy_with_logits(self.top(out)[:, 0], labels)


class TorchTables:
    def __init__(self, shape, optimizer):
        self.first = np.cumsum([0] + shape["rows"])
        self.lengths, self.dim = shape["lengths"], shape["dim"]
        self.one_hot = max(self.lengths) == 1
        kind = nn.Embedding if self.one_hot else nn.EmbeddingBag
        weight = torch.empty(int(self.first[-1]), self.dim).uniform_(-0.01, 0.01)
        self.module = kind.from_pretrained(weight, freeze=False, sparse=True, **({} if self.one_hot else dict(mode="sum")))
        self.optimizer = optimizer(self.module.parameters(), lr=0.01)

    def prepare(self, ids):
        """What a lookup takes, of ids (samples, length) of each table."""
        joined = torch.from_numpy(np.concatenate([of_table + first for of_table, first in zip(ids, self.first)], 1))
        if self.one_hot:
            return (joined,)
        ends = np.cumsum(np.tile(self.lengths, len(joined)))
        return joined.flatten(), torch.from_numpy(np.concatenate([[0], ends[:-1]]))

    def __call__(self, arguments):
        return self.module(*arguments).view(-1, len(self.lengths) * self.dim)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


class FbgemmTables:
    def __init__(self, shape):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

        self.lengths = shape["lengths"]
        self.module = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, shape["dim"], EmbeddingLocation.HOST, ComputeDevice.CPU) for rows in shape["rows"]],
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=0.01,
            bounds_check_mode=BoundsCheckMode.NONE,
        )
        for weight in self.module.split_embedding_weights():
            weight.data.uniform_(-0.01, 0.01)

    def prepare(self, ids):
        ends = np.cumsum(np.repeat(self.lengths, len(ids[0])))
        return torch.from_numpy(np.concatenate([of_table.ravel() for of_table in ids])), torch.from_numpy(np.concatenate([[0], ends]))

    def __call__(self, arguments):
        return self.module(*arguments)

    def update(self):
        pass  # done in its backward


def step(shape, samples, kind, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    generator = np.random.default_rng(1)
    if kind.startswith("fbgemm"):
        tables = FbgemmTables(shape)
    else:
        tables = TorchTables(shape, torch.optim.Adagrad if kind.endswith("adagrad") else torch.optim.SGD)
    dense_part = DensePart(shape)
    optimizer = torch.optim.SGD(dense_part.parameters(), lr=0.1, fused=True)
    loss_of = torch.compile(dense_part, dynamic=False, fullgraph=True) if kind.endswith("compiled") else dense_part
    batches = []
    for _ in range(measure.batches_past_cache(samples * sum(shape["lengths"]) * shape["dim"] * 4)):
        ids = [generator.integers(0, rows, (samples, length)) for rows, length in zip(shape["rows"], shape["lengths"])]
        dense = torch.from_numpy(generator.random((samples, DENSE), dtype=np.float32))
        batches.append((dense, tables.prepare(ids), torch.from_numpy((generator.random(samples) < 0.25).astype(np.float32))))

    def run(i):
        dense, ids, labels = batches[i % len(batches)]
        loss = loss_of(dense, tables(ids), labels)
        loss.backward()
        tables.update()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return run


def peers(shape, samples):
    kinds = ("eager", "compiled", "eager_adagrad", "fbgemm", "fbgemm_compiled")
    return {kind: (lambda threads, kind=kind: step(shape, samples, kind, threads)) for kind in kinds}


if __name__ == "__main__":
    measure.main({"dlrm_step_b128": peers(DLRM, 128), "dlrm_step_b2048": peers(DLRM, 2048), "dcn_step": peers(DCN, 2048)})
