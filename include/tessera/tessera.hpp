// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything on the host but what reads or writes JSON, which is in <tessera/tessera_files.hpp>.
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/segmented_reduce.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/unique.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/batch.hpp>
#include <tessera/data/batch_reader.hpp>
#include <tessera/data/click_log.hpp>
#include <tessera/data/click_statistics.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/nn/metrics.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/train/dlrm.hpp>
#include <tessera/train/evaluation.hpp>
#include <tessera/train/progress.hpp>
#include <tessera/train/trainer.hpp>
