// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/dedupe_model.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_dedupe(double samples_per_session, double stays) {
  if (!(samples_per_session >= 1) || !std::isfinite(samples_per_session) || !(stays >= 0 && stays <= 1))
    throw error(errc::invalid_argument, "dedupe model: a session has 1 sample or more, a finite number, and stays is a probability",
                {{"samples_per_session", samples_per_session}, {"stays", stays}});
}

}  // namespace detail

TESSERA_INLINE batch_repeats measure_batch(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features,
                                           vector_view<std::int64_t const> sessions) {
  session_statistics_options options;
  options.partial = false;
  session_statistics statistics(features.size(), options);
  statistics.add(exec, features, sessions);
  batch_repeats result;
  result.samples = statistics.samples();
  result.sessions = statistics.sessions();
  for (std::int64_t f = 0; f < features.size(); ++f) result.features.push_back(statistics.feature(f));
  return result;
}

TESSERA_INLINE batch_repeats measure_batch(host_exec const& exec, keyed_jagged_view<std::int64_t const> features,
                                           vector_view<std::int64_t const> sessions) {
  std::vector<jagged_view<std::int64_t const>> keys;
  for (std::int64_t k = 0; k < features.keys; ++k) keys.push_back(features.key(k));
  return measure_batch(exec, keys, sessions);
}

namespace detail {

TESSERA_INLINE std::vector<std::uint64_t> changes_of(jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> before) {
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(divide_up(rows.rows, 64)));
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    if (before[i] < 0) continue;
    auto const a = rows.row(i), b = rows.row(before[i]);
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) bits[static_cast<std::size_t>(i / 64)] |= std::uint64_t{1} << i % 64;
  }
  return bits;
}

TESSERA_INLINE void check_recommend_groups(recommend_groups_options const& options) {
  bool const says_samples = options.samples_per_session >= 1 && std::isfinite(options.samples_per_session);
  if (!(options.least_saving < 1) || !(options.samples_per_session == 0 || says_samples) ||
      !(options.most_disagreement >= 0 && options.most_disagreement <= 1) || !(options.dim >= 1 && std::isfinite(options.dim)))
    throw error(errc::invalid_argument, "recommend_groups: options",
                {{"least_saving", options.least_saving},
                 {"samples_per_session", options.samples_per_session},
                 {"most_disagreement", options.most_disagreement},
                 {"dim", options.dim}});
  auto const& c = options.costs;
  for (auto const& [name, ns] : {std::pair{"lookup_ns_per_list", c.lookup_ns_per_list},
                                 {"lookup_ns_per_id", c.lookup_ns_per_id},
                                 {"lookup_ns_per_float", c.lookup_ns_per_float},
                                 {"memory_ns_per_float", c.memory_ns_per_float},
                                 {"dedupe_ns_per_sample", c.dedupe_ns_per_sample},
                                 {"dedupe_ns_per_id", c.dedupe_ns_per_id},
                                 {"expand_ns_per_list", c.expand_ns_per_list},
                                 {"expand_ns_per_float", c.expand_ns_per_float}})
    if (!(ns >= 0) || !std::isfinite(ns))
      throw error(errc::invalid_argument, "recommend_groups: costs are finite and 0 or more", {{name, ns}});
}

}  // namespace detail

TESSERA_INLINE dedupe_recommendation recommend_groups(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features,
                                                      vector_view<std::int64_t const> sessions, recommend_groups_options options) {
  detail::check_recommend_groups(options);
  detail::check_feature_rows("recommend_groups", features, sessions);
  id_map numbers;
  std::vector<std::int64_t> last, before(static_cast<std::size_t>(sessions.size()));
  for (std::int64_t i = 0; i < sessions.size(); ++i) {
    auto const [slot, is_new] = numbers.insert(exec, sessions[i]);
    if (is_new) last.push_back(-1);
    before[static_cast<std::size_t>(i)] = std::exchange(last[static_cast<std::size_t>(slot)], i);
  }
  auto const pairs = sessions.size() - numbers.size();
  std::vector<std::vector<std::uint64_t>> changes(static_cast<std::size_t>(features.size()));
  exec.run(features.size(), [&](std::int64_t f) { changes[static_cast<std::size_t>(f)] = detail::changes_of(features[f], before); });

  dedupe_recommendation result;
  if (options.samples_per_session >= 1)
    result.samples_per_session = options.samples_per_session;
  else if (numbers.size() > 0)
    result.samples_per_session = static_cast<double>(sessions.size()) / static_cast<double>(numbers.size());
  auto const alone = options.costs.dedupe_ns_per_sample;
  std::vector<std::vector<std::int64_t>> candidates;
  std::vector<detail::sample_costs> costs;  // of candidates
  for (std::int64_t f = 0; f < features.size(); ++f) {
    auto const& changed = changes[static_cast<std::size_t>(f)];
    std::int64_t count = 0;
    for (auto const word : changed) count += std::popcount(word);
    auto& reason = result.features.emplace_back();
    if (sessions.size() > 0) reason.mean_length = static_cast<double>(features[f].size()) / static_cast<double>(sessions.size());
    if (pairs > 0) reason.stays = 1 - static_cast<double>(count) / static_cast<double>(pairs);
    reason.factor = dedupe_factor(result.samples_per_session, reason.stays);
    auto const cost = detail::sample_costs::of(reason, options);
    reason.saving = detail::sample_costs{cost.step, cost.saved - alone}.share();
    if (!(cost.saved > 0)) continue;
    auto const joined = [&](std::vector<std::int64_t> const& group) {
      reason.disagreement = detail::disagreement(changed, changes[static_cast<std::size_t>(group[0])]);
      return reason.disagreement <= options.most_disagreement;
    };
    auto const g = static_cast<std::size_t>(std::find_if(candidates.begin(), candidates.end(), joined) - candidates.begin());
    if (g == candidates.size()) {
      reason.disagreement = 0;
      candidates.emplace_back();
      costs.push_back({0, -alone});
    }
    candidates[g].push_back(f);
    costs[g].step += cost.step;
    costs[g].saved += cost.saved;
  }
  for (std::size_t g = 0; g < candidates.size(); ++g) {
    bool const is_worth_it = costs[g].share() > options.least_saving;
    for (auto const f : candidates[g]) {
      auto& reason = result.features[static_cast<std::size_t>(f)];
      if (is_worth_it) {
        reason.saving = costs[g].share();
        reason.group = static_cast<std::int64_t>(result.groups.size());
      } else
        reason.disagreement = 0;
    }
    if (is_worth_it) result.groups.push_back(std::move(candidates[g]));
  }
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
