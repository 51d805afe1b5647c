// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/id_message.hpp>

#include <doctest/doctest.h>

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

namespace id_message_test {

namespace {

using tessera::detail::id_message;
using tessera::detail::id_message_key;

// Keys with rows, as a rank sends them.
struct sent_ids {
  std::vector<std::int64_t> bounds;  // 0: none
  std::vector<std::vector<std::vector<std::int64_t>>> rows;
  bool weighted;
};

std::vector<std::byte> written(sent_ids const& ids, std::vector<id_message_key>& keys) {
  tessera_tests::serial_host host;
  std::vector<tessera::feature_rows<>> features;
  for (auto const& rows : ids.rows) {
    std::vector<std::vector<float>> weights;
    for (auto const& row : rows)
      if (ids.weighted) weights.emplace_back(row.begin(), row.end());
    features.emplace_back(std::to_string(features.size()), rows, std::move(weights));
  }
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), features);
  auto const view = batch.view();
  bool const weighted = view.weighted();
  keys.clear();
  for (std::size_t k = 0; k < ids.rows.size(); ++k)
    keys.push_back(tessera::detail::measure_key(view.key(static_cast<std::int64_t>(k)), ids.bounds[k], weighted));
  std::vector<std::byte> bytes(static_cast<std::size_t>(tessera::detail::id_message_size(keys)));
  tessera::detail::write_id_message(
      keys, weighted, [&](std::size_t k) { return view.key(static_cast<std::int64_t>(k)); },
      [&](std::size_t k) { return view.weights + view.key(static_cast<std::int64_t>(k)).offsets[0]; },
      [&](std::size_t k) { return ids.bounds[k]; }, bytes.data());
  return bytes;
}

struct read_ids {
  std::vector<std::int64_t> offsets, ids;
  std::vector<float> weights;
};
read_ids read(id_message const& message, std::size_t key) {
  read_ids result;
  result.offsets.resize(static_cast<std::size_t>(message.rows(key)));
  result.ids.resize(static_cast<std::size_t>(message.values(key)));
  result.weights.resize(result.ids.size());
  message.read(key, 3, 10, result.offsets.data(), result.ids.data(), result.weights.data());
  return result;
}

sent_ids random_ids(std::mt19937_64& random) {
  sent_ids ids;
  ids.weighted = random() % 2 == 0;
  for (auto keys = 1 + random() % 4; keys > 0; --keys) {
    std::int64_t const bounds[] = {0, 50, (std::int64_t{1} << 32) - 2, (std::int64_t{1} << 32) - 1};
    ids.bounds.push_back(bounds[random() % 4]);
    auto& rows = ids.rows.emplace_back(random() % 20);
    auto const longest = random() % 3 == 0 ? 400 : 4;
    bool const all_one = random() % 3 == 0;
    for (auto& row : rows) {
      row = tessera_tests::random_integers<std::int64_t>(random, all_one ? 1 : random() % static_cast<std::uint64_t>(longest), -1, 60);
      for (auto& id : row)
        if (random() % 4 == 0) id = static_cast<std::int64_t>(random());  // of any size
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("id_message: what is read is what was sent; ids that a bounded table has no row for become -1") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    auto const ids = random_ids(random);
    std::vector<id_message_key> keys;
    auto const bytes = written(ids, keys);
    id_message const message(bytes, static_cast<std::int64_t>(keys.size()), 3);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      auto const bound = ids.bounds[k];
      bool const narrow = bound > 0 && bound < (std::int64_t{1} << 32) - 1;
      CHECK(keys[k].id_bytes == (narrow ? 4 : 8));
      auto const found = read(message, k);
      std::int64_t end = 10;
      std::size_t next = 0;
      bool same = message.rows(k) == static_cast<std::int64_t>(ids.rows[k].size());
      for (std::size_t row = 0; row < ids.rows[k].size(); ++row) {
        end += static_cast<std::int64_t>(ids.rows[k][row].size());
        same &= found.offsets[row] == end;
        for (auto const id : ids.rows[k][row]) {
          same &= found.ids[next] == (narrow && (id < 0 || id >= bound) ? -1 : id);
          same &= found.weights[next] == (message.weighted() ? static_cast<float>(id) : 1.0F);
          ++next;
        }
      }
      same &= next == found.ids.size();
      CHECK(same);
    }
  }
}

TEST_CASE("id_message: lengths take as few bytes as hold them, and none where each row has one id") {
  std::vector<id_message_key> keys;
  auto const length_bytes = [&](std::vector<std::size_t> const& lengths) {
    sent_ids ids{{9}, {{}}, false};
    for (auto const length : lengths) ids.rows[0].emplace_back(length, 1);
    auto const bytes = written(ids, keys);
    auto const values = static_cast<std::size_t>(keys[0].values);
    auto const padded = [](std::size_t n) { return (n + 7) / 8 * 8; };
    CHECK(bytes.size() == 16 + 32 + padded(lengths.size() * static_cast<std::size_t>(keys[0].length_bytes)) + padded(4 * values));
    return keys[0].length_bytes;
  };
  CHECK(length_bytes({1, 1, 1}) == 0);
  CHECK(length_bytes({}) == 0);
  CHECK(length_bytes({1, 0, 1}) == 1);
  CHECK(length_bytes({0, 255}) == 1);
  CHECK(length_bytes({0, 256}) == 2);
  CHECK(length_bytes({0, 65'535}) == 2);
  CHECK(length_bytes({65'536}) == 4);
}

TEST_CASE("id_message: a key that has all that the one before has travels once; one that says so and has not is refused") {
  sent_ids const ids{{0, 9, 9}, {{{5}, {6, 7}}, {{1}, {2}, {}}, {{1}, {2}, {}}}, false};
  auto const rows_of = [](sent_ids const& of, std::size_t key) {
    std::vector<std::int64_t> offsets{0}, values;
    for (auto const& row : of.rows[key]) {
      values.insert(values.end(), row.begin(), row.end());
      offsets.push_back(static_cast<std::int64_t>(values.size()));
    }
    return std::pair(values, offsets);
  };
  std::vector<float> const weights(8, 1.0F);  // which nobody asks for
  auto const first = rows_of(ids, 0), second = rows_of(ids, 1);
  tessera::jagged_view<std::int64_t const> const a{first.first.data(), first.second.data(), 2},
      b{second.first.data(), second.second.data(), 3};
  CHECK(tessera::detail::have_equal_rows(b, b));
  CHECK(!tessera::detail::have_equal_rows(a, b));
  std::vector<id_message_key> keys{tessera::detail::measure_key(a, 0, false), tessera::detail::measure_key(b, 9, false)};
  auto const once = tessera::detail::id_message_size(keys);
  keys.push_back(keys[1]);
  keys[2].length_bytes = id_message_key::as_before;
  CHECK(tessera::detail::id_message_size(keys) == once + 32);
  auto const write = [&] {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tessera::detail::id_message_size(keys)));
    tessera::detail::write_id_message(
        keys, false, [&](std::size_t i) { return i == 0 ? a : b; }, [&](std::size_t) { return weights.data(); },
        [&](std::size_t i) { return ids.bounds[i]; }, bytes.data());
    return bytes;
  };
  auto const bytes = write();
  id_message const message(bytes, 3, 3);
  CHECK(read(message, 1).ids == second.first);
  CHECK(read(message, 2).ids == second.first);
  CHECK(read(message, 2).offsets == read(message, 1).offsets);
  CHECK(read(message, 0).ids == first.first);
  for (auto const key : {0, 2}) {
    auto const kept = keys;
    keys[static_cast<std::size_t>(key)].length_bytes = id_message_key::as_before;
    keys[static_cast<std::size_t>(key)].rows += 1;
    auto const broken = write();
    CHECK_THROWS_WITH_AS(id_message(broken, 3, 3), doctest::Contains("ids that cannot be read (from rank 3"), tessera::error);
    keys = kept;
  }
}

TEST_CASE("id_message: bytes that are cut or changed are refused by rank, or read as other ids, and never past their end") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t refused = 0, taken = 0;
  for (int round = 0; round < 2000; ++round) {
    auto const ids = random_ids(random);
    std::vector<id_message_key> keys;
    auto bytes = written(ids, keys);
    auto count = static_cast<std::int64_t>(keys.size());
    switch (random() % 3) {
      case 0: bytes.resize(random() % bytes.size()); break;
      case 1: count += random() % 2 == 0 ? 1 : -1; break;
      default: {
        // In the header as often as behind it.
        auto const header = std::min(bytes.size(), std::size_t{16} + 32 * keys.size());
        bytes[random() % (random() % 2 == 0 ? header : bytes.size())] = static_cast<std::byte>(random());
      }
    }
    // In memory of just this size, so that the address sanitizer sees what reaches past it.
    std::vector<std::byte> const exact(bytes.begin(), bytes.end());
    try {
      id_message const message(exact, count, 3);
      for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) {
        auto const found = read(message, k);
        for (std::size_t row = 1; row < found.offsets.size(); ++row) CHECK(found.offsets[row] >= found.offsets[row - 1]);
      }
      ++taken;
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::incompatible);
      CHECK(e.value("from rank") == "3");
      ++refused;
    }
  }
  CHECK(refused > 500);
  CHECK(taken > 50);
}

}  // namespace id_message_test
