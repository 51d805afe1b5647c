// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/featured_tables.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/shard/agreed_shards.hpp>
#include <tessera/shard/copied_sums.hpp>
#include <tessera/shard/embedding_times.hpp>
#include <tessera/shard/exchange.hpp>
#include <tessera/shard/flat_exchange.hpp>
#include <tessera/shard/pooled_ids.hpp>
#include <tessera/shard/sample_rows.hpp>
#include <tessera/shard/sharded_batch.hpp>
#include <tessera/shard/sharded_saved.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/shards_here.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An embedding source whose tables lie on several ranks, each of which has a part of every batch. All ranks use it at the same time, like
/// `local_tables`.
///
///     std::vector<table_spec> specs{spec_of<dense_table<>>(users, adagrad{}), spec_of<hash_table<>>(items, adagrad{})};
///     auto const plan = plan_round_robin(options_of(specs), comm.size());
///     sharded_tables tables(exec, comm, specs, {{.name = "user", .table = 0}, {.name = "seen", .table = 1, .sequence = true}}, plan);
///
/// Ids go to the ranks that hold their tables, one message a pair of ranks, and the vectors come back; gradients go the same way. Each row's
/// gradients are summed in the order of (source rank, sample, key, position). So rows have the bits of one process whose batch is that of all
/// ranks, rank 0's samples first. A shard is a whole table, or a block of its columns: then row-wise state and clipping are those of the
/// block. A table may also be cut by rows, or both ways. Then vectors of single ids come back, and the rank that asked pools them. Of
/// a batch with groups, distinct rows travel, and gradients are summed by the inverse before they leave. With expanded sums, those of all
/// samples leave instead, and 4 bytes a sample and group say whose they are; of a sequence, 4 bytes a value. Rows then have the bits of the
/// batch without groups, and gradients of sequences its shape.
///
/// Ids of a hashed table count as rows of its `rows` by `hashed_row`, where it is cut by rows. Each shard has its share of `most_rows`, so
/// rows may leave that one process would keep, and the other way.
///
/// A table on all ranks is read where its ids are. Each row's gradients are summed by one rank, in the order above, and all ranks take the
/// same step with all sums. So copies keep the bits of one process. What is summed over ranks counts one of them (`part_place::is_copy`).
/// Ids of a hashed table go to all ranks, also for predictions, so that each copy gives new ids a row.
///
/// Where the plan says so, shards of rows return partial sums instead: each its sum of a bag's ids, which the rank that asked adds up, those of
/// the first rows first. A mean divides by the length of the whole bag, there. Vectors of n ids x, weighted by w, are then within
/// 2 (n + 1) 2^-24 Σ|w x| of those of one process, over the bag's length for a mean. Where a bag's ids lie in one shard, its vector has the
/// bits of one process, and so have sums' gradients; a mean's gradient is rounded once more. Equal batches give equal bits.
///
/// With `sharded_tables_options::sources`, a batch has the keys of several sources, source 0's first, each key with its own number of rows.
/// The features are those of one source. Outputs are those of source 0, then those of source 1. Row gradients are summed in the order of
/// (source, rank, sample, key, position). So a rank can stand for ranks elsewhere, whose batches it brings.
///
/// A rank that is alone and has no codecs sends nothing: its calls are those of `local_tables`, and take as long. So one program serves any
/// number of ranks.
///
/// Where a call throws on one rank for reasons of its data, that step throws on all ranks and names that rank. Where there are several
/// ranks, `finish` throws what `begin` found, and `finish_backward` what `begin_backward` found. Rows are then as before, but for new ids of
/// hashed tables. A rank whose `saved` ends with messages under way has left.
template <exchange Exchange>
class basic_sharded_tables {
 public:
  using exchange_type = Exchange;
  using execution_type = host_exec;
  using saved_type = basic_sharded_saved<Exchange>;
  using prepared_type = row_order;
  using gradients_type = row_gradients;

  /// Makes this rank's shards. All ranks call it with the same tables, features and plan, and the same optimizers in the specs, of which the
  /// names are compared.
  /// @throws tessera::error as `check_plan` and `local_tables`. incompatible where ranks disagree, naming the first difference.
  /// invalid_argument, naming the table, for two shards of one table on one rank. So it is for a hashed table on all ranks with policies or
  /// `most_rows`: after a step that failed on one rank, copies could differ in which ids have rows. So it is for blocks of columns of a
  /// hashed table whose rows are cut differently. So it is, too, for partial sums of a table that a feature reads as a sequence or pools by
  /// maximum. So it is for expanded sums of a table that is cut by rows or on all ranks. Where one rank throws, all throw.
  basic_sharded_tables(host_exec const& exec, any_communicator comm, std::vector<table_spec> const& specs,
                       std::vector<table_feature> const& features, sharding_plan const& plan, sharded_tables_options const& options = {})
      : specs_(specs),
        features_(detail::features_of_sources(features, options.sources)),
        options_(options),
        shards_(detail::agreed_shards(exec, comm, specs_, features_, plan, options_)),
        returns_(detail::returns_of_tables(specs_, plan, comm.size())),
        is_alone_(comm.size() == 1 && options_.codecs == exchange_codecs{}),
        exchange_(std::move(comm), detail::exchanged_keys(specs_, features_, returns_, options_.sources, expands()),
                  detail::exchanged_blocks(specs_, features_, shards_, returns_, options_.sources, expands()), options_.codecs),
        inner_(detail::make_shards(exec, exchange_.comm(), specs_, features_, options_, shards_here(), returns_, blocks_of_vectors(),
                                   options_.sources, inner_ranks())) {
    for (auto const& shard : shards_here()) is_copied_.push_back(returns_[at(shard.table)] == detail::cut_returns::own_vectors);
    for (std::size_t f = 0; f < features_.size(); ++f) {
      auto const key = static_cast<std::int64_t>(f);
      outputs_.push_back({features_[f].name, table_of(key).dim, key, features_[f].sequence,
                          features_[f].sequence && options_.sums == shared_gradients::expanded, features_[f].table, features_[f].pooling});
    }
  }

  vector_view<embedding_output const> outputs() const noexcept { return outputs_; }
  /// The features, in the order of the batch's keys.
  std::vector<table_feature> const& features() const noexcept { return features_; }
  /// The shards that lie here, as tables of their own.
  table_parts parts() { return inner_.parts(); }
  /// The tables of all ranks, and where in them the shards lie.
  table_places places() const { return detail::places_of_shards(specs_, shards_here(), returns_); }
  /// The ranks that hold the tables.
  any_communicator comm() const { return exchange_.comm(); }
  /// Bytes of the shards that lie here.
  std::size_t bytes() const noexcept { return inner_.bytes(); }

  /// The shards that lie here, in the order of `parts()`.
  std::vector<table_shard> const& shards_here() const noexcept { return shards_[exchange_.rank()]; }
  /// The shards that lie here, as tables of this process: shard s is its table s. They have the optimizers, whose rates may change.
  local_tables& here() noexcept { return inner_; }
  /// As above, to read.
  local_tables const& here() const noexcept { return inner_; }

  /// Sorts ids ahead on a rank that is alone. With other ranks it does nothing, since their ids are not here.
  void prepare(host_exec const& exec, batch_view const& batch, row_order& prepared) const {
    is_alone_ ? inner_.prepare(exec, batch, prepared) : prepared.clear();
  }

  /// Sends the batch's ids to the ranks that hold their tables.
  /// @throws tessera::error shape_mismatch and invalid_argument as `local_tables::begin`; out_of_range for an id that a dense table has no row
  /// for, naming feature, row, position and id.
  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved) {
    auto const clock = clock_of_begin();
    is_alone_ ? inner_.begin(exec, batch, saved.inner_) : send_ids(exec, batch, true, saved);
  }
  /// Begins with what `prepare` made of the batch.
  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved, row_order& prepared) {
    auto const clock = clock_of_begin();
    is_alone_ ? inner_.begin(exec, batch, saved.inner_, prepared) : send_ids(exec, batch, true, saved);
  }

  /// In place of `begin` and `finish`, or of `predict`: tells of a failure of this rank, and throws it. Other ranks throw in `finish`.
  void fail(host_exec const& exec, std::exception_ptr failure, saved_type& saved) const {
    send_failure(exec, std::move(failure), saved);
    saved.at_ = stage::none;
    exchange_.receive_ids(exec, saved.exchanged_);
  }

  /// Reads what other ranks ask for, and waits for this rank's vectors. Hashed tables give new ids a row.
  void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    detail::stage_clock clock(times_, is_alone_ ? &embedding_times::compute : &embedding_times::ids);
    if (is_alone_) return inner_.finish(exec, saved.inner_, out);
    read_rows(exec, saved, out, clock, [&](batch_view const& all) {
      inner_.begin(exec, all, saved.inner_);
      inner_.finish(exec, saved.inner_, out_of(saved));
    });
  }

  /// Writes the same vectors, and changes nothing. All ranks call it.
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    if (is_alone_) return inner_.predict(exec, batch, out);
    saved_type saved;
    send_ids(exec, batch, false, saved);
    detail::stage_clock clock(nullptr, &embedding_times::ids);
    read_rows(exec, saved, out, clock, [&](batch_view const& all) { inner_.predict(exec, all, out_of(saved)); });
  }

  /// Sends gradients to the ranks that hold their tables.
  void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients) const;

  /// In place of a backward, as `fail`.
  void fail_backward(host_exec const& exec, std::exception_ptr failure, saved_type& saved) const {
    send_backward_failure(exec, std::move(failure), saved);
    saved.at_ = stage::finished;
    exchange_.finish_gradients(exec, saved.exchanged_);
  }

  /// Waits for the gradients of this rank's shards, and updates their rows. Sums of tables that all ranks have go round in between.
  void finish_backward(host_exec const& exec, saved_type& saved) {
    detail::stage_clock clock(times_, &embedding_times::compute);
    if (is_alone_) return inner_.finish_backward(exec, saved.inner_);
    receive_gradients(exec, "sharded_tables::finish_backward", saved, clock);
    if (has_copies()) {
      update_with_copies(exec, saved, clock);
    } else {
      begin_inner_backward(exec, saved);
      inner_.finish_backward(exec, expands() ? saved.samples_.expanded() : saved.inner_);
    }
    saved.at_ = stage::finished;
  }
  /// Waits for the gradients of this rank's shards. Their rows are those of `parts()`; of a table that all ranks have, all get the same.
  void gradients(host_exec const& exec, saved_type const& saved, row_gradients& sum) const {
    detail::stage_clock clock(times_, &embedding_times::compute);
    if (!is_alone_) receive_gradients(exec, "sharded_tables::gradients", saved, clock);
    sum_gradients(exec, saved, sum, clock);
  }
  /// Makes one step of this rank's shards with these gradients. It does not wait for other ranks.
  void apply(host_exec const& exec, row_gradients const& sum) {
    detail::stage_clock const clock(times_, &embedding_times::compute);
    inner_.apply(exec, sum);
  }

  /// From now on adds the time of all calls but `prepare`, `predict` and failures to `times`, which stays until another call of this; nullptr:
  /// to none, as at first.
  void add_times_to(embedding_times* times) noexcept { times_ = times; }

 private:
  using stage = typename saved_type::stage;

  detail::stage_clock clock_of_begin() const noexcept { return {times_, is_alone_ ? &embedding_times::compute : &embedding_times::ids}; }
  // Keys of batches of several ranks have their own numbers of rows: one rank so stands beside one that has none.
  std::int64_t inner_ranks() const noexcept {
    return is_alone_ ? options_.sources : std::max<std::int64_t>(options_.sources * exchange_.comm().size(), 2);
  }
  std::int64_t inner_keys() const noexcept { return inner_ranks() * (blocks_of_vectors().size() / options_.sources); }
  // Whether gradients of all samples travel, with the rows that those have.
  bool expands() const noexcept { return options_.sums == shared_gradients::expanded && !is_alone_; }
  vector_view<exchanged_block const> blocks_of_vectors() const noexcept {
    vector_view<exchanged_block const> const all(exchange_.blocks_here());
    return all.slice(0, expands() ? all.size() / 2 : all.size());
  }
  // Vectors or gradients that a key has: one a row, where several sources give it rows of their own.
  std::int64_t rows_of(inverse_keyed_jagged_view<std::int64_t const> batch, std::int64_t key, bool of_samples) const noexcept {
    if (is_sequence(key)) return of_samples ? detail::featured_tables::expanded_size(batch, key) : batch.distinct.key(key).size();
    return options_.sources > 1 ? batch.distinct.rows(key) : batch.samples;
  }
  table_options const& table_of(std::int64_t key) const noexcept { return specs_[at(features_[at(key)].table)].table; }
  bool is_sequence(std::int64_t key) const noexcept { return features_[at(key)].sequence; }
  detail::cut_returns returns_of(std::int64_t key) const noexcept { return returns_[at(features_[at(key)].table)]; }
  bool is_pooled_here(std::int64_t key) const noexcept {
    return (returns_of(key) == detail::cut_returns::single_ids || returns_of(key) == detail::cut_returns::own_vectors) && !is_sequence(key);
  }
  bool has_copies() const noexcept { return std::find(is_copied_.begin(), is_copied_.end(), true) != is_copied_.end(); }
  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  // Where the vectors of the batch that came go.
  vector_view<matrix_view<float> const> out_of(saved_type const& saved) const {
    return expands() ? saved.samples_.vectors() : saved.exchanged_.out();
  }
  // With other ranks, `finish` throws it, in step with them; and `finish_backward`.
  void send_failure(host_exec const& exec, std::exception_ptr failure, saved_type& saved) const {
    saved.at_ = stage::none;
    if (exchange_.ranks() == 1) std::rethrow_exception(failure);
    exchange_.begin_ids(exec, std::move(failure), saved.exchanged_);
    saved.at_ = stage::begun;
  }
  void send_backward_failure(host_exec const& exec, std::exception_ptr failure, saved_type& saved) const {
    if (exchange_.ranks() == 1) std::rethrow_exception(failure);
    exchange_.begin_gradients(exec, std::move(failure), saved.exchanged_);
    saved.at_ = stage::gradients_sent;
  }
  void send_ids(host_exec const& exec, batch_view const& batch, bool learns, saved_type& saved) const;
  void sum_gradients(host_exec const& exec, saved_type const& saved, row_gradients& sum, detail::stage_clock& clock) const;
  void update_with_copies(host_exec const& exec, saved_type& saved, detail::stage_clock& clock);
  // Of tables that all ranks have, gets the sums of all ranks in place of this rank's. With a `failure`, all ranks throw, and none tries
  // again.
  void gather_copies(host_exec const& exec, saved_type const& saved, row_gradients& sum, std::exception_ptr failure,
                     detail::stage_clock& clock) const {
    clock.next(&embedding_times::gradients);
    saved.at_ = stage::finished;
    saved.copied_.gather(exec, exchange_.comm(), is_copied_, sum, failure,
                         [&](std::int64_t t, auto ids, auto slots) { inner_.find(exec, t, ids, slots); });
    clock.next(&embedding_times::compute);
  }
  template <class Read>
  void read_rows(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out, detail::stage_clock& clock,
                 Read const& read) const;
  void receive_gradients(host_exec const& exec, char const* call, saved_type const& saved, detail::stage_clock& clock) const;
  void begin_inner_backward(host_exec const& exec, saved_type const& saved) const;
  template <class Matrix>
  void check_blocks(char const* call, inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<Matrix const> blocks,
                    bool of_samples) const {
    if (blocks.size() != outputs().size())
      throw error(errc::shape_mismatch, std::string(call) + ": one block an output",
                  {{"outputs", outputs_.size()}, {"blocks", blocks.size()}});
    for (std::int64_t key = 0; key < blocks.size(); ++key)
      detail::check_lookup_matrix(call, key, rows_of(batch, key, of_samples), table_of(key).dim, blocks[key]);
  }
  // The keys of a batch whose rows several samples share.
  detail::shared_bags<host_exec> shared_bags_of(host_exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch) const {
    return {exec, batch, vector_view<table_feature const>(features_), [&](std::int64_t key) { return table_of(key).dim; }};
  }

  std::vector<table_spec> specs_;
  std::vector<table_feature> features_;
  sharded_tables_options options_;
  std::vector<std::vector<table_shard>> shards_;  // of each rank
  std::vector<detail::cut_returns> returns_;      // of each table
  std::vector<bool> is_copied_;                   // of each shard here: whether all ranks have it
  bool is_alone_;
  Exchange exchange_;
  local_tables inner_;  // this rank's shards; feature r * K + i is block i of the exchange, as rank r has it
  std::vector<embedding_output> outputs_;
  embedding_times* times_ = nullptr;
};

template <exchange Exchange>
void basic_sharded_tables<Exchange>::send_ids(host_exec const& exec, batch_view const& batch, bool learns, saved_type& saved) const {
  if (saved.at_ == stage::begun || saved.at_ == stage::gradients_sent)
    throw error(errc::invalid_argument, "sharded_tables::begin: messages of another batch are under way");
  saved.at_ = stage::none;
  std::exception_ptr failure;
  auto sent = batch.sparse;
  try {
    detail::check_sharded_batch(exec, exchange_.comm().rank(), specs_, features_, options_, batch);
    if (expands()) sent = saved.samples_.behind(exec, batch.inverse_keyed(), vector_view<table_feature const>(features_), learns);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) return send_failure(exec, failure, saved);
  saved.batch_ = batch.inverse_keyed();
  exchange_.begin_ids(exec, sent, learns, saved.exchanged_);
  saved.at_ = stage::begun;
}

// `read(batch)` writes the vectors of a batch that all ranks sent.
template <exchange Exchange>
template <class Read>
void basic_sharded_tables<Exchange>::read_rows(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out,
                                               detail::stage_clock& clock, Read const& read) const {
  if (saved.at_ != stage::begun && saved.at_ != stage::ids_here)
    throw error(errc::invalid_argument, "sharded_tables::finish: nothing is saved: no begin went before, or it threw");
  bool const are_new = std::exchange(saved.at_, stage::none) == stage::begun;
  if (are_new) exchange_.receive_ids(exec, saved.exchanged_);
  batch_view all;
  std::exception_ptr failure;
  try {
    if (are_new) saved.all_ = exchange_.received_ids(exec, saved.exchanged_, expands() ? 0 : inner_keys());
    if (are_new && expands()) saved.all_ = saved.samples_.distinct(saved.all_, saved.exchanged_.out(), inner_keys());
    saved.at_ = stage::ids_here;  // from where all ranks may try again
    clock.next(&embedding_times::compute);
    all.sparse = saved.all_;
    check_blocks("sharded_tables::finish", saved.batch_, out, false);
    read(all);
  } catch (...) {
    failure = std::current_exception();
  }
  clock.next(&embedding_times::vectors);
  exchange_.begin_vectors(exec, saved.exchanged_, failure);
  auto const shared = shared_bags_of(exec, saved.batch_);
  buffer<matrix_view<float>> to(exec, outputs().size());
  for (std::int64_t key = 0; key < to.size() && failure == nullptr; ++key) to[key] = out[key];
  shared.put_into(to.view());
  buffer<matrix_view<float>> arriving(exec, to.size());
  std::copy(to.begin(), to.end(), arriving.begin());
  saved.pooled_.resize(
      exec, saved.batch_.distinct, vector_view<table_feature const>(features_), [&](std::int64_t key) { return is_pooled_here(key); },
      [&](std::int64_t key) { return table_of(key).dim; });
  saved.pooled_.put_into(arriving.view());
  exchange_.finish_vectors(exec, saved.exchanged_, arriving.view());
  clock.next(&embedding_times::compute);
  saved.pooled_.pool(exec, saved.batch_.distinct, to.view());
  shared.expand(exec, saved.batch_.samples, out);
  saved.at_ = stage::finished;
}

template <exchange Exchange>
void basic_sharded_tables<Exchange>::begin_backward(host_exec const& exec, saved_type& saved,
                                                    vector_view<matrix_view<float const> const> gradients) const {
  constexpr auto call = "sharded_tables::begin_backward";
  detail::stage_clock clock(times_, &embedding_times::compute);
  if (is_alone_) return inner_.begin_backward(exec, saved.inner_, gradients);
  if (saved.at_ != stage::finished) throw error(errc::invalid_argument, std::string(call) + ": the forward is not finished");
  std::exception_ptr failure;
  try {
    check_blocks(call, saved.batch_, gradients, expands());
    auto const shared = shared_bags_of(exec, saved.batch_);
    buffer<matrix_view<float const>> sent(exec, expands() ? 2 * gradients.size() : gradients.size());
    std::copy(gradients.begin(), gradients.end(), sent.begin());
    if (expands()) {  // behind those of rows, which do not travel
      std::copy(gradients.begin(), gradients.end(), sent.begin() + gradients.size());
    } else {
      shared.merge(exec, saved.batch_.samples, gradients);
      shared.put_into(sent.view());
      saved.pooled_.spread(exec, saved.batch_.distinct, std::as_const(sent).view());
      saved.pooled_.put_into(sent.view());
    }
    clock.next(&embedding_times::gradients);
    exchange_.begin_gradients(exec, saved.exchanged_, std::as_const(sent).view());
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) return send_backward_failure(exec, failure, saved);
  saved.at_ = stage::gradients_sent;
}

template <exchange Exchange>
void basic_sharded_tables<Exchange>::receive_gradients(host_exec const& exec, char const* call, saved_type const& saved,
                                                       detail::stage_clock& clock) const {
  if (saved.at_ == stage::gradients_here) return;
  if (saved.at_ != stage::gradients_sent) throw error(errc::invalid_argument, std::string(call) + ": the backward has not begun");
  saved.at_ = stage::finished;  // what throws is not tried again
  clock.next(&embedding_times::gradients);
  exchange_.finish_gradients(exec, saved.exchanged_);
  clock.next(&embedding_times::compute);
}

// Hands the gradients that came to this rank's tables, once.
template <exchange Exchange>
void basic_sharded_tables<Exchange>::begin_inner_backward(host_exec const& exec, saved_type const& saved) const {
  if (is_alone_ || saved.at_ == stage::gradients_here) return;
  auto const scales = saved.exchanged_.scales();
  if (expands()) {
    auto const dim_of = [&](std::int64_t key) { return inner_.table(inner_.features()[at(key)].table).dim; };
    auto& of_samples = saved.samples_.expand(exec, saved.inner_, inner_.features(), dim_of);
    inner_.begin_backward(exec, of_samples, saved.samples_.gradients(saved.exchanged_.gradients()));
    saved.at_ = stage::gradients_here;
    return;
  }
  scales.empty() ? inner_.begin_backward(exec, saved.inner_, saved.exchanged_.gradients())
                 : inner_.begin_scaled_backward(exec, saved.inner_, saved.exchanged_.gradients(), scales);
  saved.at_ = stage::gradients_here;
}

template <exchange Exchange>
void basic_sharded_tables<Exchange>::sum_gradients(host_exec const& exec, saved_type const& saved, row_gradients& sum,
                                                   detail::stage_clock& clock) const {
  if (!has_copies()) {
    begin_inner_backward(exec, saved);
    return inner_.gradients(exec, expands() ? saved.samples_.expanded() : saved.inner_, sum);
  }
  std::exception_ptr failure;
  try {
    begin_inner_backward(exec, saved);
    inner_.gradients(exec, saved.inner_, sum);
  } catch (...) {
    failure = std::current_exception();
  }
  gather_copies(exec, saved, sum, failure, clock);
  saved.at_ = stage::gradients_here;
}

// Rows of other tables are updated as they are summed, after the copies' sums have come.
template <exchange Exchange>
void basic_sharded_tables<Exchange>::update_with_copies(host_exec const& exec, saved_type& saved, detail::stage_clock& clock) {
  bool is_summed = false;
  std::exception_ptr failure;
  try {
    begin_inner_backward(exec, saved);
    return inner_.finish_backward(exec, saved.inner_, is_copied_, saved.sum_, [&](row_gradients& sum) {
      is_summed = true;
      gather_copies(exec, saved, sum, nullptr, clock);
    });
  } catch (...) {
    if (is_summed) throw;
    failure = std::current_exception();
  }
  gather_copies(exec, saved, saved.sum_, failure, clock);
}

/// Tables on several ranks, over the exchange in one wave of messages a direction.
using sharded_tables = basic_sharded_tables<flat_exchange>;
/// What they keep of a batch.
using sharded_saved = basic_sharded_saved<flat_exchange>;
static_assert(embedding_source<sharded_tables>);

}  // namespace TESSERA_ABI
}  // namespace tessera
