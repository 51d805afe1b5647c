// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/attention_blocks.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of attention. Heads lie side by side in a vector, dim / heads floats each.
struct attention_options {
  std::int64_t heads = 1;
  bool causal = false;  ///< a vector sees itself and those before it, else its whole row
  float scale = 0;      ///< of the products of queries and keys; 0: 1 / sqrt(dim / heads)
};

/// Scaled dot-product attention within each row. For head h, out_i = sum over j of softmax_j(scale * q_i · k_j) v_j. Here j goes over the
/// vectors of the row, or those up to i where it is causal. q, k, v and out are rows of the same lengths and dim, with any strides and
/// first offsets. q, k and v may be columns of one matrix; out overlaps none of them. `log_sums` (heads, vectors), empty where no backward
/// follows, gets the logarithm to base 2 of each vector's sum of e^score. From it the backward computes the probabilities again.
///
/// Keys are taken in blocks, with a running largest score and sum for each query. The memory is so linear in the lengths: a workspace for
/// each thread and one number a row. Long rows are divided over the threads. The bits of a row's result depend on that row alone.
/// @throws tessera::error shape_mismatch; invalid_argument for heads that do not divide the dim or a scale that is not finite; out_of_range
/// for offsets past the values. Source: Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", NeurIPS
/// 2022, algorithm 1.
template <class Offset>
void jagged_attention(host_exec const& exec, jagged_vectors_view<float const, Offset> q, detail::jagged_vectors_in<Offset> k,
                      detail::jagged_vectors_in<Offset> v, attention_options const& options,
                      std::type_identity_t<jagged_vectors_view<float, Offset>> out, matrix_view<float> log_sums = {});

/// Overwrites the gradients of q, k and v, for the forward that wrote `out` and `log_sums`. They may be columns of one matrix, and overlap
/// nothing that is read. Sums are in the order of the row for any number of threads. @throws tessera::error as the forward.
template <class Offset>
void jagged_attention_backward(host_exec const& exec, jagged_vectors_view<float const, Offset> q, detail::jagged_vectors_in<Offset> k,
                               detail::jagged_vectors_in<Offset> v, attention_options const& options, detail::jagged_vectors_in<Offset> out,
                               matrix_view<float const> log_sums, detail::jagged_vectors_in<Offset> out_gradient,
                               std::type_identity_t<jagged_vectors_view<float, Offset>> q_gradient,
                               std::type_identity_t<jagged_vectors_view<float, Offset>> k_gradient,
                               std::type_identity_t<jagged_vectors_view<float, Offset>> v_gradient);

namespace detail {

// All vectors of the rows, from the first row's on: vector i of row r is row begin_of(r) - begin_of(0) + i.
template <class T, class Offset>
matrix_view<T> vectors_of(jagged_vectors_view<T, Offset> x) noexcept {
  auto const first = x.rows == 0 ? 0 : static_cast<std::int64_t>(x.begin_of(0));
  return {x.values.data() == nullptr ? nullptr : x.values.data() + first * x.values.stride(), static_cast<std::int64_t>(x.size()), x.dim(),
          x.values.stride()};
}

struct jagged_attention_kernels {
  using blocks = attention_blocks;
  static constexpr std::int64_t whole_row = 256;          // longer rows may be cut for backwards, too
  static constexpr std::int64_t unit_overhead = 16;       // in keys
  static constexpr std::int64_t keys_per_piece = 1 << 9;  // that a block of queries is multiplied with

  // f(row, unit, workspace) for units 0 … units(length) - 1 of each row, each on one thread; pieces of about the same cost, where a unit
  // costs weight(length).
  template <class Offset, class Units, class Weight, class F>
  static void for_each_unit(host_exec const& exec, Offset const* offsets, std::int64_t rows, std::int64_t floats, Units const& units,
                            Weight const& weight, F const& f) {
    buffer<std::int64_t> starts(exec, rows + 1);
    starts[0] = 0;
    auto const length = [=](std::int64_t row) { return static_cast<std::int64_t>(offsets[row + 1] - offsets[row]); };
    for (std::int64_t row = 0; row < rows; ++row) starts[row + 1] = starts[row] + units(length(row)) * weight(length(row));
    auto const total = starts[rows];
    if (total == 0) return;
    workspace_slots workspaces(exec, floats, divide_up(total, keys_per_piece));
    for_each_piece(exec, total, keys_per_piece, [&](std::int64_t first, std::int64_t last) {
      auto row = std::upper_bound(starts.begin(), starts.end(), first) - starts.begin() - 1;
      auto unit = divide_up(first - starts[row], weight(length(row)));
      workspaces.with([&](float* workspace) {
        for (; row < rows; ++row, unit = 0) {
          auto const end = units(length(row)), cost = weight(length(row));
          for (; unit < end; ++unit) {
            if (starts[row] + unit * cost >= last) return;
            f(row, unit, workspace);
          }
          if (starts[row + 1] >= last) return;
        }
      });
    });
  }

  // Matrices begin with the first row, as each argument's offsets may begin elsewhere.
  template <class Offset>
  struct batch {
    Offset const* offsets;  // (rows + 1,), of the queries: all have rows of these lengths
    std::int64_t rows;
    matrix_view<float const> q, k, v;
    attention_options options;

    batch(jagged_vectors_view<float const, Offset> queries, jagged_vectors_view<float const, Offset> keys,
          jagged_vectors_view<float const, Offset> values, attention_options const& given) noexcept
        : offsets(queries.offsets),
          rows(queries.rows),
          q(vectors_of(queries)),
          k(vectors_of(keys)),
          v(vectors_of(values)),
          options(given) {}

    std::int64_t begin_of(std::int64_t row) const noexcept { return static_cast<std::int64_t>(offsets[row] - offsets[0]); }
    std::int64_t length(std::int64_t row) const noexcept { return static_cast<std::int64_t>(offsets[row + 1] - offsets[row]); }
    std::int64_t head_dim() const noexcept { return q.columns() / options.heads; }
    template <class T>
    matrix_view<T> part(matrix_view<T> vectors, std::int64_t row, std::int64_t head) const noexcept {
      return {vectors.data() + begin_of(row) * vectors.stride() + head * head_dim(), length(row), head_dim(), vectors.stride()};
    }
    blocks::head head(std::int64_t row, std::int64_t head) const noexcept {
      auto const scale = options.scale != 0 ? options.scale : 1.0F / std::sqrt(static_cast<float>(head_dim()));
      return {part(q, row, head), part(k, row, head), part(v, row, head), scale, options.causal};
    }
    template <class T>
    T* log_sums(matrix_view<T> all, std::int64_t row, std::int64_t head) const noexcept {
      return all.data() == nullptr ? nullptr : all.data() + head * all.stride() + begin_of(row);
    }
  };

  template <class Offset>
  static void forward(host_exec const& exec, batch<Offset> const& in, matrix_view<float> out, matrix_view<float> log_sums) {
    auto const heads = in.options.heads;
    for_each_unit(
        exec, in.offsets, in.rows, blocks::workspace(in.head_dim()),
        [=](std::int64_t length) { return heads * divide_up(length, blocks::queries); },
        [](std::int64_t length) { return length + unit_overhead; },
        [&](std::int64_t row, std::int64_t unit, float* workspace) {
          auto const head = unit % heads;
          blocks::forward(in.head(row, head), unit / heads * blocks::queries, in.part(out, row, head), in.log_sums(log_sums, row, head),
                          workspace);
        });
  }

  // A row is a unit a head. Where that would leave threads idle, each block of keys of a long row is a unit that makes their gradients, and
  // each block of queries one that makes theirs: more work, as both need the probabilities, but the same sums in the same order.
  template <class Offset>
  static void backward(host_exec const& exec, batch<Offset> const& in, matrix_view<float const> out, matrix_view<float const> log_sums,
                       matrix_view<float const> gradient, blocks::gradients const& to) {
    auto const heads = in.options.heads;
    auto const row_cost = [](std::int64_t length) { return 3 * (length + unit_overhead) * divide_up(length, blocks::queries); };
    std::int64_t total = 0;
    for (std::int64_t row = 0; row < in.rows; ++row) total += heads * row_cost(in.length(row));
    auto const most = exec.threads() == 1 ? total : total / (2 * exec.threads());
    auto const is_whole = [=](std::int64_t length) { return length <= whole_row || row_cost(length) <= most; };
    auto const key_units = [=](std::int64_t length) { return is_whole(length) ? 1 : divide_up(length, blocks::keys); };
    auto const query_units = [=](std::int64_t length) { return is_whole(length) ? 0 : divide_up(length, blocks::queries); };
    for_each_unit(
        exec, in.offsets, in.rows, blocks::workspace(in.head_dim()),
        [=](std::int64_t length) { return length == 0 ? 0 : heads * (key_units(length) + query_units(length)); },
        [=](std::int64_t length) { return is_whole(length) ? row_cost(length) : 2 * length; },
        [&](std::int64_t row, std::int64_t unit, float* workspace) {
          auto const head = unit % heads, part = unit / heads, length = in.length(row);
          blocks::outcome const made{in.part(out, row, head), in.part(gradient, row, head), in.log_sums(log_sums, row, head)};
          blocks::gradients const all{in.part(to.q, row, head), in.part(to.k, row, head), in.part(to.v, row, head)};
          auto const run = [&](std::int64_t first_query, std::int64_t last_query, std::int64_t first_key, std::int64_t last_key,
                               blocks::gradients const& wanted) {
            blocks::backward(in.head(row, head), made, first_query, last_query, first_key, last_key, wanted, workspace);
          };
          if (is_whole(length)) return run(0, length, 0, length, all);
          if (part < key_units(length)) {
            auto const key = part * blocks::keys;
            return run(in.options.causal ? key : 0, length, key, std::min(key + blocks::keys, length), {{}, all.k, all.v});
          }
          auto const query = (part - key_units(length)) * blocks::queries;
          run(query, std::min(query + blocks::queries, length), 0, length, {all.q, {}, {}});
        });
  }
};

template <class Offset>
void check_jagged_attention(char const* call, jagged_vectors_view<float const, Offset> q, jagged_vectors_view<float const, Offset> k,
                            jagged_vectors_view<float const, Offset> v, attention_options const& options, matrix_view<float const> log_sums,
                            bool may_lack) {
  check_jagged_vectors(call, "q", q);
  check_same_rows(call, "k", q, k);
  check_same_rows(call, "v", q, v);
  if (options.heads < 1 || q.dim() < 1 || q.dim() % options.heads != 0)
    throw error(errc::invalid_argument, std::string(call) + ": heads of one size", {{"heads", options.heads}, {"dim", q.dim()}});
  if (!std::isfinite(options.scale))
    throw error(errc::invalid_argument, std::string(call) + ": scale", {{"scale", static_cast<double>(options.scale)}});
  if (may_lack && log_sums.data() == nullptr) return;
  if (log_sums.rows() != options.heads || log_sums.columns() != q.size() || (log_sums.rows() > 1 && log_sums.stride() < q.size()))
    throw error(errc::shape_mismatch, std::string(call) + ": log sums (heads, vectors) of another shape",
                {{"rows", log_sums.rows()},
                 {"heads", options.heads},
                 {"columns", log_sums.columns()},
                 {"vectors", q.size()},
                 {"stride", log_sums.stride()}});
}

}  // namespace detail

template <class Offset>
void jagged_attention(host_exec const& exec, jagged_vectors_view<float const, Offset> q, detail::jagged_vectors_in<Offset> k,
                      detail::jagged_vectors_in<Offset> v, attention_options const& options,
                      std::type_identity_t<jagged_vectors_view<float, Offset>> out, matrix_view<float> log_sums) {
  detail::check_jagged_attention("jagged_attention", q, k, v, options, log_sums, true);
  detail::check_same_rows("jagged_attention", "out", q, out);
  if (q.size() == 0) return;
  detail::jagged_attention_kernels::forward<Offset>(exec, {q, k, v, options}, detail::vectors_of(out), log_sums);
}

template <class Offset>
void jagged_attention_backward(host_exec const& exec, jagged_vectors_view<float const, Offset> q, detail::jagged_vectors_in<Offset> k,
                               detail::jagged_vectors_in<Offset> v, attention_options const& options, detail::jagged_vectors_in<Offset> out,
                               matrix_view<float const> log_sums, detail::jagged_vectors_in<Offset> out_gradient,
                               std::type_identity_t<jagged_vectors_view<float, Offset>> q_gradient,
                               std::type_identity_t<jagged_vectors_view<float, Offset>> k_gradient,
                               std::type_identity_t<jagged_vectors_view<float, Offset>> v_gradient) {
  auto const check = [&](char const* which, auto other) { detail::check_same_rows("jagged_attention_backward", which, q, other); };
  detail::check_jagged_attention("jagged_attention_backward", q, k, v, options, log_sums, false);
  check("out", out);
  check("out_gradient", out_gradient);
  check("q_gradient", q_gradient);
  check("k_gradient", k_gradient);
  check("v_gradient", v_gradient);
  if (q.size() == 0) return;
  using detail::vectors_of;
  detail::jagged_attention_kernels::backward<Offset>(exec, {q, k, v, options}, vectors_of(out), log_sums, vectors_of(out_gradient),
                                                     {vectors_of(q_gradient), vectors_of(k_gradient), vectors_of(v_gradient)});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
