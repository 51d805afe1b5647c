// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "measured.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/files/posix_file.hpp>
#include <tessera/plan/sample_log_file.hpp>

#include "../support/column_plan.hpp"
#include "../support/output_files.hpp"

namespace plan_tables {

namespace {

constexpr char const* header = "plan,rank,compute_ms,backward_ms,forward_ms,crc32";
constexpr char const* names[] = {"plan", "rank", "compute_ms", "backward_ms", "forward_ms"};

}  // namespace

bool measured_costs::has_exchanges() const {
  return std::none_of(backward.begin(), backward.end(), [](double ms) { return std::isnan(ms); }) &&
         std::none_of(forward.begin(), forward.end(), [](double ms) { return std::isnan(ms); });
}

void write_measured(std::string const& path, std::vector<std::string> const& plans, std::vector<measured_costs> const& costs) {
  examples::whole_file file("--out", path);
  auto& out = file.text;
  out << header << '\n';
  auto const field = [](double ms) { return std::isnan(ms) ? std::string() : examples::text("%.6g", ms); };
  for (std::size_t p = 0; p < plans.size(); ++p)
    for (std::size_t d = 0; d < costs[p].compute.size(); ++d)
      out << tessera::detail::line_with_checksum(
          {plans[p], std::to_string(d), field(costs[p].compute[d]), field(costs[p].backward[d]), field(costs[p].forward[d])});
  file.commit();
}

measured_costs read_measured(std::string const& path, std::string const& plan, std::int64_t devices) {
  constexpr std::int64_t most_bytes = 1 << 26;
  auto const text = tessera::read_text(path, most_bytes);
  auto const lines = examples::split(text, '\n');
  if (lines.empty() || lines[0] != header)
    throw tessera::error(tessera::errc::parse_error, "measured costs: another first line",
                         {{"file", path}, {"line", 1}, {"expected", header}, {"found", lines.empty() ? "" : lines[0]}});
  if (!lines.back().empty())
    throw tessera::error(tessera::errc::parse_error, "measured costs: the last line has no end, as where a file is cut off",
                         {{"file", path}, {"line", lines.size()}, {"found", lines.back()}});
  measured_costs result(devices);
  bool has_plan = false;
  for (std::size_t l = 1; l < lines.size(); ++l) {
    if (lines[l].empty() && l + 1 == lines.size()) break;
    auto const line = static_cast<std::int64_t>(l) + 1;
    auto fields = tessera::detail::split_text(lines[l], ',');
    tessera::detail::take_checksum("measured costs", path, line, fields, std::size(names));
    double values[5] = {};
    for (std::size_t f = 1; f < 5; ++f) {
      if (f > 2 && fields[f].empty())
        values[f] = std::nan("");
      else if (!examples::parse_number(fields[f], values[f]) || values[f] < 0)
        throw tessera::error(tessera::errc::parse_error, "measured costs: not a finite number from 0",
                             {{"file", path}, {"line", line}, {"field", names[f]}, {"found", fields[f]}});
    }
    if (fields[0] != plan) continue;
    has_plan = true;
    auto const rank = values[1] < static_cast<double>(devices) ? static_cast<std::size_t>(values[1]) : result.compute.size();
    if (rank == result.compute.size() || static_cast<double>(rank) != values[1] || !std::isnan(result.compute[rank]))
      throw tessera::error(tessera::errc::parse_error, "measured costs: each device once",
                           {{"file", path}, {"line", line}, {"field", "rank"}, {"found", fields[1]}, {"devices", devices}});
    result.compute[rank] = values[2], result.backward[rank] = values[3], result.forward[rank] = values[4];
  }
  if (!has_plan)
    throw tessera::error(tessera::errc::incompatible, "measured costs: no line of this plan", {{"file", path}, {"plan", plan}});
  for (std::size_t d = 0; d < result.compute.size(); ++d)
    if (std::isnan(result.compute[d]))
      throw tessera::error(tessera::errc::parse_error, "measured costs: a device is missing", {{"file", path}, {"device", d}});
  return result;
}

}  // namespace plan_tables
