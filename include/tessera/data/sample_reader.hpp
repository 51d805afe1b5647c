// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
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
#include <tessera/data/bound_pipeline.hpp>
#include <tessera/data/picked_rows.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/data/shuffle.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/key_groups.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <sample_source Source, class Pipeline>
class dealt_reader;

/// Gives the batches of a data set of samples, epoch after epoch.
///
///     preprocessing const prepare = …;
///     sample_reader reader(exec, log, prepare, {.batch_size = 512, .order = sample_order::samples});
///     for (batch_view batch; reader.next(exec, batch);) run.step(exec, batch);
///
/// An epoch has every sample of the blocks once, but for a short batch that is dropped. What comes depends on data set, pipeline and
/// options alone. Data set and pipeline outlive the reader. One thread at a time.
///
/// With a `slice`, the readers of all ranks together give the batches of one reader, rank 0's part first. A part of few samples may be
/// empty. Each reader decodes every block that its parts lie in; a `dealt_reader` reads each block on one rank. Positions and sizes are those
/// of whole batches, so a position of one rank is that of all, and of another number of ranks.
///
/// `Pipeline` says what becomes of ids: `pipeline(exec, inverse_keyed_jagged<>) -> inverse_keyed_jagged<>`. The result has the same
/// samples, groups and keys. An `id_pipeline` is such a pipeline. A pipeline sees each distinct row of a group once, and may offer more:
/// - `of_keys(keys)` makes a function for the reader's keys, which is called in the pipeline's place. Keys that the function drops are not
///   read. A `preprocessing` has it.
/// - `dense()`, as a `dense_pipeline`, says what becomes of numbers. Without it numbers are as stored, and 0 where they are missing.
/// - `takes_missing`, true, lets `missing_id` stay in columns of single ids. Without it the row becomes empty.
///
/// A pipeline is given memory that ends with the reader; a pipeline that keeps a batch copies it.
///
/// Columns of the groups come first among the keys, group after group. So groups decide the order of the keys: `keys()`. The readers of one
/// model, for training and for tests, have the same groups. Batches name their keys, and models refuse others.
///
/// One block is in memory at a time, and the rows of a batch that does not lie in one block. Source: RecD, Sections 4.2 and 4.3.
template <sample_source Source, class Pipeline = stored_ids>
class sample_reader {
 public:
  /// Stands at the beginning of epoch 0, and reads nothing yet.
  /// @throws tessera::error invalid_argument for batch_size < 1, for blocks that the data set does not have, and for a slice that cannot be.
  /// invalid_argument also for groups as `group_keys`, and for sample_order::sessions without a column of sessions. shape_mismatch for a
  /// pipeline that was made for other keys or in another order, or for other dense columns.
  sample_reader(host_exec const& exec, Source const& source, Pipeline const& pipeline, sample_reader_options options = {})
      : source_(&source),
        pipeline_(&pipeline),
        options_(checked(source, std::move(options))),
        groups_(group_keys(source.schema().sparse, options_.groups)),
        ids_(pipeline, groups_),
        walk_(exec, source, options_.blocks, options_.order != sample_order::stored, options_.seed),
        columns_(source.schema()),
        pending_(source.schema()) {
    detail::check_dense_columns(pipeline, source.schema().dense);
  }
  /// Makes a reader whose pipeline leaves ids as they are stored.
  sample_reader(host_exec const& exec, Source const& source, sample_reader_options options = {}) requires std::same_as<Pipeline, stored_ids>
      : sample_reader(exec, source, as_stored, std::move(options)) {}
  sample_reader(sample_reader&&) noexcept = default;
  sample_reader& operator=(sample_reader&&) = delete;

  // What would be gone before the first batch.
  sample_reader(host_exec const&, Source const&&, Pipeline const&, sample_reader_options = {}) = delete;
  sample_reader(host_exec const&, Source const&, Pipeline const&&, sample_reader_options = {}) = delete;
  sample_reader(host_exec const&, Source const&&, Pipeline const&&, sample_reader_options = {}) = delete;
  sample_reader(host_exec const&, Source const&&, sample_reader_options = {}) = delete;

  /// The data set.
  Source const& source() const noexcept { return *source_; }
  /// The names of a batch's keys, in their order.
  std::vector<std::string> const& keys() const noexcept { return groups_.keys; }
  /// How many samples the blocks have.
  std::int64_t rows() const noexcept { return rows_of(*source_, options_.blocks); }
  /// How many batches an epoch has. There are none where the blocks have no sample, as a part of few blocks may, or only a short batch that
  /// is dropped.
  std::int64_t epoch_batches() const noexcept { return tessera::epoch_batches(rows(), options_.batch_size, options_.last_batch); }
  /// Seconds that all calls of `next` took.
  reader_times const& times() const noexcept { return times_; }

  /// Gives true, and `out` shows the next batch until the next call. At the end of an epoch it gives false, and the call after that begins
  /// the next epoch.
  ///
  /// The calling thread alone takes from `exec`'s memory, unless data set or pipeline do otherwise. What the block and the batch need more
  /// than all before comes first, and stays. Then come the batch's features and the workspace of making them, which are back before the
  /// next batch takes anything. So an arena that serves the reader alone soon takes no more from its upstream. The memory outlives the
  /// reader.
  /// @throws what data set and pipeline throw; tessera::error as `deduplicate`. corrupt_file for a block of another size than the data set
  /// said. shape_mismatch for a pipeline that changes samples or keys. The position is then what it was; the call after that gives this
  /// batch, or throws again.
  bool next(host_exec const& exec, batch_view& out) {
    auto const size = walk_.left(options_.batch_size);
    if (size == 0 || (options_.last_batch == short_batch::drop && size < options_.batch_size)) {
      walk_.begin_next_epoch();
      return false;
    }
    auto const before = options_.slice.first(size), mine = options_.slice.size(size);
    give(exec, before, mine, size - before - mine, out);
    return true;
  }

  /// Where the next batch begins.
  reader_position position() const noexcept { return walk_.position(); }
  /// How many samples this epoch had before the next batch. The call looks at every block before that batch.
  std::int64_t epoch_samples() const noexcept { return walk_.epoch_samples(); }
  /// Goes on from a position. @post the batches are those that came after `position()` gave it, with the same data set, pipeline and
  /// options.
  /// @throws tessera::error incompatible for a position that these blocks do not have.
  void seek(reader_position position) { walk_.seek("sample_reader", position); }

  /// Bytes of the reader, the block in memory and the last batch.
  std::size_t bytes() const noexcept {
    return sizeof(*this) + columns_.bytes() + pending_.bytes() + features_.bytes() + walk_.bytes() + keys_.bytes() +
           row_order_.capacity_bytes() + dense_.capacity_bytes() + labels_.capacity_bytes() + weights_.capacity_bytes() +
           other_labels_.capacity_bytes() + sample_ids_.capacity_bytes() + session_ids_.capacity_bytes() +
           columns_of_keys_.capacity_bytes() + lists_.capacity_bytes();
  }

 private:
  template <sample_source S, class P>
  friend class dealt_reader;

  static constexpr std::int64_t nothing = -1, samples_per_piece = 256;
  static constexpr bool keeps_missing = detail::takes_missing<Pipeline>;
  static constexpr stored_ids as_stored{};

  static sample_reader_options checked(Source const& source, sample_reader_options options) {
    if (options.batch_size < 1)
      throw error(errc::invalid_argument, "sample_reader: option batch_size", {{"batch_size", options.batch_size}, {"least", 1}});
    detail::check_choice("sample_reader", "order", options.order, sample_order::sessions);
    detail::check_choice("sample_reader", "last_batch", options.last_batch, short_batch::drop);
    auto& blocks = options.blocks;
    auto const all = source.block_count();
    if (blocks.first < 0 || blocks.first > all || blocks.count < -1 || blocks.count > all - blocks.first)
      throw error(errc::invalid_argument, "sample_reader: no such blocks",
                  {{"first", blocks.first}, {"count", blocks.count}, {"blocks of the data set", all}});
    if (blocks.count == -1) blocks.count = all - blocks.first;
    auto const& slice = options.slice;
    if (slice.ranks < 1 || slice.rank < 0 || slice.rank >= slice.ranks || slice.chunk_samples < 1)
      throw error(errc::invalid_argument, "sample_reader: option slice",
                  {{"rank", slice.rank}, {"ranks", slice.ranks}, {"chunk_samples", slice.chunk_samples}});
    if (options.order == sample_order::sessions && source.schema().session.empty())
      throw error(errc::invalid_argument, "sample_reader: sessions to shuffle, and no column of sessions");
    return options;
  }

  // A batch of `mine` samples, which may be none, behind `before` others of the walk. It moves on over `after` more.
  void give(host_exec const& exec, std::int64_t before, std::int64_t mine, std::int64_t after, batch_view& out) {
    features_ = {};  // before anything is taken, so that nothing stays behind it in an arena
    stopwatch watch;
    auto place = walk_.position();
    skip(place, before);
    auto const rows = pick(exec, place, mine);
    skip(place, after);
    times_.fill += watch.lap();
    copy_numbers(exec, rows);
    times_.process += watch.lap();
    features_ = make_features(exec, rows);
    times_.convert += watch.lap();
    features_ = ids_(exec, std::move(features_));
    check_features(mine);
    times_.process += watch.lap();

    auto const features = std::as_const(features_).view();
    out = {};
    out.dense = {dense_.data(), mine, dense_features(rows.from)};
    out.labels = std::as_const(labels_).view();
    out.weights = std::as_const(weights_).view();
    if (auto const columns = rows.from.other_labels.rows(); columns > 0) out.other_labels = {other_labels_.data(), mine, columns};
    out.sparse = features.distinct;
    out.groups = features.groups;
    out.key_names = groups_.keys;
    out.sample_ids = std::as_const(sample_ids_).view();
    out.session_ids = std::as_const(session_ids_).view();
    out.id = place.batch++;
    out.epoch = place.epoch;
    walk_.stand_at(place);
  }

  void skip(reader_position& place, std::int64_t samples) const noexcept {
    while (samples > 0) {
      auto const here = std::min(samples, walk_.left_in_block(place));
      walk_.advance(place, here);
      samples -= here;
    }
  }

  // The next `size` samples, copied where they are not all of one block. Advances `place`.
  detail::picked_rows pick(host_exec const& exec, reader_position& place, std::int64_t size) {
    bool const is_stored = options_.order == sample_order::stored;
    sample_ids_.resize(exec, size);
    pending_.clear();
    for (std::int64_t done = 0; done < size;) {
      auto const block = walk_.block(place);
      load(exec, block);
      detail::picked_rows rows{columns_.view(), std::min(size - done, walk_.left_in_block(place)), place.offset};
      if (!is_stored) rows.listed = std::as_const(row_order_).view().slice(place.offset, rows.size);
      auto const first_row = source_->first_row(block);
      for (std::int64_t i = 0; i < rows.size; ++i) sample_ids_[done + i] = first_row + rows.row(i);
      walk_.advance(place, rows.size);
      if (rows.size == size) return rows;
      if (is_stored)
        pending_.append(exec, rows.from, rows.first, rows.size);
      else
        pending_.append(exec, rows.from, rows.listed);
      done += rows.size;
    }
    return {pending_.view(), size};
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

  std::int64_t dense_features(sample_columns_view const& from) const noexcept {
    if constexpr (detail::has_dense<Pipeline>)
      return pipeline_->dense().features();
    else
      return from.dense.rows();
  }

  void copy_numbers(host_exec const& exec, detail::picked_rows const& rows) {
    auto const& from = rows.from;
    auto const size = rows.size, features = dense_features(from);
    dense_.resize(exec, size * features);
    labels_.resize(exec, size);
    weights_.resize(exec, from.weights.empty() ? 0 : size);
    other_labels_.resize(exec, size * from.other_labels.rows());
    session_ids_.resize(exec, from.sessions.empty() ? 0 : size);
    matrix_view<float> const dense(dense_.data(), size, features), others(other_labels_.data(), size, from.other_labels.rows());
    rows.visit([&](auto const& row_of) {
      for_each_piece(exec, size, samples_per_piece, [&](std::int64_t first, std::int64_t last) {
        for (auto i = first; i < last; ++i) labels_.data()[i] = from.labels.data()[row_of(i)];
        if (!weights_.empty())
          for (auto i = first; i < last; ++i) weights_.data()[i] = from.weights.data()[row_of(i)];
        if (!session_ids_.empty())
          for (auto i = first; i < last; ++i) session_ids_.data()[i] = from.sessions.data()[row_of(i)];
        copy_columns(from.other_labels, first, last, row_of, others, [](float x) { return x; });
        if constexpr (!detail::has_dense<Pipeline>) copy_columns(from.dense, first, last, row_of, dense, present_or_zero);
      });
    });
    if constexpr (detail::has_dense<Pipeline>) {
      if (rows.listed.empty())
        pipeline_->dense()(exec, from.dense, rows.first, size, dense);
      else
        pipeline_->dense()(exec, from.dense, rows.listed, dense);
    }
  }

  // By bits: a branch would be mispredicted at every other number that is missing.
  static float present_or_zero(float x) noexcept {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & (std::uint32_t{0} - static_cast<std::uint32_t>(x == x)));
  }
  template <class RowOf, class F>
  static void copy_columns(matrix_view<float const> columns, std::int64_t first, std::int64_t last, RowOf const& row_of,
                           matrix_view<float> to, F const& f) {
    for (std::int64_t c = 0; c < columns.rows(); ++c) {
      auto const* const values = columns.row(c);
      for (auto i = first; i < last; ++i) to.data()[i * to.columns() + c] = f(values[row_of(i)]);
    }
  }

  inverse_keyed_jagged<> make_features(host_exec const& exec, detail::picked_rows const& rows) {
    if (groups_.keys_per_group.empty())
      return inverse_keyed_jagged<>::from_parts(keys_(exec, rows, groups_.order, keeps_missing), {}, {}, rows.size);
    auto const keys = static_cast<std::int64_t>(groups_.keys.size());
    auto const column_of = [&](std::int64_t key) { return groups_.order[static_cast<std::size_t>(key)]; };
    auto const drops = [&](std::int64_t key) { return !keeps_missing && rows.from.single(column_of(key)); };
    bool drops_any = false;
    for (std::int64_t k = 0; k < keys; ++k) drops_any = drops_any || drops(k);
    if (rows.listed.empty() && !drops_any) {
      columns_of_keys_.resize(exec, keys);
      for (std::int64_t k = 0; k < keys; ++k) columns_of_keys_[k] = rows.from.sparse[column_of(k)].slice(rows.first, rows.size);
      vector_view<jagged_view<std::int64_t const> const> const columns(columns_of_keys_.view());
      return deduplicate(exec, columns, groups_.keys_per_group);
    }
    lists_.resize(exec, rows.size * keys);
    for_each_piece(exec, rows.size, samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = 0; k < keys; ++k) {
        auto const column = rows.from.sparse[column_of(k)];
        for (auto i = begin; i < end; ++i) {
          auto list = column.row(rows.row(i));
          if (drops(k) && list[0] == missing_id) list = {};
          lists_.data()[i * keys + k] = list;
        }
      }
    });
    matrix_view<vector_view<std::int64_t const> const> const lists(lists_.data(), rows.size, keys);
    return deduplicate(exec, lists, groups_.keys_per_group);
  }

  void check_features(std::int64_t size) const {
    auto const keys = static_cast<std::int64_t>(groups_.keys.size());
    if (auto const made = features_.view(); made.samples != size || made.keys() != keys)
      throw error(errc::shape_mismatch, "sample_reader: the pipeline has made a batch of other samples or keys",
                  {{"samples", made.samples}, {"expected samples", size}, {"keys", made.keys()}, {"expected keys", keys}});
  }

  Source const* source_;
  Pipeline const* pipeline_;
  sample_reader_options options_;
  key_groups groups_;
  detail::bound_pipeline<Pipeline> ids_;
  detail::block_walk<Source> walk_;
  reader_times times_;
  sample_columns columns_;  // of the loaded block
  sample_columns pending_;  // rows of a batch that do not lie side by side in one block
  std::int64_t loaded_block_ = nothing;
  std::int64_t ordered_epoch_ = nothing;  // in whose order row_order_ lists the block's rows
  buffer<std::int64_t> row_order_;
  detail::key_maker keys_;
  buffer<jagged_view<std::int64_t const>> columns_of_keys_;
  buffer<vector_view<std::int64_t const>> lists_;  // (samples, keys), where rows of groups do not lie one after the other
  inverse_keyed_jagged<> features_;                // of the last batch, maybe in the memory of keys_: after it
  buffer<float> dense_, labels_, weights_;
  buffer<float> other_labels_;  // (samples, other labels)
  buffer<std::int64_t> sample_ids_, session_ids_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
