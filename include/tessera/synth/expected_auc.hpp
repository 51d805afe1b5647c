// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Returns the expected AUC of the ranking by true logits, (n,), where a label is 1 with probability sigmoid(logit). No ranking has a higher
/// one.
///
/// The result is the expected number of pairs in order over the expected number of pairs. That is the expected AUC up to a relative error of
/// 1/n. Ties count half. The result is NaN for fewer than two samples, and where all labels are practically certain to be the same. `exec`'s
/// memory gives a workspace of n floats.
/// @throws tessera::error invalid_argument for a logit that is NaN, naming its position.
inline double expected_auc(host_exec const& exec, vector_view<float const> logits) {
  buffer<float> sorted(exec, logits.size());
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) throw error(errc::invalid_argument, "expected_auc: a logit is not a number", {{"position", i}});
    sorted[i] = logits[i];
  }
  std::sort(sorted.begin(), sorted.end());
  double in_order = 0, clicks = 0, others = 0, with_itself = 0;
  for (std::int64_t i = 0; i < sorted.size();) {
    double tied_clicks = 0, tied_others = 0, tied_with_itself = 0;
    for (auto const logit = sorted[i]; i < sorted.size() && sorted[i] == logit; ++i) {
      auto const p = 1 / (1 + std::exp(-static_cast<double>(logit)));
      tied_clicks += p;
      tied_others += 1 - p;
      tied_with_itself += p * (1 - p);
    }
    in_order += tied_clicks * others + (tied_clicks * tied_others - tied_with_itself) / 2;
    clicks += tied_clicks;
    others += tied_others;
    with_itself += tied_with_itself;
  }
  auto const all = clicks * others - with_itself;
  return all > 0 ? in_order / all : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
