// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/embed/admission.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_store.hpp>

namespace embed_tests {

/// What a hashed table with policies must do, in the plainest way: every question is a search through everything.
template <class Admission, class Eviction>
class table_model {
 public:
  struct row {
    std::int64_t count, batch, time, order;  // order: of the last use among all uses
    float stamp;
  };
  struct candidate {
    std::int64_t id, count, batch;
  };

  tessera::table_options options;
  Admission admission;
  Eviction eviction;
  std::map<std::int64_t, row> rows;
  std::vector<candidate> candidates;  // the one not seen for longest first
  std::vector<std::pair<std::int64_t, float>> evicted;
  std::int64_t batch = 0;
  std::optional<std::int64_t> time;
  std::int64_t uses = 0;

  table_model(tessera::table_options const& options, Admission const& admission, Eviction const& eviction)
      : options(options), admission(admission), eviction(eviction) {}

  std::vector<tessera::row_status> locate(std::vector<std::int64_t> const& ids, bool ask = true) {
    std::vector<char> known;
    for (auto const id : ids) known.push_back(rows.contains(id));
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (known[i]) use(ids[i]);
    std::vector<tessera::row_status> statuses;
    for (std::size_t i = 0; i < ids.size(); ++i) statuses.push_back(known[i] ? tessera::row_status::found : give(ids[i], ask));
    return statuses;
  }

  std::int64_t erase(std::vector<std::int64_t> const& ids) {
    std::int64_t count = 0;
    for (auto const id : ids) count += static_cast<std::int64_t>(rows.erase(id));
    return count;
  }

  std::int64_t evict(std::int64_t most) {
    std::int64_t count = 0;
    while (count < most && evict_one()) ++count;
    return count;
  }

  /// Ids with rows, the next to leave first.
  std::vector<std::int64_t> order() const {
    std::vector<std::int64_t> ids;
    for (auto const& [id, r] : rows) ids.push_back(id);
    std::sort(ids.begin(), ids.end(), [&](auto a, auto b) { return before(rows.at(a), rows.at(b)); });
    return ids;
  }

 private:
  static bool before(row const& a, row const& b) {
    if (std::is_same_v<Eviction, tessera::evict_lfu> && a.count != b.count) return a.count < b.count;
    return a.order < b.order;
  }
  std::int64_t now() const { return time.value_or(batch); }

  void use(std::int64_t id) {
    auto& r = rows.at(id);
    if (r.batch == batch) return;
    r = {r.count + 1, batch, now(), ++uses, r.stamp};
  }

  tessera::row_status give(std::int64_t id, bool ask) {
    if (rows.contains(id)) return tessera::row_status::found;
    if (ask && !admits(id)) return tessera::row_status::not_admitted;
    bool const full = static_cast<std::int64_t>(rows.size()) >= options.most_rows;
    if (full && !evict_one()) return tessera::row_status::not_admitted;
    rows[id] = {1, batch, now(), ++uses, 0};
    std::erase_if(candidates, [&](auto const& c) { return c.id == id; });
    return full ? tessera::row_status::evicted : tessera::row_status::inserted;
  }

  bool admits(std::int64_t id) {
    if constexpr (std::is_same_v<Admission, tessera::admit_by_frequency>) {
      auto const found = std::find_if(candidates.begin(), candidates.end(), [&](auto const& c) { return c.id == id; });
      candidate seen{id, 1, batch};
      if (found != candidates.end()) {
        if (found->batch == batch) return found->count >= admission.sightings;
        seen.count = found->count + 1;
        candidates.erase(found);
      } else if (static_cast<std::int64_t>(candidates.size()) == admission.candidates) {
        candidates.erase(candidates.begin());
      }
      candidates.push_back(seen);
      return seen.count >= admission.sightings;
    }
    return true;
  }

  bool evict_one() {
    if constexpr (!Eviction::evicts) return false;
    for (auto const id : order()) {
      auto const r = rows.at(id);
      if (batch - r.batch < options.batches_in_flight) continue;
      if constexpr (std::is_same_v<Eviction, tessera::evict_ttl>)
        if (now() - r.time <= eviction.lifetime) continue;
      evicted.emplace_back(id, r.stamp);
      rows.erase(id);
      return true;
    }
    return false;
  }
};

}  // namespace embed_tests
