// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>

#include "../support/device_arrays.hpp"
#include "vectors_harness.hpp"

namespace tessera_tests {

/// Rows of vectors in a device's memory. Reading them waits for the device, and throws what its kernels found.
template <class Exec>
class vectors_device : public vectors_harness<vectors_device<Exec>> {
 public:
  template <class T>
  using array = tessera::buffer<T, Exec>;

  explicit vectors_device(Exec const& exec) : exec_(exec) {}

  Exec exec() const noexcept { return exec_; }
  void synchronize() const { exec_.synchronize(); }
  template <class T>
  array<T> put(std::vector<T> const& values) {
    return tessera_tests::put(exec_, values);
  }
  template <class T>
  std::vector<T> get(array<T> const& values) {
    return tessera_tests::get(exec_, values);
  }

 private:
  Exec exec_;
};

/// Whether f(harness) gives on a device, bit for bit, what it gives on the host, from the same draws.
template <class Exec, class F>
bool same_as_host(Exec const& exec, std::uint64_t seed, F const& f) {
  vectors_device<Exec> device(exec);
  vectors_host<serial_host> host;
  device.seed(seed);
  host.seed(seed);
  return bits_of(f(device)) == bits_of(f(host));
}

/// The same of what `multiply_add` computes, where the host may round twice: then within 1e-6 of the largest value.
template <class Exec, class F>
bool near_host(Exec const& exec, std::uint64_t seed, F const& f) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || !defined(__CUDACC__)
  return same_as_host(exec, seed, f);
#else
  vectors_device<Exec> device(exec);
  vectors_host<serial_host> host;
  device.seed(seed);
  host.seed(seed);
  auto const result = f(device), expected = f(host);
  return std::equal(result.begin(), result.end(), expected.begin(), expected.end(),
                    [](nested const& a, nested const& b) { return worst_difference(a, b) < 1e-6; });
#endif
}

/// Runs f(bad, rows, dense, refused) for rows of vectors (3 rows, 8 vectors of dim 2) with offsets that are wrong in one way each, beside rows
/// and a matrix (3 * 2, 2) that are right. `refused(argument, call)`: by the time that it is done, the call has thrown what is wrong with this
/// argument. Nothing of all that may be written.
template <class Exec, class F>
void for_each_invalid(vectors_device<Exec>& harness, std::string const& caller, F const& f) {
  struct invalid {
    std::vector<std::int64_t> offsets;
    char const* sentence;
    char const* name;
    char const* value;
  };
  auto const untouched = nested_of({1, 0, 3}, 2, 5.0), dense_untouched = nested_of(3, 2, 2, 5.0);
  for (auto const& u : std::vector<invalid>{{{0, 3, 2, 4}, "jagged: offsets decrease", "row", "1"},
                                            {{-1, 3, 3, 4}, "offsets reach past the values", "first offset", "-1"},
                                            {{INT64_MIN, 0, 3, 4}, "offsets reach past the values", "first offset", "-9223372036854775808"},
                                            {{0, 3, 3, 9}, "offsets reach past the values", "last offset", "9"},
                                            {{0, 3, 3, INT64_MAX}, "offsets reach past the values", "values", "8"},
                                            {{5, 6, 7, 3}, "offsets reach past the values", "last offset", "3"},
                                            {{0, INT64_MAX, INT64_MIN, 8}, "jagged: offsets decrease", "row", "1"}}) {
    CAPTURE(u.offsets);
    auto const offsets = harness.put(u.offsets);
    auto values = harness.put(std::vector<float>(16, 4.0F));
    tessera::jagged_vectors_view<float> const bad{{values.data(), 8, 2}, offsets.data(), 3};
    auto rows = harness.place(untouched, 2), dense = harness.place(dense_untouched, 2);
    bool const with_caller = u.sentence[0] != 'j';
    f(bad, rows.jagged(), dense.matrix(), [&](char const* argument, auto const& call) {
      auto const e = harness.thrown_by(call);
      CHECK(e.sentence() == (with_caller ? caller + ": " : "") + u.sentence);
      CHECK(e.value(u.name) == u.value);
      if (with_caller) CHECK(e.value("argument") == argument);
    });
    CHECK(harness.get(values) == std::vector<float>(16, 4.0F));
    CHECK(rows.values() == untouched);
    CHECK(dense.values() == dense_untouched);
  }
}

/// That rows of other lengths, though as many vectors, are refused: f(rows, others) is to throw so, for rows of dim 2.
template <class Exec, class F>
void other_lengths_are_refused(vectors_device<Exec>& harness, char const* argument, F const& f) {
  auto rows = harness.place(nested_of({2, 0, 3}, 2, 4.0), 2), others = harness.place(nested_of({2, 1, 2}, 2, 4.0), 2);
  auto const e = harness.thrown_by([&] { f(rows.jagged(), others.jagged()); });
  CHECK(std::string(e.sentence()).ends_with(": a row of another length"));
  CHECK(e.value("argument") == argument);
  CHECK(e.value("row") == "1");
  CHECK(rows.values() == nested_of({2, 0, 3}, 2, 4.0));
  CHECK(others.values() == nested_of({2, 1, 2}, 2, 4.0));
}

}  // namespace tessera_tests
