// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "id_pipeline_suite.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

using namespace tensor_tests;

TEST_CASE_TEMPLATE("id_pipeline", Host, TESSERA_TEST_HOSTS) {
  Host host;
  id_pipeline_suite(rows_on_host{host.exec()});
}

TEST_CASE("a function is called once for each id of the distinct rows") {
  for_each_session_batch([](tessera::host_exec const& exec, model const& content, ids const& keys_per_group, auto&) {
    auto const batch = batch_of<std::int64_t>(exec, content);
    auto const made = tessera::deduplicate(exec, batch.view(), keys_per_group);
    std::atomic<std::int64_t> calls = 0;
    auto const counted = [&](std::int64_t id) {
      ++calls;
      return id + 1;
    };
    tessera::id_pipeline const pipeline(exec, names_of(content.size()), counted);
    (void)pipeline(exec, made.view());
    CHECK(calls == made.view().distinct.size());
    calls = 0;
    (void)pipeline(exec, batch.view());
    CHECK(calls == batch.view().size());
    calls = 0;
    auto copy = pipeline(exec, made.view());
    CHECK(calls.exchange(0) == copy.view().distinct.size());
    tessera::transform_ids(exec, copy.view(), counted);
    CHECK(calls == copy.view().distinct.size());
    CHECK(model_of(copy.view()).distinct == id_pipeline_tests::replaced(naive_deduplicate(content, keys_per_group).distinct,
                                                                        [](std::size_t, std::int64_t id) { return id + 2; }));
  });
}

TEST_CASE("transform_ids: functions of ids, and of keys and ids, on every kind of batch") {
  tessera_tests::for_each_host([](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for_each_batch_of(rows_on_host{exec}, [&](auto view, auto, model const& content, auto&) {
      auto batch = tessera::concat_keys(exec, std::vector{view});
      tessera::transform_ids(exec, batch.view(), [](std::int64_t key, std::int64_t id) { return 7 * id + key; });
      tessera::transform_ids(exec, batch.view(), id_pipeline_tests::plus_one{});
      CHECK(model_of(batch.view()) == id_pipeline_tests::replaced(content, [](std::size_t key, std::int64_t id) {
              return 7 * id + static_cast<std::int64_t>(key) + 1;
            }));
    });
  });
}

TEST_CASE("steps may be any function, and a transform of one's own") {
  struct by_salt {
    auto of_key(tessera::transformed_key key) const {
      return [key](std::int64_t id) { return id + key.number + (key.salt == tessera::salt_of("b") ? 100 : 0); };
    }
  };
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}}}, {"b", {{1}}}, {"c", {{1}}}});
  std::function<std::int64_t(std::int64_t)> const twice = [](std::int64_t id) { return 2 * id; };
  tessera::id_pipeline pipeline(host.exec(), batch.keys(), tessera::on_keys({"c", "b"}, by_salt{}), twice);
  CHECK(text(tessera::id_pipeline(host.exec(), batch.keys(), [](std::int64_t key, auto id) { return id + key; })(host.exec(), batch)) ==
        "{a: [[1]], b: [[2]], c: [[3]]}");
  auto const moved = std::move(pipeline);
  CHECK(text(moved(host.exec(), batch)) == "{a: [[2]], b: [[204]], c: [[2]]}");
}

TEST_CASE("nothing but the result is kept, and steps of functions allocate no second batch") {
  tessera_tests::serial_host host;
  auto batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {ids(1000, 3)}}});
  tessera::id_pipeline const pipeline(host.exec(), batch.keys(), tessera::hash_ids{.size = 100}, tessera::clip_ids{.most = 50});
  auto const before = host.memory().peak_bytes();
  auto const held = host.memory().live_pieces();
  batch = pipeline(host.exec(), std::move(batch));
  CHECK(host.memory().peak_bytes() < before + 1000);
  CHECK(host.memory().live_pieces() == held);
}
