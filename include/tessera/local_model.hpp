// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model that one process trains, and its trainer: layers, losses and metrics beside all that is in <tessera/lookups.hpp>.
#include <tessera/lookups.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/calibration.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/nn/gradient_clipping.hpp>
#include <tessera/nn/learning_rate.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/nn/metrics.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/evaluation.hpp>
#include <tessera/train/feature_interaction.hpp>
#include <tessera/train/pooling_choice.hpp>
#include <tessera/train/sequence_pooler.hpp>
#include <tessera/train/trainer.hpp>
#include <tessera/train/trainer_options.hpp>
