// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include <tessera/core/error.hpp>
#include <tessera/data/sample_reader_options.hpp>

#include "../support/html_page.hpp"
#include "report.hpp"

namespace recd {

namespace {

examples::bar_chart chart_of_reading(char const* title, reading_result const (&ways)[reading_ways]) {
  auto const part = [&](char const* name, double tessera::reader_times::*time) {
    std::vector<double> of_ways;
    for (auto const& way : ways) of_ways.push_back(a_thousand(way.times.*time, way.samples));
    return examples::bar_part(name, of_ways);
  };
  return {title,
          "ms a thousand samples",
          {std::begin(reading_names), std::end(reading_names)},
          {part("fill", &tessera::reader_times::fill), part("convert", &tessera::reader_times::convert),
           part("process", &tessera::reader_times::process)}};
}

// Each way's stages a sample, relative to the baseline's whole.
examples::bar_chart chart_of_stages(trainer_result const& of) {
  std::vector<std::string> names;
  std::vector<double> lookups, pooling, dense, updates, rest;
  for (auto const& way : of.ways) {
    auto const scale = of.baseline().rate() / static_cast<double>(way.samples);
    auto const stages = way.stages();
    names.push_back(way.name);
    lookups.push_back(stages.lookup * scale);
    pooling.push_back(stages.pooling * scale);
    dense.push_back(stages.dense * scale);
    updates.push_back(stages.update * scale);
    rest.push_back(way.rest() * scale);
  }
  return {name_of(of),
          "time a sample, baseline = 1",
          names,
          {{"lookups", lookups}, {"pooling of sequences", pooling}, {"dense", dense}, {"updates", updates}, {"rest", rest}}};
}

// Sessions by their samples, in bins that double.
examples::line_chart chart_of_sessions(char const* title, repeat_figures const& repeats) {
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
    return examples::chart_series(name, x, y, true);
  };
  return {title,
          "log2 of the fewest samples of a bin",
          "% of sessions",
          {line("the log", repeats.sessions), line("batches of 4,096 in the order of inference", repeats.batch_sessions)}};
}

examples::line_chart chart_of_repeats(char const* title, repeat_figures const& repeats) {
  std::vector<double> numbers, exact, partial;
  for (std::size_t f = 0; f < repeats.exact.size(); ++f) {
    numbers.push_back(static_cast<double>(f));
    exact.push_back(100 * repeats.exact[f]);
    partial.push_back(100 * repeats.partial[f]);
  }
  return {title, "features, most repeated first", "%", {{"lists", numbers, exact}, {"ids", numbers, partial}}};
}

void write_repeats(examples::html_page& page, plan const& plan, repeat_figures const& fitted, repeat_figures const& stored) {
  page.paragraph(
      plan.fitted
          ? "The log's features are those of a set that is fitted to the paper's figures, every eleventh of its 733. Of their repeats in a "
            "session, and of the samples a session has, nothing changes with the size of the log. How many samples of a session a batch in "
            "the order of inference has does: it falls with the sessions that are open at once. Of 60,000 it is the paper's; the log that "
            "is "
            "stored, read and trained on here has fewer."
          : "The first column of ours is of a log that is fitted to the paper's; the log that is stored, read and trained on here is given "
            "by "
            "its features, their lengths and how often they change.");
  page.charts({chart_of_sessions("Samples a session, 60,000 sessions at once", fitted),
               chart_of_repeats("What comes again, 60,000 sessions at once", fitted)});
  page.charts({chart_of_sessions("Samples a session, this log", stored), chart_of_repeats("What comes again, this log", stored)});
}

void write_ladder(examples::html_page& page, trainer_result const& rm1) {
  page.heading("What each optimization adds (as Figure 9)");
  page.paragraph(
      "All ways but the last train on the same samples: the first sessions of the clustered log, and for the baseline these samples sorted "
      "by time, so that its batches mix fewer sessions than the whole log's would. The last one's batch is as large as fits in the "
      "baseline's peak memory; of its samples, which are more, the baseline's time is scaled stage by stage. Where its rates and those "
      "of the batch before lie in one range, the larger batch gains nothing beyond noise. Peak memory is that of inputs and "
      "activations: it leaves out " +
      text("tables, %.2f GB on either side.", rm1.table_bytes / 1e9));
  std::vector<std::string> names;
  std::vector<double> ladder, memory;
  std::vector<std::vector<std::string>> rates;
  for (auto const& way : rm1.ways) {
    names.push_back(way.name);
    ladder.push_back(rm1.ratio(way.name));
    memory.push_back(way.peak.bytes / 1e9);
    rates.push_back({way.name, text("%lld", static_cast<long long>(way.batch)), text("%zu", way.step_seconds.size()),
                     text("%.0f", way.rate()), text("%.0f", way.slowest()), text("%.0f", way.fastest())});
  }
  page.bars({{"Throughput, RM1-like", "times the baseline's", names, {{"throughput", ladder}}},
             {"Peak memory of inputs and activations", "GB", names, {{"peak", memory}}}});
  page.table({"way", "batch", "steps timed", "samples/s, median", "slowest", "fastest"}, rates);
}

// What the trainer's figure rests on: how much of a step transformers take.
void write_transformers(examples::html_page& page, trainer_result const& rm1, std::vector<trainer_result> const& fewer) {
  page.heading("What the trainer's gain rests on");
  auto const share = [](trainer_result const& of) { return 100 * of.baseline().stages().pooling / of.baseline().seconds(); };
  page.paragraph(
      text("Transformers take %.0f %% of the RM1-like baseline's step. The table has what is gained where fewer groups of "
           "sequences are pooled by a transformer, and the others by sum.",
           share(rm1)));
  std::vector<std::vector<std::string>> rows;
  auto const add = [&](trainer_result const& of, std::string const& way) {
    rows.push_back({text("%zu of %zu", of.transformers, of.groups), text("%.0f %%", share(of)), times(of.ratio(way)),
                    times(of.expected(way).bound())});
  };
  for (auto const& of : fewer) add(of, "RecD");
  add(rm1, "+ O7");
  page.table({"groups by transformer", "transformers, of the baseline's step", "throughput", "by factors"}, rows);
}

}  // namespace

void report::write_page(std::string const& path) const {
  examples::html_page page("RecD from storage to trainer");
  page.paragraph(
      "Every repeated row of features stored, moved, looked up and pooled once, against a run that knows nothing of it. By factors: what "
      "the baseline's stage times and memory say, where each stage does as much less as the batches of this run have it. Paper: the "
      "figures of Zhao et al., MLSys 2023, at their numbers of samples a batch, of their models, data and machines; the batch of their RM1 "
      "baseline is 2048.");
  page.paragraph(
      text("Throughputs are of medians: of %lld epochs of a reader, and of %lld steps of a trainer, each on a batch of its own. "
           "What is compared took turns, in %lld rounds.",
           static_cast<long long>(plan_.rounds), static_cast<long long>(plan_.batches()), static_cast<long long>(plan_.rounds)));
  page.table({"stage", "here", "by factors", "paper", "how"}, rows());
  page.heading("What repeats (as Figures 3 and 4)");
  page.table({"", "paper", "60,000 sessions at once", "this log"}, repeat_rows());
  write_repeats(page, plan_, fitted_, stored_.repeats);
  if (plan_.trains) {
    page.heading("Trainer, reader and storage (as Figure 7)");
    std::vector<std::string> sets{rm1_.set};
    std::vector<double> ratios{rm1_.ratio("+ batch")};
    for (auto const& other : others_) {
      sets.push_back(other.set);
      ratios.push_back(other.ratio("RecD"));
    }
    page.bars(
        {{"Trainer throughput", "times the baseline's", sets, {{"RecD", ratios}}},
         {"Reader throughput and storage, RM1-like",
          "times the baseline's",
          {"reader, remote", "reader, cached", "storage, 1 MiB", "storage, 8 MiB", "storage, bests"},
          {{"RecD", {read_.remote_ratio(), read_.cached_ratio(), stored_.ratio(), stored_.ratio(large_pages), stored_.best_ratio()}}}}});
    page.heading("Where a step's time goes (as Figure 8)");
    std::vector<examples::bar_chart> stages{chart_of_stages(rm1_)};
    for (auto const* results : {&fewer_, &others_})
      for (auto const& other : *results) stages.push_back(chart_of_stages(other));
    page.bars(stages);
    write_ladder(page, rm1_);
    write_transformers(page, rm1_, fewer_);
  }
  page.heading("Where a reader's time goes (as Figure 10)");
  page.bars({chart_of_reading("Remote file", read_.remote), chart_of_reading("Page cache", read_.cached)});
  page.heading("Bytes that readers read and send (as Table 3)");
  page.paragraph(text("Of %lld samples: bytes read from the file, and bytes of the batches as they go to a trainer.",
                      static_cast<long long>(read_.cached[0].samples)));
  page.table({"", "read", "sent", "paper, read", "paper, sent"}, byte_rows());
  if (plan_.ranks > 1) {
    page.heading("Bytes that ranks read and send");
    page.paragraph("Whole tables are dealt out to " + said_of_ranks() + ".");
    page.table({"", reading_names[0], reading_names[1], reading_names[2]}, rank_rows());
  }
  page.heading("Files");
  page.paragraph(
      "What clustering gains depends on the pages, which are compressed one by one. A large page in the order of inference has several "
      "samples of a session, so that compression finds their repeats there too.");
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
