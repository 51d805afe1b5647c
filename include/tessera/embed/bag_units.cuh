// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

/// How the kernels of lookups see a batch, and how their threads share its bags.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind decreasing_offsets{errc::invalid_argument, "jagged: offsets decrease", {"row", "offset", "next offset"}};

/// A batch as kernels see it, the rows of all keys counted from its first. A row with invalid offsets is an empty bag, and is reported.
struct batch_on_device {
  std::int64_t const* values = nullptr;
  float const* weights = nullptr;         // or nullptr
  std::int64_t const* offsets = nullptr;  // of the first row
  std::int64_t rows = 0;
  std::int64_t room = -1;

  batch_on_device() = default;
  explicit batch_on_device(keyed_jagged_view<std::int64_t const> batch) noexcept
      : values(batch.values), weights(batch.weights), offsets(batch.flat().offsets), rows(batch.rows()), room(batch.room) {}

  /// The offset of the first row, which slots and positions are counted from.
  TESSERA_HOST_DEVICE std::int64_t first_value() const noexcept { return rows == 0 ? 0 : offsets[0]; }

  TESSERA_HOST_DEVICE bool has_valid_offsets(std::int64_t row) const noexcept {
    auto const begin = offsets[row], end = offsets[row + 1];
    return offsets[0] >= 0 && begin >= offsets[0] && end >= begin && (room < 0 || end <= room);
  }
  /// A row's values are [begin_of(row), end_of(row)).
  TESSERA_HOST_DEVICE std::int64_t begin_of(std::int64_t row) const noexcept { return has_valid_offsets(row) ? offsets[row] : 0; }
  TESSERA_HOST_DEVICE std::int64_t end_of(std::int64_t row) const noexcept { return has_valid_offsets(row) ? offsets[row + 1] : 0; }
};

/// The bags of one key in a launch. A group of threads takes a bag; several take a wide one, each with columns of its own.
struct bag_unit_range {
  static constexpr int threads = 256;

  std::int64_t first_row;      // of the key, in the batch
  std::int64_t bags;           // of the key
  std::int64_t first_block;    // of threads
  std::int64_t column_groups;  // a bag
  std::int64_t dim;
  int lanes;  // threads a group

  static constexpr bag_unit_range of(std::int64_t first_row, std::int64_t bags, std::int64_t dim, std::int64_t first_block) noexcept {
    auto const lanes = lanes_for(dim);
    return {first_row, bags, first_block, divide_up(dim, 4 * lanes), dim, lanes};
  }
  constexpr std::int64_t blocks() const noexcept { return divide_up(bags * column_groups, threads / lanes); }
};

/// The work of one group: each of its threads has columns [column, column + 4) of a bag.
struct bag_unit {
  std::int64_t bag;     // of the key
  std::int64_t column;  // of this thread; may lie past the last
  std::int64_t count;   // of its columns that there are
  bool leads;           // whether this thread speaks for the bag

  /// `block`: one of the range's. The result is false where there is no such bag.
  TESSERA_HOST_DEVICE constexpr bool set(bag_unit_range const& range, std::int64_t block, int thread) noexcept {
    auto const lane = thread % range.lanes;
    auto const unit = (block - range.first_block) * (bag_unit_range::threads / range.lanes) + thread / range.lanes;
    if (unit >= range.bags * range.column_groups) return false;
    bag = range.column_groups == 1 ? unit : unit / range.column_groups;
    auto const group = unit - bag * range.column_groups;
    column = 4 * (group * range.lanes + lane);
    count = range.dim - column < 0 ? 0 : range.dim - column;
    leads = group == 0 && lane == 0;
    return true;
  }
};

/// The parts of a launch, on the device: plain data with a `bag_unit_range units`.
template <class Part>
struct parts_on_device {
  Part const* parts;
  std::int64_t const* first_blocks;  // (count + 1,)
  std::int64_t count;

  /// Calls f(part, unit) for each unit of this thread.
  template <class Block, class F>
  TESSERA_DEVICE void for_each_of_thread(Block& block, F const& f) const {
    for_each_unit(block, first_blocks[count], 1, 0, [&](std::int64_t b) {
      auto const& part = parts[range_of(first_blocks, count, b)];
      bag_unit unit;
      if (unit.set(part.units, b, block.thread())) f(part, unit);
    });
  }
};

/// Collects the parts of a launch.
template <class Part>
class launch_parts {
 public:
  /// The number of blocks of the parts so far: the next part's first block.
  std::int64_t blocks() const noexcept { return first_blocks_.back(); }
  std::int64_t count() const noexcept { return static_cast<std::int64_t>(parts_.size()); }
  void add(Part const& part) {
    parts_.push_back(part);
    first_blocks_.push_back(blocks() + part.units.blocks());
  }

  /// Copies the parts to the device and calls launch(parts_on_device).
  template <class Exec, class Launch>
  void on_device(Exec const& exec, Launch const& launch) const {
    auto const parts = to_device(exec, parts_);
    auto const first_blocks = to_device(exec, first_blocks_);
    launch(parts_on_device<Part>{parts.data(), first_blocks.data(), count()});
  }

 private:
  std::vector<Part> parts_;
  std::vector<std::int64_t> first_blocks_{0};
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
