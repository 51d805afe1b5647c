// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_group.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
class featured_tables;
}  // namespace detail

/// Tables of any kinds, each with its row optimizer, in the order in which they are added. Move-only.
class table_list {
 public:
  /// Takes over a table that was built for this kind of optimizer, and says its number. Tables of one kind become one group.
  /// @throws tessera::error incompatible, invalid_argument.
  template <row_store Store, row_optimizer Optimizer>
  std::int64_t add(Store table, Optimizer const& optimizer) {
    static_assert(!device_execution<execution_of<Store>>, "table_list: tables of the host");
    using kind = detail::tables_of_kind<Store, Optimizer>;
    places_.reserve(places_.size() + 1);
    auto group = std::find_if(groups_.begin(), groups_.end(), [](auto const& g) { return dynamic_cast<kind*>(g.get()) != nullptr; });
    if (group != groups_.end()) {
      static_cast<kind&>(**group).add(std::move(table), optimizer);
    } else {
      auto first = std::make_unique<kind>();
      first->add(std::move(table), optimizer);
      group = groups_.insert(groups_.end(), std::move(first));
    }
    places_.push_back({static_cast<std::size_t>(group - groups_.begin()), (*group)->size() - 1});
    return size() - 1;
  }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(places_.size()); }
  /// How many kinds there are.
  std::int64_t group_count() const noexcept { return static_cast<std::int64_t>(groups_.size()); }

 private:
  friend class detail::featured_tables;
  struct place {
    std::size_t group;
    std::int64_t number;  // of the table in its group
  };
  std::vector<std::unique_ptr<detail::table_group>> groups_;
  std::vector<place> places_;
};

/// What is made of one key of a batch.
struct table_feature {
  std::string name;
  std::int64_t table = 0;  // its number in the list; several features may share one
  bool sequence = false;   // a vector for each id; else one for each bag, pooled so:
  tessera::pooling pooling = tessera::pooling::sum;

  /// Whether a bag's vector is the maximum of its rows.
  constexpr bool is_largest() const noexcept { return !sequence && pooling == tessera::pooling::max; }
};

}  // namespace TESSERA_ABI
}  // namespace tessera
