// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/data/sample_source.hpp>

#include "sample_support.hpp"

namespace sample_tests {

/// Given samples as a source, in blocks of so many.
class sample_list {
 public:
  sample_list(tessera::sample_schema schema, std::vector<sample> samples, std::int64_t block_rows)
      : schema_(std::move(schema)), samples_(std::move(samples)), block_rows_(block_rows) {}

  tessera::sample_schema const& schema() const noexcept { return schema_; }
  std::uint32_t fingerprint() const noexcept { return fingerprint_; }
  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(samples_.size()); }
  std::int64_t block_count() const noexcept { return tessera::divide_up(rows(), block_rows_); }
  std::int64_t rows(std::int64_t block) const noexcept { return std::min(block_rows_, rows() - block * block_rows_); }
  std::int64_t first_row(std::int64_t block) const noexcept { return block * block_rows_; }
  void read(tessera::host_exec const& exec, std::int64_t block, tessera::sample_columns& out) const {
    if (before_read_) before_read_(block);
    auto const first = samples_.begin() + first_row(block);
    fill(exec, schema_, std::vector<sample>(first, first + rows(block)), out);
  }

  std::vector<sample> const& samples() const noexcept { return samples_; }
  void set_fingerprint(std::uint32_t value) noexcept { fingerprint_ = value; }
  void set_before_read(std::function<void(std::int64_t)> f) { before_read_ = std::move(f); }

 private:
  tessera::sample_schema schema_;
  std::vector<sample> samples_;
  std::int64_t block_rows_;
  std::uint32_t fingerprint_ = 17;
  std::function<void(std::int64_t)> before_read_;
};
static_assert(tessera::fingerprinted_source<sample_list>);

/// A log of any length, of sessions that are under way at the same time: each sample repeats some features of the one before in its session.
class session_log_source {
 public:
  session_log_source(std::int64_t rows, std::int64_t block_rows, std::int64_t sparse, std::int64_t mean_ids, std::int64_t mean_session)
      : schema_{"label", {"d0", "d1"}, names(sparse), "session", "time"},
        rows_(rows),
        block_rows_(block_rows),
        mean_ids_(mean_ids),
        mean_session_(mean_session) {}

  tessera::sample_schema const& schema() const noexcept { return schema_; }
  std::uint32_t fingerprint() const noexcept { return 5; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t block_count() const noexcept { return tessera::divide_up(rows_, block_rows_); }
  std::int64_t rows(std::int64_t block) const noexcept { return std::min(block_rows_, rows_ - block * block_rows_); }
  std::int64_t first_row(std::int64_t block) const noexcept { return block * block_rows_; }

  // A session: every 997th row of a window; its features change every few rows.
  void read(tessera::host_exec const& exec, std::int64_t block, tessera::sample_columns& out) const {
    out = tessera::sample_columns(schema_);
    out.resize(exec, rows(block));
    std::vector<std::int64_t> sessions, steps;
    auto const window = 997 * mean_session_;
    for (std::int64_t i = 0; i < out.size(); ++i) {
      auto const row = first_row(block) + i;
      auto const number = row / window * 997 + row % window % 997;
      auto const session = static_cast<std::int64_t>(tessera::mix_bits(static_cast<std::uint64_t>(number)));
      auto const step = row % window / 997;
      out.labels()[i] = static_cast<float>(row % 3 == 0);
      out.sessions()[i] = session;
      out.times()[i] = row;
      for (std::int64_t d = 0; d < 2; ++d) out.dense()(d, i) = static_cast<float>(row % (100 + d));
      sessions.push_back(session);
      steps.push_back(step);
    }
    for (std::int64_t c = 0; c < out.sparse_columns(); ++c) {
      auto const hash = [&](std::int64_t i, std::int64_t what) {
        auto const change = steps[static_cast<std::size_t>(i)] / (1 + c % 8 * 3);
        return tessera::mix_bits(static_cast<std::uint64_t>(sessions[static_cast<std::size_t>(i)]) ^
                                 tessera::mix_bits(static_cast<std::uint64_t>(change * 1000 + c) ^ static_cast<std::uint64_t>(what) << 40));
      };
      auto const offsets = out.offsets(c);
      offsets[0] = 0;
      for (std::int64_t i = 0; i < out.size(); ++i)
        offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(hash(i, 0) % static_cast<std::uint64_t>(2 * mean_ids_ + 1));
      auto const ids = out.ids(exec, c);
      for (std::int64_t i = 0; i < out.size(); ++i)
        for (auto k = offsets[i]; k < offsets[i + 1]; ++k) ids[k] = static_cast<std::int64_t>(hash(i, 1 + k - offsets[i]) % 10'000'000);
    }
  }

 private:
  static std::vector<std::string> names(std::int64_t sparse) {
    std::vector<std::string> result;
    for (std::int64_t i = 0; i < sparse; ++i) result.push_back("s" + std::to_string(i));
    return result;
  }

  tessera::sample_schema schema_;
  std::int64_t rows_, block_rows_, mean_ids_, mean_session_;
};
static_assert(tessera::fingerprinted_source<session_log_source>);

}  // namespace sample_tests
