// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

/// What the back ends for devices of the primitives over rows of vectors share. They check their rows alike, and cut vectors into packs of
/// columns, one a thread at a time.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind offsets_past_values{
    errc::out_of_range, "offsets reach past the values", {"first offset", "last offset", "values"}};
inline constexpr fault_kind offsets_decrease{errc::invalid_argument, "jagged: offsets decrease", {"row", "offset", "next offset"}};
inline constexpr fault_kind no_such_row{errc::out_of_range, "no such row", {"position", "index", "rows"}};
inline constexpr fault_kind other_rows{
    errc::shape_mismatch, "an argument of other rows", {"rows", "rows expected", "values", "values expected", "dim", "dim expected"}};
inline constexpr fault_kind other_length{errc::shape_mismatch, "a row of another length", {"row", "length", "length expected"}};

// One argument's rows: valid in themselves, and, where `same`, those of the first argument.
template <class Offset>
struct checked_rows {
  Offset const* offsets;
  std::int64_t rows, values, dim, dim_expected;
  bool same;
  fault_reporter past, decrease, other, length;

  // Offsets may be anything yet, so differences may come round.
  TESSERA_HOST_DEVICE static std::int64_t difference(Offset from, Offset to) noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from));
  }
  TESSERA_HOST_DEVICE std::int64_t length_of(std::int64_t row) const noexcept { return difference(offsets[row], offsets[row + 1]); }
  TESSERA_HOST_DEVICE std::int64_t size() const noexcept { return difference(offsets[0], offsets[rows]); }

  /// Whether row `row` is as it should be.
  template <class Block>
  TESSERA_DEVICE bool check(Block& block, std::int64_t row, checked_rows const& first) const {
    bool valid = true;
    if (row == 0 && (offsets[0] < 0 || offsets[rows] < offsets[0] || static_cast<std::int64_t>(offsets[rows]) > values)) {
      past(block, 0, offsets[0], offsets[rows], values);
      valid = false;
    }
    if (offsets[row + 1] < offsets[row]) {
      decrease(block, row, row, offsets[row], offsets[row + 1]);
      valid = false;
    }
    if (!same) return valid;
    if (row == 0 && size() != first.size()) {
      other(block, 0, rows, first.rows, size(), first.size(), dim, dim_expected);
      valid = false;
    }
    if (length_of(row) != first.length_of(row)) {
      length(block, row, row, length_of(row), first.length_of(row));
      valid = false;
    }
    return valid;
  }
};

// Reads two offsets a row and argument: 16 bytes where a vector of one column has 4.
template <class Offset>
struct check_rows_kernel {
  static constexpr int threads = 256;
  static constexpr int most_arguments = 5;
  checked_rows<Offset> arguments[most_arguments];
  int count;
  std::int64_t rows;  // most of an argument
  std::uint32_t* invalid;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for_each_unit(block, rows, threads, block.thread(), [&](std::int64_t row) {
      for (int a = 0; a < count; ++a)
        if (row < arguments[a].rows && !arguments[a].check(block, row, arguments[0])) block.store(invalid, std::uint32_t{1});
    });
  }
};

/// One launch checks all arguments of a call. What it finds is known when the execution synchronises; nothing else is done then.
template <device_execution Exec, class Offset>
class rows_check<Exec, Offset> {
 public:
  rows_check(Exec const& exec, char const* call) : exec_(exec), call_(call), invalid_(exec, 1) {}

  template <class T>
  void valid(char const* which, jagged_vectors_view<T, Offset> view) {
    add(which, view, view.dim(), false);
  }
  template <class T, class U>
  void same(char const* which, jagged_vectors_view<T, Offset> first, jagged_vectors_view<U, Offset> other, bool dim_too = true) {
    check_vectors_shape(call_, which, other);
    auto const dim = dim_too ? first.dim() : other.dim();
    if (other.rows != first.rows || other.dim() != dim)
      throw error(errc::shape_mismatch, std::string(call_) + ": an argument of other rows",
                  {{"argument", which}, {"rows", other.rows}, {"rows expected", first.rows}, {"dim", other.dim()}, {"dim expected", dim}});
    add(which, other, dim, true);
  }

  /// A word of the device, not 0 once an argument is known to be invalid: kernels then leave everything as it is. To be asked for when all
  /// arguments are named.
  std::uint32_t* verdict() {
    if (launched_) return invalid_.data();
    launched_ = true;
    kernel_.invalid = invalid_.data();
    exec_.fill(invalid_.data(), 0, sizeof(std::uint32_t));
    if (kernel_.rows > 0) exec_.launch({.blocks = blocks_for(kernel_.rows, kernel_.threads)}, kernel_);
    return invalid_.data();
  }

 private:
  template <class T>
  void add(char const* which, jagged_vectors_view<T, Offset> view, std::int64_t dim, bool same) {
    check_vectors_shape(call_, which, view);
    kernel_.arguments[kernel_.count++] = {view.offsets,
                                          view.rows,
                                          view.values.rows(),
                                          view.dim(),
                                          dim,
                                          same,
                                          exec_.faults(offsets_past_values).of(call_, which),
                                          exec_.faults(offsets_decrease),
                                          exec_.faults(other_rows).of(call_, which),
                                          exec_.faults(other_length).of(call_, which)};
    kernel_.rows = std::max(kernel_.rows, view.rows);
  }

  Exec exec_;
  char const* call_;
  buffer<std::uint32_t, Exec> invalid_;
  check_rows_kernel<Offset> kernel_{};
  bool launched_ = false;
};

/// The rows of vectors numbered as in a jagged result.
template <class Offset>
struct rows_by_offsets {
  Offset const* offsets;
  std::int64_t rows;

  TESSERA_HOST_DEVICE constexpr std::int64_t first() const noexcept { return offsets[0]; }
  TESSERA_HOST_DEVICE constexpr std::int64_t last() const noexcept { return offsets[rows]; }
  /// The row of a vector; `before`: one that begins at the vector or before it, and is near, or -1.
  TESSERA_HOST_DEVICE constexpr std::int64_t row_of(std::int64_t vector, std::int64_t before) const noexcept {
    if (before < 0) return range_of(offsets, rows, vector);
    std::int64_t step = 1;
    while (step < rows - before && static_cast<std::int64_t>(offsets[before + step]) <= vector) {
      before += step;
      step *= 2;
    }
    return before + range_of(offsets + before, step < rows - before ? step : rows - before, vector);
  }
  TESSERA_HOST_DEVICE constexpr std::int64_t begin_of(std::int64_t row) const noexcept { return offsets[row]; }
};

/// Those of a padded matrix.
struct rows_by_width {
  std::int64_t width;
  std::int64_t rows;

  TESSERA_HOST_DEVICE constexpr std::int64_t first() const noexcept { return 0; }
  TESSERA_HOST_DEVICE constexpr std::int64_t last() const noexcept { return rows * width; }
  TESSERA_HOST_DEVICE constexpr std::int64_t row_of(std::int64_t vector, std::int64_t) const noexcept { return vector / width; }
  TESSERA_HOST_DEVICE constexpr std::int64_t begin_of(std::int64_t row) const noexcept { return row * width; }
};

/// A matrix as rows of one vector each.
template <class T>
struct vector_a_row {
  matrix_view<T> values;
  std::int64_t rows;

  explicit vector_a_row(matrix_view<T> matrix) noexcept : values(matrix), rows(matrix.rows()) {}
  TESSERA_HOST_DEVICE constexpr std::int64_t first() const noexcept { return 0; }
  TESSERA_HOST_DEVICE constexpr std::int64_t last() const noexcept { return rows; }
  TESSERA_HOST_DEVICE constexpr std::int64_t row_of(std::int64_t vector, std::int64_t) const noexcept { return vector; }
  TESSERA_HOST_DEVICE constexpr std::int64_t begin_of(std::int64_t row) const noexcept { return row; }
};

/// A pack of columns of one vector.
struct pack_place {
  std::int64_t row;
  std::int64_t in_row;  // of the vector
  std::int64_t vector;
  std::int64_t pack;
};

/// Where number i of the packs of all vectors is.
template <class Rows>
TESSERA_HOST_DEVICE constexpr pack_place place_of_pack(Rows const& rows, std::int64_t packs, std::int64_t i,
                                                       std::int64_t row_before) noexcept {
  auto const vector = rows.first() + i / packs;
  auto const row = rows.row_of(vector, row_before);
  return {row, vector - rows.begin_of(row), vector, i % packs};
}

// Neighbouring threads have neighbouring packs, whatever the dim and the rows: no lane is idle, a long row keeps no block longer than
// others, and memory is read and written in order. A thread searches all rows for its first pack's alone, and from there on for the
// others'. Its reads stand together without a branch between them, so that they are on their way at once, and what they read before
// likewise.
template <int AtOnce, class Rows, class F>
struct vector_packs_kernel {
  static constexpr int threads = 256;
  static constexpr int at_once = AtOnce;
  static constexpr int rounds = 2;
  static constexpr std::int64_t packs_a_block = threads * at_once * rounds;
  Rows rows;
  std::int64_t packs;  // a vector
  std::uint32_t const* invalid;
  F f;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    if (invalid != nullptr && *invalid != 0) return;
    auto const n = (rows.last() - rows.first()) * packs;
    for_each_unit(block, n, packs_a_block, block.thread(), [&](std::int64_t i) {
      std::int64_t row = -1;
      for (int round = 0; round < rounds && i < n; ++round, i += threads * at_once) row = move(i, n, row);
    });
  }

  // Packs i, i + threads, … as far as they are there: past the end a thread reads its last one again.
  TESSERA_DEVICE std::int64_t move(std::int64_t i, std::int64_t n, std::int64_t row) const {
    pack_place places[std::size_t{AtOnce}];
    typename F::pack_type read[std::size_t{AtOnce}];
    for (int k = 0; k < at_once; ++k) {
      if (k == 0 || i + k * threads < n)
        places[k] = place_of_pack(rows, packs, i + k * threads, row);
      else
        places[k] = places[k - 1];
      row = places[k].row;
    }
    for (int k = 0; k < at_once; ++k) read[k] = f.read(places[k]);
    for (int k = 0; k < at_once; ++k)
      if (i + k * threads < n) f.write(places[k], read[k]);
    return row;
  }
};

/// Blocks for vectors of which at most so many packs are there; how many are, only the device knows. Few enough that those without work
/// cost nothing to speak of.
constexpr std::int64_t blocks_for_packs(std::int64_t vectors, std::int64_t packs, std::int64_t each) noexcept {
  constexpr std::int64_t most = std::int64_t{1} << 16;
  return std::min(most, packs == 0 || vectors <= most * each / packs ? blocks_for(vectors * packs, each) : most);
}

/// Calls f.write(place, f.read(place)) for each pack of each vector of the rows, unless `invalid`, which may be nullptr. Reads come first
/// where they can. At most `vectors` of them, each of `packs` packs; a thread reads `AtOnce` before it writes.
template <int AtOnce = 4, device_execution Exec, class Rows, class F>
void launch_for_packs(Exec const& exec, Rows const& rows, std::int64_t vectors, std::int64_t packs, std::uint32_t const* invalid,
                      F const& f) {
  using kernel = vector_packs_kernel<AtOnce, Rows, F>;
  if (rows.rows > 0 && vectors > 0 && packs > 0)
    exec.launch({.blocks = blocks_for_packs(vectors, packs, kernel::packs_a_block)}, kernel{rows, packs, invalid, f});
}

template <class T>
bool moves_by_four(matrix_view<T> vectors) noexcept {
  return sizeof(T) == 4 && moves_by_four(static_cast<T const*>(vectors.data()), vectors.columns(), vectors.stride());
}

/// Calls f(pack, packs) with a pack of the type by which the vectors, all of one dim, move. `packs` is how many such a vector has.
template <class T, class... Others, class F>
void with_packs(F const& f, matrix_view<T> vectors, matrix_view<Others>... others) {
  using element = std::remove_const_t<T>;
  if constexpr (sizeof(element) == 4)
    if (moves_by_four(vectors) && (... && moves_by_four(others))) return f(four_elements<element>{}, vectors.columns() / 4);
  f(element{}, vectors.columns());
}

template <class Pack, class T>
TESSERA_DEVICE Pack read_pack(matrix_view<T> vectors, std::int64_t vector, std::int64_t pack) noexcept(!checks_indices) {
  return aligned_pack<Pack const>(vectors.row(vector))[pack];
}
template <class Pack, class T>
TESSERA_DEVICE void write_pack(matrix_view<T> vectors, std::int64_t vector, std::int64_t pack,
                               Pack const& value) noexcept(!checks_indices) {
  aligned_pack<Pack>(vectors.row(vector))[pack] = value;
}

template <class Pack>
inline constexpr int columns_of_pack = 1;
template <class T>
inline constexpr int columns_of_pack<four_elements<T>> = 4;

/// Column c of a pack.
template <class T>
TESSERA_HOST_DEVICE constexpr T& column_of(four_elements<T>& pack, int c) noexcept {
  return pack[c];
}
template <class T>
TESSERA_HOST_DEVICE constexpr T const& column_of(four_elements<T> const& pack, int c) noexcept {
  return pack[c];
}
TESSERA_HOST_DEVICE constexpr float& column_of(float& pack, int) noexcept { return pack; }
TESSERA_HOST_DEVICE constexpr float const& column_of(float const& pack, int) noexcept { return pack; }

/// f of the packs' columns, one by one.
template <class F, class Pack, class... Packs>
TESSERA_DEVICE Pack map_columns(F const& f, Pack const& pack, Packs const&... others) noexcept {
  Pack result{};
  for (int c = 0; c < columns_of_pack<Pack>; ++c) column_of(result, c) = f(column_of(pack, c), column_of(others, c)...);
  return result;
}

/// Calls use(i, read(i)) for i of [first, last) in order, with several reads on their way at once.
template <class Read, class Use>
TESSERA_DEVICE void read_ahead(std::int64_t first, std::int64_t last, Read const& read, Use const& use) {
  constexpr int ahead = 8;
  for (; last - first >= ahead; first += ahead) {
    decltype(read(first)) values[ahead];
    for (int k = 0; k < ahead; ++k) values[k] = read(first + k);
    for (int k = 0; k < ahead; ++k) use(first + k, values[k]);
  }
  for (; first < last; ++first) use(first, read(first));
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
