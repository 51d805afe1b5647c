// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: tables
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/data/column_profile.hpp>
#include <tessera/data/column_profile_file.hpp>
#include <tessera/data/columns_file.hpp>
#include <tessera/data/derived_columns.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/source_profile.hpp>
#include <tessera/files/json.hpp>
#include <tessera/train/progress.hpp>

#include "../support/data_columns.hpp"
#include "../support/output_files.hpp"
#include "../support/profile_job.hpp"
#include "../support/settings.hpp"

namespace examples {

namespace {

using tessera::data_profile;

// Lines of cells: the first two of each stand left, the others right.
using cells = std::vector<std::string>;

void print(std::vector<cells> const& lines) {
  if (lines.size() < 2) return;
  std::vector<std::size_t> widths(lines[0].size());
  for (auto const& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  std::puts("");
  for (auto const& line : lines) {
    std::string shown;
    for (std::size_t c = 0; c < line.size(); ++c) {
      std::string const room(widths[c] - line[c].size(), ' ');
      shown += (c == 0 ? "" : "  ") + (c < 2 ? line[c] + room : room + line[c]);
    }
    std::puts(shown.c_str());
  }
}

std::string count(std::int64_t n) {
  auto digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}
std::string count(tessera::estimated_count const& n) {
  return n.is_exact ? count(n.value) : "~" + count(n.value) + text(" +-%.2g%%", 100 * n.standard_error);
}
std::string percent(double share) { return share == 0 ? "0%" : text(share < 0.0005 ? "%.1g%%" : "%.1f%%", 100 * share); }
std::string number(double value) { return std::isnan(value) ? "-" : text("%.4g", value); }
std::string quantile(std::vector<tessera::quantile_value> const& all, double share) {
  auto const found = std::find_if(all.begin(), all.end(), [share](auto const& q) { return q.share == share; });
  return found == all.end() ? "-" : number(found->value);
}

void print_labels(data_profile const& profile) {
  for (auto const& label : profile.numbers) {
    if (label.role != tessera::number_role::label && label.role != tessera::number_role::other_label) continue;
    auto const others = label.numbers() - label.zeros - label.ones;
    std::printf("%s %s: %.4g%% ones", name_of(label.role), label.name.c_str(), 100 * label.one_share());
    if (others > 0) std::printf(", %s neither 0 nor 1", count(others).c_str());
    if (label.missing > 0) std::printf(", %s missing", count(label.missing).c_str());
    std::puts("");
  }
}

void print_numbers(data_profile const& profile) {
  std::vector<cells> lines{{"numbers", "", "missing", "zeros", "least", "1%", "median", "99%", "largest", "mean", "deviation"}};
  for (auto const& c : profile.numbers) {
    if (c.role != tessera::number_role::dense && c.role != tessera::number_role::weight) continue;
    lines.push_back({c.name, c.role == tessera::number_role::weight ? "weight" : "", percent(c.missing_share()), percent(c.zero_share()),
                     number(c.least), quantile(c.quantiles, 0.01), quantile(c.quantiles, 0.5), quantile(c.quantiles, 0.99),
                     number(c.largest), number(c.mean), number(c.deviation)});
  }
  print(lines);
  if (lines.size() > 1) std::puts("Quantiles are approximate: less than 1/128 too near 0.");
}

bool has_estimates(data_profile const& profile) {
  return std::any_of(profile.ids.begin(), profile.ids.end(),
                     [](auto const& c) { return !c.distinct.is_exact || (c.repeats && !c.repeats->is_exact()); });
}

void print_ids(data_profile const& profile) {
  if (profile.ids.empty()) return;
  bool const lists = std::any_of(profile.ids.begin(), profile.ids.end(), [](auto const& c) { return !c.is_single; });
  bool const sessions = profile.sessions.has_value();
  cells head{"ids", "", "missing", "distinct"};
  for (auto const& top : profile.ids[0].top) head.push_back(text("top %g%%", 100 * top.ids));
  if (lists) head.insert(head.end(), {"mean length", "median", "99%", "longest"});
  if (sessions) head.insert(head.end(), {"session rows", "session ids"});
  std::vector<cells> lines{std::move(head)};
  for (auto const& c : profile.ids) {
    cells line{c.name, c.is_single ? "one" : "list", percent(c.missing_share()), count(c.distinct)};
    for (auto const& top : c.top)
      line.push_back(percent(top.lookups) + (c.distinct.is_exact ? "" : text(" +-%.2g", 100 * top.standard_error)));
    if (lists)
      line.insert(line.end(), {number(c.lengths.mean), quantile(c.lengths.quantiles, 0.5), quantile(c.lengths.quantiles, 0.99),
                               count(c.lengths.largest)});
    if (sessions)
      for (bool const ids : {false, true})
        line.push_back(
            !c.repeats ? "-" : text("%s%.2fx", c.repeats->is_exact() ? "" : "~", ids ? c.repeats->id_factor() : c.repeats->row_factor()));
    lines.push_back(std::move(line));
  }
  print(lines);
  std::puts("Top: the share of lookups that go to the most frequent of the distinct ids.");
  if (sessions) std::puts("Session: how many times fewer rows and ids there are where a session keeps each list once.");
  if (has_estimates(profile)) std::puts("~: estimated from a random sample of ids or sessions; +-: the standard error.");
}

void print_profile(data_profile const& profile) {
  std::printf("%s rows\n", count(profile.rows).c_str());
  print_labels(profile);
  if (auto const& s = profile.sessions)
    std::printf("session %s: %s, of %.4g samples in the mean, %s in the median\n", s->name.c_str(), count(s->sessions).c_str(),
                s->mean_samples, quantile(s->quantiles, 0.5).c_str());
  if (auto const& t = profile.times)
    std::printf("time %s: %lld to %lld\n", t->name.c_str(), static_cast<long long>(t->least), static_cast<long long>(t->largest));
  print_numbers(profile);
  print_ids(profile);
}

}  // namespace

int run_profile(std::vector<std::string> const& files, tessera::data_description const& data, tessera::host_exec const& exec,
                profile_settings const& s) {
  if (!s.json.empty()) whole_file::check("--json", s.json);  // now, not after all was read
  tessera::stopwatch watch;
  tessera::source_profile profile(tessera::schema_with(data.schema, data.derived), s.options);
  bool const shows = isatty(STDERR_FILENO) != 0;
  if (reads_while_opening(files, data)) {  // how many rows there are is known only at the end
    tessera::progress clock(stderr, shows, 0);
    open_any_files(exec, files, data, [&](tessera::sample_columns_view samples) {
      profile.add(exec, samples);
      if (!shows || !clock.due()) return;
      clock.show(profile.rows(), count(profile.rows()) + " rows");
    });
    clock.clear();
  } else {
    auto const source = open_any_files(exec, files, data);
    tessera::progress bar(stderr, shows, source.rows());
    tessera::sample_columns columns;
    for (std::int64_t block = 0; block < source.block_count(); ++block) {
      source.read(exec, block, columns);
      profile.add(exec, columns.view());
      if (shows && bar.due()) bar.show(profile.rows(), count(profile.rows()) + " rows");
    }
    bar.clear();
  }
  auto const found = profile.result(exec);
  auto const seconds = watch.lap();
  print_profile(found);
  std::fflush(stdout);
  std::fprintf(stderr, "Read in %.1f s, %s rows/s; the profile took %.1f MB.\n", seconds,
               count(std::llround(static_cast<double>(found.rows) / std::max(seconds, 1e-9))).c_str(),
               static_cast<double>(profile.bytes()) / 1e6);
  if (s.json.empty()) return 0;
  whole_file file("--json", s.json);
  file.text << tessera::print_json(tessera::profile_json(found), s.json, 2) << '\n';
  file.commit();
  return 0;
}

}  // namespace examples
