// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-optimize: -O2
// ctest-weight: 8
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "../support/hosts.hpp"
#include "../support/type_lists.hpp"
#include "trainer_setup.hpp"

namespace {
std::atomic<std::int64_t> heap_calls{0};
}

// Every allocation of this program, C's and C++'s alike: Eigen, for one, calls malloc. The sanitizers have a malloc of their own.
#if defined(__GLIBC__) && !TESSERA_TEST_ASAN && !TESSERA_TEST_TSAN
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  ++heap_calls;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++heap_calls;
  return __libc_calloc(count, bytes);
}
void* realloc(void* pointer, std::size_t bytes) {
  ++heap_calls;
  return __libc_realloc(pointer, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ++heap_calls;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** pointer, std::size_t alignment, std::size_t bytes) {
  *pointer = memalign(alignment, bytes);
  return *pointer == nullptr ? ENOMEM : 0;
}
}
constexpr bool heap_is_counted = true;
#else
constexpr bool heap_is_counted = false;
#endif

namespace {

using namespace tessera;
using namespace tessera_tests;

/// Batches that live side by side.
class held_batches {
 public:
  held_batches(host_exec const& exec, std::vector<std::int64_t> const& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      clicks_.push_back(std::make_unique<click_batches>(small_shape().clicks(70 + i)));
      views_.push_back(clicks_.back()->next(exec, sizes[i]));
    }
  }
  std::vector<batch_view> const& views() const { return views_; }

 private:
  std::vector<std::unique_ptr<click_batches>> clicks_;
  std::vector<batch_view> views_;
};

template <class Store, class Interaction = dot_products, class Rows, class Dense>
void allocates_nothing(host_exec const& exec, Rows const& rows, Dense const& dense, trainer_options const& options = {},
                       int micro_batches = 1) {
  counting_memory upstream;
  arena workspace(upstream);
  auto const step_exec = exec.with_memory(workspace);
  counting_memory own;
  auto const own_exec = exec.with_memory(own);
  small_run<Store, Rows, Dense, Interaction> trained(own_exec, rows, dense, {}, 3, small_shape::features(), options);
  held_batches const batches(exec, {7, 130, 1, 0, 64, 129, 2});
  auto const round = [&] {
    double sum = 0;
    for (auto const& batch : batches.views()) {
      for (int i = 1; i < micro_batches; ++i) trained.run.accumulate(step_exec, batches.views()[static_cast<std::size_t>(i)]);
      sum += trained.run.step(step_exec, batch);
    }
    return sum;
  };
  for (int i = 0; i < 4; ++i) round();
  auto const heap_before = heap_calls.load(), upstream_before = upstream.allocations(), own_before = own.allocations();
  double sum = 0;
  for (int i = 0; i < 5; ++i) sum += round();
  auto const heap_after = heap_calls.load();
  CHECK(heap_after == heap_before);
  CHECK((heap_before > 0) == heap_is_counted);
  CHECK(upstream.allocations() == upstream_before);
  CHECK(own.allocations() == own_before);
  CHECK(std::isfinite(sum));
}

/// The model again, naively and in double: logits of a batch from parameters in the order of `blocks()`, and rows by table.
template <class Interaction>
struct reference_model {
  small_shape shape;
  std::vector<double> dense;              // bottom's, then top's: each layer's weight (out, in) before its bias
  std::vector<std::vector<double>> rows;  // (rows, dim) of each table

  static std::vector<double> layers(std::vector<double> x, std::vector<std::int64_t> const& widths, bool relu_last, double const*& p) {
    for (std::size_t l = 1; l < widths.size(); ++l) {
      auto const out = static_cast<std::size_t>(widths[l]), in = x.size();
      std::vector<double> y(out);
      for (std::size_t o = 0; o < out; ++o) {
        y[o] = p[out * in + o];
        for (std::size_t i = 0; i < in; ++i) y[o] += p[o * in + i] * x[i];
        if ((l + 1 < widths.size() || relu_last) && y[o] < 0) y[o] = 0;
      }
      p += out * in + out;
      x = std::move(y);
    }
    return x;
  }

  static std::int64_t interacted_width(std::int64_t vectors, std::int64_t dim) {
    if constexpr (std::is_same_v<Interaction, dot_products>) return dot_interaction_width(vectors, dim);
    if constexpr (std::is_same_v<Interaction, cross_layers>) return vectors * dim;
    return vectors * (dim - 1);
  }

  static std::vector<double> interact(std::vector<std::vector<double>> const& vectors, double& beside_top, double const*& p) {
    std::vector<double> out;
    auto const product = [](std::vector<double> const& a, std::vector<double> const& b, std::size_t elements) {
      return std::inner_product(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(elements), b.begin(), 0.0);
    };
    if constexpr (std::is_same_v<Interaction, dot_products>) {
      out = vectors[0];
      for (std::size_t i = 1; i < vectors.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) out.push_back(product(vectors[i], vectors[j], vectors[i].size()));
    } else if constexpr (std::is_same_v<Interaction, cross_layers>) {
      for (auto const& v : vectors) out.insert(out.end(), v.begin(), v.end());
      auto const first = out;
      for (std::int64_t l = 0; l < cross_layers::options().layers; ++l) {
        auto const mixed = layers(out, {static_cast<std::int64_t>(out.size()), static_cast<std::int64_t>(out.size())}, false, p);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += first[i] * mixed[i];
      }
    } else {
      for (auto const& v : vectors) {
        out.insert(out.end(), v.begin(), v.end() - 1);
        beside_top += v.back();
      }
      for (std::size_t i = 1; i < vectors.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) beside_top += product(vectors[i], vectors[j], vectors[i].size() - 1);
    }
    return out;
  }

  std::vector<double> logits(batch_view const& batch) const {
    auto const dim = static_cast<std::size_t>(shape.dim);
    auto const features = small_shape::features();
    std::vector<std::int64_t> bottom{shape.dense_features};
    bottom.insert(bottom.end(), shape.bottom.begin(), shape.bottom.end());
    bottom.push_back(shape.dim);
    auto const vectors_count = 1 + static_cast<std::int64_t>(features.size());
    std::vector<std::int64_t> top{interacted_width(vectors_count, shape.dim)};
    top.insert(top.end(), shape.top.begin(), shape.top.end());
    top.push_back(1);
    std::vector<double> result;
    for (std::int64_t s = 0; s < batch.samples(); ++s) {
      auto const* p = dense.data();
      std::vector<std::vector<double>> vectors{
          layers(std::vector<double>(batch.dense.row(s), batch.dense.row(s) + shape.dense_features), bottom, true, p)};
      for (std::size_t f = 0; f < features.size(); ++f) {
        auto const bags = batch.sparse.key(static_cast<std::int64_t>(f));
        auto& pooled = vectors.emplace_back(dim, 0.0);
        for (auto at = bags.begin_of(s); at < bags.end_of(s); ++at)
          for (std::size_t d = 0; d < dim; ++d)
            pooled[d] += rows[static_cast<std::size_t>(features[f].table)][static_cast<std::size_t>(bags.values[at]) * dim + d];
        if (features[f].pooling == pooling::mean && bags.length(s) > 0)
          for (auto& element : pooled) element /= static_cast<double>(bags.length(s));
      }
      double beside_top = 0;
      auto interacted = interact(vectors, beside_top, p);
      result.push_back(layers(std::move(interacted), top, false, p)[0] + beside_top);
    }
    return result;
  }

  double loss(batch_view const& batch) const {
    auto const of = logits(batch);
    double sum = 0;
    for (std::size_t i = 0; i < of.size(); ++i)
      sum += logistic_loss(of[i], static_cast<double>(batch.labels[static_cast<std::int64_t>(i)]));
    return sum / static_cast<double>(of.size());
  }

  double slope(batch_view const& batch, double& parameter) {
    constexpr double step = 1e-6;
    auto const at = std::exchange(parameter, parameter + step);
    auto const above = loss(batch);
    parameter = at - step;
    auto const below = loss(batch);
    parameter = at;
    return (above - below) / (2 * step);
  }
};

template <class Run>
std::vector<std::vector<float>> rows_of(host_exec const& exec, Run& trained, small_shape const& shape) {
  std::vector<std::vector<float>> result;
  for (std::size_t t = 0; t < shape.rows.size(); ++t) {
    auto& rows = result.emplace_back();
    auto& table = trained.table(t);
    for (std::int64_t id = 0; id < shape.rows[t]; ++id) {
      std::int64_t slot = 0;
      table.locate(exec, {&id, 1}, {&slot, 1});
      rows.insert(rows.end(), table.row(slot), table.row(slot) + shape.dim);
    }
  }
  return result;
}

template <class Model>
std::vector<float> dense_of(Model& model) {
  std::vector<float> all;
  for (auto const& group : model.groups()) all.insert(all.end(), group.values.begin(), group.values.end());
  return all;
}

}  // namespace

TEST_CASE_TEMPLATE("a step allocates nothing once batches have stopped growing and ids are known", Store, TESSERA_TEST_STORES) {
  serial_host one;
  pool_host<2> two;
  for (auto const& exec : {one.exec(), two.exec()}) {
    CAPTURE(exec.threads());
    allocates_nothing<Store>(exec, sgd{0.05F}, sgd{0.01F});
    allocates_nothing<Store>(exec, rowwise_adagrad{0.05F}, adam{0.01F});
    allocates_nothing<Store, cross_layers>(exec, sgd{0.05F}, sgd{0.01F});
    allocates_nothing<Store, cross_layers>(exec, sgd{0.05F}, sgd{0.01F}, {.clip_norm = 0.1F});
    allocates_nothing<Store>(exec, rowwise_adagrad{0.05F}, adam{0.01F}, {.clip_norm = 0.1F}, 3);
    allocates_nothing<Store, factorization>(exec, std::variant<adagrad, sgd>(sgd{0.05F}), std::variant<sgd, adam>(adam{0.01F}));
  }
}

#define TESSERA_TEST_MODELS                                                        \
  model_kind<dense_table<>, dot_products>, model_kind<hash_table<>, cross_layers>, \
      model_kind<dense_table<>, factorization> TESSERA_TEST_MORE_TYPES(, model_kind<hash_table<>, dot_products>)

TEST_CASE_TEMPLATE("all gradients are those of the loss", Kind, TESSERA_TEST_MODELS) {
  using Store = typename Kind::store;
  using Interaction = typename Kind::interaction;
  serial_host host;
  auto const exec = host.exec();
  small_shape shape;
  shape.dim = 6;
  shape.bottom = {7};
  shape.top = {9, 5};
  shape.rows = {5, 3, 6};
  sgd const unit_rate{1.0F};
  small_run<Store, sgd, sgd, Interaction> trained(exec, unit_rate, unit_rate, shape);
  auto& model = trained.model;
  // Biases start at 0, where a ReLU has a corner.
  auto const parameters = dense_of(model);
  std::uint32_t draw = 0;
  for (auto* const net : {&model.bottom(), &model.top()})
    for (std::int64_t l = 0; l < net->layers(); ++l)
      for (auto& bias : net->layer(net->parameters(), l).bias) bias = uniform_symmetric(philox(random_seed{8}, draw++, 0, 0)[0], 0.3F);

  auto clicks = shape.clicks();
  auto const batch = clicks.next(exec, 13);
  auto const dense_before = dense_of(model);
  auto const rows_before = rows_of(exec, trained, shape);
  reference_model<Interaction> reference{shape, {dense_before.begin(), dense_before.end()}, {}};
  for (auto const& rows : rows_before) reference.rows.emplace_back(rows.begin(), rows.end());

  typename small_run<Store, sgd, sgd, Interaction>::model_type::saved_type saved;
  auto const logits = model.forward(exec, batch, saved);
  auto const expected_logits = reference.logits(batch);
  for (std::size_t i = 0; i < expected_logits.size(); ++i)
    CHECK(static_cast<double>(logits[static_cast<std::int64_t>(i)]) == doctest::Approx(expected_logits[i]).epsilon(1e-5));
  saved = {};

  CHECK(trained.run.step(exec, batch) == doctest::Approx(reference.loss(batch)).epsilon(1e-6));
  // At a rate of 1 a step subtracts the gradient.
  auto const dense_after = dense_of(model);
  double largest = 0, worst = 0;
  auto const compare = [&](float before, float after, double slope) {
    largest = std::max(largest, std::abs(slope));
    worst = std::max(worst, std::abs(static_cast<double>(before) - static_cast<double>(after) - slope));
  };
  for (std::size_t i = 0; i < dense_before.size(); ++i)
    compare(dense_before[i], dense_after[i], reference.slope(batch, reference.dense[i]));
  CHECK(largest > 0.001);
  CHECK(worst < 1e-6);
  largest = worst = 0;
  auto const rows_after = rows_of(exec, trained, shape);
  for (std::size_t t = 0; t < rows_after.size(); ++t)
    for (std::size_t i = 0; i < rows_after[t].size(); ++i)
      compare(rows_before[t][i], rows_after[t][i], reference.slope(batch, reference.rows[t][i]));
  CHECK(largest > 0.001);
  CHECK(worst < 1e-6);
}

TEST_CASE_TEMPLATE("training lowers the loss", Kind, TESSERA_TEST_MODELS) {
  serial_host host;
  auto const exec = host.exec();
  small_run<typename Kind::store, rowwise_adagrad, adam, typename Kind::interaction> trained(exec, {0.1F}, {0.01F});
  auto clicks = small_shape().clicks();
  double first = 0, last = 0;
  for (int i = 0; i < 200; ++i) {
    auto const batch = clicks.next(exec, 128);
    auto const loss = trained.run.step(exec, batch);
    CHECK(trained.run.logits().size() == 128);
    if (i < 20) first += loss / 20;
    if (i >= 180) last += loss / 20;
  }
  CHECK(first > 0.5);
  CHECK(last < 0.7 * first);
}

TEST_CASE_TEMPLATE("several forwards may be in flight, and go back in any order", Kind, TESSERA_TEST_MODELS) {
  using Store = typename Kind::store;
  using Interaction = typename Kind::interaction;
  serial_host host;
  auto const exec = host.exec();
  sgd const rate{0.1F};
  small_shape const shape;
  held_batches const batches(exec, {40, 25});
  struct outcome {
    std::vector<std::vector<float>> gradients;  // of each batch
    std::vector<std::vector<float>> rows;
  };
  // Forwards of all batches, then backwards of those named, in that order.
  auto const run = [&](std::vector<std::size_t> const& order) {
    small_run<Store, sgd, sgd, Interaction> trained(exec, rate, rate);
    auto& model = trained.model;
    std::vector<typename small_run<Store, sgd, sgd, Interaction>::model_type::saved_type> saved(2);
    std::vector<std::vector<float>> slopes;
    for (std::size_t b = 0; b < 2; ++b) {
      auto const& batch = batches.views()[b];
      auto const logits = model.forward(exec, batch, saved[b]);
      bce_with_logits(exec, logits, batch.labels, slopes.emplace_back(static_cast<std::size_t>(logits.size())));
    }
    outcome result{std::vector<std::vector<float>>(2), {}};
    for (auto const b : order) {
      result.gradients[b].resize(static_cast<std::size_t>(model.parameter_count()));
      model.backward(exec, saved[b], slopes[b], result.gradients[b]);
      model.update_rows(exec, saved[b]);
    }
    result.rows = rows_of(exec, trained, shape);
    return result;
  };
  auto const neither = run({}), a = run({0}), b = run({1}), ab = run({0, 1}), ba = run({1, 0});
  CHECK(ab.gradients[0] == a.gradients[0]);
  CHECK(ab.gradients[1] == b.gradients[1]);
  CHECK(ba.gradients[0] == a.gradients[0]);
  CHECK(ba.gradients[1] == b.gradients[1]);
  std::size_t by_both = 0;
  for (std::size_t t = 0; t < neither.rows.size(); ++t)
    for (std::size_t i = 0; i < neither.rows[t].size(); ++i) {
      auto const start = neither.rows[t][i], of_a = a.rows[t][i], of_b = b.rows[t][i];
      if (of_a == start || of_b == start) {
        auto const expected = of_a == start ? of_b : of_a;
        CHECK(ab.rows[t][i] == expected);
        CHECK(ba.rows[t][i] == expected);
      } else {
        ++by_both;
        auto const sum = static_cast<double>(of_a) + static_cast<double>(of_b) - static_cast<double>(start);
        CHECK(std::abs(static_cast<double>(ab.rows[t][i]) - sum) < 1e-6);
        CHECK(std::abs(static_cast<double>(ba.rows[t][i]) - sum) < 1e-6);
      }
    }
  CHECK(by_both > 100);
}

TEST_CASE("a batch that does not fit the model is refused before anything changes") {
  serial_host host;
  auto const exec = host.exec();
  small_run<hash_table<>, sgd, sgd> trained(exec, {}, {});
  small_shape wide;
  wide.dense_features = 6;
  auto const rows_before = trained.table(0).rows();
  auto clicks = wide.clicks();
  auto const batch = clicks.next(exec, 3);
  CHECK_THROWS_AS(trained.run.step(exec, batch), error);
  CHECK(trained.table(0).rows() == rows_before);
  CHECK(trained.table(0).steps().value == 0);
}

namespace {

/// Every number that a step may change, as differences to the start at rates of 1.
template <class Run>
std::vector<double> change(host_exec const& exec, Run& trained, auto const& steps) {
  auto const all = [&] {
    auto numbers = dense_of(trained.model);
    for (auto const& rows : rows_of(exec, trained, small_shape())) numbers.insert(numbers.end(), rows.begin(), rows.end());
    return numbers;
  };
  auto const before = all();
  steps(trained.run);
  auto const after = all();
  std::vector<double> difference;
  for (std::size_t i = 0; i < before.size(); ++i) difference.push_back(static_cast<double>(after[i]) - static_cast<double>(before[i]));
  return difference;
}

double norm(std::vector<double> const& v) { return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0)); }

double distance(std::vector<double> a, std::vector<double> const& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return norm(a);
}

template <class Kind>
using sgd_run = small_run<typename Kind::store, sgd, sgd, typename Kind::interaction>;
constexpr sgd unit{1.0F};

}  // namespace

TEST_CASE_TEMPLATE("accumulated gradients are the sum of the micro-batches' by their shares, and one step", Kind, TESSERA_TEST_MODELS) {
  serial_host host;
  auto const exec = host.exec();
  held_batches const batches(exec, {40, 25, 13});
  auto const& views = batches.views();
  auto const alone = [&](std::size_t b) {
    sgd_run<Kind> trained(exec, unit, unit);
    return change(exec, trained, [&](auto& run) { run.step(exec, views[b]); });
  };
  auto expected = alone(0);
  auto const second = alone(1), third = alone(2);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 0.5 * expected[i] + 0.3 * second[i] + 0.2 * third[i];
  sgd_run<Kind> trained(exec, unit, unit);
  auto const accumulated = change(exec, trained, [&](auto& run) {
    run.accumulate(exec, views[0], 0.5F);
    CHECK(run.logits().size() == 40);
    run.accumulate(exec, views[1], 0.3F);
    run.accumulate(exec, views[2], 0.2F);
    run.update(exec);
  });
  CHECK(norm(expected) > 0.02);
  CHECK(distance(accumulated, expected) < 1e-5 * norm(expected));
  for (std::size_t t = 0; t < 3; ++t) CHECK(trained.table(t).steps().value == 1);
  for (auto const& state : trained.run.dense_states()) CHECK(state.state->steps().value == 1);
  // What has been used is gone: nothing to update with, and the next step is its batch's alone.
  CHECK(norm(change(exec, trained, [&](auto& run) { run.update(exec); })) == 0);
  CHECK(trained.table(0).steps().value == 1);
}

TEST_CASE_TEMPLATE("a step in two halves is the same bits", Kind, TESSERA_TEST_MODELS) {
  serial_host host;
  auto const exec = host.exec();
  held_batches const batches(exec, {40, 25, 13});
  sgd_run<Kind> at_once(exec, unit, unit), in_halves(exec, unit, unit);
  for (auto const& batch : batches.views()) {
    auto const loss = at_once.run.step(exec, batch);
    CHECK(in_halves.run.accumulate(exec, batch) == loss);
    in_halves.run.update(exec);
  }
  CHECK(dense_of(in_halves.model) == dense_of(at_once.model));
  CHECK(rows_of(exec, in_halves, small_shape()) == rows_of(exec, at_once, small_shape()));
}

TEST_CASE_TEMPLATE("gradients of dense parameters and rows together are clipped to a norm", Kind, TESSERA_TEST_MODELS) {
  serial_host host;
  auto const exec = host.exec();
  held_batches const batches(exec, {64});
  auto const of = [&](float clip_norm) {
    sgd_run<Kind> trained(exec, unit, unit, {}, 3, small_shape::features(), {.clip_norm = clip_norm});
    return change(exec, trained, [&](auto& run) { run.step(exec, batches.views()[0]); });
  };
  auto const whole = of(0);
  CHECK(norm(whole) > 0.02);
  CHECK(of(1000) == whole);
  auto const limit = norm(whole) / 3;
  auto const clipped = of(static_cast<float>(limit));
  CHECK(norm(clipped) == doctest::Approx(limit).epsilon(1e-4));
  auto third = whole;
  for (auto& x : third) x /= 3;
  CHECK(distance(clipped, third) < 1e-4 * limit);
  CHECK_THROWS_AS(of(-1), error);
  CHECK_THROWS_AS(of(std::numeric_limits<float>::quiet_NaN()), error);
}

TEST_CASE_TEMPLATE("each table has a rate of its own, which may change between steps", Store, TESSERA_TEST_STORES) {
  serial_host host;
  auto const exec = host.exec();
  held_batches const batches(exec, {64});
  using choice = std::variant<adagrad, sgd>;
  auto const rows_after = [&](auto const& optimizer, std::vector<float> const& rates) {
    small_run<Store, std::remove_cvref_t<decltype(optimizer)>, sgd> trained(exec, optimizer, unit);
    auto& source = trained.model.source();
    REQUIRE(source.table_count() == 3);
    for (std::size_t t = 0; t < rates.size(); ++t)
      with_optimizer(optimizer, [&]<class Chosen>(Chosen const&) {
        set_learning_rate(source.template optimizer<Chosen>(static_cast<std::int64_t>(t)), rates[t]);
      });
    trained.run.step(exec, batches.views()[0]);
    return rows_of(exec, trained, small_shape());
  };
  auto const still = rows_after(sgd{0.5F}, {0, 0, 0}), same = rows_after(sgd{0.5F}, {}), each = rows_after(sgd{0.5F}, {0.5F, 0, 1});
  CHECK(same[0] != still[0]);
  CHECK(each[0] == same[0]);
  CHECK(each[1] == still[1]);
  double worst = 0;
  for (std::size_t i = 0; i < still[2].size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(each[2][i] - still[2][i]) - 2 * static_cast<double>(same[2][i] - still[2][i])));
  CHECK(worst < 1e-6);
  CHECK(rows_after(choice(sgd{0.5F}), {0.5F, 0, 1}) == each);
}

TEST_CASE_TEMPLATE("options with which nothing is learned are refused, and nothing has changed", Kind, TESSERA_TEST_MODELS) {
  serial_host host;
  auto const exec = host.exec();
  held_batches const batches(exec, {20});
  auto const& batch = batches.views()[0];
  sgd_run<Kind> trained(exec, unit, unit);
  using run = trainer<typename sgd_run<Kind>::model_type, sgd>;
  auto const nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(run(exec, trained.model, sgd{nan}), error);

  trained.run.step(exec, batch);  // ids have rows
  auto const steps = trained.table(0).steps();
  auto const refused = [&] {
    CHECK(norm(change(exec, trained, [&](auto& r) {
            CHECK_THROWS_AS(r.step(exec, batch), error);
            r.accumulate(exec, batch);
            CHECK_THROWS_AS(r.update(exec), error);
          })) == 0);
    CHECK(trained.run.accumulated() > 0);
    CHECK(trained.table(0).steps() == steps);
  };
  trained.run.dense_optimizer().learning_rate = nan;
  refused();
  trained.run.dense_optimizer().learning_rate = 1;
  auto& of_rows = trained.model.source().template optimizer<sgd>(2);
  of_rows.learning_rate = -1;
  refused();
  of_rows.learning_rate = 1;
  CHECK(norm(change(exec, trained, [&](auto& r) { r.update(exec); })) > 0);

  for (float const share : {nan, -0.5F, std::numeric_limits<float>::infinity()}) {
    try {
      trained.run.accumulate(exec, batch, share);
      FAIL("a share was taken: ", share);
    } catch (error const& e) {
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.value("share") == error_value("", share).value);
    }
  }
  CHECK(trained.run.accumulated() == 0);
}

TEST_CASE_TEMPLATE("a sample counts by its weight", Kind, TESSERA_TEST_MODELS) {
  serial_host host;
  auto const exec = host.exec();
  held_batches const batches(exec, {40});
  auto batch = batches.views()[0];
  std::vector<float> labels(batch.labels.begin(), batch.labels.end()), weights(40, 2.0F);
  auto const of = [&](vector_view<float const> with) {
    batch.labels = labels;
    batch.weights = with;
    sgd_run<Kind> trained(exec, unit, unit);
    return change(exec, trained, [&](auto& run) { run.step(exec, batch); });
  };
  auto const unweighted = of({});
  CHECK(distance(of(weights), unweighted) < 1e-5 * norm(unweighted));
  for (std::size_t i = 0; i < 40; i += 3) weights[i] = 0;
  auto const some = of(weights);
  CHECK(distance(some, unweighted) > 0.01 * norm(unweighted));
  for (std::size_t i = 0; i < 40; i += 3) labels[i] = 1 - labels[i];
  CHECK(of(weights) == some);
}
