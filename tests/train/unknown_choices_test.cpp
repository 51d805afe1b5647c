// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/session_sampling.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/sequence_lookup.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/sequence_pooling.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/padded.hpp>
#include <tessera/tensor/padded_vectors.hpp>
#include <tessera/tensor/pool_segments.hpp>
#include <tessera/tensor/truncate_rows.hpp>
#include <tessera/train/click_model.hpp>

#include "../support/hosts.hpp"

namespace unknown_choices_test {

namespace {

constexpr int unknown_choice = 7;

/// The call is refused, and the error names the choice and its number.
template <class F>
void refuses_choice(char const* choice, F const& call) {
  CAPTURE(choice);
  try {
    call();
    FAIL_CHECK("not refused");
  } catch (tessera::error const& e) {
    CAPTURE(e.what());
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value(choice) == std::to_string(unknown_choice));
  }
}

struct choice_host : tessera_tests::serial_host {
  tessera::host_exec at = exec();
  std::vector<tessera::dense_table<>> tables;
  tessera::keyed_jagged<> batch = tessera::keyed_jagged<>::from_rows(at, {{"a", {{1, 2}, {3}}}, {"b", {{4}, {}}}});
  std::vector<float> memory = std::vector<float>(64);
  std::vector<tessera::matrix_view<float>> out{{memory.data(), 2, 4}, {memory.data() + 8, 2, 4}};
  std::vector<tessera::matrix_view<float const>> gradients{out[0], out[1]};

  choice_host() { tables.emplace_back(at, tessera::table_options{tessera::table_id{0}, 4, 9}, tessera::sgd{}); }
};

}  // namespace

TEST_CASE("a pooling that is none is refused, naming the feature") {
  choice_host host;
  std::vector<tessera::pooled_feature> const known{{0}, {0}}, features{{0}, {0, static_cast<tessera::pooling>(unknown_choice)}};
  auto const view = std::as_const(host.batch).view();
  tessera::lookup_saved saved;
  refuses_choice("pooling", [&] { tessera::pooled_lookup(host.at, host.tables, features, view, host.out, saved); });
  refuses_choice("pooling", [&] { tessera::pooled_lookup(host.at, std::as_const(host.tables), features, view, host.out); });
  tessera::pooled_lookup(host.at, host.tables, known, view, host.out, saved);
  refuses_choice("pooling",
                 [&] { tessera::pooled_lookup_backward(host.at, host.tables, features, saved, host.gradients, tessera::sgd{}); });
  CHECK_THROWS_WITH_AS(tessera::pooled_lookup(host.at, std::as_const(host.tables), features, view, host.out),
                       "pooled_lookup: no such pooling (feature 1, pooling 7)", tessera::error);
}

TEST_CASE("what a lookup does with ids out of range is refused where it is none") {
  choice_host host;
  auto const view = std::as_const(host.batch).view();
  tessera::lookup_options const options{.out_of_range = static_cast<tessera::out_of_range_ids>(unknown_choice)};
  std::vector<tessera::pooled_feature> const features{{0}, {0}};
  std::vector<std::int64_t> const sequences{0, 0};
  std::vector<tessera::matrix_view<float>> const rows{{host.memory.data(), 3, 4}, {host.memory.data() + 12, 1, 4}};
  refuses_choice("out_of_range", [&] { tessera::pooled_lookup(host.at, std::as_const(host.tables), features, view, host.out, options); });
  refuses_choice("out_of_range", [&] { tessera::sequence_lookup(host.at, std::as_const(host.tables), sequences, view, rows, options); });
}

TEST_CASE("an order of sums that is none is refused, by a backward and by a model") {
  choice_host host;
  constexpr auto sums = static_cast<tessera::shared_gradients>(unknown_choice);
  std::vector<tessera::pooled_feature> const features{{0}, {0}};
  tessera::deduplicated_saved saved;
  tessera::inverse_keyed_jagged_view<std::int64_t const> const batch{std::as_const(host.batch).view(), {}, 2};
  tessera::deduplicated_lookup(host.at, host.tables, features, batch, host.out, saved);
  refuses_choice("sums", [&] {
    tessera::deduplicated_lookup_backward(host.at, host.tables, features, saved, host.gradients, tessera::sgd{},
                                          tessera::deduplicated_backward_options{.sums = sums});
  });
  auto const source = [&](tessera::shared_gradients order) {
    tessera::table_list tables;
    tables.add(tessera::dense_table<>(host.at, tessera::table_options{tessera::table_id{0}, 4, 9}, tessera::sgd{}), tessera::sgd{});
    return tessera::local_tables(std::move(tables), {{.name = "one"}}, {.sums = order});
  };
  refuses_choice("sums", [&] { source(sums); });
  refuses_choice("rows", [&] {
    tessera::dlrm<tessera::local_tables, tessera::eigen_gemm>(
        host.at, {.dense_features = 3, .rows = static_cast<tessera::pooled_rows>(unknown_choice)},
        source(tessera::shared_gradients::merged));
  });
}

TEST_CASE("operations on rows refuse choices that are none") {
  choice_host host;
  constexpr auto kept = static_cast<tessera::kept_values>(unknown_choice);
  auto const view = std::as_const(host.batch).view();
  std::vector<std::int64_t> const most{1, 1};
  std::vector<std::int64_t> padded(16);
  refuses_choice("kept", [&] { tessera::truncate_rows(host.at, view, 1, kept); });
  refuses_choice("kept", [&] { tessera::truncate_rows(host.at, view, most, kept); });
  refuses_choice("kept", [&] { tessera::truncate_rows(host.at, view.flat(), 1, kept); });
  refuses_choice("kept", [&] {
    tessera::to_padded(host.at, view.flat(), tessera::matrix_view<std::int64_t>{padded.data(), 4, 2}, std::int64_t{0}, kept);
  });
  refuses_choice("outside", [&] {
    tessera::bucketize(host.at, view, 2,
                       tessera::block_buckets{.block_size = 4, .outside = static_cast<tessera::outside_blocks>(unknown_choice)});
  });

  std::vector<std::int64_t> const offsets{0, 1, 2};
  tessera::jagged_vectors_view<float> const rows{host.out[0], offsets.data(), 2};
  refuses_choice("keep", [&] { tessera::to_padded_vectors(host.at, rows, host.out[1], {.keep = kept}); });
  refuses_choice("keep", [&] { tessera::from_padded_vectors(host.at, host.gradients[1], rows, {.keep = kept}); });
  refuses_choice("mode",
                 [&] { tessera::pool_segments(host.at, rows, static_cast<tessera::segment_pooling>(unknown_choice), host.out[1]); });
  tessera::jagged_vectors_view<float const> const read = rows;
  refuses_choice("pooling",
                 [&] { tessera::pool_sequences(host.at, read, static_cast<tessera::sequence_pooling>(unknown_choice), host.out[1]); });
}

TEST_CASE("an activation that is none is refused") {
  choice_host host;
  constexpr auto act = static_cast<tessera::activation>(unknown_choice);
  tessera::linear_view<float const> const layer{{host.memory.data() + 16, 4, 4}, {host.memory.data() + 32, 4}};
  refuses_choice("activation", [&] { tessera::mlp(host.at, tessera::mlp_options{{3, 2}, act}); });
  refuses_choice("activation",
                 [&] { tessera::linear_forward(host.at, tessera::eigen_gemm{}, host.gradients[0], layer, act, host.out[1]); });
  refuses_choice("activation", [&] {
    tessera::linear_backward_input(host.at, tessera::eigen_gemm{}, host.gradients[0], layer, act, host.gradients[0], host.out[1]);
  });
}

TEST_CASE("readers and generators of samples refuse choices that are none") {
  tessera::sample_selection selection;
  selection.key = static_cast<tessera::sample_key>(unknown_choice);
  refuses_choice("key", [&] { tessera::validate(selection); });
  tessera::session_feature feature{.name = "f"};
  feature.kind = static_cast<tessera::session_feature_kind>(unknown_choice);
  refuses_choice("kind", [&] { tessera::detail::check_feature(feature, 0); });
  feature.kind = tessera::session_feature_kind::item;
  CHECK_NOTHROW(tessera::detail::check_feature(feature, 0));
  feature.lengths = static_cast<tessera::list_lengths>(unknown_choice);
  refuses_choice("lengths", [&] { tessera::detail::check_feature(feature, 0); });
}

}  // namespace unknown_choices_test
