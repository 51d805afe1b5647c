// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "inverse_support.hpp"

/// Lists of sessions that share parts, and how much of them a search through everything shares.
namespace tensor_tests {

/// How a session's list becomes the next one.
enum class list_change { append, prepend, both_ends, replace_one, replace_all, return_to_one, part_of_one, two_streams, few_ids, any };

inline std::vector<std::pair<list_change, std::string>> const list_changes{
    {list_change::append, "append"},           {list_change::prepend, "prepend"},
    {list_change::both_ends, "both ends"},     {list_change::replace_one, "replace one"},
    {list_change::replace_all, "replace all"}, {list_change::return_to_one, "return to one"},
    {list_change::part_of_one, "part of one"}, {list_change::two_streams, "two streams"},
    {list_change::few_ids, "few ids"},         {list_change::any, "any"}};

/// The lists of one session, of at most `most` ids each; by each step up to `shift` ids change at an end.
inline std::vector<model_row> session_lists(std::mt19937_64& random, list_change kind, std::size_t samples, std::size_t most,
                                            std::size_t shift, bool weighted) {
  std::int64_t const kinds_of_ids = kind == list_change::few_ids ? 3 : 1'000'000;
  auto const draw = [&](std::size_t count) {
    auto values = tessera_tests::random_integers<std::int64_t>(random, count, 0, kinds_of_ids - 1);
    floats weights(weighted ? count : 0);
    for (auto& weight : weights) weight = static_cast<float>(random() % 2);  // so that equal ids may differ in them
    return model_row{values, weights};
  };
  auto const join = [](model_row a, model_row const& b) {
    a.values.insert(a.values.end(), b.values.begin(), b.values.end());
    a.weights.insert(a.weights.end(), b.weights.begin(), b.weights.end());
    return a;
  };
  auto const part = [](model_row const& row, std::size_t first, std::size_t count) {
    auto const of = [&](auto const& all) {
      auto const begin = all.begin() + static_cast<std::ptrdiff_t>(all.empty() ? 0 : first);
      return std::vector(begin, all.empty() ? begin : begin + static_cast<std::ptrdiff_t>(count));
    };
    return model_row{of(row.values), of(row.weights)};
  };
  auto const size = [](model_row const& row) { return row.values.size(); };

  std::vector<model_row> lists, ends{draw(random() % (most + 1)), draw(random() % (most + 1))};
  for (std::size_t i = 0; i < samples; ++i) {
    if (i == 0) {
      lists.push_back(ends[0]);
      continue;
    }
    auto const now = kind == list_change::any || kind == list_change::few_ids ? static_cast<list_change>(random() % 8) : kind;
    auto& last = ends[now == list_change::two_streams ? random() % 2 : 0];
    auto const fresh = draw(random() % (shift + 1));
    auto next = last;
    if (now == list_change::append || now == list_change::two_streams) next = join(last, fresh);
    if (now == list_change::append || now == list_change::two_streams)
      next = part(next, size(next) - std::min(size(next), most), std::min(size(next), most));
    if (now == list_change::prepend) next = join(fresh, last);
    if (now == list_change::both_ends) next = join(join(fresh, last), draw(random() % (shift + 1)));
    if (now == list_change::prepend || now == list_change::both_ends) next = part(next, 0, std::min(size(next), most));
    if (now == list_change::replace_one && size(last) > 0) next.values[random() % size(last)] = static_cast<std::int64_t>(random() % 999);
    if (now == list_change::replace_all) next = draw(random() % (most + 1));
    if (now == list_change::return_to_one) next = random() % 3 == 0 ? draw(most) : model_row(lists[random() % lists.size()]);
    if (now == list_change::part_of_one) {
      auto const& of = lists[random() % lists.size()];
      auto const first = random() % (size(of) + 1);
      next = random() % 3 == 0 ? draw(most) : part(of, first, random() % (size(of) - first + 1));
    }
    last = next;
    lists.push_back(next);
  }
  return lists;
}

/// Ids (with weights) that a search through all runs, at all places, shares. Of places that share as many, which decides what later lists find,
/// it takes the one in the run that grew last, there the first from the run's begin on, then the last before it.
inline std::int64_t naively_shared(std::vector<model_row> const& lists) {
  using element = std::pair<std::int64_t, float>;
  std::vector<std::vector<element>> runs;
  std::int64_t shared = 0;
  for (auto const& list : lists) {
    std::vector<element> row;
    for (std::size_t i = 0; i < list.values.size(); ++i) row.emplace_back(list.values[i], list.weights.empty() ? 0.0F : list.weights[i]);
    if (row.empty()) continue;
    auto const size = static_cast<std::int64_t>(row.size());
    std::int64_t best = 0, best_at = 0;
    std::size_t best_run = runs.size();
    for (std::size_t r = runs.size(); r-- > 0;) {
      auto const length = static_cast<std::int64_t>(runs[r].size());
      std::vector<std::int64_t> places;
      for (std::int64_t at = 0; at < length; ++at) places.push_back(at);
      for (std::int64_t at = -1; at > -size; --at) places.push_back(at);
      for (auto const at : places) {
        auto const first = std::max<std::int64_t>(0, at), last = std::min(length, at + size);
        if (last - first > best && std::equal(runs[r].begin() + first, runs[r].begin() + last, row.begin() + (first - at))) {
          best = last - first;
          best_at = at;
          best_run = r;
        }
      }
    }
    shared += best;
    if (best == 0) {
      runs.push_back(row);
      continue;
    }
    if (best == size) continue;
    auto run = runs[best_run];
    runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(best_run));
    if (auto const back = best_at + size - static_cast<std::int64_t>(run.size()); back > 0)
      run.insert(run.end(), row.end() - back, row.end());
    if (best_at < 0) run.insert(run.begin(), row.begin(), row.begin() - best_at);
    runs.push_back(run);
  }
  return shared;
}

/// Several sessions' lists as one key of a batch, one sample of any session after the other, or session after session.
struct sessions_model {
  ids sessions;
  model_rows rows;
};
inline sessions_model mixed(std::mt19937_64& random, std::vector<std::vector<model_row>> const& sessions, bool clustered) {
  sessions_model result;
  std::vector<std::size_t> next(sessions.size(), 0), left;
  for (std::size_t s = 0; s < sessions.size(); ++s) left.insert(left.end(), sessions[s].size(), s);
  if (!clustered) std::shuffle(left.begin(), left.end(), random);
  for (auto const s : left) {
    result.sessions.push_back(static_cast<std::int64_t>(s) * 7 - 20);
    result.rows.push_back(sessions[s][next[s]++]);
  }
  return result;
}

}  // namespace tensor_tests
