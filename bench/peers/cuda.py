# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""The works of the CUDA programs in bench/embed and bench/core in PyTorch on the same GPU, called as

    cuda.py --works lookup_forward_d128,step_sgd_d128 [--seconds 0.2] [--smoke]

It prints a JSON list of {work, peer, seconds, machine, layout, layouts, torch}, or {work, error} for what PyTorch cannot do here; without PyTorch
or a GPU it says so and returns 77. Seconds are the median of single iterations between events of the stream.

Lookups are nn.EmbeddingBag(mode="sum"), in two layouts, of which the faster counts: a bag for each table, or one bag over the rows of all tables
with ids shifted beforehand. Steps use sparse gradients (sparse=True) and torch.optim's SGD or Adagrad. Neither is row-wise Adagrad, which PyTorch
does not have: SGD moves less (no state), Adagrad more (a sum of squares an element instead of a row), and ours is beside the faster of the two.
SparseAdam moves more still, and is left out. Memory comes from PyTorch's caching allocator, warm.
"""

import argparse
import gc
import json
import os
import statistics
import sys
from typing import NamedTuple


class Shape(NamedTuple):
    tables: int = 8
    rows: int = 10_000_000
    dim: int = 128
    samples: int = 16_384
    length: int = 20
    exponent: float = 0  # of Zipf; 0: uniform
    bfloat16: bool = False

    def smaller(self):
        return self._replace(rows=self.rows // 64, samples=self.samples // 64)


SHAPES = {
    "d128": Shape(),
    "d128_bf16": Shape(bfloat16=True),
    "d64": Shape(dim=64),
    "d16": Shape(dim=16),
    "zipf": Shape(exponent=1.05),
}
LISTS = 3  # batches to go round
RATE = 0.01


def batches(torch, shape):
    """Ids (tables, samples · length), a list of batches."""
    generator = torch.Generator("cuda").manual_seed(1)
    size = (shape.tables, shape.samples * shape.length)
    if shape.exponent == 0:
        return [torch.randint(0, shape.rows, size, generator=generator, device="cuda") for _ in range(LISTS)]
    weights = torch.arange(1, shape.rows + 1, dtype=torch.float64, device="cuda") ** -shape.exponent
    cumulative = weights.cumsum(0)
    draw = lambda: torch.rand(size, generator=generator, dtype=torch.float64, device="cuda") * cumulative[-1]
    return [torch.searchsorted(cumulative, draw()).clamp_(max=shape.rows - 1) for _ in range(LISTS)]


def bag_of(torch, rows, shape, sparse):
    kind = torch.bfloat16 if shape.bfloat16 else torch.float32
    weights = torch.empty(rows, shape.dim, dtype=kind, device="cuda").uniform_(-0.1, 0.1)
    return torch.nn.EmbeddingBag.from_pretrained(weights, freeze=False, mode="sum", sparse=sparse)


def bag_a_table(torch, shape, sparse):
    bags = torch.nn.ModuleList(bag_of(torch, shape.rows, shape, sparse) for _ in range(shape.tables))
    inputs = [list(ids) for ids in batches(torch, shape)]
    offsets = torch.arange(shape.samples, device="cuda") * shape.length
    forward = lambda i: [bag(ids, offsets) for bag, ids in zip(bags, inputs[i % LISTS])]
    return bags, forward, [gradient(torch, shape, shape.samples) for _ in range(shape.tables)]


def merged_bag(torch, shape, sparse):
    bag = bag_of(torch, shape.tables * shape.rows, shape, sparse)
    first_row = torch.arange(shape.tables, device="cuda").unsqueeze(1) * shape.rows
    inputs = [(ids + first_row).flatten() for ids in batches(torch, shape)]
    offsets = torch.arange(shape.tables * shape.samples, device="cuda") * shape.length
    return bag, lambda i: [bag(inputs[i % LISTS], offsets)], [gradient(torch, shape, shape.tables * shape.samples)]


def gradient(torch, shape, rows):
    return (torch.rand(rows, shape.dim, device="cuda") - 0.5) * 0.01


LAYOUTS = {"a bag a table": bag_a_table, "one bag": merged_bag}


def forward_work(torch, make, shape):
    _, forward, _ = make(torch, shape, sparse=False)
    return torch.inference_mode()(forward)


def step_work(torch, make, shape, optimizer):
    module, forward, gradients = make(torch, shape, sparse=True)
    optimizer = getattr(torch.optim, optimizer)(module.parameters(), lr=RATE)

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(forward(i), gradients)
        optimizer.step()

    return step


def unique_work(torch, bound, count):
    generator = torch.Generator("cuda").manual_seed(1)
    lists = [torch.randint(0, bound, (count,), generator=generator, device="cuda") for _ in range(LISTS)]
    return lambda i: torch.unique(lists[i % LISTS], return_inverse=True)


def works(torch, smoke):
    """{work: {layout: prepare()}}"""
    result = {}
    for name, shape in SHAPES.items():
        shape = shape.smaller() if smoke else shape
        lay_out = lambda prepare, *more, shape=shape: {
            layout: (lambda make=make: prepare(torch, make, shape, *more)) for layout, make in LAYOUTS.items()
        }
        result[f"lookup_forward_{name}"] = lay_out(forward_work)
        if name in ("d128", "zipf"):
            result[f"step_sgd_{name}"] = lay_out(step_work, "SGD")
            result[f"step_adagrad_{name}"] = lay_out(step_work, "Adagrad")
    count = (1 << 25) // (64 if smoke else 1)
    result["unique"] = {"": lambda: unique_work(torch, 1 << 40, count)}
    result["unique_repeated"] = {"": lambda: unique_work(torch, 100_000, count)}
    return result


def median_seconds(torch, run, least_seconds, smoke):
    """The median of single iterations, nine and `least_seconds` of them at least, after a warm-up."""

    def calls(first, count):
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for i, (begin, end) in enumerate(events):
            begin.record()
            run(first + i)
            end.record()
        torch.cuda.synchronize()
        return statistics.median(1e-3 * begin.elapsed_time(end) for begin, end in events)

    one = calls(0, 3)
    if smoke:
        return one
    return calls(3, min(max(int(least_seconds / max(one, 1e-6)), 9), 2000))


def copy_rate(torch, smoke):
    """Bytes a second of a copy within the device, both counted."""
    count = 1 << (24 if smoke else 29)
    source, target = torch.rand(count, device="cuda"), torch.empty(count, device="cuda")
    return 8 * count / median_seconds(torch, lambda i: target.copy_(source), 0.05, smoke)


def measure(torch, layouts, arguments):
    """{layout: seconds} of those that work, and the last error; one at a time is in memory."""
    seconds, error = {}, None
    for layout, prepare in layouts.items():
        try:
            run = prepare()
            seconds[layout] = median_seconds(torch, run, arguments.seconds, arguments.smoke)
        except RuntimeError as failure:  # too little memory, or a kernel that is not there
            error = f"{layout}: {failure}".splitlines()[0]
            print(f"cuda.py: {error}", file=sys.stderr)
        run = None
        gc.collect()
        torch.cuda.empty_cache()
    return seconds, error


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--works", required=True, help="names, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.2, help="least time spent on a work in a layout")
    parser.add_argument("--smoke", action="store_true", default="TESSERA_BENCH_SMOKE" in os.environ, help="small shapes, for an instant")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError as missing:
        print(f"SKIPPED: there is no PyTorch: {missing}", file=sys.stderr)
        return 77
    known = works(torch, arguments.smoke)
    unknown = [name for name in arguments.works.split(",") if name not in known]
    if unknown:
        parser.error(f"no such work: {', '.join(unknown)}; there are {', '.join(known)}")
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch sees no GPU", file=sys.stderr)
        return 77
    machine = copy_rate(torch, arguments.smoke)
    records = []
    for name in arguments.works.split(","):
        seconds, error = measure(torch, known[name], arguments)
        record = dict(work=name, peer="torch", machine=machine, torch=torch.__version__)
        if seconds:
            best = min(seconds, key=seconds.get)
            record.update(seconds=seconds[best], layout=best, layouts=seconds)
        else:
            record["error"] = error
        records.append(record)
    print(json.dumps(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
