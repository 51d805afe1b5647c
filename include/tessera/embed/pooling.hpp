// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How the rows of a bag become one vector. An empty bag gives zeros.
enum class pooling : std::uint8_t {
  sum,
  mean,  ///< the sum over the bag's length; weights do not change the divisor
  max,   ///< the largest element of each column, of an unweighted batch on the host; its gradient goes to the first row that has it
};

/// The name of a pooling, as a checkpoint has it.
constexpr std::string_view name(pooling mode) noexcept {
  switch (mode) {
    case pooling::sum: return "sum";
    case pooling::mean: return "mean";
    case pooling::max: return "max";
  }
  return "pooling";
}

/// What a bag's sum is multiplied by.
TESSERA_HOST_DEVICE constexpr float pooling_scale(pooling mode, std::int64_t length) noexcept {
  return mode == pooling::mean && length > 1 ? 1.0F / static_cast<float>(length) : 1.0F;
}

/// How one key of a batch is looked up.
struct pooled_feature {
  std::int64_t table = 0;  ///< index into the tables of the call; several features may share a table
  tessera::pooling pooling = tessera::pooling::sum;

  /// Whether a bag's vector is the maximum of its rows.
  constexpr bool is_largest() const noexcept { return pooling == tessera::pooling::max; }
};

namespace detail {

/// Whether a feature has a vector for each id. It has where it is just the number of its table, or says so.
template <class Feature>
constexpr bool is_sequence(Feature const& feature) noexcept {
  if constexpr (requires { feature.sequence; })
    return feature.sequence;
  else
    return std::integral<Feature>;
}

inline void check_poolings(char const* call, vector_view<pooled_feature const> features) {
  for (std::int64_t key = 0; key < features.size(); ++key)
    if (features[key].pooling > pooling::max)
      throw error(errc::invalid_argument, std::string(call) + ": no such pooling",
                  {{"feature", key}, {"pooling", static_cast<int>(features[key].pooling)}});
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
