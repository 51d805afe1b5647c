// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Puts the keys of one batch after those of another, into a keyed_jagged.
///
/// `inputs` (batches,) is the host's: a vector_view, or what converts to one, of keyed_jagged_view or of pointers to keyed_jagged. Of views
/// the result is unnamed; of owners it has their names, unless one of them has none. Batches with values are all weighted or none; on a
/// device that goes for batches with room for values.
///
/// The result's memory is `exec`'s. On a device it has the inputs' room in all. The call waits for the number of values where neither an
/// input nor `room` gives one. @post `split_keys` by the inputs' numbers of keys gives the inputs again; `slice_keys` of a gradient is the
/// backward, in place. @throws tessera::error shape_mismatch for weights in some only, invalid_argument for a name twice, out_of_range for
/// values that an Offset does not count.
template <execution Exec, class Inputs>
auto concat_keys(Exec const& exec, Inputs const& inputs, result_room room = {});

/// Puts the rows of one input after those of another: key by key, where there are keys. Of jagged_view the result is a jagged, else a
/// keyed_jagged.
///
/// `inputs` (n,) is the host's: a vector_view, or what converts to one. Its elements are jagged_view, keyed_jagged_view with as many keys
/// each, or pointers to keyed_jagged under the same names in the same order. @post `slice_rows` of the result gives each input again; of a
/// gradient it is the backward. @throws tessera::error as `concat_keys`, and shape_mismatch naming an input with other keys.
template <execution Exec, class Inputs>
auto concat_rows(Exec const& exec, Inputs const& inputs, result_room room = {});

/// Cuts a batch into owners of its first counts[0] keys, its next counts[1] keys, and so on, with their names. `slice_keys` of a view
/// copies nothing.
///
/// `counts` (parts,), the host's, none negative, sums to the number of keys. On a device each part has the input's room unless `room` gives
/// the most values that any part has. @post `concat_keys` of the parts is the batch. @throws tessera::error invalid_argument naming a part,
/// shape_mismatch.
template <execution Exec, class T, class Offset>
std::vector<keyed_jagged<T, Offset, Exec>> split_keys(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in,
                                                      vector_view<std::int64_t const> counts, result_room room = {});

namespace detail {

struct concat_tag {};

// An element of a list of inputs: a view, or a pointer to an owner.
template <class T, class Offset>
jagged_view<T const, Offset> input_view(jagged_view<T, Offset> view) noexcept {
  return view;
}
template <class T, class Offset>
keyed_jagged_view<T const, Offset> input_view(keyed_jagged_view<T, Offset> view) noexcept {
  return view;
}
template <class T, class Offset, class Exec>
keyed_jagged_view<T const, Offset> input_view(keyed_jagged<T, Offset, Exec> const* owner) noexcept {
  return owner->view();
}

template <class Input>
void check_inputs(char const* call, vector_view<Input> inputs) {
  for (std::int64_t i = 0; i < inputs.size(); ++i) check_rows(call, "inputs[" + std::to_string(i) + "]", input_view(inputs[i]));
}

// Weighted and unweighted values do not mix. `has_values(input)` says here and below whether there are any.
template <class Input, class HasValues>
void check_weighted_alike(char const* call, vector_view<Input> inputs, HasValues const& has_values) {
  std::int64_t first = -1;  // with values
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    auto const in = input_view(inputs[i]);
    if (!has_values(in)) continue;
    if (first < 0) first = i;
    if (in.weighted() != input_view(inputs[first]).weighted())
      throw error(errc::shape_mismatch, std::string(call) + ": weighted and unweighted inputs", {{"input", first}, {"other input", i}});
  }
}

template <class Input>
std::int64_t keys_of_all(vector_view<Input> inputs) {
  std::int64_t keys = 0;
  for (auto const& input : inputs) keys += input_view(input).keys;
  return keys;
}

template <class Input>
std::int64_t keys_of_each(vector_view<Input> inputs) {
  auto const keys = inputs.empty() ? 0 : input_view(inputs[0]).keys;
  for (std::int64_t i = 0; i < inputs.size(); ++i)
    if (auto const other = input_view(inputs[i]).keys; other != keys)
      throw error(errc::shape_mismatch, "concat_rows: inputs differ in keys", {{"keys", keys}, {"input", i}, {"its keys", other}});
  return keys;
}

template <class Input, class HasValues, class T, class Offset>
void keys_one_after_the_other(vector_view<Input> inputs, HasValues const& has_values, row_run<T, Offset>* run) {
  for (auto const& input : inputs) {
    keyed_jagged_view<T const, Offset> const in = input_view(input);
    for (std::int64_t key = 0; key < in.keys; ++key) *run++ = {in.key(key), has_values(in) ? in.weights : nullptr};
  }
}

template <class Input, class HasValues, class T, class Offset>
void rows_one_after_the_other(vector_view<Input> inputs, std::int64_t keys, HasValues const& has_values, row_run<T, Offset>* run) {
  for (std::int64_t key = 0; key < keys; ++key)
    for (auto const& input : inputs) {
      keyed_jagged_view<T const, Offset> const in = input_view(input);
      *run++ = {in.key(key), has_values(in) ? in.weights : nullptr};
    }
}

template <>
struct back_end<concat_tag, host_exec> {
  template <class T, class Offset, class Input>
  static keyed_jagged<T, Offset> keys(host_exec const& exec, vector_view<Input> inputs, result_room room) {
    check_inputs("concat_keys", inputs);
    check_weighted_alike("concat_keys", inputs, has_values);
    buffer<row_run<T, Offset>> runs(exec, keys_of_all(inputs));
    keys_one_after_the_other(inputs, has_values, runs.begin());
    return batch_of_runs(exec, "concat_keys", runs.view(), runs.size(), room);
  }

  template <class T, class Offset, class Input>
  static keyed_jagged<T, Offset> rows(host_exec const& exec, vector_view<Input> inputs, result_room room) {
    check_inputs("concat_rows", inputs);
    check_weighted_alike("concat_rows", inputs, has_values);
    auto const keys = keys_of_each(inputs);
    buffer<row_run<T, Offset>> runs(exec, keys * inputs.size());
    rows_one_after_the_other(inputs, keys, has_values, runs.begin());
    return batch_of_runs(exec, "concat_rows", runs.view(), keys, room);
  }

  template <class T, class Offset, class Input>
  static jagged<T, Offset> flat_rows(host_exec const& exec, vector_view<Input> inputs, result_room room) {
    check_inputs("concat_rows", inputs);
    buffer<row_run<T, Offset>> runs(exec, inputs.size());
    for (std::int64_t i = 0; i < inputs.size(); ++i) runs[i] = {input_view(inputs[i]), nullptr};
    auto const [rows, values] = place_runs("concat_rows", runs.view());
    check_room("concat_rows", values, room);
    auto result = jagged<T, Offset>::with_room(exec, rows, values);
    copy_runs<T, Offset>(exec, runs.view(), rows, values, result.offsets().data(), result.view().values, nullptr);
    return result;
  }

 private:
  static constexpr auto has_values = [](auto in) { return in.size() > 0; };
};

// What an element of a list of inputs holds.
template <class Input>
struct input_of;
template <class T, class Offset>
struct input_of<jagged_view<T, Offset>> {
  using value = std::remove_const_t<T>;
  using offset = Offset;
};
template <class T, class Offset>
struct input_of<keyed_jagged_view<T, Offset>> : input_of<jagged_view<T, Offset>> {};
template <class T, class Offset, class Exec>
struct input_of<keyed_jagged<T, Offset, Exec> const*> : input_of<jagged_view<T, Offset>> {};
template <class T, class Offset, class Exec>
struct input_of<keyed_jagged<T, Offset, Exec>*> : input_of<jagged_view<T, Offset>> {};

template <class List>
using element_of = std::remove_cvref_t<decltype(std::declval<List const&>()[0])>;

}  // namespace detail

template <execution Exec, class Inputs>
auto concat_keys(Exec const& exec, Inputs const& inputs, result_room room) {
  vector_view const list(inputs);
  using element = detail::element_of<decltype(list)>;
  auto result = detail::back_end<detail::concat_tag, Exec>::template keys<typename detail::input_of<element>::value,
                                                                          typename detail::input_of<element>::offset>(exec, list, room);
  if constexpr (std::is_pointer_v<element>) {
    std::vector<std::string> names;
    bool named = true;
    for (auto const* owner : list) {
      named = named && (!owner->keys().empty() || owner->view().keys == 0);
      names.insert(names.end(), owner->keys().begin(), owner->keys().end());
    }
    return std::move(result).named(named ? std::move(names) : std::vector<std::string>{});
  } else {
    return result;
  }
}

template <execution Exec, class Inputs>
auto concat_rows(Exec const& exec, Inputs const& inputs, result_room room) {
  vector_view const list(inputs);
  using element = detail::element_of<decltype(list)>;
  using value = typename detail::input_of<element>::value;
  using offset = typename detail::input_of<element>::offset;
  if constexpr (std::is_pointer_v<element>) {
    for (std::int64_t i = 1; i < list.size(); ++i)
      if (list[i]->keys() != list[0]->keys()) {
        auto const& ours = list[0]->keys();
        auto const& theirs = list[i]->keys();
        auto const [a, b] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
        throw error(errc::shape_mismatch, "concat_rows: inputs differ in keys",
                    {{"key", a == ours.end() ? "none" : *a}, {"input", i}, {"its key", b == theirs.end() ? "none" : *b}});
      }
    auto result = detail::back_end<detail::concat_tag, Exec>::template rows<value, offset>(exec, list, room);
    return std::move(result).named(list.empty() ? std::vector<std::string>{} : list[0]->keys());
  } else if constexpr (requires(element e) { e.keys; }) {
    return detail::back_end<detail::concat_tag, Exec>::template rows<value, offset>(exec, list, room);
  } else {
    return detail::back_end<detail::concat_tag, Exec>::template flat_rows<value, offset>(exec, list, room);
  }
}

template <execution Exec, class T, class Offset>
std::vector<keyed_jagged<T, Offset, Exec>> split_keys(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in,
                                                      vector_view<std::int64_t const> counts, result_room room) {
  auto const view = in.view();
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0 || counts[i] > view.keys - first)
      throw error(errc::invalid_argument, "split_keys: no such number of keys",
                  {{"part", i}, {"count", counts[i]}, {"keys left", view.keys - first}});
    first += counts[i];
  }
  if (first != view.keys)
    throw error(errc::shape_mismatch, "split_keys: counts do not sum to the number of keys", {{"sum", first}, {"keys", view.keys}});
  std::vector<keyed_jagged<T, Offset, Exec>> parts;
  first = 0;
  for (auto const count : counts) {
    keyed_jagged_view<T const, Offset> const part[] = {view.slice_keys(first, count)};
    auto const names = in.keys().begin() + (in.keys().empty() ? 0 : first);
    parts.push_back(detail::back_end<detail::concat_tag, Exec>::template keys<T, Offset>(
                        exec, vector_view<keyed_jagged_view<T const, Offset> const>(part, 1), room)
                        .named(std::vector<std::string>(names, in.keys().empty() ? names : names + count)));
    first += count;
  }
  return parts;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
