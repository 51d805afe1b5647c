// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

#include "../support/device_arrays.hpp"
#include "../support/hosts.hpp"
#include "keyed_support.hpp"

/// Suites of the operations over rows see every execution through a harness: `put` and `numbers` bring a batch or numbers to its memory,
/// `get` brings a result back, or throws what was wrong with the input. `on_host()` is a host to make batches on.
namespace tensor_tests {

struct rows_on_host {
  tessera::host_exec exec;
  static constexpr bool waits_counted = false;

  tessera::host_exec on_host() const { return exec; }
  /// The same batch, or its own where it is given away.
  template <class Batch>
  Batch put(Batch&& batch) const {
    return std::forward<Batch>(batch);
  }
  template <class T>
  std::vector<T> numbers(std::vector<T> values) const {
    return values;
  }
  template <class Result>
  Result get(Result result) const {
    return result;
  }
  template <class T>
  std::vector<T> get(std::vector<T> const& values) const {
    return values;
  }
  std::int64_t waits() const { return 0; }
};

template <class Exec>
class rows_on_device {
 public:
  Exec exec;
  static constexpr bool waits_counted = requires(Exec e) { e.device().waits; };

  explicit rows_on_device(Exec exec) : exec(exec) {}

  tessera::host_exec on_host() const { return host.exec(); }
  template <class T, class Offset>
  auto put(tessera::jagged<T, Offset> const& rows) const {
    return tessera::jagged<T, Offset, Exec>::copy_of(exec, rows);
  }
  template <class T, class Offset>
  auto put(tessera::keyed_jagged<T, Offset> const& batch) const {
    return tessera::keyed_jagged<T, Offset, Exec>::copy_of(exec, batch);
  }
  template <class T, class Offset>
  auto put(tessera::inverse_keyed_jagged<T, Offset> const& batch) const {
    return tessera::inverse_keyed_jagged<T, Offset, Exec>::copy_of(exec, batch);
  }
  template <class T>
  auto numbers(std::vector<T> const& values) const {
    return tessera_tests::put(exec, values);
  }

  template <class T>
  std::vector<T> get(tessera::buffer<T, Exec> const& values) const {
    return tessera_tests::get(exec, values);
  }
  template <class T, class Offset>
  auto get(tessera::jagged<T, Offset, Exec> const& rows) const {
    auto const view = rows.view();
    auto const offsets = offsets_of(view);
    return tessera::jagged<T, Offset>::from_offsets(host.exec(), values_of(view.values, offsets.back()), offsets);
  }
  template <class T, class Offset>
  auto get(tessera::keyed_jagged<T, Offset, Exec> const& batch) const {
    auto const view = batch.view();
    auto const offsets = offsets_of(view.flat());
    ids rows_per_key;
    for (std::int64_t key = 0; key < view.keys; ++key) rows_per_key.push_back(view.rows(key));
    auto const weights = view.weighted() ? values_of(view.weights, offsets.back()) : floats{};
    return tessera::keyed_jagged<T, Offset>::from_offsets(host.exec(), batch.keys(), values_of(view.values, offsets.back()), offsets,
                                                          rows_per_key, weights);
  }
  std::int64_t waits() const {
    if constexpr (waits_counted)
      return exec.device().waits;
    else
      return 0;
  }

 private:
  template <class T, class Offset>
  std::vector<Offset> offsets_of(tessera::jagged_view<T, Offset> view) const {
    exec.synchronize();
    if (view.offsets == nullptr) return {0};
    return tessera_tests::get(exec, tessera::vector_view<Offset const>(view.offsets, view.rows + 1));
  }
  template <class T, class Offset>
  std::vector<std::remove_const_t<T>> values_of(T* values, Offset count) const {
    return tessera_tests::get(exec, tessera::vector_view<T const>(values, static_cast<std::int64_t>(count)));
  }

  mutable tessera_tests::serial_host host;
};

/// A batch, or rows of one feature, in the harness's memory.
template <class T = std::int64_t, class Harness>
auto batch_in(Harness const& harness, std::vector<tessera::feature_rows<T>> const& keys) {
  return harness.put(tessera::keyed_jagged<T>::from_rows(harness.on_host(), keys));
}
template <class T = std::int64_t, class Offset = std::int64_t, class Harness>
auto rows_in(Harness const& harness, std::vector<std::vector<T>> const& rows) {
  return harness.put(tessera::jagged<T, Offset>::from_rows(harness.on_host(), rows));
}
template <class Harness>
auto named_batch_in(Harness const& harness) {
  return harness.put(named_batch(harness.on_host()));
}

/// How often the host waits for a device while f() runs; `expected` where nobody counts.
template <class Harness, class F>
std::int64_t waits_of(Harness const& harness, std::int64_t expected, F const& f) {
  auto const before = harness.waits();
  f();
  return Harness::waits_counted ? harness.waits() - before : expected;
}

/// The same view without word of its room.
template <class View>
View without_room(View view) {
  view.room = -1;
  return view;
}

/// What f throws at once, or when its result comes back.
template <class Harness, class F>
tessera::error refusal(Harness const& harness, F const& f) {
  return error_of([&] { harness.get(f()); });
}
/// The same as text.
template <class Harness, class F>
std::string refusal_of(Harness const& harness, F const& f) {
  return refusal(harness, f).what();
}

/// That `make(room)`, a batch or rows of so many values, is refused where it is given room for fewer, and made where there is room for all.
template <class Harness, class Make>
void check_room(Harness const& harness, std::string const& call, std::int64_t values, Make const& make) {
  for (auto const room : {std::int64_t{0}, values / 2, values - 1})
    CHECK(refusal_of(harness, [&] { return make(tessera::result_room{room}); }) ==
          call + ": more values than the result was given room for (values " + std::to_string(values) + ", room " + std::to_string(room) +
              ")");
  for (auto const room : {values, values + 500}) CHECK(harness.get(make(tessera::result_room{room})).view().size() == values);
}

/// That `make(rows)` is refused where the result has the row twice that is as long as half of what its offsets count.
template <class Harness, class Make>
void check_outgrown(Harness const& harness, Make const& make) {
  auto const offsets = harness.numbers(std::vector<std::int32_t>{0, 1 << 30});
  auto const values = harness.numbers(floats{0});
  tessera::jagged_view<float const, std::int32_t> const rows{values.data(), offsets.data(), 1};
  CHECK(refusal_of(harness, [&] { return make(rows); }) ==
        "lengths_to_offsets: the sum does not fit into an offset (row 1, length 1073741824, largest offset 2147483647)");
}

/// Calls f(view, host's view, model, random) for batches of every kind, as a whole and as some keys of a larger batch, with wide and narrow
/// offsets.
template <class Harness, class F>
void for_each_batch_of(Harness const& harness, F const& f) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const check_content = [&]<class Offset>(Offset, model const& content, bool weighted, bool part) {
    CAPTURE(weighted);
    CAPTURE(part);
    auto around = content;
    if (part) {
      around.insert(around.begin(), {random_row(random, 3, weighted), random_row(random, 0, weighted)});
      around.insert(around.begin(), model_rows{});
      around.push_back({random_row(random, 5, weighted)});
    }
    auto const given = batch_of<Offset>(harness.on_host(), around);
    auto const& batch = harness.put(given);
    auto const keys = static_cast<std::int64_t>(content.size());
    f(part ? batch.view().slice_keys(2, keys) : batch.view(), part ? given.view().slice_keys(2, keys) : given.view(), content, random);
  };
  for (bool const weighted : {false, true})
    for (bool const part : {false, true}) {
      for (auto const& size : {std::pair<std::size_t, std::size_t>{0, 0}, {1, 5}, {2, 0}, {7, 20}}) {
        CAPTURE(size.first);
        CAPTURE(size.second);
        auto const content = random_model(random, size.first, size.second, weighted);
        if (!tessera_tests::under_sanitizer || part) check_content(std::int64_t{}, content, weighted, part);
        if (!tessera_tests::under_sanitizer || !part) check_content(std::int32_t{}, content, weighted, part);
      }
      // One row as long as many tiles beside rows of one value, and many empty ones in a row.
      model skewed{{random_row(random, 1, weighted), random_row(random, 9001, weighted)}, {}, model_rows(3000)};
      for (int i = 0; i < 1500; ++i) skewed[1].push_back(random_row(random, 1, weighted));
      skewed[2].push_back(random_row(random, 3, weighted));
      check_content(std::int32_t{}, skewed, weighted, part);
    }
  check_content(std::int64_t{}, random_model(random, 5, tessera_tests::fewer(std::size_t{20000}), true), true, true);
}

/// `apply(view) -> jagged | keyed_jagged` moves three-byte values as it moves ids. The views of one batch.
template <class Harness, class View, class HostView, class Apply>
void check_bytes(Harness const& harness, View view, HostView host_view, Apply const& apply) {
  std::vector<three_bytes> values;
  for (auto const id : tessera::vector_view<std::int64_t const>(host_view.values, host_view.first_value() + host_view.size()))
    values.push_back(bytes_of(id));
  auto const placed = harness.numbers(values);
  auto const moved = harness.get(apply(view));
  auto const bytes = harness.get(apply(view.with_values(placed.data())));
  REQUIRE(moved.view().size() == bytes.view().size());
  bool same = true;
  for (std::int64_t i = 0; i < moved.view().size(); ++i) same = same && bytes.view().values[i] == bytes_of(moved.view().values[i]);
  CHECK(same);
}

}  // namespace tensor_tests
