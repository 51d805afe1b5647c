// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <device_execution Exec>
struct back_end<concat_tag, Exec> {
  template <class T, class Offset, class Input>
  static keyed_jagged<T, Offset, Exec> keys(Exec const& exec, vector_view<Input> inputs, result_room room) {
    check_weighted_alike("concat_keys", inputs, has_values);
    std::vector<row_run<T, Offset>> runs(static_cast<std::size_t>(keys_of_all(inputs)));
    keys_one_after_the_other(inputs, has_values, runs.data());
    return batch_of_runs<T, Offset>(exec, "concat_keys", runs, static_cast<std::int64_t>(runs.size()), room, bound_of(inputs));
  }

  template <class T, class Offset, class Input>
  static keyed_jagged<T, Offset, Exec> rows(Exec const& exec, vector_view<Input> inputs, result_room room) {
    check_weighted_alike("concat_rows", inputs, has_values);
    auto const keys = keys_of_each(inputs);
    std::vector<row_run<T, Offset>> runs(static_cast<std::size_t>(keys * inputs.size()));
    rows_one_after_the_other(inputs, keys, has_values, runs.data());
    return batch_of_runs<T, Offset>(exec, "concat_rows", runs, keys, room, bound_of(inputs));
  }

  template <class T, class Offset, class Input>
  static jagged<T, Offset, Exec> flat_rows(Exec const& exec, vector_view<Input> inputs, result_room requested) {
    std::vector<row_run<T, Offset>> runs;
    for (auto const& input : inputs) runs.push_back({input_view(input), nullptr});
    device_runs<T, Offset, Exec> const placed(exec, "concat_rows", runs);
    auto const room = placed.room(requested, bound_of(inputs));
    auto result = jagged<T, Offset, Exec>::with_room(exec, placed.rows(), room);
    placed.copy(room, result.offsets().data(), result.view().values, nullptr);
    return result;
  }

 private:
  // As far as the host knows: where there is room.
  static constexpr auto has_values = [](auto in) { return in.rows() > 0 && in.room != 0; };

  // Values at most, or negative where an input does not say its room.
  template <class Input>
  static std::int64_t bound_of(vector_view<Input> inputs) {
    std::int64_t sum = 0;
    for (auto const& input : inputs) {
      if (input_view(input).room < 0) return -1;
      sum += input_view(input).room;
    }
    return sum;
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
