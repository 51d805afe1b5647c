// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/link_model.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE double link_model::predict(std::int64_t bytes, std::int64_t level) const {
  if (level < 0 || level >= static_cast<std::int64_t>(links.size()))
    throw error(errc::out_of_range, "link_model: there is no link of this level", {{"level", level}, {"links", links.size()}});
  if (bytes < 0) throw error(errc::invalid_argument, "link_model: a negative number of bytes", {{"bytes", bytes}});
  auto const& of = links[static_cast<std::size_t>(level)];
  return of.seconds_per_message + of.seconds_per_byte * static_cast<double>(bytes);
}

TESSERA_INLINE void check_link_model(link_model const& model) {
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

TESSERA_INLINE void check_link_model(link_model const& model, topology const& topology) {
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

TESSERA_INLINE link_cost fit_link(std::string const& level, std::vector<link_sample> const& samples) {
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

TESSERA_INLINE link_model fit_link_model(std::vector<std::string> const& names, vector_view<link_sample const> samples) {
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
