# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the module against nn.EmbeddingBag, on random bags: empty ones, repeated ids, several lookups before their backwards."""

import gc
import io
import pickle
import sys
import unittest

try:
    import torch
except ModuleNotFoundError:
    print("SKIPPED: PyTorch is not installed for this Python")
    sys.exit(77)

from tessera_embedding import DistinctBatch, TesseraEmbeddingBags, deduplicate
from train_adult import TorchEmbeddingBags, auc

TABLES = [(50, 16), (7, 3), (200, 33), (1, 1)]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def random_batch(samples, tables=TABLES):
    lengths = torch.randint(0, 5, (len(tables), samples))
    ids = [torch.randint(0, rows, (int(n.sum()),)) for (rows, _), n in zip(tables, lengths)]
    return torch.cat(ids), torch.nn.functional.pad(lengths.reshape(-1).cumsum(0), (1, 0))


def pair(mode, optimizer="sgd", rate=0.1, threads=2):
    """Both layers with the same rows."""
    ours, theirs = TesseraEmbeddingBags(TABLES, optimizer, rate, mode, threads), TorchEmbeddingBags(TABLES, mode)
    for k in range(len(TABLES)):
        theirs.weight(k).copy_(ours.weight(k))
    return ours, theirs


class EmbeddingTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        torch.sparse.check_sparse_tensor_invariants.disable()

    def assert_same_rows(self, ours, theirs):
        for k in range(len(TABLES)):
            torch.testing.assert_close(ours.weight(k), theirs.weight(k), **CLOSE)

    def test_trains_as_embedding_bag(self):
        # SparseAdam adds its epsilon elsewhere, which large gradients hide; Adam's steps do not depend on their size.
        optimizers = {"sgd": (torch.optim.SGD, 1), "adagrad": (torch.optim.Adagrad, 1), "adam": (torch.optim.SparseAdam, 1000)}
        for name, (kind, size) in optimizers.items():
            for mode in ("sum", "mean"):
                with self.subTest(optimizer=name, mode=mode):
                    ours, theirs = pair(mode, name)
                    optimizer = kind(list(theirs.parameters()), 0.1)
                    for samples in (1, 9, 300, 64):
                        batch, gradient = random_batch(samples), size * torch.randn(samples, 53)
                        a, b = ours(*batch), theirs(*batch)
                        torch.testing.assert_close(a, b, **CLOSE)
                        optimizer.zero_grad()
                        a.backward(gradient)
                        b.backward(gradient)
                        optimizer.step()
                    self.assert_same_rows(ours, theirs)

    def test_empty_batch(self):
        layer = pair("sum")[0]
        before = layer.weight(2).clone()
        pooled = layer(torch.empty(0, dtype=torch.int64), torch.tensor([0]))
        self.assertEqual(pooled.shape, (0, 53))
        pooled.sum().backward()
        self.assertTrue(torch.equal(layer.weight(2), before))

    def test_rowwise_adagrad_by_hand(self):
        layer = TesseraEmbeddingBags([(3, 2)], "rowwise_adagrad", 0.5)
        layer.weight(0).zero_()
        layer(torch.tensor([1]), torch.tensor([0, 1])).backward(torch.tensor([[3.0, 4.0]]))
        torch.testing.assert_close(layer.state(0), torch.tensor([[0.0], [12.5], [0.0]]))
        torch.testing.assert_close(layer.weight(0)[1], -0.5 * torch.tensor([3.0, 4.0]) / 12.5**0.5)

    def test_several_lookups_wait_for_their_backward(self):
        ours, theirs = pair("sum")
        optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
        batches = [random_batch(20) for _ in range(3)]
        results, gradients = [ours(*b) for b in batches], [torch.randn(20, 53) for _ in batches]
        for k in (1, 0, 2):
            results[k].backward(gradients[k])
            optimizer.zero_grad()
            theirs(*batches[k]).backward(gradients[k])
            optimizer.step()
        self.assert_same_rows(ours, theirs)

    def test_one_backward_of_two_lookups(self):
        ours, theirs = pair("sum")
        a, b = random_batch(20), random_batch(20)
        (ours(*a) * ours(*b)).sum().backward()
        optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
        (theirs(*a) * theirs(*b)).sum().backward()
        optimizer.step()
        self.assert_same_rows(ours, theirs)

    def test_gradients_of_any_strides(self):
        batch = random_batch(20)
        gradient = torch.randn(20, 60)
        column_major, one_row = gradient.t().contiguous().t()[:, :53], gradient[:1, :53]
        for given in (gradient[:, 4:57], column_major, one_row.expand(20, 53), torch.ones(1, 1).expand(20, 53)):
            ours, theirs = pair("sum")
            ours(*batch).backward(given)
            theirs(*batch).backward(given.contiguous())
            torch.optim.SGD(theirs.parameters(), 0.1).step()
            self.assert_same_rows(ours, theirs)

    def test_threads_change_no_bit(self):
        layers = [pair("mean", "adagrad", threads=threads)[0] for threads in (1, 3)]
        layers[1].load_state_dict(layers[0].state_dict())
        for _ in range(3):
            batch, gradient = random_batch(500), torch.randn(500, 53)
            for layer in layers:
                layer(*batch).backward(gradient)
        for a, b in zip(layers[0].buffers(), layers[1].buffers()):
            self.assertTrue(torch.equal(a, b))

    def test_evaluation_records_nothing(self):
        layer, batch = pair("sum")[0], random_batch(5)
        trained = layer(*batch)
        with torch.no_grad():
            evaluated = layer(*batch)
        self.assertTrue(trained.requires_grad)
        self.assertFalse(evaluated.requires_grad)
        self.assertTrue(torch.equal(trained, evaluated))

    def test_state_dict_resumes_training(self):
        first, second = pair("sum", "adam")[0], pair("sum", "adam")[0]
        batches, gradients = [random_batch(20) for _ in range(4)], [torch.randn(20, 53) for _ in range(4)]
        for batch, gradient in zip(batches[:2], gradients):
            first(*batch).backward(gradient)
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        second.load_state_dict(torch.load(file))
        for layer in (first, second):
            for batch, gradient in zip(batches[2:], gradients[2:]):
                layer(*batch).backward(gradient)
        for a, b in zip(first.buffers(), second.buffers()):
            self.assertTrue(torch.equal(a, b))

    def test_memory_is_shared(self):
        layer = TesseraEmbeddingBags([(4, 2)], "sgd", 1.0)
        weight = layer.weight(0)
        weight.copy_(torch.arange(8.0).reshape(4, 2))
        pooled = layer(torch.tensor([3, 0]), torch.tensor([0, 2]))
        self.assertEqual(pooled.tolist(), [[6.0, 8.0]])
        pooled.backward(torch.ones(1, 2))
        self.assertEqual(weight.tolist(), [[-1.0, 0.0], [2.0, 3.0], [4.0, 5.0], [5.0, 6.0]])
        del layer
        gc.collect()
        self.assertEqual(weight.tolist(), [[-1.0, 0.0], [2.0, 3.0], [4.0, 5.0], [5.0, 6.0]])

    def test_result_outlives_the_layer(self):
        pooled = TesseraEmbeddingBags([(4, 2)])(torch.tensor([3, 0]), torch.tensor([0, 2]))
        gc.collect()
        pooled.sum().backward()

    def test_learning_rate_changes(self):
        layer = TesseraEmbeddingBags([(1, 1)], "sgd", 1.0)
        layer.weight(0).zero_()
        layer.set_learning_rate(0.25)
        layer(torch.tensor([0]), torch.tensor([0, 1])).sum().backward()
        self.assertEqual(layer.weight(0).item(), -0.25)

    def test_bad_input_is_named(self):
        layer = TesseraEmbeddingBags([(4, 2), (3, 2)], "sgd")
        before = layer.weight(0).clone()
        ids, offsets = torch.tensor([0, 1]), torch.tensor([0, 1, 2])
        wrong = {
            "ids: .*another element type": (ids.int(), offsets),
            "ids: .*do not follow each other": (torch.zeros(4, dtype=torch.int64)[::2], offsets),
            "ids: .*number of dimensions": (ids.reshape(1, 2), offsets),
            "offsets: .*another element type": (ids, offsets.float()),
            "offsets: tables times samples, plus one .offsets 2, tables 2": (ids, offsets[:2]),
            "offsets 0, tables 2": (ids, offsets[:0]),
            "id out of range .*table 1.*id 3, rows 3": (torch.tensor([0, 3]), offsets),
            "id out of range .*id -1": (torch.tensor([-1, 0]), offsets),
        }
        for message, batch in wrong.items():
            for enabled in (True, False):
                with self.subTest(message), torch.set_grad_enabled(enabled), self.assertRaisesRegex(RuntimeError, message):
                    layer(*batch)
        for bad in (torch.tensor([0, 2, 1]), torch.tensor([0, 1, 3]), torch.tensor([-1, 1, 2])):
            with self.subTest(offsets=bad), self.assertRaises(RuntimeError):
                layer(ids, bad)
        with self.assertRaisesRegex(RuntimeError, "optimizer lamb"):
            TesseraEmbeddingBags([(4, 2)], "lamb")
        with self.assertRaisesRegex(RuntimeError, "rows -1"):
            TesseraEmbeddingBags([(-1, 2)])
        self.assertTrue(torch.equal(layer.weight(0), before))

    def test_a_lookup_updates_once(self):
        layer = TesseraEmbeddingBags([(4, 2)], "sgd", 1.0)
        ids, offsets = torch.tensor([3, 0]), torch.tensor([0, 2])
        loss = layer(ids, offsets).sum()
        loss.backward(retain_graph=True)
        after = layer.weight(0).clone()
        with self.assertRaisesRegex(RuntimeError, "updated its rows already"):
            loss.backward()
        loss = layer(ids, offsets).sum()
        ids[0] = 1
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()
        self.assertTrue(torch.equal(layer.weight(0), after))

    def test_memory_stays(self):
        layer = TesseraEmbeddingBags([(4, 2)])
        address = layer.weight(0).data_ptr()
        layer.float().cpu()
        with self.assertRaisesRegex(RuntimeError, "stay where they are"):
            torch.nn.Sequential(layer).double()
        with self.assertRaisesRegex(RuntimeError, "stay where they are"):
            layer.load_state_dict(layer.state_dict(), assign=True)
        self.assertEqual(layer.weight(0).data_ptr(), address)
        self.assertEqual(layer.weight(0).dtype, torch.float32)


def as_lists(ids, offsets, rows_per_key):
    """The bags of each table."""
    bags = [part.tolist() for part in ids.split(offsets.diff().tolist())]
    ends = torch.tensor([0, *rows_per_key]).cumsum(0).tolist()
    return [bags[first:last] for first, last in zip(ends, ends[1:])]


def repeated_batch(samples, distinct):
    """Bags that repeat: those of table k are those of one of `distinct` samples, which are others for the last table."""
    bags = as_lists(*random_batch(distinct), [distinct] * len(TABLES))
    chosen = [torch.randint(0, distinct, (samples,)).tolist()] * (len(TABLES) - 1) + [torch.randint(0, distinct, (samples,)).tolist()]
    bags = [[of[i] for i in rows] for of, rows in zip(bags, chosen)]
    flat = [torch.tensor(bag, dtype=torch.int64) for of in bags for bag in of]
    return torch.cat(flat), torch.tensor([0, *map(len, flat)]).cumsum(0)


class DeduplicatedTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(8)

    def test_distinct_bags_by_hand(self):
        # Two tables in a group: samples 0 and 2 agree in both, 1 only in the second. The third table is in none.
        bags = [[[1, 2], [3], [1, 2]], [[4], [4], [4]], [[5], [5, 6], []]]
        ids = torch.tensor([id_ for of in bags for bag in of for id_ in bag])
        offsets = torch.tensor([0] + [len(bag) for of in bags for bag in of]).cumsum(0)
        batch = deduplicate(ids, offsets, 3, [2])
        self.assertEqual(as_lists(batch.ids, batch.offsets, batch.rows_per_key), [[[1, 2], [3]], [[4], [4]], bags[2]])
        self.assertEqual(batch.inverses.tolist(), [[0, 1, 0]])
        self.assertEqual(batch.rows_per_key, [2, 2, 3])
        apart = deduplicate(ids, offsets, 3, [1, 1, 1])
        self.assertEqual(apart.inverses.tolist(), [[0, 1, 0], [0, 0, 0], [0, 1, 2]])
        self.assertEqual(apart.rows_per_key, [2, 1, 3])

    def test_trains_as_the_whole_batch(self):
        for optimizer in ("sgd", "adagrad"):
            for mode in ("sum", "mean"):
                for groups in ([4], [1, 2], [3], [3, 1], [1, 1, 1, 1], []):
                    with self.subTest(optimizer=optimizer, mode=mode, groups=groups):
                        distinct, whole = (pair(mode, optimizer)[0] for _ in range(2))
                        whole.load_state_dict(distinct.state_dict())
                        for samples in (1, 40, 300):
                            given, gradient = repeated_batch(samples, 20), torch.randn(samples, 53)
                            batch = deduplicate(*given, 4, groups)
                            a, b = distinct(*batch), whole(*given)
                            with torch.no_grad():
                                self.assertTrue(torch.equal(distinct(*batch), a))
                            torch.testing.assert_close(a, b, **CLOSE)
                            if samples == 1:
                                self.assertTrue(torch.equal(a, b))  # later, rows differ by rounding
                            a.backward(gradient)
                            b.backward(gradient)
                        for k in range(4):
                            torch.testing.assert_close(distinct.weight(k), whole.weight(k), **CLOSE)
                        given = repeated_batch(50, 10)
                        whole.load_state_dict(distinct.state_dict())
                        self.assertTrue(torch.equal(distinct(*deduplicate(*given, 4, groups)), whole(*given)))

    def test_tensors_of_ones_own(self):
        lists = torch.randint(0, 50, (9, 6))[torch.randint(0, 9, (200,))]
        rows, inverse = torch.unique(lists, dim=0, return_inverse=True)
        offsets = 6 * torch.arange(len(rows) + 1)
        wider = torch.zeros(1, 300, dtype=torch.int64)
        wider[0, 50:250] = inverse
        layer, other = TesseraEmbeddingBags([(50, 16)], "sgd", 0.1), torch.nn.EmbeddingBag(50, 16, mode="sum")
        layer.weight(0).copy_(other.weight.detach())
        gradient = torch.randn(200, 16)
        a, b = layer(rows.reshape(-1), offsets, wider[:, 50:250], [1], [len(rows)]), other(lists)
        torch.testing.assert_close(a, b, **CLOSE)
        a.backward(gradient)
        b.backward(gradient)
        torch.optim.SGD(other.parameters(), 0.1).step()
        torch.testing.assert_close(layer.weight(0), other.weight.detach(), **CLOSE)

    def test_memory_is_shared(self):
        layer = TesseraEmbeddingBags([(4, 2)], "sgd", 1.0)
        layer.weight(0).copy_(torch.arange(8.0).reshape(4, 2))
        batch = deduplicate(torch.tensor([3, 3]), torch.tensor([0, 1, 2]), 1, [1])
        addresses = [part.data_ptr() for part in batch[:3]]
        copied = pickle.loads(pickle.dumps(batch))
        gc.collect()
        self.assertEqual(layer(*batch).tolist(), [[6.0, 7.0]] * 2)
        self.assertEqual(layer(*copied).tolist(), [[6.0, 7.0]] * 2)
        batch.ids[0] = 1  # what is looked up is this very memory
        self.assertEqual(layer(*batch).tolist(), [[2.0, 3.0]] * 2)
        self.assertEqual([part.data_ptr() for part in batch[:3]], addresses)
        inverses = batch.inverses
        del batch
        gc.collect()
        self.assertEqual(inverses.tolist(), [[0, 0]])

    def test_empty_batch(self):
        layer = pair("sum")[0]
        batch = deduplicate(torch.empty(0, dtype=torch.int64), torch.tensor([0]), 4, [2, 1])
        self.assertEqual(batch.inverses.shape, (2, 0))
        pooled = layer(*batch)
        self.assertEqual(pooled.shape, (0, 53))
        pooled.sum().backward()

    def test_bad_input_is_named(self):
        layer = TesseraEmbeddingBags([(4, 2), (3, 2)], "sgd")
        before = layer.weight(0).clone()
        batch = deduplicate(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 3, 4]), 2, [1])
        self.assertEqual(batch.rows_per_key, [1, 2])
        for message, wrong in {
            "inverses: .*another element type": {"inverses": batch.inverses.int()},
            "inverses: .*number of dimensions": {"inverses": batch.inverses[0]},
            "inverses: one a group .inverses 1, groups 2": {"keys_per_group": [1, 1]},
            "rows_per_key: one number a table.*numbers 1, tables 2": {"rows_per_key": [3]},
            "rows_per_key: more rows than offsets.*rows 3": {"rows_per_key": [1, 3]},
            "rows_per_key: more rows than offsets.*rows -1": {"rows_per_key": [-1, 4]},
            "a key without a group has a row a sample": {"inverses": batch.inverses[:, :1]},
            "no such row.*row 1, rows 1": {"inverses": batch.inverses + 1},
            "id out of range .*id 4, rows 4": {"ids": torch.tensor([4, 1, 1])},
        }.items():
            for enabled in (True, False):
                with self.subTest(message), torch.set_grad_enabled(enabled), self.assertRaisesRegex(RuntimeError, message):
                    layer(*DistinctBatch(**(batch._asdict() | wrong)))
        with self.assertRaisesRegex(RuntimeError, "groups are one key or more each.*group 1"):
            deduplicate(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), 2, [1, 2])
        with self.assertRaisesRegex(RuntimeError, "offsets: tables times samples, plus one"):
            deduplicate(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), 3, [1])
        loss = layer(*batch).sum()
        batch.inverses.zero_()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()
        self.assertTrue(torch.equal(layer.weight(0), before))


class AucTest(unittest.TestCase):
    def test_counts_pairs(self):
        torch.manual_seed(7)
        scores, labels = torch.randint(0, 9, (60,)).float(), torch.randint(0, 2, (60,)).float()
        difference = scores[labels == 1][:, None] - scores[labels == 0][None, :]
        pairs = (difference > 0).double() + 0.5 * (difference == 0).double()
        self.assertAlmostEqual(auc(scores, labels), pairs.mean().item(), places=12)


if __name__ == "__main__":
    unittest.main()
