// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-weight: 3
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/pooling_choice.hpp>
#include <tessera/train/trainer.hpp>

#include "hosts.hpp"
#include "local_source.hpp"
#include "session_support.hpp"
#include "temporary_folder.hpp"

namespace click_model_sources_test {

namespace {

using namespace tessera;
using tessera_tests::session_batch;
using tessera_tests::session_ids;

local_tables tables_of_widths(host_exec const& exec, std::vector<std::int64_t> const& widths, std::int64_t sequences) {
  std::vector<dense_table<>> tables;
  for (std::size_t t = 0; t < widths.size(); ++t)
    tables.emplace_back(exec,
                        table_options{.id = table_id{static_cast<std::int64_t>(t)},
                                      .dim = widths[t],
                                      .rows = session_ids,
                                      .init_bound = 0.2F,
                                      .seed = random_seed{3}},
                        sgd{});
  std::vector<pooled_feature> bags;
  for (auto t = sequences; t < static_cast<std::int64_t>(widths.size()); ++t) bags.push_back({t});
  return {tessera_tests::listed(std::move(tables), sgd{.learning_rate = 0.1F}), tessera_tests::named(sequences, bags)};
}

// The vectors of each output times a number of its own, which is trained.
template <embedding_source Inner>
class scaled : public source_adaptor<Inner> {
  using base = source_adaptor<Inner>;

 public:
  struct saved_type : Inner::saved_type {
    std::vector<std::vector<float>> of_inner;  // vectors, then gradients
    std::vector<matrix_view<float const>> gradients;
  };

  explicit scaled(Inner inner) : base(std::move(inner)), scales_(static_cast<std::size_t>(base::outputs().size()), 1.5F) {}

  std::vector<parameter_group> groups() { return {{"scales", scales_}}; }
  std::vector<parameter_block> blocks() { return {{"source.scales", {parameter_count()}, scales_}}; }
  std::int64_t parameter_count() const { return static_cast<std::int64_t>(scales_.size()); }

  void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    base::finish(exec, saved, out);
    saved.of_inner.clear();
    for (auto const block : out) {
      auto& copy = saved.of_inner.emplace_back();
      for (std::int64_t r = 0; r < block.rows(); ++r) copy.insert(copy.end(), block.row(r), block.row(r) + block.columns());
    }
    scale(out);
  }
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    base::predict(exec, batch, out);
    scale(out);
  }
  void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients,
                      vector_view<float> of_scales) {
    saved.gradients.clear();
    for (std::int64_t o = 0; o < gradients.size(); ++o) {
      auto const block = gradients[o];
      auto& memory = saved.of_inner[static_cast<std::size_t>(o)];
      double sum = 0;
      std::size_t i = 0;
      for (std::int64_t r = 0; r < block.rows(); ++r)
        for (std::int64_t c = 0; c < block.columns(); ++c, ++i) {
          sum += static_cast<double>(memory[i]) * static_cast<double>(block(r, c));
          memory[i] = scales_[static_cast<std::size_t>(o)] * block(r, c);
        }
      of_scales[o] = static_cast<float>(sum);
      saved.gradients.push_back({memory.data(), block.rows(), block.columns()});
    }
    base::begin_backward(exec, saved, saved.gradients);
  }

  std::vector<float> const& scales() const { return scales_; }
  template <class Store>
  Store& store(std::int64_t t) {
    return base::inner().template store<Store>(t);
  }

 private:
  void scale(vector_view<matrix_view<float> const> out) const {
    for (std::int64_t o = 0; o < out.size(); ++o)
      for (std::int64_t r = 0; r < out[o].rows(); ++r)
        for (std::int64_t c = 0; c < out[o].columns(); ++c) out[o](r, c) *= scales_[static_cast<std::size_t>(o)];
  }

  std::vector<float> scales_;
};

// Passes all on.
struct around_scaled : source_adaptor<scaled<local_tables>> {
  using source_adaptor::source_adaptor;
  template <class Store>
  Store& store(std::int64_t t) {
    return inner().store<Store>(t);
  }
};

static_assert(embedding_source<scaled<local_tables>> && owns_parameters<scaled<local_tables>> && !owns_parameters<local_tables>);
static_assert(owns_parameters<source_adaptor<scaled<local_tables>>> && embedding_source<source_adaptor<scaled<local_tables>>>);

// A source that would lose the gradients of its parameters.
struct careless : scaled<local_tables> {
  using scaled::scaled;
  void begin_backward(host_exec const&, saved_type&, vector_view<matrix_view<float const> const>) {}
};
static_assert(owns_parameters<careless> && !embedding_source<careless>);

using any_pooling = pooling_choice<encoder_pooling, target_pooling>;
template <class Source>
using attentive = click_model<Source, eigen_gemm, dot_products, any_pooling>;

// Keys 0 and 1 put together and attending to output 3, key 2 encoded; widths 6, 6, 4, 6, 8 and 3, which meet at 8.
template <class Source>
attentive<Source> of_many_widths(host_exec const& exec, Source source) {
  transformer_encoder_options encoder{.layers = 1, .heads = 2, .hidden = 5};
  return {exec,
          {.dense_features = 3, .seed = random_seed{5}, .dim = 8, .projects = true},
          std::move(source),
          {},
          {{{"0", "1"}, target_attention_options{.hidden = {4}}, "3"}, {{"2"}, encoder}}};
}

}  // namespace

TEST_CASE("outputs of other widths meet through projections: gradients are those of finite differences") {
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto model = of_many_widths(exec, tables_of_widths(exec, {6, 6, 4, 6, 8, 3}, 3));
  std::vector<std::string> names;
  for (auto const& group : model.groups()) names.emplace_back(group.name);
  // Vectors 0 and 1 are the groups', 2 to 4 outputs 3 to 5: all but the one that is as wide as the model.
  CHECK(names == std::vector<std::string>{"bottom", "interaction", "top", "pooling.0", "pooling.1", "projection.0", "projection.1",
                                          "projection.2", "projection.4"});
  CHECK(model.dim() == 8);
  CHECK(model.vector_count() == 6);
  session_batch const batch(exec, random, 20, 3);
  auto const shared = deduplicate(exec, batch.rows.view(), std::vector<std::int64_t>{2, 1, 1});
  for (auto const& view : {batch.plain(), batch.with(shared)})
    tessera_tests::check_gradients(exec, model, view, tessera_tests::random_floats(random, 20));
}

TEST_CASE("a model of one output that is projected") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(2);
  click_model<local_tables, eigen_gemm, concatenation> model(exec, {.dense_features = 3, .top_hidden = {6}, .dim = 5, .projects = true},
                                                             tables_of_widths(exec, {7, 1, 2, 3, 4, 5}, 0));
  session_batch const batch(exec, random, 15, 3);
  tessera_tests::check_gradients(exec, model, batch.plain(), tessera_tests::random_floats(random, 15));
}

TEST_CASE("an adaptor passes on what is of its source's dense parameters") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto model = of_many_widths(exec, around_scaled(scaled(tables_of_widths(exec, {6, 6, 4, 6, 8, 3}, 3))));
  CHECK(model.groups().back().name == "scales");
  CHECK(model.blocks().back().name == "source.scales");
  session_batch const batch(exec, random, 20, 3);
  tessera_tests::check_gradients(exec, model, batch.plain(), tessera_tests::random_floats(random, 20));
}

TEST_CASE("without projections an output of another width is named, and no model is made") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const refusal = [&](std::int64_t dim) {
    return std::string(tessera_tests::error_of([&] {
                         dlrm<local_tables, eigen_gemm>(exec, {.dense_features = 3, .dim = dim}, tables_of_widths(exec, {4, 4, 5}, 0));
                       }).what());
  };
  CHECK(refusal(0) == "click_model: outputs of different widths, which are not projected (output 2, width 5, dim 4)");
  CHECK(refusal(4) == refusal(0));
  CHECK(refusal(5) == "click_model: outputs of different widths, which are not projected (output 0, width 4, dim 5)");
}

TEST_CASE("the dense parameters of a source are trained, clipped, saved and loaded with the model's") {
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const made = [&] { return of_many_widths(exec, scaled(tables_of_widths(exec, {6, 6, 4, 6, 8, 3}, 3))); };
  auto model = made();
  CHECK(model.groups().back().name == "scales");
  CHECK(model.blocks().back().name == "source.scales");
  session_batch const batch(exec, random, 20, 3);
  tessera_tests::check_gradients(exec, model, batch.plain(), tessera_tests::random_floats(random, 20));

  tessera_tests::temporary_folder folder;
  trainer run(exec, model, adam{.learning_rate = 0.01F}, {.clip_norm = 1});
  for (int step = 0; step < 3; ++step) run.step(exec, batch.plain());
  for (auto const scale : model.source().scales()) CHECK(scale != 1.5F);
  save_checkpoint(exec, folder.path(), run, {.step = 3, .options = nlohmann::json::object(), .position = nlohmann::json::object()});
  auto loaded = made();
  trainer again(exec, loaded, adam{.learning_rate = 0.01F}, {.clip_norm = 1});
  load_trainer(exec, open_newest_checkpoint(folder.path()), again);
  CHECK(loaded.source().scales() == model.source().scales());
  CHECK(run.step(exec, batch.plain()) == again.step(exec, batch.plain()));
  CHECK(loaded.source().scales() == model.source().scales());
}

}  // namespace click_model_sources_test
