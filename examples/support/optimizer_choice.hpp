// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/types.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/nn/learning_rate.hpp>
#include <tessera/train/any_source.hpp>
#include <tessera/train/trainer_options.hpp>

#include "settings.hpp"

namespace examples {

template <class Optimizer>
using decaying = tessera::with_weight_decay<Optimizer>;

/// The optimizers that the command line may name.
using row_optimizer_choice =
    std::variant<decaying<tessera::sgd>, decaying<tessera::momentum_sgd>, decaying<tessera::rowwise_adagrad>, decaying<tessera::adagrad>,
                 decaying<tessera::adam>, decaying<tessera::rowwise_adam>, decaying<tessera::ftrl>>;
using dense_optimizer_choice = std::variant<tessera::sgd, tessera::momentum_sgd, tessera::adagrad, tessera::adam, tessera::ftrl>;

inline row_optimizer_choice choose_row_optimizer(table_settings const& s) {
  auto const rate = s.embedding_lr, decay = s.embedding_weight_decay;
  if (s.embedding_optimizer == "sgd") return decaying<tessera::sgd>{{rate}, decay};
  if (s.embedding_optimizer == "momentum") return decaying<tessera::momentum_sgd>{{rate}, decay};
  if (s.embedding_optimizer == "adagrad") return decaying<tessera::adagrad>{{rate}, decay};
  if (s.embedding_optimizer == "adam") return decaying<tessera::adam>{{rate}, decay};
  if (s.embedding_optimizer == "rowwise-adam") return decaying<tessera::rowwise_adam>{{rate}, decay};
  if (s.embedding_optimizer == "ftrl") return decaying<tessera::ftrl>{{rate}, decay};
  return decaying<tessera::rowwise_adagrad>{{rate}, decay};
}

inline dense_optimizer_choice choose_dense_optimizer(settings const& s) {
  if (s.optimizer == "sgd") return tessera::sgd{s.lr};
  if (s.optimizer == "momentum") return tessera::momentum_sgd{s.lr};
  if (s.optimizer == "adagrad") return tessera::adagrad{s.lr};
  if (s.optimizer == "ftrl") return tessera::ftrl{s.lr};
  return tessera::adam{s.lr};
}

/// Gives the optimizer of each table here this share of its rate; `features`: of each table. In train_ctr/tables.cpp.
void set_row_learning_rates(settings const& s, tessera::any_source& tables, std::vector<std::string> const& features, float share);

/// Sets the rates of the step about to be taken.
template <class Trainer>
void set_learning_rates(settings const& s, std::vector<std::string> const& features, Trainer& run, tessera::step_count step) {
  bool const falls = s.lr_schedule != "constant";
  if (!falls && s.warmup_steps == 0) return;
  tessera::polynomial_decay shape{.rate = 1, .power = s.lr_schedule == "linear" ? 1.0F : 2.0F, .end_rate = falls ? 0.0F : 1.0F};
  shape.start = s.decay_start;
  shape.steps = s.decay_steps;
  auto const share = tessera::warm_up{shape, s.warmup_steps}(step);
  set_row_learning_rates(s, run.model().source(), features, share);
  tessera::with_optimizer(run.dense_optimizer(), [&](auto& optimizer) { tessera::set_learning_rate(optimizer, share * s.lr); });
}

}  // namespace examples
