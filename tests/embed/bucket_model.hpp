// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/embed/bucket_rows.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_store.hpp>

namespace embed_tests {

/// What a bucket table must do, in the plainest way. Of the table it knows only which bucket an id belongs to.
template <class Eviction>
class bucket_model {
 public:
  struct row {
    std::int64_t count, batch;
    float stamp;
    std::int64_t bucket;
  };
  struct outcome {
    std::vector<tessera::row_status> statuses;  // found also where the id is new
    std::set<std::int64_t> came;
    std::multiset<std::int64_t> left;
  };

  std::int64_t batch = 0;
  std::map<std::int64_t, row> rows;

  bucket_model(tessera::table_options const& options, tessera::detail::bucket_shape const& shape) : options_(options), shape_(shape) {}

  outcome locate(std::vector<std::int64_t> const& ids) {
    outcome result;
    std::set<std::int64_t> fresh;
    for (auto const id : ids) {
      if (id < 0) continue;
      if (auto const held = rows.find(id); held == rows.end()) {
        fresh.insert(id);
      } else if (held->second.batch != batch) {
        ++held->second.count;
        held->second.batch = batch;
      }
    }
    for (auto const id : fresh) {
      auto const [bucket, size] = bucket_of(id);
      auto const held = std::count_if(rows.begin(), rows.end(), [b = bucket](auto const& other) { return other.second.bucket == b; });
      if (held == size && !let_one_leave(result.left, bucket)) continue;
      rows[id] = {1, batch, 0, bucket};
      result.came.insert(id);
    }
    for (auto const id : ids)
      result.statuses.push_back(id < 0              ? tessera::row_status::out_of_range
                                : rows.contains(id) ? tessera::row_status::found
                                                    : tessera::row_status::not_admitted);
    return result;
  }

  std::multiset<std::int64_t> evict(std::int64_t most) {
    std::multiset<std::int64_t> left;
    while (static_cast<std::int64_t>(left.size()) < most && let_one_leave(left, any_bucket)) continue;
    return left;
  }

  /// Ids with rows, the next to leave first.
  std::vector<std::int64_t> order() const {
    std::vector<std::int64_t> ids;
    for (auto const& [id, r] : rows) ids.push_back(id);
    std::sort(ids.begin(), ids.end(), [&](auto a, auto b) { return rank(a) < rank(b); });
    return ids;
  }
  float stamp_of_left(std::int64_t id) const { return stamps_of_left_.at(id); }

 private:
  std::tuple<std::int64_t, std::int64_t, std::int64_t> rank(std::int64_t id) const {
    auto const& r = rows.at(id);
    return {std::is_same_v<Eviction, tessera::evict_lfu> ? r.count : 0, r.batch, id};
  }
  /// Its first group, and how many slots it has.
  std::pair<std::int64_t, std::int64_t> bucket_of(std::int64_t id) const {
    tessera::detail::bucket_place const place(id, shape_);
    auto first = place.group(0);
    for (int g = 1; g < place.groups(); ++g) first = std::min(first, place.group(g));
    return {first, place.slots()};
  }
  static constexpr std::int64_t any_bucket = -1;
  bool let_one_leave(std::multiset<std::int64_t>& left, std::int64_t bucket) {
    std::int64_t first = -1;
    for (auto const& [id, r] : rows)
      if (Eviction::evicts && (bucket == any_bucket || r.bucket == bucket) && batch - r.batch >= options_.batches_in_flight)
        if (first < 0 || rank(id) < rank(first)) first = id;
    if (first < 0) return false;
    left.insert(first);
    stamps_of_left_[first] = rows.at(first).stamp;
    rows.erase(first);
    return true;
  }

  tessera::table_options options_;
  tessera::detail::bucket_shape shape_;
  std::map<std::int64_t, float> stamps_of_left_;
};

}  // namespace embed_tests
