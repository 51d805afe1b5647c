// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/plan/dense_network.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/pool_segments.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// What an MLP computes, as a search calls it. The bits may differ from those of `mlp::forward`.
inline dense_network dense_network_of(mlp const& network, bool relu_after_last) {
  std::vector<dense_layer> layers;
  for (std::int64_t l = 0; l < network.layers(); ++l) {
    auto const from = network.layer(network.parameters(), l);
    dense_layer to{from.weight.columns(), from.weight.rows(), {}, {from.bias.begin(), from.bias.end()}};
    for (std::int64_t o = 0; o < to.outputs; ++o) to.weight.insert(to.weight.end(), from.weight.row(o), from.weight.row(o) + to.inputs);
    layers.push_back(std::move(to));
  }
  return dense_network(std::move(layers), relu_after_last);
}

}  // namespace detail

/// What the backward of a network of costs needs of its forward. The caller owns it. @pre the rows of the forward outlive it
struct cost_network_saved {
  jagged_vectors_view<float const> rows;
  mlp_saved of_rows, of_head;
  buffer<float> hidden, pooled, largest, head_in, out;
  std::vector<std::int64_t> offsets;
};

/// Networks from rows of features, cut into samples, to costs. All parameters lie in one block, so that an optimizer takes them at once.
/// - `forward(exec, gemm, rows, out, saved)` writes the costs of all samples to `out` (outputs(rows),).
/// - `backward(exec, gemm, saved, gradient, of_parameters)`: `gradient` is that of `out`; `of_parameters` is overwritten.
/// - `visit_relus(saved, f)` calls f(name, values) for each layer behind a ReLU, with what the forward made of it.
template <class N>
concept cost_network = requires(N& network, N const& held, host_exec const& exec, jagged_vectors_view<float const> rows) {
  { network.parameters() } -> std::same_as<vector_view<float>>;
  { held.input_width() } -> std::same_as<std::int64_t>;
  { held.outputs(rows) } -> std::same_as<std::int64_t>;
  network.blocks();
};

namespace detail {

// Two MLPs in one block of parameters.
class mlp_pair {
 public:
  mlp_pair(host_exec const& exec, std::vector<std::int64_t> const& first, activation last_of_first, std::vector<std::int64_t> const& second,
           random_seed seed)
      : memory_(exec, mlp::parameter_count(first) + mlp::parameter_count(second)),
        first_(exec, {first, last_of_first, seed, 0}, memory_.view().slice(0, mlp::parameter_count(first))),
        second_(exec, {second, activation::identity, seed, 1},
                memory_.view().slice(mlp::parameter_count(first), mlp::parameter_count(second))) {}

  vector_view<float> parameters() noexcept { return memory_.view(); }
  vector_view<float const> parameters() const noexcept { return memory_.view(); }
  mlp const& first() const noexcept { return first_; }
  mlp const& second() const noexcept { return second_; }
  vector_view<float> of_first(vector_view<float> block) const { return block.slice(0, first_.parameters().size()); }
  vector_view<float> of_second(vector_view<float> block) const {
    return block.slice(first_.parameters().size(), second_.parameters().size());
  }
  std::vector<parameter_block> blocks(char const* first, char const* second) {
    auto all = first_.blocks(first);
    for (auto& block : second_.blocks(second)) all.push_back(std::move(block));
    return all;
  }

 private:
  buffer<float> memory_;
  mlp first_, second_;
};

// Calls f(name, (samples, units)) for each hidden layer of an MLP's forward.
template <class F>
void visit_hidden_layers(mlp const& network, mlp_saved const& saved, char const* name, F const& f) {
  std::int64_t before = 0;
  auto const samples = saved.x.rows();
  for (std::size_t l = 1; l + 1 < network.widths().size(); ++l) {
    auto const units = network.widths()[l];
    f(std::string(name) + "." + std::to_string(l - 1), matrix_view<float const>(saved.hidden.data() + samples * before, samples, units));
    before += units;
  }
}

inline void check_joint(char const* network, std::vector<std::int64_t> const& first, std::vector<std::int64_t> const& second,
                        std::int64_t expected_input) {
  if (!first.empty() && !second.empty() && (second.front() != expected_input || second.back() != 1))
    throw error(errc::invalid_argument, std::string(network) + ": the second MLP reads what the first makes, and gives one cost",
                {{"width", second.front()}, {"expected", expected_input}, {"output width", second.back()}});
}

}  // namespace detail

/// The cost of a set of rows, such as the tables of a device, by a sum: an MLP turns each row into a representation, behind a ReLU; another
/// turns the sum of a sample's representations into the cost. So a search adds or takes away a row by one addition of vectors.
/// Source: Zha et al., "Pre-train and Search", MLSys 2023, Figure 5.
class sum_network {
 public:
  struct options {
    std::vector<std::int64_t> row_widths{20, 128, 32};
    std::vector<std::int64_t> head_widths{32, 64, 1};
    bool empty_is_free = false;  ///< what the head gives for no rows is taken off every cost
    random_seed seed{};
  };

  /// @throws tessera::error invalid_argument as `mlp`, and for a head of another width than the representations'.
  sum_network(host_exec const& exec, options const& options)
      : empty_is_free_((check(options), options.empty_is_free)),
        mlps_(exec, options.row_widths, activation::relu, options.head_widths, options.seed) {}

  std::int64_t input_width() const noexcept { return mlps_.first().input_width(); }
  std::int64_t representation_width() const noexcept { return mlps_.first().output_width(); }
  bool empty_is_free() const noexcept { return empty_is_free_; }
  std::int64_t outputs(jagged_vectors_view<float const> rows) const noexcept { return rows.rows; }
  mlp const& row_layers() const noexcept { return mlps_.first(); }
  mlp const& head_layers() const noexcept { return mlps_.second(); }
  vector_view<float> parameters() noexcept { return mlps_.parameters(); }
  vector_view<float const> parameters() const noexcept { return mlps_.parameters(); }
  std::vector<parameter_block> blocks() { return mlps_.blocks("table", "head"); }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& gemm, jagged_vectors_view<float const> rows, vector_view<float> out,
               cost_network_saved& saved) const {
    auto const width = representation_width(), samples = rows.rows;
    saved.rows = rows;
    saved.hidden.resize(exec, rows.values.rows() * width);
    matrix_view<float> const hidden(saved.hidden.data(), rows.values.rows(), width);
    mlps_.first().forward(exec, gemm, rows.values, hidden, saved.of_rows);
    // One sample more, without rows.
    saved.offsets.assign(rows.offsets, rows.offsets + samples + 1);
    saved.offsets.push_back(saved.offsets.back());
    saved.pooled.resize(exec, (samples + 1) * width);
    matrix_view<float> const pooled(saved.pooled.data(), samples + 1, width);
    pool_segments(exec, jagged_vectors_view<float const>{hidden, saved.offsets.data(), samples + 1}, segment_pooling::sum, pooled);
    saved.out.resize(exec, samples + 1);
    mlps_.second().forward(exec, gemm, pooled, {saved.out.data(), samples + 1, 1}, saved.of_head);
    auto const of_empty = empty_is_free_ ? saved.out[samples] : 0.0F;
    for (std::int64_t s = 0; s < samples; ++s) out[s] = saved.out[s] - of_empty;
  }

  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& gemm, cost_network_saved& saved, vector_view<float const> gradient,
                vector_view<float> of_parameters) const {
    auto const width = representation_width(), samples = saved.rows.rows, rows = saved.rows.values.rows();
    buffer<float> of_out(exec, samples + 1), of_pooled(exec, (samples + 1) * width), of_hidden(exec, rows * width);
    of_out[samples] = 0;
    for (std::int64_t s = 0; s < samples; ++s) {
      of_out[s] = gradient[s];
      if (empty_is_free_) of_out[samples] -= gradient[s];
    }
    matrix_view<float> const pooled(of_pooled.data(), samples + 1, width), hidden(of_hidden.data(), rows, width);
    mlps_.second().backward(exec, gemm, saved.of_head, {of_out.data(), samples + 1, 1}, mlps_.of_second(of_parameters), pooled);
    jagged_vectors_view<float> const spread{hidden, saved.offsets.data(), samples + 1};
    pool_segments_backward(exec, jagged_vectors_view<float const>(spread), segment_pooling::sum, pooled, spread);
    mlps_.first().backward(exec, gemm, saved.of_rows, hidden, mlps_.of_first(of_parameters));
  }

  template <class F>
  void visit_relus(cost_network_saved const& saved, F const& f) const {
    detail::visit_hidden_layers(mlps_.first(), saved.of_rows, "table", f);
    f("table." + std::to_string(mlps_.first().layers() - 1), saved.of_rows.y);
    detail::visit_hidden_layers(mlps_.second(), saved.of_head, "head", f);
  }

 private:
  static void check(options const& options) {
    detail::check_joint("sum_network", options.row_widths, options.head_widths, options.row_widths.empty() ? 0 : options.row_widths.back());
  }

  bool empty_is_free_;
  detail::mlp_pair mlps_;
};
static_assert(cost_network<sum_network>);

/// The cost of every row of a set, such as of every device of an exchange, which treats rows alike: an MLP turns each row into a
/// representation, behind a ReLU; another turns a row, the mean and the largest of the representations of its set into the row's cost.
/// @post rows in another order have the same costs in that order, up to the rounding of the mean; sets are of any size
class set_network {
 public:
  struct options {
    std::vector<std::int64_t> row_widths{6, 64, 32};
    std::vector<std::int64_t> head_widths{70, 64, 32, 1};  ///< of the row beside twice its representation
    random_seed seed{};
  };

  /// @throws tessera::error invalid_argument as `mlp`, and for a head of another width.
  set_network(host_exec const& exec, options const& options)
      : mlps_((check(options), exec), options.row_widths, activation::relu, options.head_widths, options.seed) {}

  std::int64_t input_width() const noexcept { return mlps_.first().input_width(); }
  std::int64_t outputs(jagged_vectors_view<float const> rows) const noexcept { return rows.size(); }
  mlp const& row_layers() const noexcept { return mlps_.first(); }
  mlp const& head_layers() const noexcept { return mlps_.second(); }
  vector_view<float> parameters() noexcept { return mlps_.parameters(); }
  vector_view<float const> parameters() const noexcept { return mlps_.parameters(); }
  std::vector<parameter_block> blocks() { return mlps_.blocks("device", "head"); }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& gemm, jagged_vectors_view<float const> rows, vector_view<float> out,
               cost_network_saved& saved) const {
    auto const in = input_width(), width = mlps_.first().output_width(), samples = rows.rows, count = rows.values.rows();
    saved.rows = rows;
    saved.hidden.resize(exec, count * width);
    saved.pooled.resize(exec, samples * width);
    saved.largest.resize(exec, samples * width);
    saved.head_in.resize(exec, count * (in + 2 * width));
    saved.out.resize(exec, count);
    matrix_view<float> const hidden(saved.hidden.data(), count, width), mean(saved.pooled.data(), samples, width),
        largest(saved.largest.data(), samples, width), head_in(saved.head_in.data(), count, in + 2 * width);
    mlps_.first().forward(exec, gemm, rows.values, hidden, saved.of_rows);
    jagged_vectors_view<float const> const sets{hidden, rows.offsets, samples};
    pool_segments(exec, sets, segment_pooling::mean, mean);
    pool_segments(exec, sets, segment_pooling::max, largest);
    for (std::int64_t s = 0; s < samples; ++s)
      for (auto r = rows.begin_of(s); r < rows.end_of(s); ++r) {
        auto* const to = head_in.row(r);
        std::copy_n(rows.values.row(r), in, to);
        std::copy_n(mean.row(s), width, to + in);
        std::copy_n(largest.row(s), width, to + in + width);
      }
    mlps_.second().forward(exec, gemm, head_in, {saved.out.data(), count, 1}, saved.of_head);
    std::copy_n(saved.out.data(), count, out.data());
  }

  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& gemm, cost_network_saved& saved, vector_view<float const> gradient,
                vector_view<float> of_parameters) const {
    auto const in = input_width(), width = mlps_.first().output_width(), samples = saved.rows.rows, count = saved.rows.values.rows();
    buffer<float> of_out(exec, count), of_head(exec, count * (in + 2 * width)), of_sets(exec, 2 * samples * width),
        of_hidden(exec, 2 * count * width);
    std::copy_n(gradient.data(), count, of_out.data());
    matrix_view<float> const head(of_head.data(), count, in + 2 * width), sets(of_sets.data(), samples, 2 * width);
    mlps_.second().backward(exec, gemm, saved.of_head, {of_out.data(), count, 1}, mlps_.of_second(of_parameters), head);
    pool_segments(exec, jagged_vectors_view<float const>{head.columns_from(in, 2 * width), saved.rows.offsets, samples},
                  segment_pooling::sum, sets);
    matrix_view<float> const by_mean(of_hidden.data(), count, width), by_largest(of_hidden.data() + count * width, count, width);
    jagged_vectors_view<float const> const hidden{{saved.hidden.data(), count, width}, saved.rows.offsets, samples};
    pool_segments_backward(exec, hidden, segment_pooling::mean, sets.columns_from(0, width), hidden.with_values(by_mean));
    pool_segments_backward(exec, hidden, segment_pooling::max, sets.columns_from(width, width), hidden.with_values(by_largest));
    for (std::int64_t i = 0; i < count * width; ++i) of_hidden[i] += of_hidden[count * width + i];
    mlps_.first().backward(exec, gemm, saved.of_rows, by_mean, mlps_.of_first(of_parameters));
  }

  template <class F>
  void visit_relus(cost_network_saved const& saved, F const& f) const {
    detail::visit_hidden_layers(mlps_.first(), saved.of_rows, "device", f);
    f("device." + std::to_string(mlps_.first().layers() - 1), saved.of_rows.y);
    detail::visit_hidden_layers(mlps_.second(), saved.of_head, "head", f);
  }

 private:
  static void check(options const& options) {
    if (!options.row_widths.empty())
      detail::check_joint("set_network", options.row_widths, options.head_widths,
                          options.row_widths.front() + 2 * options.row_widths.back());
  }

  detail::mlp_pair mlps_;
};
static_assert(cost_network<set_network>);

/// Some costs of a row by an MLP, a row a sample: as published, the costs of D devices from their dims (and start times).
/// Source: Zha et al., "Pre-train and Search", MLSys 2023, Figure 5.
class row_network {
 public:
  struct options {
    std::vector<std::int64_t> widths{8, 128, 64, 32, 16, 4};
    random_seed seed{};
  };

  /// @throws tessera::error invalid_argument as `mlp`.
  row_network(host_exec const& exec, options const& options) : layers_(exec, {options.widths, activation::identity, options.seed, 0}) {}

  std::int64_t input_width() const noexcept { return layers_.input_width(); }
  std::int64_t outputs(jagged_vectors_view<float const> rows) const noexcept { return rows.size() * layers_.output_width(); }
  mlp const& layers() const noexcept { return layers_; }
  vector_view<float> parameters() noexcept { return layers_.parameters(); }
  vector_view<float const> parameters() const noexcept { return layers_.parameters(); }
  std::vector<parameter_block> blocks() { return layers_.blocks("layers"); }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& gemm, jagged_vectors_view<float const> rows, vector_view<float> out,
               cost_network_saved& saved) const {
    auto const count = rows.values.rows(), width = layers_.output_width();
    saved.rows = rows;
    saved.out.resize(exec, count * width);
    layers_.forward(exec, gemm, rows.values, {saved.out.data(), count, width}, saved.of_rows);
    std::copy_n(saved.out.data(), count * width, out.data());
  }

  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& gemm, cost_network_saved& saved, vector_view<float const> gradient,
                vector_view<float> of_parameters) const {
    buffer<float> of_out(exec, gradient.size());
    std::copy_n(gradient.data(), gradient.size(), of_out.data());
    layers_.backward(exec, gemm, saved.of_rows, {of_out.data(), saved.rows.values.rows(), layers_.output_width()}, of_parameters);
  }

  template <class F>
  void visit_relus(cost_network_saved const& saved, F const& f) const {
    detail::visit_hidden_layers(layers_, saved.of_rows, "layers", f);
  }

 private:
  mlp layers_;
};
static_assert(cost_network<row_network>);

}  // namespace TESSERA_ABI
}  // namespace tessera
