// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/philox.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera_tests {

/// Random batches of multi-hot ids with bags of 0 … 4 ids, and labels that depend on the first feature's ids.
class click_batches {
 public:
  click_batches(std::int64_t dense_features, std::vector<std::int64_t> rows, tessera::random_seed seed)
      : dense_features_(dense_features), rows_(std::move(rows)), seed_(seed) {}

  /// The view is valid until the next call.
  tessera::batch_view next(tessera::host_exec const& exec, std::int64_t samples) {
    dense_.clear();
    labels_.assign(static_cast<std::size_t>(samples), 0.0F);
    sample_ids_.clear();
    for (std::int64_t i = 0; i < samples; ++i) sample_ids_.push_back(i);
    for (std::int64_t i = 0; i < samples * dense_features_; ++i) dense_.push_back(tessera::uniform_symmetric(draw(), 1.0F));
    std::vector<tessera::feature_rows<std::int64_t>> features;
    for (std::size_t f = 0; f < rows_.size(); ++f) {
      std::vector<std::vector<std::int64_t>> bags(static_cast<std::size_t>(samples));
      for (std::size_t s = 0; s < bags.size(); ++s)
        for (auto length = draw() % 5; length > 0; --length) {
          bags[s].push_back(static_cast<std::int64_t>(draw() % static_cast<std::uint32_t>(rows_[f])));
          if (f == 0) labels_[s] = static_cast<float>(bags[s].back() % 2);
        }
      features.emplace_back("feature " + std::to_string(f), std::move(bags));
    }
    ids_ = tessera::keyed_jagged<>::from_rows(exec, features);
    tessera::batch_view batch{{dense_.data(), samples, dense_features_}, labels_, std::as_const(ids_).view(), sample_ids_};
    batch.id = batches_++;
    return batch;
  }

 private:
  std::uint32_t draw() { return tessera::philox(seed_, draws_++, 0, 0)[0]; }

  std::int64_t dense_features_;
  std::vector<std::int64_t> rows_;
  tessera::random_seed seed_;
  std::uint64_t draws_ = 0;
  std::int64_t batches_ = 0;
  std::vector<float> dense_, labels_;
  std::vector<std::int64_t> sample_ids_;
  tessera::keyed_jagged<> ids_;
};

}  // namespace tessera_tests
