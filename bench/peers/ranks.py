#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges and training steps of PyTorch's ranks over gloo: the peer of bench/comm/mpi_exchange_bench.cpp, bench/shard/dlrm_step_bench.cpp and
bench/tower/tower_step_bench.cpp.

    mpirun -n 2 python bench/peers/ranks.py step
    sudo bench/testbed/hosts.sh run 4 2 build/peers/bin/python bench/peers/ranks.py exchange
    sudo bench/testbed/hosts.sh run 4 2 build/peers/bin/python bench/peers/ranks.py hops 7 2

- exchange: all_to_all_single of one message a pair of ranks, and all_reduce of floats.
- step: a DLRM of 26 tables of 64, one id a table, tables dealt out whole, round-robin. Ids and vectors travel by all_to_all_single, as in
  TorchRec's table-wise sharding. FBGEMM's operator looks rows up and updates them by row-wise Adagrad; the dense part is trained by
  DistributedDataParallel, whose buckets are summed during the backward.
- hops ROUNDS RANKS_OF_A_HOST: that step with tables dealt out to hosts in turn, then to the ranks of each host. Ids of the next batch travel
  during a step. Ids, vectors and gradients go by all_to_all_single of all ranks, or by two of them: inside each host, then between the ranks that
  have the same place in their hosts. Vectors and gradients are fp16 or fp32 on the way. In alternated rounds.

MPI's launcher starts the ranks and says who they are; gloo moves all bytes. The slowest rank's time counts.
"""

import os
import socket
import statistics
import sys
import time

import numpy as np

RANK, RANKS = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
outer = [name for _, name in socket.if_nameindex() if name != "lo" and name.startswith("tbv")]  # of an emulated host
if outer:
    os.environ["GLOO_SOCKET_IFNAME"] = outer[0]
os.environ.setdefault("MASTER_ADDR", "10.77.0.1" if outer else "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29577")

import torch
import torch.distributed as dist

from training import DensePart, FbgemmTables

TABLES, DIM, NUMBERS, ROWS = 26, 64, 13, 100_000


def slowest_seconds(work):
    dist.barrier()
    start = time.perf_counter()
    work()
    took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return took.item()


def median_ms(work, rounds):
    slowest_seconds(work)
    return 1e3 * statistics.median(slowest_seconds(work) for _ in range(rounds))


def say(text):
    if RANK == 0:
        print(text, flush=True)


def exchange(rounds):
    for size in (4 << 10, 64 << 10, 256 << 10, 1 << 20):
        sent = torch.zeros(RANKS * size, dtype=torch.uint8)
        received = torch.empty_like(sent)
        say(f"exchange   {size:9} bytes: gloo's {median_ms(lambda: dist.all_to_all_single(received, sent), rounds):9.3f} ms")
    for count in (1 << 12, 1 << 19):
        values = torch.ones(count)
        say(f"sum        {4 * count:9} bytes: gloo's {median_ms(lambda: dist.all_reduce(values), rounds):9.3f} ms")


class Flat:
    """Exchanges of all ranks at once. `size(s, d)`: elements that rank s sends to rank d; parts lie in the order of ranks."""

    def begin(self, sent, size):
        received = sent.new_empty(sum(size(r, RANK) for r in range(RANKS)))
        to, of = [size(RANK, r) for r in range(RANKS)], [size(r, RANK) for r in range(RANKS)]
        return dist.all_to_all_single(received, sent, of, to, async_op=True), received


class TwoHops:
    """The same by the ranks of a host, which are neighbours, then by those of the same place in all hosts."""

    def __init__(self, of_host):
        hosts = RANKS // of_host
        # All ranks make all groups.
        inside = [dist.new_group(range(h * of_host, (h + 1) * of_host)) for h in range(hosts)]
        between = [dist.new_group(range(i, RANKS, of_host)) for i in range(of_host)]
        self.host, self.place = divmod(RANK, of_host)
        self.inside, self.between = inside[self.host], between[self.place]
        self.hosts, self.places = range(hosts), range(of_host)

    def rank(self, host, place):
        return host * len(self.places) + place

    def begin(self, sent, size):
        host, place, hosts, places, rank = self.host, self.place, self.hosts, self.places, self.rank
        parts = sent.split([size(RANK, r) for r in range(RANKS)])
        leaving = torch.cat([parts[rank(h, i)] for i in places for h in hosts])
        to = [sum(size(RANK, rank(h, i)) for h in hosts) for i in places]
        sizes = [[size(rank(host, i), rank(h, place)) for h in hosts] for i in places]
        carried = sent.new_empty(sum(map(sum, sizes)))
        dist.all_to_all_single(carried, leaving, [sum(of) for of in sizes], to, group=self.inside)
        parts = carried.split([one for of in sizes for one in of])
        leaving = torch.cat([parts[i * len(hosts) + h] for h in hosts for i in places])
        received = sent.new_empty(sum(size(r, RANK) for r in range(RANKS)))
        to = [sum(sizes[i][h] for i in places) for h in hosts]
        of = [sum(size(rank(h, i), RANK) for i in places) for h in hosts]
        return dist.all_to_all_single(received, leaving, of, to, group=self.between, async_op=True), received


def exchanged(way, half, sent, size):
    """Floats, which are fp16 on the way where `half`."""
    work, received = way.begin(sent.half() if half else sent, size)
    work.wait()
    return received.float()


class VectorsOfSamples(torch.autograd.Function):
    """(samples of all ranks, tables here * DIM) to (samples here, TABLES * DIM), and gradients the same way back."""

    @staticmethod
    def forward(context, looked_up, tables_of_rank, way, half):
        context.tables_of_rank, context.way, context.half = tables_of_rank, way, half
        samples = looked_up.shape[0] // RANKS
        received = exchanged(way, half, looked_up.reshape(-1), lambda s, _: samples * tables_of_rank[s] * DIM)
        return torch.cat([part.view(samples, -1) for part in received.split([samples * n * DIM for n in tables_of_rank])], 1)

    @staticmethod
    def backward(context, gradient):
        samples, tables_of_rank = gradient.shape[0], context.tables_of_rank
        sent = torch.cat([part.reshape(-1) for part in gradient.split([count * DIM for count in tables_of_rank], 1)])
        received = exchanged(context.way, context.half, sent, lambda _, d: samples * tables_of_rank[d] * DIM)
        return received.view(RANKS * samples, tables_of_rank[RANK] * DIM), None, None, None


class Steps:
    """A rank's part of the model, and steps of it. `tables` are the numbers of those of each rank."""

    def __init__(self, samples, tables, way, half=False, ahead=False):
        torch.manual_seed(1)
        generator = np.random.default_rng(RANK)
        self.way, self.half, self.ahead, self.samples = way, half, ahead, samples
        self.tables_of_rank = [len(of) for of in tables]
        self.here = here = self.tables_of_rank[RANK]
        self.tables = FbgemmTables(dict(dim=DIM, rows=[ROWS] * here, lengths=[1] * here))
        self.dense_part = DensePart(dict(dim=DIM, rows=[ROWS] * TABLES, bottom=[512, 256], top=[512, 256], cross=None))
        # Vectors come rank by rank: all ranks' order of tables is the same, so the dense part needs no other one.
        self.parallel = torch.nn.parallel.DistributedDataParallel(self.dense_part) if RANKS > 1 else self.dense_part
        self.optimizer = torch.optim.SGD(self.dense_part.parameters(), lr=0.01, fused=True)
        self.batches = []
        for _ in range(8):
            ids = np.minimum(generator.zipf(1.05, (TABLES, samples)), ROWS) - 1
            dense = torch.from_numpy(generator.random((samples, NUMBERS), dtype=np.float32))
            labels = torch.from_numpy((generator.random(samples) < 0.25).astype(np.float32))
            self.batches.append((dense, torch.from_numpy(ids), labels))
        self.offsets = torch.arange(here * RANKS * samples + 1)
        self.of_rank = torch.cat([torch.tensor(of, dtype=torch.int64) for of in tables])

    def begin_ids(self, i):
        ids = self.batches[i % len(self.batches)][1]
        return self.way.begin(ids[self.of_rank].reshape(-1), lambda _, d: self.samples * self.tables_of_rank[d])

    def run(self, steps):
        begun = self.begin_ids(0)
        for i in range(steps):
            work, received = begun
            if self.ahead and i + 1 < steps:
                begun = self.begin_ids(i + 1)
            work.wait()
            dense, _, labels = self.batches[i % len(self.batches)]
            by_table = received.view(RANKS, self.here, self.samples).transpose(0, 1).reshape(-1)
            looked_up = self.tables((by_table, self.offsets))
            vectors = VectorsOfSamples.apply(looked_up, self.tables_of_rank, self.way, self.half)
            self.parallel(dense, vectors, labels).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if not self.ahead and i + 1 < steps:
                begun = self.begin_ids(i + 1)


def step(samples, rounds):
    torch.set_num_threads(1)
    rank = Steps(samples, [range(r, TABLES, RANKS) for r in range(RANKS)], Flat())
    steps = 8
    took = median_ms(lambda: rank.run(steps), rounds)
    say(f"{RANKS} ranks of PyTorch over gloo: {samples * RANKS * steps / took * 1e3:8.0f} samples/s, {took / steps:7.2f} ms a step")


def hops(samples, rounds, of_host):
    torch.set_num_threads(1)
    hosts, steps = RANKS // of_host, 4
    tables = [range(TABLES)[h::hosts][i::of_host] for h in range(hosts) for i in range(of_host)]
    ways = {"flat": Flat(), "two hops": TwoHops(of_host)}
    kinds = {f"{name}, {'fp16' if half else 'fp32'}": (way, half) for half in (True, False) for name, way in ways.items()}
    ranks = {name: Steps(samples, tables, way, half, ahead=True) for name, (way, half) in kinds.items()}
    times = {name: [] for name in kinds}
    for i in range(rounds + 1):  # in the first all memory is new
        for name, rank in ranks.items():
            took = slowest_seconds(lambda: rank.run(steps))
            if i > 0:
                times[name].append(took)
    for name, of in times.items():
        say(f"{RANKS} ranks of PyTorch over gloo, {name}: {1e3 * statistics.median(of) / steps:7.2f} ms a step")


if __name__ == "__main__":
    dist.init_process_group("gloo", rank=RANK, world_size=RANKS)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    if sys.argv[1:2] == ["exchange"]:
        exchange(rounds)
    elif sys.argv[1:2] == ["hops"]:
        hops(1024, rounds, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    else:
        step(1024, rounds)
    dist.destroy_process_group()
