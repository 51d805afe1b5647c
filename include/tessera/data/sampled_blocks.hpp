// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/data/shuffle.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which blocks `sampled_blocks` draws.
struct block_sampling {
  double percent = 100;  ///< of the blocks, above 0 and at most 100; rounded up to whole blocks
  random_seed seed{0};   ///< decides which blocks are drawn
  bool rest = false;     ///< takes the blocks that the same percentage and seed do not draw; there may be none
};

namespace detail {

inline constexpr std::uint32_t sampled_block_words = 0x73616d70;

/// The numbers of the blocks drawn of `blocks`, in ascending order.
inline std::vector<std::int64_t> draw_blocks(std::int64_t blocks, block_sampling const& sampling) {
  if (!(sampling.percent > 0 && sampling.percent <= 100))
    throw error(errc::invalid_argument, "sampled_blocks: a percentage is above 0 and at most 100", {{"percent", sampling.percent}});
  std::vector<std::int64_t> drawn(static_cast<std::size_t>(blocks));
  std::iota(drawn.begin(), drawn.end(), std::int64_t{0});
  shuffle(sampling.seed, 0, sampled_block_words, drawn);
  auto const share = static_cast<std::int64_t>(std::ceil(static_cast<double>(blocks) * sampling.percent / 100));
  auto const last = drawn.begin() + std::min(blocks, share);
  sampling.rest ? drawn.erase(drawn.begin(), last) : drawn.erase(last, drawn.end());
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace detail

/// Some blocks of a data set, drawn at random, as a data set of their own: what is not drawn is never read. Blocks keep their order.
/// Samples are numbered anew, from 0 on. A larger percentage of the same seed has all blocks of a smaller one.
///
///     sampled_blocks const sample(log, {.percent = 5});
///
/// The data set outlives it.
template <sample_source Source>
class sampled_blocks {
 public:
  /// Draws the blocks, and reads nothing. @throws tessera::error invalid_argument for a percentage that is not above 0 and at most 100.
  explicit sampled_blocks(Source const& source, block_sampling const& sampling = {})
      : source_(&source), blocks_(detail::draw_blocks(source.block_count(), sampling)) {
    first_rows_.reserve(blocks_.size() + 1);
    first_rows_.push_back(0);
    for (auto const block : blocks_) first_rows_.push_back(first_rows_.back() + source.rows(block));
  }
  sampled_blocks(Source const&&, block_sampling const& = {}) = delete;  // it would be gone before the first read

  sample_schema const& schema() const { return source_->schema(); }
  std::int64_t block_count() const noexcept { return static_cast<std::int64_t>(blocks_.size()); }
  std::int64_t rows() const noexcept { return first_rows_.back(); }
  /// How many samples a block has. @pre 0 <= block < block_count(), here and below.
  std::int64_t rows(std::int64_t block) const { return source_->rows(block_of(block)); }
  /// The number of a block's first sample.
  std::int64_t first_row(std::int64_t block) const noexcept { return first_rows_[static_cast<std::size_t>(block)]; }
  /// The number that the data set gives to a block.
  std::int64_t block_of(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)]; }
  /// The path of the file that has a block.
  std::string file_of(std::int64_t block) const requires requires(Source const& s) { s.file_of(block); }
  { return source_->file_of(block_of(block)); }
  /// A checksum of the data set's fingerprint and of which blocks were drawn; 0 where the data set knows none.
  std::uint32_t fingerprint() const requires fingerprinted_source<Source> {
    if (source_->fingerprint() == 0) return 0;
    crc32_sum sum(source_->fingerprint());
    auto const blocks = block_count();
    sum.update(as_bytes(vector_view<std::int64_t const>(&blocks, 1)));
    sum.update(as_bytes(vector_view<std::int64_t const>(blocks_)));
    return sum.value();
  }

  /// `out` becomes the samples of a block.
  /// @throws what the data set throws. tessera::error out_of_range naming a block that is not there.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "sampled_blocks: no such block", {{"block", block}, {"blocks", block_count()}});
    source_->read(exec, block_of(block), out);
  }

 private:
  Source const* source_;
  std::vector<std::int64_t> blocks_;      // ascending
  std::vector<std::int64_t> first_rows_;  // (blocks + 1,)
};

}  // namespace TESSERA_ABI
}  // namespace tessera
