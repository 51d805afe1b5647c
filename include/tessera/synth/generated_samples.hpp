// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/synth/planted_clicks.hpp>
#include <tessera/synth/session_clicks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `generated_clicks`.
struct generated_clicks_options {
  std::int64_t first = 0;           ///< number of the first sample; training and test data take ranges that do not overlap
  std::int64_t samples = 1 << 20;   ///< samples of the data set
  std::int64_t block_rows = 65536;  ///< samples of a block, but for the last
};

/// Planted clicks as a data set: "label", "dense_0" …, "feature_0" …. Features whose bags all have one id are columns of single ids.
/// A block is made whenever it is read. Threads may read through one object at once. Move-only.
class generated_clicks {
 public:
  /// Makes a data set of samples first … first + samples - 1, and generates none yet.
  /// @throws tessera::error invalid_argument for first < 0, samples < 0, a last sample of 2^62 or more, and block_rows < 1.
  generated_clicks(planted_clicks clicks, generated_clicks_options options) : clicks_(std::move(clicks)), options_(options) {
    if (options.block_rows < 1 || options.first < 0 || options.samples < 0 || options.samples > (std::int64_t{1} << 62) - options.first)
      throw error(errc::invalid_argument, "generated_clicks: options",
                  {{"first", options.first}, {"samples", options.samples}, {"block_rows", options.block_rows}});
    auto const& planted = clicks_.options();
    schema_.label = "label";
    for (std::int64_t k = 0; k < planted.dense_features; ++k) schema_.dense.push_back("dense_" + std::to_string(k));
    for (auto const& feature : planted.features) {
      schema_.sparse.push_back("feature_" + std::to_string(schema_.sparse.size()));
      if (feature.longest_bag == 1 && (feature.shortest_bag == 1 || feature.more == 1)) schema_.single.push_back(schema_.sparse.back());
    }
  }

  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return options_.samples; }
  std::int64_t block_count() const noexcept { return divide_up(options_.samples, options_.block_rows); }
  std::int64_t rows(std::int64_t block) const noexcept { return std::min(options_.block_rows, rows() - first_row(block)); }
  std::int64_t first_row(std::int64_t block) const noexcept { return block * options_.block_rows; }

  /// `out` becomes the samples of a block. @throws tessera::error out_of_range naming a block that is not there.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "generated_clicks: no such block", {{"block", block}, {"blocks", block_count()}});
    planted_samples samples;
    clicks_.generate(exec, options_.first + first_row(block), rows(block), samples);
    auto const batch = samples.view();
    if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
    out.resize(exec, batch.samples());
    std::copy(batch.labels.begin(), batch.labels.end(), out.labels().begin());
    for (std::int64_t k = 0; k < batch.dense.columns(); ++k)
      for (std::int64_t i = 0; i < batch.samples(); ++i) out.dense().row(k)[i] = batch.dense(i, k);
    for (std::int64_t f = 0; f < batch.sparse.keys; ++f) {
      auto const bags = batch.sparse.key(f);
      auto const ids = bags.all_values();
      if (out.view().single(f)) {
        std::copy(ids.begin(), ids.end(), out.single_ids(f).begin());
        continue;
      }
      for (std::int64_t i = 0; i <= bags.rows; ++i) out.offsets(f)[i] = bags.offsets[i] - bags.offsets[0];
      std::copy(ids.begin(), ids.end(), out.ids(exec, f).begin());
    }
  }

 private:
  planted_clicks clicks_;
  generated_clicks_options options_;
  sample_schema schema_;
};
static_assert(sample_source<generated_clicks>);

/// A log of clicks in sessions as a data set, a window a block. A block is made whenever it is read. One thread at a time. Move-only.
class generated_sessions {
 public:
  /// Draws the planted model. @throws tessera::error as `session_clicks`, and invalid_argument for options without a number of windows.
  generated_sessions(host_exec const& exec, session_clicks_options options) : clicks_(exec, std::move(options)), schema_(clicks_.schema()) {
    auto const& o = clicks_.options();
    if (o.windows == 0) throw error(errc::invalid_argument, "generated_sessions: a log without end", {{"windows", o.windows}});
    buffer<std::int64_t> samples(exec, o.windows);
    exec.run(o.windows, [&](std::int64_t window) {
      std::int64_t sum = 0;
      for (std::int64_t s = 0; s < o.window_sessions; ++s) sum += clicks_.samples_of(window * o.window_sessions + s);
      samples[window] = sum;
    });
    for (auto const in_window : samples) first_row_.push_back(first_row_.back() + in_window);
  }

  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return first_row_.back(); }
  std::int64_t block_count() const noexcept { return clicks_.options().windows; }
  std::int64_t rows(std::int64_t block) const noexcept { return first_row(block + 1) - first_row(block); }
  std::int64_t first_row(std::int64_t block) const noexcept { return first_row_[static_cast<std::size_t>(block)]; }

  /// `out` becomes the samples of a block. @throws tessera::error out_of_range naming a block that is not there.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "generated_sessions: no such block", {{"block", block}, {"blocks", block_count()}});
    if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
    clicks_.seek(block);
    clicks_.next_window(exec, out);
  }

 private:
  mutable session_clicks clicks_;  // what it holds decides how fast a block is made, not what is in it
  sample_schema schema_;
  std::vector<std::int64_t> first_row_{0};  // (windows + 1,)
};
static_assert(sample_source<generated_sessions>);

}  // namespace TESSERA_ABI
}  // namespace tessera
