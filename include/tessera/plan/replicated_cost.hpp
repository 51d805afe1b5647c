// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The costs of tables beside others that all devices hold, the replicas: a model of the tables that are still to be placed.
///
/// Each device looks up its share of the replicas' bags, and exchanges their gradients (`columns_of_replica`). Updates of rows that only
/// other devices' shares read are not counted. Other than in `cost_model`, `backward_ms` takes memory.
template <cost_model M>
class replicated_cost {
 public:
  static constexpr std::int64_t most_width = 128;

  /// Refers to the model, which outlives it.
  /// @throws tessera::error invalid_argument for less than one device, for devices that the model is not of, and for a width above
  /// `most_width`; as `represent`.
  replicated_cost(M const& model, vector_view<table_profile const> replicas, std::int64_t devices) : model_(&model), devices_(devices) {
    detail::check_devices("replicated_cost", model, devices);
    if (width() > most_width)
      throw error(errc::invalid_argument, "replicated_cost: a representation that is too wide",
                  {{"width", width()}, {"most_width", most_width}});
    std::vector<table_profile> shares;
    for (auto const& table : replicas) {
      shares.push_back(profile_of_replica(table, devices));
      columns_ += static_cast<float>(columns_of_replica(table, devices));
    }
    std::vector<float> of_shares(shares.size() * static_cast<std::size_t>(width()));
    matrix_view<float> const all(of_shares.data(), static_cast<std::int64_t>(shares.size()), width());
    model.represent(shares, all);
    sum_.resize(static_cast<std::size_t>(width()));
    for (std::int64_t s = 0; s < all.rows(); ++s)
      for (std::int64_t i = 0; i < width(); ++i) sum_[static_cast<std::size_t>(i)] += all(s, i);
  }

  std::int64_t width() const { return static_cast<std::int64_t>(model_->width()); }
  std::int64_t devices() const noexcept { return devices_; }
  /// See `cost_model`, here and below.
  void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const {
    model_->represent(shards, representations);
  }
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const {
    std::array<float, most_width> with_replicas;
    for (std::int64_t d = 0; d < ms.size(); ++d) {
      for (std::int64_t i = 0; i < width(); ++i)
        with_replicas[static_cast<std::size_t>(i)] = sums(d, i) + sum_[static_cast<std::size_t>(i)];
      model_->compute_ms(matrix_view<float const>(with_replicas.data(), 1, width()), ms.slice(d, 1));
    }
  }
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const {
    std::vector<float> all(columns.begin(), columns.end());
    for (auto& of : all) of += columns_;
    model_->backward_ms(all, ms);
  }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const {
    model_->forward_ms(columns, starts_ms, ms);
  }

 private:
  M const* model_;
  std::int64_t devices_;
  std::vector<float> sum_;  // of the replicas' representations, (width,)
  float columns_ = 0;       // that they add to each device's backward
};

}  // namespace TESSERA_ABI
}  // namespace tessera
