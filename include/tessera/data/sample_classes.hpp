// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which samples of a data set are hot: a bit a sample. The others are cold.
///
/// `data` and `rows` are checksums that say of which data set and which hot rows the bits are; 0: not known. Samples are numbered as their
/// data set numbers them.
class sample_classes {
 public:
  sample_classes() = default;
  /// Makes the bits of so many samples, all cold. @throws tessera::error invalid_argument for a negative number.
  explicit sample_classes(std::int64_t samples, std::uint32_t data = 0, std::uint32_t rows = 0) : size_(samples), data_(data), rows_(rows) {
    if (samples < 0) throw error(errc::invalid_argument, "sample_classes: a negative number of samples", {{"samples", samples}});
    words_.resize(static_cast<std::size_t>(word_count(samples)));
  }
  /// Takes over bits (samples / 64 rounded up,), sample 64 w + b in bit b of word w.
  /// @throws tessera::error shape_mismatch for another number of words; corrupt_file for a bit past the last sample.
  static sample_classes from_words(std::int64_t samples, std::vector<std::uint64_t> words, std::uint32_t data, std::uint32_t rows) {
    sample_classes classes(samples, data, rows);
    if (words.size() != classes.words_.size())
      throw error(errc::shape_mismatch, "sample_classes: a bit a sample", {{"words", words.size()}, {"expected", classes.words_.size()}});
    if (samples % 64 != 0 && words.back() >> samples % 64 != 0)
      throw error(errc::corrupt_file, "sample_classes: bits past the last sample", {{"samples", samples}});
    classes.words_ = std::move(words);
    return classes;
  }

  std::int64_t size() const noexcept { return size_; }
  /// The checksum of the data set.
  std::uint32_t data() const noexcept { return data_; }
  /// The checksum of the hot rows that decided.
  std::uint32_t rows() const noexcept { return rows_; }
  /// All bits, as `from_words` takes them.
  vector_view<std::uint64_t const> words() const noexcept { return words_; }
  std::size_t bytes() const noexcept { return words_.capacity() * sizeof(std::uint64_t); }

  /// Whether a sample is hot. @pre 0 <= sample < size(), here and below.
  bool is_hot(std::int64_t sample) const noexcept { return (words_[static_cast<std::size_t>(sample / 64)] >> sample % 64 & 1) != 0; }
  void set_hot(std::int64_t sample) noexcept { words_[static_cast<std::size_t>(sample / 64)] |= std::uint64_t{1} << sample % 64; }
  /// How many samples are hot.
  std::int64_t hot() const noexcept { return hot(0, size_); }
  /// How many of samples [first, first + count) are hot. @pre they are there.
  std::int64_t hot(std::int64_t first, std::int64_t count) const noexcept {
    std::int64_t sum = 0;
    for (auto const last = first + count; first < last;) {
      auto const bits = std::min(last - first, 64 - first % 64);
      auto const word = words_[static_cast<std::size_t>(first / 64)] >> first % 64;
      sum += std::popcount(bits == 64 ? word : word & ((std::uint64_t{1} << bits) - 1));
      first += bits;
    }
    return sum;
  }

  friend bool operator==(sample_classes const&, sample_classes const&) = default;

 private:
  static constexpr std::int64_t word_count(std::int64_t samples) noexcept { return samples / 64 + (samples % 64 != 0); }

  std::int64_t size_ = 0;
  std::uint32_t data_ = 0, rows_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
