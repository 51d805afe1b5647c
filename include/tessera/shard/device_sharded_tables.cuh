// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.cuh>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/local_tables.cuh>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/row_gradients.cuh>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/shard/agreed_shards.hpp>
#include <tessera/shard/batch_counts.cuh>
#include <tessera/shard/counted_batch.cuh>
#include <tessera/shard/device_exchange.cuh>
#include <tessera/shard/device_sharded_saved.cuh>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/shards_here.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// `sharded_tables` on devices: an embedding source whose tables, or blocks of their columns and rows, lie on the devices of several ranks. Batches,
/// outputs and gradients lie on the rank's device, as those of `device_tables`.
///
///     using table = dense_table<float, cuda_exec>;
///     std::vector<basic_table_spec<cuda_exec>> specs{spec_of<table>(users, adagrad{}), spec_of<table>(items, adagrad{})};
///     mpi_communicator hosts(mpi.world());
///     nccl_communicator comm(host, hosts, device.on(stream_of_messages));
///     device_sharded_tables<nccl_communicator> tables(host, hosts, exec, comm, specs, features, plan_by_bytes(specs, comm.size()));
///
/// Each row's gradients are summed in the order of (source rank, sample, key, position). So outputs and rows have the bits of
/// `sharded_tables` on hosts, and of one process whose batch is that of all ranks. Of a batch with groups, distinct rows travel; the rank that asked expands
/// their vectors, and sums gradients by the inverse before they leave. What `sharded_tables` says of codecs, sources, and a rank that is alone
/// holds here, too.
///
/// Of a table that is cut by rows, partial sums travel: the plan names it among its `partial` ones. Rows are refused by name that travel one an id,
/// and so are tables on all ranks, maxima, and expanded sums of several ranks.
///
/// Ids are looked at before they leave: where a call throws on one rank for reasons of its data, that step throws on all ranks and names that
/// rank. `finish` throws what `begin` found, and `finish_backward` what `begin_backward` found. Rows are then as before, but for new ids of
/// hashed tables. Where there are several ranks or codecs, the host waits for the device in these calls, besides what the communicator waits
/// for, and what `device_tables` says:
/// - `begin` and `predict`, for the number of ids of each key and whether all are in range (`count_batch`);
/// - both again, for the number of ids of each shard, where a table is cut by rows;
/// - `finish` and `predict`, for the numbers of rows and ids that came.
///
/// A rank whose `saved` ends with messages under way has left.
template <counted_exchange Exchange>
class basic_device_sharded_tables {
 public:
  using exchange_type = Exchange;
  using communicator_type = typename Exchange::communicator_type;
  using execution_type = typename Exchange::execution_type;
  using saved_type = basic_device_sharded_saved<Exchange>;
  using prepared_type = nothing_prepared;
  using gradients_type = basic_row_gradients<execution_type>;
  using spec_type = basic_table_spec<execution_type>;

  /// Makes this rank's shards. `hosts` are the same ranks as `comm`, on the host: there they agree on what they make. All ranks call it with
  /// the same tables, features and plan, as `sharded_tables` says.
  /// @throws tessera::error as `sharded_tables` and `device_tables`. invalid_argument where `hosts` and `comm` are not the same ranks, and,
  /// naming the table, for one that is cut by rows without partial sums, or on all of several ranks. Where one rank throws, all throw.
  basic_device_sharded_tables(host_exec const& host, any_communicator hosts, execution_type const& exec, communicator_type comm,
                              std::vector<spec_type> const& specs, std::vector<table_feature> const& features, sharding_plan const& plan,
                              sharded_tables_options const& options = {})
      : hosts_(std::move(hosts)),
        specs_(specs),
        features_(detail::features_of_sources(features, options.sources)),
        options_(options),
        shards_(detail::agreed_shards(host, same_ranks(host, hosts_, comm), specs_, features_, plan, options_)),
        returns_(exchanged_tables(detail::returns_of_tables(specs_, plan, hosts_.size()))),
        is_alone_(comm.size() == 1 && options_.codecs == exchange_codecs{}),
        exchange_(std::move(comm), detail::exchanged_keys(specs_, features_, returns_, options_.sources, false),
                  detail::exchanged_blocks(specs_, features_, shards_, returns_, options_.sources, false), options_.codecs),
        inner_(detail::make_tables_of_shards<device_tables<execution_type>>(host, hosts_, exec, specs_, features_, options_, shards_here(),
                                                                            returns_, exchange_.blocks_here(), options_.sources,
                                                                            inner_ranks())) {
    if (!is_alone_ && options_.sums == shared_gradients::expanded)
      throw error(errc::invalid_argument,
                  "device_sharded_tables: gradients of repeated rows are summed expanded on one rank alone, without codecs",
                  {{"ranks", hosts_.size()}});
    for (std::size_t f = 0; f < features_.size(); ++f) {
      auto const key = static_cast<std::int64_t>(f);
      outputs_.push_back({features_[f].name, table_of(key).dim, key, features_[f].sequence,
                          features_[f].sequence && options_.sums == shared_gradients::expanded, features_[f].table, features_[f].pooling});
    }
    id_bounds_ = detail::id_bounds_of(specs_, features_, options_.out_of_range);
  }

  vector_view<embedding_output const> outputs() const noexcept { return outputs_; }
  /// The features, in the order of the batch's keys.
  std::vector<table_feature> const& features() const noexcept { return features_; }
  /// The shards that lie here, as tables of their own; read and written as `device_tables::parts()`.
  table_parts parts() { return inner_.parts(); }
  /// The tables of all ranks, and where in them the shards lie.
  table_places places() const { return detail::places_of_shards(specs_, shards_here(), returns_); }
  /// The ranks that hold the tables, on the host.
  any_communicator comm() const { return hosts_; }
  /// Bytes of the shards that lie here.
  std::size_t bytes() const noexcept { return inner_.bytes(); }

  /// The shards that lie here, in the order of `parts()`.
  std::vector<table_shard> const& shards_here() const noexcept { return shards_[at(hosts_.rank())]; }
  /// The shards that lie here, as tables of this process: shard s is its table s. They have the optimizers, whose rates may change.
  device_tables<execution_type>& here() noexcept { return inner_; }
  /// As above, to read.
  device_tables<execution_type> const& here() const noexcept { return inner_; }

  /// Does nothing: ids are sorted on the stream of the backward.
  void prepare(execution_type const&, batch_view const&, nothing_prepared&) const noexcept {}

  /// Sends the batch's ids to the ranks that hold their tables.
  /// @throws tessera::error shape_mismatch and invalid_argument as `device_tables::begin`, and for offsets; out_of_range for an id that a table
  /// has no row for, naming feature, row, position and id, and for an inverse that names no row.
  void begin(execution_type const& exec, batch_view const& batch, saved_type& saved) {
    is_alone_ ? inner_.begin(exec, batch, saved.inner_) : send_ids(exec, batch, true, saved);
  }
  void begin(execution_type const& exec, batch_view const& batch, saved_type& saved, nothing_prepared&) { begin(exec, batch, saved); }

  /// Begins with a failure of this rank in place of a batch: `finish` throws it here, and names it on the other ranks.
  void begin(execution_type const& exec, std::exception_ptr failure, saved_type& saved) const {
    send_failure(exec, std::move(failure), saved);
  }

  /// In place of `begin` and `finish`, or of `predict`: tells of a failure of this rank, and throws it. Other ranks throw in `finish`.
  void fail(execution_type const& exec, std::exception_ptr failure, saved_type& saved) const {
    send_failure(exec, std::move(failure), saved);
    saved.at_ = stage::none;
    exchange_.receive_ids(exec, saved.exchanged_);
  }
  /// In place of a backward, as `fail`.
  void fail_backward(execution_type const& exec, std::exception_ptr failure, saved_type& saved) const {
    begin_backward(exec, std::move(failure), saved);
    saved.at_ = stage::finished;
    exchange_.finish_gradients(exec, saved.exchanged_);
  }

  /// Reads what other ranks ask for, and takes this rank's vectors. Hashed tables give new ids a row.
  void finish(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    if (is_alone_) return inner_.finish(exec, saved.inner_, out);
    read_rows(exec, saved, out, [&](batch_view const& all) {
      inner_.begin(exec, all, saved.inner_);
      inner_.finish(exec, saved.inner_, saved.exchanged_.out());
    });
  }

  /// Writes the same vectors, and changes nothing. All ranks call it.
  void predict(execution_type const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    if (is_alone_) return inner_.predict(exec, batch, out);
    saved_type saved;
    send_ids(exec, batch, false, saved);
    read_rows(exec, saved, out, [&](batch_view const& all) { inner_.predict(exec, all, saved.exchanged_.out()); });
  }

  /// Sends gradients to the ranks that hold their tables.
  void begin_backward(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients) const;

  /// Sends word of a failure of this rank in place of gradients: `finish_backward` throws it here, and names it on the other ranks.
  void begin_backward(execution_type const& exec, std::exception_ptr failure, saved_type& saved) const {
    if (exchange_.ranks() == 1) std::rethrow_exception(failure);
    exchange_.begin_gradients(exec, std::move(failure), saved.exchanged_);
    saved.at_ = stage::gradients_sent;
  }

  /// Takes the gradients of this rank's shards, and updates their rows.
  void finish_backward(execution_type const& exec, saved_type& saved) {
    if (is_alone_) return inner_.finish_backward(exec, saved.inner_);
    receive_gradients(exec, "device_sharded_tables::finish_backward", saved);
    inner_.finish_backward(exec, saved.inner_);
    saved.at_ = stage::finished;
  }
  /// Takes the gradients of this rank's shards. Their rows are those of `parts()`. It waits as `device_tables::gradients`.
  void gradients(execution_type const& exec, saved_type const& saved, gradients_type& sum) const {
    if (!is_alone_) receive_gradients(exec, "device_sharded_tables::gradients", saved);
    inner_.gradients(exec, saved.inner_, sum);
  }
  /// Makes one step of this rank's shards with these gradients. It does not wait for other ranks.
  void apply(execution_type const& exec, gradients_type const& sum) { inner_.apply(exec, sum); }

 private:
  using stage = typename saved_type::stage;

  template <class Number>
  static std::size_t at(Number i) noexcept {
    return static_cast<std::size_t>(i);
  }
  // Refuses communicators of other ranks, on all of them.
  static any_communicator& same_ranks(host_exec const& host, any_communicator& hosts, communicator_type const& comm) {
    std::exception_ptr difference;
    if (hosts.rank() != comm.rank() || hosts.size() != comm.size())
      difference = std::make_exception_ptr(
          error(errc::invalid_argument, "device_sharded_tables: the ranks of the host are not those of the devices",
                {{"rank", comm.rank()}, {"ranks", comm.size()}, {"rank of the host", hosts.rank()}, {"ranks of the host", hosts.size()}}));
    barrier(host, hosts, "device_sharded_tables: the same ranks", difference);
    return hosts;
  }
  // Refuses what no device exchanges yet. All ranks have agreed on the plan: they throw alike.
  static std::vector<detail::cut_returns> exchanged_tables(std::vector<detail::cut_returns> returns) {
    for (std::size_t t = 0; t < returns.size(); ++t)
      if (returns[t] == detail::cut_returns::own_vectors || returns[t] == detail::cut_returns::single_ids)
        throw error(errc::invalid_argument,
                    returns[t] == detail::cut_returns::own_vectors
                        ? "device_sharded_tables: a table on all ranks, which devices do not have yet"
                        : "device_sharded_tables: a table that is cut by rows, of which devices exchange partial sums alone",
                    {{"table", t}});
    return returns;
  }

  // As in `sharded_tables`: one rank so stands beside one that has none.
  std::int64_t inner_ranks() const noexcept {
    return is_alone_ ? options_.sources : std::max<std::int64_t>(options_.sources * hosts_.size(), 2);
  }
  std::int64_t inner_keys() const noexcept {
    return inner_ranks() * (static_cast<std::int64_t>(exchange_.blocks_here().size()) / options_.sources);
  }
  table_options const& table_of(std::int64_t key) const noexcept { return specs_[at(features_[at(key)].table)].table; }

  void send_failure(execution_type const& exec, std::exception_ptr failure, saved_type& saved) const;
  void send_ids(execution_type const& exec, batch_view const& batch, bool learns, saved_type& saved) const;
  template <class Read>
  void read_rows(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float> const> out, Read const& read) const;
  void receive_gradients(execution_type const& exec, char const* call, saved_type const& saved) const;
  // Blocks of sequences may have more rows than there are ids.
  template <class Matrix>
  void check_blocks(char const* call, saved_type const& saved, vector_view<Matrix const> blocks) const {
    if (blocks.size() != outputs().size())
      throw error(errc::shape_mismatch, std::string(call) + ": one block an output",
                  {{"outputs", outputs_.size()}, {"blocks", blocks.size()}});
    for (std::int64_t key = 0; key < blocks.size(); ++key) {
      auto const rows = outputs()[key].sequence ? std::max(saved.counts_.values(key), blocks[key].rows())
                                                : detail::pooled_vectors(saved.batch_, key, options_.sources);
      detail::check_lookup_matrix(call, key, rows, table_of(key).dim, blocks[key]);
    }
  }
  // The keys of a batch whose rows several samples share.
  detail::shared_bags<execution_type> shared_bags_of(execution_type const& exec,
                                                     inverse_keyed_jagged_view<std::int64_t const> batch) const {
    return {exec, batch, vector_view<table_feature const>(features_), [&](std::int64_t key) { return table_of(key).dim; }};
  }

  any_communicator hosts_;
  std::vector<spec_type> specs_;
  std::vector<table_feature> features_;
  sharded_tables_options options_;
  std::vector<std::vector<table_shard>> shards_;  // of each rank
  std::vector<detail::cut_returns> returns_;      // of each table
  bool is_alone_;
  Exchange exchange_;
  device_tables<execution_type> inner_;  // this rank's shards; feature r * K + i is block i of the exchange, as rank r has it
  std::vector<embedding_output> outputs_;
  std::vector<std::int64_t> id_bounds_;  // of each key; or none: all ids travel
};

template <counted_exchange Exchange>
void basic_device_sharded_tables<Exchange>::send_ids(execution_type const& exec, batch_view const& batch, bool learns,
                                                     saved_type& saved) const {
  if (saved.at_ == stage::begun || saved.at_ == stage::gradients_sent)
    throw error(errc::invalid_argument, "device_sharded_tables::begin: messages of another batch are under way");
  saved.at_ = stage::none;
  std::exception_ptr failure;
  try {
    saved.counts_ = detail::counted_batch(exec, "device_sharded_tables", hosts_.rank(), specs_, features_, id_bounds_, options_.sources,
                                          batch, [&] { exchange_.wait(exec); });
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) return send_failure(exec, failure, saved);
  saved.batch_ = batch.inverse_keyed();
  exchange_.begin_ids(exec, batch.sparse, saved.counts_, learns, saved.exchanged_);
  saved.at_ = stage::begun;
}

// With other ranks, `finish` throws it, in step with them.
template <counted_exchange Exchange>
void basic_device_sharded_tables<Exchange>::send_failure(execution_type const& exec, std::exception_ptr failure, saved_type& saved) const {
  saved.at_ = stage::none;
  if (exchange_.ranks() == 1) std::rethrow_exception(failure);
  exchange_.begin_ids(exec, std::move(failure), saved.exchanged_);
  saved.at_ = stage::begun;
}

// `read(batch)` writes the vectors of a batch that all ranks sent.
template <counted_exchange Exchange>
template <class Read>
void basic_device_sharded_tables<Exchange>::read_rows(execution_type const& exec, saved_type& saved,
                                                      vector_view<matrix_view<float> const> out, Read const& read) const {
  if (saved.at_ != stage::begun && saved.at_ != stage::ids_here)
    throw error(errc::invalid_argument, "device_sharded_tables::finish: nothing is saved: no begin went before, or it threw");
  bool const are_new = std::exchange(saved.at_, stage::none) == stage::begun;
  if (are_new) exchange_.receive_ids(exec, saved.exchanged_);
  std::exception_ptr failure;
  try {
    if (are_new) saved.all_ = exchange_.received_ids(exec, saved.exchanged_, inner_keys());
    saved.at_ = stage::ids_here;  // from where all ranks may try again
    check_blocks("device_sharded_tables::finish", saved, out);
    batch_view all;
    all.sparse = saved.all_;
    read(all);
  } catch (...) {
    failure = std::current_exception();
  }
  exchange_.begin_vectors(exec, saved.exchanged_, failure);
  auto const shared = shared_bags_of(exec, saved.batch_);
  std::vector<matrix_view<float>> to(at(outputs().size()));
  if (failure == nullptr) to.assign(out.begin(), out.end());
  shared.put_into(vector_view<matrix_view<float>>(to));
  exchange_.finish_vectors(exec, saved.exchanged_, to);
  shared.expand(exec, saved.batch_.samples, out);
  saved.at_ = stage::finished;
}

template <counted_exchange Exchange>
void basic_device_sharded_tables<Exchange>::begin_backward(execution_type const& exec, saved_type& saved,
                                                           vector_view<matrix_view<float const> const> gradients) const {
  constexpr auto call = "device_sharded_tables::begin_backward";
  if (is_alone_) return inner_.begin_backward(exec, saved.inner_, gradients);
  if (saved.at_ != stage::finished) throw error(errc::invalid_argument, std::string(call) + ": the forward is not finished");
  std::exception_ptr failure;
  try {
    check_blocks(call, saved, gradients);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) return begin_backward(exec, failure, saved);
  auto const shared = shared_bags_of(exec, saved.batch_);
  std::vector<matrix_view<float const>> of_rows(gradients.begin(), gradients.end());
  shared.merge(exec, saved.batch_.samples, gradients);
  shared.put_into(vector_view<matrix_view<float const>>(of_rows));
  exchange_.begin_gradients(exec, saved.exchanged_, of_rows);
  saved.at_ = stage::gradients_sent;
}

template <counted_exchange Exchange>
void basic_device_sharded_tables<Exchange>::receive_gradients(execution_type const& exec, char const* call, saved_type const& saved) const {
  if (saved.at_ == stage::gradients_here) return;
  if (saved.at_ != stage::gradients_sent) throw error(errc::invalid_argument, std::string(call) + ": the backward has not begun");
  saved.at_ = stage::finished;  // what throws is not tried again
  exchange_.finish_gradients(exec, saved.exchanged_);
  inner_.begin_backward(exec, saved.inner_, saved.exchanged_.gradients());
  saved.at_ = stage::gradients_here;
}

/// Tables on the devices of several ranks, over communicators of devices.
template <communicator Comm>
using device_sharded_tables = basic_device_sharded_tables<device_exchange<Comm>>;

}  // namespace TESSERA_ABI
}  // namespace tessera
