// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cstdio>
#include <utility>

namespace recd {

namespace {

// The paper's throughputs of its ladder, at its numbers of samples a batch (Section 6.2; the baseline's is 2048).
char const* of_paper(std::string const& way) {
  if (way == "baseline" || way == "clustered") return "1.00x at 2048";
  if (way == "+ O5, O6") return "1.34x at 4096";
  if (way == "+ O7") return "1.89x at 2048, 2.42x at 4096";
  return "2.48x at 6144 (Table 2: 2.26x)";
}

std::string share_of(double bytes, training_result const& base) { return text("%.1f %%", 100 * bytes / base.peak.bytes); }

void print_stages(trainer_result const& set) {
  for (auto const& way : set.ways) {
    auto const& t = way.times;
    auto const each = [&](double seconds) { return a_thousand(seconds, way.samples); };
    std::printf("%-14s %-12s ms a thousand samples: lookup %.0f pooling %.0f dense %.0f updates %.0f rest %.0f\n", set.set.c_str(),
                way.name.c_str(), each(t.lookup), each(t.pooling), each(t.dense), each(t.update), each(way.rest()));
  }
}

}  // namespace

std::vector<std::vector<std::string>> report::trainer_rows() const {
  std::vector<std::vector<std::string>> rows;
  auto const bound = [](sharing const& s) { return text("%.1f %% of a step %.1f times less; ", 100 * s.share, s.factor); };
  auto const& base = rm1_.baseline();
  for (auto const& way : rm1_.ways) {
    bool const is_shared = way.name == "+ O7";
    auto how = text("batch %lld, peak %.2f GB, ", static_cast<long long>(way.batch), way.peak.bytes / 1e9) +
               share_of(way.peak.bytes, base) + " of the baseline's";
    if (is_shared) how = bound(rm1_.expected(way.name)) + how;
    if (&way == &base) how += "; the samples of clustered, sorted by time";
    if (way.samples != base.samples) how += "; samples of its own, by their number alone " + times(way.rate() / base.rate());
    rows.push_back({"trainer, " + rm1_.set + ", " + way.name, times(rm1_.ratio(way.name)),
                    is_shared ? times(rm1_.expected(way.name).bound()) : "", of_paper(way.name), how});
  }
  rows.push_back({"peak memory, " + rm1_.set + ", + O7", share_of(rm1_.of("+ O7").peak.bytes, base), share_of(rm1_.predicted_bytes, base),
                  "27.8 % (Table 2)", "of the baseline's; by factors: the baseline's on lists cut to as many ids"});
  for (auto const& other : others_) {
    auto const expected = other.expected("RecD");
    rows.push_back({"trainer, " + other.set, times(other.ratio("RecD")), times(expected.bound()),
                    other.set.starts_with("RM2") ? "1.25x at 2048" : "1.43x at 2048, from 1152",
                    bound(expected) + text("sequences by sum; batch %lld", static_cast<long long>(other.baseline().batch))});
  }
  rows.push_back({"no repeats, auto", times(none_.ratio("auto")), "", "",
                  text("what is recommended: %lld groups", static_cast<long long>(none_.recommended_groups))});
  rows.push_back({"no repeats, forced", times(none_.ratio("forced")), "", "", "groups all the same"});
  return rows;
}

std::vector<std::vector<std::string>> report::rows() const {
  auto const &same = stored_.best(true), &own = stored_.best(false);
  auto const &small = stored_.like(small_pages, false), &small_clustered = stored_.like(small_pages, true);
  auto const equal = [](stored_file const& from, stored_file const& to) {
    return settings_of(to) + ": " + megabytes(from.bytes) + " to " + megabytes(to.bytes);
  };
  auto const rates = [](reading_result const(&sides)[2]) { return text("%.0f to %.0f samples/s", sides[0].rate(), sides[1].rate()); };
  std::vector<std::vector<std::string>> rows{
      {"storage, equal settings", times(stored_.ratio()), "", "3.71x", equal(stored_.like(same.settings, false), same)},
      {"storage, each at its best", times(stored_.best_ratio()), "", "",
       settings_of(own) + ": " + megabytes(own.bytes) + "; " + settings_of(same) + ": " + megabytes(same.bytes)},
      {"storage, equal small pages", times(small.times_larger(small_clustered)), "", "", equal(small, small_clustered)},
      {"log store", text("%.2fx to %.2fx", stored_.log_by_sample, stored_.log_by_session), "", "1.50x to 2.25x",
       text("by sample, by session; %lld shards, each of 16 open sessions", static_cast<long long>(stored_.log_shards))},
      {"reader, remote file", times(read_.remote_ratio()), "", "1.79x",
       text("a source of %.0f MB/s; ", plan_.source_mb_per_second) + rates(read_.remote)},
      {"reader, page cache", times(read_.cached_ratio()), "", "", rates(read_.cached)}};
  for (auto& row : trainer_rows()) rows.push_back(std::move(row));
  return rows;
}

std::vector<std::vector<std::string>> report::repeat_rows() const {
  auto const &log = stored_.repeats, &fitted = fitted_;
  auto const number = [](double x) { return text("%.2f", x); };
  auto const share = [](double x) { return text("%.1f %%", 100 * x); };
  return {{"samples a session", "16.50", number(fitted.samples_a_session), number(log.samples_a_session)},
          {"samples a session in 4,096", "1.15", number(fitted.samples_in_batch), number(log.samples_in_batch)},
          {"lists that come again, mean of features", "80.0 %", share(fitted.means.exact), share(log.means.exact)},
          {"ids that come again, mean of features", "83.9 %", share(fitted.means.partial), share(log.means.partial)},
          {"lists that come again, by bytes", "81.6 %", share(fitted.means.exact_by_bytes), share(log.means.exact_by_bytes)},
          {"ids that come again, by bytes", "89.4 %", share(fitted.means.partial_by_bytes), share(log.means.partial_by_bytes)}};
}

void report::print() const {
  std::printf("\n%-36s %14s %10s  %-31s %s\n", "", "here", "by factors", "paper", "");
  for (auto const& row : rows())
    std::printf("%-36s %14s %10s  %-31s %s\n", row[0].c_str(), row[1].c_str(), row[2].c_str(), row[3].c_str(), row[4].c_str());
  std::printf("\n%-40s %8s %16s %10s\n", "", "paper", "fitted to it", "RM1-like");
  for (auto const& row : repeat_rows())
    std::printf("%-40s %8s %16s %10s\n", row[0].c_str(), row[1].c_str(), row[2].c_str(), row[3].c_str());
  std::printf("\n");
  std::printf("files, %lld samples, %s of values:\n", static_cast<long long>(stored_.rows), megabytes(stored_.value_bytes).c_str());
  for (auto const& file : stored_.files)
    std::printf("  %-18s %-42s %s\n", order_of(file.clustered).c_str(), settings_of(file).c_str(), megabytes(file.bytes).c_str());
  std::printf("  for comparison, no bound: ids one by one at the entropy of their frequencies %s, those new in their session %s\n",
              megabytes(stored_.entropy_bytes).c_str(), megabytes(stored_.distinct_entropy_bytes).c_str());
  for (auto const* sides : {&read_.remote, &read_.cached})
    for (auto const& side : *sides) {
      auto const each = [&](double seconds) { return a_thousand(seconds, side.samples); };
      std::printf("reader, %s, %-18s fill %.0f convert %.0f process %.0f ms a thousand samples; %s read, %s sent\n",
                  sides == &read_.remote ? "remote" : "cached", order_of(&side == &(*sides)[1]).c_str(), each(side.times.fill),
                  each(side.times.convert), each(side.times.process), megabytes(side.read_bytes).c_str(),
                  megabytes(side.sent_bytes).c_str());
    }
  std::printf("readers: %lld samples with the same ids from either file, with and without deduplication\n",
              static_cast<long long>(read_.remote[0].samples));
  for (auto const* set : {&rm1_, &none_}) print_stages(*set);
  for (auto const& other : others_) print_stages(other);
}

void report::print_last_line() const {
  std::printf("storage=%.2fx reader=%.2fx trainer=%.2fx trainer_equal_memory=%.2fx\n", stored_.ratio(), read_.remote_ratio(),
              rm1_.ratio("+ O7"), rm1_.ratio("+ batch"));
}

}  // namespace recd
