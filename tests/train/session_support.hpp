// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "../support/differences.hpp"
#include "../support/random.hpp"

namespace tessera_tests {

/// Ids of the batches below are smaller.
inline constexpr std::int64_t session_ids = 40;
/// Of the tables that the models of these tests have.
inline constexpr std::int64_t session_dim = 8;

/// Samples in sessions, of three dense features and six keys: keys 0 and 1 keep their lists together for some samples, key 2 and one more key
/// each by itself; the others change.
struct session_batch {
  std::vector<float> dense, labels;
  std::vector<std::int64_t> sample_ids;
  std::vector<tessera::feature_rows<>> lists;
  tessera::keyed_jagged<> rows;

  session_batch(tessera::host_exec const& exec, std::mt19937_64& random, std::int64_t samples, std::size_t also_stays) {
    dense = random_floats(random, static_cast<std::size_t>(samples * 3));
    std::vector<bool> stays;
    for (std::int64_t i = 0; i < 3 * samples; ++i) stays.push_back(random() % 4 != 0);
    for (std::size_t key = 0; key < 6; ++key) {
      std::vector<std::vector<std::int64_t>> of_key;
      auto const group = key < 2 ? 0U : key == 2 ? 1U : key == also_stays ? 2U : 3U;
      for (std::int64_t i = 0; i < samples; ++i)
        if (i > 0 && group < 3 && stays[static_cast<std::size_t>(3 * i) + group])
          of_key.push_back(of_key.back());
        else
          of_key.push_back(random_integers<std::int64_t>(random, i == 0 ? 3 : random() % 5, 0, session_ids - 1));
      lists.emplace_back("key " + std::to_string(key), std::move(of_key));
    }
    for (std::int64_t i = 0; i < samples; ++i) {
      auto const& last = lists[5].rows[static_cast<std::size_t>(i)];
      labels.push_back(!last.empty() && last[0] % 2 == 0 ? 1.0F : 0.0F);
      sample_ids.push_back(i);
    }
    rows = tessera::keyed_jagged<>::from_rows(exec, lists);
  }

  tessera::batch_view plain() const {
    return {{dense.data(), static_cast<std::int64_t>(labels.size()), 3}, labels, rows.view(), sample_ids};
  }
  tessera::batch_view with(tessera::inverse_keyed_jagged<> const& features) const {
    auto batch = plain();
    auto const view = features.view();
    batch.sparse = view.distinct;
    batch.groups = view.groups;
    return batch;
  }
};

/// Compares a model's gradients with differences of its loss, block by block. A ReLU or a maximum may have its corner on one side, so that the
/// other side's difference counts, and seldom on both, so that shorter steps are tried.
template <class Loss>
class difference_check {
 public:
  explicit difference_check(Loss const& loss) : loss_(loss) {}

  void operator()(float& x, float found) {
    ++looked_at_;
    far_ += !agrees(x, found, 2e-3F) && !agrees(x, found, 7e-4F) && !agrees(x, found, 2.5e-4F);
  }
  /// At the end of a block.
  void conclude() {
    CAPTURE(looked_at_);
    CHECK(far_ <= 1 + looked_at_ / 8);
    far_ = looked_at_ = 0;
  }

  /// All dense parameters of a small group, every fifth of others, and an element of each row that the gradients name: a block each group and
  /// table.
  template <class Model, class Rows>
  void check_model(Model& model, std::vector<float> const& gradient, Rows const& of_rows) {
    std::size_t next = 0;
    for (auto const& group : model.groups()) {
      auto const stride = group.values.size() < 200 ? 1 : 5;
      for (std::int64_t i = 0; i < group.values.size(); ++i, ++next)
        if (i % stride == 0) (*this)(group.values[i], gradient[next]);
      conclude();
    }
    CHECK(next == gradient.size());
    for (std::int64_t t = 0; t < of_rows.tables(); ++t) {
      CHECK(of_rows.rows(t) > 0);
      for (std::int64_t r = 0; r < of_rows.rows(t); ++r) {
        auto const column = r % of_rows.values(t).columns();
        (*this)(model.source().template store<tessera::dense_table<>>(t).row(of_rows.slots(t)[r])[column], of_rows.values(t)(r, column));
      }
      conclude();
    }
  }

 private:
  bool agrees(float& x, float found, float step) const {
    float const before = x;
    auto const here = loss_();
    x = before + step;
    auto const right = (loss_() - here) / static_cast<double>(x - before);
    x = before - step;
    auto const left = (here - loss_()) / static_cast<double>(before - x);
    x = before;
    auto const near = [&](double expected) { return std::abs(static_cast<double>(found) - expected) <= 0.02 * std::abs(expected) + 0.003; };
    return near((left + right) / 2) || near(left) || near(right);
  }

  Loss const& loss_;
  int far_ = 0, looked_at_ = 0;
};

/// A model's gradients on a batch against finite differences of a weighted sum of its logits, `weight` (samples,).
template <class Exec, class Model>
void check_gradients(Exec const& exec, Model& model, tessera::batch_view const& batch, std::vector<float> const& weight) {
  auto const loss = [&] {
    typename Model::saved_type local;
    auto const logits = model.predict(exec, batch, local);
    double sum = 0;
    for (std::size_t i = 0; i < weight.size(); ++i)
      sum += static_cast<double>(weight[i]) * static_cast<double>(logits[static_cast<std::int64_t>(i)]);
    return sum;
  };
  typename Model::saved_type saved;
  model.forward(exec, batch, saved);
  auto slopes = weight;
  std::vector<float> gradient(static_cast<std::size_t>(model.parameter_count()));
  model.backward(exec, saved, slopes, gradient);
  tessera::row_gradients of_rows;
  model.gradients_of_rows(exec, saved, of_rows);
  difference_check check(loss);
  check.check_model(model, gradient, of_rows);
}

}  // namespace tessera_tests
