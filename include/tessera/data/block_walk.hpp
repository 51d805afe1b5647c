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
#include <tessera/data/sample_source.hpp>
#include <tessera/data/shuffle.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The order in which epochs visit the blocks of a data set, and the position in that order.
///
/// An epoch visits each block of a range once: in the range's order, or in one that seed and epoch decide. A place is a position of the
/// same epoch. A reader copies the position as a place and moves the place over the samples of a batch. Once the batch is made, the place
/// becomes the position.
///
/// `Source` has `rows(block)`, at least 1, and outlives the walk.
template <class Source>
class block_walk {
 public:
  /// The position is the beginning of epoch 0. @pre the source has the blocks.
  block_walk(host_exec const& exec, Source const& source, block_range blocks, bool is_shuffled, random_seed seed)
      : source_(&source), first_(blocks.first), is_shuffled_(is_shuffled), seed_(seed), order_(exec, blocks.count) {
    order(0);
  }

  reader_position position() const noexcept { return position_; }
  /// The number of blocks of an epoch.
  std::int64_t blocks() const noexcept { return order_.size(); }
  /// The number that the data set gives to a place's block. @pre samples are left at the place.
  std::int64_t block(reader_position const& place) const noexcept { return order_[place.block]; }

  /// How many samples the epoch has left at the position; `most` where it has more.
  std::int64_t left(std::int64_t most) const noexcept {
    auto samples = -position_.offset;
    for (auto b = position_.block; b < blocks() && samples < most; ++b) samples += source_->rows(order_[b]);
    return std::min(samples, most);
  }
  /// How many samples a place's block has left at the place. @pre samples are left at the place.
  std::int64_t left_in_block(reader_position const& place) const noexcept { return source_->rows(block(place)) - place.offset; }
  /// Moves a place over `samples` of its block. @pre left_in_block(place) >= samples.
  void advance(reader_position& place, std::int64_t samples) const noexcept {
    place.offset += samples;
    if (place.offset < source_->rows(block(place))) return;
    ++place.block;
    place.offset = 0;
  }
  /// How many samples the epoch has before the position. Looks at each block before it.
  std::int64_t epoch_samples() const noexcept {
    auto samples = position_.offset;
    for (std::int64_t b = 0; b < position_.block; ++b) samples += source_->rows(order_[b]);
    return samples;
  }

  /// The place becomes the position. @pre it is of the same epoch.
  void stand_at(reader_position const& place) noexcept { position_ = place; }
  void begin_next_epoch() noexcept {
    position_ = {position_.epoch + 1, 0, 0, position_.batch};
    order(position_.epoch);
  }
  /// Any position becomes the position. @throws tessera::error incompatible, in the name of `reader`, for one that these blocks do not
  /// have; then nothing has changed.
  void seek(char const* reader, reader_position const& position) {
    bool known = position.epoch >= 0 && position.epoch < std::int64_t{1} << 32 && position.batch >= 0 && position.batch <= most_counted &&
                 position.block >= 0 && position.block <= blocks() && position.offset >= 0;
    if (known) {
      order(position.epoch);
      known = position.offset < (position.block == blocks() ? 1 : source_->rows(order_[position.block]));
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
    if (is_shuffled_) shuffle(seed_, static_cast<std::uint64_t>(epoch), block_order_words, order_.view());
  }

  Source const* source_;
  std::int64_t first_;
  bool is_shuffled_;
  random_seed seed_;
  reader_position position_;
  buffer<std::int64_t> order_;  // (blocks,): of the position's epoch
};

/// The sub-stream of random numbers that shuffles the rows of a block in an epoch.
inline std::uint64_t row_order_stream(std::int64_t epoch, std::int64_t block) noexcept {
  return static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint64_t>(block);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
