// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// What a block of keys has that a rank sends.
struct sent_block {
  std::int64_t rows = 0, ids = 0;
};

/// Where the parts of a message lie that brings ids from a device to a device:
///
///     header         int64 blocks, int64 weighted (0 or 1): whether the batch is
///     of each block  int64 rows, int64 ids
///     of each block  where rows end, uint32 (rows,); ids, int64 (ids,); weights, float (ids,), where it has them
///
/// A row ends at so many ids of its block. Each part is filled up to a multiple of 16 bytes, so that it is read by so many at a time; the
/// message to one of 64. The host knows the header, the device the rest. Layouts are those of the host's memory.
class device_message {
 public:
  /// The words of the header.
  static std::int64_t header_words(std::size_t blocks) noexcept { return 2 + 2 * static_cast<std::int64_t>(blocks); }
  /// The most ids of a block: ends have 4 bytes.
  static constexpr std::int64_t most_ids = 0xFFFF'FFFF;

  /// `brings_weights(i)`: whether block i has weights where the batch is `weighted`. @pre counts are not negative and ids at most `most_ids`
  template <class BringsWeights>
  device_message(std::vector<sent_block> blocks, bool weighted, BringsWeights const& brings_weights)
      : blocks_(std::move(blocks)), weighted_(weighted) {
    bytes_ = filled(header_words(blocks_.size()) * 8);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      auto const& block = blocks_[i];
      auto& place = places_.emplace_back();
      place.ends = take(block.rows * 4);
      place.ids = take(block.ids * 8);
      place.weights = weighted && brings_weights(i) ? take(block.ids * 4) : none;
    }
    bytes_ = divide_up(bytes_, line_bytes) * line_bytes;
  }

  /// The layout that a header tells of. @throws tessera::error incompatible, naming the rank that sent it, for a header that does not fit so
  /// many blocks and a message of `bytes`
  template <class BringsWeights>
  static device_message read(vector_view<std::int64_t const> header, std::size_t blocks, std::int64_t bytes, int from,
                             BringsWeights const& brings_weights) {
    auto const refuse = [&] {
      throw error(errc::incompatible, "device_exchange: ids that cannot be read", {{"from rank", from}, {"bytes", bytes}});
    };
    if (header.size() < header_words(blocks) || header[0] != static_cast<std::int64_t>(blocks)) refuse();
    std::vector<sent_block> counts;
    for (std::size_t i = 0; i < blocks; ++i) {
      auto const& block =
          counts.emplace_back(sent_block{header[2 + 2 * static_cast<std::int64_t>(i)], header[3 + 2 * static_cast<std::int64_t>(i)]});
      if (block.rows < 0 || block.rows > bytes || block.ids < 0 || block.ids > bytes || block.ids > most_ids) refuse();
    }
    device_message message(std::move(counts), header[1] != 0, brings_weights);
    if (message.bytes() != bytes) refuse();
    return message;
  }

  /// What the host knows, as the message begins.
  std::vector<std::int64_t> header() const {
    std::vector<std::int64_t> words{static_cast<std::int64_t>(blocks_.size()), weighted_ ? 1 : 0};
    for (auto const& block : blocks_) words.insert(words.end(), {block.rows, block.ids});
    return words;
  }

  std::int64_t bytes() const noexcept { return bytes_; }
  std::size_t blocks() const noexcept { return blocks_.size(); }
  sent_block const& block(std::size_t i) const noexcept { return blocks_[i]; }
  bool weighted() const noexcept { return weighted_; }
  bool has_weights(std::size_t i) const noexcept { return places_[i].weights != none; }

  /// Parts of a block. @pre it has weights, for `weights`
  template <class Byte>
  auto* ends(std::size_t i, Byte* message) const noexcept {
    return part<std::uint32_t>(message, places_[i].ends);
  }
  template <class Byte>
  auto* ids(std::size_t i, Byte* message) const noexcept {
    return part<std::int64_t>(message, places_[i].ids);
  }
  template <class Byte>
  auto* weights(std::size_t i, Byte* message) const noexcept {
    return part<float>(message, places_[i].weights);
  }

 private:
  static constexpr std::int64_t none = -1, line_bytes = 64;
  struct places {
    std::int64_t ends = 0, ids = 0, weights = none;  // bytes
  };

  static constexpr std::int64_t filled(std::int64_t bytes) noexcept { return divide_up(bytes, 16) * 16; }
  std::int64_t take(std::int64_t bytes) noexcept { return std::exchange(bytes_, bytes_ + filled(bytes)); }
  template <class T>
  static T* part(std::byte* message, std::int64_t at) noexcept {
    return reinterpret_cast<T*>(message + at);
  }
  template <class T>
  static T const* part(std::byte const* message, std::int64_t at) noexcept {
    return reinterpret_cast<T const*>(message + at);
  }

  std::vector<sent_block> blocks_;
  std::vector<places> places_;
  bool weighted_ = false;
  std::int64_t bytes_ = 0;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
