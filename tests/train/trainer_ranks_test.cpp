// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

namespace trainer_ranks_test {

namespace {

using tessera_tests::serial_host;

constexpr std::int64_t features = 6;

// Batches of dense features alone, so that all parameters are those of the dense net.
struct dense_batches {
  struct batch {
    std::vector<float> dense, labels, weights;
  };
  std::vector<batch> all;

  dense_batches(std::mt19937_64& random, std::int64_t samples, int count) {
    for (int b = 0; b < count; ++b) {
      auto& one = all.emplace_back();
      one.dense = tessera_tests::random_floats(random, static_cast<std::size_t>(samples * features));
      for (std::int64_t i = 0; i < samples; ++i) {
        one.labels.push_back(random() % 3 == 0 ? 1.0F : 0.0F);
        one.weights.push_back(static_cast<float>(random() % 4));
      }
    }
  }
  std::int64_t samples() const { return static_cast<std::int64_t>(all[0].labels.size()); }
  // Samples [first, last) of a batch.
  tessera::batch_view part(int b, std::int64_t first, std::int64_t last) const {
    auto const& one = all[static_cast<std::size_t>(b)];
    tessera::batch_view view;
    view.dense = {one.dense.data() + first * features, last - first, features};
    view.labels = {one.labels.data() + first, last - first};
    view.weights = {one.weights.data() + first, last - first};
    return view;
  }
};

using model_type = tessera::dlrm<tessera::local_tables, tessera::eigen_gemm>;

model_type make_model(tessera::host_exec const& exec, std::uint64_t seed) {
  return {exec,
          {.dense_features = features, .bottom_hidden = {16}, .top_hidden = {8}, .seed = tessera::random_seed{seed}, .dim = 12},
          {tessera::table_list(), {}}};
}

std::vector<float> parameters_of(model_type& model) {
  std::vector<float> all;
  for (auto const& group : model.groups()) all.insert(all.end(), group.values.begin(), group.values.end());
  return all;
}

struct trained {
  std::vector<double> losses;
  std::vector<float> parameters;
};

// Trains on samples [bounds[rank], bounds[rank + 1]) of every batch, in micro-batches where there are several.
trained train(std::optional<tessera::any_communicator> comm, dense_batches const& batches, std::vector<std::int64_t> const& bounds,
              float clip_norm, bool in_two) {
  serial_host host;
  auto const exec = host.exec();
  auto model = make_model(exec, 5);
  tessera::trainer trainer(exec, model, tessera::adam{.learning_rate = 0.01F, .epsilon = 1e-3F}, {.clip_norm = clip_norm, .comm = comm});
  auto const rank = static_cast<std::size_t>(comm ? comm->rank() : 0);
  auto const first = comm ? bounds[rank] : 0, last = comm ? bounds[rank + 1] : batches.samples();
  trained result;
  for (int b = 0; b < static_cast<int>(batches.all.size()); ++b) {
    if (in_two) {
      auto const middle = first + (last - first) / 2;
      auto const loss = trainer.accumulate(exec, batches.part(b, first, middle), 0.5F);
      result.losses.push_back((loss + trainer.accumulate(exec, batches.part(b, middle, last), 0.5F)) / 2);
      trainer.update(exec);
    } else {
      result.losses.push_back(trainer.step(exec, batches.part(b, first, last)));
    }
  }
  result.parameters = parameters_of(model);
  return result;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("trainer: ranks with parts of every batch train as one process, and hold the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  dense_batches const batches(random, 96, 12);
  for (float const clip_norm : {0.0F, 0.05F}) {
    CAPTURE(clip_norm);
    auto const alone = train({}, batches, {}, clip_norm, false);

    // One rank is the same process, bit for bit, where nothing is clipped.
    auto const one = train(tessera::any_communicator(tessera::self_communicator()), batches, {0, 96}, clip_norm, false);
    if (clip_norm == 0) {
      CHECK(one.losses == alone.losses);
      CHECK(same_bits(one.parameters, alone.parameters));
    }

    for (auto const& bounds : {std::vector<std::int64_t>{0, 96}, {0, 48, 96}, {0, 10, 10, 90, 96}, {0, 0, 0, 96}}) {
      auto const ranks = static_cast<int>(bounds.size()) - 1;
      CAPTURE(ranks);
      std::vector<trained> of_rank(static_cast<std::size_t>(ranks));
      tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
        of_rank[static_cast<std::size_t>(comm.rank())] = train(tessera::any_communicator(comm), batches, bounds, clip_norm, false);
      });
      for (auto const& r : of_rank) {
        CHECK(r.losses == of_rank[0].losses);
        CHECK(same_bits(r.parameters, of_rank[0].parameters));
      }
      for (std::size_t i = 0; i < alone.losses.size(); ++i) CHECK(std::fabs(of_rank[0].losses[i] - alone.losses[i]) < 1e-4);
      // Where a rounding puts a hidden unit on the other side of 0, Adam moves its weights by up to a tenth of a step.
      double worst = 0, mean = 0;
      for (std::size_t i = 0; i < alone.parameters.size(); ++i) {
        auto const difference = std::fabs(static_cast<double>(of_rank[0].parameters[i]) - static_cast<double>(alone.parameters[i]));
        worst = std::max(worst, difference);
        mean += difference / static_cast<double>(alone.parameters.size());
      }
      CHECK(worst < 5e-3);
      CHECK(mean < 2e-4);
    }
  }
}

TEST_CASE("trainer: ranks that accumulate micro-batches hold the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  dense_batches const batches(random, 40, 4);
  std::vector<trained> of_rank(3);
  tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
    of_rank[static_cast<std::size_t>(comm.rank())] = train(tessera::any_communicator(comm), batches, {0, 12, 12, 40}, 0.05F, true);
  });
  for (auto const& r : of_rank) {
    CHECK(r.losses == of_rank[0].losses);
    CHECK(same_bits(r.parameters, of_rank[0].parameters));
  }
}

TEST_CASE("trainer: ranks that start from other parameters are refused, and bad weights on one rank stop all") {
  std::vector<std::string> said(3);
  try {
    tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
      serial_host host;
      auto model = make_model(host.exec(), comm.rank() == 2 ? 6 : 5);
      try {
        tessera::trainer const trainer(host.exec(), model, tessera::adam{}, {.comm = tessera::any_communicator(comm)});
      } catch (tessera::error const& e) {
        said[static_cast<std::size_t>(comm.rank())] = e.what();
      }
    });
  } catch (tessera::error const&) {
  }
  CHECK(said[2].find("dense parameters are not those of rank 0 (rank 2, group ") != std::string::npos);
  CHECK(said[0].find("another rank failed (rank 2, operation trainer: the same parameters") != std::string::npos);
  CHECK(said[1] == said[0]);

  std::mt19937_64 random(7);
  dense_batches batches(random, 30, 2);
  batches.all[0].weights[12] = 1;  // its label counts
  for (bool const is_label : {false, true}) {
    std::vector<std::vector<float>> parameters(3);
    said.assign(3, "");
    std::vector<serial_host> hosts(3);
    tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
      auto const rank = static_cast<std::size_t>(comm.rank());
      auto const exec = hosts[rank].exec();
      auto model = make_model(exec, 5);
      tessera::trainer trainer(exec, model, tessera::adam{}, {.comm = tessera::any_communicator(comm)});
      auto own = batches;
      if (rank == 1) (is_label ? own.all[0].labels : own.all[0].weights)[12] = is_label ? 2.0F : -1.0F;
      auto const first = comm.rank() * std::int64_t{10};
      try {
        trainer.step(exec, own.part(0, first, first + 10));
      } catch (tessera::error const& e) {
        said[rank] = e.what();
      }
      trainer.step(exec, own.part(1, first, first + 10));  // the next batch is good
      parameters[rank] = parameters_of(model);
    });
    CHECK(said[1].find("position 2") != std::string::npos);
    CHECK(said[0].find("another rank failed (rank 1, operation weight of a batch") != std::string::npos);
    CHECK(said[2] == said[0]);
    CHECK(same_bits(parameters[0], parameters[1]));
    CHECK(same_bits(parameters[0], parameters[2]));
  }
}

TEST_CASE("trainer: ranks whose parts of a batch are of different classes are refused on all ranks, and go on") {
  std::mt19937_64 random(3);
  dense_batches const batches(random, 30, 2);
  std::vector<std::string> said(3);
  std::vector<std::vector<float>> parameters(3);
  std::vector<serial_host> hosts(3);
  tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto const exec = hosts[rank].exec();
    auto model = make_model(exec, 5);
    tessera::trainer trainer(exec, model, tessera::adam{}, {.comm = tessera::any_communicator(comm)});
    auto const first = comm.rank() * std::int64_t{10};
    auto part = batches.part(0, first, first + 10);
    part.kind = comm.rank() == 1 ? tessera::batch_class::cold : tessera::batch_class::hot;
    try {
      trainer.step(exec, part);
    } catch (tessera::error const& e) {
      said[rank] = e.what();
    }
    part.kind = tessera::batch_class::cold;
    trainer.step(exec, part);
    parameters[rank] = parameters_of(model);
  });
  for (auto const& one : said)
    CHECK(one.find("the ranks' parts of a batch are of different classes (rank 1, class cold, class on rank 0 hot)") != std::string::npos);
  CHECK(same_bits(parameters[0], parameters[1]));
  CHECK(same_bits(parameters[0], parameters[2]));
}

}  // namespace trainer_ranks_test
