// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/batch.hpp>
#include <tessera/data/click_log.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/raw_rows.hpp>
#include <tessera/data/reader.hpp>

namespace tessera::inline TESSERA_ABI {

struct batch_reader_options {
  std::int64_t batch_size = 128;  ///< samples; the last batch of an epoch may have fewer
  random_seed seed{};
  bool shuffle = true;  ///< else in the order of the data set
};

namespace detail {

inline constexpr std::uint32_t block_order_words = 0x626c6b73;
inline constexpr std::uint32_t row_order_words = 0x726f7773;

// Fisher and Yates, with the words of the sub-stream (a, b).
inline void shuffle(random_seed seed, std::uint64_t a, std::uint32_t b, vector_view<std::int64_t> items) noexcept {
  random_block words{};
  for (std::int64_t draw = 0; draw + 1 < items.size(); ++draw) {
    if (draw % 2 == 0) words = philox(seed, a, b, static_cast<std::uint32_t>(draw / 2));
    auto const last = items.size() - 1 - draw;
    int const word = draw % 2 == 0 ? 0 : 2;
    auto const pick = uniform_below(words[word], words[word + 1], static_cast<std::uint64_t>(last) + 1);
    std::swap(items[last], items[static_cast<std::int64_t>(pick)]);
  }
}

}  // namespace detail

/// The batches of a data set, epoch after epoch, preprocessed.
///
/// An epoch has every sample once. Shuffling permutes the blocks by (seed, epoch) and the samples inside a block by (seed, epoch, block);
/// a batch takes up where the one before stopped, in the next block if need be. What comes depends on the data set, the preprocessing and
/// the options alone. One block is in memory at a time, and a batch allocates only when a block is larger than all before.
/// Data set and preprocessing outlive it. One thread at a time.
class batch_reader {
 public:
  /// @throws tessera::error invalid_argument for batch_size < 1.
  batch_reader(host_exec const& exec, click_log const& log, preprocessing const& preprocessing, batch_reader_options options = {})
      : log_(&log), preprocessing_(&preprocessing), options_(options) {
    if (options.batch_size < 1)
      throw error(errc::invalid_argument, "batch_reader: option batch_size", {{"batch_size", options.batch_size}, {"least", 1}});
    auto const most = std::min(options.batch_size, log.rows());
    auto const keys = preprocessing.sparse_features();
    rows_.resize(exec, log.largest_block_rows());
    block_order_.resize(exec, log.block_count());
    row_order_.resize(exec, log.largest_block_rows());
    dense_.resize(exec, most * preprocessing.dense_features());
    labels_.resize(exec, most);
    sample_ids_.resize(exec, most);
    ids_.resize(exec, keys * most);
    offsets_.resize(exec, keys * most + 1);
    std::iota(offsets_.begin(), offsets_.end(), std::int64_t{0});  // one id a row
    first_row_.resize(exec, keys + 1);
    seek({});
  }

  /// The next batch: true, and `out` shows it until the next call. Or the end of an epoch: false; the call after that begins the next.
  /// @throws tessera::error as click_log::read; the position is then what it was.
  bool next(host_exec const& exec, batch_view& out) {
    auto place = position_;
    if (place.block == log_->block_count()) {
      seek({place.epoch + 1, 0, 0, place.batch});
      return false;
    }
    auto const size = next_size();
    matrix_view<float> const dense(dense_.data(), size, preprocessing_->dense_features());
    matrix_view<std::int64_t> const ids(ids_.data(), preprocessing_->sparse_features(), size);
    for (std::int64_t done = 0; done < size;) {
      auto const block = block_order_[place.block];
      load(exec, block);
      auto const count = std::min(size - done, log_->rows(block) - place.offset);
      auto const picked = std::as_const(row_order_).view().slice(place.offset, count);
      preprocessing_->transform(exec, rows_.view(), picked, dense.rows_from(done, count), labels_.view().slice(done, count),
                                ids.columns_from(done, count));
      for (std::int64_t i = 0; i < count; ++i) sample_ids_[done + i] = log_->first_row(block) + picked[i];
      done += count;
      place.offset += count;
      if (place.offset == log_->rows(block)) {
        ++place.block;
        place.offset = 0;
      }
    }
    for (std::int64_t key = 0; key < first_row_.size(); ++key) first_row_[key] = key * size;

    out = {};
    out.dense = dense;
    out.labels = std::as_const(labels_).view().slice(0, size);
    out.sparse = {ids_.data(), nullptr, offsets_.data(), first_row_.data(), preprocessing_->sparse_features()};
    out.sample_ids = std::as_const(sample_ids_).view().slice(0, size);
    out.id = place.batch++;
    out.epoch = place.epoch;
    position_ = place;
    return true;
  }

  /// Of the batch that `next` gives next.
  reader_position position() const noexcept { return position_; }

  /// Samples that this epoch had before the next batch. Looks at every block before it.
  std::int64_t epoch_samples() const noexcept {
    auto samples = position_.offset;
    for (std::int64_t block = 0; block < position_.block; ++block) samples += log_->rows(block_order_[block]);
    return samples;
  }

  /// Goes on from there: the same batches come as came after `position()` gave it, given the same data set, preprocessing and options.
  /// @throws tessera::error incompatible for a position that this data set does not have.
  void seek(reader_position position) {
    bool known = position.epoch >= 0 && position.epoch < std::int64_t{1} << 32 && position.batch >= 0 && position.block >= 0 &&
                 position.block <= log_->block_count() && position.offset >= 0;
    if (known) {
      order_blocks(position.epoch);
      auto const rows = position.block == log_->block_count() ? 1 : log_->rows(block_order_[position.block]);
      known = position.offset < rows;
    }
    if (!known) {
      order_blocks(position_.epoch);
      throw error(errc::incompatible, "batch_reader: a position of another data set",
                  {{"epoch", position.epoch},
                   {"block", position.block},
                   {"blocks", log_->block_count()},
                   {"offset", position.offset},
                   {"batch", position.batch}});
    }
    position_ = position;
  }

  std::size_t bytes() const noexcept {
    return sizeof(*this) + rows_.bytes() + text_.capacity_bytes() + block_order_.capacity_bytes() + row_order_.capacity_bytes() +
           dense_.capacity_bytes() + labels_.capacity_bytes() + ids_.capacity_bytes() + offsets_.capacity_bytes() +
           first_row_.capacity_bytes() + sample_ids_.capacity_bytes();
  }

 private:
  static constexpr std::int64_t nothing = -1;

  // Samples in the batch at position_.
  std::int64_t next_size() const noexcept {
    auto size = -position_.offset;
    for (auto block = position_.block; block < log_->block_count() && size < options_.batch_size; ++block)
      size += log_->rows(block_order_[block]);
    return std::min(size, options_.batch_size);
  }

  void order_blocks(std::int64_t epoch) noexcept {
    std::iota(block_order_.begin(), block_order_.end(), std::int64_t{0});
    if (options_.shuffle) detail::shuffle(options_.seed, static_cast<std::uint64_t>(epoch), detail::block_order_words, block_order_.view());
  }

  // Has a block's rows in memory, and their order in the epoch at position_.
  void load(host_exec const& exec, std::int64_t block) {
    if (block != loaded_block_) {
      loaded_block_ = ordered_epoch_ = nothing;
      log_->read(exec, block, text_, rows_);
      loaded_block_ = block;
    }
    if (position_.epoch != ordered_epoch_) {
      row_order_.resize(exec, rows_.size());
      std::iota(row_order_.begin(), row_order_.end(), std::int64_t{0});
      auto const stream = static_cast<std::uint64_t>(position_.epoch) << 32 | static_cast<std::uint64_t>(block);
      if (options_.shuffle) detail::shuffle(options_.seed, stream, detail::row_order_words, row_order_.view());
      ordered_epoch_ = position_.epoch;
    }
  }

  click_log const* log_;
  preprocessing const* preprocessing_;
  batch_reader_options options_;
  reader_position position_;
  buffer<std::int64_t> block_order_;  // of the epoch at position_
  buffer<char> text_;
  raw_rows rows_;
  std::int64_t loaded_block_ = nothing;   // whose rows are in rows_
  std::int64_t ordered_epoch_ = nothing;  // in whose order row_order_ lists them
  buffer<std::int64_t> row_order_;
  buffer<float> dense_;
  buffer<float> labels_;
  buffer<std::int64_t> ids_;  // (sparse features, samples of the batch)
  buffer<std::int64_t> offsets_;
  buffer<std::int64_t> first_row_;
  buffer<std::int64_t> sample_ids_;
};
static_assert(reader<batch_reader>);

}  // namespace tessera::inline TESSERA_ABI
