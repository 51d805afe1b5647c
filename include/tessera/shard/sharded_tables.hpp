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
#include <tessera/shard/flat_exchange.hpp>
#include <tessera/shard/pooled_ids.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What `sharded_tables` keeps of a batch from `begin` to the end of its backward. Its memory is kept from batch to batch.
class sharded_saved {
 public:
  /// Without what the communicator holds.
  std::size_t bytes() const noexcept { return exchanged_.bytes() + inner_.bytes() + pooled_.bytes(); }

 private:
  friend class sharded_tables;

  enum class stage : std::uint8_t { none, begun, ids_here, finished, gradients_sent, gradients_here };

  inverse_keyed_jagged_view<std::int64_t const> batch_;  // of this rank
  keyed_jagged_view<std::int64_t const> all_;            // of all ranks, for the shards here
  // What arrives changes nothing that a caller sees.
  mutable stage at_ = stage::none;
  mutable flat_exchange_state exchanged_;
  mutable local_tables_saved inner_;
  mutable detail::pooled_ids pooled_;  // of keys that are cut by rows
};

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
/// block. A dense table may also be cut by rows, or both ways. Then vectors of single ids come back, and the rank that asked pools them. Of
/// a batch with groups, distinct rows travel, and gradients are summed by the inverse before they leave.
///
/// A rank that is alone and has no codecs sends nothing: its calls are those of `local_tables`, and take as long. So one program serves any
/// number of ranks.
///
/// Where a call throws on one rank for reasons of its data, that step throws on all ranks and names that rank. Where there are several
/// ranks, `finish` throws what `begin` found, and `finish_backward` what `begin_backward` found. Rows are then as before, but for new ids of
/// hashed tables. A rank whose `saved` ends with messages under way has left.
class sharded_tables {
 public:
  using execution_type = host_exec;
  using saved_type = sharded_saved;
  using prepared_type = row_order;
  using gradients_type = row_gradients;

  /// Makes this rank's shards. All ranks call it with the same tables, features and plan, and the same optimizers in the specs, of which the
  /// names are compared.
  /// @throws tessera::error as `check_plan` and `local_tables`. incompatible where ranks disagree, naming the first difference.
  /// invalid_argument, naming the table, where a shard lacks rows of a hashed table, and for two shards of one table on one rank. Where one
  /// rank throws, all throw.
  sharded_tables(host_exec const& exec, any_communicator comm, std::vector<table_spec> const& specs, std::vector<table_feature> features,
                 sharding_plan const& plan, sharded_tables_options const& options = {})
      : specs_(specs),
        features_(std::move(features)),
        options_(options),
        shards_(detail::agreed_shards(exec, comm, specs_, features_, plan, options_)),
        are_cut_(detail::tables_cut_by_rows(specs_, shards_)),
        is_alone_(comm.size() == 1 && options_.codecs == exchange_codecs{}),
        exchange_(std::move(comm), detail::exchanged_keys(specs_, features_, are_cut_),
                  detail::exchanged_blocks(features_, shards_, are_cut_), options_.codecs),
        inner_(make_inner(exec)) {
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
  table_places places() const {
    table_places all{options_of(specs_), {}};
    for (auto const& shard : shards_here())
      all.parts.push_back(are_cut_[at(shard.table)]
                              ? part_place{shard.table, shard.first_column, shard.columns, shard.first_row, shard.rows}
                              : part_place{.table = shard.table, .first_column = shard.first_column, .columns = shard.columns});
    return all;
  }
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
  void begin(host_exec const& exec, batch_view const& batch, sharded_saved& saved) {
    is_alone_ ? inner_.begin(exec, batch, saved.inner_) : send_ids(exec, batch, saved);
  }
  /// Begins with what `prepare` made of the batch.
  void begin(host_exec const& exec, batch_view const& batch, sharded_saved& saved, row_order& prepared) {
    is_alone_ ? inner_.begin(exec, batch, saved.inner_, prepared) : send_ids(exec, batch, saved);
  }

  /// Reads what other ranks ask for, and waits for this rank's vectors. Hashed tables give new ids a row.
  void finish(host_exec const& exec, sharded_saved& saved, vector_view<matrix_view<float> const> out) {
    if (is_alone_) return inner_.finish(exec, saved.inner_, out);
    read_rows(exec, saved, out, [&](batch_view const& all) {
      inner_.begin(exec, all, saved.inner_);
      inner_.finish(exec, saved.inner_, saved.exchanged_.out());
    });
  }

  /// Writes the same vectors, and changes nothing. All ranks call it.
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    if (is_alone_) return inner_.predict(exec, batch, out);
    sharded_saved saved;
    send_ids(exec, batch, saved);
    read_rows(exec, saved, out, [&](batch_view const& all) { inner_.predict(exec, all, saved.exchanged_.out()); });
  }

  /// Sends gradients to the ranks that hold their tables.
  void begin_backward(host_exec const& exec, sharded_saved& saved, vector_view<matrix_view<float const> const> gradients) const;

  /// Waits for the gradients of this rank's shards, and updates their rows.
  void finish_backward(host_exec const& exec, sharded_saved& saved) {
    if (is_alone_) return inner_.finish_backward(exec, saved.inner_);
    receive_gradients(exec, "sharded_tables::finish_backward", saved);
    inner_.finish_backward(exec, saved.inner_);
    saved.at_ = stage::finished;
  }
  /// Waits for the gradients of this rank's shards. Their rows are those of `parts()`.
  void gradients(host_exec const& exec, sharded_saved const& saved, row_gradients& sum) const {
    if (!is_alone_) receive_gradients(exec, "sharded_tables::gradients", saved);
    inner_.gradients(exec, saved.inner_, sum);
  }
  /// Makes one step of this rank's shards with these gradients. It does not wait for other ranks.
  void apply(host_exec const& exec, row_gradients const& sum) { inner_.apply(exec, sum); }

 private:
  using stage = sharded_saved::stage;

  // Keys of batches of several ranks have their own numbers of rows: one rank so stands beside one that has none.
  static std::int64_t source_ranks(any_communicator const& comm) noexcept { return std::max(comm.size(), 2); }
  std::int64_t inner_ranks() const noexcept { return is_alone_ ? 1 : source_ranks(exchange_.comm()); }
  table_options const& table_of(std::int64_t key) const noexcept { return specs_[at(features_[at(key)].table)].table; }
  bool is_dense(std::int64_t key) const noexcept { return specs_[at(features_[at(key)].table)].slots_are_ids; }
  bool is_sequence(std::int64_t key) const noexcept { return features_[at(key)].sequence; }
  // Whether vectors of the key's single ids come, of ranges of rows; and whether they are pooled here.
  bool is_cut(std::int64_t key) const noexcept { return are_cut_[at(features_[at(key)].table)]; }
  bool is_pooled_here(std::int64_t key) const noexcept { return is_cut(key) && !is_sequence(key); }
  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  local_tables make_inner(host_exec const& exec) const;

  void check_batch(host_exec const& exec, batch_view const& batch) const;
  void send_ids(host_exec const& exec, batch_view const& batch, sharded_saved& saved) const;
  template <class Read>
  void read_rows(host_exec const& exec, sharded_saved& saved, vector_view<matrix_view<float> const> out, Read const& read) const;
  void receive_gradients(host_exec const& exec, char const* call, sharded_saved const& saved) const;
  template <class Matrix>
  void check_blocks(char const* call, inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<Matrix const> blocks) const {
    if (blocks.size() != outputs().size())
      throw error(errc::shape_mismatch, std::string(call) + ": one block an output",
                  {{"outputs", outputs_.size()}, {"blocks", blocks.size()}});
    for (std::int64_t key = 0; key < blocks.size(); ++key)
      detail::check_lookup_matrix(call, key, is_sequence(key) ? batch.distinct.key(key).size() : batch.samples, table_of(key).dim,
                                  blocks[key]);
  }
  // The keys of a batch whose rows several samples share.
  detail::shared_bags<host_exec> shared_bags_of(host_exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch) const {
    return {exec, batch, vector_view<table_feature const>(features_), [&](std::int64_t key) { return table_of(key).dim; }};
  }

  std::vector<table_spec> specs_;
  std::vector<table_feature> features_;
  sharded_tables_options options_;
  std::vector<std::vector<table_shard>> shards_;  // of each rank
  std::vector<bool> are_cut_;                     // by rows, of each table
  bool is_alone_;
  flat_exchange exchange_;
  local_tables inner_;  // this rank's shards; feature r * K + i is block i of the exchange, as rank r has it
  std::vector<embedding_output> outputs_;
};

inline local_tables sharded_tables::make_inner(host_exec const& exec) const {
  auto comm = exchange_.comm();
  auto const ranks = inner_ranks();
  std::optional<local_tables> made;
  std::exception_ptr failure;
  try {
    std::vector<std::int64_t> number(specs_.size(), -1);  // of a table's shard here
    table_list list;
    for (auto const& shard : shards_[exchange_.rank()]) {
      auto const& spec = specs_[at(shard.table)];
      auto part = spec.table;
      part.dim = shard.columns;
      part.rows = shard.rows;
      part.first_row = shard.first_row;
      part.first_column = shard.first_column;
      number[at(shard.table)] = list.size();
      spec.add(exec, part, list);
    }
    std::vector<table_feature> features;
    for (std::int64_t r = 0; r < ranks; ++r)
      for (auto const& block : exchange_.blocks_here()) {
        auto& feature = features.emplace_back(features_[at(block.key)]);
        feature.table = number[at(feature.table)];
        feature.sequence |= is_cut(block.key);
      }
    made.emplace(std::move(list), std::move(features),
                 local_tables_options{.sums = options_.sums, .lookup = {.out_of_range = options_.out_of_range, .source_ranks = ranks}});
  } catch (...) {
    failure = std::current_exception();
  }
  barrier(exec, comm, "sharded_tables: tables are made", failure);
  return std::move(*made);
}

inline void sharded_tables::check_batch(host_exec const& exec, batch_view const& batch) const {
  constexpr auto call = "sharded_tables::begin";
  detail::check_keys(call, vector_view<table_feature const>(features_), batch.inverse_keyed(), 1);
  detail::validate_batch(exec, batch.sparse);
  if (!batch.groups.empty()) detail::check_inverse_rows(exec, batch.inverse_keyed());
  for (std::int64_t key = 0; key < batch.sparse.keys; ++key) {
    if (features_[at(key)].is_largest() && batch.sparse.weighted())
      throw error(errc::invalid_argument, std::string(call) + ": a maximum is of an unweighted batch", {{"feature", key}});
    if (!is_dense(key) || options_.out_of_range != out_of_range_ids::refuse) continue;
    auto const bags = batch.sparse.key(key);
    auto const rows = static_cast<std::uint64_t>(table_of(key).rows);
    for (std::int64_t row = 0; row < bags.rows; ++row)
      for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p)
        if (static_cast<std::uint64_t>(bags.values[p]) >= rows)
          throw error(errc::out_of_range, "sharded_tables: id out of range",
                      {{"rank", exchange_.rank()},
                       {"feature", key},
                       {"table", table_of(key).id.value},
                       {"row", row},
                       {"position", p - bags.begin_of(row)},
                       {"id", bags.values[p]},
                       {"rows", table_of(key).rows}});
  }
}

inline void sharded_tables::send_ids(host_exec const& exec, batch_view const& batch, sharded_saved& saved) const {
  if (saved.at_ == stage::begun || saved.at_ == stage::gradients_sent)
    throw error(errc::invalid_argument, "sharded_tables::begin: messages of another batch are under way");
  saved.at_ = stage::none;
  std::exception_ptr failure;
  try {
    check_batch(exec, batch);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) {
    exchange_.begin_ids(exec, failure, saved.exchanged_);
    // With others, `finish` throws it, in step with them.
    if (exchange_.ranks() == 1) exchange_.finish_ids(exec, saved.exchanged_, source_ranks(exchange_.comm()));
  } else {
    saved.batch_ = batch.inverse_keyed();
    exchange_.begin_ids(exec, batch.sparse, saved.exchanged_);
  }
  saved.at_ = stage::begun;
}

// `read(batch)` writes the vectors of a batch that all ranks sent.
template <class Read>
void sharded_tables::read_rows(host_exec const& exec, sharded_saved& saved, vector_view<matrix_view<float> const> out,
                               Read const& read) const {
  if (saved.at_ != stage::begun && saved.at_ != stage::ids_here)
    throw error(errc::invalid_argument, "sharded_tables::finish: nothing is saved: no begin went before, or it threw");
  bool const are_new = std::exchange(saved.at_, stage::none) == stage::begun;
  if (are_new) exchange_.receive_ids(exec, saved.exchanged_);
  batch_view all;
  std::exception_ptr failure;
  try {
    if (are_new) saved.all_ = exchange_.received_ids(exec, saved.exchanged_, source_ranks(exchange_.comm()));
    saved.at_ = stage::ids_here;  // from where all ranks may try again
    all.sparse = saved.all_;
    check_blocks("sharded_tables::finish", saved.batch_, out);
    read(all);
  } catch (...) {
    failure = std::current_exception();
  }
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
  saved.pooled_.pool(exec, saved.batch_.distinct, to.view());
  shared.expand(exec, saved.batch_.samples, out);
  saved.at_ = stage::finished;
}

inline void sharded_tables::begin_backward(host_exec const& exec, sharded_saved& saved,
                                           vector_view<matrix_view<float const> const> gradients) const {
  constexpr auto call = "sharded_tables::begin_backward";
  if (is_alone_) return inner_.begin_backward(exec, saved.inner_, gradients);
  if (saved.at_ != stage::finished) throw error(errc::invalid_argument, std::string(call) + ": the forward is not finished");
  std::exception_ptr failure;
  try {
    check_blocks(call, saved.batch_, gradients);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) {
    exchange_.begin_gradients(exec, failure, saved.exchanged_);
    // With others, `finish_backward` throws it, in step with them.
    if (exchange_.ranks() == 1) exchange_.finish_gradients(exec, saved.exchanged_);
    saved.at_ = stage::gradients_sent;
    return;
  }
  auto const shared = shared_bags_of(exec, saved.batch_);
  buffer<matrix_view<float const>> of_rows(exec, gradients.size());
  std::copy(gradients.begin(), gradients.end(), of_rows.begin());
  shared.merge(exec, saved.batch_.samples, gradients);
  shared.put_into(of_rows.view());
  saved.pooled_.spread(exec, saved.batch_.distinct, std::as_const(of_rows).view());
  saved.pooled_.put_into(of_rows.view());
  exchange_.begin_gradients(exec, saved.exchanged_, std::as_const(of_rows).view());
  saved.at_ = stage::gradients_sent;
}

inline void sharded_tables::receive_gradients(host_exec const& exec, char const* call, sharded_saved const& saved) const {
  if (saved.at_ == stage::gradients_here) return;
  if (saved.at_ != stage::gradients_sent) throw error(errc::invalid_argument, std::string(call) + ": the backward has not begun");
  saved.at_ = stage::finished;  // what throws is not tried again
  exchange_.finish_gradients(exec, saved.exchanged_);
  auto const scales = saved.exchanged_.scales();
  scales.empty() ? inner_.begin_backward(exec, saved.inner_, saved.exchanged_.gradients())
                 : inner_.begin_scaled_backward(exec, saved.inner_, saved.exchanged_.gradients(), scales);
  saved.at_ = stage::gradients_here;
}

static_assert(embedding_source<sharded_tables>);

}  // namespace TESSERA_ABI
}  // namespace tessera
