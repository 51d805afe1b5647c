// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Training on Parquet files, where Apache Arrow is.
#ifdef TESSERA_TRAIN_PARQUET

#include "../support/session_job.hpp"
#include "../support/training_run.hpp"

void examples::run_sessions(any_job base) {
  session_job const j(std::move(base));
  auto const run = [&](auto interaction) {
    using model = tessera::click_model<tessera::local_tables, TESSERA_TRAIN_GEMM, typename decltype(interaction)::type, any_pooling>;
    run_model<model>(j);
  };
  if (j.s.model == "dcn") return run(std::type_identity<tessera::cross_layers>());
  run(std::type_identity<tessera::dot_products>());
}

#endif
