// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/hot/hot_tables.hpp>
#include <tessera/hot/parted_batch.hpp>
#include <tessera/hot/row_marks.hpp>
#include <tessera/hot/watched_part.hpp>
#include <tessera/shard/move_rows.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Where hot rows are while batches that are not hot run.
enum class hot_row_moves : std::uint8_t {
  swap,  ///< home, in the inner source: they move when batches of the other class begin. FAE's way
  stay,  ///< in the twins: of each batch, ids are parted, and read where their rows are
};

/// Options of `hot_source`.
struct hot_source_options {
  /// The ranks that train and have twins, of those of the inner source. None: a rank that holds tables alone, or the one rank that there is.
  std::optional<any_communicator> workers{};
  hot_row_moves moves = hot_row_moves::swap;
  exchange_codecs codecs{};                          ///< how gradients of twins travel
  shared_gradients sums = shared_gradients::merged;  ///< of repeated rows in the twins; as those of the inner source
};

/// An embedding source that has its hot rows on every worker. Of each table, the hot rows lie in a *twin*: a compact dense table, of which
/// each worker has a copy. Copies are kept equal, as those of a table on all ranks. Batches that say that they are hot read twins alone, and
/// send no ids and no vectors.
///
///     hot_source source(exec, sharded_tables(exec, comm, specs, features, plan), specs, hot, {.workers = workers});
///
/// With `hot_row_moves::swap`, other batches go through the inner source, and hot rows move to where a batch reads them: the first `finish` of
/// the other class moves the rows that changed since the last swap, with scale, optimizer state and step count. A backward whose forward was
/// before a swap throws. With `stay`, hot rows stay in the twins, and the ids of batches that are not hot are split into hot and cold ones. A
/// pooled vector is then that of its cold ids plus that of its hot ones: within the bound of partial sums (`sharded_tables`) where a bag mixes,
/// else with the bits of the inner source. Vectors of sequences keep the order of their ids. Predictions split ids, too, unless all rows are home.
/// With `stay`, lookups that begin ahead of their steps want other memory than an `arena`, which would grow.
///
/// All ranks of the inner source make the same calls, with batches of one class. A rank without `workers` calls `join_step` and
/// `join_prediction` instead, and must know the class. Row gradients are those of the inner source's tables, then those of the twins.
/// All ranks call `parts()` together, which brings the rows home. What is loaded through the parts reaches the twins with the next `finish`.
/// A full hashed table leaves rows out that come home, as it leaves out new ids; their twins keep what they learnt until the run ends.
/// Checkpoints so have the inner source's tables, and load under any hot rows. Set learning rates both in `inner()` and in `twins()`. A rank
/// of several that throws alone has left.
///
/// Admission and eviction of the inner tables do not count reads that the twins serve: a policy may evict a row that is hot.
/// Source: FAE, Sections 3 and 4.3, the embedding replicator.
template <embedding_source Inner>
  requires(!owns_parameters<Inner>)
class hot_source : public source_adaptor<Inner> {
  using base = source_adaptor<Inner>;
  using way = detail::hot_way;

 public:
  using execution_type = host_exec;
  using prepared_type = row_order;
  using gradients_type = row_gradients;
  static constexpr bool has_hot_replicas = true;

  /// What is kept of a batch. Its memory is kept from batch to batch.
  class saved_type {
   public:
    std::size_t bytes() const noexcept { return parted_.bytes() + twins_.bytes(); }

   private:
    friend class hot_source;

    detail::hot_way way_ = detail::hot_way::none;
    bool in_twins_ = false;    // whether the batch reads hot rows there
    std::int64_t swaps_ = -1;  // before the forward
    typename Inner::saved_type inner_;
    sharded_saved twins_;
    mutable detail::parted_batch parted_;
    std::exception_ptr cold_id_;
    std::vector<matrix_view<float const>> gradients_;  // in the order of keys
  };

  /// Takes over the inner source and the hot rows. `specs` describe the inner source's tables, but that a hashed table has the spec of a
  /// `dense_table` of the same id, dim, elements and optimizer. All ranks of the inner source call it with the same hot rows. Team and memory
  /// of `exec` outlive the source, since `parts()` moves rows with them.
  /// @throws tessera::error incompatible, naming what differs, for hot rows or specs of other tables, elements or optimizers. incompatible also
  /// where ranks disagree, and as `row_mover`. invalid_argument for a source with outputs of several keys, for expanded sums on several ranks,
  /// and for features that pool by maximum where rows stay. Where one rank throws, all throw.
  hot_source(host_exec const& exec, Inner inner, std::vector<table_spec> const& specs, hot_rows hot, hot_source_options const& options = {})
      : base(std::move(inner)),
        exec_(exec),
        moves_(options.moves),
        comm_(comm_of(base::inner())),
        hot_(std::make_unique<hot_rows>(std::move(hot))),
        keys_(make_keys(options)),
        mover_(exec, comm_, base::inner().parts(), places_of_inner(), has_workers(options)),
        tables_(exec, comm_, {*hot_, specs, base::inner().parts(), places_of_inner()}, twin_features(), twin_options(options),
                workers_of(options), mover_),
        inner_changed_(*hot_),
        twins_changed_(*hot_) {
    std::int64_t is_used = false;  // then its hot rows go out before they are read
    for (auto const& part : base::inner().parts()) {
      inner_dims_.push_back(part->options().dim);
      has_hashed_ = has_hashed_ || !part->slots_are_ids();
      is_used = is_used || part->steps().value > 0 || (!part->slots_are_ids() && part->rows() > 0);
    }
    any_pending pending;
    for (auto const& one : all_gather<std::int64_t>(exec, comm_, {&is_used, 1}, pending, "hot_source: tables were used"))
      *is_loaded_ = *is_loaded_ || one[0] != 0;
    parts_are_out_ = home_is_current_ = *is_loaded_;
  }

  /// The twins, on a worker: table t has the hot rows of table t. Their optimizers' rates may change. Null on other ranks.
  sharded_tables* twins() noexcept { return tables_.twins(); }
  /// The hot rows.
  hot_rows const& hot() const noexcept { return *hot_; }
  /// How often hot rows have gone out or home because the class changed.
  std::int64_t swaps() const noexcept { return swaps_; }
  /// How many rows moved so far, in both directions.
  std::int64_t moved_rows() const noexcept { return moved_rows_; }
  any_communicator comm() const { return comm_; }

  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved) {
    row_order unprepared;
    begin(exec, batch, saved, unprepared);
  }
  /// Starts the lookups of a batch: of a hot one in the twins, of another in the inner source, or with `stay` in both. No row moves.
  /// @throws tessera::error invalid_argument, naming sample, key, table and id, for a cold id in a hot batch; by `finish` where there are
  /// several ranks.
  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved, row_order& prepared) {
    saved.way_ = way::none;
    saved.swaps_ = -1;
    saved.cold_id_ = nullptr;
    saved.in_twins_ = batch.kind == batch_class::hot || moves_ == hot_row_moves::stay;
    auto const of_batch = batch.kind == batch_class::hot ? way::twins : saved.in_twins_ && tables_.twins() ? way::both : way::inner;
    std::exception_ptr failure;
    if (tables_.twins()) try {
        saved.parted_.number(exec, batch, keys_, *hot_);
      } catch (...) {
        failure = std::current_exception();
      }
    if (failure) {  // of other keys than there are features, which both refuse on all ranks
      in_turn(
          [&] {
            if (of_batch != way::twins) base::inner().begin(exec, batch, saved.inner_, prepared);
          },
          [&] {
            if (of_batch != way::inner) tables_.twins()->begin(exec, batch, saved.twins_);
          });
      std::rethrow_exception(failure);
    }
    if (of_batch == way::inner) base::inner().begin(exec, batch, saved.inner_, prepared);
    if (of_batch == way::twins && tables_.twins()) {
      saved.cold_id_ = saved.parted_.cold_id(keys_);
      if (saved.cold_id_ && comm_.size() == 1) std::rethrow_exception(saved.cold_id_);
      try {
        tables_.twins()->begin(exec, saved.parted_.numbered(), saved.twins_);  // which refuses a cold id on all workers
      } catch (...) {
        if (saved.cold_id_) std::rethrow_exception(saved.cold_id_);
        throw;
      }
    }
    if (of_batch == way::both) {
      saved.parted_.part(exec);
      base::inner().begin(exec, saved.parted_.cold(), saved.inner_);
      tables_.twins()->begin(exec, saved.parted_.hot(), saved.twins_);
    }
    saved.way_ = of_batch;
  }

  /// Writes the vectors of output i into `out[i]`, (samples, width), or (ids, width) of a sequence. Hot rows move first, where the class has
  /// changed or parts were loaded. All ranks call it.
  /// @throws tessera::error invalid_argument without a `begin` before it, and on several ranks for a cold id in a hot batch; shape_mismatch for
  /// other blocks; incompatible where parts were loaded after training and a table is hashed: load into a new source.
  void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    if (saved.way_ == way::none)
      throw error(errc::invalid_argument, "hot_source::finish: nothing is saved: no begin went before, or it threw");
    settle(exec, saved.in_twins_);
    saved.swaps_ = swaps_;
    home_is_current_ = false;
    if (saved.way_ == way::inner) base::inner().finish(exec, saved.inner_, out);
    if (!tables_.twins()) return;
    if (saved.way_ == way::twins) finish_twins(exec, saved, out);
    if (saved.way_ == way::both) {
      saved.parted_.make_blocks(exec, keys_, base::outputs(), out);
      in_turn([&] { base::inner().finish(exec, saved.inner_, saved.parted_.cold_out()); },
              [&] { tables_.twins()->finish(exec, saved.twins_, saved.parted_.hot_out()); });
      saved.parted_.join(exec, keys_, base::outputs(), out);
    }
    mark(saved, saved.in_twins_ ? twins_changed_ : inner_changed_);
  }

  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    if (!rows_are_out_ || home_is_current_ || !tables_.twins()) return base::inner().predict(exec, batch, out);
    detail::parted_batch parted;
    parted.number(exec, batch, keys_, *hot_);
    parted.part(exec);
    parted.make_blocks(exec, keys_, base::outputs(), out);
    base::inner().predict(exec, parted.cold(), parted.cold_out());
    tables_.twins()->predict(exec, parted.hot(), parted.hot_out());
    parted.join(exec, keys_, base::outputs(), out);
  }

  void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients) {
    check_since_swap("hot_source::begin_backward", saved);
    if (saved.way_ == way::inner) base::inner().begin_backward(exec, saved.inner_, gradients);
    if (!tables_.twins()) return;
    if (saved.way_ == way::twins) {
      if (gradients.size() != base::outputs().size())
        throw error(errc::shape_mismatch, "hot_source::begin_backward: a block an output",
                    {{"outputs", base::outputs().size()}, {"blocks", gradients.size()}});
      saved.gradients_.clear();
      for (auto const& key : keys_) saved.gradients_.push_back(gradients[key.output]);
      tables_.twins()->begin_backward(exec, saved.twins_, saved.gradients_);
    }
    if (saved.way_ == way::both) {
      saved.parted_.split(exec, keys_, base::outputs(), gradients);
      base::inner().begin_backward(exec, saved.inner_, saved.parted_.cold_gradients());
      tables_.twins()->begin_backward(exec, saved.twins_, saved.parted_.hot_gradients());
    }
  }

  void finish_backward(host_exec const& exec, saved_type& saved) {
    check_since_swap("hot_source::finish_backward", saved);
    has_gradients_ = home_is_current_ = false;
    has_trained_ = true;
    std::exception_ptr failure;
    if (saved.way_ != way::twins) {
      catch_up();
      try {
        base::inner().finish_backward(exec, saved.inner_);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (saved.way_ != way::inner && tables_.twins()) {
      if (failure) {  // what is under way ends, and nothing is updated
        row_gradients dropped;
        tables_.twins()->gradients(exec, saved.twins_, dropped);
      } else {
        tables_.twins()->finish_backward(exec, saved.twins_);
      }
    }
    if (failure) std::rethrow_exception(failure);
    if (saved.way_ == way::twins && moves_ == hot_row_moves::stay) ++steps_behind_;
    if (saved.in_twins_) mark(saved, twins_changed_);  // again, as parts may have been asked for since the forward
  }

  /// Joins in a training step of the workers' batches, which are of this class: all that a rank does that holds tables alone. The workers do
  /// not look ahead meanwhile, and a worker whose step throws ends the run.
  void join_step(host_exec const& exec, batch_class kind) {
    idle_batch const idle(exec, base::outputs(), kind);
    saved_type saved;
    begin(exec, idle.batch, saved);
    finish(exec, saved, idle.out);
    begin_backward(exec, saved, idle.gradients);
    finish_backward(exec, saved);
  }
  /// Joins in a prediction of the workers.
  void join_prediction(host_exec const& exec) const {
    idle_batch const idle(exec, base::outputs(), batch_class::mixed);
    predict(exec, idle.batch, idle.out);
  }

  /// The gradients of the inner source's tables, then those of the twins. They are applied before rows move, or dropped.
  /// @throws tessera::error invalid_argument where others wait from before a swap.
  void gradients(host_exec const& exec, saved_type const& saved, row_gradients& sum) const {
    check_since_swap("hot_source::gradients", saved);
    if (has_gradients_ && swaps_of_gradients_ != swaps_) refuse_swap("hot_source::gradients");
    row_gradients of_inner, of_twins;
    in_turn(
        [&] {
          if (saved.way_ != way::twins) base::inner().gradients(exec, saved.inner_, of_inner);
        },
        [&] {
          if (saved.way_ != way::inner && tables_.twins()) tables_.twins()->gradients(exec, saved.twins_, of_twins);
        });
    detail::join_row_gradients(exec, inner_dims_, of_inner, tables_.dims(), of_twins, sum);
    has_gradients_ = true;
    swaps_of_gradients_ = swaps_;
  }
  /// Forgets gradients that were handed out and will not be applied.
  void drop_gradients() noexcept { has_gradients_ = false; }
  /// @throws tessera::error invalid_argument for gradients from before a swap: they may be dropped.
  void apply(host_exec const& exec, row_gradients const& sum) {
    if (has_gradients_ && swaps_of_gradients_ != swaps_) refuse_swap("hot_source::apply");
    has_gradients_ = false;
    home_is_current_ = false;
    has_trained_ = true;
    row_gradients of_inner, of_twins;
    detail::split_row_gradients(exec, static_cast<std::int64_t>(inner_dims_.size()), sum, of_inner, of_twins);
    if (moves_ == hot_row_moves::stay || !rows_are_out_) {
      catch_up();
      base::inner().apply(exec, of_inner);
    }
    if (!rows_are_out_ || !tables_.twins()) return;
    tables_.twins()->apply(exec, of_twins);
    for (std::int64_t t = 0; t < of_twins.tables(); ++t)
      for (auto const number : of_twins.ids(t)) twins_changed_.set(t, number);
  }

  /// Sorts ids ahead for a batch that the inner source reads alone.
  void prepare(host_exec const& exec, batch_view const& batch, row_order& prepared) const {
    if (batch.kind != batch_class::hot && moves_ == hot_row_moves::swap)
      base::prepare(exec, batch, prepared);
    else
      prepared.clear();
  }

  /// The inner source's parts, after the rows have come home. All ranks call it. The parts are of use until the next batch.
  table_parts parts() {
    if (rows_are_out_ && !home_is_current_) bring_home(exec_);  // else twins may be behind what was loaded
    catch_up();
    parts_are_out_ = home_is_current_ = true;
    table_parts watched;
    for (auto& part : base::inner().parts()) watched.push_back(std::make_unique<detail::watched_part>(std::move(part), is_loaded_));
    return watched;
  }
  /// Which tables' gradients another rank counts: of twins, all on other workers than the first.
  std::vector<bool> counted_elsewhere() const {
    auto elsewhere = counted_elsewhere_of(base::inner());
    elsewhere.resize(inner_dims_.size());
    elsewhere.resize(inner_dims_.size() + tables_.dims().size(), tables_.is_copy());
    return elsewhere;
  }
  std::size_t bytes() const noexcept {
    return base::bytes() + tables_.bytes() + hot_->bytes() + inner_changed_.bytes() + twins_changed_.bytes();
  }

 private:
  // A batch without samples, and blocks without rows.
  struct idle_batch {
    idle_batch(host_exec const& exec, vector_view<embedding_output const> outputs, batch_class kind)
        : ids(keyed_jagged<>::from_lengths(exec, {}, {}, {}, std::vector<std::int64_t>(static_cast<std::size_t>(outputs.size())))) {
      for (auto const& output : outputs) out.push_back({nullptr, 0, output.width});
      gradients.assign(out.begin(), out.end());
      batch.dense = {nullptr, 0, 0};
      batch.sparse = std::as_const(ids).view();
      batch.kind = kind;
    }
    keyed_jagged<> ids;
    std::vector<matrix_view<float>> out;
    std::vector<matrix_view<float const>> gradients;
    batch_view batch;
  };

  static any_communicator comm_of(Inner const& inner) {
    if constexpr (requires { inner.comm(); })
      return inner.comm();
    else
      return self_communicator();
  }
  std::optional<any_communicator> workers_of(hot_source_options const& options) const {
    if (!options.workers && comm_.size() == 1) return any_communicator(self_communicator());
    return options.workers;
  }
  bool has_workers(hot_source_options const& options) const { return workers_of(options).has_value(); }
  sharded_tables_options twin_options(hot_source_options const& options) const {
    sharded_tables_options twins{.codecs = options.codecs, .sums = options.sums};
    for (auto const& output : base::outputs())
      if (output.expanded_gradients) twins.sums = shared_gradients::expanded;
    return twins;
  }
  table_places places_of_inner() { return places_of(base::inner(), base::inner().parts()); }

  // Which table and output each key has. What cannot be is noted, and thrown on all ranks.
  std::vector<detail::hot_key> make_keys(hot_source_options const& options) {
    std::vector<detail::hot_key> keys;
    std::exception_ptr failure;
    try {
      keys = detail::keys_of_outputs(base::outputs());
      detail::check_hot_source(base::outputs(), comm_.size(), options.moves == hot_row_moves::stay, twin_options(options).sums);
    } catch (...) {
      failure = std::current_exception();
    }
    auto const text = "hot rows " + std::to_string(hot_->digest()) + "\nmoves " + std::to_string(static_cast<int>(options.moves)) + "\n";
    check_same_text(exec_, comm_, text, "hot_source: the same hot rows", failure);
    return keys;
  }
  std::vector<table_feature> twin_features() const {
    std::vector<table_feature> features;
    for (auto const& key : keys_) {
      auto const& output = base::outputs()[key.output];
      features.push_back({.name = output.name, .table = key.table, .sequence = output.sequence, .pooling = output.pooling});
    }
    return features;
  }

  [[noreturn]] static void refuse_swap(char const* call) {
    throw error(errc::invalid_argument, std::string(call) + ": hot rows have moved since the forward");
  }
  void check_since_swap(char const* call, saved_type const& saved) const {
    if (saved.way_ == way::none || saved.swaps_ < 0)
      throw error(errc::invalid_argument, std::string(call) + ": the forward is not finished");
    if (saved.swaps_ != swaps_) refuse_swap(call);
  }

  void mark(saved_type const& saved, detail::row_marks& changed) {
    if (tables_.twins()) saved.parted_.for_each_hot(keys_, [&](std::int64_t table, std::int64_t number) { changed.set(table, number); });
  }
  // Calls both, and throws what the first one threw, else the second.
  template <class First, class Second>
  static void in_turn(First const& first, Second const& second) {
    std::exception_ptr failure;
    try {
      first();
    } catch (...) {
      failure = std::current_exception();
    }
    try {
      second();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
    if (failure) std::rethrow_exception(failure);
  }

  void finish_twins(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    if (out.size() != base::outputs().size())
      throw error(errc::shape_mismatch, "hot_source::finish: one block an output",
                  {{"outputs", base::outputs().size()}, {"blocks", out.size()}});
    std::vector<matrix_view<float>> of_keys;
    for (auto const& key : keys_) of_keys.push_back(out[key.output]);
    try {
      tables_.twins()->finish(exec, saved.twins_, of_keys);
    } catch (...) {
      if (saved.cold_id_) std::rethrow_exception(saved.cold_id_);
      throw;
    }
  }

  // Has the hot rows where a batch reads them.
  void settle(host_exec const& exec, bool in_twins) {
    if (std::exchange(parts_are_out_, false)) take_loads(exec);
    if (in_twins == rows_are_out_) return;
    in_twins ? send_out(exec) : bring_home(exec);
    rows_are_out_ = in_twins;
    ++swaps_;
  }
  // What was loaded through the parts goes out, or will with the next swap.
  void take_loads(host_exec const& exec) {
    std::int64_t const mine[] = {std::exchange(*is_loaded_, false), has_hashed_};
    any_pending pending;
    bool is_loaded = false, has_hashed = false;
    for (auto const& one : all_gather<std::int64_t>(exec, comm_, {mine, 2}, pending, "hot_source: parts were written")) {
      is_loaded = is_loaded || one[0] != 0;
      has_hashed = has_hashed || one[1] != 0;
    }
    if (!is_loaded) return;
    if (has_trained_ && has_hashed)
      throw error(errc::incompatible, "hot_source: what is loaded may lack hashed rows that were trained here; load into a new source");
    inner_changed_.set_all();
    if (rows_are_out_) send_out(exec);
  }
  void send_out(host_exec const& exec) { move(exec, inner_changed_, true); }
  void bring_home(host_exec const& exec) {
    move(exec, twins_changed_, false);
    steps_behind_ = 0;  // step counts have come, too
  }
  void move(host_exec const& exec, detail::row_marks& changed, bool out) {
    changed.join(exec, comm_);
    auto const rows = tables_.rows_to_move(*hot_, changed);
    if constexpr (moves_rows<Inner>) {
      out ? base::inner().to_copies(exec, rows.view()) : base::inner().from_copies(exec, rows.view());
    } else {
      auto const parts = base::inner().parts();
      out ? mover_.to_copies(exec, parts, rows.view()) : mover_.from_copies(exec, parts, rows.view());
    }
    moved_rows_ += rows.count();
    changed.clear();
  }
  // Counts the steps of hot batches in the inner source's tables, where hot rows stay in the twins.
  void catch_up() {
    if (steps_behind_ == 0) return;
    for (auto& part : base::inner().parts()) part->set_steps(step_count{part->steps().value + steps_behind_});
    steps_behind_ = 0;
  }

  host_exec exec_;
  hot_row_moves moves_;
  any_communicator comm_;
  std::unique_ptr<hot_rows> hot_;
  std::vector<detail::hot_key> keys_;
  row_mover mover_;
  detail::hot_tables tables_;
  detail::row_marks inner_changed_, twins_changed_;  // hot rows whose other copy is older
  std::vector<std::int64_t> inner_dims_;             // of the inner source's parts
  bool rows_are_out_ = moves_ == hot_row_moves::stay;
  std::int64_t swaps_ = 0, moved_rows_ = 0, steps_behind_ = 0;
  mutable std::int64_t swaps_of_gradients_ = 0;
  mutable bool has_gradients_ = false;  // that were handed out, and are not applied
  bool parts_are_out_ = false;          // may have been loaded since the last forward
  bool home_is_current_ = false;        // where rows are out: nothing has changed since they came home
  bool has_trained_ = false, has_hashed_ = false;
  std::shared_ptr<bool> is_loaded_ = std::make_shared<bool>(false);
};

}  // namespace TESSERA_ABI
}  // namespace tessera
