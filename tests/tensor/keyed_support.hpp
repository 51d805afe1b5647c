// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "../support/temporary_folder.hpp"

namespace tensor_tests {

using ids = std::vector<std::int64_t>;
using floats = std::vector<float>;
using names = std::vector<std::string>;
using tessera_tests::error_of;

/// What a call throws, as text; empty where it throws nothing.
template <class F>
std::string refusal_of(F const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e.what();
  }
  return {};
}

/// Sums of what comes one after the other: each begins with its first summand, of -0.0 too. They are `before` where nothing comes.
template <class T>
struct sums_in_order {
  std::vector<T> values;
  std::vector<char> begun = std::vector<char>(values.size());

  explicit sums_in_order(std::vector<T> before) : values(std::move(before)) {}
  explicit sums_in_order(std::size_t count) : values(count) {}
  void add(std::int64_t at, T x) {
    auto const i = static_cast<std::size_t>(at);
    values[i] = begun[i] ? values[i] + x : x;
    begun[i] = 1;
  }
};

/// One row of a batch: its values, and its weights where the batch has any.
struct model_row {
  ids values;
  floats weights;

  friend bool operator==(model_row const&, model_row const&) = default;
};
/// A batch as plain lists: model[key][row].
using model_rows = std::vector<model_row>;
using model = std::vector<model_rows>;

template <class T, class Offset>
model_rows model_of(tessera::jagged_view<T, Offset> view) {
  model_rows rows;
  for (std::int64_t row = 0; row < view.rows; ++row) rows.push_back({ids(view.row(row).begin(), view.row(row).end()), {}});
  return rows;
}
template <class T, class Offset>
model model_of(tessera::keyed_jagged_view<T, Offset> view) {
  model keys;
  for (std::int64_t key = 0; key < view.keys; ++key) {
    keys.push_back(model_of(view.key(key)));
    for (std::int64_t row = 0; row < view.rows(key) && view.weighted(); ++row) {
      auto const weights = view.key_weights(key).row(row);
      keys.back()[static_cast<std::size_t>(row)].weights.assign(weights.begin(), weights.end());
    }
  }
  return keys;
}

template <class Offset>
tessera::keyed_jagged<std::int64_t, Offset> batch_of(tessera::host_exec const& exec, model const& keys, names key_names = {}) {
  ids values, rows_per_key;
  std::vector<Offset> lengths;
  floats weights;
  for (auto const& rows : keys) {
    rows_per_key.push_back(static_cast<std::int64_t>(rows.size()));
    for (auto const& row : rows) {
      lengths.push_back(static_cast<Offset>(row.values.size()));
      values.insert(values.end(), row.values.begin(), row.values.end());
      weights.insert(weights.end(), row.weights.begin(), row.weights.end());
    }
  }
  return tessera::keyed_jagged<std::int64_t, Offset>::from_lengths(exec, std::move(key_names), values, lengths, rows_per_key, weights);
}

inline model_row random_row(std::mt19937_64& random, std::int64_t length, bool weighted) {
  auto values = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(length), 0, 999);
  auto weights = weighted ? tessera_tests::random_floats(random, values.size()) : floats{};
  return {std::move(values), std::move(weights)};
}

/// Rows of the given number or fewer, some keys without any.
inline model random_model(std::mt19937_64& random, std::size_t keys, std::size_t most_rows, bool weighted) {
  model result;
  for (std::size_t key = 0; key < keys; ++key) {
    result.emplace_back();
    auto const rows = random() % 5 == 0 ? 0 : random() % (most_rows + 1);
    for (auto const length : tessera_tests::random_lengths(random, rows, 4)) result.back().push_back(random_row(random, length, weighted));
  }
  return result;
}

using rows_of_ids = std::vector<ids>;
inline rows_of_ids random_rows(std::mt19937_64& random, std::size_t count) {
  rows_of_ids rows;
  for (auto const length : tessera_tests::random_lengths(random, count, 3))
    rows.push_back(tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(length), -50, 50));
  return rows;
}

inline names names_of(std::size_t keys) {
  names result;
  for (std::size_t key = 0; key < keys; ++key) result.push_back("key " + std::to_string(key));
  return result;
}

inline std::size_t rows_of(model const& keys) {
  std::size_t rows = 0;
  for (auto const& key : keys) rows += key.size();
  return rows;
}

/// Fails unless `batch` is unnamed, valid and says what `expected` does.
template <class T, class Offset>
void check_batch(tessera::keyed_jagged<T, Offset> const& batch, model const& expected) {
  CHECK(batch.keys().empty());
  tessera::validate(batch.view(), batch.view().size());
  CHECK(model_of(batch.view()) == expected);
}

/// A small batch of two named keys with weights, and the model of its rows.
inline tessera::keyed_jagged<> named_batch(tessera::host_exec const& exec) {
  return tessera::keyed_jagged<>::from_rows(exec,
                                            {{"user", {{1, 2, 3}, {}, {4}}, {{1, 2, 3}, {}, {4}}}, {"item", {{5, 6}, {7}}, {{5, 6}, {7}}}});
}

template <class T>
std::string text(T const& shown) {
  std::ostringstream out;
  out << shown;
  return out.str();
}

/// A type of three bytes, to see that values of any type move whole.
struct three_bytes {
  unsigned char a, b, c;

  friend bool operator==(three_bytes const&, three_bytes const&) = default;
};
inline three_bytes bytes_of(std::int64_t id) {
  return {static_cast<unsigned char>(id), static_cast<unsigned char>(id >> 8), static_cast<unsigned char>(~id)};
}

}  // namespace tensor_tests
