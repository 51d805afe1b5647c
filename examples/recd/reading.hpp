// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/data/dense_steps.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/id_transforms.hpp>

namespace recd {

/// Bytes of a batch as it goes to a trainer.
inline std::int64_t bytes_of(tessera::batch_view const& batch) {
  auto const numbers = batch.sparse.size() + batch.sparse.rows() + 1 + batch.groups.size() * batch.samples() + batch.sample_ids.size();
  return 8 * numbers + 4 * (batch.dense.rows() * batch.dense.columns() + batch.labels.size());
}

/// What a job asks of its readers: truncation to the last 200 ids, and hashing to the rows of the tables.
inline tessera::preprocessing preparation(tessera::sample_schema const& schema) {
  return tessera::preprocessing(schema, {{.steps = {tessera::log_values{}}}},
                                {{.steps = {tessera::truncate_ids{.most = 200}, tessera::hash_ids{.size = 100'000}}}});
}

}  // namespace recd
