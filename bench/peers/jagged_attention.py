# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Attention of padded batches in PyTorch: the peer of bench/nn/jagged_attention_bench.cpp, at the same lengths.

Rows are padded to the longest of the batch beforehand, which is not timed; heads lie before vectors, as is fastest. "torch" hides the padding by
a mask of keys; "torch_unmasked" computes as if all rows were of that length, which is not the same attention but the least that padding costs.
"""

import math

import measure
import torch
import torch.nn.functional as functional

HEADS, HEAD_DIM = 2, 32


def geometric_lengths(rows, groups):
    """As in the benchmark: the sum of quantiles of a geometric distribution of mean 50, 200 at most."""
    steps = [77, 181, 283, 419][:groups]

    def quantile(u):
        return min(max(math.ceil(math.log1p(-u) / math.log1p(-0.02)), 1), 200)

    return [sum(quantile((i * step % rows + 0.5) / rows) for step in steps) for i in range(rows)]


def attention(lengths, forward, backward, causal=False):
    def prepare(masked):
        def make(threads):
            torch.set_num_threads(threads)
            longest = max(lengths)
            shape = (len(lengths), HEADS, longest, HEAD_DIM)
            mask = None
            if masked:
                mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None])[:, None, None, :]
                if causal:
                    mask = mask & torch.ones(longest, longest, dtype=torch.bool).tril()
            bytes_a_batch = 8 * 4 * math.prod(shape)
            batches = []
            for seed in range(measure.batches_past_cache(bytes_a_batch)):
                generator = torch.Generator().manual_seed(seed)
                q, k, v, gradient = (torch.rand(shape, generator=generator) * 2 - 1 for _ in range(4))
                batches.append(([x.requires_grad_(backward) for x in (q, k, v)], gradient))
            kept = {}

            def attend(i):
                inputs, gradient = batches[i % len(batches)]
                return functional.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=causal and not masked), inputs, gradient

            def run(i):
                if not backward:
                    return attend(i)
                if not forward:
                    kept.setdefault("made", attend(0))
                out, inputs, gradient = attend(i) if forward else kept["made"]
                torch.autograd.grad(out, inputs, gradient, retain_graph=not forward)

            return run

        return make

    return {"torch": prepare(True), "torch_unmasked": prepare(False)}


def works():
    shapes = {
        "m50": (geometric_lengths(512, 1), False),
        "m200": (geometric_lengths(512, 4), False),
        "m200_causal": (geometric_lengths(512, 4), True),
        "n4096": ([4096] * 2, False),
    }
    parts = {"forward": (True, False), "backward": (False, True), "step": (True, True)}
    return {
        f"jagged_attention_{part}_{shape}": attention(lengths, *which, causal)
        for shape, (lengths, causal) in shapes.items()
        for part, which in parts.items()
    }


if __name__ == "__main__":
    measure.main(works())
