# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains a click model on a file in the layout of Criteo's logs, with embedding tables of Tessera or of PyTorch.

--check trains with both, from the same weights on the same batches, and compares losses and rows.
"""

import argparse
import pathlib
import sys

try:
    import torch
except ModuleNotFoundError:
    print("SKIPPED: PyTorch is not installed for this Python")
    sys.exit(77)

from tessera_embedding import TesseraEmbeddingBags

ADULT = pathlib.Path(__file__).resolve().parents[1] / "data" / "adult"
INTEGERS, COLUMNS = 13, 39


def read(path):
    """Labels (n,) and the fields of each line after its label."""
    with open(path, encoding="ascii") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return torch.tensor([float(fields[0]) for fields in lines]), [fields[1:] for fields in lines]


class Preprocessing:
    """Every column that holds anything becomes ids of a table of its own; integers also enter as numbers: log(1 + x), standardised."""

    def __init__(self, lines):
        values = [sorted({fields[c] for fields in lines} - {""}) for c in range(COLUMNS)]
        self.vocabularies = {c: {v: i for i, v in enumerate(of)} for c, of in enumerate(values) if of}
        self.integers = [c for c in self.vocabularies if c < INTEGERS]
        numbers = self._numbers(lines)
        self.mean, self.deviation = numbers.mean(0), numbers.std(0).clamp_min(1e-6)

    def __call__(self, lines):
        """Numbers (n, integers); ids (n, tables), -1 for a value that is missing or new."""
        ids = [[vocabulary.get(fields[c], -1) for c, vocabulary in self.vocabularies.items()] for fields in lines]
        return (self._numbers(lines) - self.mean) / self.deviation, torch.tensor(ids)

    def _numbers(self, lines):
        values = torch.tensor([[float(fields[c] or 0) for c in self.integers] for fields in lines])
        return values.clamp_min(0).log1p()


def bags(ids):
    """(samples, tables) as one bag a table and sample, empty where the id is -1: ids table by table, offsets."""
    ids = ids.t().reshape(-1)
    return ids[ids >= 0], torch.nn.functional.pad((ids >= 0).cumsum(0), (1, 0))


class TorchEmbeddingBags(torch.nn.Module):
    """The same layer of nn.EmbeddingBag."""

    def __init__(self, tables, mode="sum"):
        super().__init__()
        self.bags = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, dim, mode=mode, sparse=True) for rows, dim in tables)

    def forward(self, ids, offsets):
        samples = (len(offsets) - 1) // len(self.bags)
        ends = offsets[::samples].tolist()
        return torch.cat([bag(ids[ends[k]:ends[k + 1]], offsets[k * samples:(k + 1) * samples] - ends[k])
                          for k, bag in enumerate(self.bags)], 1)

    def weight(self, k):
        return self.bags[k].weight.detach()


class Model(torch.nn.Module):
    def __init__(self, embedding, inputs):
        super().__init__()
        self.embedding = embedding
        self.mlp = torch.nn.Sequential(torch.nn.Linear(inputs, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32), torch.nn.ReLU(),
                                       torch.nn.Linear(32, 1))

    def forward(self, numbers, ids):
        return self.mlp(torch.cat([numbers, self.embedding(*bags(ids))], 1)).squeeze(1)


TORCH_OPTIMIZERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}
LEARNING_RATES = {"sgd": 0.1, "adagrad": 0.05, "rowwise_adagrad": 0.05, "adam": 0.001}


def build(kind, tables, integers, optimizer, options):
    """A model and its torch optimizers: Tessera's tables need none."""
    torch.manual_seed(options.seed)
    rate = LEARNING_RATES[optimizer] if options.learning_rate is None else options.learning_rate
    if kind == "tessera":
        embedding = TesseraEmbeddingBags(tables, optimizer, rate, threads=options.threads)
    else:
        embedding = TorchEmbeddingBags(tables)
    for k in range(len(tables)):
        embedding.weight(k).uniform_(-0.05, 0.05)
    model = Model(embedding, integers + sum(dim for _, dim in tables))
    dense = TORCH_OPTIMIZERS.get(optimizer, torch.optim.Adagrad)
    optimizers = [dense(model.mlp.parameters(), rate)]
    if kind == "torch":
        torch.sparse.check_sparse_tensor_invariants.disable()  # torch wants to be told
        sparse = torch.optim.SparseAdam if optimizer == "adam" else dense
        optimizers.append(sparse(list(model.embedding.parameters()), rate))
    return model, optimizers


def train(model, optimizers, labels, numbers, ids, options):
    """Trains over shuffled batches; the loss of every step."""
    losses, shuffle = [], torch.Generator().manual_seed(options.seed)
    for _ in range(options.epochs):
        for batch in torch.randperm(len(labels), generator=shuffle).split(options.batch_size):
            if len(losses) == options.steps:
                return losses
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(numbers[batch], ids[batch]), labels[batch])
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
    return losses


def auc(scores, labels):
    """The share of (positive, negative) pairs in their right order; a tie counts half."""
    _, rank_of, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0) - (count - 1) / 2)[rank_of].double()
    positives = labels.double().sum()
    negatives = len(labels) - positives
    return ((ranks[labels > 0.5].sum() - positives * (positives + 1) / 2) / (positives * negatives)).item()


@torch.no_grad()
def test_auc(model, labels, numbers, ids):
    return auc(torch.cat([model(*part) for part in zip(numbers.split(4096), ids.split(4096))]), labels)


def check(tables, training, test, options):
    """Trains with both; whether all losses and rows agree but for rounding.

    For some hundred steps they do: then a unit's ReLU opens in one run and not in the other, and SGD carries them apart, as it does two
    runs with nn.EmbeddingBag that start 1e-7 apart.
    """
    integers, agree = training[1].shape[1], True
    for optimizer in ("sgd", "adagrad"):
        models, losses = [], []
        for kind in ("torch", "tessera"):
            model, optimizers = build(kind, tables, integers, optimizer, options)
            losses.append(torch.tensor(train(model, optimizers, *training, options)))
            models.append(model)
        of_losses = (losses[0] - losses[1]).abs().max().item()
        of_rows = max((models[0].embedding.weight(k) - models[1].embedding.weight(k)).abs().max().item() for k in range(len(tables)))
        agree = agree and of_losses < 1e-5 and of_rows < 5e-5
        print(f"{optimizer}: {len(losses[0])} steps; largest difference of losses {of_losses:.1e}, of rows {of_rows:.1e}; "
              f"test auc torch {test_auc(models[0], *test):.4f}, tessera {test_auc(models[1], *test):.4f}", flush=True)
    return agree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default=ADULT / "train.tsv")
    parser.add_argument("--test", default=ADULT / "test.tsv")
    parser.add_argument("--embedding", choices=["tessera", "torch"], default="tessera")
    parser.add_argument("--optimizer", choices=list(LEARNING_RATES), default="adagrad")
    parser.add_argument("--learning-rate", type=float, help=f"default: {LEARNING_RATES}")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="stop after so many; 100 by default where --check is given")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of Tessera's lookups")
    parser.add_argument("--check", action="store_true", help="train with both, by SGD and Adagrad, and compare")
    options = parser.parse_args()
    if options.embedding == "torch" and options.optimizer == "rowwise_adagrad":
        parser.error("torch.optim has no rowwise_adagrad")
    if options.check and options.steps is None:
        options.steps = 100

    labels, lines = read(options.train)
    preprocess = Preprocessing(lines)
    training = (labels, *preprocess(lines))
    labels, lines = read(options.test)
    test = (labels, *preprocess(lines))
    tables = [(len(vocabulary), options.dim) for vocabulary in preprocess.vocabularies.values()]
    if options.check:
        sys.exit(0 if check(tables, training, test, options) else "Tessera and PyTorch disagree")
    model, optimizers = build(options.embedding, tables, training[1].shape[1], options.optimizer, options)
    losses = train(model, optimizers, *training, options)
    print(f"{len(losses)} steps, {options.embedding} {options.optimizer}: last loss {losses[-1]:.4f}, "
          f"test auc {test_auc(model, *test):.4f}")


if __name__ == "__main__":
    main()
