// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <utility>

#include <tessera/tessera_files.hpp>

namespace recd {

namespace {

std::string text(char const* format, auto... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}
std::string times(double ratio) { return text("%.2fx", ratio); }
std::string megabytes(double bytes) { return text("%.1f MB", bytes / 1e6); }
std::string settings_of(stored_file const& file) {
  return std::string(file.dictionary ? "dictionary" : "plain") + text(", %lld rows a group", static_cast<long long>(file.row_group_rows));
}

// Ids a second of one kind of time, as milliseconds a thousand samples.
double a_thousand(double seconds, reading_result const& of) { return 1e6 * seconds / static_cast<double>(of.samples); }

tessera::bar_chart chart_of_reading(char const* title, reading_result const (&sides)[2]) {
  auto const part = [&](char const* name, double tessera::reader_times::*time) {
    return tessera::bar_part(name, {a_thousand(sides[0].times.*time, sides[0]), a_thousand(sides[1].times.*time, sides[1])});
  };
  return {title,
          "ms a thousand samples",
          {"order of inference", "clustered, IKJT"},
          {part("fill", &tessera::reader_times::fill), part("convert", &tessera::reader_times::convert),
           part("process", &tessera::reader_times::process)}};
}

// Each way's stages, relative to the first way's step, for as many samples.
tessera::bar_chart chart_of_stages(trainer_result const& of) {
  std::vector<std::string> names;
  std::vector<double> lookups, pooling, dense, updates;
  auto const scale = 1 / of.ways.front().seconds;  // all train on the same samples
  for (auto const& way : of.ways) {
    names.push_back(way.name);
    lookups.push_back((way.times.sequence_lookup + way.times.pooled_lookup) * scale);
    pooling.push_back(way.times.pooling * scale);
    dense.push_back(way.times.dense * scale);
    updates.push_back((way.times.sequence_update + way.times.pooled_update) * scale);
  }
  return {of.set,
          "time a sample, baseline = 1",
          names,
          {{"lookups", lookups}, {"pooling of sequences", pooling}, {"dense", dense}, {"updates", updates}}};
}

// Sessions by their samples, in bins that double.
tessera::line_chart chart_of_sessions(repeat_figures const& repeats) {
  auto const line = [](char const* name, std::map<std::int64_t, std::int64_t> const& histogram) {
    std::vector<double> x, y;
    double all = 0;
    for (auto const& [samples, count] : histogram) all += static_cast<double>(count);
    for (std::int64_t least = 1; !histogram.empty() && least <= histogram.rbegin()->first; least *= 2) {
      double sum = 0;
      for (auto at = histogram.lower_bound(least); at != histogram.end() && at->first < 2 * least; ++at)
        sum += static_cast<double>(at->second);
      x.push_back(std::log2(static_cast<double>(least)));
      y.push_back(100 * sum / all);
    }
    return tessera::chart_series(name, x, y, true);
  };
  return {"Samples a session",
          "log2 of the fewest samples of a bin",
          "% of sessions",
          {line("the log", repeats.sessions), line("batches of 4,096 in the order of inference", repeats.batch_sessions)}};
}

tessera::line_chart chart_of_repeats(repeat_figures const& repeats) {
  std::vector<double> numbers, exact, partial;
  for (std::size_t f = 0; f < repeats.exact.size(); ++f) {
    numbers.push_back(static_cast<double>(f));
    exact.push_back(100 * repeats.exact[f]);
    partial.push_back(100 * repeats.partial[f]);
  }
  return {"What comes again within sessions", "features, most repeated first", "%", {{"lists", numbers, exact}, {"ids", numbers, partial}}};
}

}  // namespace

std::vector<std::vector<std::string>> report::rows() const {
  std::vector<std::vector<std::string>> rows;
  auto const add = [&](std::string what, std::string ours, std::string bound, std::string paper, std::string how) {
    rows.push_back({std::move(what), std::move(ours), std::move(bound), std::move(paper), std::move(how)});
  };
  auto const& best = stored_.best(true);
  add("storage, equal settings", times(stored_.ratio()), times(stored_.entropy_bytes / stored_.distinct_entropy_bytes), "3.71x",
      "Parquet, " + settings_of(best) + ": " + megabytes(static_cast<double>(stored_.like(best, false).bytes)) + " to " +
          megabytes(static_cast<double>(best.bytes)) + "; bound: ids at their entropy");
  add("storage, each at its best", times(stored_.best_ratio()), "", "", settings_of(stored_.best(false)) + " against " + settings_of(best));
  add("log store", text("%.2fx to %.2fx", stored_.log_by_sample, stored_.log_by_session), "", "1.50x to 2.25x",
      "compressed by sample, and by session");
  add("reader, remote file", times(read_.remote_ratio()), "", "1.79x",
      text("source of %.0f MB/s; %.0f to %.0f samples/s", plan_.source_mb_per_second, read_.remote[0].rate(), read_.remote[1].rate()));
  add("reader, page cache", times(read_.cached_ratio()), "", "",
      text("%.0f to %.0f samples/s", read_.cached[0].rate(), read_.cached[1].rate()));
  auto const& base = rm1_.ways.front();
  for (auto const& way : rm1_.ways) {
    auto const paper = way.name == "clustered"  ? "1.00x"
                       : way.name == "+ O5, O6" ? "1.34x"
                       : way.name == "+ O7"     ? "1.89x (2.42x)"
                                                : "2.48x";
    if (&way == &base) continue;
    add("trainer, " + rm1_.set + ", " + way.name, times(rm1_.ratio(way.name)), way.name == "+ O7" ? times(rm1_.bound()) : "", paper,
        text("batch %lld, peak %.0f %% of the baseline's", static_cast<long long>(way.batch),
             100 * static_cast<double>(way.peak_bytes) / static_cast<double>(base.peak_bytes)));
  }
  for (auto const& other : others_)
    add("trainer, " + other.set, times(other.ratio("RecD")), times(other.bound()), other.set == "RM2-like" ? "1.25x" : "1.43x",
        text("sequences by sum; %.1f times fewer ids", other.factor));
  add("no repeats, auto", times(none_.ratio("auto")), "", "", "what is recommended: nothing");
  add("no repeats, forced", times(none_.ratio("forced")), "", "", "groups all the same");
  return rows;
}

void report::print() const {
  std::printf("\n%-44s %16s %8s %14s  %s\n", "", "here", "bound", "paper", "");
  for (auto const& row : rows())
    std::printf("%-44s %16s %8s %14s  %s\n", row[0].c_str(), row[1].c_str(), row[2].c_str(), row[3].c_str(), row[4].c_str());
  auto const& repeats = stored_.repeats;
  std::printf(
      "\nlog: %.1f samples a session, %.2f in a batch of 4,096; lists that come again %.1f %%, ids %.1f %%; by bytes %.1f %% and %.1f %%\n",
      repeats.samples_a_session, repeats.samples_in_batch, 100 * repeats.means.exact, 100 * repeats.means.partial,
      100 * repeats.means.exact_by_bytes, 100 * repeats.means.partial_by_bytes);
  std::printf("files, %lld samples, %s of values:\n", static_cast<long long>(stored_.rows),
              megabytes(static_cast<double>(stored_.value_bytes)).c_str());
  for (auto const& file : stored_.files)
    std::printf("  %-18s %-32s %s\n", file.clustered ? "clustered" : "order of inference", settings_of(file).c_str(),
                megabytes(static_cast<double>(file.bytes)).c_str());
  std::printf("  ids at the entropy of their frequencies: %s, new ones of a session %s\n", megabytes(stored_.entropy_bytes).c_str(),
              megabytes(stored_.distinct_entropy_bytes).c_str());
  for (auto const* sides : {&read_.remote, &read_.cached})
    for (auto const& side : *sides)
      std::printf("reader, %s, %-18s fill %.0f convert %.0f process %.0f ms a thousand samples; %s read, %s sent\n",
                  sides == &read_.remote ? "remote" : "cached", &side == &(*sides)[0] ? "order of inference" : "clustered, IKJT",
                  a_thousand(side.times.fill, side), a_thousand(side.times.convert, side), a_thousand(side.times.process, side),
                  megabytes(static_cast<double>(side.read_bytes)).c_str(), megabytes(static_cast<double>(side.sent_bytes)).c_str());
  auto const show = [](trainer_result const& set) {
    for (auto const& way : set.ways) {
      auto const each = 1e6 / static_cast<double>(way.samples);
      std::printf("%-10s %-12s ms a thousand samples: lookup %.0f pooling %.0f bags %.0f dense %.0f updates %.0f\n", set.set.c_str(),
                  way.name.c_str(), way.times.sequence_lookup * each, way.times.pooling * each, way.times.pooled_lookup * each,
                  way.times.dense * each, (way.times.sequence_update + way.times.pooled_update) * each);
    }
  };
  show(rm1_);
  for (auto const& other : others_) show(other);
  show(none_);
  std::printf("%s: %.1f times fewer ids a batch, %.1f %% of the baseline's peak memory, where the factors predict %.1f %%\n",
              rm1_.set.c_str(), rm1_.factor,
              100 * static_cast<double>(rm1_.of("+ O7").peak_bytes) / static_cast<double>(rm1_.ways.front().peak_bytes),
              100 * rm1_.expected_memory());
}

void report::write_page(std::string const& path) const {
  tessera::html_page page("RecD from storage to trainer: " + std::to_string(stored_.rows) + " samples of sessions");
  page.paragraph(
      "Every repeated row of features stored, moved, looked up and pooled once, against a run that knows nothing of it. Beside what was "
      "measured here: the bound that stage times of the same run give, and the paper's figures (Zhao et al., MLSys 2023), which are of "
      "its models, data and machines.");
  page.table({"stage", "here", "bound", "paper", "how"}, rows());
  auto const& repeats = stored_.repeats;
  page.heading("What repeats (as Figures 3 and 4)");
  page.paragraph(text(
      "Samples a session: %.1f in the log (paper: 16.5), %.2f in a batch of 4,096 (1.15 with an hour's sessions open at once). Lists that "
      "come again: %.1f %%, ids: %.1f %%; by bytes %.1f %% and %.1f %%.",
      repeats.samples_a_session, repeats.samples_in_batch, 100 * repeats.means.exact, 100 * repeats.means.partial,
      100 * repeats.means.exact_by_bytes, 100 * repeats.means.partial_by_bytes));
  page.paragraph(
      "The paper's dataset has 80.0 % and 83.9 %, by bytes 81.6 % and 89.4 %; bench/quality/session_statistics measures a set that was "
      "fitted to "
      "these, while this one is fixed by features, lengths and how often they change.");
  page.charts({chart_of_sessions(repeats), chart_of_repeats(repeats)});
  page.heading("Trainer, reader and storage (as Figure 7)");
  std::vector<std::string> sets{rm1_.set};
  std::vector<double> ratios{rm1_.ratio("+ batch")};
  for (auto const& other : others_) {
    sets.push_back(other.set);
    ratios.push_back(other.ratio("RecD"));
  }
  page.bars({{"Trainer throughput", "times the baseline's", sets, {{"RecD", ratios}}},
             {"Reader throughput and storage, RM1-like",
              "times the baseline's",
              {"reader, remote", "reader, cached", "storage"},
              {{"RecD", {read_.remote_ratio(), read_.cached_ratio(), stored_.ratio()}}}}});
  page.heading("Where a step's time goes (as Figure 8)");
  std::vector<tessera::bar_chart> stages{chart_of_stages(rm1_)};
  for (auto const& other : others_) stages.push_back(chart_of_stages(other));
  page.bars(stages);
  page.heading("What each optimization adds (as Figure 9)");
  std::vector<std::string> names;
  std::vector<double> ladder, memory;
  for (auto const& way : rm1_.ways) {
    names.push_back(way.name);
    ladder.push_back(rm1_.ratio(way.name));
    memory.push_back(static_cast<double>(way.peak_bytes) / 1e9);
  }
  page.bars({{"Throughput, RM1-like", "times the baseline's", names, {{"throughput", ladder}}},
             {"Peak memory of inputs and activations", "GB", names, {{"peak", memory}}}});
  page.heading("Where a reader's time goes (as Figure 10)");
  page.bars({chart_of_reading("Remote file", read_.remote), chart_of_reading("Page cache", read_.cached)});
  page.heading("Files");
  std::vector<std::vector<std::string>> files;
  for (auto const& file : stored_.files)
    files.push_back({file.clustered ? "clustered" : "order of inference", settings_of(file), megabytes(static_cast<double>(file.bytes)),
                     times(static_cast<double>(stored_.value_bytes) / static_cast<double>(file.bytes))});
  page.table({"order", "settings", "size", "of the values"}, files);
  std::ofstream out(path);
  out << page.text();
  if (!out.flush()) throw tessera::error(tessera::errc::io_error, "cannot write the page", {{"file", path}});
}

void report::print_last_line() const {
  std::printf("storage=%.2fx reader=%.2fx trainer=%.2fx trainer_equal_memory=%.2fx\n", stored_.ratio(), read_.remote_ratio(),
              rm1_.ratio("+ O7"), rm1_.ratio("+ batch"));
}

}  // namespace recd
