// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 2
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/train/evaluation.hpp>

#include "../support/hosts.hpp"
#include "../support/type_lists.hpp"
#include "trainer_setup.hpp"

namespace evaluation_test {

namespace {

using namespace tessera;
using namespace tessera_tests;

/// Batches in memory: an epoch of them, again and again.
class batch_list {
 public:
  batch_list(host_exec const& exec, std::vector<std::int64_t> const& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      held_.push_back(std::make_unique<click_batches>(small_shape().clicks(50 + i)));
      batches_.push_back(held_.back()->next(exec, sizes[i]));
    }
  }
  bool next(host_exec const&, batch_view& out) {
    if (at_ == batches_.size()) {
      at_ = 0;
      return false;
    }
    out = batches_[at_++];
    return true;
  }
  std::vector<batch_view> const& batches() const { return batches_; }

 private:
  std::vector<std::unique_ptr<click_batches>> held_;
  std::vector<batch_view> batches_;
  std::size_t at_ = 0;
};

double naive_auc(std::vector<float> const& scores, std::vector<float> const& labels) {
  double won = 0, pairs = 0;
  for (std::size_t p = 0; p < scores.size(); ++p)
    for (std::size_t n = 0; n < scores.size(); ++n)
      if (labels[p] == 1 && labels[n] == 0) {
        won += scores[p] > scores[n] ? 1 : scores[p] == scores[n] ? 0.5 : 0;
        ++pairs;
      }
  return won / pairs;
}

}  // namespace

TEST_CASE_TEMPLATE("an evaluation is that of the predictions, and changes nothing", Store, TESSERA_TEST_STORES) {
  std::vector<float> first_logits;
  for_each_host([&](host_exec const& exec, counting_memory&) {
    small_run<Store, rowwise_adagrad, adam> trained(exec, {0.05F}, {0.01F});
    trained.train(exec, 0, 3);
    std::vector<std::int64_t> rows_before;
    for (std::size_t t = 0; t < 3; ++t) rows_before.push_back(trained.table(t).rows());
    auto const parameters_before = std::vector<float>(trained.model.top().parameters().begin(), trained.model.top().parameters().end());

    batch_list reader(exec, {30, 1, 64});
    std::vector<float> logits, labels;
    std::size_t seen = 0;
    auto const result = evaluate(exec, trained.model, reader, [&](batch_view const& batch, vector_view<float const> of_batch) {
      CHECK(batch.labels.data() == reader.batches()[seen].labels.data());
      ++seen;
      REQUIRE(of_batch.size() == batch.samples());
      logits.insert(logits.end(), of_batch.begin(), of_batch.end());
      labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
    });
    CHECK(seen == 3);
    CHECK(result.auc.samples() == 95);
    CHECK(result.clicks.samples() == 95);
    CHECK(result.auc.value(exec) == doctest::Approx(naive_auc(logits, labels)).epsilon(1e-12));
    double loss = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      auto const p = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
      loss -= std::log(labels[i] == 1 ? p : 1 - p) / 95;
    }
    CHECK(result.clicks.log_loss() == doctest::Approx(loss).epsilon(1e-9));

    // The reader stands at its next epoch, and a second evaluation gives the same.
    auto const again = evaluate(exec, trained.model, reader);
    CHECK(again.auc.value(exec) == result.auc.value(exec));
    CHECK(again.clicks.log_loss() == result.clicks.log_loss());

    for (std::size_t t = 0; t < rows_before.size(); ++t) CHECK(trained.table(t).rows() == rows_before[t]);
    CHECK(std::vector<float>(trained.model.top().parameters().begin(), trained.model.top().parameters().end()) == parameters_before);
    if (first_logits.empty()) first_logits = logits;
    CHECK(logits == first_logits);  // whatever the number of threads
  });
}

TEST_CASE("predictions that are no numbers are shown before they are refused") {
  serial_host host;
  auto const exec = host.exec();
  small_run<dense_table<>, rowwise_adagrad, adam> diverged(exec, {0.05F}, {0.01F});
  for (auto& parameter : diverged.model.top().parameters()) parameter = std::numeric_limits<float>::quiet_NaN();
  batch_list reader(exec, {30, 1});
  int seen = 0;
  CHECK_THROWS_WITH_AS(evaluate(exec, diverged.model, reader, [&](batch_view const&, vector_view<float const>) { ++seen; }),
                       doctest::Contains("a score is not a number"), error);
  CHECK(seen == 1);
}

TEST_CASE("parts of a data set are added or merged to the whole") {
  serial_host host;
  auto const exec = host.exec();
  std::vector<float> const logits{-2, 0.5F, 1, -0.25F, 3}, labels{0, 0, 1, 1, 1};
  auto const part = [&](std::int64_t first, std::int64_t last) {
    evaluation result;
    result.add(exec, vector_view<float const>(logits).slice(first, last - first),
               vector_view<float const>(labels).slice(first, last - first));
    return result;
  };
  auto const whole = part(0, 5);
  auto merged = part(0, 2);
  auto const rest = part(2, 5);
  merged.auc.merge(rest.auc);
  merged.clicks.merge(rest.clicks);
  CHECK(merged.auc.value(exec) == whole.auc.value(exec));
  CHECK(merged.clicks.log_loss() == doctest::Approx(whole.clicks.log_loss()));
  CHECK(whole.auc.value(exec) == doctest::Approx(5.0 / 6));
}

TEST_CASE("a data set of one label has no AUC, and an empty one no figures") {
  serial_host host;
  auto const exec = host.exec();
  evaluation none;
  CHECK(std::isnan(none.auc.value(exec)));
  CHECK(std::isnan(none.clicks.log_loss()));
  none.add(exec, std::vector<float>{1, 2}, std::vector<float>{0, 0});
  CHECK(std::isnan(none.auc.value(exec)));
  CHECK(std::isnan(none.clicks.normalised_entropy()));
  CHECK(std::isfinite(none.clicks.log_loss()));
}

TEST_CASE("samples that are refused leave an evaluation as it was") {
  serial_host host;
  auto const exec = host.exec();
  evaluation found;
  found.add(exec, std::vector<float>{1, -2}, std::vector<float>{1, 0});
  auto const loss = found.clicks.log_loss();
  std::vector<std::pair<std::vector<float>, std::vector<float>>> const refused{
      {{1, std::numeric_limits<float>::infinity()}, {0, 1}}, {{1, std::nanf("")}, {0, 1}}, {{1, 2}, {0, 0.5F}}, {{1, 2}, {0}}};
  for (auto const& [logits, labels] : refused) {
    CHECK_THROWS_AS(found.add(exec, logits, labels), error);
    CHECK(found.samples() == 2);
    CHECK(found.auc.samples() == 2);
    CHECK(found.clicks.log_loss() == loss);
  }
}

}  // namespace evaluation_test
