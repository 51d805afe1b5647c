// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/training_run.hpp"

void examples::run_job(click_job const& j) {
  using tessera::local_tables;
  if (j.s.model == "dcn") return run_model<tessera::dcn<local_tables, TESSERA_TRAIN_GEMM>>(j);
  if (j.s.model == "deepfm") return run_model<tessera::deepfm<local_tables, TESSERA_TRAIN_GEMM>>(j);
  run_model<tessera::dlrm<local_tables, TESSERA_TRAIN_GEMM>>(j);
}
