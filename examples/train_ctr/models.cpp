// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: training
#include "../support/training_run.hpp"

// In one file: most of what they instantiate is the same.
void examples::run_dlrm(training_job& j) { run_model<trained_model<tessera::dot_products>>(j); }
void examples::run_dcn(training_job& j) { run_model<trained_model<tessera::cross_layers>>(j); }
void examples::run_deepfm(training_job& j) { run_model<trained_model<tessera::factorization>>(j); }
