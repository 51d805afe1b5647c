// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/synth/session_click_model.hpp>
#include <tessera/synth/session_options.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Generates a log of clicks in sessions, in the order of inference. The log has repeats for deduplication to find, and its best possible
/// ranking is known.
///
/// Sessions. A session's number of samples follows a log-normal law, rounded to 1 … most_samples. Time is cut into windows, and each
/// session begins and ends in one window. The samples of a window stand in a uniformly random order. With the defaults a window has about
/// 973,500 samples. One session in 14,300 has more than 1,000 samples. Each 4,096 samples in a row have 1.15 samples a session.
///
/// Features. A list stays the same as in the session's previous sample with probability `stays`, and otherwise changes; the features of a
/// group change together. In a group, lists with the same law of lengths have the same length. Ids follow a Zipf law with shuffled ranks.
/// Dense features are standard normal.
///
/// Labels. A label is 1 with probability sigmoid(logit).
///   logit = bias + dense part + Σ_f linear_f · mean of w_f(id) + Σ_f interest_f · mean of max(0, <v_f(id), v(target)>)².
/// The two sums are the linear part and the interest part. Each part is scaled so that its standard deviation is its signal, over the first
/// samples of sessions. Within a part each feature is scaled to its share.
///
/// The log is a pure function of the options: sizes of blocks and numbers of threads change nothing. One thread at a time uses an object.
/// Source: Zhao et al., "RecD: Deduplication for end-to-end deep learning recommendation model training infrastructure", MLSys 2023,
/// section 3.
class session_clicks {
 public:
  /// Draws the planted model, and opens no window yet.
  /// @throws tessera::error invalid_argument naming the option that is out of range, and its feature.
  session_clicks(host_exec const& exec, session_clicks_options options) : model_(exec, std::move(options)) {}

  /// Returns the options that the log was made with.
  session_clicks_options const& options() const noexcept { return model_.options(); }
  /// Names the log's columns: "label", "dense_0" …, the features' names, "session", "time".
  sample_schema schema() const {
    std::vector<std::string> dense, sparse;
    for (std::int64_t k = 0; k < options().dense_features; ++k) dense.push_back("dense_" + std::to_string(k));
    for (auto const& feature : options().features) sparse.push_back(feature.name);
    return {"label", std::move(dense), std::move(sparse), "session", "time"};
  }

  /// Replaces what `out` holds by the next `rows` samples, and returns their number, which is smaller only at the end of the log.
  ///
  /// Session ids are distinct, in no order, and may be negative. Times are microseconds, and each sample is later than the one before.
  /// `out` may lack the columns of sessions and times. The call allocates while `out` grows, and for a window of more samples than all
  /// before.
  /// @post after an error, `seek` is the only way to continue.
  /// @throws tessera::error invalid_argument for rows < 0, or for a window with more samples than microseconds; shape_mismatch where `out`
  /// has other columns.
  std::int64_t next(host_exec const& exec, std::int64_t rows, sample_columns& out) {
    if (rows < 0) throw error(errc::invalid_argument, "session_clicks: rows", {{"rows", rows}});
    auto const features = model_.feature_count();
    auto const& shape = out.shape();
    if (shape != sample_shape{options().dense_features, features, shape.sessions, shape.times})
      throw error(
          errc::shape_mismatch, "session_clicks: columns of the samples",
          {{"sparse", shape.sparse}, {"sparse expected", features}, {"dense", shape.dense}, {"dense expected", options().dense_features}});
    auto const count = lay_out(exec, rows);
    out.clear();
    out.resize(exec, count);
    lists_.resize(at(features));
    exec.run(features, [&](std::int64_t f) { write_offsets(f, out.offsets(f)); });
    for (std::int64_t f = 0; f < features; ++f) lists_[at(f)] = {out.ids(exec, f).data(), out.offsets(f).data(), count};
    logits_.resize(exec, count);
    for_each_piece(exec, count, detail::session_click_model::rows_per_piece,
                   [&](std::int64_t first, std::int64_t last) { write_rows(first, last, out); });
    return count;
  }
  /// Makes all samples that the present window has left, or all of the following window where none is left. Makes none at the end of the
  /// log. Everything else is as in `next`.
  std::int64_t next_window(host_exec const& exec, sample_columns& out) {
    if (left_in_window() == 0 && window_ < windows()) open_window(exec);
    return next(exec, left_in_window(), out);
  }

  /// Shows the true logits of the last block, (rows,), until the next call. No other ranking has a higher expected AUC.
  vector_view<float const> logits() const noexcept { return logits_.view(); }
  /// Shows the session of each sample of the last block, (rows,), until the next call: 0, 1, …, in no order of time.
  vector_view<std::int64_t const> session_numbers() const noexcept { return {sessions_.data(), logits_.size()}; }
  /// Returns the samples of a session, given its number. Window w has sessions [w * window_sessions, (w + 1) * window_sessions).
  std::int64_t samples_of(std::int64_t session) const noexcept { return model_.samples_of(session); }

  /// Returns the number of the window that has the next sample; at the end of the log, the number of windows.
  std::int64_t window() const noexcept { return window_ - (left_in_window() > 0 ? 1 : 0); }
  /// Returns how many samples the present window still has, 0 where the next sample begins another window.
  std::int64_t left_in_window() const noexcept { return order_.size() - done_; }
  /// Makes the first sample of a window the next one. @throws tessera::error out_of_range for a window that the log does not have.
  void seek(std::int64_t window) {
    if (window < 0 || window > windows())
      throw error(errc::out_of_range, "session_clicks: window", {{"window", window}, {"windows", windows()}});
    window_ = window;
    done_ = order_.size();
  }

  /// Returns the bytes of memory in use.
  std::size_t bytes() const noexcept {
    return model_.bytes() + order_.capacity_bytes() + seen_.capacity_bytes() + counts_.capacity_bytes() + row_counts_.capacity_bytes() +
           rows_.capacity_bytes() + slots_.capacity_bytes() + sessions_.capacity_bytes() + times_.capacity_bytes() +
           logits_.capacity_bytes();
  }

 private:
  using latent = detail::session_click_model::latent;

  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  std::int64_t windows() const noexcept { return options().windows == 0 ? detail::most_windows : options().windows; }

  // Draws sizes and order of the next window's sessions.
  void open_window(host_exec const& exec) {
    auto const sessions = options().window_sessions;
    auto const first = window_ * sessions;
    seen_.resize(exec, sessions);
    for_each_piece(exec, sessions, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (auto s = begin; s < end; ++s) seen_[s] = static_cast<std::uint32_t>(model_.samples_of(first + s));
    });
    std::int64_t samples = 0;
    for (auto const n : seen_) samples += n;
    if (samples > options().window_us)
      throw error(errc::invalid_argument, "session_clicks: a window of more samples than microseconds",
                  {{"window", window_}, {"samples", samples}, {"window_us", options().window_us}});
    order_.resize(exec, samples);
    for (std::int64_t s = 0, i = 0; s < sessions; ++s)
      for (std::uint32_t k = 0; k < seen_[s]; ++k) order_[i++] = static_cast<std::uint32_t>(s);
    detail::shuffle(order_.view(), [&](std::int64_t i) { return model_.window_word(window_, i); });
    std::fill(seen_.begin(), seen_.end(), 0U);
    counts_.resize(exec, model_.chain_count() * sessions);
    done_ = 0;
    ++window_;
  }

  // Which samples the block has, and every chain's count at each; returns how many samples.
  std::int64_t lay_out(host_exec const& exec, std::int64_t rows) {
    rows_.resize(exec, rows);
    slots_.resize(exec, rows);
    sessions_.resize(exec, rows);
    times_.resize(exec, rows);
    row_counts_.resize(exec, model_.chain_count() * rows);
    std::int64_t count = 0;
    while (count < rows) {
      if (done_ == order_.size()) {
        if (window_ == windows()) break;
        open_window(exec);
      }
      auto const part = std::min(rows - count, order_.size() - done_);
      auto const begin = (window_ - 1) * options().window_us, step = options().window_us / order_.size();
      for (auto i = count; i < count + part; ++i, ++done_) {
        auto const slot = slots_[i] = order_[done_];
        sessions_[i] = (window_ - 1) * options().window_sessions + slot;
        rows_[i] = {model_.session_key(sessions_[i]), seen_[slot]++};
        times_[i] = begin + done_ * step +
                    static_cast<std::int64_t>(model_.window_word(window_ - 1, -2 - done_) % static_cast<std::uint64_t>(step));
      }
      exec.run(model_.chain_count(), [&](std::int64_t chain) {
        auto* const of_slot = counts_.data() + chain * options().window_sessions;
        auto* const of_row = row_counts_.data() + chain * rows;
        for (auto i = count; i < count + part; ++i) {
          auto& n = of_slot[slots_[i]];
          of_row[i] = n = rows_[i].number == 0 ? 0 : n + model_.change(chain, rows_[i]);
        }
      });
      count += part;
    }
    return count;
  }

  std::uint32_t count_of(std::int64_t f, std::int64_t row) const noexcept { return row_counts_[model_.chain_of(f) * rows_.size() + row]; }

  void write_offsets(std::int64_t f, vector_view<std::int64_t> offsets) const noexcept {
    offsets[0] = 0;
    for (std::int64_t i = 0; i + 1 < offsets.size(); ++i) offsets[i + 1] = offsets[i] + model_.length(f, rows_[i].session, count_of(f, i));
  }

  void write_rows(std::int64_t first, std::int64_t last, sample_columns& out) {
    std::array<double, detail::session_click_model::rows_per_piece> logits{};
    std::array<latent, detail::session_click_model::rows_per_piece> targets{};
    auto const dense = out.dense();
    auto const target_chain = model_.target_chain();
    for (auto i = first; i < last; ++i) {
      logits[at(i - first)] =
          model_.bias() + model_.dense_scale() * model_.draw_dense(rows_[i], [&](std::int64_t k, float x) { dense(k, i) = x; });
      if (target_chain >= 0) targets[at(i - first)] = model_.target_latent(rows_[i], row_counts_[target_chain * rows_.size() + i]);
    }
    for (std::int64_t f = 0; f < model_.feature_count(); ++f)
      for (auto i = first; i < last; ++i) {
        auto const ids = lists_[at(f)].row(i);
        model_.draw_ids(f, rows_[i].session, count_of(f, i), ids);
        if (model_.has_linear(f)) logits[at(i - first)] += model_.linear_scale(f) * model_.linear(f, ids);
        if (model_.has_interest(f)) logits[at(i - first)] += model_.interest_scale(f) * model_.interest(f, ids, targets[at(i - first)]);
      }
    auto const labels = out.labels();
    auto const sessions = out.sessions(), times = out.times();
    for (auto i = first; i < last; ++i) {
      logits_[i] = static_cast<float>(logits[at(i - first)]);
      labels[i] = model_.label(rows_[i], logits[at(i - first)]) ? 1.0F : 0.0F;
      if (!sessions.empty()) sessions[i] = model_.session_id(sessions_[i]);
      if (!times.empty()) times[i] = times_[i];
    }
  }

  detail::session_click_model model_;
  std::int64_t window_ = 0;             // windows opened
  std::int64_t done_ = 0;               // samples of the present window before the next one
  buffer<std::uint32_t> order_;         // (samples of the window,): which of its sessions each is of
  buffer<std::uint32_t> seen_;          // (window_sessions,): samples before
  buffer<std::uint32_t> counts_;        // (chains, window_sessions): new ids before
  buffer<std::uint32_t> row_counts_;    // (chains, rows): new ids up to each sample
  buffer<detail::sample_stream> rows_;  // of the block, as what follows
  buffer<std::uint32_t> slots_;
  buffer<std::int64_t> sessions_, times_;
  buffer<float> logits_;
  std::vector<jagged_view<std::int64_t>> lists_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
