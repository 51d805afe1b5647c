// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/id_steps.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/transform_ids.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Prepares a batch's ids for lookup by steps in order, of KJT and IKJT alike. A pipeline is built once, for keys of these names.
///
/// `id_pipeline(exec, keys, steps...)`. These are steps:
/// - a transform with its options: `hash_ids`, `modulo_ids`, `clip_ids`, `bin_ids`, `map_ids`, or any `id_transform`;
/// - a function of ids, `f(id)` or `f(key, id)`, of the host or, on a device, plain data. A lambda says the type of its key; one of two
///   `auto` is taken for an operation on rows;
/// - an operation on rows: `truncate_ids`, or any `step(exec, keyed_jagged_view) -> keyed_jagged` that keeps keys and rows;
/// - one of the above for some keys: `on_keys({"user", "item"}, step)`, `except_keys({"user"}, step)`.
///
///     id_pipeline const prepare(exec, batch.keys(),
///                               on_keys({"history"}, truncate_ids{.most = 50}),
///                               except_keys({"age"}, hash_ids{.size = 1'000'000}),
///                               on_keys({"age"}, bin_ids{.boundaries = {18, 35, 60}}));
///     auto const prepared = prepare(exec, batch);
///
/// `pipeline(exec, batch)` takes a KJT or an IKJT, a view or an owner, and returns the same kind, of `exec`'s memory, with an owner's
/// names. Functions write in place; neighbouring steps of functions share one pass. An owner that is given away (`std::move`) is copied for
/// operations on rows alone.
///
/// Of an IKJT all steps see the distinct rows alone, so each distinct id costs once. Distinct rows that become equal stay apart. The batch
/// then means the same, less compactly; `deduplicate` of what `expand` makes of it joins such rows.
///
/// Calls on several threads are safe where the steps are. On a device a call waits as `transform_ids` and the operations on rows do.
/// @throws what steps throw. tessera::error invalid_argument naming a key that is unknown or comes twice. shape_mismatch for a batch of
/// other keys or for groups that do not fit.
template <execution Exec, class... Steps>
class id_pipeline {
 public:
  /// Places what the steps read in `exec`'s memory, for keys of these names.
  id_pipeline(Exec const& exec, std::vector<std::string> keys, Steps... steps)
      : keys_(std::move(keys)), steps_{placed<Steps>(exec, std::move(steps))...} {}

  /// The names of the keys that batches must have, in order.
  std::vector<std::string> const& keys() const noexcept { return keys_; }

  template <class T, class Offset>
  keyed_jagged<std::remove_const_t<T>, Offset, Exec> operator()(Exec const& exec, keyed_jagged_view<T, Offset> batch) const {
    check(batch.keys, {});
    return of_view(exec, keyed_jagged_view<std::remove_const_t<T> const, Offset>(batch));
  }
  template <class T, class Offset>
  keyed_jagged<T, Offset, Exec> operator()(Exec const& exec, keyed_jagged<T, Offset, Exec> const& batch) const {
    check(batch.view().keys, batch.keys());
    return of_view(exec, batch.view()).named(batch.keys());
  }
  template <class T, class Offset>
  keyed_jagged<T, Offset, Exec> operator()(Exec const& exec, keyed_jagged<T, Offset, Exec>&& batch) const {
    check(batch.view().keys, batch.keys());
    auto names = batch.keys();
    return of_owner<0>(exec, std::move(batch)).named(std::move(names));
  }

  template <class T, class Offset>
  inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> operator()(Exec const& exec,
                                                                        inverse_keyed_jagged_view<T, Offset> batch) const {
    check(batch.keys(), {});
    detail::check_groups("id_pipeline", batch);
    std::vector<std::int64_t> keys_per_group;
    for (auto const& group : batch.groups) keys_per_group.push_back(group.keys);
    buffer<std::int64_t, Exec> inverses(exec, batch.groups.size() * batch.samples);
    for (std::int64_t g = 0; g < batch.groups.size() && batch.samples > 0; ++g)
      detail::copy_numbers(exec, batch.groups[g].inverse, batch.samples, inverses.data() + g * batch.samples);
    return inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec>::from_parts(
        of_view(exec, keyed_jagged_view<std::remove_const_t<T> const, Offset>(batch.distinct)), keys_per_group, std::move(inverses),
        batch.samples);
  }
  template <class T, class Offset>
  inverse_keyed_jagged<T, Offset, Exec> operator()(Exec const& exec, inverse_keyed_jagged<T, Offset, Exec> const& batch) const {
    check(batch.view().keys(), batch.keys());
    return (*this)(exec, batch.view()).named(batch.keys());
  }
  template <class T, class Offset>
  inverse_keyed_jagged<T, Offset, Exec> operator()(Exec const& exec, inverse_keyed_jagged<T, Offset, Exec>&& batch) const {
    if constexpr ((detail::placed_step<Exec, Steps>::of_rows || ...)) {
      return (*this)(exec, std::as_const(batch));
    } else {
      check(batch.view().keys(), batch.keys());
      if constexpr (sizeof...(Steps) > 0) apply<0, sizeof...(Steps)>(exec, batch.view().distinct);
      return std::move(batch);
    }
  }

 private:
  template <std::size_t I>
  static constexpr bool of_rows = std::tuple_element_t<I, std::tuple<detail::placed_step<Exec, Steps>...>>::of_rows;

  // Past the last step from I on that is of functions.
  template <std::size_t I>
  static constexpr std::size_t functions_end() {
    if constexpr (I < sizeof...(Steps)) {
      if constexpr (!of_rows<I>) return functions_end<I + 1>();
    }
    return I;
  }

  template <class Step>
  detail::placed_step<Exec, Step> placed(Exec const& exec, Step step) const {
    return {exec, keys_, detail::step_keys::of(keys_, step), detail::bare_step<Step>::of(step)};
  }

  void check(std::int64_t keys, std::vector<std::string> const& names) const {
    if (keys != static_cast<std::int64_t>(keys_.size()))
      throw error(errc::shape_mismatch, "id_pipeline: a batch of other keys", {{"keys", keys}, {"keys of the pipeline", keys_.size()}});
    for (std::size_t key = 0; key < names.size(); ++key)
      if (names[key] != keys_[key])
        throw error(errc::shape_mismatch, "id_pipeline: a batch of other keys", {{"key", names[key]}, {"key of the pipeline", keys_[key]}});
  }

  template <class T, class Offset>
  keyed_jagged<T, Offset, Exec> of_view(Exec const& exec, keyed_jagged_view<T const, Offset> batch) const {
    constexpr bool rows_first = functions_end<0>() == 0 && sizeof...(Steps) > 0;
    if constexpr (rows_first)
      return of_owner<1>(exec, std::get<0>(steps_)(exec, batch));
    else
      return of_owner<0>(exec, concat_keys(exec, std::vector{batch}));
  }

  template <std::size_t I, class T, class Offset>
  keyed_jagged<T, Offset, Exec> of_owner(Exec const& exec, keyed_jagged<T, Offset, Exec> batch) const {
    constexpr auto end = functions_end<I>();
    if constexpr (I == sizeof...(Steps)) {
      return batch;
    } else if constexpr (end > I) {
      apply<I, end>(exec, batch.view());
      return of_owner<end>(exec, std::move(batch));
    } else {
      return of_owner<I + 1>(exec, std::get<I>(steps_)(exec, std::as_const(batch).view()));
    }
  }

  template <std::size_t First, std::size_t Last, class T, class Offset>
  void apply(Exec const& exec, keyed_jagged_view<T, Offset> batch) const {
    static_assert(std::is_integral_v<T>, "id_pipeline: ids are integers");
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      detail::back_end<detail::transform_ids_tag, Exec>::run(exec, batch, detail::chain_of(std::get<First + I>(steps_).link()...));
    }
    (std::make_index_sequence<Last - First>());
  }

  std::vector<std::string> keys_;
  std::tuple<detail::placed_step<Exec, Steps>...> steps_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
