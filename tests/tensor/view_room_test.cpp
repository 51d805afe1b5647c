// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/concat_vectors.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/expand_rows.hpp>
#include <tessera/tensor/id_pipeline.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tensor/jagged_products.hpp>
#include <tessera/tensor/jagged_softmax.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/padded.hpp>
#include <tessera/tensor/padded_vectors.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/pool_segments.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/select_vectors.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/transform_ids.hpp>
#include <tessera/tensor/truncate_rows.hpp>
#include <tessera/tensor/vector_arithmetic.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"

namespace {

using tessera::host_exec;

constexpr auto same_id = [](std::int64_t id) { return id; };

/// A batch of as many rows a key, of whose values only the first `room` are there, in memory of just that size: what reads past them is seen
/// by an address sanitizer.
struct cut_batch {
  std::int64_t keys, samples, room;
  std::vector<std::int64_t> first_row{0}, offsets{0}, zeros, ones;
  std::unique_ptr<std::int64_t[]> values;
  std::unique_ptr<float[]> weights;

  cut_batch(std::mt19937_64& random, std::int64_t missing)
      : keys(tessera_tests::random_integers<std::int64_t>(random, 1, 1, 4)[0]),
        samples(tessera_tests::random_integers<std::int64_t>(random, 1, 1, 9)[0]) {
    for (auto const length : tessera_tests::random_lengths(random, static_cast<std::size_t>(keys * samples), 3))
      offsets.push_back(offsets.back() + length);
    offsets.back() += missing;  // so that there are as many to be cut off
    for (std::int64_t key = 0; key < keys; ++key) first_row.push_back(first_row.back() + samples);
    room = offsets.back() - missing;
    values = std::make_unique<std::int64_t[]>(static_cast<std::size_t>(room));
    weights = std::make_unique<float[]>(static_cast<std::size_t>(room));
    for (std::int64_t i = 0; i < room; ++i) values[static_cast<std::size_t>(i)] = i % 5;
    zeros.assign(static_cast<std::size_t>(samples), 0);
    ones.assign(static_cast<std::size_t>(samples), 1);
  }

  tessera::keyed_jagged_view<std::int64_t> view(bool weighted) const {
    return {values.get(), weighted ? weights.get() : nullptr, offsets.data(), first_row.data(), keys, room};
  }
  std::int64_t size() const { return offsets.back(); }
};

/// Calls f(name, operation) for each operation over the rows of a batch.
template <class F>
void for_each_operation_on_keys(host_exec const& exec, cut_batch const& batch, bool weighted, F const& f) {
  using namespace tessera;
  auto const view = batch.view(weighted);
  keyed_jagged_view<std::int64_t const> const in = view;
  std::vector<std::int64_t> const order(static_cast<std::size_t>(batch.keys), batch.keys - 1), most(order.size(), 2);
  std::vector<std::uint8_t> const mask(static_cast<std::size_t>(batch.size()), 1);
  std::vector<std::string> names;
  for (std::int64_t key = 0; key < batch.keys; ++key) names.push_back(std::to_string(key));
  f("permute_keys", [&] { permute_keys(exec, in, order); });
  f("slice_rows", [&] { slice_rows(exec, in, 0, batch.samples); });
  f("select_rows", [&] { select_rows(exec, in, batch.zeros); });
  f("truncate_rows", [&] { truncate_rows(exec, in, 2, kept_values::last); });
  f("truncate_rows by key", [&] { truncate_rows(exec, in, most, kept_values::last); });
  f("masked_select", [&] { masked_select(exec, in, mask); });
  f("expand_rows", [&] { expand_rows(exec, in, batch.ones); });
  f("bucketize", [&] { bucketize(exec, in, 2, hashed_buckets{}); });
  f("deduplicate", [&] { deduplicate(exec, in, std::vector<std::int64_t>{1}); });
  f("concat_keys", [&] { concat_keys(exec, std::vector{in}); });
  f("concat_rows", [&] { concat_rows(exec, std::vector{in, in}); });
  f("transform_ids", [&] { transform_ids(exec, view, same_id); });
  f("id_pipeline", [&] { id_pipeline(exec, names, same_id)(exec, in); });
  f("id_pipeline of rows", [&] { id_pipeline(exec, names, truncate_ids{.most = 50})(exec, in); });
  f("equal", [&] { equal(in, in); });
  f("validate", [&] { validate(in, batch.size()); });

  row_group const group{0, batch.keys, batch.zeros.data()};
  inverse_keyed_jagged_view<std::int64_t> const inverse{view, {&group, 1}, batch.samples};
  inverse_keyed_jagged_view<std::int64_t const> const shared = inverse;
  f("expand", [&] { expand(exec, shared); });
  f("select_rows of an IKJT", [&] { select_rows(exec, shared, batch.zeros); });
  f("transform_ids of an IKJT", [&] { transform_ids(exec, inverse, same_id); });
  f("id_pipeline of an IKJT", [&] { id_pipeline(exec, names, same_id)(exec, shared); });
}

template <class F>
void for_each_operation_on_rows(host_exec const& exec, cut_batch const& batch, F const& f) {
  using namespace tessera;
  jagged_view<std::int64_t const> const in = batch.view(false).flat();
  std::vector<std::int64_t> const all(static_cast<std::size_t>(in.rows), in.rows - 1), once(all.size(), 1);
  std::vector<std::uint8_t> const mask(static_cast<std::size_t>(batch.size()), 1);
  std::vector<std::int64_t> padded(all.size() * 2);
  f("select_rows", [&] { select_rows(exec, in, all); });
  f("truncate_rows", [&] { truncate_rows(exec, in, 2, kept_values::first); });
  f("masked_select", [&] { masked_select(exec, in, mask); });
  f("expand_rows", [&] { expand_rows(exec, in, once); });
  f("concat_rows", [&] { concat_rows(exec, std::vector{in}); });
  f("to_padded", [&] { to_padded(exec, in, matrix_view<std::int64_t>{padded.data(), in.rows, 2}, std::int64_t{0}); });
  f("deduplicate", [&] { deduplicate(exec, vector_view<jagged_view<std::int64_t const> const>(&in, 1), std::vector<std::int64_t>{1}); });
  f("from_view", [&] { jagged<std::int64_t>::from_view(exec, in); });
  f("equal", [&] { equal(in, in); });
  f("validate", [&] { validate(in, batch.size()); });
}

/// Of vectors of one float, whose room is the rows of their matrix.
template <class F>
void for_each_operation_on_vectors(host_exec const& exec, cut_batch const& batch, F const& f) {
  using namespace tessera;
  std::int64_t const rows = batch.keys * batch.samples, size = batch.size();
  jagged_vectors_view<float const> const in{{batch.weights.get(), batch.room, 1}, batch.offsets.data(), rows};
  std::vector<float> whole(static_cast<std::size_t>(size)), dense(static_cast<std::size_t>(rows));
  jagged_vectors_view<float> const out{{whole.data(), size, 1}, batch.offsets.data(), rows};
  matrix_view<float> const pooled{dense.data(), rows, 1};
  std::vector<std::int64_t> const all(static_cast<std::size_t>(rows), 0);
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(rows + 1));
  std::vector const parts{in};
  f("jagged_softmax", [&] { jagged_softmax(exec, in, out); });
  f("pool_segments", [&] { pool_segments(exec, in, segment_pooling::sum, pooled); });
  f("to_padded_vectors", [&] { to_padded_vectors(exec, in, pooled); });
  f("select_vectors_offsets", [&] { select_vectors_offsets(exec, in, all, vector_view<std::int64_t>(offsets)); });
  f("concat_vectors_offsets",
    [&] { concat_vectors_offsets(exec, vector_view<jagged_vectors_view<float const> const>(parts), vector_view<std::int64_t>(offsets)); });
  f("add_vectors", [&] { add_vectors(exec, in, in, out); });
  f("multiply_vectors", [&] { multiply_vectors(exec, in, in, out); });
  f("jagged_dense_product", [&] { jagged_dense_product(exec, in, pooled, out); });
  f("jagged_jagged_product", [&] { jagged_jagged_product(exec, in, in, pooled); });
}

}  // namespace

TEST_CASE("every operation refuses a view whose rows reach past its room, and reads nothing there") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const refused = [](char const* operation, auto const& call) {
    CAPTURE(operation);
    try {
      call();
      FAIL_CHECK("not refused");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::out_of_range);
      CHECK(std::string(e.what()).find("reach past the values") != std::string::npos);
    }
  };
  for (std::int64_t const missing : {1, 2, 7}) {
    CAPTURE(missing);
    for (int repeat = 0; repeat < 5; ++repeat) {
      cut_batch const batch(random, missing);
      for (bool const weighted : {false, true}) for_each_operation_on_keys(exec, batch, weighted, refused);
      for_each_operation_on_rows(exec, batch, refused);
      for_each_operation_on_vectors(exec, batch, refused);
    }
  }
}

TEST_CASE("every operation takes a view whose rows end where its room ends") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const taken = [](char const* operation, auto const& call) {
    CAPTURE(operation);
    CHECK_NOTHROW(call());
  };
  for (int repeat = 0; repeat < 5; ++repeat) {
    cut_batch const batch(random, 0);
    for (bool const weighted : {false, true}) for_each_operation_on_keys(exec, batch, weighted, taken);
    for_each_operation_on_rows(exec, batch, taken);
    for_each_operation_on_vectors(exec, batch, taken);
  }
}

TEST_CASE("a part of a view is taken where it ends within the room, whatever the whole reaches") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::vector<std::int64_t> const values{1, 2, 3}, offsets{0, 1, 3, 9}, first_row{0, 2, 3};
  tessera::keyed_jagged_view<std::int64_t const> const whole{values.data(), nullptr, offsets.data(), first_row.data(), 2, 3};
  auto const order = std::vector<std::int64_t>{0};
  CHECK_THROWS_AS(tessera::permute_keys(exec, whole, order), tessera::error);
  auto const part = tessera::permute_keys(exec, whole.slice_keys(0, 1), order);
  CHECK(tessera::equal(part.view(), whole.slice_keys(0, 1)));
}
