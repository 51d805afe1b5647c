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
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/block_walk.hpp>
#include <tessera/data/click_log.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/raw_rows.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/shuffle.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct batch_reader_options {
  std::int64_t batch_size = 128;  ///< samples, at least 1; the last batch of an epoch may have fewer
  random_seed seed{};
  bool shuffle = true;  ///< else in the order of the data set
};

/// The batches of a data set, epoch after epoch, preprocessed.
///
/// An epoch has every sample once. Shuffling permutes the blocks by (seed, epoch) and the samples inside a block by (seed, epoch, block);
/// a batch takes up where the one before stopped, in the next block if need be. What comes depends on the data set, the preprocessing and
/// the options alone. One block is in memory at a time; buffers of a batch are taken by the constructor, and `next` allocates only when a block
/// is larger than all before. Data set and preprocessing outlive it. One thread at a time.
class batch_reader {
 public:
  /// @throws tessera::error invalid_argument for batch_size < 1.
  batch_reader(host_exec const& exec, click_log const& log, preprocessing const& preprocessing, batch_reader_options options = {})
      : log_(&log),
        preprocessing_(&preprocessing),
        options_(options),
        walk_(exec, log, 0, log.block_count(), options.shuffle, options.seed) {
    if (options.batch_size < 1)
      throw error(errc::invalid_argument, "batch_reader: option batch_size", {{"batch_size", options.batch_size}, {"least", 1}});
    auto const most = std::min(options.batch_size, log.rows());
    auto const keys = preprocessing.sparse_features();
    rows_.resize(exec, log.largest_block_rows());
    row_order_.resize(exec, log.largest_block_rows());
    dense_.resize(exec, most * preprocessing.dense_features());
    labels_.resize(exec, most);
    sample_ids_.resize(exec, most);
    ids_.resize(exec, keys * most);
    offsets_.resize(exec, keys * most + 1);
    std::iota(offsets_.begin(), offsets_.end(), std::int64_t{0});  // one id a row
    first_row_.resize(exec, keys + 1);
  }

  /// The next batch: true, and `out` shows it until the next call. Or the end of an epoch: false; the call after that begins the next.
  /// @throws tessera::error as click_log::read; the position is then what it was.
  bool next(host_exec const& exec, batch_view& out) {
    if (walk_.at_end()) {
      walk_.begin_next_epoch();
      return false;
    }
    auto place = walk_.position();
    auto const size = walk_.batch_size(options_.batch_size);
    matrix_view<float> const dense(dense_.data(), size, preprocessing_->dense_features());
    matrix_view<std::int64_t> const ids(ids_.data(), preprocessing_->sparse_features(), size);
    for (std::int64_t done = 0; done < size;) {
      auto const block = walk_.block(place);
      load(exec, block);
      auto const count = std::min(size - done, walk_.left_in_block(place));
      auto const picked = std::as_const(row_order_).view().slice(place.offset, count);
      preprocessing_->transform(exec, rows_.view(), picked, dense.rows_from(done, count), labels_.view().slice(done, count),
                                ids.columns_from(done, count));
      for (std::int64_t i = 0; i < count; ++i) sample_ids_[done + i] = log_->first_row(block) + picked[i];
      done += count;
      walk_.advance(place, count);
    }
    for (std::int64_t key = 0; key < first_row_.size(); ++key) first_row_[key] = key * size;

    out = {};
    out.dense = dense;
    out.labels = std::as_const(labels_).view().slice(0, size);
    out.sparse = {ids_.data(), nullptr, offsets_.data(), first_row_.data(), preprocessing_->sparse_features()};
    out.sample_ids = std::as_const(sample_ids_).view().slice(0, size);
    out.id = place.batch++;
    out.epoch = place.epoch;
    walk_.stand_at(place);
    return true;
  }

  /// Of the batch that `next` gives next.
  reader_position position() const noexcept { return walk_.position(); }

  /// Samples that this epoch had before the next batch. Looks at every block before it.
  std::int64_t epoch_samples() const noexcept { return walk_.epoch_samples(); }

  /// Goes on from there: the same batches come as came after `position()` gave it, given the same data set, preprocessing and options.
  /// @throws tessera::error incompatible for a position that this data set does not have.
  void seek(reader_position position) { walk_.seek("batch_reader", position); }

  /// Of the reader, the block in memory and the last batch.
  std::size_t bytes() const noexcept {
    return sizeof(*this) + rows_.bytes() + text_.capacity_bytes() + walk_.bytes() + row_order_.capacity_bytes() + dense_.capacity_bytes() +
           labels_.capacity_bytes() + ids_.capacity_bytes() + offsets_.capacity_bytes() + first_row_.capacity_bytes() +
           sample_ids_.capacity_bytes();
  }

 private:
  static constexpr std::int64_t nothing = -1;

  // Has a block's rows in memory, and their order in this epoch.
  void load(host_exec const& exec, std::int64_t block) {
    if (block != loaded_block_) {
      loaded_block_ = ordered_epoch_ = nothing;
      log_->read(exec, block, text_, rows_);
      loaded_block_ = block;
    }
    auto const epoch = walk_.position().epoch;
    if (epoch != ordered_epoch_) {
      row_order_.resize(exec, rows_.size());
      std::iota(row_order_.begin(), row_order_.end(), std::int64_t{0});
      if (options_.shuffle)
        detail::shuffle(options_.seed, detail::row_order_stream(epoch, block), detail::row_order_words, row_order_.view());
      ordered_epoch_ = epoch;
    }
  }

  click_log const* log_;
  preprocessing const* preprocessing_;
  batch_reader_options options_;
  detail::block_walk<click_log> walk_;
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

}  // namespace TESSERA_ABI
}  // namespace tessera
