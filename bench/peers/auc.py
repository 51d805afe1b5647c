# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Exact AUC of 10 million scores by scikit-learn: the peer of bench/nn/auc_bench.cpp."""

import measure
import numpy as np
from sklearn.metrics import roc_auc_score


def auc_sklearn(threads):
    generator = np.random.default_rng(3)
    count = 10_000_000
    labels = (generator.random(count) < 0.25).astype(np.int8)  # the type that is checked fastest
    logits = 2 * (generator.random((3, count)).sum(0) - 1.5) + labels - 1.5
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return lambda i: roc_auc_score(labels, scores)


if __name__ == "__main__":
    measure.main({"auc": {"sklearn": auc_sklearn}})
