// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <tessera/tower/tower_module.hpp>

#include "../nn/nn_harness.hpp"
#include "temporary_folder.hpp"

namespace tower_module_test {

using tessera_tests::doubles;
using tessera_tests::strided_floats;

using widths_list = std::vector<std::int64_t>;

/// A module's outputs in double. Parameters are laid out like `parameters()`, features are side by side.
using reference = std::function<doubles(std::vector<double> const& parameters, doubles const& features)>;

/// A linear map with its parameters from `next` on, which it moves past them.
inline doubles linear_map(double const*& next, doubles const& x, std::int64_t out) {
  doubles y(x.rows, out);
  auto const* const weight = next;
  auto const* const bias = next + out * x.columns;
  next = bias + out;
  for (std::int64_t s = 0; s < x.rows; ++s)
    for (std::int64_t o = 0; o < out; ++o) {
      y.at(s, o) = bias[o];
      for (std::int64_t i = 0; i < x.columns; ++i) y.at(s, o) += weight[o * x.columns + i] * x.at(s, i);
    }
  return y;
}

inline doubles columns_of(doubles const& m, std::int64_t first, std::int64_t columns) {
  doubles part(m.rows, columns);
  for (std::int64_t s = 0; s < m.rows; ++s)
    for (std::int64_t c = 0; c < columns; ++c) part.at(s, c) = m.at(s, first + c);
  return part;
}

inline doubles beside(doubles const& a, doubles const& b) {
  doubles all(a.rows, a.columns + b.columns);
  for (std::int64_t s = 0; s < a.rows; ++s) {
    for (std::int64_t c = 0; c < a.columns; ++c) all.at(s, c) = a.at(s, c);
    for (std::int64_t c = 0; c < b.columns; ++c) all.at(s, a.columns + c) = b.at(s, c);
  }
  return all;
}

/// Blocks of features, each in memory of its own with gaps between rows; or side by side in one matrix.
struct feature_blocks {
  std::vector<strided_floats> storage;
  std::vector<tessera::matrix_view<float>> views;

  /// Apart.
  feature_blocks(doubles const& values, widths_list const& widths) {
    std::int64_t first = 0;
    for (std::size_t f = 0; f < widths.size(); ++f) {
      storage.emplace_back(values.rows, widths[f], 1 + static_cast<std::int64_t>(f % 3));
      fill(storage.back().view(), values, first);
      first += widths[f];
    }
    for (auto& block : storage) views.push_back(block.view());
  }
  /// Side by side, with a gap after each row.
  feature_blocks(doubles const& values, widths_list const& widths, std::int64_t gap) {
    storage.emplace_back(values.rows, values.columns, gap);
    fill(storage[0].view(), values, 0);
    std::int64_t first = 0;
    for (auto const width : widths) {
      views.push_back(storage[0].view().columns_from(first, width));
      first += width;
    }
  }
  feature_blocks(feature_blocks&&) = default;

  std::vector<tessera::matrix_view<float const>> read() const { return {views.begin(), views.end()}; }
  doubles side_by_side() const {
    doubles all(views[0].rows(), 0);
    for (auto const& view : views) all = beside(all, doubles(tessera::matrix_view<float const>(view)));
    return all;
  }
  bool gaps_intact() const {
    return std::all_of(storage.begin(), storage.end(), [](strided_floats const& block) { return block.gaps_intact(); });
  }

 private:
  static void fill(tessera::matrix_view<float> to, doubles const& values, std::int64_t first) {
    for (std::int64_t s = 0; s < to.rows(); ++s)
      for (std::int64_t c = 0; c < to.columns(); ++c) to(s, c) = static_cast<float>(values.at(s, first + c));
  }
};

/// Random numbers that floats hold.
inline doubles random_doubles(std::mt19937_64& random, std::int64_t rows, std::int64_t columns) {
  return doubles(strided_floats(random, rows, columns, 0));
}

struct tower_results {
  std::vector<float> out, parameter_gradient;
  doubles feature_gradients{0, 0};

  friend bool operator==(tower_results const& a, tower_results const& b) {
    return tessera_tests::same_bits(a.out, b.out) && tessera_tests::same_bits(a.parameter_gradient, b.parameter_gradient) &&
           a.feature_gradients.values == b.feature_gradients.values;
  }
};

/// Forward and backward, with features and their gradients apart or side by side.
template <class Module, class Gemm>
tower_results run_tower(tessera::host_exec const& exec, Gemm const& policy, Module const& module, widths_list const& widths,
                        doubles const& features, doubles const& out_gradient, bool apart, typename Module::saved& saved) {
  auto const rows = features.rows;
  auto const blocks = apart ? feature_blocks(features, widths) : feature_blocks(features, widths, 2);
  doubles const nothing(rows, features.columns);
  auto gradients = apart ? feature_blocks(nothing, widths) : feature_blocks(nothing, widths, 0);
  for (auto const& view : gradients.views)
    for (std::int64_t s = 0; s < rows; ++s) std::fill_n(view.row(s), view.columns(), std::nanf(""));
  strided_floats out(rows, module.output_width(), 3), gradient(rows, module.output_width(), 1);
  for (std::int64_t s = 0; s < rows; ++s)
    for (std::int64_t c = 0; c < out.columns; ++c) gradient.at(s, c) = static_cast<float>(out_gradient.at(s, c));
  std::vector<float> parameter_gradient(static_cast<std::size_t>(module.parameters().size()), std::nanf(""));
  auto const read = blocks.read();
  module.forward(exec, policy, read, out.view(), saved);
  module.backward(exec, policy, saved, std::as_const(gradient).view(), parameter_gradient, gradients.views);
  CHECK(out.gaps_intact());
  CHECK(gradients.gaps_intact());
  tower_results results{{}, std::move(parameter_gradient), gradients.side_by_side()};
  for (std::int64_t s = 0; s < rows; ++s) results.out.insert(results.out.end(), out.view().row(s), out.view().row(s) + out.columns);
  return results;
}

/// A module with random parameters, biases too.
template <class Module>
std::vector<double> randomise(std::mt19937_64& random, Module& module) {
  for (auto& value : module.parameters()) value += 0.1F * tessera_tests::random_floats(random, 1)[0];
  return {module.parameters().begin(), module.parameters().end()};
}

/// What each tower module must show for each of the lists of widths. `expected(widths)` is its reference.
template <tessera::tower_recipe Recipe, class Gemm, class Host>
void tower_suite(Recipe const& recipe, std::vector<widths_list> const& towers,
                 std::function<reference(widths_list const&)> const& expected) {
  Host host;
  Gemm const policy{};
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& widths : towers) {
    std::string shown;
    for (auto const width : widths) shown += std::to_string(width) + " ";
    CAPTURE(shown);
    auto module = recipe.make(host.exec(), widths, tessera::random_seed{seed}, 3);
    CHECK(module.outputs() == recipe.outputs(widths));
    CHECK(module.parameters().size() == recipe.cost(widths).parameters);
    std::int64_t columns = 0, outputs = 0;
    for (auto const width : widths) columns += width;
    for (auto const& output : module.outputs()) outputs += output.width;
    CHECK(module.output_width() == outputs);
    auto parameters = randomise(random, module);
    auto const compute = expected(widths);
    typename Recipe::module::saved saved;
    for (std::int64_t const samples : {0, 1, 3, 5}) {
      CAPTURE(samples);
      auto features = random_doubles(random, samples, columns);
      auto const gradient = random_doubles(random, samples, outputs);
      auto const result = run_tower(host.exec(), policy, module, widths, features, gradient, true, saved);
      CHECK(tessera_tests::worst_difference(result.out, compute(parameters, features).values) < 1e-5);
      auto const objective = [&] {
        auto const out = compute(parameters, features);
        double sum = 0;
        for (std::size_t i = 0; i < out.values.size(); ++i) sum += out.values[i] * gradient.values[i];
        return sum;
      };
      std::vector<double> numeric_parameters, numeric_features;
      for (auto& p : parameters) numeric_parameters.push_back(tessera_tests::numeric_derivative(p, objective, 1e-5));
      for (auto& x : features.values) numeric_features.push_back(tessera_tests::numeric_derivative(x, objective, 1e-5));
      CHECK(tessera_tests::worst_difference(result.parameter_gradient, numeric_parameters) < 1e-5);
      CHECK(tessera_tests::worst_difference(result.feature_gradients.values, numeric_features) < 1e-5);

      // Where features lie changes no bit, and a batch in flight does not touch another.
      typename Recipe::module::saved other;
      CHECK(result == run_tower(host.exec(), policy, module, widths, features, gradient, false, other));
    }

    // It may move while a batch is in flight.
    auto const* const where = module.parameters().data();
    auto const features = random_doubles(random, 4, columns), gradient = random_doubles(random, 4, outputs);
    auto const before = run_tower(host.exec(), policy, module, widths, features, gradient, true, saved);
    auto moved = std::move(module);
    CHECK(moved.parameters().data() == where);
    CHECK(before == run_tower(host.exec(), policy, moved, widths, features, gradient, true, saved));
  }
}

/// The number of threads changes no bit, from the first weight on.
template <tessera::tower_recipe Recipe, class Gemm>
void tower_threads(Recipe const& recipe, widths_list const& widths) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t columns = 0, outputs = 0;
  for (auto const width : widths) columns += width;
  for (auto const& output : recipe.outputs(widths)) outputs += output.width;
  std::int64_t const samples = tessera_tests::under_sanitizer ? 67 : 400;
  auto const features = random_doubles(random, samples, columns), gradient = random_doubles(random, samples, outputs);
  for (bool const apart : {true, false}) {
    std::vector<tower_results> all;
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
      auto const module = recipe.make(exec, widths, tessera::random_seed{seed}, 1);
      typename Recipe::module::saved saved;
      all.push_back(run_tower(exec, Gemm{}, module, widths, features, gradient, apart, saved));
      CHECK(all.back() == all.front());
    });
  }
}

/// Shapes that do not fit are refused by name, nothing is written then, and no backward takes what was saved.
template <tessera::tower_recipe Recipe>
void tower_refusals(Recipe const& recipe, widths_list const& widths) {
  using tessera::matrix_view;
  tessera_tests::serial_host host;
  auto const module = recipe.make(host.exec(), widths, tessera::random_seed{1}, 1);
  constexpr std::int64_t samples = 3;
  auto const out_width = module.output_width();
  std::vector<float> const ones(1000, 1), sevens(1000, 7);
  auto memory = sevens;
  std::vector<matrix_view<float const>> features;
  std::vector<matrix_view<float>> gradients;
  for (std::size_t f = 0; f < widths.size(); ++f) {
    features.emplace_back(ones.data(), samples, widths[f]);
    gradients.emplace_back(memory.data() + 100 * f, samples, widths[f]);
  }
  std::vector<float> block(static_cast<std::size_t>(module.parameters().size()), 7);
  auto const block_before = block;
  typename Recipe::module::saved saved;
  auto const out = [&](std::int64_t rows, std::int64_t columns) { return matrix_view<float>(memory.data() + 500, rows, columns); };
  auto const forward = [&](auto const& from, matrix_view<float> to) {
    module.forward(host.exec(), tessera_tests::naive_gemm{}, from, to, saved);
  };
  auto const backward = [&](matrix_view<float const> of_out, tessera::vector_view<float> of_parameters, auto const& to) {
    module.backward(host.exec(), tessera_tests::naive_gemm{}, saved, of_out, of_parameters, to);
  };
  auto const refused = [&](auto const& call, char const* value, std::string const& is) {
    auto const e = tessera_tests::error_of(call);
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(std::string(e.what()).find(std::string(recipe.name) + ": ") == 0);
    CHECK(e.value(value) == is);
    CHECK(memory == sevens);
    CHECK(block == block_before);
  };
  matrix_view<float const> const good(ones.data(), samples, out_width);
  refused([&] { backward(good, block, gradients); }, "rows", "");  // no forward was
  auto const last = widths.size() - 1;
  auto wrong = features;
  wrong[last] = {ones.data(), samples + 1, widths[last]};
  refused([&] { forward(wrong, out(samples, out_width)); }, "feature", std::to_string(last));
  wrong[last] = {ones.data(), samples, widths[last] + 1};
  refused([&] { forward(wrong, out(samples, out_width)); }, "columns", std::to_string(widths[last] + 1));
  wrong[last] = {ones.data(), samples, widths[last], widths[last] - 1};
  refused([&] { forward(wrong, out(samples, out_width)); }, "stride", std::to_string(widths[last] - 1));
  wrong.pop_back();
  refused([&] { forward(wrong, out(samples, out_width)); }, "blocks", std::to_string(last));
  refused([&] { forward(features, out(samples, out_width + 1)); }, "columns", std::to_string(out_width + 1));
  refused([&] { forward(features, out(samples + 1, out_width)); }, "expected rows", std::to_string(samples + 1));
  refused([&] { backward(good, block, gradients); }, "rows", "");  // those threw

  std::vector<float> results(static_cast<std::size_t>(samples * out_width));
  forward(features, matrix_view<float>(results.data(), samples, out_width));
  refused([&] { backward({ones.data(), samples + 1, out_width}, block, gradients); }, "rows", std::to_string(samples + 1));
  refused([&] { backward({ones.data(), samples, out_width - 1}, block, gradients); }, "columns", std::to_string(out_width - 1));
  std::vector<float> longer(block.size() + 1);
  refused([&] { backward(good, longer, gradients); }, "size", std::to_string(longer.size()));
  auto wrong_gradients = gradients;
  wrong_gradients[last] = {memory.data(), samples, widths[last] + 1};
  refused([&] { backward(good, block, wrong_gradients); }, "feature", std::to_string(last));
  wrong_gradients.pop_back();
  refused([&] { backward(good, block, wrong_gradients); }, "argument", "feature gradients");

  // Nor where memory ran out.
  for (int allowed = 0;; ++allowed) {
    saved = {};
    host.memory().fail_after(allowed);
    bool failed = false;
    try {
      forward(features, matrix_view<float>(results.data(), samples, out_width));
    } catch (std::bad_alloc const&) {
      failed = true;
    }
    host.memory().never_fail();
    if (!failed) break;
    refused([&] { backward(good, block, gradients); }, "rows", "");
  }
  backward(good, block, gradients);
  CHECK(memory != sevens);
}

}  // namespace tower_module_test
