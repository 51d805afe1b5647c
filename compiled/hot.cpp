// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/hot/access_profile.ipp>
#include <tessera/hot/choose_hot_rows.ipp>
#include <tessera/hot/classify_samples.ipp>
#include <tessera/hot/estimate_hot_rows.ipp>
#include <tessera/hot/expected_hot_step.ipp>
#include <tessera/hot/hot_inputs.ipp>
#include <tessera/hot/hot_rows.ipp>
#include <tessera/hot/hot_tables.ipp>
#include <tessera/hot/parted_batch.ipp>
