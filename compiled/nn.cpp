// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/attention_blocks.ipp>
#include <tessera/nn/batch_norm.ipp>
#include <tessera/nn/cross_net.ipp>
#include <tessera/nn/grouped_auc.ipp>
#include <tessera/nn/layer_norm.ipp>
#include <tessera/nn/linear.ipp>
#include <tessera/nn/loss.ipp>
#include <tessera/nn/metrics.ipp>
#include <tessera/nn/mlp.ipp>
#include <tessera/nn/target_attention.ipp>
#include <tessera/nn/transformer_encoder.ipp>
