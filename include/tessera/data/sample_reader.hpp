// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/batch.hpp>
#include <tessera/data/block_walk.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/shuffle.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/key_groups.hpp>

namespace tessera::inline TESSERA_ABI {

/// A data set of samples in blocks that can be read in any order: `rows()`, `block_count()`, none of them empty, `rows(block)`,
/// `first_row(block)`, `largest_block_rows()`, `schema()`; `read(exec, block, out)` overwrites `out`.
template <class L>
concept sample_log = requires(L const& log, host_exec const& exec, std::int64_t block, sample_columns& out) {
  { log.schema() } -> std::convertible_to<sample_schema>;
  { log.rows() } -> std::same_as<std::int64_t>;
  { log.block_count() } -> std::same_as<std::int64_t>;
  { log.rows(block) } -> std::same_as<std::int64_t>;
  { log.first_row(block) } -> std::same_as<std::int64_t>;
  { log.largest_block_rows() } -> std::same_as<std::int64_t>;
  log.read(exec, block, out);
};

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
  std::int64_t batch_size = 2048;  ///< samples; the last batch of an epoch may have fewer
  sample_order order = sample_order::stored;
  random_seed seed{};
  dense_values dense = dense_values::as_stored;
  std::int64_t first_block = 0;  ///< of the data set, and how many from there on; -1: all that are left
  std::int64_t blocks = -1;
  std::vector<std::vector<std::string>> groups;  ///< sparse columns whose repeated rows are kept once (IKJT); none: a row a sample

  sample_reader_options() = default;
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
/// distinct while they are converted; `Pipeline` (an `id_pipeline`, or anything that makes a batch of a batch: `pipeline(exec, batch)`) then sees
/// each distinct row once. Source: RecD, Sections 4.2 and 4.3.
///
/// An epoch has every sample once; what comes depends on the data set, the pipeline and the options alone. One block is in memory at a time, and
/// the rows of a batch that does not lie in one block. Data set and pipeline outlive it. One thread at a time.
template <sample_log Log, class Pipeline = stored_ids>
class sample_reader {
 public:
  /// @throws tessera::error invalid_argument for batch_size < 1, blocks that the data set does not have, groups as `group_keys`, or
  /// sample_order::sessions without a column of sessions.
  sample_reader(host_exec const& exec, Log const& log, Pipeline const& pipeline, sample_reader_options options = {})
      : log_(&log),
        pipeline_(&pipeline),
        options_(checked(log, std::move(options))),
        groups_(group_keys(sample_schema(log.schema()).sparse, options_.groups)),
        walk_(exec, log, options_.first_block, options_.blocks, options_.order != sample_order::stored, options_.seed),
        columns_(log.schema()),
        pending_(log.schema()) {
    sample_schema const schema = log.schema();
    for (auto const key : groups_.order) keys_.push_back(schema.sparse[static_cast<std::size_t>(key)]);
  }

  /// Names of a batch's keys, in their order.
  std::vector<std::string> const& keys() const noexcept { return keys_; }
  /// Samples of an epoch.
  std::int64_t rows() const noexcept {
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < options_.blocks; ++b) sum += log_->rows(options_.first_block + b);
    return sum;
  }
  reader_times const& times() const noexcept { return times_; }

  /// The next batch: true, and `out` shows it until the next call. Or the end of an epoch: false; the call after that begins the next.
  /// @throws tessera::error as the data set and the pipeline; the position is then what it was.
  bool next(host_exec const& exec, batch_view& out) {
    if (walk_.at_end()) {
      walk_.begin_next_epoch();
      return false;
    }
    stopwatch watch;
    auto place = walk_.position();
    auto const size = walk_.batch_size(options_.batch_size);
    sample_ids_.resize(exec, size);
    std::int64_t first = 0;  // of the batch, in `rows`
    auto const rows = pick(exec, place, size, first);
    times_.fill += watch.lap();

    auto const keys = static_cast<std::int64_t>(keys_.size());
    columns_of_keys_.resize(exec, keys);
    for (std::int64_t k = 0; k < keys; ++k)
      columns_of_keys_[k] = rows.sparse[groups_.order[static_cast<std::size_t>(k)]].slice(first, size);
    vector_view<jagged_view<std::int64_t const> const> const columns(columns_of_keys_.view());
    auto made = deduplicate(exec, columns, groups_.keys_per_group);
    times_.convert += watch.lap();
    made = (*pipeline_)(exec, std::move(made));
    copy_dense(exec, rows, first, size);
    times_.process += watch.lap();

    features_ = std::move(made);
    auto const features = std::as_const(features_).view();
    out = {};
    out.dense = {dense_.data(), size, rows.dense.rows()};
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

  std::size_t bytes() const noexcept {
    return sizeof(*this) + columns_.bytes() + pending_.bytes() + features_.bytes() + walk_.bytes() + row_order_.capacity_bytes() +
           dense_.capacity_bytes() + labels_.capacity_bytes() + sample_ids_.capacity_bytes() + session_ids_.capacity_bytes() +
           columns_of_keys_.capacity_bytes();
  }

 private:
  static constexpr std::int64_t nothing = -1;

  class stopwatch {
   public:
    double lap() noexcept {
      auto const now = clock::now();
      return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
    }

   private:
    using clock = std::chrono::steady_clock;
    clock::time_point last_ = clock::now();
  };

  static sample_reader_options checked(Log const& log, sample_reader_options options) {
    if (options.batch_size < 1)
      throw error(errc::invalid_argument, "sample_reader: option batch_size", {{"batch_size", options.batch_size}, {"least", 1}});
    if (options.blocks < 0) options.blocks = log.block_count() - options.first_block;
    if (options.first_block < 0 || options.blocks < 0 || options.first_block + options.blocks > log.block_count())
      throw error(errc::invalid_argument, "sample_reader: no such blocks",
                  {{"first_block", options.first_block}, {"blocks", options.blocks}, {"blocks of the data set", log.block_count()}});
    if (options.order == sample_order::sessions && sample_schema(log.schema()).session.empty())
      throw error(errc::invalid_argument, "sample_reader: sessions to shuffle, and no column of sessions");
    return options;
  }

  // The next `size` samples: rows [first, first + size) of the result. Advances `place`.
  sample_columns_view pick(host_exec const& exec, reader_position& place, std::int64_t size, std::int64_t& first) {
    pending_.clear();
    for (std::int64_t done = 0; done < size;) {
      auto const block = walk_.block(place);
      load(exec, block);
      auto const count = std::min(size - done, walk_.left_in_block(place));
      bool const is_stored = options_.order == sample_order::stored;
      for (std::int64_t i = 0; i < count; ++i)
        sample_ids_[done + i] = log_->first_row(block) + (is_stored ? place.offset + i : row_order_[place.offset + i]);
      auto const offset = place.offset;
      walk_.advance(place, count);
      if (is_stored && count == size) {
        first = offset;
        return columns_.view();
      }
      if (is_stored)
        pending_.append(exec, columns_.view(), offset, count);
      else
        pending_.append(exec, columns_.view(), std::as_const(row_order_).view().slice(offset, count));
      done += count;
    }
    first = 0;
    return pending_.view();
  }

  // Has a block's rows in memory, and their order in this epoch.
  void load(host_exec const& exec, std::int64_t block) {
    if (block != loaded_block_) {
      loaded_block_ = ordered_epoch_ = nothing;
      log_->read(exec, block, columns_);
      if (columns_.size() != log_->rows(block))
        throw error(errc::corrupt_file, "sample_reader: a block of another size than it was",
                    {{"block", block}, {"rows", columns_.size()}, {"expected", log_->rows(block)}});
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

  void copy_dense(host_exec const& exec, sample_columns_view rows, std::int64_t first, std::int64_t size) {
    auto const columns = rows.dense.rows();
    dense_.resize(exec, size * columns);
    labels_.resize(exec, size);
    session_ids_.resize(exec, rows.sessions.empty() ? 0 : size);
    std::copy_n(rows.labels.data() + first, size, labels_.data());
    std::copy_n(rows.sessions.data() + first, session_ids_.size(), session_ids_.data());
    for (std::int64_t c = 0; c < columns; ++c) {
      auto const* const from = rows.dense.row(c) + first;
      if (options_.dense == dense_values::log)
        for (std::int64_t i = 0; i < size; ++i) dense_[i * columns + c] = std::log(std::max(from[i], 0.0F) + 1);
      else
        for (std::int64_t i = 0; i < size; ++i) dense_[i * columns + c] = from[i];
    }
  }

  Log const* log_;
  Pipeline const* pipeline_;
  sample_reader_options options_;
  key_groups groups_;
  detail::block_walk<Log> walk_;
  std::vector<std::string> keys_;
  reader_times times_;
  sample_columns columns_;  // of the loaded block
  sample_columns pending_;  // rows of a batch that do not lie side by side in one block
  std::int64_t loaded_block_ = nothing;
  std::int64_t ordered_epoch_ = nothing;  // in whose order row_order_ lists the block's rows
  buffer<std::int64_t> row_order_;
  buffer<jagged_view<std::int64_t const>> columns_of_keys_;
  inverse_keyed_jagged<> features_;  // of the last batch
  buffer<float> dense_, labels_;
  buffer<std::int64_t> sample_ids_, session_ids_;
};

}  // namespace tessera::inline TESSERA_ABI
