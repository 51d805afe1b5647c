// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/hash_table.hpp>

#include "bucket_model.hpp"
#include "device_tables.hpp"
#include "hosts.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

using id_list = std::vector<std::int64_t>;
using tessera::row_status;

/// An optimizer of two states a row and three an element.
struct states_of_five {
  static constexpr int row_state = 2;
  static constexpr int element_state = 3;
  float initial_state = 0.25F;
  TESSERA_HOST_DEVICE float begin_row(float*, tessera::row_gradient const&) const noexcept { return 0; }
  TESSERA_HOST_DEVICE void update(float&, float*, std::int64_t, float, float) const noexcept {}
};

struct located {
  id_list slots;
  std::vector<row_status> statuses;
};

template <class Store, class Exec>
located locate_there(Exec const& exec, Store& store, id_list const& ids) {
  auto const there = tessera_tests::put(exec, ids);
  auto slots = tessera_tests::put(exec, id_list(ids.size(), -7));
  auto statuses = tessera_tests::put(exec, std::vector<row_status>(ids.size(), row_status::moved));
  store.locate(exec, there.view(), slots.view(), statuses.view());
  return {tessera_tests::get(exec, slots), tessera_tests::get(exec, statuses)};
}
template <class Store, class Exec>
id_list find_there(Exec const& exec, Store const& store, id_list const& ids) {
  auto const there = tessera_tests::put(exec, ids);
  auto slots = tessera_tests::put(exec, id_list(ids.size(), -7));
  store.find(exec, there.view(), slots.view());
  return tessera_tests::get(exec, slots);
}

/// The row and the state of a slot.
template <class Store, class Exec>
std::pair<std::vector<typename Store::element>, std::vector<float>> row_there(Exec const& exec, Store const& store, std::int64_t slot) {
  using element = typename Store::element;
  return {tessera_tests::get(exec, tessera::vector_view<element const>(store.row(slot), store.dim())),
          tessera_tests::get(exec, tessera::vector_view<float const>(store.state(slot), store.state_layout().width(store.dim())))};
}

template <class Store, class Exec>
bool initial_there(Exec const& exec, Store const& store, id_list const& ids, id_list const& slots) {
  std::vector<float> const state(static_cast<std::size_t>(store.state_layout().width(store.dim())), store.state_layout().initial);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (slots[i] < 0) return false;
    auto const there = row_there(exec, store, slots[i]);
    if (!same_bits(there.first, initial_elements<typename Store::element>(store.options(), ids[i]))) return false;
    if (!same_bits(there.second, state)) return false;
  }
  return true;
}

inline id_list shuffled_ids(std::mt19937_64& random, std::int64_t count, std::int64_t first = 0) {
  id_list ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  std::shuffle(ids.begin(), ids.end(), random);
  return ids;
}

inline constexpr tessera::table_options bucket_options{
    .id = tessera::table_id(5), .dim = 7, .rows = 2000, .init_bound = 0.5F, .seed = tessera::random_seed(0x123456789ABCDEF0)};

/// What every row store shows, of one on a device whose policy needs no room for these 1000 ids.
template <class Store, class Exec>
void bucket_table_suite(Exec const& exec) {
  static_assert(tessera::row_store<Store>);
  using element = typename Store::element;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto options = bucket_options;
  auto const ids = shuffled_ids(random, 1000);

  SUBCASE("it tells what it is") {
    Store store(exec, options, states_of_five{});
    CHECK(store.options().id == options.id);
    CHECK(store.dim() == 7);
    CHECK(store.state_layout().width(store.dim()) == 2 + 3 * 7);
    CHECK(store.rows() == 0);
    CHECK(store.slot_bound() == 2016);
    CHECK(store.device_rows().slot_bound() == 2016);
    store.set_steps(tessera::step_count(17));
    CHECK(store.steps() == tessera::step_count(17));
    CHECK(store.device_rows().steps() == tessera::step_count(17));
  }
  SUBCASE("initial rows are those of the host's tables, whatever the size of the table") {
    tessera_tests::serial_host host;
    tessera::rowwise_adagrad const optimizer{.initial_state = 0.125F};
    tessera::hash_table<element> held(host.exec(), options, optimizer);
    id_list const some{99, 0, 17, 3, 1 << 20};
    std::vector<std::int64_t> host_slots(some.size());
    held.locate(host.exec(), some, host_slots);
    for (std::int64_t const dim : {1, 3, 7, 8, 64, 130})
      for (std::int64_t const rows : {2000, 150}) {
        options.dim = dim;
        options.rows = rows;
        Store store(exec, options, optimizer);
        auto const slots = locate_there(exec, store, some).slots;
        CHECK(initial_there(exec, store, some, slots));
        for (std::size_t i = 0; dim == 7 && i < some.size(); ++i)
          CHECK(same_bits(row_there(exec, store, slots[i]).first.data(), held.row(host_slots[i]), 7));
      }
  }
  SUBCASE("a bound of 0 gives zeros") {
    options.init_bound = 0;
    Store store(exec, options, tessera::sgd{});
    for (auto const slot : locate_there(exec, store, {0, 5}).slots)
      for (auto const e : row_there(exec, store, slot).first) CHECK(tessera::row_scale<element>::covering(0).value(e) == 0.0F);
  }
  SUBCASE("no ids; a table of no rows") {
    Store store(exec, options, tessera::sgd{});
    CHECK(locate_there(exec, store, {}).slots.empty());
    CHECK(find_there(exec, store, {}).empty());
    CHECK(store.rows() == 0);
    options.rows = 0;
    Store none(exec, options, tessera::sgd{});
    auto const got = locate_there(exec, none, {3, -1});
    CHECK(got.slots == id_list{-1, -1});
    CHECK(got.statuses == std::vector{row_status::not_admitted, row_status::out_of_range});
    CHECK(find_there(exec, none, {3}) == id_list{-1});
    CHECK(none.rows() == 0);
  }
  SUBCASE("locate finds again what it gave, each id in a slot of its own; find changes nothing") {
    Store store(exec, options, states_of_five{});
    CHECK(find_there(exec, store, ids) == id_list(ids.size(), -1));
    CHECK(store.rows() == 0);
    auto const first = locate_there(exec, store, ids);
    CHECK(first.statuses == std::vector(ids.size(), row_status::inserted));
    auto const again = locate_there(exec, store, ids);
    CHECK(again.slots == first.slots);
    CHECK(again.statuses == std::vector(ids.size(), row_status::found));
    CHECK(find_there(exec, store, ids) == first.slots);
    std::set<std::int64_t> const distinct(first.slots.begin(), first.slots.end());
    CHECK(distinct.size() == ids.size());
    CHECK(*distinct.begin() >= 0);
    CHECK(*distinct.rbegin() < store.slot_bound());
    CHECK(store.rows() == 1000);
    CHECK(store.counts().inserted == 1000);
    CHECK(store.counts().not_admitted == 0);
    std::map<std::int64_t, std::int64_t> slot_of;
    for (std::size_t i = 0; i < ids.size(); ++i) slot_of[ids[i]] = first.slots[i];
    std::map<std::int64_t, std::int64_t> told;
    store.for_each_row([&](std::int64_t slot, std::int64_t id) { CHECK(told.emplace(id, slot).second); });
    CHECK(told == slot_of);
    CHECK(initial_there(exec, store, ids, first.slots));
    for (int batch = 0; batch < 3; ++batch) store.begin_batch();
    CHECK(find_there(exec, store, ids) == first.slots);
    CHECK(locate_there(exec, store, ids).slots == first.slots);
    CHECK(initial_there(exec, store, ids, first.slots));
  }
  SUBCASE("a repeated id has one row, new or not; one of its places is told that it is new") {
    Store store(exec, options, tessera::sgd{});
    for (int call = 0; call < 3; ++call) {
      auto const draws = tessera_tests::random_integers<std::int64_t>(random, 5000, 0, 50 * (call + 1));
      auto const before = find_there(exec, store, draws);
      auto const got = locate_there(exec, store, draws);
      std::map<std::int64_t, std::int64_t> slot_of;
      std::map<std::int64_t, int> times_new;
      for (std::size_t i = 0; i < draws.size(); ++i) {
        CHECK(slot_of.emplace(draws[i], got.slots[i]).first->second == got.slots[i]);
        times_new[draws[i]] += got.statuses[i] == row_status::inserted;
        CHECK((got.statuses[i] == row_status::inserted || got.statuses[i] == row_status::found));
      }
      for (std::size_t i = 0; i < draws.size(); ++i) CHECK(times_new[draws[i]] == (before[i] < 0 ? 1 : 0));
      CHECK(store.rows() == static_cast<std::int64_t>(50 * (call + 1) + 1));
    }
    auto const same = locate_there(exec, store, id_list(3000, 777));
    CHECK(std::set<std::int64_t>(same.slots.begin(), same.slots.end()).size() == 1);
    CHECK(std::count(same.statuses.begin(), same.statuses.end(), row_status::inserted) == 1);
    CHECK(initial_there(exec, store, {777}, {same.slots[0]}));
  }
  SUBCASE("ids at the ends: negative ones and the greatest int64 are out of range") {
    constexpr auto greatest = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
    Store store(exec, options, tessera::sgd{});
    id_list const ends{-1, 0, greatest, greatest - 1, least, least + 1, -2, 1, greatest - 1};
    auto const got = locate_there(exec, store, ends);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      bool const inside = ends[i] >= 0 && ends[i] != greatest;
      CHECK((got.slots[i] >= 0) == inside);
      CHECK((got.statuses[i] == row_status::out_of_range) == !inside);
    }
    CHECK(store.rows() == 3);
    CHECK(find_there(exec, store, ends) == got.slots);
    CHECK(initial_there(exec, store, {0, greatest - 1, 1}, {got.slots[1], got.slots[3], got.slots[7]}));
  }
  SUBCASE("rows and states do not overlap") {
    Store store(exec, options, states_of_five{});
    auto const slots = locate_there(exec, store, ids).slots;
    auto const dim = static_cast<std::size_t>(store.dim()), width = static_cast<std::size_t>(store.state_layout().width(store.dim()));
    auto const scale = tessera::row_scale<element>::covering(tessera::detail::float_bits(251.0F));
    auto const stamps = [&](std::size_t i) {
      std::vector<element> row;
      std::vector<float> state;
      for (std::size_t c = 0; c < dim; ++c) row.push_back(scale.nearest(static_cast<float>((i * 37 + c * 5) % 251)));
      for (std::size_t c = 0; c < width; ++c) state.push_back(static_cast<float>(i * 64 + c));
      return std::pair(row, state);
    };
    for (std::size_t i = 0; i < slots.size(); ++i) {
      auto const [row, state] = stamps(i);
      exec.copy_in(store.row(slots[i]), row.data(), row.size() * sizeof(element));
      exec.copy_in(store.state(slots[i]), state.data(), state.size() * sizeof(float));
    }
    CHECK(find_there(exec, store, ids) == slots);
    bool whole = true;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      auto const there = row_there(exec, std::as_const(store), slots[i]);
      whole = whole && same_bits(there.first, stamps(i).first) && same_bits(there.second, stamps(i).second);
    }
    CHECK(whole);
  }
  SUBCASE("ids that are taken away leave their slots; the others stay") {
    Store store(exec, options, tessera::rowwise_adagrad{});
    auto const slots = locate_there(exec, store, ids).slots;
    id_list gone(ids.begin(), ids.begin() + 400);
    auto asked = gone;
    asked.insert(asked.end(), {gone[0], 5000, -1, std::numeric_limits<std::int64_t>::max()});
    store.erase(exec, tessera_tests::put(exec, asked).view());
    CHECK(store.rows() == 600);
    CHECK(find_there(exec, store, gone) == id_list(400, -1));
    id_list const kept(ids.begin() + 400, ids.end());
    CHECK(find_there(exec, store, kept) == id_list(slots.begin() + 400, slots.end()));
    auto const back = locate_there(exec, store, ids);
    CHECK(std::count(back.statuses.begin(), back.statuses.end(), row_status::inserted) == 400);
    CHECK(store.rows() == 1000);
    CHECK(initial_there(exec, store, ids, back.slots));
    store.clear(exec);
    CHECK(store.rows() == 0);
    CHECK(find_there(exec, store, ids) == id_list(1000, -1));
  }
  SUBCASE("moved, it is the same store") {
    Store store(exec, options, tessera::rowwise_adagrad{});
    auto const slots = locate_there(exec, store, ids).slots;
    auto const* const row = store.row(slots[0]);
    Store moved(std::move(store));
    CHECK(find_there(exec, moved, ids) == slots);
    CHECK(moved.row(slots[0]) == row);
  }
  SUBCASE("options that cannot be are named") {
    auto const refused = [&](tessera::table_options const& wrong, char const* option) {
      auto const e = tessera_tests::error_of([&] { Store store(exec, wrong, states_of_five{}); });
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK_FALSE(e.value(option).empty());
    };
    auto wrong = options;
    wrong.dim = 0;
    refused(wrong, "dim");
    for (std::int64_t const rows : {std::int64_t{-1}, std::int64_t{1} << 38, std::int64_t{1} << 62}) {
      wrong = options;
      wrong.dim = 1;
      wrong.rows = rows;
      refused(wrong, "rows");
    }
    wrong = options;
    wrong.batches_in_flight = 0;
    refused(wrong, "batches_in_flight");
  }
  SUBCASE("a checked build names a slot that the store does not have") {
    if constexpr (tessera::checked) {
      Store store(exec, options, states_of_five{});
      for (std::int64_t const slot : {std::int64_t{-1}, store.slot_bound()}) {
        CHECK(tessera_tests::error_of([&] { store.row(slot); }).value("slot") == std::to_string(slot));
        CHECK(tessera_tests::error_of([&] { std::as_const(store).state(slot); }).value("slot bound") == "2016");
      }
    }
  }
  SUBCASE("slots and statuses of another size are named") {
    Store store(exec, options, tessera::sgd{});
    auto const three = tessera_tests::put(exec, id_list{1, 2, 3});
    auto two = tessera_tests::put(exec, id_list(2)), right = tessera_tests::put(exec, id_list(3));
    auto statuses = tessera_tests::put(exec, std::vector<row_status>(2));
    auto const refused = [&](auto const& call) { CHECK(tessera_tests::error_of(call).code() == tessera::errc::shape_mismatch); };
    refused([&] { store.locate(exec, three.view(), two.view(), {}); });
    refused([&] { store.locate(exec, three.view(), right.view(), statuses.view()); });
    refused([&] { std::as_const(store).find(exec, three.view(), two.view()); });
    CHECK(store.rows() == 0);
  }
}

/// Every held row is as it first appeared or was stamped.
template <class Exec, class Store, class Model>
bool initial_or_stamped(Exec const& exec, Store const& store, Model const& model, std::map<std::int64_t, std::int64_t> const& slot_of) {
  for (auto const& [id, slot] : slot_of) {
    auto const there = row_there(exec, store, slot);
    if (!same_bits(there.first, initial_row(store.options(), id))) return false;
    if (there.second[0] != model.rows.at(id).stamp) return false;
  }
  return true;
}

/// Random calls against a model: which ids are held, which left, what was said, and that rows stay with their ids.
template <class Eviction, class Exec>
void bucket_table_against_model(Exec const& exec, std::int64_t rows, std::int64_t id_range, std::int64_t ids_per_call,
                                std::int64_t batches_in_flight) {
  using store_type = tessera::bucket_table<float, Exec, Eviction>;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto options = bucket_options;
  options.rows = rows;
  options.dim = 3;
  options.batches_in_flight = batches_in_flight;
  store_type store(exec, options, tessera::rowwise_adagrad{});
  bucket_model<Eviction> model(options, store.device_rows().shape);
  if constexpr (Eviction::evicts) store.keep_evicted(true);
  std::int64_t not_admitted = 0, inserted = 0, evicted = 0;
  for (int call = 0; call < (tessera_tests::under_asan ? 9 : 12); ++call) {
    CAPTURE(call);
    if (call % 4 != 3) {
      store.begin_batch();
      ++model.batch;
    }
    auto ids = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(ids_per_call), 0, id_range);
    if (call == 5) ids.insert(ids.begin(), {-3, -3});
    auto const got = locate_there(exec, store, ids);
    auto const expected = model.locate(ids);
    std::map<std::int64_t, int> times_new;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      bool const is_new = got.statuses[i] == row_status::inserted || got.statuses[i] == row_status::evicted;
      times_new[ids[i]] += is_new;
      if (got.statuses[i] == row_status::evicted) CHECK_FALSE(expected.left.empty());
      CHECK((got.slots[i] >= 0) == model.rows.contains(ids[i]));
      CHECK((is_new ? row_status::found : got.statuses[i]) == expected.statuses[i]);
      not_admitted += got.statuses[i] == row_status::not_admitted;
    }
    for (auto const& [id, times] : times_new) CHECK(times == static_cast<int>(expected.came.contains(id)));
    std::map<std::int64_t, std::int64_t> slot_of;
    id_list order;
    store.for_each_row([&](std::int64_t slot, std::int64_t id) {
      slot_of[id] = slot;
      order.push_back(id);
    });
    if constexpr (Eviction::evicts)
      CHECK(order == model.order());
    else
      CHECK(std::set<std::int64_t>(order.begin(), order.end()).size() == model.rows.size());
    CHECK(slot_of.size() == model.rows.size());
    for (auto const& [id, row] : model.rows) CHECK(slot_of.contains(id));
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (got.slots[i] >= 0) CHECK(slot_of[ids[i]] == got.slots[i]);
    CHECK(initial_or_stamped(exec, store, model, slot_of));
    // Those that left did so with the rows that they had.
    auto const evicted_view = [&] {
      if constexpr (Eviction::evicts) return store.evicted();
      return tessera::evicted_rows_view{};
    }();
    auto const left = tessera_tests::get(exec, evicted_view.ids);
    CHECK(std::multiset<std::int64_t>(left.begin(), left.end()) == expected.left);
    auto const left_rows = all_of(exec, evicted_view.weights), left_states = all_of(exec, evicted_view.states);
    for (std::size_t i = 0; i < left.size(); ++i) {
      CHECK(left_states[i] == model.stamp_of_left(left[i]));
      if (left_states[i] == 0) CHECK(same_bits(left_rows.data() + i * 3, initial_row(options, left[i]).data(), 3));
    }
    if constexpr (Eviction::evicts) store.clear_evicted();
    // A stamp on some rows.
    for (std::size_t i = 0; i < ids.size(); i += 7) {
      if (got.slots[i] < 0) continue;
      auto const stamp = static_cast<float>(call * 10000 + static_cast<int>(i) + 1);
      exec.copy_in(store.state(got.slots[i]), &stamp, sizeof stamp);
      model.rows.at(ids[i]).stamp = stamp;
    }
    inserted += static_cast<std::int64_t>(expected.came.size());
    evicted += static_cast<std::int64_t>(expected.left.size());
    CHECK(store.counts().inserted == inserted);
    CHECK(store.counts().evicted == evicted);
    CHECK(store.counts().not_admitted == not_admitted);
    CHECK(store.rows() == static_cast<std::int64_t>(model.rows.size()));
    if (call == 7) {
      id_list const some(ids.begin(), ids.begin() + ids_per_call / 3);
      store.erase(exec, tessera_tests::put(exec, some).view());
      for (auto const id : some) model.rows.erase(id);
    }
    if constexpr (Eviction::evicts) {
      if (call == 9) {
        auto const most = static_cast<std::int64_t>(model.rows.size()) / 3;
        auto const gone = model.evict(most);
        CHECK(store.evict(exec, most) == static_cast<std::int64_t>(gone.size()));
        auto const ids_gone = tessera_tests::get(exec, store.evicted().ids);
        CHECK(std::multiset<std::int64_t>(ids_gone.begin(), ids_gone.end()) == gone);
        CHECK(store.rows() == static_cast<std::int64_t>(model.rows.size()));
        store.clear_evicted();
        evicted += static_cast<std::int64_t>(gone.size());
      }
    }
  }
}

}  // namespace embed_tests
