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

std::string bound_of(sharing const& s) { return text("%.1f %% of a step %.1f times less; ", 100 * s.share, s.factor); }

// The steps' rates: the median, and between which they lie.
std::string rates_of(training_result const& way) { return text("%.0f samples/s [%.0f - %.0f]", way.rate(), way.slowest(), way.fastest()); }

std::string share_by_transformers(trainer_result const& set) {
  auto const& base = set.baseline();
  return text("transformers %.0f %% of the baseline's step", 100 * base.stages().pooling / base.seconds());
}

void print_stages(trainer_result const& set) {
  for (auto const& way : set.ways) {
    auto const t = way.stages();
    auto const each = [&](double seconds) { return a_thousand(seconds, way.samples); };
    std::printf("%-22s %-10s %2zu steps, %s; ms a thousand samples: lookup %.0f pooling %.0f dense %.0f updates %.0f rest %.0f\n",
                name_of(set).c_str(), way.name.c_str(), way.step_seconds.size(), rates_of(way).c_str(), each(t.lookup), each(t.pooling),
                each(t.dense), each(t.update), each(way.rest()));
  }
}

}  // namespace

std::vector<std::vector<std::string>> report::rm1_rows() const {
  std::vector<std::vector<std::string>> rows;
  auto const& base = rm1_.baseline();
  for (auto const& way : rm1_.ways) {
    bool const is_shared = way.name == "+ O7";
    auto how = text("batch %lld, ", static_cast<long long>(way.batch)) + rates_of(way) + text(", peak %.2f GB, ", way.peak.bytes / 1e9) +
               share_of(way.peak.bytes, base) + " of the baseline's";
    if (is_shared) how = bound_of(rm1_.expected(way.name)) + how;
    if (&way == &base) how += "; the samples of clustered, sorted by time; " + share_by_transformers(rm1_);
    if (way.samples != base.samples) how += "; samples of its own, by their number alone " + times(way.rate() / base.rate());
    rows.push_back({"trainer, " + rm1_.set + ", " + way.name, times(rm1_.ratio(way.name)),
                    is_shared ? times(rm1_.expected(way.name).bound()) : "", of_paper(way.name), how});
  }
  auto const& shared = rm1_.of("+ O7");
  rows.push_back({"peak memory, " + rm1_.set + ", + O7", share_of(shared.peak.bytes, base), share_of(rm1_.predicted_bytes, base),
                  "27.8 % (Table 2)",
                  text("of the baseline's inputs and activations: tables, %.2f GB on either side, are left out, and with them it is %.1f "
                       "%%; by factors: "
                       "the baseline's on lists cut to as many ids",
                       rm1_.table_bytes / 1e9, 100 * (shared.peak.bytes + rm1_.table_bytes) / (base.peak.bytes + rm1_.table_bytes))});
  for (auto const& fewer : fewer_)
    rows.push_back({"trainer, " + name_of(fewer), times(fewer.ratio("RecD")), times(fewer.expected("RecD").bound()), "",
                    bound_of(fewer.expected("RecD")) + share_by_transformers(fewer) + "; the other groups by sum"});
  return rows;
}

std::vector<std::vector<std::string>> report::trainer_rows() const {
  auto rows = rm1_rows();
  for (auto const& other : others_) {
    auto const expected = other.expected("RecD");
    rows.push_back({"trainer, " + other.set, times(other.ratio("RecD")), times(expected.bound()),
                    other.set.starts_with("RM2") ? "1.25x at 2048" : "1.43x at 2048, from 1152",
                    bound_of(expected) + text("sequences by sum; batch %lld", static_cast<long long>(other.baseline().batch))});
  }
  rows.push_back({"no repeats, auto", times(none_.ratio("auto")), "", "",
                  text("what is recommended: %lld groups", static_cast<long long>(none_.recommended_groups))});
  rows.push_back({"no repeats, forced", times(none_.ratio("forced")), "", "", "groups all the same"});
  return rows;
}

std::vector<std::vector<std::string>> report::rows() const {
  auto const &mine = stored_.best(true, false), &best = stored_.best(true), &own = stored_.best(false);
  auto const storage = [&](std::string const& name, file_settings const& settings, std::string const& of_paper) {
    auto const &from = stored_.like(settings, false), &to = stored_.like(settings, true);
    return std::vector<std::string>{"storage, " + name, times(stored_.ratio(settings)), "", of_paper,
                                    settings_of(to) + ": " + megabytes(from.bytes) + " to " + megabytes(to.bytes)};
  };
  auto const rates = [](reading_result const(&ways)[reading_ways]) {
    return text("%.0f to %.0f samples/s", ways[0].rate(), ways[2].rate());
  };
  std::vector<std::vector<std::string>> rows{
      storage("equal pages of 1 MiB", mine.settings, "3.71x"),
      storage("equal pages of 8 MiB", large_pages, ""),
      storage("equal pages of 64 KiB", small_pages, ""),
      {"storage, each at its best", times(stored_.best_ratio()), "", "",
       settings_of(own) + ": " + megabytes(own.bytes) + "; " + settings_of(best) + ": " + megabytes(best.bytes)}};
  for (auto const& store : stored_.log_stores)
    rows.push_back({text("log store, %lld open sessions a shard", static_cast<long long>(store.open_sessions)),
                    text("%.2fx to %.2fx", store.by_sample, store.by_session), "", "1.50x to 2.25x",
                    text("by sample, by session: a gain of %.2fx; %lld shards", store.gain(), static_cast<long long>(store.shards))});
  rows.push_back({"reader, remote file", times(read_.remote_ratio()), "", "1.79x",
                  text("a source of %.0f MB/s; ", plan_.source_mb_per_second) + rates(read_.remote)});
  rows.push_back({"reader, page cache", times(read_.cached_ratio()), "", "", rates(read_.cached)});
  if (!plan_.trains) return rows;
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

std::vector<std::vector<std::string>> report::byte_rows() const {
  char const* const of_paper[reading_ways][2] = {{"538 GB", "837 GB"}, {"179 GB", "837 GB"}, {"179 GB", "713 GB"}};
  std::vector<std::vector<std::string>> rows;
  for (std::size_t way = 0; way < reading_ways; ++way)
    rows.push_back({reading_names[way], megabytes(read_.cached[way].read_bytes), megabytes(read_.cached[way].sent_bytes), of_paper[way][0],
                    of_paper[way][1]});
  return rows;
}

// Bytes a sample of each way: what is there for one is there for all.
std::vector<std::vector<std::string>> report::rank_rows() const {
  std::vector<std::vector<std::string>> rows;
  auto const add = [&](std::string const& name, auto const& bytes, std::int64_t ranks_way::*samples) {
    rows.push_back({name});
    for (auto const& way : on_ranks_.ways)
      rows.back().push_back(text("%.0f", static_cast<double>(bytes(way)) / static_cast<double>(way.*samples)));
  };
  add(
      "read from files", [](auto const& way) { return way.read_bytes; }, &ranks_way::read_samples);
  add(
      "sent as batches", [](auto const& way) { return way.batch_bytes; }, &ranks_way::read_samples);
  for (auto const& one : on_ranks_.ways[0].exchange)
    add(
        "exchange: " + one.first, [&](auto const& way) { return way.exchange.at(one.first); }, &ranks_way::samples);
  add(
      "exchange, all", [](auto const& way) { return way.exchange_bytes(); }, &ranks_way::samples);
  add(
      "exchange, to other hosts", [](auto const& way) { return way.exchange_between_hosts; }, &ranks_way::samples);
  for (auto const& one : on_ranks_.ways[0].sums)
    add(
        "dense net: " + one.first, [&](auto const& way) { return way.sums.at(one.first); }, &ranks_way::samples);
  return rows;
}

std::string report::said_of_ranks() const {
  auto const& way = on_ranks_.ways[0];
  auto const number = [](std::int64_t n) { return static_cast<long long>(n); };
  return text(
      "%d ranks on %d hosts: bytes a sample; of files and batches in %lld samples, of messages in %lld steps, %lld samples; batches of "
      "%lld samples of all ranks; %lld of %zu groups by transformer",
      plan_.ranks, plan_.hosts, number(way.read_samples), number(way.steps), number(way.samples), number(plan_.batch),
      number(plan_.rank_transformers), on_ranks_.groups);
}

void report::print() const {
  std::printf("\n%-41s %14s %10s  %-31s %s\n", "", "here", "by factors", "paper", "");
  for (auto const& row : rows())
    std::printf("%-41s %14s %10s  %-31s %s\n", row[0].c_str(), row[1].c_str(), row[2].c_str(), row[3].c_str(), row[4].c_str());
  std::printf("\n%-40s %8s %18s %10s\n", "", "paper", "60,000 sessions", "this log");
  for (auto const& row : repeat_rows())
    std::printf("%-40s %8s %18s %10s\n", row[0].c_str(), row[1].c_str(), row[2].c_str(), row[3].c_str());
  std::printf("\n");
  std::printf("files, %lld samples, %s of values:\n", static_cast<long long>(stored_.rows), megabytes(stored_.value_bytes).c_str());
  for (auto const& file : stored_.files)
    std::printf("  %-18s %-42s %s\n", order_of(file.clustered).c_str(), settings_of(file).c_str(), megabytes(file.bytes).c_str());
  std::printf("  for comparison, no bound: ids one by one at the entropy of their frequencies %s, those new in their session %s\n",
              megabytes(stored_.entropy_bytes).c_str(), megabytes(stored_.distinct_entropy_bytes).c_str());
  for (auto const is_remote : {true, false})
    for (std::size_t way = 0; way < reading_ways; ++way) {
      auto const& of = (is_remote ? read_.remote : read_.cached)[way];
      auto const each = [&](double seconds) { return a_thousand(seconds, of.samples); };
      std::printf("reader, %s, %-12s %.0f samples/s; fill %.1f convert %.1f process %.1f ms a thousand samples\n",
                  is_remote ? "remote" : "cached", reading_names[way], of.rate(), each(of.times.fill), each(of.times.convert),
                  each(of.times.process));
    }
  std::printf("%-14s %12s %12s    paper: %8s %8s\n", "readers", "read", "sent", "read", "sent");
  for (auto const& row : byte_rows())
    std::printf("%-14s %12s %12s           %8s %8s\n", row[0].c_str(), row[1].c_str(), row[2].c_str(), row[3].c_str(), row[4].c_str());
  std::printf("readers: %lld samples with the same ids from either file, with and without deduplication\n",
              static_cast<long long>(read_.remote[0].samples));
  if (plan_.ranks > 1) {
    std::printf("\n%s\n%-40s %12s %12s %12s\n", said_of_ranks().c_str(), "", reading_names[0], reading_names[1], reading_names[2]);
    for (auto const& row : rank_rows())
      std::printf("%-40s %12s %12s %12s\n", row[0].c_str(), row[1].c_str(), row[2].c_str(), row[3].c_str());
    std::printf("\n");
  }
  if (!plan_.trains) return;
  print_stages(rm1_);
  for (auto const* sets : {&fewer_, &others_})
    for (auto const& set : *sets) print_stages(set);
  print_stages(none_);
}

void report::print_last_line() const {
  std::printf("storage=%.2fx reader=%.2fx", stored_.ratio(), read_.remote_ratio());
  if (plan_.trains) std::printf(" trainer=%.2fx trainer_equal_memory=%.2fx", rm1_.ratio("+ O7"), rm1_.ratio("+ batch"));
  std::printf("\n");
}

}  // namespace recd
