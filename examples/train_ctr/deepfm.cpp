// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/training_run.hpp"

void examples::run_deepfm(training_job& j) { run_model<trained_model<tessera::factorization>>(j); }
