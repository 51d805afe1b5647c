// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An order of keys as an IKJT has them: the keys of a group lie side by side, and all grouped keys come first.
struct key_groups {
  std::vector<std::int64_t> order;           // (keys,): key i of the result is key order[i]; for `permute_keys`
  std::vector<std::int64_t> keys_per_group;  // (groups,): for `deduplicate`
  std::vector<std::string> keys;             // their names in that order
};

/// Names the keys of groups that are given by numbers, as `recommend_groups` gives them. @throws tessera::error out_of_range naming group
/// and number of a key that is not there.
inline std::vector<std::vector<std::string>> group_names(std::vector<std::string> const& keys,
                                                         std::vector<std::vector<std::int64_t>> const& groups) {
  std::vector<std::vector<std::string>> result;
  for (auto const& group : groups) {
    auto& names = result.emplace_back();
    for (auto const key : group) {
      if (key < 0 || key >= static_cast<std::int64_t>(keys.size()))
        throw error(errc::out_of_range, "group_names: no such key",
                    {{"group", &group - groups.data()}, {"key", key}, {"keys", keys.size()}});
      names.push_back(keys[static_cast<std::size_t>(key)]);
    }
  }
  return result;
}

/// Orders keys by groups: the groups' keys in their order, then the other keys in theirs. @throws tessera::error invalid_argument naming
/// the group and a key that is unknown or comes twice, or an empty group.
inline key_groups group_keys(std::vector<std::string> const& keys, std::vector<std::vector<std::string>> const& groups) {
  key_groups result;
  std::vector<bool> is_grouped(keys.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].empty()) throw error(errc::invalid_argument, "group_keys: a group without keys", {{"group", g}});
    for (auto const& name : groups[g]) {
      auto const key = static_cast<std::size_t>(std::find(keys.begin(), keys.end(), name) - keys.begin());
      if (key == keys.size()) throw error(errc::invalid_argument, "group_keys: no such key", {{"group", g}, {"key", name}});
      if (is_grouped[key]) throw error(errc::invalid_argument, "group_keys: a key twice", {{"group", g}, {"key", name}});
      is_grouped[key] = true;
      result.order.push_back(static_cast<std::int64_t>(key));
    }
    result.keys_per_group.push_back(static_cast<std::int64_t>(groups[g].size()));
  }
  for (std::size_t key = 0; key < keys.size(); ++key)
    if (!is_grouped[key]) result.order.push_back(static_cast<std::int64_t>(key));
  for (auto const key : result.order) result.keys.push_back(keys[static_cast<std::size_t>(key)]);
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
