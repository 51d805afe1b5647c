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
#include <tessera/data/session_options.hpp>

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

/// 733 sparse features whose repeats are those of the paper's Figure 4: of the lists 80.0 % are those of another sample of the session, of the
/// ids 83.9 % come again (means over features); weighted by bytes 81.6 % and 89.4 %.
///
/// How they fit. With S samples a session, of a feature whose list stays with probability d the share (S - 1) / S · d of its lists comes
/// again; of the ids as many, or (S - 1) / S · (1 - (1 - d) / length) where a change brings one id. For S = 16.5 the four means ask for
/// sequences of twice the mean length whose share of features times 1 - d is 0.043; users and items follow from the choice of 30 %, 60 % and
/// 10 %: 220 sequences in groups of 4 (length 40, d 0.858), 440 of users (11.9, 0.98) and 73 of items (8.5, 0.05). Ids follow a flat Zipf law,
/// so that hardly any comes again by chance.
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

/// As the paper's RM1: 16 sequences (mean length 50, at most 200, d 0.95) in 5 groups of 4, 4, 3, 3 and 2 features, 100 features of users
/// (10, 100, 0.9), 30 of items (1 to 3 ids, 0.05), 13 dense; 100,000 ids a feature. Its numbers of user and item features, lengths and d are
/// ours: the paper gives them as "about 100" and not at all.
inline session_clicks_options rm1_sessions() { return detail::recommendation_sessions({4, 4, 3, 3, 2}); }
/// As RM1, but 6 sequences in one group: the paper's RM2, which pools them by sum.
inline session_clicks_options rm2_sessions() { return detail::recommendation_sessions({6}); }
/// As RM1, but 11 sequences in one group: the paper's RM3.
inline session_clicks_options rm3_sessions() { return detail::recommendation_sessions({11}); }

/// Where deduplication has nothing to find: every sample is its own session, and lists have 8 ids or more, all alike, so none comes again.
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

/// The names of features that change together and seldom, as `sample_reader_options::groups` takes them: of each group, or of one feature on its
/// own, in the order of the first ones. Features of items are in none.
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

/// The same with fewer features and smaller windows, for tests and small machines: of the features of each kind that are on their own every
/// by-th, from the first; of the groups every by-th, whole; a by-th of the sessions of a window. A batch of a by-th of the samples has as
/// many a session as before. @throws tessera::error invalid_argument for by < 1, or a target that is not among them.
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
