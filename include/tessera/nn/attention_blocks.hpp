// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/register_tiles.hpp>

/// Attention of one row and one head, on one thread, block by block: what jagged_attention divides its work into.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Queries of a block are the lanes of registers, and keys are rows of registers. The softmax over keys so goes lane by lane.
struct attention_blocks {
  static constexpr std::int64_t lanes = register_lanes;
  static constexpr std::int64_t queries = 4 * lanes;  // of a block
  static constexpr std::int64_t keys = 128;           // at once, a multiple of `queries`
  static_assert(keys % queries == 0);

  template <std::int64_t N>
  using constant = std::integral_constant<std::int64_t, N>;
  using by_key = tile_factor<constant<queries>, constant<1>>;    // rows are the keys of a block
  using by_query = tile_factor<constant<1>, constant<queries>>;  // rows are its queries
  using from_memory = tile_factor<std::int64_t, constant<1>>;    // rows of vectors

  /// The floats of a thread's workspace: scores, their gradients, and two transposed blocks of vectors, each aligned to a register.
  static constexpr std::int64_t workspace(std::int64_t head_dim) noexcept { return 2 * queries * (keys + head_dim); }

  /// One head of one row: queries, keys and values, (length, head_dim) each.
  struct head {
    matrix_view<float const> q, k, v;
    float scale;
    bool causal;

    std::int64_t length() const noexcept { return q.rows(); }
    std::int64_t head_dim() const noexcept { return q.columns(); }
    /// The number of keys that the queries before `last_query` see.
    std::int64_t keys_seen(std::int64_t last_query) const noexcept { return causal ? last_query : length(); }
  };

  // Which steps count: keys that the last query of a tile sees, and queries that see the first key.
  struct seen_keys {
    std::int64_t count, ahead;  // how many, if they are not all: by how much the first query is ahead of the first key
    bool causal;
    constexpr std::pair<std::int64_t, std::int64_t> operator()(std::int64_t, std::int64_t last) const noexcept {
      return {0, causal ? std::clamp<std::int64_t>(last + ahead, 0, count) : count};
    }
  };
  struct seeing_queries {
    std::int64_t count, ahead;
    bool causal;
    constexpr std::pair<std::int64_t, std::int64_t> operator()(std::int64_t first, std::int64_t) const noexcept {
      return {causal ? std::clamp<std::int64_t>(first - ahead, 0, count) : 0, count};
    }
  };

  template <class F>
  static void with_registers(std::int64_t count, F const& f) {
    switch (divide_up(count, lanes)) {
      case 1: return f(constant<1>{});
      case 2: return f(constant<2>{});
      case 3: return f(constant<3>{});
      default: return f(constant<4>{});
    }
  }

  /// Computes to(j, i) = vectors(j) * transposed_vectors(:, i) for N registers of queries i.
  template <int N>
  static void products(matrix_view<float const> vectors, float const* transposed_vectors, float* to) noexcept {
    multiply_columns<register_lanes, N, 8>(vectors.rows(), from_memory{vectors.data(), vectors.stride(), {}}, transposed_vectors, queries,
                                           all_steps{vectors.columns()}, to, queries, false);
  }

  /// As above, for the block of queries from `first` and the vectors from `key`. Where a query does not see a key, which comes after it,
  /// the result is `hidden`.
  template <int N>
  static void products(head const& h, matrix_view<float const> vectors, std::int64_t key, std::int64_t count, std::int64_t first,
                       float const* transposed_vectors, float* to, float hidden) noexcept {
    auto const seen_by_all = h.causal ? std::clamp<std::int64_t>(first + 1 - key, 0, count) : count;
    products<N>(rows(vectors, key, seen_by_all), transposed_vectors, to);
    for (auto done = seen_by_all; done < count;) {
      auto const ahead = key + done - first, skipped = ahead / lanes;  // registers of queries that see none of these keys
      auto const some = std::min((skipped + 1) * lanes - ahead, count - done);
      with_registers((N - skipped) * lanes, [&](auto registers) {
        products<static_cast<int>(decltype(registers)::value)>(rows(vectors, key + done, some), transposed_vectors + skipped * lanes,
                                                               to + done * queries + skipped * lanes);
      });
      for (auto const end = done + some; done < end; ++done) std::fill_n(to + done * queries, key + done - first, hidden);
    }
  }

  /// For each query of a block: the largest score so far, and the sum of 2^(score - largest). Scores are in base 2.
  struct running {
    alignas(64) float largest[queries];
    alignas(64) float sum[queries];
    alignas(64) float correction[queries];  // of what was summed before the last block
  };

  /// Replaces each score by 2^(score - largest), and updates the running largest and sum.
  template <int N>
  static void softmax(float* scores, std::int64_t key_count, bool first, running& state) noexcept {
    for_registers<N>([&](auto... i) {
      using floats = register_floats<>;
      floats before[] = {load_register<register_lanes>(state.largest + i * lanes)...};
      floats largest[] = {(first ? load_register<register_lanes>(scores + i * lanes) : before[i])...};
      for (std::int64_t j = 0; j < key_count; ++j)
        ((largest[i] = larger<register_lanes>(largest[i], load_register<register_lanes>(scores + j * queries + i * lanes))), ...);
      floats correction[] = {power_of_two<register_lanes>(before[i] - largest[i])...};
      floats sum[] = {(first ? floats{} : load_register<register_lanes>(state.sum + i * lanes) * correction[i])...};
      for (std::int64_t j = 0; j < key_count; ++j) {
        auto* const row = scores + j * queries;
        floats const power[] = {power_of_two<register_lanes>(load_register<register_lanes>(row + i * lanes) - largest[i])...};
        ((sum[i] += power[i]), ...);
        (store_register<register_lanes>(row + i * lanes, power[i]), ...);
      }
      (store_register<register_lanes>(state.largest + i * lanes, largest[i]), ...);
      (store_register<register_lanes>(state.correction + i * lanes, correction[i]), ...);
      (store_register<register_lanes>(state.sum + i * lanes, sum[i]), ...);
    });
  }

  /// Computes the attention of the block of queries from `first` into out (length, head_dim). `log_sums` (length,), unless it is nullptr,
  /// gets the logarithm to base 2 of each query's sum of e^score.
  static void forward(head const& h, std::int64_t first, matrix_view<float> out, float* log_sums, float* workspace) noexcept;

  /// The gradients that a backward adds to, (length, head_dim) each; one without memory is not computed.
  struct gradients {
    matrix_view<float> q, k, v;
  };

  /// What a forward wrote, and the gradient of its output.
  struct outcome {
    matrix_view<float const> out, gradient;  // (length, head_dim)
    float const* log_sums;                   // (length,)
  };

  /// Computes what queries [first_query, last_query) and keys [first_key, last_key) add to the gradients. Gradients of queries are sums
  /// over all keys; those of keys and values are sums over all queries. Terms are added in order, and the first one overwrites.
  static void backward(head const& h, outcome const& forward, std::int64_t first_query, std::int64_t last_query, std::int64_t first_key,
                       std::int64_t last_key, gradients const& to, float* workspace) noexcept;

 private:
  static constexpr float log2_of_e = 1.44269504088896341F;

  // Without the checks of an index: what calls it keeps to the row.
  static matrix_view<float const> rows(matrix_view<float const> m, std::int64_t first, std::int64_t count) noexcept {
    return {m.data() + first * m.stride(), count, m.columns(), m.stride()};
  }

  template <int... I, class F>
  static void for_registers_of(std::integer_sequence<int, I...>, F const& f) {
    f(constant<I>{}...);
  }
  // f(0, …, N - 1), each a constant.
  template <int N, class F>
  static void for_registers(F const& f) {
    for_registers_of(std::make_integer_sequence<int, N>{}, f);
  }

  static void scale_rows(float* to, std::int64_t stride, std::int64_t count, std::int64_t columns, float const* factors) noexcept {
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t c = 0; c < columns; ++c) to[i * stride + c] *= factors[i];
  }

  // Gradients of keys, and their values, that the first queries do not see.
  static void clear_rows(gradients const& to, std::int64_t first, std::int64_t last) noexcept {
    for (auto const& m : {to.k, to.v})
      for (auto key = first; key < last && m.data() != nullptr; ++key) std::fill_n(m.data() + key * m.stride(), m.columns(), 0.0F);
  }

  /// Replaces scores by probabilities, and products with the gradient by the gradients of the scores.
  template <int N>
  static void differentiate(float* powers, float* slopes, std::int64_t key_count, float const* log_sums, float const* means) noexcept {
    for_registers<N>([&](auto... i) {
      using floats = register_floats<>;
      floats const log_sum[] = {load_register<register_lanes>(log_sums + i * lanes)...};
      floats const mean[] = {load_register<register_lanes>(means + i * lanes)...};
      for (std::int64_t j = 0; j < key_count; ++j) {
        auto* const power_row = powers + j * queries;
        auto* const slope_row = slopes + j * queries;
        floats const power[] = {power_of_two<register_lanes>(load_register<register_lanes>(power_row + i * lanes) - log_sum[i])...};
        (store_register<register_lanes>(power_row + i * lanes, power[i]), ...);
        (store_register<register_lanes>(slope_row + i * lanes, power[i] * (load_register<register_lanes>(slope_row + i * lanes) - mean[i])),
         ...);
      }
    });
  }

  /// Computes to[r] = factor * the product of rows r of a and b, and 0 for further r up to a full register.
  static void row_products(matrix_view<float const> a, matrix_view<float const> b, float factor, float* to) noexcept;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/attention_blocks.ipp>
#endif
