// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What the backward of task heads needs of their forward. The caller owns it, and any number may be in flight. @pre x and y outlive it
struct task_heads_saved {
  matrix_view<float const> x;
  matrix_view<float const> y;
  buffer<float> hidden;  ///< head by head, as `mlp::forward` saves it
};

/// Shape and initial values of task heads; `std::vector(tasks, hidden)` for heads of one shape. Head t starts as an MLP of stream `stream`
/// + t.
struct task_heads_options {
  std::int64_t input_width = 0;
  std::vector<std::vector<std::int64_t>> hidden{};  ///< for each task the widths of its ReLU layers; none for a linear head
  random_seed seed{};
  std::uint32_t stream = 0;
};

/// An MLP to one logit for each task, all over the same input: the top of a shared-bottom multi-task model. `multi_task_bce` is its loss.
/// It holds parameters only, in one block, head by head. Move-only.
///
/// Where one linear layer a task is enough, an MLP with as many outputs as tasks needs only one product. Source: Caruana, "Multitask
/// learning", Machine Learning 1997.
class task_heads {
 public:
  /// @throws tessera::error invalid_argument for no task, or what an MLP refuses.
  task_heads(host_exec const& exec, task_heads_options const& options) : input_width_(options.input_width) {
    if (options.hidden.empty()) throw error(errc::invalid_argument, "task_heads: no task");
    std::vector<mlp_options> shapes;
    std::int64_t count = 0;
    for (auto const& hidden : options.hidden) {
      std::vector<std::int64_t> widths{input_width_};
      widths.insert(widths.end(), hidden.begin(), hidden.end());
      widths.push_back(1);
      count += mlp::parameter_count(widths);
      auto const stream = options.stream + static_cast<std::uint32_t>(shapes.size());
      shapes.push_back({std::move(widths), activation::identity, options.seed, stream});
    }
    parameters_.resize(exec, count);
    std::int64_t first = 0;
    for (auto const& shape : shapes) {
      auto const size = mlp::parameter_count(shape.widths);
      heads_.emplace_back(exec, shape, parameters_.view().slice(first, size));
      first += size;
    }
  }

  /// The number of tasks.
  std::int64_t tasks() const noexcept { return static_cast<std::int64_t>(heads_.size()); }
  std::int64_t input_width() const noexcept { return input_width_; }
  /// The network of a task.
  mlp const& head(std::int64_t task) const noexcept { return heads_[static_cast<std::size_t>(task)]; }

  /// All parameters, head by head; gradients and optimizer states have the same layout.
  vector_view<float> parameters() noexcept { return parameters_.view(); }
  vector_view<float const> parameters() const noexcept { return parameters_.view(); }

  std::size_t bytes() const noexcept { return parameters_.capacity_bytes(); }

  /// Names and shapes for checkpoints: "<prefix>.<task>.0.weight", …
  std::vector<parameter_block> blocks(std::string_view prefix) {
    std::vector<parameter_block> result;
    for (std::size_t t = 0; t < heads_.size(); ++t)
      for (auto& block : heads_[t].blocks(std::string(prefix) + "." + std::to_string(t))) result.push_back(std::move(block));
    return result;
  }

  /// Computes y, the logits of the heads: x (samples, input width), y (samples, tasks), any row strides. `backward` reads `saved`.
  /// @throws tessera::error shape_mismatch. No backward takes `saved` then.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float> y, task_heads_saved& saved) const {
    saved.x = saved.y = {};
    check(x, y);
    saved.hidden.resize(exec, x.rows() * hidden_width());
    std::int64_t first = 0;
    for (std::int64_t t = 0; t < tasks(); ++t) {
      auto const size = x.rows() * head(t).hidden_width();
      head(t).forward(exec, policy, x, y.columns_from(t, 1), saved.hidden.view().slice(first, size));
      first += size;
    }
    saved.x = x;
    saved.y = y;
  }

  /// Computes the gradients of the forward that filled `saved`. `gradient` (samples, tasks), that of y, may be overwritten.
  /// `parameter_gradient`, laid out like `parameters()`, is overwritten. `x_gradient` (samples, input width) is overwritten with the sum
  /// over the tasks in their order; where it is empty, it is not computed. @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, task_heads_saved& saved, matrix_view<float> gradient,
                vector_view<float> parameter_gradient, matrix_view<float> x_gradient = {}) const {
    check_backward(saved, gradient, parameter_gradient, x_gradient);
    bool const wants_x = x_gradient.rows() > 0;
    auto const samples = saved.x.rows();
    buffer<float> scratch(exec, wants_x && tasks() > 1 ? samples * input_width_ : 0);
    matrix_view<float> const one(scratch.data(), samples, input_width_);
    std::int64_t first = 0, first_parameter = 0;
    for (std::int64_t t = 0; t < tasks(); ++t) {
      auto const size = samples * head(t).hidden_width(), parameters = head(t).parameters().size();
      head(t).backward(exec, policy, saved.x, saved.y.columns_from(t, 1), saved.hidden.view().slice(first, size),
                       gradient.columns_from(t, 1), parameter_gradient.slice(first_parameter, parameters),
                       !wants_x ? matrix_view<float>{}
                       : t == 0 ? x_gradient
                                : one);
      if (wants_x && t > 0) add(exec, one, x_gradient);
      first += size;
      first_parameter += parameters;
    }
  }

 private:
  static constexpr std::int64_t rows_per_piece = 64;

  std::int64_t hidden_width() const noexcept {
    std::int64_t sum = 0;
    for (auto const& head : heads_) sum += head.hidden_width();
    return sum;
  }

  static void add(host_exec const& exec, matrix_view<float const> from, matrix_view<float> to) {
    for_each_index(exec, from.rows(), rows_per_piece, [=](std::int64_t s) {
      for (std::int64_t c = 0; c < from.columns(); ++c) to(s, c) += from(s, c);
    });
  }

  void check(matrix_view<float const> x, matrix_view<float const> y) const {
    if (x.columns() != input_width_ || y.columns() != tasks() || y.rows() != x.rows())
      throw error(errc::shape_mismatch, "task_heads: shape of the input or the logits",
                  {{"rows", x.rows()},
                   {"columns", x.columns()},
                   {"expected columns", input_width_},
                   {"logit rows", y.rows()},
                   {"logit columns", y.columns()},
                   {"tasks", tasks()}});
  }
  void check_backward(task_heads_saved const& saved, matrix_view<float const> gradient, vector_view<float const> parameter_gradient,
                      matrix_view<float const> x_gradient) const {
    check(saved.x, saved.y);
    check(saved.x, gradient);
    if (saved.hidden.size() != saved.x.rows() * hidden_width())
      throw error(errc::shape_mismatch, "task_heads: saved by the forward of other heads",
                  {{"hidden floats", saved.hidden.size()}, {"expected", saved.x.rows() * hidden_width()}});
    if (parameter_gradient.size() != parameters_.size())
      throw error(errc::shape_mismatch, "task_heads: gradient block",
                  {{"size", parameter_gradient.size()}, {"parameters", parameters_.size()}});
    if (x_gradient.rows() > 0 && (x_gradient.rows() != saved.x.rows() || x_gradient.columns() != input_width_))
      throw error(errc::shape_mismatch, "task_heads: gradient of the input",
                  {{"rows", x_gradient.rows()},
                   {"expected rows", saved.x.rows()},
                   {"columns", x_gradient.columns()},
                   {"expected columns", input_width_}});
  }

  std::int64_t input_width_;
  buffer<float> parameters_;
  std::vector<mlp> heads_;  // in `parameters_`
};

}  // namespace TESSERA_ABI
}  // namespace tessera
