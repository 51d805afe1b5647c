// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/synth/session_options.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Adds `count` features like the first, named prefix_0, …
inline void add_features(std::vector<session_feature>& features, std::string const& prefix, std::int64_t count,
                         session_feature const& like) {
  for (std::int64_t i = 0; i < count; ++i) {
    features.push_back(like);
    features.back().name = prefix + "_" + std::to_string(i);
  }
}

// Groups of sequences of the given sizes, of which the first feature of each has signal; 100 features of users, 30 of items.
inline session_clicks_options recommendation_sessions(std::vector<std::int64_t> const& group_sizes) {
  std::vector<session_feature> features;
  for (std::size_t g = 0; g < group_sizes.size(); ++g) {
    session_feature const sequence{.kind = session_feature_kind::sequence,
                                   .group = static_cast<std::int64_t>(g),
                                   .stays = 0.95,
                                   .mean_length = 50,
                                   .most_length = 200};
    add_features(features, "sequence_" + std::to_string(g), group_sizes[g], sequence);
    auto& first = features[features.size() - static_cast<std::size_t>(group_sizes[g])];
    first.linear = first.interest = 1;
  }
  auto const users = features.size();
  add_features(features, "user", 100, {.stays = 0.9, .mean_length = 10, .most_length = 100});
  auto const items = features.size();
  add_features(features, "item", 30,
               {.kind = session_feature_kind::item, .stays = 0.05, .lengths = list_lengths::uniform, .most_length = 3, .exponent = 0.8});
  for (std::size_t i = 0; i < 8; ++i) features[users + i].linear = 1;
  for (std::size_t i = 0; i < 4; ++i) features[items + i].linear = 1;
  return session_clicks_options{std::move(features)};
}

}  // namespace detail

/// Returns options of 733 sparse features that are fitted to RecD's Figures 3 and 4. Means over features: 80.0 % of lists and 83.9 % of ids
/// come again within a session. Weighted by bytes, the means are 81.6 % and 89.4 %.
///
/// The fit. Let S be the samples of a session and d the probability that a feature's list stays. Then the share (S - 1) / S · d of lists
/// comes again. The share of ids is the same. Where a change brings one id, the share is (S - 1) / S · (1 - (1 - d) / length). For S = 16.5
/// the four means ask for sequences of twice the mean length, whose share of features times 1 - d is 0.043. We chose shares of 30 %
/// sequences, 60 % users and 10 % items; the rest follows. There are 220 sequences in groups of 4 (mean length 40, d 0.858). There are 440
/// features of users (11.9, 0.98) and 73 of items (8.5, 0.05). Ids follow a flat Zipf law, so that hardly any id comes again by chance.
inline session_clicks_options paper_sessions() {
  std::vector<session_feature> features;
  for (std::int64_t g = 0; g < 55; ++g)
    detail::add_features(
        features, "sequence_" + std::to_string(g), 4,
        {.kind = session_feature_kind::sequence, .group = g, .stays = 0.858, .mean_length = 40, .most_length = 400, .exponent = 0.5});
  detail::add_features(features, "user", 440, {.stays = 0.98, .mean_length = 11.9, .exponent = 0.5});
  detail::add_features(
      features, "item", 73,
      {.kind = session_feature_kind::item, .stays = 0.05, .lengths = list_lengths::uniform, .most_length = 16, .exponent = 0.5});
  for (std::size_t f = 0; f < features.size(); f += 40) features[f].linear = 1;
  for (std::size_t f = 0; f < 220; f += 44) features[f].interest = 1;
  return session_clicks_options{std::move(features)};
}

/// Returns options of features as RecD's RM1 has. 16 sequences lie in 5 groups of 4, 4, 3, 3 and 2. There are 100 features of users, 30 of
/// items, and 13 dense ones.
///
/// Sequences have a mean length of 50, at most 200, and d 0.95. Features of users have a mean length of 10, at most 100, and d 0.9; items 1
/// to 3 ids and d 0.05. Each feature has 100,000 ids. The paper gives the sequences and their groups. We chose lengths, d and the number of
/// items, and 100 for what the paper calls about 100 features.
inline session_clicks_options rm1_sessions() { return detail::recommendation_sessions({4, 4, 3, 3, 2}); }
/// Returns options as `rm1_sessions`, but with 6 sequences in one group, as RecD's RM2.
inline session_clicks_options rm2_sessions() { return detail::recommendation_sessions({6}); }
/// Returns options as `rm1_sessions`, but with 11 sequences in one group, as RecD's RM3.
inline session_clicks_options rm3_sessions() { return detail::recommendation_sessions({11}); }

/// Returns options of a log without repeats: every sample is a session. Lists have 8 ids or more, all equally probable, so that no list
/// comes again by chance.
inline session_clicks_options no_repeats() {
  std::vector<session_feature> features;
  detail::add_features(features, "sequence", 8,
                       {.kind = session_feature_kind::sequence, .mean_length = 50, .least_length = 8, .most_length = 200, .exponent = 0});
  detail::add_features(features, "user", 16, {.mean_length = 12, .least_length = 8, .exponent = 0});
  detail::add_features(features, "item", 4,
                       {.kind = session_feature_kind::item,
                        .stays = 0,
                        .lengths = list_lengths::uniform,
                        .least_length = 8,
                        .most_length = 12,
                        .exponent = 0});
  features[0].linear = features[0].interest = 1;
  for (std::size_t i = 0; i < 4; ++i) features[8 + i].linear = features[24 + i].linear = 1;
  session_clicks_options options{std::move(features)};
  options.mean_samples = 1;
  options.spread = 0;
  return options;
}

/// Returns the names of the features of each group, as `sample_reader_options::groups` takes them. A feature without a group is a group of
/// its own. Groups stand in the order of their first features. Features of items, which seldom repeat, are left out.
inline std::vector<std::vector<std::string>> session_groups(session_clicks_options const& options) {
  std::vector<std::vector<std::string>> groups;
  std::map<std::int64_t, std::size_t> place;
  for (auto const& feature : options.features) {
    if (feature.kind == session_feature_kind::item) continue;
    auto const [found, is_new] =
        place.emplace(feature.group < 0 ? -1 - static_cast<std::int64_t>(groups.size()) : feature.group, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(feature.name);
  }
  return groups;
}

/// Returns options with a by-th of the features and of a window's sessions, for tests and small machines.
///
/// Of the groups every by-th stays, whole and from the first. Of the features without a group every by-th of each kind stays. A batch of a
/// by-th of the samples has as many samples a session as before.
/// @throws tessera::error invalid_argument for by < 1, or where the target feature is left out.
inline session_clicks_options scaled_down(session_clicks_options options, std::int64_t by) {
  if (by < 1) throw error(errc::invalid_argument, "scaled_down: by", {{"by", by}});
  std::vector<session_feature> kept;
  std::int64_t seen[3] = {}, target = -1;
  std::vector<std::int64_t> groups;  // in their order
  std::set<std::int64_t> known;
  for (auto const& f : options.features)
    if (f.group >= 0 && known.insert(f.group).second) groups.push_back(f.group);
  std::set<std::int64_t> kept_groups;
  for (std::size_t g = 0; g < groups.size(); g += static_cast<std::size_t>(by)) kept_groups.insert(groups[g]);
  for (std::size_t f = 0; f < options.features.size(); ++f) {
    auto const& feature = options.features[f];
    bool const keep = feature.group >= 0 ? kept_groups.count(feature.group) > 0 : seen[static_cast<int>(feature.kind)]++ % by == 0;
    if (keep && options.target == static_cast<std::int64_t>(f)) target = static_cast<std::int64_t>(kept.size());
    if (keep) kept.push_back(feature);
  }
  if (options.target >= 0 && target < 0)
    throw error(errc::invalid_argument, "scaled_down: the target is left out", {{"target", options.target}, {"by", by}});
  options.target = target;
  options.features = std::move(kept);
  options.window_sessions = (options.window_sessions + by - 1) / by;
  return options;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
