// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

/// A small click model over any source, trained on batches of which each rank has a part.
namespace train_tests {

using tessera_tests::serial_host;

constexpr std::int64_t numbers = 3, dim = 8, table_rows = 50, chunk = 16;

inline std::vector<tessera::table_spec> specs() {
  std::vector<tessera::table_spec> all;
  for (std::int64_t t = 0; t < 3; ++t)
    all.push_back(tessera::spec_of<tessera::dense_table<>>(
        {.id = tessera::table_id{t}, .dim = t == 2 ? 5 : dim, .rows = table_rows, .init_bound = 0.3F, .seed = tessera::random_seed{2}},
        tessera::adagrad{.learning_rate = 0.1F, .initial_state = 0.01F}));
  return all;
}
inline std::vector<tessera::table_feature> features() {
  return {{.name = "a", .table = 0}, {.name = "b", .table = 1, .pooling = tessera::pooling::mean}, {.name = "c", .table = 2}};
}

// Batches as vectors, of which each rank takes a part; the last one is small.
struct click_data {
  struct batch {
    std::vector<std::string> names;                           // of keys
    std::vector<std::vector<std::vector<std::int64_t>>> ids;  // [key][sample]
    std::vector<float> dense, labels, weights;
    std::int64_t samples() const { return static_cast<std::int64_t>(labels.size()); }
  };
  std::vector<batch> all;

  // `rows`: of each key's table.
  click_data(std::mt19937_64& random, int count, std::vector<tessera::table_feature> const& keys = features(),
             std::vector<std::int64_t> const& rows = {table_rows, table_rows, table_rows}) {
    for (int b = 0; b < count; ++b) {
      auto& one = all.emplace_back();
      for (auto const& key : keys) one.names.push_back(key.name);
      auto const samples = b + 1 == count ? std::size_t{5} : 60 + random() % 80;
      one.dense = tessera_tests::random_floats(random, samples * numbers);
      one.ids.resize(keys.size());
      for (std::size_t key = 0; key < keys.size(); ++key)
        for (std::size_t s = 0; s < samples; ++s)
          one.ids[key].push_back(tessera_tests::random_integers<std::int64_t>(random, random() % 4, 0, rows[key] - 1));
      for (std::size_t s = 0; s < samples; ++s) {
        one.labels.push_back(random() % 3 == 0 ? 1.0F : 0.0F);
        one.weights.push_back(static_cast<float>(1 + random() % 4) / 3);
      }
    }
  }
};

struct click_part {
  tessera::keyed_jagged<> ids;
  tessera::batch_view view;

  click_part(tessera::host_exec const& exec, click_data::batch const& all, std::int64_t first, std::int64_t last) {
    std::vector<tessera::feature_rows<>> rows;
    for (std::size_t key = 0; key < all.ids.size(); ++key)
      rows.emplace_back(all.names[key], std::vector<std::vector<std::int64_t>>(all.ids[key].begin() + first, all.ids[key].begin() + last));
    ids = tessera::keyed_jagged<>::from_rows(exec, rows);
    view.dense = {all.dense.data() + first * numbers, last - first, numbers};
    view.labels = {all.labels.data() + first, last - first};
    view.weights = {all.weights.data() + first, last - first};
    view.sparse = std::as_const(ids).view();
  }
};

struct learned {
  std::vector<double> losses;
  std::vector<float> values;  // dense parameters, then logits of the first batch after training
};

enum class way : std::uint8_t { steps, micro_batches, ahead };

// Trains on samples [first, last) of each batch as `part` says.
template <class Interaction, class Source, class Part>
learned learn(tessera::host_exec const& exec, Source source, tessera::trainer_options const& options, click_data const& data,
              Part const& part, way how) {
  tessera::click_model<Source, tessera::eigen_gemm, Interaction> model(exec,
                                                                       {.dense_features = numbers,
                                                                        .bottom_hidden = {8, 12},
                                                                        .top_hidden = {16, 8},
                                                                        .seed = tessera::random_seed{3},
                                                                        .dim = dim,
                                                                        .projects = true},
                                                                       std::move(source));
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.02F, .epsilon = 1e-3F}, options);
  learned result;
  if (how == way::ahead) {  // two batches ahead of each step
    std::vector<click_part> parts;
    for (int pass = 0; pass < 3; ++pass)
      for (auto const& batch : data.all) {
        auto const [first, last] = part(batch.samples());
        parts.emplace_back(exec, batch, first, last);
      }
    for (std::size_t b = 0; b < parts.size() + 2; ++b) {
      if (b < parts.size()) run.look_ahead(exec, parts[b].view);
      if (b >= 2) result.losses.push_back(run.step(exec, parts[b - 2].view));
    }
  } else {
    for (int pass = 0; pass < 3; ++pass)
      for (auto const& batch : data.all) {
        auto const [first, last] = part(batch.samples());
        click_part const own(exec, batch, first, last);
        if (how == way::micro_batches) {
          result.losses.push_back(run.accumulate(exec, own.view, 0.25F));
          result.losses.push_back(run.accumulate(exec, own.view, 0.75F));
          run.update(exec);
        } else {
          result.losses.push_back(run.step(exec, own.view));
        }
      }
  }
  for (auto const& group : model.groups()) result.values.insert(result.values.end(), group.values.begin(), group.values.end());
  click_part const whole(exec, data.all[0], 0, data.all[0].samples());
  typename decltype(model)::saved_type saved;
  saved.chunk_samples = options.chunk_samples;
  auto const logits = model.predict(exec, whole.view, saved);
  result.values.insert(result.values.end(), logits.begin(), logits.end());
  return result;
}

inline bool same(learned const& a, learned const& b) {
  return a.losses == b.losses && a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

}  // namespace train_tests
