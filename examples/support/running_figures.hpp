// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/auc.hpp>

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

/// The AUC over the last 32,768 to 65,536 samples trained on, cheap enough to show live.
class recent_auc {
 public:
  void add(tessera::vector_view<float const> logits, tessera::vector_view<float const> labels) {
    if (current_.samples() + logits.size() > 32768) {
      std::swap(previous_, current_);
      current_.clear();
    }
    current_.add(logits, labels);
  }
  double value(tessera::host_exec const& exec) const {
    auto all = previous_;
    all.merge(current_);
    return all.value(exec);
  }

 private:
  tessera::exact_auc previous_, current_;
};

}  // namespace examples
