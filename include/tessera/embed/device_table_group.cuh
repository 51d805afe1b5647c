// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/device_table_part.cuh>
#include <tessera/embed/feature_source.cuh>
#include <tessera/embed/locate_batch.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_gradients.cuh>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_rules.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_sums.cuh>
#include <tessera/embed/sequence_lookup.cuh>
#include <tessera/embed/table_group.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// What is made of one key of a group's.
struct group_feature {
  std::int64_t table;  // its number in the group
  tessera::pooling pooling;
  bool sequence;
  std::int64_t number;  // of the feature among those of all groups
};

/// Writes the gradients of a group's rows to their places among those of all tables.
template <device_execution Exec>
class group_gradients {
 public:
  /// `tables` (of the group,): their numbers. `resize` writes to `rows` (all tables,) how many rows of each of them there are. Then it
  /// calls `make_room`, which resizes `all`.
  group_gradients(vector_view<std::int64_t const> tables, vector_view<std::int64_t> rows, basic_row_gradients<Exec>& all,
                  std::function<void()> make_room)
      : tables_(tables), rows_(rows), all_(&all), make_room_(std::move(make_room)) {}

  template <class Rows, class Dim>
  void resize(Exec const&, std::int64_t tables, Rows const& rows, Dim const&) {
    for (std::int64_t t = 0; t < tables; ++t) rows_[tables_[t]] = rows(t);
    make_room_();
  }
  matrix_view<float> values(std::int64_t t) { return all_->values(tables_[t]); }
  std::int64_t* slots_to_write(std::int64_t t) noexcept { return all_->slots_to_write(tables_[t]); }
  std::int64_t* ids_to_write(std::int64_t t) noexcept { return all_->ids_to_write(tables_[t]); }

 private:
  vector_view<std::int64_t const> tables_;
  vector_view<std::int64_t> rows_;
  basic_row_gradients<Exec>* all_;
  std::function<void()> make_room_;
};

/// Tables of one kind on a device, with a call for each stage of a batch. `batch` has the keys that read these tables, and `features`
/// (keys,) says how. Slots are those of the batch's values; they are unused where slots are ids.
template <device_execution Exec>
class device_table_group : public table_group {
 public:
  using features_type = vector_view<group_feature const>;
  using batch_type = keyed_jagged_view<std::int64_t const>;

  /// Begins a batch of each hashed table, and gives new ids rows.
  virtual void locate(Exec const& exec, features_type features, batch_type batch, buffer<std::int64_t, Exec>& slots) = 0;
  virtual void find(Exec const& exec, features_type features, batch_type batch, buffer<std::int64_t, Exec>& slots) const = 0;
  virtual void read(Exec const& exec, features_type features, basic_lookup_saved<Exec> const& saved,
                    vector_view<matrix_view<float> const> out, lookup_options const& options) const = 0;

  /// Makes a step of every table. It calls begin(), which may throw, once all memory is allocated; nothing changes before.
  virtual void update(Exec const& exec, char const* call, features_type features, basic_lookup_saved<Exec> const& saved,
                      vector_view<matrix_view<float const> const> gradients, std::function<void()> const& begin) = 0;
  virtual void sum(Exec const& exec, features_type features, basic_lookup_saved<Exec> const& saved,
                   vector_view<matrix_view<float const> const> gradients, group_gradients<Exec>& out) const = 0;
  /// Updates rows of table t by their summed gradients, (rows, dim). Errors call the table `number`. It allocates nothing.
  virtual void apply(Exec const& exec, std::int64_t t, std::int64_t number, vector_view<std::int64_t const> slots,
                     matrix_view<float const> gradients) = 0;

  virtual std::unique_ptr<table_part> part(Exec const& exec, std::int64_t t) = 0;
};

/// The optimizers of tables on a device. Kernels are of a store and an optimizer each.
template <row_store Store>
class device_row_rules : public table_rules {
 public:
  using exec_type = execution_of<Store>;
  using features_type = vector_view<group_feature const>;
  using saved_type = basic_lookup_saved<exec_type>;

  virtual std::unique_ptr<device_row_rules> copy() const = 0;
  /// As `device_table_group::update`.
  virtual void update(exec_type const& exec, char const* call, vector_view<Store> tables, features_type features, saved_type const& saved,
                      vector_view<matrix_view<float const> const> gradients, std::function<void()> const& begin) const = 0;
  /// As `device_table_group::apply`.
  virtual void apply(exec_type const& exec, std::int64_t t, std::int64_t number, Store const& table, vector_view<std::int64_t const> slots,
                     matrix_view<float const> gradients) const = 0;
};

template <row_store Store, row_optimizer Optimizer>
class device_rules_of final : public optimizers_of_type<device_row_rules<Store>, Optimizer> {
  using base = optimizers_of_type<device_row_rules<Store>, Optimizer>;
  using typename base::exec_type;
  using typename base::features_type;
  using typename base::saved_type;

 public:
  using base::base;

  std::unique_ptr<device_row_rules<Store>> copy() const override { return std::make_unique<device_rules_of>(*this); }
  void update(exec_type const& exec, char const* call, vector_view<Store> tables, features_type features, saved_type const& saved,
              vector_view<matrix_view<float const> const> gradients, std::function<void()> const& begin) const override {
    feature_source_on_device<exec_type> const source(exec, features, saved.batch, gradients);
    update_rows_on_device(exec, call, tables, features, saved, vector_view<Optimizer const>(base::all()), source.get(), begin);
  }
  void apply(exec_type const& exec, std::int64_t t, std::int64_t number, Store const& table, vector_view<std::int64_t const> slots,
             matrix_view<float const> gradients) const override {
    update_table_on_device(exec, number, table, base::at(t), slots, gradients);
  }
};

template <row_store Store>
class device_tables_of_store final : public stores_of_group<device_table_group<execution_of<Store>>, Store, device_row_rules<Store>> {
  using exec_type = execution_of<Store>;
  using base = stores_of_group<device_table_group<exec_type>, Store, device_row_rules<Store>>;
  using slots_type = buffer<std::int64_t, exec_type>;
  using saved_type = basic_lookup_saved<exec_type>;
  using typename base::batch_type;
  using typename base::features_type;

 public:
  void locate([[maybe_unused]] exec_type const& exec, [[maybe_unused]] features_type features, [[maybe_unused]] batch_type batch,
              [[maybe_unused]] slots_type& slots) override {
    if constexpr (!Store::slots_are_ids) locate_all<true>(exec, base::stores(), features, batch, slots);
  }
  void find([[maybe_unused]] exec_type const& exec, [[maybe_unused]] features_type features, [[maybe_unused]] batch_type batch,
            [[maybe_unused]] slots_type& slots) const override {
    if constexpr (!Store::slots_are_ids) locate_all<false>(exec, base::stores(), features, batch, slots);
  }
  void read(exec_type const& exec, features_type features, saved_type const& saved, vector_view<matrix_view<float> const> out,
            lookup_options const& options) const override {
    auto const* const slots = saved.template slots_of<Store>();
    pool_on_device(exec, base::stores(), features, saved.batch, slots, out, options);
    read_sequences_on_device(exec, base::stores(), features, saved.batch, slots, out, options);
  }

  void update(exec_type const& exec, char const* call, features_type features, saved_type const& saved,
              vector_view<matrix_view<float const> const> gradients, std::function<void()> const& begin) override {
    base::rules().update(exec, call, base::stores(), features, saved, gradients, begin);
  }
  void sum(exec_type const& exec, features_type features, saved_type const& saved, vector_view<matrix_view<float const> const> gradients,
           group_gradients<exec_type>& out) const override {
    feature_source_on_device<exec_type> const source(exec, features, saved.batch, gradients);
    sum_rows_on_device(exec, base::stores(), features, saved, source.get(), out);
  }
  void apply(exec_type const& exec, std::int64_t t, std::int64_t number, vector_view<std::int64_t const> slots,
             matrix_view<float const> gradients) override {
    base::rules().apply(exec, t, number, base::at(t), slots, gradients);
  }

  std::unique_ptr<table_part> part(exec_type const& exec, std::int64_t t) override {
    return part_on_device(exec, base::at(t), base::rules().layout(t).optimizer);
  }
};

template <device_execution Exec>
struct table_groups<Exec> {
  using group = device_table_group<Exec>;
  template <class Store>
  using tables = device_tables_of_store<Store>;
  template <class Store>
  using rules = device_row_rules<Store>;
  template <class Store, class Optimizer>
  using rules_of = device_rules_of<Store, Optimizer>;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
