// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/shard/flat_exchange_state.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Where the blocks of a rank stand in the batch that it gets: of each section, those that rank 0 sent, then those of rank 1.
class block_order {
 public:
  block_order() = default;
  /// Of `ranks` ranks' blocks. Sections do not decrease.
  block_order(std::vector<exchanged_block> const& blocks, std::size_t ranks) : ranks_(ranks) {
    for (std::size_t first = 0, last = 0; first < blocks.size(); first = last) {
      while (last < blocks.size() && blocks[last].section == blocks[first].section) ++last;
      sections_.resize(last, {first, last - first});
    }
  }

  /// The key of block i, as rank r sent it, in the batch that came.
  std::size_t key_of(std::size_t r, std::size_t i) const noexcept {
    auto const& section = sections_[i];
    return section.first * ranks_ + r * section.size + (i - section.first);
  }
  /// How many blocks the last section has. @pre there are blocks
  std::size_t last_section() const noexcept { return sections_.back().size; }

 private:
  struct section {
    std::size_t first, size;
  };

  std::size_t ranks_ = 1;
  std::vector<section> sections_;  // of each block: the one it is in
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
