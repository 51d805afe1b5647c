// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/binned_auc.hpp>
#include <tessera/nn/metrics.hpp>
#include <tessera/nn/windowed.hpp>

namespace examples {

/// The mean of what was added since it was last taken.
class running_mean {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  double take() {
    auto const mean = sum_ / static_cast<double>(count_);
    *this = {};
    return mean;
  }

 private:
  double sum_ = 0;
  std::int64_t count_ = 0;
};

/// How well a model predicted each batch before it learned from it: over all samples of the call, and over the last 32,768 to 65,536.
/// The AUC of the last ones is always known, the rest where it is asked for.
class progressive_figures {
 public:
  explicit progressive_figures(bool with_all) : with_all_(with_all) {}

  void add(tessera::host_exec const& exec, tessera::vector_view<float const> logits, tessera::vector_view<float const> labels) {
    recent_auc_.add(logits, labels);
    if (!with_all_) return;
    recent_clicks_.add(exec, logits, labels);
    auc_.add(exec, logits, labels);
    clicks_.add(exec, logits, labels);
  }
  double recent_auc(tessera::host_exec const& exec) const { return recent_auc_.merged().value(exec); }
  nlohmann::json to_json(tessera::host_exec const& exec) const {
    return {{"progressive_auc", auc_.value()},
            {"progressive_logloss", clicks_.log_loss()},
            {"window_auc", recent_auc(exec)},
            {"window_logloss", recent_clicks_.merged().log_loss()},
            {"tested", clicks_.samples()}};
  }

 private:
  static constexpr tessera::window_options window{.buckets = 2, .samples_per_bucket = 32768};

  bool with_all_;
  tessera::windowed<tessera::exact_auc> recent_auc_{window};
  tessera::windowed<tessera::click_metrics> recent_clicks_{window};
  tessera::binned_auc auc_;
  tessera::click_metrics clicks_;
};

}  // namespace examples
