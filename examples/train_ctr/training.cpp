// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/training_run.hpp"

void examples::run_job(training_job const& j) {
  auto const run = [&](auto interaction) {
    run_model<tessera::click_model<tessera::sharded_tables, TESSERA_TRAIN_GEMM, typename decltype(interaction)::type, any_pooling>>(j);
  };
  if (j.s.model == "dcn") return run(std::type_identity<tessera::cross_layers>());
  if (j.s.model == "deepfm") return run(std::type_identity<tessera::factorization>());
  run(std::type_identity<tessera::dot_products>());
}
