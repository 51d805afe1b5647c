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

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_group.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The types of a list's groups: the interface `group`, and its implementation `tables<Store>`. `rules<Store>` are the optimizers of
/// such tables, and `rules_of<Store, Optimizer>` those of one type.
template <class Exec>
struct table_groups {
  static_assert(dependent_false<Exec>, "table_list: no back end for this execution; for CUDA include <tessera/embed/local_tables.cuh>");
};
template <>
struct table_groups<host_exec> {
  using group = host_table_group;
  template <class Store>
  using tables = tables_of_store<Store>;
  template <class Store>
  using rules = row_rules<typename Store::element>;
  template <class Store, class Optimizer>
  using rules_of = detail::rules_of<typename Store::element, Optimizer>;
};

}  // namespace detail

/// Tables of any kinds in the memory of one execution, each with its row optimizer, in the order in which they were added. `table_list` is
/// the host's. Move-only.
template <execution Exec>
class basic_table_list {
 public:
  /// @private
  using group_type = typename detail::table_groups<Exec>::group;

  basic_table_list() = default;
  basic_table_list(basic_table_list const&) = delete;
  basic_table_list& operator=(basic_table_list const&) = delete;
  basic_table_list(basic_table_list&&) noexcept = default;
  basic_table_list& operator=(basic_table_list&&) noexcept = default;

  /// Takes a table that was built for this kind of optimizer, and returns its number. Tables of one kind become one group.
  /// @throws tessera::error incompatible for a table that was built for another optimizer; invalid_argument as `check_optimizer`. The list
  /// is then as before.
  template <row_store Store, row_optimizer Optimizer>
  std::int64_t add(Store table, Optimizer const& optimizer) {
    detail::expect_tables_of<Exec, Store>();
    return add_table(table, typename detail::table_groups<Exec>::template rules_of<Store, Optimizer>(optimizer));
  }
  /// @private As above, of an optimizer of any type. It takes the table unless it throws.
  template <row_store Store>
  std::int64_t add_table(Store& table, typename detail::table_groups<Exec>::template rules<Store> const& optimizer) {
    using tables = typename detail::table_groups<Exec>::template tables<Store>;
    detail::reserve_one_more(places_);
    detail::reserve_one_more(groups_);
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](auto const& g) {
      auto* const same = dynamic_cast<tables*>(g.get());
      return same != nullptr && same->add(table, optimizer);
    });
    if (group == groups_.end()) {
      auto first = std::make_unique<tables>();
      first->add(table, optimizer);
      group = groups_.insert(groups_.end(), std::move(first));
    }
    places_.push_back({static_cast<std::size_t>(group - groups_.begin()), (*group)->size() - 1});
    return size() - 1;
  }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(places_.size()); }
  /// How many kinds of tables there are.
  std::int64_t group_count() const noexcept { return static_cast<std::int64_t>(groups_.size()); }

  /// @private
  std::vector<std::unique_ptr<group_type>> const& groups() const noexcept { return groups_; }
  /// @private The number of the group that has table t; then the group, and the number of the table in it.
  std::size_t group_number_of(std::int64_t t) const noexcept { return places_[static_cast<std::size_t>(t)].group; }
  /// @private The group that has table t.
  group_type& group_of(std::int64_t t) const noexcept { return *groups_[group_number_of(t)]; }
  /// @private The number of table t in its group.
  std::int64_t number_of(std::int64_t t) const noexcept { return places_[static_cast<std::size_t>(t)].number; }
  table_options const& options(std::int64_t t) const noexcept { return group_of(t).options(number_of(t)); }
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& group : groups_) sum += group->bytes();
    return sum;
  }

  /// @private The store of table t, or its optimizer. Errors call the caller `owner`.
  template <class Store>
  Store& store(char const* owner, std::int64_t t) const {
    return *static_cast<Store*>(expect(owner, "store", t, group_with(owner, t).store(number_of(t), typeid(Store))));
  }
  /// @private The optimizer of table t, as above.
  template <class Optimizer>
  Optimizer& optimizer(char const* owner, std::int64_t t) const {
    return *static_cast<Optimizer*>(expect(owner, "optimizer", t, group_with(owner, t).optimizer(number_of(t), typeid(Optimizer))));
  }

 private:
  struct place {
    std::size_t group;
    std::int64_t number;  // of the table in its group
  };

  group_type& group_with(char const* owner, std::int64_t t) const {
    if (t < 0 || t >= size()) throw error(errc::out_of_range, std::string(owner) + ": no such table", {{"table", t}, {"tables", size()}});
    return group_of(t);
  }
  static void* expect(char const* owner, char const* what, std::int64_t t, void* found) {
    if (found == nullptr) throw error(errc::incompatible, std::string(owner) + ": the " + what + " is of another type", {{"table", t}});
    return found;
  }

  std::vector<std::unique_ptr<group_type>> groups_;
  std::vector<place> places_;
};
/// Tables of the host.
using table_list = basic_table_list<host_exec>;

/// What is made of one key of a batch.
struct table_feature {
  std::string name;
  std::int64_t table = 0;  ///< its number in the list; several features may share one
  bool sequence = false;   ///< a vector for each id; else one for each bag, pooled so:
  tessera::pooling pooling = tessera::pooling::sum;
  /// Of tables of the host: whether vectors are read, whose block else keeps what it has; whether their gradients count. With neither, ids
  /// get rows, and blocks may be empty.
  bool reads = true, learns = true;

  /// Whether a bag's vector is the maximum of its rows.
  constexpr bool is_largest() const noexcept { return !sequence && pooling == tessera::pooling::max; }
};

namespace detail {

/// Checks that all tables have ids of their own, or begin with other columns of one table, and that features read tables of the list. Errors
/// call the caller `owner`.
template <class Exec>
void check_features(char const* owner, basic_table_list<Exec> const& tables, vector_view<table_feature const> features) {
  for (std::int64_t t = 0; t < tables.size(); ++t)
    for (std::int64_t other = 0; other < t; ++other)
      if (tables.options(t).id == tables.options(other).id && tables.options(t).first_column == tables.options(other).first_column)
        throw error(errc::invalid_argument, std::string(owner) + ": tables of one list differ in their ids",
                    {{"table", other}, {"and table", t}, {"id", tables.options(t).id.value}});
  for (std::int64_t f = 0; f < features.size(); ++f) {
    if (features[f].table < 0 || features[f].table >= tables.size())
      throw error(errc::out_of_range, std::string(owner) + ": no such table",
                  {{"feature", f}, {"table", features[f].table}, {"tables", tables.size()}});
    check_choice(owner, "pooling", features[f].pooling, pooling::max);
  }
}

/// Whether each key of a batch has its own number of rows: the ranks that it came from have as many samples each only where it has groups.
inline bool has_own_rows(inverse_keyed_jagged_view<std::int64_t const> batch, std::int64_t source_ranks) noexcept {
  return source_ranks > 1 && batch.groups.empty();
}

/// How many vectors a pooled feature has.
inline std::int64_t pooled_vectors(inverse_keyed_jagged_view<std::int64_t const> batch, std::int64_t key,
                                   std::int64_t source_ranks) noexcept {
  return has_own_rows(batch, source_ranks) ? batch.distinct.rows(key) : batch.samples;
}

/// Checks that a batch has a key for each feature, and groups that fit it.
inline void check_keys(char const* call, vector_view<table_feature const> features, inverse_keyed_jagged_view<std::int64_t const> batch,
                       std::int64_t source_ranks) {
  if (batch.keys() != features.size())
    throw error(errc::shape_mismatch, std::string(call) + ": one feature a key of the batch",
                {{"keys", batch.keys()}, {"features", features.size()}});
  if (!has_own_rows(batch, source_ranks)) check_groups(call, batch);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#define TESSERA_INSTANCES_OF_TABLES(how, Element)                                        \
  how class stores_of_group<host_table_group, dense_table<Element>, row_rules<Element>>; \
  how class stores_of_group<host_table_group, hash_table<Element>, row_rules<Element>>;  \
  how class tables_of_store<dense_table<Element>>;                                       \
  how class tables_of_store<hash_table<Element>>;                                        \
  how class store_part<dense_table<Element>>;                                            \
  how class store_part<hash_table<Element>>;
#if TESSERA_COMPILED
// Their instances are declared before anyone can ask for one. Without the library, whoever makes such tables includes them.
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCES_OF_TABLES, extern template)
}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
#endif
