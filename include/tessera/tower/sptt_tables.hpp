// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/named_ranks_communicator.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/comm/sum_tree.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/shard/flat_exchange.hpp>
#include <tessera/shard/sharded_batch.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tower/agreed_towers.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/peer_batch.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/received_towers.hpp>
#include <tessera/tower/sptt_saved.hpp>
#include <tessera/tower/tower_blocks.hpp>
#include <tessera/tower/tower_module.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_ranks.hpp>
#include <tessera/tower/tower_shapes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An embedding source on several hosts, whose tables are cut into towers: each tower's tables lie on one host, or on a few. It is
/// `sharded_tables` with another way for vectors, the semantic-preserving tower transform (SPTT), and with modules that work on them on the
/// way.
///
///     auto const plan = plan_towers(specs, features, where, towers);
///     sptt_tables tables(exec, comm, where, specs, features, plan, towers, dlrm_tower{.dim = 64, .c = 1},
///                        {.modules = {.policy = eigen_gemm{}}});
///
/// The ranks of a tower's hosts are a group of ranks (`tower_ranks`), which makes all towers there. A rank's ids of them go to its peer in the
/// group, in one message. The group looks up the ids of all samples that the peers brought, as `sharded_tables` inside it. A tower's module
/// turns each sample's vectors into fewer or shorter ones, and these go back to the peer. Gradients go the same way. So a rank sends one
/// message a group of ranks, in place of one a rank, and modules make those smaller. Without modules (`pass_through`) vectors, gradients and
/// rows have the bits of `sharded_tables`, where ranks count from host to host.
///
/// Outputs are as those of `tower_source`, and without modules as those of `sharded_tables`. Ranks of a tower hold the same module: its
/// parameters are of the group `replication::tower`. Their gradients are sums over the tower's ranks, which are final when `finish_backward` or
/// `gradients` returns. With chunks (`trainer_options::chunk_samples`) they have the bits of one process with a `tower_source`.
///
/// Of a batch with groups, distinct rows travel. Without modules so do distinct vectors; modules get along which row each sample has, 4 bytes a
/// sample and group.
///
/// Where a batch is bad on one rank, that step throws on all ranks. What fails later on one rank is thrown by its tower and its peers. The
/// others hear of it in their next step at the latest. Source: DMT, Sections 3.1 and 3.2.
template <tower_recipe Recipe = pass_through>
class sptt_tables {
 public:
  using execution_type = host_exec;
  using saved_type = sptt_saved<Recipe>;
  using prepared_type = row_order;
  using gradients_type = row_gradients;
  /// Whether vectors travel as they are.
  static constexpr bool passes_through = std::same_as<Recipe, pass_through>;

  /// Makes this rank's shards and its tower's modules. All ranks call it with the same arguments. `where` has a level "host".
  /// @throws tessera::error as `tower_ranks`, `check_towers`, `check_plan`, `sharded_tables` and the recipe. invalid_argument for a shard that
  /// lies outside of its tower's ranks, for a table that features of towers of other hosts read, and for modules without a policy. incompatible
  /// where ranks disagree. Where one rank throws, all throw.
  sptt_tables(host_exec const& exec, any_communicator comm, topology const& where, std::vector<table_spec> const& specs,
              std::vector<table_feature> features, sharding_plan const& plan, tower_partition const& towers, Recipe const& recipe = {},
              sptt_options const& options = {});

  vector_view<embedding_output const> outputs() const noexcept { return here_.outputs; }
  /// The features, in the order of the batch's keys.
  std::vector<table_feature> const& features() const noexcept { return features_; }
  /// The shards that lie here, as tables of their own.
  table_parts parts() { return here_.inside.parts(); }
  /// The tables of all ranks, and where in them the shards lie.
  table_places places() const {
    auto all = here_.inside.places();
    all.tables = options_of(specs_);
    for (auto& part : all.parts) part.table = agreed_.part.tables[at(part.table)];
    return all;
  }
  /// All ranks.
  any_communicator comm() const { return comm_; }
  /// Which ranks make which towers.
  tower_ranks const& ranks() const noexcept { return agreed_.ranks; }
  /// The tables inside this rank's tower.
  sharded_tables& inside() noexcept { return here_.inside; }
  /// Bytes of the shards that lie here, and of modules.
  std::size_t bytes() const noexcept { return here_.inside.bytes() + here_.modules.bytes(); }

  /// The parameters of the modules here, a group a tower: copies on all ranks but the first of a tower.
  std::vector<parameter_group> groups() requires(!passes_through) { return here_.modules.groups(); }
  /// By name and shape: "tower 0.together.weight".
  std::vector<parameter_block> blocks() requires(!passes_through) { return here_.modules.blocks(); }
  std::int64_t parameter_count() const noexcept requires(!passes_through) { return here_.modules.parameter_count(); }
  /// The modules' kind and each tower's features, which a checkpoint keeps.
  std::string towers_text() const requires(!passes_through) { return detail::text_of(here_.modules.kind(), agreed_.shapes); }

  /// Does nothing: ids of other ranks are not here.
  void prepare(host_exec const&, batch_view const&, row_order& prepared) const { prepared.clear(); }

  /// Sends the batch's ids to the peers. @throws tessera::error where messages of another batch are under way. `finish` throws the rest, but
  /// where there is one rank.
  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved) { send_ids(exec, batch, true, saved); }
  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved, row_order&) { send_ids(exec, batch, true, saved); }
  /// Looks up what peers ask for, runs the modules, and waits for this rank's vectors. @throws tessera::error as `sharded_tables`.
  void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    read(
        exec, saved, out, [&](batch_view const& all) { here_.inside.begin(exec, all, saved.inner_); },
        [&](vector_view<matrix_view<float> const> vectors) { here_.inside.finish(exec, saved.inner_, vectors); });
  }
  /// Writes the same vectors, and changes nothing. All ranks call it. Modules run by chunks of so many samples; 0: by source.
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out,
               std::int64_t chunk_samples = 0) const {
    saved_type saved;
    saved.chunk_samples = chunk_samples;
    send_ids(exec, batch, false, saved);
    batch_view of_tower;
    read(
        exec, saved, out, [&](batch_view const& all) { of_tower = all; },
        [&](vector_view<matrix_view<float> const> vectors) { here_.inside.predict(exec, of_tower, vectors); });
  }

  /// Sends gradients to the towers. @throws tessera::error where there is one rank; else `finish_backward` throws, on the peers too.
  void begin_backward(host_exec const& exec, saved_type& saved,
                      vector_view<matrix_view<float const> const> gradients) const requires passes_through {
    send_gradients(exec, saved, gradients, {});
  }
  /// As above. `of_parameters`, (parameter_count(),), is written by `finish_backward` or `gradients`: it lives until then.
  void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients,
                      vector_view<float> of_parameters) const requires(!passes_through) {
    send_gradients(exec, saved, gradients, of_parameters);
  }
  /// Waits for gradients, runs the modules' backward, and updates the rows of this rank's shards.
  void finish_backward(host_exec const& exec, saved_type& saved) {
    receive_gradients(exec, saved);
    here_.inside.finish_backward(exec, saved.inner_);
    sum_parameters(exec, saved);
    saved.at_ = stage::finished;
  }
  /// Waits for the gradients of this rank's shards, as that of `sharded_tables`.
  void gradients(host_exec const& exec, saved_type const& saved, row_gradients& sum) const {
    bool const are_new = saved.at_ != stage::gradients_here;
    if (are_new) receive_gradients(exec, saved);
    here_.inside.gradients(exec, saved.inner_, sum);
    if (are_new) sum_parameters(exec, saved);
    saved.at_ = stage::gradients_here;
  }
  /// Makes one step of this rank's shards with these gradients.
  void apply(host_exec const& exec, row_gradients const& sum) { here_.inside.apply(exec, sum); }

 private:
  using stage = typename saved_type::stage;

  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  void send_ids(host_exec const& exec, batch_view const& batch, bool learns, saved_type& saved) const;
  template <class Begin, class Finish>
  void read(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out, Begin const& begin,
            Finish const& finish) const;
  void send_gradients(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients,
                      vector_view<float> of_parameters) const;
  void receive_gradients(host_exec const& exec, saved_type const& saved) const;
  void sum_parameters(host_exec const& exec, saved_type const& saved) const;

  template <class T>
  void check_blocks(char const* call, saved_type const& saved, vector_view<matrix_view<T> const> blocks) const {
    if (blocks.size() != outputs().size())
      throw error(errc::shape_mismatch, std::string(call) + ": one block an output",
                  {{"outputs", outputs().size()}, {"blocks", blocks.size()}});
    for (std::int64_t o = 0; o < blocks.size(); ++o) {
      auto const& output = outputs()[o];
      auto const rows = output.sequence ? saved.batch_.distinct.key(output.key).size() : saved.batch_.samples;
      detail::check_lookup_matrix(call, o, rows, output.width, blocks[o]);
    }
  }
  // Nobody waits for word of a failure. What is refused before anything is done may then be tried again.
  bool is_alone() const noexcept { return comm_.size() == 1; }
  void wait_for_vectors(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) const;

  // The vectors that a tower's module makes of all samples, in the caller's blocks.
  template <class T>
  static vector_view<matrix_view<T> const> blocks_of(detail::tower_shape const& shape, vector_view<matrix_view<T> const> blocks) {
    return blocks.slice(shape.first_output, static_cast<std::int64_t>(shape.outputs.size()));
  }
  // Calls f(feature, its output) for the sequences of a tower.
  template <class F>
  static void for_each_sequence(detail::tower_shape const& shape, F const& f) {
    for (std::size_t q = 0; q < shape.sequences.size(); ++q)
      f(shape.sequences[q], shape.first_output + static_cast<std::int64_t>(shape.outputs.size() + q));
  }
  // Rooms for what each tower makes of this rank's samples.
  std::vector<matrix_view<float>> places_of_made(host_exec const& exec, saved_type& saved) const {
    auto const samples = saved.batch_.samples;
    std::int64_t width = 0;
    for (auto const& shape : agreed_.shapes) width += shape.width;
    saved.made_.resize(exec, samples * width);
    std::vector<matrix_view<float>> places;
    auto* next = saved.made_.data();
    for (auto const& shape : agreed_.shapes) {
      places.push_back({next, samples, shape.width});
      next += samples * shape.width;
    }
    return places;
  }
  // Those whose modules are here.
  std::vector<detail::tower_shape> shapes_here() const {
    std::vector<detail::tower_shape> here;
    for (auto const& shape : agreed_.shapes)
      if (!passes_through && ranks().group_of_tower(shape.tower) == ranks().group_of(comm_.rank())) here.push_back(shape);
    return here;
  }
  // The keys of a batch whose rows several samples share, where vectors of distinct rows come back.
  detail::shared_bags<host_exec> shared_bags_of(host_exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch) const {
    return {exec, batch, vector_view<table_feature const>(features_),
            [&](std::int64_t key) { return specs_[at(features_[at(key)].table)].table.dim; }};
  }

  // The ranks of this group, or the peers. Their errors name ranks as those of `comm` do.
  any_communicator split_off(host_exec const& exec, bool are_peers) {
    auto const index = ranks().index_of(comm_.rank()), group = ranks().group_of(comm_.rank());
    std::vector<int> numbers(at(are_peers ? ranks().groups() : ranks().ranks_of_group()));
    for (int r = 0; r < comm_.size(); ++r)
      if (are_peers ? ranks().index_of(r) == index : ranks().group_of(r) == group)
        numbers[at(are_peers ? ranks().group_of(r) : ranks().index_of(r))] = r;
    auto part = are_peers ? comm_.split(exec, index, group) : comm_.split(exec, group, index);
    return named_ranks_communicator(std::move(part), std::move(numbers));
  }

  // What this rank makes by itself, or with its tower.
  struct made_here {
    sharded_tables inside;
    std::vector<embedding_output> outputs;
    flat_exchange exchange;
    detail::tower_modules<Recipe> modules;
  };
  made_here make(host_exec const& exec, Recipe const& recipe, sptt_options const& options);

  std::vector<table_spec> specs_;
  std::vector<table_feature> features_;
  sharded_tables_options checks_;  // by which this rank's batches are checked
  any_communicator comm_;
  detail::agreed_towers agreed_;
  any_communicator peer_comm_, tower_comm_;
  detail::peer_keys keys_;
  std::int64_t sources_;  // as the tables inside count them: two at least, so that keys have their own numbers of rows
  made_here here_;
};

template <tower_recipe Recipe>
sptt_tables<Recipe>::sptt_tables(host_exec const& exec, any_communicator comm, topology const& where, std::vector<table_spec> const& specs,
                                 std::vector<table_feature> features, sharding_plan const& plan, tower_partition const& towers,
                                 Recipe const& recipe, sptt_options const& options)
    : specs_(specs),
      features_(std::move(features)),
      checks_{.out_of_range = options.out_of_range},
      comm_(std::move(comm)),
      agreed_(detail::agree_on_towers(exec, comm_, where, specs_, features_, plan, towers, recipe, options)),
      peer_comm_(split_off(exec, true)),
      tower_comm_(split_off(exec, false)),
      keys_{static_cast<std::int64_t>(features_.size()), static_cast<std::int64_t>(agreed_.shapes.size()), !passes_through},
      sources_(std::max<std::int64_t>(ranks().groups(), 2)),
      here_(make(exec, recipe, options)) {}

// Where one rank throws, all throw.
template <tower_recipe Recipe>
typename sptt_tables<Recipe>::made_here sptt_tables<Recipe>::make(host_exec const& exec, Recipe const& recipe,
                                                                  sptt_options const& options) {
  std::vector<made_here> made;
  std::exception_ptr failure;
  try {
    // These throw on all ranks of a tower, so they come first. Peers have looked at their ids before they sent them.
    sharded_tables inside(exec, tower_comm_, agreed_.part.specs, agreed_.part.features, agreed_.part.plan,
                          sharded_tables_options{.out_of_range = out_of_range_ids::zero, .sources = sources_});
    made.push_back({std::move(inside), detail::outputs_of<Recipe>(agreed_.shapes, agreed_.of_features),
                    flat_exchange(peer_comm_, keys_.keys(specs_, features_), keys_.blocks(agreed_.shapes, ranks(), agreed_.of_features),
                                  options.codecs),
                    detail::tower_modules<Recipe>(exec, recipe, shapes_here(), agreed_.of_features, options.modules,
                                                  ranks().index_of(comm_.rank()) > 0)});
  } catch (...) {
    failure = std::current_exception();
  }
  barrier(exec, comm_, "sptt_tables: tables and modules are made", failure);
  return std::move(made.front());
}

template <tower_recipe Recipe>
void sptt_tables<Recipe>::send_ids(host_exec const& exec, batch_view const& batch, bool learns, saved_type& saved) const {
  if (saved.at_ == stage::begun || saved.at_ == stage::gradients_sent)
    throw error(errc::invalid_argument, "sptt_tables::begin: messages of another batch are under way");
  saved.at_ = stage::none;
  std::exception_ptr failure;
  try {
    detail::check_sharded_batch(exec, comm_.rank(), specs_, features_, checks_, batch, "sptt_tables");
    saved.batch_ = batch.inverse_keyed();
    auto const sent = saved.peers_.make(exec, keys_, agreed_.shapes, batch, saved.first_chunk);
    here_.exchange.begin_ids(exec, sent, learns, saved.exchanged_);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure && is_alone()) std::rethrow_exception(failure);
  if (failure) here_.exchange.begin_ids(exec, failure, saved.exchanged_);
  saved.at_ = stage::begun;
}

// `begin(batch)` begins with the tables inside, `finish(vectors)` waits for their vectors.
template <tower_recipe Recipe>
template <class Begin, class Finish>
void sptt_tables<Recipe>::read(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out, Begin const& begin,
                               Finish const& finish) const {
  if (saved.at_ != stage::begun)
    throw error(errc::invalid_argument, "sptt_tables::finish: nothing is saved: no begin went before, or it threw");
  constexpr auto call = "sptt_tables::finish";
  if (is_alone()) check_blocks(call, saved, out);
  saved.at_ = stage::none;
  auto& received = saved.received_;
  try {
    here_.exchange.receive_ids(exec, saved.exchanged_);
  } catch (...) {  // so have all peers
    here_.inside.fail(exec, std::current_exception(), saved.inner_);
  }
  std::exception_ptr failure;
  try {
    check_blocks(call, saved, out);
    auto const least =
        ranks().groups() == 1 ? static_cast<std::int64_t>(here_.exchange.blocks_here().size() + agreed_.part.features.size()) : 0;
    auto const all = here_.exchange.received_ids(exec, saved.exchanged_, least);
    received.lay_out(exec, here_.modules, agreed_.of_features, agreed_.part.feature_numbers, ranks().groups(), sources_,
                     saved.chunk_samples, all, saved.exchanged_);
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    if (failure) here_.inside.fail(exec, failure, saved.inner_);
    batch_view of_tower;
    of_tower.sparse = received.batch();
    begin(of_tower);
    finish(received.vectors());
    received.forward(exec, here_.modules);
  } catch (...) {
    failure = std::current_exception();
  }
  here_.exchange.begin_vectors(exec, saved.exchanged_, failure);
  wait_for_vectors(exec, saved, failure ? vector_view<matrix_view<float> const>() : out);
  saved.at_ = stage::finished;
}

template <tower_recipe Recipe>
void sptt_tables<Recipe>::wait_for_vectors(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) const {
  std::vector<matrix_view<float>> arriving(at(keys_.size()));
  if (out.empty()) return here_.exchange.finish_vectors(exec, saved.exchanged_, arriving);  // it throws
  if constexpr (passes_through) {
    auto const shared = shared_bags_of(exec, saved.batch_);
    std::copy(out.begin(), out.end(), arriving.begin());
    shared.put_into(vector_view<matrix_view<float>>(arriving));
    here_.exchange.finish_vectors(exec, saved.exchanged_, arriving);
    shared.expand(exec, saved.batch_.samples, out);
  } else {
    auto const made = places_of_made(exec, saved);
    for (auto const& shape : agreed_.shapes) {
      auto& whole = arriving[at(keys_.made_by(shape.tower))];
      if (!shape.outputs.empty()) whole = detail::side_by_side(blocks_of(shape, out), shape.width);
      if (whole.data() == nullptr) whole = made[at(shape.tower)];
      for_each_sequence(shape, [&](std::int64_t f, std::int64_t o) { arriving[at(f)] = out[o]; });
    }
    here_.exchange.finish_vectors(exec, saved.exchanged_, arriving);
    for (auto const& shape : agreed_.shapes)
      if (auto const whole = arriving[at(keys_.made_by(shape.tower))]; whole.rows() > 0 && whole.data() == made[at(shape.tower)].data())
        detail::copy_blocks(exec, detail::columns_of_outputs<float const>{whole, shape.outputs}, blocks_of(shape, out));
  }
}

template <tower_recipe Recipe>
void sptt_tables<Recipe>::send_gradients(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients,
                                         vector_view<float> of_parameters) const {
  if (saved.at_ != stage::finished) throw error(errc::invalid_argument, "sptt_tables::begin_backward: the forward is not finished");
  std::vector<matrix_view<float const>> leaving(at(keys_.size()));
  std::exception_ptr failure;
  try {
    check_blocks("sptt_tables::begin_backward", saved, gradients);
    if constexpr (!passes_through)
      if (of_parameters.size() != parameter_count())
        throw error(errc::shape_mismatch, "sptt_tables::begin_backward: one gradient a parameter",
                    {{"parameters", parameter_count()}, {"gradients", of_parameters.size()}});
    saved.of_parameters_ = of_parameters;
    if constexpr (passes_through) {
      auto const shared = shared_bags_of(exec, saved.batch_);
      std::copy(gradients.begin(), gradients.end(), leaving.begin());
      shared.merge(exec, saved.batch_.samples, gradients);
      shared.put_into(vector_view<matrix_view<float const>>(leaving));
      here_.exchange.begin_gradients(exec, saved.exchanged_, leaving);
    } else {
      auto const made = places_of_made(exec, saved);
      for (auto const& shape : agreed_.shapes) {
        auto& whole = leaving[at(keys_.made_by(shape.tower))];
        if (!shape.outputs.empty()) whole = detail::side_by_side(blocks_of(shape, gradients), shape.width);
        if (whole.data() == nullptr) {
          detail::copy_blocks(exec, blocks_of(shape, gradients), detail::columns_of_outputs<float>{made[at(shape.tower)], shape.outputs});
          whole = made[at(shape.tower)];
        }
        for_each_sequence(shape, [&](std::int64_t f, std::int64_t o) { leaving[at(f)] = gradients[o]; });
      }
      here_.exchange.begin_gradients(exec, saved.exchanged_, leaving);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure && is_alone()) std::rethrow_exception(failure);
  if (failure) here_.exchange.begin_gradients(exec, failure, saved.exchanged_);
  saved.at_ = stage::gradients_sent;
}

template <tower_recipe Recipe>
void sptt_tables<Recipe>::receive_gradients(host_exec const& exec, saved_type const& saved) const {
  if (saved.at_ != stage::gradients_sent) throw error(errc::invalid_argument, "sptt_tables: the backward has not begun");
  saved.at_ = stage::finished;  // what throws is not tried again
  std::exception_ptr failure;
  try {
    here_.exchange.finish_gradients(exec, saved.exchanged_);
    saved.received_.backward(exec, here_.modules, saved.exchanged_);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) here_.inside.fail_backward(exec, failure, saved.inner_);
  here_.inside.begin_backward(exec, saved.inner_, saved.received_.gradients());
}

template <tower_recipe Recipe>
void sptt_tables<Recipe>::sum_parameters(host_exec const& exec, saved_type const& saved) const {
  if constexpr (!passes_through) {
    auto comm = tower_comm_;
    rank_sums<any_communicator> sums(comm);
    auto& chunks = saved.received_.chunks();
    if (saved.chunk_samples > 0) {
      sums.begin_tree(exec, chunks, saved.of_parameters_, saved.sum_);
      sums.finish_tree(exec, saved.sum_);
    } else {
      chunks.join(exec, saved.of_parameters_);
      sums.all(exec, saved.of_parameters_, saved.sum_);
    }
  }
}

static_assert(embedding_source<sptt_tables<>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
