// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 4
#include "tower_module_suite.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/tower/any_tower.hpp>
#include <tessera/tower/dcn_tower.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/dot_tower.hpp>
#include <tessera/tower/pass_through.hpp>

#include "../nn/cross_net_suite.hpp"

namespace tower_module_test {

using tessera::any_tower_recipe;
using tessera::dcn_tower;
using tessera::dlrm_tower;
using tessera::dot_tower;
using tessera::eigen_gemm;
using tessera::errc;
using tessera::pass_through;
using tessera::random_seed;
using tessera::tower_cost;
using tessera::tower_output;
using tessera_tests::error_of;
using tessera_tests::naive_gemm;
using tessera_tests::pool_host;
using tessera_tests::serial_host;

reference pass_through_reference(widths_list const&) {
  return [](std::vector<double> const&, doubles const& x) { return x; };
}

reference dlrm_reference(dlrm_tower const& options, widths_list const& widths) {
  return [=](std::vector<double> const& parameters, doubles const& x) {
    if (widths.size() == 1 && widths[0] == options.dim && options.p + options.c == 1) return x;
    auto const* next = parameters.data();
    auto out = options.p > 0 ? linear_map(next, x, options.p * options.dim) : doubles(x.rows, 0);
    std::int64_t first = 0;
    for (auto const width : widths) {
      auto const* same = next;
      if (options.c > 0) out = beside(out, linear_map(same, columns_of(x, first, width), options.c * options.dim));
      first += width;
    }
    return out;
  };
}

reference dcn_reference(dcn_tower const& options, widths_list const& widths) {
  return [=](std::vector<double> const& parameters, doubles const& x) {
    auto const rank = options.rank < x.columns ? options.rank : 0;
    auto const features = static_cast<std::int64_t>(widths.size());
    auto const vectors = options.vectors > 0 ? options.vectors : features;
    auto const crossed = tessera_tests::reference_cross_net{x.columns, options.layers, rank, parameters}.forward(x);
    if (features == 1 && vectors == 1 && widths[0] == options.dim) return crossed;
    auto const* next = parameters.data() + options.layers * x.columns * (rank > 0 ? 2 * rank + 1 : x.columns + 1);
    return linear_map(next, crossed, vectors * options.dim);
  };
}

reference dot_reference(dot_tower const& options, widths_list const& widths) {
  return [=](std::vector<double> const& parameters, doubles const& x) {
    auto const features = static_cast<std::int64_t>(widths.size()), dim = widths[0];
    auto const vectors = options.vectors > 0 ? options.vectors : features;
    if (features == 1 && vectors == 1 && dim == options.dim) return x;
    auto input = columns_of(x, 0, dim);
    for (std::int64_t i = 0; i < features; ++i)
      for (std::int64_t j = 0; j < i; ++j) {
        doubles product(x.rows, 1);
        for (std::int64_t s = 0; s < x.rows; ++s)
          for (std::int64_t d = 0; d < dim; ++d) product.at(s, 0) += x.at(s, i * dim + d) * x.at(s, j * dim + d);
        input = beside(input, product);
      }
    auto const* next = parameters.data();
    return linear_map(next, beside(input, columns_of(x, dim, x.columns - dim)), vectors * options.dim);
  };
}

template <class Recipe, class Reference>
void suite(Recipe const& recipe, std::vector<widths_list> const& towers, Reference const& expected) {
  auto const of = [&](widths_list const& widths) { return expected(recipe, widths); };
  tower_suite<Recipe, eigen_gemm, serial_host>(recipe, towers, of);
  tower_suite<Recipe, naive_gemm, pool_host<2>>(recipe, towers, of);
}

TEST_CASE("pass_through: features leave as they came") {
  suite(pass_through{}, {{4}, {1}, {3, 5, 4}}, [](pass_through, widths_list const& widths) { return pass_through_reference(widths); });
}
TEST_CASE("dlrm_tower: each feature by itself") {
  for (std::int64_t const c : {1, 2}) suite(dlrm_tower{.dim = 3, .p = 0, .c = c}, {{5}, {3}, {5, 5}, {3, 3, 3}, {1, 1}}, dlrm_reference);
}
TEST_CASE("dlrm_tower: all features together, of any widths") {
  for (std::int64_t const p : {1, 3}) suite(dlrm_tower{.dim = 3, .p = p, .c = 0}, {{5}, {3}, {5, 2}, {3, 3, 3}, {1, 4, 7}}, dlrm_reference);
}
TEST_CASE("dlrm_tower: both maps") { suite(dlrm_tower{.dim = 5, .p = 2, .c = 3}, {{5}, {4, 4}, {6, 6, 6}}, dlrm_reference); }
TEST_CASE("dcn_tower: full rank, low rank, a rank that no matrix has, no layer") {
  suite(dcn_tower{.dim = 3}, {{3}, {5}, {3, 4}}, dcn_reference);
  suite(dcn_tower{.dim = 4, .vectors = 2, .layers = 2, .rank = 5}, {{4}, {5}, {3, 2, 6}}, dcn_reference);
  suite(dcn_tower{.dim = 4, .vectors = 0, .layers = 1, .rank = 2}, {{4}, {4, 4, 4}}, dcn_reference);
  suite(dcn_tower{.dim = 3, .layers = 0}, {{3}, {2, 2}}, dcn_reference);
}
TEST_CASE("dot_tower: products beside the features") {
  suite(dot_tower{.dim = 3}, {{3}, {5}, {4, 4}, {3, 3, 3, 3}}, dot_reference);
  suite(dot_tower{.dim = 2, .vectors = 0}, {{2}, {3, 3, 3}}, dot_reference);
}

TEST_CASE("any_tower_recipe: modules of the kind that it holds") {
  dlrm_tower const both{.dim = 5, .p = 2, .c = 3};
  any_tower_recipe const recipe = both;
  CHECK(recipe.name == dlrm_tower::name);
  CHECK(recipe.cost(widths_list{4, 4}) == both.cost(widths_list{4, 4}));
  tower_suite<any_tower_recipe, eigen_gemm, serial_host>(recipe, {{5}, {6, 6, 6}},
                                                         [&](widths_list const& widths) { return dlrm_reference(both, widths); });
  tower_refusals(any_tower_recipe(dlrm_tower{.dim = 3, .p = 1, .c = 2}), {4, 4});
}

// A recipe whose name ends with it.
struct named_tower : dlrm_tower {
  std::string name;
};

TEST_CASE("any_tower_recipe: the name is its own") {
  any_tower_recipe const recipe = named_tower{{.dim = 2}, std::string(40, 'x')};
  any_tower_recipe const copy = recipe;
  CHECK(recipe.name == std::string(40, 'x'));
  CHECK(copy.name == recipe.name);
}

TEST_CASE("any_tower_module: what another kind of module saved is refused") {
  serial_host host;
  widths_list const widths{2, 2};
  std::vector<float> ones(4, 1.0F), made(8), of_features(4);
  std::vector<tessera::matrix_view<float const>> const features{{ones.data(), 1, 2}, {ones.data() + 2, 1, 2}};
  std::vector<tessera::matrix_view<float>> const gradients{{of_features.data(), 1, 2}, {of_features.data() + 2, 1, 2}};
  auto const mixed = any_tower_recipe(dlrm_tower{.dim = 2, .p = 1, .c = 0}).make(host.exec(), widths, random_seed{1}, 0);
  auto const crossed = any_tower_recipe(dcn_tower{.dim = 2, .vectors = 1}).make(host.exec(), widths, random_seed{1}, 0);
  tessera::any_tower_module::saved saved;
  mixed.forward(host.exec(), eigen_gemm{}, features, {made.data(), 1, 2}, saved);
  std::vector<float> block(static_cast<std::size_t>(crossed.parameters().size()));
  auto const e = error_of([&] { crossed.backward(host.exec(), eigen_gemm{}, saved, {made.data(), 1, 2}, block, gradients); });
  CHECK(e.code() == errc::invalid_argument);
}

TEST_CASE("tower modules: 1, 2 and 4 threads give the same bits") {
  tower_threads<pass_through, eigen_gemm>({}, {16, 20});
  tower_threads<dlrm_tower, eigen_gemm>({.dim = 40, .p = 2, .c = 2}, {70, 70, 70});
  tower_threads<dcn_tower, eigen_gemm>({.dim = 50, .vectors = 2, .layers = 2, .rank = 33}, {70, 33, 70});
  tower_threads<dot_tower, eigen_gemm>({.dim = 50, .vectors = 3}, {70, 70, 70});
}

TEST_CASE("tower modules: what does not fit is refused, and nothing is written") {
  tower_refusals(pass_through{}, {4, 5});
  tower_refusals(dlrm_tower{.dim = 3, .p = 1, .c = 2}, {4, 4});
  tower_refusals(dlrm_tower{.dim = 3, .p = 1, .c = 0}, {4, 6, 2});
  tower_refusals(dlrm_tower{.dim = 4}, {4});
  tower_refusals(dcn_tower{.dim = 3, .rank = 2}, {4, 6});
  tower_refusals(dcn_tower{.dim = 4}, {4});
  tower_refusals(dot_tower{.dim = 3}, {4, 4});
}

TEST_CASE("tower modules: from the third equal step on nothing is allocated") {
  auto const check = [](auto const& recipe) {
    serial_host host;
    tessera::arena arena(host.memory(), 256);
    auto const exec = host.exec().with_memory(arena);
    widths_list const widths{8, 8, 8};
    auto const module = recipe.make(host.exec(), widths, random_seed{1}, 1);
    std::vector<float> const ones(200, 1);
    std::vector<float> out(static_cast<std::size_t>(5 * module.output_width())), of_out(out.size(), 1), memory(200);
    std::vector<float> block(static_cast<std::size_t>(module.parameters().size()));
    std::vector<tessera::matrix_view<float const>> const features(3, {ones.data(), 5, 8});
    std::vector<tessera::matrix_view<float>> const gradients{
        {memory.data(), 5, 8}, {memory.data() + 50, 5, 8}, {memory.data() + 100, 5, 8}};
    std::int64_t after_two = 0;
    for (int step = 0; step < 6; ++step) {
      typename decltype(recipe.make(exec, widths, random_seed{}, 0))::saved saved;
      module.forward(exec, eigen_gemm{}, features, {out.data(), 5, module.output_width()}, saved);
      module.backward(exec, eigen_gemm{}, saved, {of_out.data(), 5, module.output_width()}, block, gradients);
      if (step == 1) after_two = host.memory().allocations();
    }
    CHECK(host.memory().allocations() == after_two);
  };
  check(pass_through{});
  check(dlrm_tower{.dim = 3, .p = 1, .c = 2});
  check(dcn_tower{.dim = 3, .layers = 2, .rank = 4});
  check(dot_tower{.dim = 3});
}

TEST_CASE("tower recipes: outputs say which feature they are made of") {
  using outputs = std::vector<tower_output>;
  widths_list const two{4, 4}, mixed{4, 6}, one{4};
  CHECK(pass_through{}.outputs(mixed) == outputs{{4, 0}, {6, 1}});
  CHECK(dlrm_tower{.dim = 3, .p = 1, .c = 2}.outputs(two) == outputs{{3, -1}, {3, 0}, {3, 0}, {3, 1}, {3, 1}});
  CHECK(dlrm_tower{.dim = 3, .p = 2, .c = 0}.outputs(mixed) == outputs{{3, -1}, {3, -1}});
  CHECK(dlrm_tower{.dim = 4}.outputs(one) == outputs{{4, 0}});
  CHECK(dcn_tower{.dim = 5, .vectors = 0}.outputs(mixed) == outputs{{5, -1}, {5, -1}});
  CHECK(dot_tower{.dim = 5}.outputs(one) == outputs{{5, 0}});
}

TEST_CASE("tower recipes: costs of the paper's towers") {
  auto const features = [](std::size_t count) { return widths_list(count, 128); };
  CHECK(pass_through{}.cost(features(4)) == tower_cost{0, 0});
  // Linear maps of 128 by 64, once a feature.
  CHECK(dlrm_tower{.dim = 64, .p = 0, .c = 1}.cost(features(4)) == tower_cost{129 * 64, 4 * 128 * 64});
  // Two features to one vector; a single one is that vector.
  CHECK(dlrm_tower{.dim = 128, .p = 1, .c = 0}.cost(features(2)) == tower_cost{257 * 128, 256 * 128});
  CHECK(dlrm_tower{.dim = 128, .p = 1, .c = 0}.cost(features(1)) == tower_cost{0, 0});
  CHECK(dlrm_tower{.dim = 128, .p = 2, .c = 0}.cost(features(1)) == tower_cost{129 * 256, 128 * 256});
  // A cross layer of rank 512 over 13 features, and a map to 128 numbers.
  std::int64_t const wide = 13 * 128;
  CHECK(dcn_tower{.dim = 128, .rank = 512}.cost(features(13)) ==
        tower_cost{wide * (2 * 512 + 1) + (wide + 1) * 128, 2 * wide * 512 + wide * 128});
  CHECK(dcn_tower{.dim = 128, .rank = 512}.cost(features(1)) == tower_cost{128 * 129, 128 * 128});
  CHECK(dot_tower{.dim = 64}.cost(features(3)) == tower_cost{(3 * 128 + 3 + 1) * 64, (3 * 128 + 3) * 64 + 3 * 128});
}

TEST_CASE("tower modules: weights start by seed and stream, biases at 0, and blocks name them") {
  serial_host host;
  auto const check = [&](auto const& recipe, std::vector<std::string> const& names) {
    widths_list const widths{6, 6, 6};
    auto const make = [&](std::uint64_t seed, std::uint32_t stream) { return recipe.make(host.exec(), widths, random_seed{seed}, stream); };
    auto module = make(7, 3);
    auto const values = tessera_tests::copy_of(module.parameters());
    CHECK(values == tessera_tests::copy_of(make(7, 3).parameters()));
    CHECK(values != tessera_tests::copy_of(make(8, 3).parameters()));
    CHECK(values != tessera_tests::copy_of(make(7, 4).parameters()));
    CHECK(module.bytes() == values.size() * sizeof(float));
    auto const blocks = module.blocks("tower.2");
    REQUIRE(blocks.size() == names.size());
    auto const* next = module.parameters().data();
    std::vector<float> firsts;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      CHECK(blocks[b].name == "tower.2." + names[b]);
      CHECK(blocks[b].group == tessera::replication::tower);
      std::int64_t size = 1;
      for (auto const extent : blocks[b].shape) size *= extent;
      CHECK(blocks[b].values.size() == size);
      CHECK(blocks[b].values.data() == next);
      next += size;
      auto const& v = blocks[b].values;
      if (names[b].find("bias") != std::string::npos)
        CHECK(std::all_of(v.begin(), v.end(), [](float x) { return x == 0; }));
      else
        firsts.push_back(v[0]);
    }
    CHECK(next == module.parameters().end());
    std::sort(firsts.begin(), firsts.end());
    CHECK(std::adjacent_find(firsts.begin(), firsts.end()) == firsts.end());  // no matrix repeats another
  };
  check(dlrm_tower{.dim = 6, .p = 3, .c = 2}, {"together.weight", "together.bias", "each.weight", "each.bias"});
  check(dcn_tower{.dim = 6, .vectors = 3, .layers = 2, .rank = 2},
        {"cross.0.v", "cross.0.u", "cross.0.bias", "cross.1.v", "cross.1.u", "cross.1.bias", "map.weight", "map.bias"});
  check(dot_tower{.dim = 6}, {"map.weight", "map.bias"});
  auto through = pass_through{}.make(host.exec(), widths_list{3}, random_seed{}, 0);
  CHECK(through.blocks("x").empty());
  CHECK(through.bytes() == 0);
  auto same = dlrm_tower{.dim = 3}.make(host.exec(), widths_list{3}, random_seed{}, 0);
  CHECK(same.blocks("x").empty());
}

TEST_CASE("tower recipes: options and widths that do not go together are refused by name") {
  serial_host host;
  auto const refused = [&](auto const& recipe, widths_list const& widths, char const* value, std::string const& is) {
    auto const check = [&](auto const& call) {
      auto const e = error_of(call);
      CAPTURE(std::string(e.what()));
      CHECK(e.code() == errc::invalid_argument);
      CHECK(std::string(e.what()).find(std::string(recipe.name) + ": ") == 0);
      CHECK(e.value(value) == is);
    };
    check([&] { recipe.outputs(widths); });
    check([&] { recipe.cost(widths); });
    check([&] { recipe.make(host.exec(), widths, random_seed{}, 0); });
  };
  auto const widths = [&](auto const& recipe) {
    refused(recipe, {}, "features", "0");
    refused(recipe, {4, 0}, "feature", "1");
    refused(recipe, {4, -3}, "width", "-3");
    refused(recipe, {1 << 28, 1 << 28, 1 << 28}, "feature", "1");
  };
  widths(pass_through{});
  widths(dlrm_tower{.dim = 4});
  widths(dcn_tower{});
  widths(dot_tower{});
  refused(dlrm_tower{.dim = 0}, {4}, "dim", "0");
  refused(dlrm_tower{.dim = 4, .p = -1}, {4}, "p", "-1");
  refused(dlrm_tower{.dim = 4, .c = -1}, {4}, "c", "-1");
  refused(dlrm_tower{.dim = 4, .p = 0, .c = 0}, {4}, "p", "0");
  refused(dlrm_tower{.dim = 4, .c = std::int64_t{1} << 40}, {4}, "c", std::to_string(std::int64_t{1} << 40));
  refused(dlrm_tower{.dim = 4, .p = 1, .c = 1}, {4, 4, 5}, "feature", "2");
  refused(dcn_tower{.dim = 0}, {4}, "dim", "0");
  refused(dcn_tower{.dim = -1}, {4}, "dim", "-1");
  refused(dcn_tower{.vectors = -1}, {4}, "vectors", "-1");
  refused(dcn_tower{.layers = -1}, {4}, "layers", "-1");
  refused(dcn_tower{.rank = -1}, {4}, "rank", "-1");
  refused(dot_tower{.dim = 0}, {4}, "dim", "0");
  refused(dot_tower{.vectors = -2}, {4}, "vectors", "-2");
  refused(dot_tower{}, {4, 5}, "width", "5");
}

}  // namespace tower_module_test
