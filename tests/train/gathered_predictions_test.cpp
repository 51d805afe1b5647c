// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/train/evaluation.hpp>
#include <tessera/train/gathered_predictions.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "../support/temporary_folder.hpp"

namespace gathered_predictions_test {

namespace {

using tessera::batch_view;
using tessera::host_exec;
using tessera::vector_view;

// What a model would predict stands in the one dense feature.
struct known_model {
  struct saved_type {
    std::vector<float> logits;
  };
  vector_view<float const> predict(host_exec const&, batch_view const& batch, saved_type& saved) const {
    saved.logits.assign(batch.dense.data(), batch.dense.data() + batch.samples());
    return saved.logits;
  }
};

// Batches of some samples, of which it gives a slice.
struct sample_list {
  std::vector<float> logits, labels;
  std::vector<std::int64_t> ids;
  std::int64_t batch_size;
  tessera::batch_slice slice{};
  std::int64_t at = 0;

  bool next(host_exec const&, batch_view& out) {
    auto const all = static_cast<std::int64_t>(logits.size());
    if (at == all) return false;
    auto const size = std::min(batch_size, all - at), first = at + slice.first(size), mine = slice.size(size);
    out = {};
    out.dense = {logits.data() + first, mine, 1};
    out.labels = {labels.data() + first, mine};
    out.sample_ids = {ids.data() + first, mine};
    at += size;
    return true;
  }
};

sample_list draw(std::mt19937_64& random, std::int64_t samples, std::int64_t batch_size) {
  sample_list list;
  list.batch_size = batch_size;
  list.logits = tessera_tests::random_floats(random, static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i) {
    list.labels.push_back(random() % 3 == 0 ? 1.0F : 0.0F);
    list.ids.push_back(static_cast<std::int64_t>(random() % 1000));
  }
  return list;
}

}  // namespace

TEST_CASE("ranks evaluate their slices to the bits of one process, and each sees all samples in their order") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : {1, 2, 3, 5}) {
    auto const whole = draw(random, 83, 10);
    std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
    auto alone = whole;
    auto const expected = tessera::evaluate(hosts[0].exec(), known_model(), alone);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const exec = hosts[static_cast<std::size_t>(comm.rank())].exec();
      tessera::any_communicator any(comm);
      auto mine = whole;
      mine.slice = {comm.rank(), ranks};
      std::vector<float> logits, labels;
      std::vector<std::int64_t> ids;
      auto const found = tessera::evaluate(exec, any, known_model(), mine, [&](batch_view const& batch, vector_view<float const> of_batch) {
        logits.insert(logits.end(), of_batch.begin(), of_batch.end());
        labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
        ids.insert(ids.end(), batch.sample_ids.begin(), batch.sample_ids.end());
      });
      CHECK(logits == whole.logits);
      CHECK(labels == whole.labels);
      CHECK(ids == whole.ids);
      CHECK(found.samples() == 83);
      CHECK(found.auc.value(exec) == expected.auc.value(exec));
      CHECK(found.clicks.log_loss() == expected.clicks.log_loss());
    });
  }
}

TEST_CASE("predictions that are no whole batch are refused, and samples without ids have none") {
  tessera_tests::serial_host host;
  tessera::any_communicator comm(tessera::self_communicator{});
  std::vector<float> const labels{1, 0}, logits{0.5F, -0.5F, 1};
  batch_view part;
  part.labels = labels;
  tessera::gathered_predictions all;
  auto const e = tessera_tests::error_of([&] { all.gather(host.exec(), comm, part, logits); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("labels") == "2");
  all.gather(host.exec(), comm, part, vector_view<float const>(logits).slice(0, 2));
  CHECK(all.batch().sample_ids[0] == -1);
  CHECK(all.logits().size() == 2);
}

}  // namespace gathered_predictions_test
