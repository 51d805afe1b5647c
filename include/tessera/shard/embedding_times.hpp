// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <tessera/core/config.hpp>
#include <tessera/core/stopwatch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Seconds that a rank spent in the calls of its training steps' embeddings, each second in one of these. Work of the caller between a `begin`
/// and its `finish` counts nowhere, also where messages travel in the meantime.
struct embedding_times {
  double ids = 0;        ///< ids to their tables: packing, sending, waiting, unpacking
  double compute = 0;    ///< rows read and pooled, gradients summed, rows updated
  double vectors = 0;    ///< the exchange of vectors, forward
  double gradients = 0;  ///< that of gradients, backward; also the sums of tables on all ranks

  friend bool operator==(embedding_times const&, embedding_times const&) = default;
};

namespace detail {

// Adds the time of its life to stages, one after the other; without times it does nothing.
class stage_clock {
 public:
  using stage_type = double embedding_times::*;

  stage_clock(embedding_times* times, stage_type stage) noexcept : times_(times), stage_(stage) {
    if (times_ != nullptr) watch_.emplace();
  }
  stage_clock(stage_clock const&) = delete;
  ~stage_clock() { next(stage_); }

  // What follows is another stage.
  void next(stage_type stage) noexcept {
    if (times_ != nullptr) times_->*stage_ += watch_->lap();
    stage_ = stage;
  }

 private:
  embedding_times* times_;
  stage_type stage_;
  std::optional<stopwatch> watch_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
