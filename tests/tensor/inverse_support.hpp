// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/tensor/inverse_keyed_jagged.hpp>

#include "keyed_support.hpp"

namespace tensor_tests {

/// An IKJT as plain lists, made the slow way: each sample's rows of a group are looked for among all that came before.
struct inverse_model {
  model distinct;
  std::vector<ids> inverses;  // of each group

  friend bool operator==(inverse_model const&, inverse_model const&) = default;
};

inline inverse_model naive_deduplicate(model const& batch, ids const& keys_per_group) {
  inverse_model result;
  std::size_t key = 0;
  auto const samples = batch.empty() ? 0 : batch[0].size();
  for (auto const keys : keys_per_group) {
    auto const first = key, last = key + static_cast<std::size_t>(keys);
    std::vector<std::size_t> firsts;
    auto& inverse = result.inverses.emplace_back();
    for (std::size_t i = 0; i < samples; ++i) {
      auto const same = [&](std::size_t j) {
        bool all = true;
        for (auto k = first; k < last; ++k) all = all && batch[k][i] == batch[k][j];
        return all;
      };
      auto const found = std::find_if(firsts.begin(), firsts.end(), same);
      inverse.push_back(found - firsts.begin());
      if (found == firsts.end()) firsts.push_back(i);
    }
    for (; key < last; ++key) {
      auto& rows = result.distinct.emplace_back();
      for (auto const i : firsts) rows.push_back(batch[key][i]);
    }
  }
  for (; key < batch.size(); ++key) result.distinct.push_back(batch[key]);
  return result;
}

template <class T, class Offset>
inverse_model model_of(tessera::inverse_keyed_jagged_view<T, Offset> view) {
  inverse_model result{model_of(view.distinct), {}};
  for (auto const& group : view.groups) result.inverses.emplace_back(group.inverse, group.inverse + view.samples);
  return result;
}

/// Samples that repeat: rows of a group of keys stay for some samples, come back, or change in one key alone.
inline model random_sessions(std::mt19937_64& random, ids const& keys_per_group, std::size_t keys, std::size_t samples, bool weighted) {
  model result(keys);
  auto const draw = [&] { return random_row(random, static_cast<std::int64_t>(random() % 4), weighted); };
  std::size_t first = 0;
  for (std::size_t g = 0; first < keys; ++g) {
    auto const last = g < keys_per_group.size() ? first + static_cast<std::size_t>(keys_per_group[g]) : first + 1;
    for (std::size_t i = 0; i < samples; ++i) {
      auto const kind = i == 0 ? 0 : random() % 8;
      auto const earlier = i == 0 ? 0 : kind == 1 ? static_cast<std::size_t>(random() % i) : i - 1;
      auto const changed = first + random() % (last - first);
      for (auto key = first; key < last; ++key)
        result[key].push_back(kind == 0 || (kind == 2 && key == changed) ? draw() : model_row(result[key][earlier]));
    }
    first = last;
  }
  return result;
}

/// Calls f(batch model, keys per group, random) for batches of every kind, of up to so many samples.
template <class F>
void for_each_session_model(std::size_t most_samples, F const& f) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (bool const weighted : {false, true})
    for (auto const& keys_per_group : std::vector<ids>{{}, {1}, {3}, {2, 1, 3}, {1, 1, 1, 1, 1, 1, 1}})
      for (std::size_t const samples : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{30}, most_samples}) {
        std::size_t keys = random() % 3;
        for (auto const count : keys_per_group) keys += static_cast<std::size_t>(count);
        CAPTURE(keys);
        CAPTURE(samples);
        CAPTURE(weighted);
        f(random_sessions(random, keys_per_group, keys, samples, weighted), keys_per_group, random);
      }
}

/// Calls f(exec, batch model, keys per group, random) for the same on 1, 2 and 4 threads.
template <class F>
void for_each_session_batch(F const& f) {
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for_each_session_model(1000, [&](auto&&... session) { f(exec, session...); });
  });
}

}  // namespace tensor_tests
