// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What it takes to send between two ranks that share a level of a topology and none further in.
struct link_cost {
  std::string level;               ///< its name
  double seconds_per_message = 0;  ///< alpha, not negative
  double seconds_per_byte = 0;     ///< beta, not negative
  double relative_error = 0;       ///< root mean square over the samples that were fitted; 0 where none were

  friend bool operator==(link_cost const&, link_cost const&) = default;
};

/// The costs of the links of a topology: alpha + beta * bytes. Link i is that of ranks whose `topology::shared_level` is i. Where the
/// outermost level has several domains, a last link is that between them, of a name of its own, such as "network".
/// Source: Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing 20, 1994.
struct link_model {
  std::vector<link_cost> links;

  /// The seconds of a message of so many bytes between ranks that share a level.
  /// @throws tessera::error out_of_range naming a level that there is no link of; invalid_argument for negative bytes.
  double predict(std::int64_t bytes, std::int64_t level) const;

  friend bool operator==(link_model const&, link_model const&) = default;
};

/// One measurement: a message of so many bytes, between ranks whose shared level is this, took so many seconds.
struct link_sample {
  std::int64_t level = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// Refuses costs that cannot be: an empty name, two links of one name, and numbers that are negative or not finite.
/// @throws tessera::error invalid_argument naming the link and its value.
void check_link_model(link_model const& model);

/// Refuses a model that is not of this topology: levels of other names or in another order, or no link between the outermost domains.
/// @throws tessera::error invalid_argument naming the level and what is there instead; also as above.
void check_link_model(link_model const& model, topology const& topology);

namespace detail {

/// Minimises the sum of ((alpha + beta * bytes - t) / t)^2 over samples of one link, with neither below 0.
///
/// With u = 1 / t and v = bytes / t that is the least squares problem alpha * u + beta * v = 1. It is solved by orthogonalisation. Where
/// one of the two came out negative, the best is at 0 of it, as the sum is convex.
link_cost fit_link(std::string const& level, std::vector<link_sample> const& samples);

}  // namespace detail

/// Fits the cost of each link to measurements: for `names[i]` those whose level is i. It minimises the sum of squares of relative errors,
/// ((alpha + beta * bytes - seconds) / seconds)^2, with alpha and beta not negative: a short message counts as much as a long one.
/// @throws tessera::error invalid_argument, naming the level, where its samples are not of two numbers of bytes at least; naming the
/// sample, for a level without a name, negative bytes, and seconds that are not finite or not above 0; and as `check_link_model`.
link_model fit_link_model(std::vector<std::string> const& names, vector_view<link_sample const> samples);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/comm/link_model.ipp>
#endif
