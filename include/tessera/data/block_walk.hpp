// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/shuffle.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Where a reader stands in its data set's blocks, epoch after epoch: each epoch has every block once, in order or shuffled by (seed, epoch).
/// `Log`: `rows(block)`, at least 1. The log outlives it.
template <class Log>
class block_walk {
 public:
  /// Over blocks [first, first + count). Stands at the beginning.
  block_walk(host_exec const& exec, Log const& log, std::int64_t first, std::int64_t count, bool shuffled, random_seed seed)
      : log_(&log), first_(first), shuffled_(shuffled), seed_(seed), order_(exec, count) {
    order(0);
  }

  reader_position position() const noexcept { return position_; }
  std::int64_t blocks() const noexcept { return order_.size(); }
  bool at_end() const noexcept { return position_.block == blocks(); }
  /// The block that a place of this epoch is in. @pre the place is not behind the last.
  std::int64_t block(reader_position const& place) const noexcept { return order_[place.block]; }

  /// Samples in the batch at the position, of at most `most`.
  std::int64_t batch_size(std::int64_t most) const noexcept {
    auto size = -position_.offset;
    for (auto b = position_.block; b < blocks() && size < most; ++b) size += log_->rows(order_[b]);
    return std::min(size, most);
  }
  /// Samples of the place's block from there on.
  std::int64_t left_in_block(reader_position const& place) const noexcept { return log_->rows(block(place)) - place.offset; }
  /// So many samples on. @pre they are left in the place's block.
  void advance(reader_position& place, std::int64_t samples) const noexcept {
    place.offset += samples;
    if (place.offset < log_->rows(block(place))) return;
    ++place.block;
    place.offset = 0;
  }
  /// Samples that this epoch had before the position.
  std::int64_t epoch_samples() const noexcept {
    auto samples = position_.offset;
    for (std::int64_t b = 0; b < position_.block; ++b) samples += log_->rows(order_[b]);
    return samples;
  }

  /// To a place of the same epoch.
  void stand_at(reader_position const& place) noexcept { position_ = place; }
  void begin_next_epoch() noexcept {
    position_ = {position_.epoch + 1, 0, 0, position_.batch};
    order(position_.epoch);
  }
  /// @throws tessera::error incompatible, in the reader's name, for a position that there is not; then nothing has changed.
  void seek(char const* reader, reader_position const& position) {
    bool known = position.epoch >= 0 && position.epoch < std::int64_t{1} << 32 && position.batch >= 0 && position.batch <= most_counted &&
                 position.block >= 0 && position.block <= blocks() && position.offset >= 0;
    if (known) {
      order(position.epoch);
      known = position.offset < (position.block == blocks() ? 1 : log_->rows(order_[position.block]));
    }
    if (!known) {
      order(position_.epoch);
      throw error(errc::incompatible, std::string(reader) + ": a position of another data set",
                  {{"epoch", position.epoch},
                   {"block", position.block},
                   {"blocks", blocks()},
                   {"offset", position.offset},
                   {"batch", position.batch}});
    }
    position_ = position;
  }

  std::size_t bytes() const noexcept { return order_.capacity_bytes(); }

 private:
  void order(std::int64_t epoch) noexcept {
    std::iota(order_.begin(), order_.end(), first_);
    if (shuffled_) shuffle(seed_, static_cast<std::uint64_t>(epoch), block_order_words, order_.view());
  }

  Log const* log_;
  std::int64_t first_;
  bool shuffled_;
  random_seed seed_;
  reader_position position_;
  buffer<std::int64_t> order_;  // of the epoch at the position
};

/// Sets apart the shuffled rows of each (epoch, block).
inline std::uint64_t row_order_stream(std::int64_t epoch, std::int64_t block) noexcept {
  return static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint64_t>(block);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
