// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Operations on jagged rows on a GPU. `permute`, `select_rows`: 100 keys of 65,536 samples of 0 to 40 ids; `index_select`, `to_padded`,
// `from_padded`: 163,840 rows of 0 to 40 vectors of 64 floats, to and from 20 vectors a row. Time at the ceiling: what must be read and what is
// written, at the rate of a copy.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/tensor/padded_vectors.cuh>
#include <tessera/tensor/permute_keys.cuh>
#include <tessera/tensor/select_rows.cuh>
#include <tessera/tensor/select_vectors.cuh>

#include "../cuda_bench.cuh"
#include "../cuda_ceiling.cuh"
#include "../inputs.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t longest = 40;  // lengths are uniform in 0 … longest
constexpr std::int64_t keys = 100, samples = 65'536, vector_rows = 163'840, dim = 64, width = 20, inputs = 2;

// Offsets of rows, on both sides, and which rows are selected.
struct row_shapes {
  row_shapes(gpu& on, std::int64_t rows, std::uint64_t seed) {
    draws draw(seed);
    offsets.push_back(0);
    for (std::int64_t r = 0; r < rows; ++r) offsets.push_back(offsets.back() + draw.below(longest + 1));
    std::vector<std::int64_t> indices, cut{0};
    for (std::int64_t r = 0; r < rows; ++r) {
      auto const index = static_cast<std::size_t>(draw.below(rows));
      indices.push_back(static_cast<std::int64_t>(index));
      selected += offsets[index + 1] - offsets[index];
      auto const row = static_cast<std::size_t>(r);
      cut.push_back(cut.back() + std::min(width, offsets[row + 1] - offsets[row]));
    }
    kept = cut.back();
    offsets_there = tessera::to_device(on.lasting, offsets);
    indices_there = tessera::to_device(on.lasting, indices);
    cut_there = tessera::to_device(on.lasting, cut);
  }
  std::int64_t rows() const { return indices_there.size(); }
  std::int64_t size() const { return offsets.back(); }

  std::vector<std::int64_t> offsets;
  gpu_buffer<std::int64_t> offsets_there, indices_there, cut_there;
  std::int64_t selected = 0, kept = 0;  // values in the rows that are selected, and in rows cut to the width
};

template <class T>
struct jagged_inputs {
  jagged_inputs(gpu& on, std::int64_t rows, std::int64_t values_each) {
    for (std::uint64_t b = 0; b < inputs; ++b) {
      shapes.emplace_back(on, rows, b);
      values.push_back(drawn<T>(on, shapes.back().size() * values_each, std::int64_t{1} << 40, b));
    }
  }
  static std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i % inputs); }
  /// A mean over the inputs, of values of so many bytes and of offsets or indices.
  template <class Values>
  double bytes(Values const& of_shape, std::int64_t value_bytes, std::int64_t numbers_a_row) const {
    double sum = 0;
    for (auto const& shape : shapes) sum += static_cast<double>(of_shape(shape) * value_bytes + 8 * numbers_a_row * shape.rows());
    return sum / static_cast<double>(inputs);
  }

  std::vector<row_shapes> shapes;
  std::vector<gpu_buffer<T>> values;
};

cuda_report at_copy_rate(gpu& on, double bytes, call_seconds seconds) {
  auto const copy = gpu_ceilings(on).copy_rate();
  return {seconds, bytes, bytes / copy, copy, {}};
}

cuda_report permute(gpu& on) {
  auto const each = sized(samples);
  jagged_inputs<std::int64_t> const in(on, keys * each, 1);
  std::vector<std::int64_t> first_row, order;
  for (std::int64_t k = 0; k <= keys; ++k) first_row.push_back(k * each);
  for (std::int64_t k = 0; k < keys; ++k) order.push_back(k);
  draws draw(7);
  for (auto k = keys - 1; k > 0; --k) std::swap(order[static_cast<std::size_t>(k)], order[static_cast<std::size_t>(draw.below(k + 1))]);
  auto const seconds = on.measure([&](std::int64_t i) {
    auto const& shape = in.shapes[in.place(i)];
    tessera::keyed_jagged_view<std::int64_t const> const batch{
        in.values[in.place(i)].data(), nullptr, shape.offsets_there.data(), first_row.data(), keys, shape.size()};
    (void)tessera::permute_keys(on.exec, batch, order);
  });
  return at_copy_rate(on, in.bytes([](auto const& shape) { return shape.size(); }, 2 * 8, 2), seconds);
}

cuda_report select_rows(gpu& on) {
  jagged_inputs<std::int64_t> const in(on, keys * sized(samples), 1);
  auto const seconds = on.measure([&](std::int64_t i) {
    auto const& shape = in.shapes[in.place(i)];
    tessera::jagged_view<std::int64_t const> const rows{in.values[in.place(i)].data(), shape.offsets_there.data(), shape.rows(),
                                                        shape.size()};
    (void)tessera::select_rows(on.exec, rows, shape.indices_there.view(), {.most_values = shape.selected});
  });
  return at_copy_rate(on, in.bytes([](auto const& shape) { return shape.selected; }, 2 * 8, 4), seconds);
}

tessera::jagged_vectors_view<float const> vectors_of(jagged_inputs<float> const& in, std::int64_t i) {
  auto const& shape = in.shapes[in.place(i)];
  return {{in.values[in.place(i)].data(), shape.size(), dim}, shape.offsets_there.data(), shape.rows()};
}

cuda_report index_select(gpu& on) {
  jagged_inputs<float> const in(on, sized(vector_rows), dim);
  std::int64_t most = 0;
  for (auto const& shape : in.shapes) most = std::max(most, shape.selected);
  gpu_buffer<float> out(on.lasting, most * dim);
  gpu_buffer<std::int64_t> offsets(on.lasting, sized(vector_rows) + 1);
  auto const seconds = on.measure([&](std::int64_t i) {
    auto const& shape = in.shapes[in.place(i)];
    tessera::select_vectors_offsets(on.exec, vectors_of(in, i), shape.indices_there.view(), offsets.view());
    tessera::select_vectors(on.exec, vectors_of(in, i), shape.indices_there.view(),
                            tessera::jagged_vectors_view<float>{{out.data(), shape.selected, dim}, offsets.data(), shape.rows()});
  });
  return at_copy_rate(on, in.bytes([](auto const& shape) { return shape.selected; }, 2 * 4 * dim, 4), seconds);
}

cuda_report to_padded(gpu& on) {
  jagged_inputs<float> const in(on, sized(vector_rows), dim);
  auto const places = sized(vector_rows) * width;
  gpu_buffer<float> out(on.lasting, places * dim);
  auto const seconds = on.measure([&](std::int64_t i) {
    tessera::to_padded_vectors(on.exec, vectors_of(in, i), tessera::matrix_view<float>{out.data(), places, dim});
  });
  return at_copy_rate(on, in.bytes([places](auto const& shape) { return shape.kept + places; }, 4 * dim, 1), seconds);
}

cuda_report from_padded(gpu& on) {
  jagged_inputs<float> const in(on, sized(vector_rows), dim);  // for the lengths
  auto const places = sized(vector_rows) * width;
  std::vector<gpu_buffer<float>> padded;
  for (std::uint64_t b = 0; b < inputs; ++b) padded.push_back(drawn<float>(on, places * dim, 0, b));
  gpu_buffer<float> out(on.lasting, places * dim);
  auto const seconds = on.measure([&](std::int64_t i) {
    auto const& shape = in.shapes[in.place(i)];
    tessera::from_padded_vectors(on.exec, tessera::matrix_view<float const>{padded[in.place(i)].data(), places, dim},
                                 tessera::jagged_vectors_view<float>{{out.data(), shape.kept, dim}, shape.cut_there.data(), shape.rows()});
  });
  return at_copy_rate(on, in.bytes([](auto const& shape) { return shape.kept; }, 2 * 4 * dim, 1), seconds);
}

}  // namespace

int main(int argc, char** argv) {
  cuda_program program(argc, argv);
  program.add("permute", permute);
  program.add("select_rows", select_rows);
  program.add("index_select", index_select);
  program.add("to_padded", to_padded);
  program.add("from_padded", from_padded);
  return program.run();
}
