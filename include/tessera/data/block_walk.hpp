// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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

/// What is left of a block: its samples from `offset` on.
struct block_rest {
  std::int64_t block = 0;  ///< as the data set numbers it
  std::int64_t offset = 0;
};

/// Lists blocks, as many as `out` has and from `first` on, in the order of an epoch.
inline void order_blocks(std::int64_t first, bool is_shuffled, random_seed seed, std::int64_t epoch,
                         vector_view<std::int64_t> out) noexcept {
  std::iota(out.begin(), out.end(), first);
  if (is_shuffled) shuffle(seed, static_cast<std::uint64_t>(epoch), block_order_words, out);
}

/// The order in which epochs visit the blocks of a data set, and the position in that order.
///
/// An epoch visits each block of a range once: in the range's order, or in one that seed and epoch decide. `walk_over` chooses some of them
/// for the epoch that it names. A place is a position of the same epoch. A reader copies the position as a place and moves the place over
/// the samples of a batch. Once the batch is made, the place becomes the position.
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
  /// Visits these, which are of the range and each at most once, in their order. The position is their beginning.
  void walk_over(std::int64_t epoch, std::int64_t batch, std::vector<block_rest> const& rests) {
    std::vector<std::int64_t> starts;
    starts.reserve(rests.size());
    for (auto const& rest : rests) starts.push_back(rest.offset);
    starts_ = std::move(starts);
    count_ = static_cast<std::int64_t>(rests.size());
    for (std::int64_t b = 0; b < count_; ++b) order_[b] = rests[static_cast<std::size_t>(b)].block;
    position_ = {epoch, 0, start(0), batch};
  }

  reader_position position() const noexcept { return position_; }
  /// The number of blocks of an epoch.
  std::int64_t blocks() const noexcept { return count_; }
  /// The number that the data set gives to a place's block. @pre samples are left at the place.
  std::int64_t block(reader_position const& place) const noexcept { return order_[place.block]; }

  /// How many samples the epoch has left at the position; `most` where it has more.
  std::int64_t left(std::int64_t most) const noexcept {
    auto samples = start(position_.block) - position_.offset;
    for (auto b = position_.block; b < blocks() && samples < most; ++b) samples += source_->rows(order_[b]) - start(b);
    return std::min(samples, most);
  }
  /// How many samples a place's block has left at the place. @pre samples are left at the place.
  std::int64_t left_in_block(reader_position const& place) const noexcept { return source_->rows(block(place)) - place.offset; }
  /// Moves a place over `samples` of its block. @pre left_in_block(place) >= samples.
  void advance(reader_position& place, std::int64_t samples) const noexcept {
    place.offset += samples;
    if (place.offset < source_->rows(block(place))) return;
    ++place.block;
    place.offset = start(place.block);
  }
  /// How many samples the epoch has before the position. Looks at each block before it.
  std::int64_t epoch_samples() const noexcept {
    auto samples = position_.offset - start(position_.block);
    for (std::int64_t b = 0; b < position_.block; ++b) samples += source_->rows(order_[b]) - start(b);
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

  std::size_t bytes() const noexcept { return order_.capacity_bytes() + starts_.capacity() * sizeof(std::int64_t); }

 private:
  void order(std::int64_t epoch) noexcept {
    order_blocks(first_, is_shuffled_, seed_, epoch, order_.view());
    count_ = order_.size();
    starts_.clear();
  }
  // The first sample to be visited of a block in the epoch's order.
  std::int64_t start(std::int64_t b) const noexcept {
    return b < static_cast<std::int64_t>(starts_.size()) ? starts_[static_cast<std::size_t>(b)] : 0;
  }

  Source const* source_;
  std::int64_t first_;
  bool is_shuffled_;
  random_seed seed_;
  reader_position position_;
  buffer<std::int64_t> order_;  // (blocks of the range,), of which the first `count_` are visited in the position's epoch
  std::int64_t count_ = 0;
  std::vector<std::int64_t> starts_;  // of each block that is visited; none: all are 0
};

/// The sub-stream of random numbers that shuffles the rows of a block in an epoch.
inline std::uint64_t row_order_stream(std::int64_t epoch, std::int64_t block) noexcept {
  return static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint64_t>(block);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
