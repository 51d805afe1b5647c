// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_classes.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Refuses classes of another data set, in the name of `call`. @throws tessera::error incompatible for another number of samples, or another
/// fingerprint where both are known.
template <sample_source Source>
void check_classes(char const* call, Source const& source, sample_classes const& classes) {
  auto const refuse = [call](char const* what, std::int64_t classified, std::int64_t here) {
    throw error(errc::incompatible, std::string(call) + ": classes of another data set",
                {{"what differs", what}, {"where it was classified", classified}, {"here", here}});
  };
  if (classes.size() != source.rows()) refuse("samples", classes.size(), source.rows());
  if constexpr (fingerprinted_source<Source>)
    if (auto const print = source.fingerprint(); classes.data() != 0 && print != 0 && classes.data() != print)
      refuse("fingerprint", classes.data(), print);
}

namespace detail {

inline void check_block_rows(char const* call, std::int64_t block, std::int64_t rows, std::int64_t expected) {
  if (rows != expected)
    throw error(errc::corrupt_file, std::string(call) + ": a block of another size than it was",
                {{"block", block}, {"rows", rows}, {"expected", expected}});
}

}  // namespace detail

/// The hot samples of a data set, or the cold ones, as a data set of their own. Their order stays. Samples are numbered anew, from 0 on.
///
///     picked_samples const hot(log, classes, batch_class::hot), cold(log, classes, batch_class::cold);
///
/// A block is what the data set's block has of the class; blocks that have none of it are left out. The data set and the classes outlive it.
template <sample_source Source>
class picked_samples {
 public:
  /// Reads the classes alone. @throws tessera::error invalid_argument for a class that is neither hot nor cold. incompatible for classes of
  /// another number of samples, or of a data set with another fingerprint.
  picked_samples(Source const& source, sample_classes const& classes, batch_class kind)
      : source_(&source), classes_(&classes), kind_(kind) {
    if (kind != batch_class::hot && kind != batch_class::cold)
      throw error(errc::invalid_argument, "picked_samples: samples are hot or cold", {{"class", static_cast<int>(kind)}});
    check_classes("picked_samples", source, classes);
    first_rows_.push_back(0);
    for (std::int64_t block = 0; block < source.block_count(); ++block) {
      auto const rows = source.rows(block), hot = classes.hot(source.first_row(block), rows);
      auto const mine = kind == batch_class::hot ? hot : rows - hot;
      if (mine == 0) continue;
      blocks_.push_back(block);
      first_rows_.push_back(first_rows_.back() + mine);
    }
  }
  // What would be gone before the first read.
  picked_samples(Source const&&, sample_classes const&, batch_class) = delete;
  picked_samples(Source const&, sample_classes const&&, batch_class) = delete;
  picked_samples(Source const&&, sample_classes const&&, batch_class) = delete;

  sample_schema const& schema() const { return source_->schema(); }
  std::int64_t block_count() const noexcept { return static_cast<std::int64_t>(blocks_.size()); }
  std::int64_t rows() const noexcept { return first_rows_.back(); }
  /// How many samples a block has. @pre 0 <= block < block_count(), here and below.
  std::int64_t rows(std::int64_t block) const noexcept { return first_row(block + 1) - first_row(block); }
  /// The number of a block's first sample.
  std::int64_t first_row(std::int64_t block) const noexcept { return first_rows_[static_cast<std::size_t>(block)]; }
  /// The number that the data set gives to a block.
  std::int64_t block_of(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)]; }
  /// The class of the samples.
  batch_class kind() const noexcept { return kind_; }
  /// The path of the file that has a block.
  std::string file_of(std::int64_t block) const requires requires(Source const& s) { s.file_of(block); }
  { return source_->file_of(block_of(block)); }
  /// A checksum of the data set's fingerprint, the classes, and which of them this is; 0 where the data set knows none.
  std::uint32_t fingerprint() const requires fingerprinted_source<Source> {
    if (source_->fingerprint() == 0) return 0;
    std::uint64_t const who[] = {source_->fingerprint(), static_cast<std::uint64_t>(kind_)};
    crc32_sum sum;
    sum.update(as_bytes(vector_view<std::uint64_t const>(who, 2)));
    sum.update(as_bytes(classes_->words()));
    return sum.value();
  }

  /// `out` becomes the block's samples of the class.
  /// @throws what the data set throws. tessera::error out_of_range naming a block that is not there; corrupt_file for a block of another
  /// size than the data set said.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "picked_samples: no such block", {{"block", block}, {"blocks", block_count()}});
    auto const from = block_of(block), first = source_->first_row(from);
    source_->read(exec, from, out);
    detail::check_block_rows("picked_samples", from, out.size(), source_->rows(from));
    bool const is_hot = kind_ == batch_class::hot;
    out.keep_if(exec, [&](std::int64_t i) { return classes_->is_hot(first + i) == is_hot; });
  }

 private:
  Source const* source_;
  sample_classes const* classes_;
  batch_class kind_;
  std::vector<std::int64_t> blocks_;      // of the data set
  std::vector<std::int64_t> first_rows_;  // (blocks + 1,)
};

}  // namespace TESSERA_ABI
}  // namespace tessera
