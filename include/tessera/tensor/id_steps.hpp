// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/transform_ids.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A step of an `id_pipeline` for the named keys, in this order, or for all other keys.
template <class Step>
struct keys_step {
  std::vector<std::string> keys;
  bool all_but = false;
  Step step;
};

/// Applies `step` to these keys alone; options of one number a key count the keys in this order.
template <class Step>
keys_step<Step> on_keys(std::vector<std::string> keys, Step step) {
  return {std::move(keys), false, std::move(step)};
}
/// Applies `step` to all other keys.
template <class Step>
keys_step<Step> except_keys(std::vector<std::string> keys, Step step) {
  return {std::move(keys), true, std::move(step)};
}

namespace detail {

/// Which keys a step is for: by number, in the step's order, and of each key its place in it, or -1.
struct step_keys {
  std::vector<std::int64_t> keys;
  std::vector<std::int64_t> numbers;

  template <class Step>
  static step_keys of(std::vector<std::string> const& all, Step const&) {
    step_keys result(all.size());
    for (std::size_t key = 0; key < all.size(); ++key) result.add(static_cast<std::int64_t>(key));
    return result;
  }
  template <class Step>
  static step_keys of(std::vector<std::string> const& all, keys_step<Step> const& step) {
    step_keys named(all.size());
    for (auto const& name : step.keys) {
      auto const key = std::find(all.begin(), all.end(), name) - all.begin();
      if (key == static_cast<std::ptrdiff_t>(all.size())) throw error(errc::invalid_argument, "id_pipeline: no such key", {{"key", name}});
      if (named.numbers[static_cast<std::size_t>(key)] >= 0)
        throw error(errc::invalid_argument, "id_pipeline: a key twice", {{"key", name}});
      named.add(key);
    }
    if (!step.all_but) return named;
    step_keys others(all.size());
    for (std::size_t key = 0; key < all.size(); ++key)
      if (named.numbers[key] < 0) others.add(static_cast<std::int64_t>(key));
    return others;
  }
  bool all() const noexcept { return keys.size() == numbers.size(); }

 private:
  explicit step_keys(std::size_t all) : numbers(all, -1) {}
  void add(std::int64_t key) {
    numbers[static_cast<std::size_t>(key)] = static_cast<std::int64_t>(keys.size());
    keys.push_back(key);
  }
};

template <class Step>
struct bare_step {
  using type = Step;
  static Step const& of(Step const& step) noexcept { return step; }
};
template <class Step>
struct bare_step<keys_step<Step>> {
  using type = Step;
  static Step const& of(keys_step<Step> const& step) noexcept { return step.step; }
};

/// What a step keeps where its batches lie.
template <class T, execution Exec>
using step_table = std::conditional_t<device_execution<Exec>, buffer<T, Exec>, std::vector<T>>;

template <class T>
std::vector<T> table_of(host_exec const&, std::vector<T> values) {
  return values;
}
template <class T, device_execution Exec>
buffer<T, Exec> table_of(Exec const& exec, std::vector<T> const& values) {
  return to_device(exec, values);
}

/// Copies numbers within the execution's memory.
inline void copy_numbers(host_exec const&, std::int64_t const* from, std::int64_t count, std::int64_t* to) noexcept {
  std::copy_n(from, count, to);
}
template <device_execution Exec>
void copy_numbers(Exec const& exec, std::int64_t const* from, std::int64_t count, std::int64_t* to) {
  exec.copy(to, from, static_cast<std::size_t>(count) * sizeof(std::int64_t));
}

/// Flags of the keys that a step is for; none where it is for all.
template <execution Exec>
step_table<std::uint8_t, Exec> selected_keys(Exec const& exec, step_keys const& own) {
  std::vector<std::uint8_t> flags;
  for (auto const number : own.numbers)
    if (!own.all()) flags.push_back(number >= 0);
  return table_of<std::uint8_t>(exec, std::move(flags));
}

template <class F, class Table, class Flags>
key_functions<F> functions_of_keys(Table const& functions, std::int64_t stride, Flags const& selected) noexcept {
  return {functions.data(), stride, selected.empty() ? nullptr : selected.data()};
}

/// What has the functions of a transform.
template <class Exec, class Step>
auto place_step(Exec const& exec, step_keys const& own, Step step) {
  auto const keys = static_cast<std::int64_t>(own.keys.size());
  if constexpr (requires { step.check(keys); }) step.check(keys);
  if constexpr (requires { step.place(exec); })
    return step.place(exec);
  else
    return step;
}

/// A step whose functions are made a key each.
template <class Exec, class Step>
class transform_step {
 public:
  static constexpr bool of_rows = false;

  transform_step(Exec const& exec, std::vector<std::string> const& names, step_keys const& own, Step step)
      : placed_(place_step(exec, own, std::move(step))), selected_(selected_keys(exec, own)) {
    if (own.keys.empty()) return;
    std::vector<function> functions;
    for (std::size_t key = 0; key < names.size(); ++key)  // those of other keys are not called
      functions.push_back(placed_.of_key({std::max<std::int64_t>(own.numbers[key], 0), salt_of(names[key])}));
    functions_ = table_of<function>(exec, std::move(functions));
  }
  auto link() const noexcept { return functions_of_keys<function>(functions_, 1, selected_); }

 private:
  using placed = decltype(place_step(std::declval<Exec const&>(), std::declval<step_keys const&>(), std::declval<Step>()));
  using function = decltype(std::declval<placed const&>().of_key(transformed_key{}));

  placed placed_;
  step_table<function, Exec> functions_;  // (keys,)
  step_table<std::uint8_t, Exec> selected_;
};

/// A step that is itself a function of ids.
template <class Exec, class Step>
class function_step {
 public:
  static constexpr bool of_rows = false;

  function_step(Exec const& exec, std::vector<std::string> const&, step_keys const& own, Step step) : selected_(selected_keys(exec, own)) {
    std::vector<Step> one;
    one.push_back(std::move(step));
    function_ = table_of<Step>(exec, std::move(one));
  }
  auto link() const noexcept { return functions_of_keys<Step>(function_, 0, selected_); }

 private:
  step_table<Step, Exec> function_;
  step_table<std::uint8_t, Exec> selected_;
};

template <class Step, class Exec>
concept selecting_rows_step = requires(Step const& step, Exec const& exec, keyed_jagged_view<std::int64_t const> in,
                                       vector_view<std::int64_t const> numbers) {
  step(exec, in, numbers);
};
template <class Step, class Exec>
concept rows_step = requires(Step const& step, Exec const& exec, keyed_jagged_view<std::int64_t const> in) {
  step(exec, in);
};

/// A step that makes other rows of some keys.
template <class Exec, class Step>
class keyed_step {
 public:
  static constexpr bool of_rows = true;

  keyed_step(Exec const&, std::vector<std::string> const&, step_keys own, Step step) : keys_(std::move(own)), step_(std::move(step)) {
    auto const keys = static_cast<std::int64_t>(keys_.keys.size());
    if constexpr (requires { step_.check(keys); }) step_.check(keys);
  }

  template <class T, class Offset>
  keyed_jagged<T, Offset, Exec> operator()(Exec const& exec, keyed_jagged_view<T const, Offset> in) const {
    auto result = rows(exec, in);
    auto const view = std::as_const(result).view();
    if (view.keys != in.keys)
      throw error(errc::shape_mismatch, "id_pipeline: a step of rows that keeps not the keys", {{"keys", in.keys}, {"result", view.keys}});
    for (std::int64_t key = 0; key < in.keys; ++key)
      if (view.rows(key) != in.rows(key))
        throw error(errc::shape_mismatch, "id_pipeline: a step of rows that keeps not their number",
                    {{"key", key}, {"rows", in.rows(key)}, {"result", view.rows(key)}});
    return result;
  }

 private:
  template <class T, class Offset>
  keyed_jagged<T, Offset, Exec> rows(Exec const& exec, keyed_jagged_view<T const, Offset> in) const {
    if constexpr (selecting_rows_step<Step, Exec>) {
      return step_(exec, in, vector_view<std::int64_t const>(keys_.numbers));
    } else {
      if (keys_.all()) return step_(exec, in);
      // Neighbouring keys of one kind at a time.
      std::vector<keyed_jagged<T, Offset, Exec>> changed;
      std::vector<keyed_jagged_view<T const, Offset>> parts;
      changed.reserve(keys_.keys.size());
      for (std::int64_t first = 0, last = 0; first < in.keys; first = last) {
        bool const is_on = is_selected(first);
        for (last = first + 1; last < in.keys && is_selected(last) == is_on;) ++last;
        auto const part = in.slice_keys(first, last - first);
        parts.push_back(is_on ? std::as_const(changed.emplace_back(step_(exec, part))).view() : part);
      }
      return concat_keys(exec, parts);
    }
  }
  bool is_selected(std::int64_t key) const noexcept { return keys_.numbers[static_cast<std::size_t>(key)] >= 0; }

  step_keys keys_;
  Step step_;
};

template <class Exec, class Step>
constexpr auto kind_of_step() {
  if constexpr (id_transform<Step, Exec>)
    return std::type_identity<transform_step<Exec, Step>>{};
  else if constexpr (selecting_rows_step<Step, Exec> || rows_step<Step, Exec>)
    return std::type_identity<keyed_step<Exec, Step>>{};
  else if constexpr (id_function<Step>)
    return std::type_identity<function_step<Exec, Step>>{};
  else
    static_assert(dependent_false<Step>,
                  "id_pipeline: a step is a function of ids, a transform with of_key, or an operation step(exec, keyed_jagged_view)");
}
template <class Exec, class Step>
using placed_step = typename decltype(kind_of_step<Exec, typename bare_step<Step>::type>())::type;

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
