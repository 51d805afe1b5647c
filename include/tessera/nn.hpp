// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of nn/ but the products by BLAS and oneDNN: layers, losses, metrics, and products by Eigen.
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/attention_blocks.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/batch_norm.hpp>
#include <tessera/nn/binned_auc.hpp>
#include <tessera/nn/calibration.hpp>
#include <tessera/nn/cross_net.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/nn/factorization_machine.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/nn/gradient_clipping.hpp>
#include <tessera/nn/grouped_auc.hpp>
#include <tessera/nn/jagged_attention.hpp>
#include <tessera/nn/layer_norm.hpp>
#include <tessera/nn/learning_rate.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/nn/metrics.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/nn/register_tiles.hpp>
#include <tessera/nn/sequence_pooling.hpp>
#include <tessera/nn/target_attention.hpp>
#include <tessera/nn/target_pairs.hpp>
#include <tessera/nn/task_heads.hpp>
#include <tessera/nn/transformer_encoder.hpp>
#include <tessera/nn/transformer_layer.hpp>
#include <tessera/nn/windowed.hpp>
