// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <typeinfo>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_update.hpp>

/// How rows of tables change, behind virtual calls: what holds tables is compiled once for all optimizers.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The row optimizers of some tables, one a table and all of one type.
class table_rules {
 public:
  table_rules() = default;
  table_rules& operator=(table_rules const&) = delete;
  virtual ~table_rules() = default;

  /// Appends those of another list, where they are of the same type, else returns false. When it throws, nothing has changed.
  virtual bool append(table_rules const& others) = 0;
  /// The state of rows that optimizer t needs, with its name.
  virtual row_state_layout layout(std::int64_t t) const noexcept = 0;
  /// @throws tessera::error as `check_optimizer`, of any of them.
  virtual void check() const = 0;
  /// Optimizer t; nullptr where it is of another type.
  virtual void* optimizer(std::int64_t t, std::type_info const& type) noexcept = 0;

 protected:
  table_rules(table_rules const&) = default;
};

/// What optimizers of one type do for any execution. `Rules` is the interface of its tables.
template <class Rules, row_optimizer Optimizer>
class optimizers_of_type : public Rules {
 public:
  explicit optimizers_of_type(Optimizer const& optimizer) : optimizers_{optimizer} {}

  bool append(table_rules const& others) final {
    auto const* const same = dynamic_cast<optimizers_of_type const*>(&others);
    if (same != nullptr) optimizers_.insert(optimizers_.end(), same->optimizers_.begin(), same->optimizers_.end());
    return same != nullptr;
  }
  row_state_layout layout(std::int64_t t) const noexcept final { return row_state_layout::of(at(t)); }
  void check() const final {
    for (auto const& one : optimizers_) check_optimizer(one);
  }
  void* optimizer(std::int64_t t, std::type_info const& type) noexcept final {
    return type == typeid(Optimizer) ? &optimizers_[static_cast<std::size_t>(t)] : nullptr;
  }

 protected:
  Optimizer const& at(std::int64_t t) const noexcept { return optimizers_[static_cast<std::size_t>(t)]; }
  std::vector<Optimizer> const& all() const noexcept { return optimizers_; }

 private:
  std::vector<Optimizer> optimizers_;
};

/// The optimizers of tables on the host, whose rows are of these elements.
template <row_element Element>
class row_rules : public table_rules {
 public:
  virtual std::unique_ptr<row_rules> copy() const = 0;
  /// Updates some rows of table t.
  virtual void update(std::int64_t t, host_rows<Element> const& table, summed_rows const& rows) const noexcept = 0;
};

template <row_element Element, row_optimizer Optimizer>
class rules_of final : public optimizers_of_type<row_rules<Element>, Optimizer> {
 public:
  using optimizers_of_type<row_rules<Element>, Optimizer>::optimizers_of_type;

  std::unique_ptr<row_rules<Element>> copy() const override { return std::make_unique<rules_of>(*this); }
  void update(std::int64_t t, host_rows<Element> const& table, summed_rows const& rows) const noexcept override {
    update_summed(table, this->at(t), rows);
  }
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
