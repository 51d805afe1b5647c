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

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/block_walk.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/shuffle.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/key_groups.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// In which order an epoch has its samples.
enum class sample_order : std::uint8_t {
  stored,    ///< that of the data set
  samples,   ///< blocks shuffled, and the samples of each
  sessions,  ///< blocks shuffled, and the sessions of each: what stands side by side of one session stays so
};

/// What a dense value becomes.
enum class dense_values : std::uint8_t {
  as_stored,
  log,  ///< ln(max(x, 0) + 1)
};

struct sample_reader_options {
  std::int64_t batch_size = 2048;  ///< samples, at least 1; the last batch of an epoch may have fewer
  sample_order order = sample_order::stored;
  random_seed seed{};
  dense_values dense = dense_values::as_stored;
  std::int64_t first_block = 0;                    ///< of the data set
  std::int64_t blocks = -1;                        ///< from there on; -1: all that are left
  std::vector<std::vector<std::string>> groups{};  ///< sparse columns whose repeated rows are kept once (IKJT); none: a row a sample
};

/// Seconds that a reader's batches took so far.
struct reader_times {
  double fill = 0;     ///< reading and decoding blocks, and picking rows of them
  double convert = 0;  ///< making tensors of columns, and rows distinct
  double process = 0;  ///< what becomes of ids and dense values
};

/// Ids as they are stored.
struct stored_ids {
  template <class Batch>
  Batch operator()(host_exec const&, Batch batch) const {
    return batch;
  }
};

/// The batches of a data set of samples, epoch after epoch. Columns of the groups come first among the keys, group after group, and are made
/// distinct while they are converted; `Pipeline` then sees each distinct row once: an `id_pipeline`, or any `pipeline(exec, batch)` that makes
/// an `inverse_keyed_jagged<>` of one, with the same samples, groups and keys. Source: RecD, Sections 4.2 and 4.3.
///
/// An epoch has every sample once; what comes depends on the data set, the pipeline and the options alone. One block is in memory at a time,
/// and the rows of a batch that does not lie in one block. Data set and pipeline outlive it. One thread at a time.
///
/// Groups decide the order of the keys: `keys()`, which is `group_keys(schema.sparse, groups).keys`. A pipeline is made for that order, and
/// the readers of one model, for training and for tests, have the same groups, or the model is told of the other order.
template <sample_source Source, class Pipeline = stored_ids>
class sample_reader {
 public:
  /// Reads nothing yet. @throws tessera::error invalid_argument for batch_size < 1, for blocks that the data set does not have, for groups as
  /// `group_keys`, and for sample_order::sessions without a column of sessions; shape_mismatch for a pipeline that was made for other keys,
  /// or for these in another order.
  sample_reader(host_exec const& exec, Source const& source, Pipeline const& pipeline, sample_reader_options options = {})
      : source_(&source),
        pipeline_(&pipeline),
        options_(checked(source, std::move(options))),
        groups_(group_keys(sample_schema(source.schema()).sparse, options_.groups)),
        walk_(exec, source, options_.first_block, options_.blocks, options_.order != sample_order::stored, options_.seed),
        columns_(source.schema()),
        pending_(source.schema()) {
    if constexpr (requires {
                    { pipeline.keys() } -> std::convertible_to<std::vector<std::string> const&>;
                  })
      check_keys(pipeline.keys());
  }
  /// Of ids as they are stored.
  sample_reader(host_exec const& exec, Source const& source, sample_reader_options options = {}) requires std::same_as<Pipeline, stored_ids>
      : sample_reader(exec, source, as_stored, std::move(options)) {}

  // What would be gone before the first batch.
  sample_reader(host_exec const&, Source const&&, Pipeline const&, sample_reader_options = {}) = delete;
  sample_reader(host_exec const&, Source const&, Pipeline const&&, sample_reader_options = {}) = delete;
  sample_reader(host_exec const&, Source const&&, Pipeline const&&, sample_reader_options = {}) = delete;
  sample_reader(host_exec const&, Source const&&, sample_reader_options = {}) = delete;

  /// Names of a batch's keys, in their order.
  std::vector<std::string> const& keys() const noexcept { return groups_.keys; }
  /// Samples of an epoch.
  std::int64_t rows() const noexcept {
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < options_.blocks; ++b) sum += source_->rows(options_.first_block + b);
    return sum;
  }
  /// Of all calls of `next` that gave a batch.
  reader_times const& times() const noexcept { return times_; }

  /// The next batch: true, and `out` shows it until the next call. Or the end of an epoch: false; the call after that begins the next.
  ///
  /// Takes from `exec`'s memory, on the calling thread alone unless data set or pipeline do otherwise: first what the block and the batch need
  /// more than all before, which stays; then the batch's features and the workspace of making them, which are back before the next batch takes
  /// anything. So an arena that serves the reader alone soon takes no more from its upstream. The memory outlives the reader.
  /// @throws tessera::error as the data set, `deduplicate` and the pipeline; corrupt_file for a block of another size than the data set said.
  /// The position is then what it was, and the call after that gives this batch, or throws again.
  bool next(host_exec const& exec, batch_view& out) {
    if (walk_.at_end()) {
      walk_.begin_next_epoch();
      return false;
    }
    features_ = {};  // before anything is taken, so that nothing stays behind it in an arena
    stopwatch watch;
    auto place = walk_.position();
    auto const size = walk_.batch_size(options_.batch_size);
    auto const rows = pick(exec, place, size);
    times_.fill += watch.lap();
    copy_numbers(exec, rows, size);
    times_.process += watch.lap();
    features_ = distinct_rows(exec, rows, size);
    times_.convert += watch.lap();
    features_ = (*pipeline_)(exec, std::move(features_));
    times_.process += watch.lap();

    auto const features = std::as_const(features_).view();
    out = {};
    out.dense = {dense_.data(), size, rows.from.dense.rows()};
    out.labels = std::as_const(labels_).view();
    out.sparse = features.distinct;
    out.groups = features.groups;
    out.sample_ids = std::as_const(sample_ids_).view();
    out.session_ids = std::as_const(session_ids_).view();
    out.id = place.batch++;
    out.epoch = place.epoch;
    walk_.stand_at(place);
    return true;
  }

  /// Of the batch that `next` gives next.
  reader_position position() const noexcept { return walk_.position(); }
  /// Samples that this epoch had before the next batch. Looks at every block before it.
  std::int64_t epoch_samples() const noexcept { return walk_.epoch_samples(); }
  /// Goes on from there: the same batches come as came after `position()` gave it, given the same data set and options.
  /// @throws tessera::error incompatible for a position that this data set does not have.
  void seek(reader_position position) { walk_.seek("sample_reader", position); }

  /// Of the reader, the block in memory and the last batch.
  std::size_t bytes() const noexcept {
    return sizeof(*this) + columns_.bytes() + pending_.bytes() + features_.bytes() + walk_.bytes() + row_order_.capacity_bytes() +
           dense_.capacity_bytes() + labels_.capacity_bytes() + sample_ids_.capacity_bytes() + session_ids_.capacity_bytes() +
           columns_of_keys_.capacity_bytes() + lists_.capacity_bytes();
  }

 private:
  static constexpr std::int64_t nothing = -1, samples_per_piece = 256;
  static constexpr stored_ids as_stored{};

  void check_keys(std::vector<std::string> const& names) const {
    for (std::size_t key = 0; key < std::max(names.size(), groups_.keys.size()); ++key) {
      auto const name = key < names.size() ? names[key] : std::string("none"),
                 own = key < groups_.keys.size() ? groups_.keys[key] : std::string("none");
      if (name != own)
        throw error(errc::shape_mismatch, "sample_reader: a pipeline of other keys; it takes those that `group_keys` orders",
                    {{"key", key}, {"name", own}, {"name in the pipeline", name}});
    }
  }

  static sample_reader_options checked(Source const& source, sample_reader_options options) {
    if (options.batch_size < 1)
      throw error(errc::invalid_argument, "sample_reader: option batch_size", {{"batch_size", options.batch_size}, {"least", 1}});
    detail::check_choice("sample_reader", "order", options.order, sample_order::sessions);
    detail::check_choice("sample_reader", "dense", options.dense, dense_values::log);
    auto const blocks = source.block_count();
    if (options.first_block < 0 || options.first_block > blocks || options.blocks < -1 || options.blocks > blocks - options.first_block)
      throw error(errc::invalid_argument, "sample_reader: no such blocks",
                  {{"first_block", options.first_block}, {"blocks", options.blocks}, {"blocks of the data set", blocks}});
    if (options.blocks == -1) options.blocks = blocks - options.first_block;
    if (options.order == sample_order::sessions && sample_schema(source.schema()).session.empty())
      throw error(errc::invalid_argument, "sample_reader: sessions to shuffle, and no column of sessions");
    return options;
  }

  // Samples of a batch: those that are listed, or, where none is, those from `first` on.
  struct picked_rows {
    sample_columns_view from;
    std::int64_t first;
    vector_view<std::int64_t const> listed;
  };

  // The next `size` samples, copied where they are not all of one block. Advances `place`.
  picked_rows pick(host_exec const& exec, reader_position& place, std::int64_t size) {
    bool const is_stored = options_.order == sample_order::stored;
    sample_ids_.resize(exec, size);
    pending_.clear();
    for (std::int64_t done = 0; done < size;) {
      auto const block = walk_.block(place), offset = place.offset;
      load(exec, block);
      auto const count = std::min(size - done, walk_.left_in_block(place));
      vector_view<std::int64_t const> listed;
      if (!is_stored) listed = std::as_const(row_order_).view().slice(offset, count);
      for (std::int64_t i = 0; i < count; ++i) sample_ids_[done + i] = source_->first_row(block) + (is_stored ? offset + i : listed[i]);
      walk_.advance(place, count);
      if (count == size) return {columns_.view(), offset, listed};
      if (is_stored)
        pending_.append(exec, columns_.view(), offset, count);
      else
        pending_.append(exec, columns_.view(), listed);
      done += count;
    }
    return {pending_.view(), 0, {}};
  }

  // Has a block's rows in memory, and their order in this epoch.
  void load(host_exec const& exec, std::int64_t block) {
    if (block != loaded_block_) {
      loaded_block_ = ordered_epoch_ = nothing;
      source_->read(exec, block, columns_);
      if (columns_.size() != source_->rows(block))
        throw error(errc::corrupt_file, "sample_reader: a block of another size than it was",
                    {{"block", block}, {"rows", columns_.size()}, {"expected", source_->rows(block)}});
      loaded_block_ = block;
    }
    auto const epoch = walk_.position().epoch;
    if (epoch == ordered_epoch_ || options_.order == sample_order::stored) return;
    order_rows(exec, detail::row_order_stream(epoch, block));
    ordered_epoch_ = epoch;
  }

  void order_rows(host_exec const& exec, std::uint64_t stream) {
    auto const n = columns_.size();
    row_order_.resize(exec, n);
    if (options_.order == sample_order::samples) {
      std::iota(row_order_.begin(), row_order_.end(), std::int64_t{0});
      return detail::shuffle(options_.seed, stream, detail::row_order_words, row_order_.view());
    }
    auto const sessions = columns_.view().sessions;
    buffer<std::int64_t> firsts(exec, n);  // of each run of one session
    std::int64_t runs = 0;
    for (std::int64_t i = 0; i < n; ++i)
      if (i == 0 || sessions[i] != sessions[i - 1]) firsts[runs++] = i;
    detail::shuffle(options_.seed, stream, detail::row_order_words, firsts.view().slice(0, runs));
    std::int64_t to = 0;
    for (std::int64_t r = 0; r < runs; ++r)
      for (auto i = firsts[r]; i < n && sessions[i] == sessions[firsts[r]]; ++i) row_order_[to++] = i;
  }

  void copy_numbers(host_exec const& exec, picked_rows const& rows, std::int64_t size) {
    dense_.resize(exec, size * rows.from.dense.rows());
    labels_.resize(exec, size);
    session_ids_.resize(exec, rows.from.sessions.empty() ? 0 : size);
    if (rows.listed.empty())
      copy_numbers(rows.from, size, [first = rows.first](std::int64_t i) { return first + i; });
    else
      copy_numbers(rows.from, size, [listed = rows.listed](std::int64_t i) { return listed[i]; });
  }

  template <class RowOf>
  void copy_numbers(sample_columns_view const& from, std::int64_t size, RowOf const& row_of) {
    auto const columns = from.dense.rows();
    for (std::int64_t i = 0; i < size; ++i) labels_[i] = from.labels[row_of(i)];
    for (std::int64_t i = 0; i < session_ids_.size(); ++i) session_ids_[i] = from.sessions[row_of(i)];
    for (std::int64_t c = 0; c < columns; ++c) {
      auto const* const values = from.dense.row(c);
      if (options_.dense == dense_values::log)
        for (std::int64_t i = 0; i < size; ++i) dense_[i * columns + c] = std::log(std::max(values[row_of(i)], 0.0F) + 1);
      else
        for (std::int64_t i = 0; i < size; ++i) dense_[i * columns + c] = values[row_of(i)];
    }
  }

  inverse_keyed_jagged<> distinct_rows(host_exec const& exec, picked_rows const& rows, std::int64_t size) {
    auto const keys = static_cast<std::int64_t>(groups_.keys.size());
    auto const column = [&](std::int64_t key) { return rows.from.sparse[groups_.order[static_cast<std::size_t>(key)]]; };
    if (rows.listed.empty()) {
      columns_of_keys_.resize(exec, keys);
      for (std::int64_t k = 0; k < keys; ++k) columns_of_keys_[k] = column(k).slice(rows.first, size);
      vector_view<jagged_view<std::int64_t const> const> const columns(columns_of_keys_.view());
      return deduplicate(exec, columns, groups_.keys_per_group);
    }
    lists_.resize(exec, size * keys);
    for_each_piece(exec, size, samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = 0; k < keys; ++k)
        for (auto i = begin; i < end; ++i) lists_[i * keys + k] = column(k).row(rows.listed[i]);
    });
    matrix_view<vector_view<std::int64_t const> const> const lists(lists_.data(), size, keys);
    return deduplicate(exec, lists, groups_.keys_per_group);
  }

  Source const* source_;
  Pipeline const* pipeline_;
  sample_reader_options options_;
  key_groups groups_;
  detail::block_walk<Source> walk_;
  reader_times times_;
  sample_columns columns_;  // of the loaded block
  sample_columns pending_;  // rows of a batch that do not lie side by side in one block
  std::int64_t loaded_block_ = nothing;
  std::int64_t ordered_epoch_ = nothing;  // in whose order row_order_ lists the block's rows
  buffer<std::int64_t> row_order_;
  buffer<jagged_view<std::int64_t const>> columns_of_keys_;
  buffer<vector_view<std::int64_t const>> lists_;  // (samples, keys), where a block's rows come in another order
  inverse_keyed_jagged<> features_;                // of the last batch
  buffer<float> dense_, labels_;
  buffer<std::int64_t> sample_ids_, session_ids_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
