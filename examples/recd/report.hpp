// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "results.hpp"

namespace recd {

/// Gathers what the stages found, and tells it: one table, one page, one line.
class report {
 public:
  explicit report(plan const& plan) : plan_(plan) {}

  void add(storage_result const& stored) { stored_ = stored; }
  void add(reader_result const& read) { read_ = read; }
  void add_rm1(trainer_result const& trained) { rm1_ = trained; }
  void add(trainer_result const& trained) { others_.push_back(trained); }
  void add_without_repeats(trainer_result const& trained) { none_ = trained; }

  void print() const;
  void write_page(std::string const& path) const;
  /// "storage=3.71x reader=1.79x trainer=2.48x trainer_equal_memory=2.48x"
  void print_last_line() const;

 private:
  std::vector<std::vector<std::string>> rows() const;

  plan plan_;
  storage_result stored_;
  reader_result read_;
  trainer_result rm1_, none_;
  std::vector<trainer_result> others_;
};

}  // namespace recd
