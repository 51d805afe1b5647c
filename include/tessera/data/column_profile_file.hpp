// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <tessera/data/column_profile.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline nlohmann::json count_json(estimated_count const& count) {
  nlohmann::json json{{"value", count.value}, {"kind", count.is_exact ? "exact" : "estimated"}};
  if (!count.is_exact) json["standard_error"] = count.standard_error;
  return json;
}

// NaN and infinity are nothing that JSON has.
inline nlohmann::json figure_json(double figure) { return std::isfinite(figure) ? nlohmann::json(figure) : nlohmann::json(); }

inline nlohmann::json quantiles_json(std::vector<quantile_value> const& quantiles) {
  auto json = nlohmann::json::array();
  for (auto const& q : quantiles) json.push_back({{"share", q.share}, {"value", figure_json(q.value)}});
  return json;
}

inline nlohmann::json number_json(number_profile const& column) {
  return {{"name", column.name},
          {"role", name_of(column.role)},
          {"rows", column.rows},
          {"missing", column.missing},
          {"missing_share", column.missing_share()},
          {"infinite", column.infinite},
          {"zeros", column.zeros},
          {"zero_share", column.zero_share()},
          {"ones", column.ones},
          {"one_share", column.one_share()},
          {"least", figure_json(column.least)},
          {"largest", figure_json(column.largest)},
          {"mean", figure_json(column.mean)},
          {"deviation", figure_json(column.deviation)},
          {"approximate_quantiles", quantiles_json(column.quantiles)}};
}

inline nlohmann::json ids_json(id_profile const& column) {
  nlohmann::json json{{"name", column.name},
                      {"role", column.is_single ? "id" : "list of ids"},
                      {"rows", column.rows},
                      {"missing", column.missing},
                      {"missing_share", column.missing_share()},
                      {"lookups", column.lookups},
                      {"distinct", count_json(column.distinct)},
                      {"lengths",
                       {{"least", column.lengths.least},
                        {"largest", column.lengths.largest},
                        {"mean", column.lengths.mean},
                        {"approximate_quantiles", quantiles_json(column.lengths.quantiles)}}},
                      {"top", nlohmann::json::array()}};
  for (auto const& top : column.top) {
    nlohmann::json share{{"ids", top.ids}, {"lookups", top.lookups}, {"kind", column.distinct.is_exact ? "exact" : "estimated"}};
    if (!column.distinct.is_exact) share["standard_error"] = top.standard_error;
    json["top"].push_back(std::move(share));
  }
  if (auto const& r = column.repeats)
    json["within_sessions"] = {{"kind", r->is_exact() ? "exact" : "estimated"},
                               {"share_of_sessions", r->sessions},
                               {"rows", r->rows},
                               {"kept_rows", r->kept_rows},
                               {"row_factor", r->row_factor()},
                               {"ids", r->ids},
                               {"kept_ids", r->kept_ids},
                               {"id_factor", r->id_factor()}};
  return json;
}

}  // namespace detail

/// Returns a profile as JSON: "rows", "numbers" and "ids" column by column, and "sessions" and "times" where there are any. Each figure
/// that may be estimated has a "kind": "exact", or "estimated" with its standard error. NaN and infinity, for which JSON has no word,
/// become null.
inline nlohmann::json profile_json(data_profile const& profile) {
  nlohmann::json json{{"rows", profile.rows}, {"numbers", nlohmann::json::array()}, {"ids", nlohmann::json::array()}};
  for (auto const& column : profile.numbers) json["numbers"].push_back(detail::number_json(column));
  for (auto const& column : profile.ids) json["ids"].push_back(detail::ids_json(column));
  if (auto const& s = profile.sessions)
    json["sessions"] = {{"name", s->name},
                        {"count", detail::count_json(s->sessions)},
                        {"mean_samples", s->mean_samples},
                        {"quantiles_of_samples", detail::quantiles_json(s->quantiles)}};
  if (auto const& t = profile.times) json["times"] = {{"name", t->name}, {"least", t->least}, {"largest", t->largest}};
  return json;
}

/// Writes `profile_json` to a file. @throws tessera::error as `write_json`.
inline void write_profile(std::string const& path, data_profile const& profile) { write_json(path, profile_json(profile)); }

}  // namespace TESSERA_ABI
}  // namespace tessera
