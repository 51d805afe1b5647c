// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "results.hpp"

namespace recd {

/// Gathers what the stages found, and tells it: one table, one page, one line.
class report {
 public:
  explicit report(plan const& plan) : plan_(plan) {}

  void add(repeat_figures const& fitted) { fitted_ = fitted; }
  void add(storage_result const& stored) { stored_ = stored; }
  void add(reader_result const& read) { read_ = read; }
  void add(ranks_result const& on_ranks) { on_ranks_ = on_ranks; }
  void add_rm1(trainer_result const& trained) { rm1_ = trained; }
  void add_fewer(std::vector<trainer_result> const& trained) { fewer_ = trained; }
  void add(trainer_result const& trained) { others_.push_back(trained); }
  void add_without_repeats(trainer_result const& trained) { none_ = trained; }

  void print() const;
  void write_page(std::string const& path) const;
  /// "storage=3.71x reader=1.79x trainer=2.48x trainer_equal_memory=2.48x"; without training, the first two.
  void print_last_line() const;

 private:
  std::vector<std::vector<std::string>> rows() const;
  std::vector<std::vector<std::string>> rm1_rows() const;
  std::vector<std::vector<std::string>> trainer_rows() const;
  std::vector<std::vector<std::string>> byte_rows() const;
  std::vector<std::vector<std::string>> repeat_rows() const;
  std::vector<std::vector<std::string>> rank_rows() const;
  std::string said_of_ranks() const;

  plan plan_;
  repeat_figures fitted_;
  storage_result stored_;
  reader_result read_;
  ranks_result on_ranks_;
  trainer_result rm1_, none_;
  std::vector<trainer_result> fewer_, others_;
};

inline std::string text(char const* format, auto... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}
inline std::string times(double ratio) { return text("%.2fx", ratio); }
inline std::string megabytes(double bytes) { return text("%.1f MB", bytes / 1e6); }
inline std::string megabytes(std::int64_t bytes) { return megabytes(static_cast<double>(bytes)); }
inline std::string order_of(bool is_clustered) { return is_clustered ? "clustered" : "order of inference"; }
inline std::string settings_of(stored_file const& file) {
  return text("%s, groups of %lldk, pages of %lld KiB", file.settings.dictionary ? "dictionary" : "plain",
              static_cast<long long>(file.settings.group_rows / 1024), static_cast<long long>(file.settings.page_bytes / 1024));
}
/// With its transformers, if sequences have any or could have.
inline std::string name_of(trainer_result const& of) {
  if (of.groups == 0 || of.transformers == of.groups) return of.set;
  return of.set + text(", %zu of %zu by transformer", of.transformers, of.groups);
}
/// Seconds of a stage as milliseconds a thousand samples.
inline double a_thousand(double seconds, std::int64_t samples) { return 1e6 * seconds / static_cast<double>(samples); }

}  // namespace recd
