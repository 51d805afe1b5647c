// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/cost_samples.ipp>
#include <tessera/plan/draw_accesses.ipp>
#include <tessera/plan/found_plan.ipp>
#include <tessera/plan/roofline_cost.ipp>
#include <tessera/plan/sample_log_file.ipp>
