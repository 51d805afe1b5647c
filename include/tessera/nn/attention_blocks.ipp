// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/attention_blocks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void attention_blocks::forward(head const& h, std::int64_t first, matrix_view<float> out, float* log_sums,
                                              float* workspace) noexcept {
  auto const count = std::min(queries, h.length() - first);
  float* const powers = workspace;                            // (keys, queries)
  float* const transposed_queries = powers + keys * queries;  // (head_dim, queries)
  transpose_scaled(rows(h.q, first, count), h.scale * log2_of_e, transposed_queries, queries);
  running state{};
  auto* const to = out.data() + first * out.stride();
  auto const last_key = h.keys_seen(first + count);
  with_registers(count, [&](auto registers) {
    constexpr auto n = static_cast<int>(decltype(registers)::value);
    for (std::int64_t key = 0; key < last_key; key += keys) {
      auto const key_count = std::min(keys, last_key - key);
      products<n>(h, h.k, key, key_count, first, transposed_queries, powers, -std::numeric_limits<float>::infinity());
      softmax<n>(powers, key_count, key == 0, state);
      if (key > 0) scale_rows(to, out.stride(), count, h.head_dim(), state.correction);
      multiply_any_columns(count, h.head_dim(), by_query{powers, {}, {}}, h.v.data() + key * h.v.stride(), h.v.stride(),
                           seen_keys{key_count, first - key, h.causal}, to, out.stride(), key > 0);
    }
  });
  if (log_sums != nullptr)
    for (std::int64_t i = 0; i < count; ++i) log_sums[first + i] = state.largest[i] + std::log2(state.sum[i]);
  for (std::int64_t i = 0; i < count; ++i) state.correction[i] = 1.0F / state.sum[i];
  scale_rows(to, out.stride(), count, h.head_dim(), state.correction);
}

TESSERA_INLINE void attention_blocks::backward(head const& h, outcome const& forward, std::int64_t first_query, std::int64_t last_query,
                                               std::int64_t first_key, std::int64_t last_key, gradients const& to,
                                               float* workspace) noexcept {
  for (auto first = first_query; first < last_query; first += queries) {
    auto const count = std::min(queries, h.length() - first);
    float* const powers = workspace;                                                 // (keys, queries)
    float* const slopes = powers + keys * queries;                                   // (keys, queries)
    float* const transposed_queries = slopes + keys * queries;                       // (head_dim, queries)
    float* const transposed_gradient = transposed_queries + h.head_dim() * queries;  // (head_dim, queries)
    alignas(64) float means[queries], log_sums[queries];
    auto const gradient = rows(forward.gradient, first, count);
    transpose_scaled(rows(h.q, first, count), h.scale * log2_of_e, transposed_queries, queries);
    transpose_scaled(gradient, h.scale, transposed_gradient, queries);
    row_products(gradient, rows(forward.out, first, count), h.scale, means);
    std::fill(std::copy_n(forward.log_sums + first, count, log_sums), log_sums + queries, 0.0F);
    with_registers(count, [&](auto registers) {
      constexpr auto n = static_cast<int>(decltype(registers)::value);
      auto const end = std::min(last_key, h.keys_seen(first + count));
      for (auto key = first_key; key < end; key += keys) {
        auto const key_count = std::min(keys, end - key);
        products<n>(h, h.k, key, key_count, first, transposed_queries, powers, -std::numeric_limits<float>::infinity());
        products<n>(h, h.v, key, key_count, first, transposed_gradient, slopes, 0.0F);
        differentiate<n>(powers, slopes, key_count, log_sums, means);
        bool const adds = first > (h.causal ? key : 0);
        if (!adds) clear_rows(to, key + key_count, std::min(key + keys, last_key));
        seeing_queries const seeing{count, first - key, h.causal};
        if (to.v.data() != nullptr)
          multiply_any_columns(key_count, h.head_dim(), by_key{powers, {}, {}}, gradient.data(), gradient.stride(), seeing,
                               to.v.data() + key * to.v.stride(), to.v.stride(), adds);
        if (to.k.data() != nullptr)
          multiply_any_columns(key_count, h.head_dim(), by_key{slopes, {}, {}}, h.q.data() + first * h.q.stride(), h.q.stride(), seeing,
                               to.k.data() + key * to.k.stride(), to.k.stride(), adds);
        if (to.q.data() != nullptr)
          multiply_any_columns(count, h.head_dim(), by_query{slopes, {}, {}}, h.k.data() + key * h.k.stride(), h.k.stride(),
                               seen_keys{key_count, first - key, h.causal}, to.q.data() + first * to.q.stride(), to.q.stride(), key > 0);
      }
    });
  }
}

TESSERA_INLINE void attention_blocks::row_products(matrix_view<float const> a, matrix_view<float const> b, float factor,
                                                   float* to) noexcept {
  for (std::int64_t first = 0; first < a.rows(); first += lanes) {
    register_floats<> partial[register_lanes]{};
    for (std::int64_t r = 0; r < std::min(lanes, a.rows() - first); ++r) {
      auto const* const x = a.data() + (first + r) * a.stride();
      auto const* const y = b.data() + (first + r) * b.stride();
      std::int64_t c = 0;
      for (; c + lanes <= a.columns(); c += lanes)
        partial[r] += load_register<register_lanes>(x + c) * load_register<register_lanes>(y + c);
      for (; c < a.columns(); ++c) partial[r][c % lanes] += x[c] * y[c];
    }
    transpose_registers<register_lanes>(partial);
    register_floats<> sum{};
    for (auto const& p : partial) sum += p;
    store_register<register_lanes>(to + first, factor * sum);
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
