// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/dense_network.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The features of a shard that NeuroShard's computation network reads, in the order of their names' text.
struct published_features {
  static constexpr std::int64_t count = 20;
  /// The names: bin_0, bin_1, bin_10 … bin_16, bin_2 … bin_9, dim, pooling_factor, row.
  static std::vector<std::string> names();
  /// The values of a shard.
  static std::array<double, count> of(table_profile const& shard) noexcept;
};

/// Numbers become (number - mean) / std before a network reads them; one mean and one std a number.
struct feature_scaling {
  std::vector<double> means, stds;

  friend bool operator==(feature_scaling const&, feature_scaling const&) = default;
};

/// The network that predicts the computation of shards. Each shard is taken to a representation, and the sum of those to a cost.
struct computation_network {
  feature_scaling scaling;      ///< of `published_features`
  dense_network table_network;  ///< from 20 features to a representation, with a ReLU after each layer; published: 20-128-32
  dense_network sum_network;    ///< from a representation to one number, without a ReLU at the end; published: 32-64-1
};

/// The network of the exchanges in one direction, without a ReLU at the end. It writes one number a device. `backward` reads the columns
/// of all devices, `forward` the columns, then the starts. Published: D-128-64-32-16-D and 2D-128-64-32-16-D.
struct exchange_network {
  feature_scaling scaling;
  dense_network network;
};

/// NeuroShard's cost models. Source: "Pre-train and Search: Efficient Embedding Table Sharding with Pre-trained Neural Cost Models",
/// Section 3.2 and Appendix C; what the paper leaves out is as its authors' code has it.
class published_cost {
 public:
  /// @throws tessera::error invalid_argument, naming the network and a number. It does so for numbers of inputs and outputs that do not fit
  /// together, and for a scaling of another size. Means are finite, and stds are positive too.
  published_cost(computation_network computation, exchange_network backward, exchange_network forward);

  /// The floats of a representation.
  std::int64_t width() const noexcept { return computation_.table_network.outputs(); }
  /// How many devices the exchanges are of.
  std::int64_t devices() const noexcept { return backward_.network.outputs(); }

  /// See `cost_model`, here and below.
  void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const noexcept;
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const noexcept;
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const noexcept;
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const noexcept;

  computation_network const& computation() const noexcept { return computation_; }
  exchange_network const& backward() const noexcept { return backward_; }
  exchange_network const& forward() const noexcept { return forward_; }

 private:
  computation_network computation_;
  exchange_network backward_, forward_;
};
static_assert(cost_model<published_cost>);

inline std::vector<std::string> published_features::names() {
  std::vector<std::string> result{"dim", "pooling_factor", "row"};
  for (std::int64_t bin = 0; bin < table_profile::bins; ++bin) result.push_back(detail::access_field(bin));
  std::sort(result.begin(), result.end());
  return result;
}

inline std::array<double, published_features::count> published_features::of(table_profile const& shard) noexcept {
  constexpr std::array<std::size_t, table_profile::bins> order{0, 1, 10, 11, 12, 13, 14, 15, 16, 2, 3, 4, 5, 6, 7, 8, 9};
  std::array<double, count> values{};
  for (std::size_t i = 0; i < order.size(); ++i) values[i] = shard.access[order[i]];
  values[17] = static_cast<double>(shard.dim);
  values[18] = shard.pooling_factor;
  values[19] = static_cast<double>(shard.rows);
  return values;
}

namespace detail {

inline void check_feature_scaling(char const* network, feature_scaling const& scaling, std::int64_t inputs) {
  auto const refuse = [&](char const* field, std::size_t index, double value, char const* what) {
    throw error(errc::invalid_argument, std::string("published_cost: ") + what,
                {{"network", network}, {"field", field}, {"index", index}, {"value", value}});
  };
  for (auto const* numbers : {&scaling.means, &scaling.stds})
    if (static_cast<std::int64_t>(numbers->size()) != inputs)
      throw error(errc::invalid_argument, "published_cost: another number of means or stds than the network has inputs",
                  {{"network", network}, {"found", numbers->size()}, {"expected", inputs}});
  for (std::size_t i = 0; i < scaling.means.size(); ++i) {
    if (!std::isfinite(scaling.means[i])) refuse("means", i, scaling.means[i], "a mean is finite");
    if (!(scaling.stds[i] > 0) || !std::isfinite(scaling.stds[i])) refuse("stds", i, scaling.stds[i], "a std is finite and positive");
  }
}

inline void check_network_extent(char const* network, char const* what, std::int64_t found, std::int64_t expected) {
  if (found != expected)
    throw error(errc::invalid_argument, std::string("published_cost: another number of ") + what + " than expected",
                {{"network", network}, {"found", found}, {"expected", expected}});
}

inline float scaled_feature(feature_scaling const& by, std::int64_t i, double value) noexcept {
  auto const at = static_cast<std::size_t>(i);
  return static_cast<float>((value - by.means[at]) / by.stds[at]);
}

}  // namespace detail

inline published_cost::published_cost(computation_network computation, exchange_network backward, exchange_network forward)
    : computation_(std::move(computation)), backward_(std::move(backward)), forward_(std::move(forward)) {
  detail::check_network_extent("table_layers", "inputs", computation_.table_network.inputs(), published_features::count);
  detail::check_feature_scaling("table_layers", computation_.scaling, published_features::count);
  detail::check_network_extent("pred_layers", "inputs", computation_.sum_network.inputs(), width());
  detail::check_network_extent("pred_layers", "outputs", computation_.sum_network.outputs(), 1);
  if (!computation_.table_network.relu_after_last())
    throw error(errc::invalid_argument, "published_cost: a ReLU follows the last layer of the tables' network",
                {{"network", "table_layers"}});
  detail::check_network_extent("backward", "inputs", backward_.network.inputs(), devices());
  detail::check_feature_scaling("backward", backward_.scaling, devices());
  detail::check_network_extent("forward", "outputs", forward_.network.outputs(), devices());
  detail::check_network_extent("forward", "inputs", forward_.network.inputs(), 2 * devices());
  detail::check_feature_scaling("forward", forward_.scaling, 2 * devices());
}

inline void published_cost::represent(vector_view<table_profile const> shards, matrix_view<float> representations) const noexcept {
  for (std::int64_t s = 0; s < shards.size(); ++s) {
    auto const values = published_features::of(shards[s]);
    float inputs[published_features::count];
    for (std::int64_t i = 0; i < published_features::count; ++i)
      inputs[i] = detail::scaled_feature(computation_.scaling, i, values[static_cast<std::size_t>(i)]);
    computation_.table_network(inputs, representations.row(s));
  }
}

inline void published_cost::compute_ms(matrix_view<float const> sums, vector_view<float> ms) const noexcept {
  for (std::int64_t d = 0; d < ms.size(); ++d) computation_.sum_network(sums.row(d), &ms[d]);
}

inline void published_cost::backward_ms(vector_view<float const> columns, vector_view<float> ms) const noexcept {
  float inputs[dense_network::most_width];
  for (std::int64_t d = 0; d < columns.size(); ++d)
    inputs[d] = detail::scaled_feature(backward_.scaling, d, static_cast<double>(columns[d]));
  backward_.network(inputs, ms.data());
}

inline void published_cost::forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms,
                                       vector_view<float> ms) const noexcept {
  float inputs[dense_network::most_width];
  auto const n = columns.size();
  for (std::int64_t d = 0; d < n; ++d) {
    inputs[d] = detail::scaled_feature(forward_.scaling, d, static_cast<double>(columns[d]));
    inputs[n + d] = detail::scaled_feature(forward_.scaling, n + d, static_cast<double>(starts_ms[d]));
  }
  forward_.network(inputs, ms.data());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
