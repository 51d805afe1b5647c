// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/list_hash.hpp>
#include <tessera/data/sample_source.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `session_order_of`.
struct session_order_options {
  std::int64_t blocks = 8;         ///< the most blocks that are read, spread over the data set; at least 1
  std::int64_t batch_size = 4096;  ///< neighbouring samples whose sessions and lists are compared; at least 1
};

/// How samples lie by session, as seen in a few blocks of a data set.
struct session_order {
  std::int64_t samples = 0;         ///< samples that were looked at
  std::int64_t sessions = 0;        ///< sessions of these samples
  std::int64_t repeated = 0;        ///< sessions of which two or more samples were seen
  std::int64_t contiguous = 0;      ///< of these, those whose samples follow each other
  std::int64_t batch_samples = 0;   ///< samples of all batches
  std::int64_t batch_sessions = 0;  ///< sessions of each batch, added up
  std::int64_t ids = 0;             ///< ids in all lists of the first batch of each block
  std::int64_t repeated_ids = 0;    ///< of these, the ids in lists that their column had before in the batch

  /// Whether at least nine tenths of the sessions with two samples or more lie together. False where no session has two.
  bool is_clustered() const noexcept { return repeated > 0 && static_cast<double>(contiguous) >= 0.9 * static_cast<double>(repeated); }
  /// The mean samples of a session in a batch; 0 without samples.
  double samples_per_session() const noexcept { return ratio(batch_samples, batch_sessions); }
  /// The share of ids in lists that repeat in a batch; 0 without ids.
  double repeated_share() const noexcept { return ratio(repeated_ids, ids); }

  friend bool operator==(session_order const&, session_order const&) = default;

 private:
  static double ratio(std::int64_t a, std::int64_t b) noexcept { return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b); }
};

namespace detail {

class session_order_count {
 public:
  session_order_count(std::int64_t batch_size) : batch_size_(batch_size) {}

  // `block`: its number; blocks ascend. Only sessions and sparse columns are read.
  void add(std::int64_t block, sample_columns_view samples) {
    if (block != last_block_ + 1) ++place_;  // not behind the block before
    last_block_ = block;
    for (std::int64_t first = 0; first < samples.sessions.size(); first += batch_size_) {
      auto const end = std::min(first + batch_size_, samples.sessions.size());
      std::unordered_set<std::int64_t> in_batch;
      for (auto i = first; i < end; ++i) {
        in_batch.insert(samples.sessions[i]);
        auto& seen = seen_[samples.sessions[i]];
        seen.is_apart |= seen.samples > 0 && seen.last != place_;
        ++seen.samples;
        seen.last = ++place_;
      }
      found_.batch_sessions += static_cast<std::int64_t>(in_batch.size());
    }
    found_.samples += samples.sessions.size();
    found_.batch_samples += samples.sessions.size();
    for (auto const& lists : samples.sparse) count_repeats(lists, std::min(batch_size_, samples.sessions.size()));
  }

  session_order finish() && {
    found_.sessions = static_cast<std::int64_t>(seen_.size());
    for (auto const& [session, seen] : seen_) {
      found_.repeated += seen.samples > 1;
      found_.contiguous += seen.samples > 1 && !seen.is_apart;
    }
    return found_;
  }

 private:
  struct seen_session {
    std::int64_t samples = 0, last = 0;  // the place behind its last sample
    bool is_apart = false;
  };

  void count_repeats(jagged_view<std::int64_t const> lists, std::int64_t rows) {
    std::unordered_set<std::uint64_t> known;
    for (std::int64_t row = 0; row < rows; ++row) {
      found_.ids += lists.length(row);
      if (!known.insert(list_hash(lists.row(row)).low).second) found_.repeated_ids += lists.length(row);
    }
  }

  std::int64_t batch_size_, last_block_ = -1, place_ = 0;
  std::unordered_map<std::int64_t, seen_session> seen_;
  session_order found_;
};

}  // namespace detail

/// Says whether a log is clustered by session, and what that gives batches, from a few of its blocks. The first block is among them, and
/// the last where more than one is read. A session that is cut at the border of a block counts by what was seen of it.
///
/// Takes the memory of one block and some 60 bytes a session seen.
/// @throws what the source throws; tessera::error invalid_argument for a schema without a session and for options below 1.
template <sample_source Source>
session_order session_order_of(host_exec const& exec, Source const& source, session_order_options options = {}) {
  if (source.schema().session.empty()) throw error(errc::invalid_argument, "session_order_of: the schema has no session");
  if (options.blocks < 1 || options.batch_size < 1)
    throw error(errc::invalid_argument, "session_order_of: options",
                {{"blocks", options.blocks}, {"batch_size", options.batch_size}, {"least", 1}});
  detail::session_order_count count(options.batch_size);
  sample_columns samples(source.schema());
  auto const all = source.block_count(), some = std::min(options.blocks, all);
  for (std::int64_t i = 0; i < some; ++i) {
    auto const block =
        some == 1 ? 0 : static_cast<std::int64_t>(static_cast<double>(i) * static_cast<double>(all - 1) / static_cast<double>(some - 1));
    source.read(exec, block, samples);
    count.add(block, samples.view());
  }
  return std::move(count).finish();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
