// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <fstream>
#include <map>

#include <tessera/tessera_files.hpp>

#include "report.hpp"

namespace recd {

namespace {

tessera::bar_chart chart_of_reading(char const* title, reading_result const (&sides)[2]) {
  auto const part = [&](char const* name, double tessera::reader_times::*time) {
    return tessera::bar_part(name,
                             {a_thousand(sides[0].times.*time, sides[0].samples), a_thousand(sides[1].times.*time, sides[1].samples)});
  };
  return {title,
          "ms a thousand samples",
          {"order of inference", "clustered, IKJT"},
          {part("fill", &tessera::reader_times::fill), part("convert", &tessera::reader_times::convert),
           part("process", &tessera::reader_times::process)}};
}

// Each way's stages a sample, relative to the baseline's whole.
tessera::bar_chart chart_of_stages(trainer_result const& of) {
  std::vector<std::string> names;
  std::vector<double> lookups, pooling, dense, updates, rest;
  for (auto const& way : of.ways) {
    auto const scale = of.baseline().rate() / static_cast<double>(way.samples);
    names.push_back(way.name);
    lookups.push_back(way.times.lookup * scale);
    pooling.push_back(way.times.pooling * scale);
    dense.push_back(way.times.dense * scale);
    updates.push_back(way.times.update * scale);
    rest.push_back(way.rest() * scale);
  }
  return {of.set,
          "time a sample, baseline = 1",
          names,
          {{"lookups", lookups}, {"pooling of sequences", pooling}, {"dense", dense}, {"updates", updates}, {"rest", rest}}};
}

// Sessions by their samples, in bins that double.
tessera::line_chart chart_of_sessions(char const* title, repeat_figures const& repeats) {
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
  return {title,
          "log2 of the fewest samples of a bin",
          "% of sessions",
          {line("the log", repeats.sessions), line("batches of 4,096 in the order of inference", repeats.batch_sessions)}};
}

tessera::line_chart chart_of_repeats(char const* title, repeat_figures const& repeats) {
  std::vector<double> numbers, exact, partial;
  for (std::size_t f = 0; f < repeats.exact.size(); ++f) {
    numbers.push_back(static_cast<double>(f));
    exact.push_back(100 * repeats.exact[f]);
    partial.push_back(100 * repeats.partial[f]);
  }
  return {title, "features, most repeated first", "%", {{"lists", numbers, exact}, {"ids", numbers, partial}}};
}

}  // namespace

void report::write_page(std::string const& path) const {
  tessera::html_page page("RecD from storage to trainer");
  page.paragraph(
      "Every repeated row of features stored, moved, looked up and pooled once, against a run that knows nothing of it. By factors: what "
      "the baseline's stage times and memory say, where each stage does as much less as the batches of this run have it. Paper: the "
      "figures of Zhao et al., MLSys 2023, at their numbers of samples a batch, of their models, data and machines; the batch of their RM1 "
      "baseline is 2048.");
  page.table({"stage", "here", "by factors", "paper", "how"}, rows());
  page.heading("What repeats (as Figures 3 and 4)");
  page.paragraph(
      "Of a log that is fitted to the paper's, and of the RM1-like one that is stored and trained on here, which is fixed by its features, "
      "their lengths and how often they change.");
  page.table({"", "paper", "fitted", "RM1-like"}, repeat_rows());
  page.charts({chart_of_sessions("Samples a session, fitted log", fitted_), chart_of_repeats("What comes again, fitted log", fitted_)});
  page.charts({chart_of_sessions("Samples a session, RM1-like log", stored_.repeats),
               chart_of_repeats("What comes again, RM1-like log", stored_.repeats)});
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
              {"reader, remote", "reader, cached", "storage", "storage, bests"},
              {{"RecD", {read_.remote_ratio(), read_.cached_ratio(), stored_.ratio(), stored_.best_ratio()}}}}});
  page.heading("Where a step's time goes (as Figure 8)");
  std::vector<tessera::bar_chart> stages{chart_of_stages(rm1_)};
  for (auto const& other : others_) stages.push_back(chart_of_stages(other));
  page.bars(stages);
  page.heading("What each optimization adds (as Figure 9)");
  page.paragraph(
      "All ways but the last train on the same samples: the first sessions of the clustered log, and for the baseline these samples sorted "
      "by time, so that its batches mix fewer sessions than the whole log's would. The last one's batch is as large as fits in the "
      "baseline's peak memory; of its samples, which are more, the baseline's time is scaled stage by stage.");
  std::vector<std::string> names;
  std::vector<double> ladder, memory;
  for (auto const& way : rm1_.ways) {
    names.push_back(way.name);
    ladder.push_back(rm1_.ratio(way.name));
    memory.push_back(way.peak.bytes / 1e9);
  }
  page.bars({{"Throughput, RM1-like", "times the baseline's", names, {{"throughput", ladder}}},
             {"Peak memory of inputs and activations", "GB", names, {{"peak", memory}}}});
  page.heading("Where a reader's time goes (as Figure 10)");
  page.bars({chart_of_reading("Remote file", read_.remote), chart_of_reading("Page cache", read_.cached)});
  page.heading("Files");
  std::vector<std::vector<std::string>> files;
  for (auto const& file : stored_.files)
    files.push_back({order_of(file.clustered), settings_of(file), megabytes(file.bytes),
                     times(static_cast<double>(stored_.value_bytes) / static_cast<double>(file.bytes))});
  page.table({"order", "settings", "size", "of the values"}, files);
  page.paragraph("One by one at the entropy of their feature's frequencies, ids would take " + megabytes(stored_.entropy_bytes) +
                 ", those that are new in their session " + megabytes(stored_.distinct_entropy_bytes) +
                 ": an estimate to compare with, no bound of what codes can do that see past single ids.");
  std::ofstream out(path);
  out << page.text();
  if (!out.flush()) throw tessera::error(tessera::errc::io_error, "cannot write the page", {{"file", path}});
}

}  // namespace recd
