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
  double predict(std::int64_t bytes, std::int64_t level) const {
    if (level < 0 || level >= static_cast<std::int64_t>(links.size()))
      throw error(errc::out_of_range, "link_model: there is no link of this level", {{"level", level}, {"links", links.size()}});
    if (bytes < 0) throw error(errc::invalid_argument, "link_model: a negative number of bytes", {{"bytes", bytes}});
    auto const& of = links[static_cast<std::size_t>(level)];
    return of.seconds_per_message + of.seconds_per_byte * static_cast<double>(bytes);
  }

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
inline void check_link_model(link_model const& model) {
  for (std::size_t i = 0; i < model.links.size(); ++i) {
    auto const& link = model.links[i];
    if (link.level.empty()) throw error(errc::invalid_argument, "link_model: the name of a link's level is empty", {{"link", i}});
    for (std::size_t j = 0; j < i; ++j)
      if (model.links[j].level == link.level)
        throw error(errc::invalid_argument, "link_model: two links are of one level", {{"level", link.level}});
    for (double const cost : {link.seconds_per_message, link.seconds_per_byte, link.relative_error})
      if (!(cost >= 0) || !std::isfinite(cost))
        throw error(errc::invalid_argument, "link_model: a cost is no finite number from 0", {{"level", link.level}, {"cost", cost}});
  }
}

/// Refuses a model that is not of this topology: levels of other names or in another order, or no link between the outermost domains.
/// @throws tessera::error invalid_argument naming the level and what is there instead; also as above.
inline void check_link_model(link_model const& model, topology const& topology) {
  check_link_model(model);
  auto const links = static_cast<std::int64_t>(model.links.size()), levels = topology.levels();
  for (std::int64_t level = 0; level < levels && level < links; ++level)
    if (auto const& link = model.links[static_cast<std::size_t>(level)]; link.level != topology.name(level))
      throw error(errc::invalid_argument, "link_model: a link is of another level than the topology's",
                  {{"link", level}, {"level", topology.name(level)}, {"found", link.level}});
  bool const is_one = levels == 0 ? topology.ranks() == 1 : topology.domains(levels - 1) == 1;
  if (links < levels + !is_one || links > levels + 1)
    throw error(
        errc::invalid_argument, "link_model: it has another number of links than the topology needs",
        {{"links", links}, {"levels", levels}, {"outermost domains", levels == 0 ? topology.ranks() : topology.domains(levels - 1)}});
}

namespace detail {

/// Minimises the sum of ((alpha + beta * bytes - t) / t)^2 over samples of one link, with neither below 0.
///
/// With u = 1 / t and v = bytes / t that is the least squares problem alpha * u + beta * v = 1. It is solved by orthogonalisation. Where
/// one of the two came out negative, the best is at 0 of it, as the sum is convex.
inline link_cost fit_link(std::string const& level, std::vector<link_sample> const& samples) {
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0, across = 0, across1 = 0;
  for (auto const& s : samples) {
    double const u = 1 / s.seconds, v = static_cast<double>(s.bytes) / s.seconds;
    uu += u * u, uv += u * v, vv += v * v, u1 += u, v1 += v;
  }
  for (auto const& s : samples) {
    double const u = 1 / s.seconds, rest = static_cast<double>(s.bytes) / s.seconds - uv / uu * u;
    across += rest * rest, across1 += rest;
  }
  link_cost result{level, 0, across1 / across, 0};
  result.seconds_per_message = (u1 - result.seconds_per_byte * uv) / uu;
  if (result.seconds_per_byte < 0) result = {level, u1 / uu, 0, 0};
  if (result.seconds_per_message < 0) result = {level, 0, v1 / vv, 0};
  double squares = 0;
  for (auto const& s : samples) {
    double const predicted = result.seconds_per_message + result.seconds_per_byte * static_cast<double>(s.bytes);
    squares += (predicted / s.seconds - 1) * (predicted / s.seconds - 1);
  }
  result.relative_error = std::sqrt(squares / static_cast<double>(samples.size()));
  return result;
}

}  // namespace detail

/// Fits the cost of each link to measurements: for `names[i]` those whose level is i. It minimises the sum of squares of relative errors,
/// ((alpha + beta * bytes - seconds) / seconds)^2, with alpha and beta not negative: a short message counts as much as a long one.
/// @throws tessera::error invalid_argument, naming the level, where its samples are not of two numbers of bytes at least; naming the
/// sample, for a level without a name, negative bytes, and seconds that are not finite or not above 0; and as `check_link_model`.
inline link_model fit_link_model(std::vector<std::string> const& names, vector_view<link_sample const> samples) {
  std::vector<std::vector<link_sample>> of_level(names.size());
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    auto const& s = samples[i];
    if (s.level < 0 || s.level >= static_cast<std::int64_t>(names.size()) || s.bytes < 0 || !(s.seconds > 0) || !std::isfinite(s.seconds))
      throw error(errc::invalid_argument, "fit_link_model: a sample cannot be",
                  {{"sample", i}, {"level", s.level}, {"levels", names.size()}, {"bytes", s.bytes}, {"seconds", s.seconds}});
    of_level[static_cast<std::size_t>(s.level)].push_back(s);
  }
  link_model result;
  for (std::size_t l = 0; l < names.size(); ++l) {
    bool differ = false;
    for (auto const& s : of_level[l]) differ = differ || s.bytes != of_level[l][0].bytes;
    if (!differ)
      throw error(errc::invalid_argument, "fit_link_model: a level needs samples of two numbers of bytes at least",
                  {{"level", names[l]}, {"samples", of_level[l].size()}});
    result.links.push_back(detail::fit_link(names[l], of_level[l]));
  }
  check_link_model(result);
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
