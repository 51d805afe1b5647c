# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Embedding tables of Tessera as a PyTorch module."""

import functools
import pathlib
import typing

import torch
import torch.utils.cpp_extension


@functools.cache
def extension():
    """Compiles tessera_embedding.cpp where that has not been done; needs ninja and a C++20 compiler. TORCH_EXTENSIONS_DIR: where to."""
    here = pathlib.Path(__file__).resolve().parent
    return torch.utils.cpp_extension.load(
        name="tessera_embedding",
        sources=[str(here / "tessera_embedding.cpp")],
        extra_include_paths=[str(here.parents[1] / "include")],
        extra_cflags=["-std=c++20", "-O3", "-march=native"],
    )


class DistinctBatch(typing.NamedTuple):
    """A batch whose repeated bags are there once (IKJT): what `deduplicate` makes, or tensors of your own in its place. All int64.

    Tables belong to groups: the first keys_per_group[0] tables to group 0, and so on; those behind the last group have a bag a sample.
    The tables of a group have as many bags each, and sample i has bag inverses[g, i] of every table of group g.
    """

    ids: torch.Tensor  # (all bags,): table by table
    offsets: torch.Tensor  # (sum of rows_per_key, plus one,)
    inverses: torch.Tensor  # (groups, samples)
    keys_per_group: typing.Sequence[int]
    rows_per_key: typing.Sequence[int]  # (tables,): bags of each


def deduplicate(ids, offsets, tables, keys_per_group):
    """Keeps the distinct bags of each group: samples that agree in all tables of the group share their bags. Any thread or process may call.

    ids and offsets as in TesseraEmbeddingBags.forward; tables: how many. The tensors of the result are memory of Tessera's, and keep it
    alive.
    """
    ids, offsets, inverses, rows_per_key = extension().deduplicate(ids, offsets, tables, keys_per_group)
    return DistinctBatch(ids, offsets, inverses, keys_per_group, rows_per_key)


class TesseraEmbeddingBags(torch.nn.Module):
    """A table for each (rows, dim) of `tables`; one bag of ids a table and sample. backward() updates the rows that were looked up.

    optimizer: sgd, adagrad or adam, which do what torch.optim.SGD, Adagrad and SparseAdam do (adam adds its epsilon of 1e-8 to the corrected
    moment's root, as torch.optim.Adam does), or rowwise_adagrad, with one state a row. All else than the rate as by default there.
    mode: sum or mean, as nn.EmbeddingBag's. threads: how many work on a call; results do not depend on it.

    Rows and optimizer states are buffers in the tables' own memory: state_dict() and load_state_dict() see all that training changes,
    and parameters() leaves them out, as no torch optimizer has to touch them. Rows begin as nn.EmbeddingBag's do.
    """

    def __init__(self, tables, optimizer="adagrad", learning_rate=0.01, mode="sum", threads=1):
        super().__init__()
        if mode not in ("sum", "mean"):
            raise ValueError(f"mode: sum or mean, not {mode}")
        self.count = len(tables)
        self.tables = extension().EmbeddingTables(tables, optimizer, learning_rate, mode == "mean", threads)
        self._share()
        for k in range(self.count):
            torch.nn.init.normal_(self.weight(k))

    def forward(self, ids, offsets, inverses=None, keys_per_group=(), rows_per_key=()):
        """Pools every bag: (samples, sum of dims), the tables side by side; an empty bag gives zeros.

        ids (all bags,): first the bags of all samples in table 0, then those in table 1, and so on. offsets (tables * samples + 1,): where
        each bag begins, and where the last one ends. Both int64. Any number of results may wait for their backward, each for one.

        `forward(*batch)` takes a DistinctBatch: each distinct bag is looked up once. The result has the bits of the whole batch, and
        rows are updated as by it, to within rounding.
        """
        return self.tables.forward(ids, offsets, inverses, keys_per_group, rows_per_key)

    def weight(self, k):
        """The rows of table k, (rows, dim)."""
        return self.get_buffer(f"weight_{k}")

    def state(self, k):
        """Their optimizer states, (rows, floats a row)."""
        return self.get_buffer(f"state_{k}")

    def set_learning_rate(self, learning_rate):
        self.tables.set_learning_rate(learning_rate)

    def get_extra_state(self):
        return {"steps": [self.tables.steps(k) for k in range(self.count)]}

    def set_extra_state(self, extra):
        for k, steps in enumerate(extra["steps"]):
            self.tables.set_steps(k, steps)

    def _share(self):
        for k in range(self.count):
            weight, state = self.tables.memory(k)
            self.register_buffer(f"weight_{k}", weight)
            self.register_buffer(f"state_{k}", state)

    # What would put other tensors in place of the tables' memory is refused.
    def _apply(self, fn, recurse=True):
        shared = [buffer.data_ptr() for buffer in self.buffers()]
        super()._apply(fn, recurse)
        if [buffer.data_ptr() for buffer in self.buffers()] != shared:
            self._share()
            raise RuntimeError("Tessera's tables stay where they are: in the host's memory, as float32")
        return self

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        if local_metadata.get("assign_to_params_buffers", False):
            raise RuntimeError("Tessera's tables stay where they are: load_state_dict without assign=True")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)
