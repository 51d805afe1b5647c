// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_reader.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_rules.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_sums.hpp>
#include <tessera/embed/row_update.hpp>
#include <tessera/embed/sequence_lookup.hpp>
#include <tessera/embed/table_part.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Tables of one kind: of one store, with its elements and policies, and of one type of row optimizer. One virtual call a group, table or
/// part of a table does what an execution has to do. Behind it all types are known but the optimizer's: another virtual call updates rows.
/// Table t is the t-th that was added to the group.
class table_group {
 public:
  table_group() = default;
  table_group(table_group const&) = delete;
  table_group& operator=(table_group const&) = delete;
  virtual ~table_group() = default;

  virtual std::int64_t size() const noexcept = 0;
  virtual bool slots_are_ids() const noexcept = 0;
  virtual table_options const& options(std::int64_t t) const noexcept = 0;
  virtual std::int64_t slot_bound(std::int64_t t) const noexcept = 0;
  virtual std::size_t bytes() const noexcept = 0;

  /// Checks options again, as rates may have changed. @throws tessera::error as `check_optimizer`.
  virtual void check_optimizers(char const* call) const = 0;
  virtual void count_step() noexcept = 0;

  /// The store of table t, or its optimizer; nullptr where it is of another type.
  virtual void* store(std::int64_t t, std::type_info const& type) noexcept = 0;
  virtual void* optimizer(std::int64_t t, std::type_info const& type) noexcept = 0;
};

/// Makes room, so that the next push_back throws nothing.
template <class T>
void reserve_one_more(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<std::size_t>(4, 2 * list.size()));
}

/// What groups have in common for all executions. `Rules` are the optimizers of such tables.
/// @pre a Store's move throws nothing
template <class Group, row_store Store, class Rules>
class stores_of_group : public Group {
 public:
  /// Takes a table and its optimizer, or returns false: the group's optimizers are of another type. It throws as `table_list::add`.
  bool add(Store& store, Rules const& optimizer) {
    optimizer.check();
    check_state_layout("table_list::add", store.options(), store.state_layout(), optimizer.layout(0));
    reserve_one_more(stores_);
    if (rules_ == nullptr)
      rules_ = optimizer.copy();
    else if (!rules_->append(optimizer))
      return false;
    stores_.push_back(std::move(store));
    return true;
  }

  std::int64_t size() const noexcept final { return static_cast<std::int64_t>(stores_.size()); }
  bool slots_are_ids() const noexcept final { return Store::slots_are_ids; }
  table_options const& options(std::int64_t t) const noexcept final { return at(t).options(); }
  std::int64_t slot_bound(std::int64_t t) const noexcept final { return at(t).slot_bound(); }
  std::size_t bytes() const noexcept final {
    std::size_t sum = 0;
    for (auto const& store : stores_) sum += store.bytes();
    return sum;
  }

  void check_optimizers(char const* call) const final {
    rules_->check();
    for (std::int64_t t = 0; t < size(); ++t) check_state_layout(call, options(t), at(t).state_layout(), rules_->layout(t));
  }
  void count_step() noexcept final { detail::count_step(vector_view<Store>(stores_)); }

  void* store(std::int64_t t, std::type_info const& type) noexcept final { return type == typeid(Store) ? &at(t) : nullptr; }
  void* optimizer(std::int64_t t, std::type_info const& type) noexcept final { return rules_->optimizer(t, type); }

 protected:
  vector_view<Store> stores() noexcept { return stores_; }
  vector_view<Store const> stores() const noexcept { return stores_; }
  Rules const& rules() const noexcept { return *rules_; }
  Store& at(std::int64_t t) noexcept { return stores_[static_cast<std::size_t>(t)]; }
  Store const& at(std::int64_t t) const noexcept { return stores_[static_cast<std::size_t>(t)]; }

 private:
  std::vector<Store> stores_;
  std::unique_ptr<Rules> rules_;
};

/// Which ids a pass over a batch locates.
enum class locate_pass : std::uint8_t {
  held,  ///< those that have rows, where a store can tell them apart: no new id of another key may push them out then
  rest,  ///< all others
};

/// A group on the host: a call for each table or part of one.
class host_table_group : public table_group {
 public:
  virtual row_places places(std::int64_t t) const noexcept = 0;
  virtual void begin_batch() noexcept = 0;
  virtual void locate(host_exec const& exec, std::int64_t t, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
                      locate_pass pass) = 0;
  virtual void find(host_exec const& exec, std::int64_t t, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const = 0;
  virtual void pool(std::int64_t t, bag_request const& request, std::int64_t first, std::int64_t last) const = 0;
  virtual void read(std::int64_t t, value_request const& request, std::int64_t first, std::int64_t last) const = 0;
  virtual void update(std::int64_t t, summed_rows const& rows) noexcept = 0;
  virtual std::unique_ptr<table_part> part(std::int64_t t) = 0;
};

template <row_store Store>
class tables_of_store final : public stores_of_group<host_table_group, Store, row_rules<typename Store::element>> {
  using base = stores_of_group<host_table_group, Store, row_rules<typename Store::element>>;
  using base::at;

 public:
  row_places places(std::int64_t t) const noexcept override { return at(t).host_rows().places; }
  void begin_batch() noexcept override {
    if constexpr (requires(Store & store) { store.begin_batch(); })
      for (auto& store : base::stores()) store.begin_batch();
  }
  void locate(host_exec const& exec, std::int64_t t, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
              locate_pass pass) override {
    auto& store = at(t);
    if constexpr (requires { store.locate_held(exec, ids, slots); }) {
      if (pass == locate_pass::held)
        store.locate_held(exec, ids, slots);
      else
        store.locate_new(exec, ids, slots);
    } else if (pass == locate_pass::rest) {
      store.locate(exec, ids, slots, {});
    }
  }
  void find(host_exec const& exec, std::int64_t t, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const override {
    at(t).find(exec, ids, slots);
  }
  void pool(std::int64_t t, bag_request const& request, std::int64_t first, std::int64_t last) const override {
    pool_bags<typename Store::element>(at(t).host_rows(), request, first, last);
  }
  void read(std::int64_t t, value_request const& request, std::int64_t first, std::int64_t last) const override {
    read_vectors<typename Store::element>(at(t).host_rows(), request, first, last);
  }
  void update(std::int64_t t, summed_rows const& rows) noexcept override { base::rules().update(t, at(t).host_rows(), rows); }
  std::unique_ptr<table_part> part(std::int64_t t) override {
    return std::make_unique<store_part<Store>>(at(t), base::rules().layout(t).optimizer);
  }
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
