// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/device_message.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <random.hpp>
#include <temporary_folder.hpp>

namespace device_message_test {

using tessera::detail::device_message;
using tessera::detail::sent_block;

// Parts as they should be: begin and end, in bytes of the message.
std::vector<std::pair<std::int64_t, std::int64_t>> parts_of(device_message const& message) {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts{{0, device_message::header_words(message.blocks()) * 8}};
  std::vector<std::byte> memory(static_cast<std::size_t>(message.bytes()));
  auto* const first = memory.data();
  auto const add = [&](auto* from, std::int64_t count) {
    auto const at = reinterpret_cast<std::byte*>(from) - first;
    parts.emplace_back(at, at + count * static_cast<std::int64_t>(sizeof *from));
  };
  for (std::size_t i = 0; i < message.blocks(); ++i) {
    add(message.ends(i, first), message.block(i).rows);
    add(message.ids(i, first), message.block(i).ids);
    if (message.has_weights(i)) add(message.weights(i, first), message.block(i).ids);
  }
  return parts;
}

}  // namespace device_message_test

using namespace device_message_test;

TEST_CASE("device_message: parts of a message are apart and aligned, and its header tells of them") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100; ++round) {
    std::vector<sent_block> blocks(random() % 6);
    std::vector<bool> weights(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = {static_cast<std::int64_t>(random() % 20), static_cast<std::int64_t>(random() % 50)};
      weights[i] = random() % 2 == 0;
    }
    auto const brings = [&](std::size_t i) { return bool(weights[i]); };
    bool const weighted = round % 2 == 0;
    device_message const message(blocks, weighted, brings);
    CHECK(message.bytes() % 64 == 0);
    CHECK(message.weighted() == weighted);
    auto const parts = parts_of(message);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CHECK(parts[i].first % 16 == 0);
      CHECK(parts[i].second <= (i + 1 < parts.size() ? parts[i + 1].first : message.bytes()));
    }
    auto const header = message.header();
    CHECK(static_cast<std::int64_t>(header.size()) == device_message::header_words(blocks.size()));
    auto const again = device_message::read(header, blocks.size(), message.bytes(), 3, brings);
    CHECK(again.header() == header);
    CHECK(parts_of(again) == parts);
    for (std::size_t i = 0; i < blocks.size(); ++i) CHECK(again.has_weights(i) == (weighted && weights[i]));
  }
}

TEST_CASE("device_message: a header that does not fit its message is refused, naming the rank") {
  auto const all = [](std::size_t) { return true; };
  device_message const message({{3, 7}, {0, 0}}, true, all);
  auto const refused = [&](std::vector<std::int64_t> const& header, std::size_t blocks, std::int64_t bytes) {
    auto const e = tessera_tests::error_of([&] { (void)device_message::read(header, blocks, bytes, 5, all); });
    CHECK(e.code() == tessera::errc::incompatible);
    CHECK(e.value("from rank") == "5");
  };
  auto const header = message.header();
  refused(header, 3, message.bytes());
  refused(header, 2, message.bytes() + 64);
  refused({header.begin(), header.end() - 1}, 2, message.bytes());
  for (std::size_t const word : {2U, 3U})
    for (auto const wrong : {std::int64_t{-1}, std::int64_t{1} << 62, std::int64_t{100}}) {
      auto changed = header;
      changed[word] = wrong;
      refused(changed, 2, message.bytes());
    }
}
