// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "device_arrays.hpp"
#include "pooled_problem.hpp"

/// The same tables, batches and matrices on the host and on a device, and whether they hold the same bits.
namespace embed_tests {

template <class Exec>
using device_batch = tessera::keyed_jagged<std::int64_t, std::int64_t, Exec>;

template <class Element, class Exec, class Optimizer>
std::vector<tessera::dense_table<Element, Exec>> make_device_tables(Exec const& exec, std::vector<tessera::table_options> const& options,
                                                                    Optimizer const& optimizer) {
  std::vector<tessera::dense_table<Element, Exec>> tables;
  for (auto const& o : options) tables.emplace_back(exec, o, optimizer);
  return tables;
}

template <class T, class Exec>
std::vector<T> all_of(Exec const& exec, tessera::matrix_view<T const> matrix) {
  return tessera_tests::get(exec, tessera::vector_view<T const>(matrix.data(), matrix.rows() * matrix.columns()));
}

/// A table's rows, with their scales in front and what fills them up.
template <class Element>
tessera::vector_view<Element const> memory_of(tessera::matrix_view<Element const> weights) {
  if (weights.rows() == 0) return {};
  return {weights.data() - tessera::row_scale<Element>::lead, weights.rows() * weights.stride()};
}
/// Whether such rows of a table are the same but for what fills them up.
template <class Element>
bool same_rows(Element const* a, Element const* b, tessera::matrix_view<Element const> shape) {
  for (std::int64_t r = 0; r < shape.rows(); ++r, a += shape.stride(), b += shape.stride())
    if (!same_bits(a, b, tessera::row_scale<Element>::lead + shape.columns())) return false;
  return true;
}

/// Weights, with their scales, and states of all tables are the same bits.
template <class Element, class Exec>
bool same_tables(Exec const& exec, std::vector<tessera::dense_table<Element>> const& host,
                 std::vector<tessera::dense_table<Element, Exec>> const& device) {
  for (std::size_t t = 0; t < host.size(); ++t) {
    auto const weights = tessera_tests::get(exec, memory_of<Element>(device[t].weights()));
    auto const states = all_of(exec, device[t].states());
    if (!same_rows(weights.data(), memory_of<Element>(host[t].weights()).data(), host[t].weights())) return false;
    if (!same_bits(states.data(), host[t].states().data(), static_cast<std::int64_t>(states.size()))) return false;
    if (host[t].steps() != device[t].steps()) return false;
  }
  return true;
}

template <class Exec>
void check_same_gradients(Exec const& exec, tessera::basic_row_gradients<Exec> const& device, tessera::row_gradients const& host) {
  REQUIRE(device.tables() == host.tables());
  for (std::int64_t t = 0; t < host.tables(); ++t) {
    REQUIRE(device.rows(t) == host.rows(t));
    auto const slots = host.slots(t), ids = host.ids(t);
    CHECK(tessera_tests::get(exec, device.slots(t)) == std::vector<std::int64_t>(slots.begin(), slots.end()));
    CHECK(tessera_tests::get(exec, device.ids(t)) == std::vector<std::int64_t>(ids.begin(), ids.end()));
    auto const values = all_of(exec, device.values(t));
    CHECK(same_bits(values.data(), host.values(t).data(), static_cast<std::int64_t>(values.size())));
  }
}

/// Matrices on a device with a gap behind each row, watched; without one, rows begin on 16 bytes where their dims allow.
template <class Exec>
class device_matrices {
 public:
  device_matrices(Exec const& exec, std::vector<tessera::matrix_view<float>> const& like, std::int64_t gap) : exec_(exec), gap_(gap) {
    for (auto const& m : like) {
      std::vector<float> values(static_cast<std::size_t>(m.rows() * (m.columns() + gap) + gap), pooled_matrices::canary);
      for (std::int64_t r = 0; r < m.rows(); ++r)
        for (std::int64_t c = 0; c < m.columns(); ++c) values[static_cast<std::size_t>(gap + r * (m.columns() + gap) + c)] = m(r, c);
      storage_.push_back(tessera_tests::put(exec, values));
      out_.push_back({storage_.back().data() + gap, m.rows(), m.columns(), m.columns() + gap});
      in_.push_back(out_.back());
    }
  }

  std::vector<tessera::matrix_view<float>> const& out() const { return out_; }
  std::vector<tessera::matrix_view<float const>> const& in() const { return in_; }

  /// All rows, one after the other; fails the test where a gap has been written.
  std::vector<float> values() const {
    std::vector<float> all;
    std::int64_t touched = 0;
    for (std::size_t k = 0; k < out_.size(); ++k) {
      auto const stored = tessera_tests::get(exec_, storage_[k]);
      auto const& m = out_[k];
      for (std::size_t i = 0; i < stored.size(); ++i) {
        auto const at = static_cast<std::int64_t>(i) - gap_;
        if (at >= 0 && at % m.stride() < m.columns() && at / m.stride() < m.rows())
          all.push_back(stored[i]);
        else
          touched += stored[i] != pooled_matrices::canary;
      }
    }
    CHECK(touched == 0);
    return all;
  }

 private:
  Exec exec_;
  std::int64_t gap_;
  std::vector<tessera::buffer<float, Exec>> storage_;
  std::vector<tessera::matrix_view<float>> out_;
  std::vector<tessera::matrix_view<float const>> in_;
};

}  // namespace embed_tests
