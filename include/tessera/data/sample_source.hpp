// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A data set: samples that are read block by block, in any order. Blocks are numbered from 0, none is empty, and one after the other they
/// are the data set.
/// - `schema()` names the columns.
/// - `block_count()` is the number of blocks. `rows()` is the number of samples in all, `rows(block)` of one block, at least 1.
/// - `first_row(block)` is the number of a block's first sample in the data set. @pre 0 <= block < block_count(), as for `rows(block)`.
/// - `read(exec, block, out)` makes `out` the block's samples, whatever was in it and whatever columns it had.
template <class S>
concept sample_source = requires(S const& source, host_exec const& exec, std::int64_t block, sample_columns& out) {
  { source.schema() } -> std::same_as<sample_schema const&>;
  { source.block_count() } -> std::same_as<std::int64_t>;
  { source.rows() } -> std::same_as<std::int64_t>;
  { source.rows(block) } -> std::same_as<std::int64_t>;
  { source.first_row(block) } -> std::same_as<std::int64_t>;
  source.read(exec, block, out);
};

/// A data set that can be told from others. `fingerprint()` is a checksum; other data have another fingerprint, almost surely.
template <class S>
concept fingerprinted_source = sample_source<S> && requires(S const& source) {
  { source.fingerprint() } -> std::same_as<std::uint32_t>;
};

/// Blocks [first, first + count) of a data set.
struct block_range {
  std::int64_t first = 0;
  std::int64_t count = 0;

  friend bool operator==(block_range const&, block_range const&) = default;
};

/// Returns how many samples the blocks of a range have. @pre the data set has the blocks.
template <sample_source Source>
std::int64_t rows_of(Source const& source, block_range blocks) {
  if (blocks.count == 0) return 0;
  auto const last = blocks.first + blocks.count - 1;
  return source.first_row(last) + source.rows(last) - source.first_row(blocks.first);
}

/// Returns the blocks of one of `parts` processes. @post the parts in order have all blocks, each once. A part has rows() / parts samples,
/// give or take the largest block, so parts may differ in size.
/// @throws tessera::error out_of_range unless 0 <= part < parts.
template <sample_source Source>
block_range part_of(Source const& source, std::int64_t part, std::int64_t parts) {
  if (part < 0 || part >= parts) throw error(errc::out_of_range, "part_of: no such part", {{"part", part}, {"parts", parts}});
  // The boundary between blocks that is nearest to the share of the parts before.
  auto const cut = [&](std::int64_t before) {
    auto const rows = source.rows(), whole = rows / parts, rest = rows % parts;
    auto const share = whole * before + rest * before / parts;
    std::int64_t first = 0, last = source.block_count();
    if (before == parts) return last;
    while (first < last) {
      auto const middle = first + (last - first) / 2;
      if (source.first_row(middle) + (source.rows(middle) + 1) / 2 <= share)
        first = middle + 1;
      else
        last = middle;
    }
    return first;
  };
  auto const first = cut(part);
  return {first, cut(part + 1) - first};
}

/// A data set of any kind, chosen at run time, at one virtual call a block. Move-only.
class any_sample_source {
 public:
  /// Takes over a data set.
  template <sample_source Source>
    requires(!std::same_as<std::remove_cvref_t<Source>, any_sample_source>)
  explicit any_sample_source(Source source) : source_(std::make_unique<model<Source>>(std::move(source))) {}

  sample_schema const& schema() const { return source_->schema(); }
  std::int64_t block_count() const { return source_->block_count(); }
  std::int64_t rows() const { return source_->rows(); }
  std::int64_t rows(std::int64_t block) const { return source_->rows(block); }
  std::int64_t first_row(std::int64_t block) const { return source_->first_row(block); }
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const { source_->read(exec, block, out); }
  /// The fingerprint of the wrapped data set; 0 where it has none.
  std::uint32_t fingerprint() const { return source_->fingerprint(); }
  /// The path of the file that has a block; empty where the wrapped data set names none.
  std::string file_of(std::int64_t block) const { return source_->file_of(block); }

 private:
  struct interface {
    virtual ~interface() = default;
    virtual sample_schema const& schema() const = 0;
    virtual std::int64_t block_count() const = 0;
    virtual std::int64_t rows() const = 0;
    virtual std::int64_t rows(std::int64_t block) const = 0;
    virtual std::int64_t first_row(std::int64_t block) const = 0;
    virtual void read(host_exec const& exec, std::int64_t block, sample_columns& out) const = 0;
    virtual std::uint32_t fingerprint() const = 0;
    virtual std::string file_of(std::int64_t block) const = 0;
  };
  template <class Source>
  struct model final : interface {
    explicit model(Source wrapped) : source(std::move(wrapped)) {}
    sample_schema const& schema() const override { return source.schema(); }
    std::int64_t block_count() const override { return source.block_count(); }
    std::int64_t rows() const override { return source.rows(); }
    std::int64_t rows(std::int64_t block) const override { return source.rows(block); }
    std::int64_t first_row(std::int64_t block) const override { return source.first_row(block); }
    void read(host_exec const& exec, std::int64_t block, sample_columns& out) const override { source.read(exec, block, out); }
    std::uint32_t fingerprint() const override {
      if constexpr (fingerprinted_source<Source>) return source.fingerprint();
      return 0;
    }
    std::string file_of(std::int64_t block) const override {
      if constexpr (requires { source.file_of(block); }) return source.file_of(block);
      return {};
    }
    Source source;
  };

  std::unique_ptr<interface> source_;
};
static_assert(fingerprinted_source<any_sample_source>);

}  // namespace TESSERA_ABI
}  // namespace tessera
