// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.cuh>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/local_tables.cuh>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/row_gradients.cuh>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/shard/counted_batch.cuh>
#include <tessera/shard/device_exchange.cuh>
#include <tessera/shard/device_sharded_tables.cuh>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tower/agreed_towers.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/peer_batch.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_ranks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <communicator Comm>
class device_sptt_tables;

/// What `device_sptt_tables` keeps of a batch from `begin` to the end of its backward. Its memory is kept from batch to batch.
template <communicator Comm>
class device_sptt_saved {
 public:
  /// Without what communicators hold.
  std::size_t bytes() const noexcept { return exchanged_.bytes() + inner_.bytes(); }

 private:
  friend class device_sptt_tables<Comm>;

  enum class stage : std::uint8_t { none, begun, finished, gradients_sent, gradients_here };

  inverse_keyed_jagged_view<std::int64_t const> batch_;  // of this rank
  batch_counts counts_;
  // What arrives changes nothing that a caller sees.
  mutable stage at_ = stage::none;
  mutable device_exchange_state<Comm> exchanged_;
  mutable device_sharded_saved<Comm> inner_;
};

/// `sptt_tables` on devices, whose vectors travel as they are: an embedding source whose tables are cut into towers of hosts, and lie on the
/// devices of their ranks. Batches, outputs and gradients lie on the rank's device, as those of `device_sharded_tables`.
///
///     auto const plan = plan_towers(specs_of_host, features, where, towers);
///     device_sptt_tables<nccl_communicator> tables(host, hosts, exec, comm, where, specs, features, plan, towers);
///
/// A rank's ids of the towers of a group of ranks (`tower_ranks`) go to its peer there, in one message, and its vectors come back. Between
/// the two the group's ranks look them up as `device_sharded_tables`, whose limits are those here. Outputs and rows have the bits of `sptt_tables`
/// on hosts. Tower modules are of the host alone.
///
/// `begin` and `predict` wait for the device as those of `device_sharded_tables`, `finish` as `finish` and `begin` there. Where a batch is
/// bad on one rank, that step throws on all ranks. What fails later on one rank is thrown by its tower and its peers; the others hear of it
/// in their next step at the latest. Source: DMT, Section 3.1.
template <communicator Comm>
class device_sptt_tables {
 public:
  using communicator_type = Comm;
  using execution_type = typename Comm::execution_type;
  using saved_type = device_sptt_saved<Comm>;
  using prepared_type = nothing_prepared;
  using gradients_type = basic_row_gradients<execution_type>;
  using spec_type = basic_table_spec<execution_type>;
  static_assert(device_execution<execution_type>, "of ranks on the host, sptt_tables");

  /// Makes this rank's shards. `hosts` are the same ranks as `comm`, on the host: there they agree. All ranks call it with the same
  /// arguments. `where` has a level "host". `options.modules` is not read.
  /// @throws tessera::error as `sptt_tables` and `device_sharded_tables`. Where one rank throws, all throw.
  device_sptt_tables(host_exec const& host, any_communicator hosts, execution_type const& exec, communicator_type comm,
                     topology const& where, std::vector<spec_type> const& specs, std::vector<table_feature> features,
                     sharding_plan const& plan, tower_partition const& towers, sptt_options const& options = {})
      : hosts_(std::move(hosts)),
        specs_(specs),
        features_(std::move(features)),
        agreed_(detail::agree_on_towers(host, hosts_, where, described(specs_), features_, plan, towers, pass_through{}, options)),
        exchange_(comm.split(exec, index(), group()), peer_keys().keys(described(specs_), features_),
                  peer_keys().blocks(agreed_.shapes, ranks(), agreed_.of_features), options.codecs),
        sources_(std::max<std::int64_t>(ranks().groups(), 2)),
        inner_(make_inside(host, exec, comm)),
        id_bounds_(detail::id_bounds_of(specs_, features_, options.out_of_range)) {}

  vector_view<embedding_output const> outputs() const noexcept { return agreed_.of_features; }
  /// The features, in the order of the batch's keys.
  std::vector<table_feature> const& features() const noexcept { return features_; }
  /// The shards that lie here, as tables of their own; read and written as `device_tables::parts()`.
  table_parts parts() { return inner_.parts(); }
  /// The tables of all ranks, and where in them the shards lie.
  table_places places() const {
    auto all = inner_.places();
    all.tables = options_of(specs_);
    for (auto& part : all.parts) part.table = agreed_.part.tables[at(part.table)];
    return all;
  }
  /// All ranks, on the host.
  any_communicator comm() const { return hosts_; }
  /// Which ranks make which towers.
  tower_ranks const& ranks() const noexcept { return agreed_.ranks; }
  /// The tables inside this rank's tower.
  device_sharded_tables<Comm>& inside() noexcept { return inner_; }
  /// Bytes of the shards that lie here.
  std::size_t bytes() const noexcept { return inner_.bytes(); }

  /// Does nothing: ids are sorted on the stream of the backward.
  void prepare(execution_type const&, batch_view const&, nothing_prepared&) const noexcept {}

  /// Sends the batch's ids to the peers. @throws tessera::error where messages of another batch are under way. `finish` throws the rest.
  void begin(execution_type const& exec, batch_view const& batch, saved_type& saved) { send_ids(exec, batch, true, saved); }
  void begin(execution_type const& exec, batch_view const& batch, saved_type& saved, nothing_prepared&) { begin(exec, batch, saved); }
  /// Looks up what peers ask for, and takes this rank's vectors. @throws tessera::error as `device_sharded_tables`.
  void finish(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    read(exec, saved, out, [&](batch_view const& all, vector_view<matrix_view<float> const> vectors) {
      inner_.begin(exec, all, saved.inner_);
      inner_.finish(exec, saved.inner_, vectors);
    });
  }
  /// Writes the same vectors, and changes nothing. All ranks call it.
  void predict(execution_type const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    saved_type saved;
    send_ids(exec, batch, false, saved);
    read(exec, saved, out,
         [&](batch_view const& all, vector_view<matrix_view<float> const> vectors) { inner_.predict(exec, all, vectors); });
  }

  /// Sends gradients to the towers.
  void begin_backward(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients) const;
  /// Takes gradients, and updates the rows of this rank's shards.
  void finish_backward(execution_type const& exec, saved_type& saved) {
    receive_gradients(exec, saved);
    inner_.finish_backward(exec, saved.inner_);
    saved.at_ = stage::finished;
  }
  /// Takes the gradients of this rank's shards, as that of `device_sharded_tables`.
  void gradients(execution_type const& exec, saved_type const& saved, gradients_type& sum) const {
    if (saved.at_ != stage::gradients_here) receive_gradients(exec, saved);
    inner_.gradients(exec, saved.inner_, sum);
    saved.at_ = stage::gradients_here;
  }
  /// Makes one step of this rank's shards with these gradients.
  void apply(execution_type const& exec, gradients_type const& sum) { inner_.apply(exec, sum); }

 private:
  using stage = typename saved_type::stage;

  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  std::int64_t index() const noexcept { return ranks().index_of(hosts_.rank()); }
  std::int64_t group() const noexcept { return ranks().group_of(hosts_.rank()); }
  detail::peer_keys peer_keys() const noexcept {
    return {static_cast<std::int64_t>(features_.size()), static_cast<std::int64_t>(agreed_.shapes.size()), false};
  }
  // What ranks agree on of their tables, as of the host's. No table is made of these.
  static std::vector<table_spec> described(std::vector<spec_type> const& specs) {
    std::vector<table_spec> all;
    for (auto const& spec : specs) all.push_back({spec.table, spec.slots_are_ids, {}, spec.optimizer, spec.row_bytes, spec.keeps_ids});
    return all;
  }
  // Where one rank throws, all throw.
  device_sharded_tables<Comm> make_inside(host_exec const& host, execution_type const& exec, communicator_type& comm) {
    auto hosts_inside = hosts_.split(host, group(), index());
    auto inside = comm.split(exec, group(), index());
    std::vector<spec_type> specs;
    for (auto const table : agreed_.part.tables) specs.push_back(specs_[at(table)]);
    std::vector<device_sharded_tables<Comm>> made;
    std::exception_ptr failure;
    try {
      // Peers have looked at their ids before they sent them.
      made.emplace_back(host, std::move(hosts_inside), exec, std::move(inside), specs, agreed_.part.features, agreed_.part.plan,
                        sharded_tables_options{.out_of_range = out_of_range_ids::zero, .sources = sources_});
    } catch (...) {
      failure = std::current_exception();
    }
    barrier(host, hosts_, "device_sptt_tables: tables are made", failure);
    return std::move(made.front());
  }

  void send_ids(execution_type const& exec, batch_view const& batch, bool learns, saved_type& saved) const;
  template <class Read>
  void read(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float> const> out, Read const& look_up) const;
  void receive_gradients(execution_type const& exec, saved_type const& saved) const;
  // Blocks of sequences may have more rows than there are ids.
  template <class Matrix>
  void check_blocks(char const* call, saved_type const& saved, vector_view<Matrix const> blocks) const {
    if (blocks.size() != outputs().size())
      throw error(errc::shape_mismatch, "device_sptt_tables: one block an output",
                  {{"outputs", outputs().size()}, {"blocks", blocks.size()}});
    for (std::int64_t key = 0; key < blocks.size(); ++key) {
      auto const rows = outputs()[key].sequence ? std::max(saved.counts_.values(key), blocks[key].rows()) : saved.batch_.samples;
      detail::check_lookup_matrix(call, key, rows, outputs()[key].width, blocks[key]);
    }
  }
  // The keys of a batch whose rows several samples share.
  detail::shared_bags<execution_type> shared_bags_of(execution_type const& exec,
                                                     inverse_keyed_jagged_view<std::int64_t const> batch) const {
    return {exec, batch, vector_view<table_feature const>(features_), [&](std::int64_t key) { return outputs()[key].width; }};
  }

  any_communicator hosts_;
  std::vector<spec_type> specs_;
  std::vector<table_feature> features_;
  detail::agreed_towers agreed_;
  device_exchange<Comm> exchange_;  // between peers
  std::int64_t sources_;            // as the tables inside count them: two at least, so that keys have their own numbers of rows
  device_sharded_tables<Comm> inner_;
  std::vector<std::int64_t> id_bounds_;  // of each key; or none: all ids travel
};

template <communicator Comm>
void device_sptt_tables<Comm>::send_ids(execution_type const& exec, batch_view const& batch, bool learns, saved_type& saved) const {
  if (saved.at_ == stage::begun || saved.at_ == stage::gradients_sent)
    throw error(errc::invalid_argument, "device_sptt_tables::begin: messages of another batch are under way");
  saved.at_ = stage::none;
  std::exception_ptr failure;
  try {
    saved.counts_ = detail::counted_batch(exec, "device_sptt_tables", hosts_.rank(), specs_, features_, id_bounds_, 1, batch,
                                          [&] { exchange_.wait(exec); });
  } catch (...) {
    failure = std::current_exception();
  }
  saved.batch_ = batch.inverse_keyed();
  if (failure != nullptr)
    exchange_.begin_ids(exec, std::move(failure), saved.exchanged_);
  else
    exchange_.begin_ids(exec, batch.sparse, saved.counts_, learns, saved.exchanged_);
  saved.at_ = stage::begun;
}

// `look_up(batch, vectors)` writes the vectors of a batch that all peers sent.
template <communicator Comm>
template <class Read>
void device_sptt_tables<Comm>::read(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float> const> out,
                                    Read const& look_up) const {
  constexpr auto call = "device_sptt_tables::finish";
  if (saved.at_ != stage::begun)
    throw error(errc::invalid_argument, "device_sptt_tables::finish: nothing is saved: no begin went before, or it threw");
  saved.at_ = stage::none;
  try {
    exchange_.receive_ids(exec, saved.exchanged_);
  } catch (...) {  // so have all peers
    inner_.fail(exec, std::current_exception(), saved.inner_);
  }
  batch_view of_tower;
  std::exception_ptr failure;
  try {
    check_blocks(call, saved, out);
    of_tower.sparse = exchange_.received_ids(exec, saved.exchanged_, sources_ * static_cast<std::int64_t>(agreed_.part.features.size()));
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    if (failure != nullptr) inner_.fail(exec, failure, saved.inner_);
    look_up(of_tower, saved.exchanged_.out());
  } catch (...) {
    failure = std::current_exception();
  }
  exchange_.begin_vectors(exec, saved.exchanged_, failure);
  auto const shared = shared_bags_of(exec, saved.batch_);
  std::vector<matrix_view<float>> arriving(features_.size());
  if (failure == nullptr) arriving.assign(out.begin(), out.end());
  shared.put_into(vector_view<matrix_view<float>>(arriving));
  exchange_.finish_vectors(exec, saved.exchanged_, arriving);
  shared.expand(exec, saved.batch_.samples, out);
  saved.at_ = stage::finished;
}

template <communicator Comm>
void device_sptt_tables<Comm>::begin_backward(execution_type const& exec, saved_type& saved,
                                              vector_view<matrix_view<float const> const> gradients) const {
  constexpr auto call = "device_sptt_tables::begin_backward";
  if (saved.at_ != stage::finished) throw error(errc::invalid_argument, "device_sptt_tables::begin_backward: the forward is not finished");
  std::exception_ptr failure;
  try {
    check_blocks(call, saved, gradients);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) {
    exchange_.begin_gradients(exec, std::move(failure), saved.exchanged_);
  } else {
    auto const shared = shared_bags_of(exec, saved.batch_);
    std::vector<matrix_view<float const>> leaving(gradients.begin(), gradients.end());
    shared.merge(exec, saved.batch_.samples, gradients);
    shared.put_into(vector_view<matrix_view<float const>>(leaving));
    exchange_.begin_gradients(exec, saved.exchanged_, leaving);
  }
  saved.at_ = stage::gradients_sent;
}

template <communicator Comm>
void device_sptt_tables<Comm>::receive_gradients(execution_type const& exec, saved_type const& saved) const {
  if (saved.at_ != stage::gradients_sent) throw error(errc::invalid_argument, "device_sptt_tables: the backward has not begun");
  saved.at_ = stage::finished;  // what throws is not tried again
  try {
    exchange_.finish_gradients(exec, saved.exchanged_);
  } catch (...) {
    inner_.fail_backward(exec, std::current_exception(), saved.inner_);
  }
  inner_.begin_backward(exec, saved.inner_, saved.exchanged_.gradients());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
