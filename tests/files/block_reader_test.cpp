// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/files/block_reader.hpp>

#include "temporary_folder.hpp"

using tessera::errc;
using tessera::line_blocks;
using tessera_tests::error_of;
using tessera_tests::temporary_folder;
using tessera_tests::write_file;

namespace {

struct host {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec exec{team, memory};
};

std::string text_of(tessera::line_block const& block) { return {block.text.begin(), block.text.end()}; }

// Every block holds exactly the lines that begin in it; in order they are the file.
void check_blocks(std::string const& path, std::string const& text, std::int64_t block_bytes) {
  host const h;
  line_blocks const blocks(path, block_bytes);
  CHECK(blocks.file_bytes() == static_cast<std::int64_t>(text.size()));
  tessera::buffer<char> storage;
  std::string all;
  bool sound = true;
  for (std::int64_t b = 0; b < blocks.block_count(); ++b) {
    auto const block = blocks.read(h.exec, b, storage);
    auto const first = b * block_bytes;
    auto const last = std::min(first + block_bytes, blocks.file_bytes());
    if (block.text.empty()) continue;
    sound = sound && block.offset == static_cast<std::int64_t>(all.size()) && block.offset >= first && block.offset < last;
    all += text_of(block);
    // The last line begins in this block, and it is whole.
    sound = sound && (all.back() == '\n' || all.size() == text.size());
    auto const last_line = all.size() < 2 ? 0 : all.rfind('\n', all.size() - 2) + 1;
    sound = sound && static_cast<std::int64_t>(last_line) < last;
  }
  CHECK(sound);
  CHECK(all == text);
}

constexpr std::int64_t block_sizes[] = {1, 2, 7, 64, 1000, 4096, 1 << 20};

}  // namespace

TEST_CASE("line_blocks in order are the file, at any block size") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  SUBCASE("by hand") {
    for (std::string const text : {"", "\n", "a", "a\n", "\n\n\n", "a\nb", "a\r\nb\r\n", "one\n\ntwo\nthree", "\na", "\r\r\n\n\r"}) {
      CAPTURE(text);
      write_file(path, text);
      for (auto const block_bytes : block_sizes) check_blocks(path, text, block_bytes);
    }
  }
  SUBCASE("random lines of any bytes") {
    auto const seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random(seed);
    for (int round = 0; round < 60; ++round) {
      std::string text(random() % 400, '?');
      auto const newline_in = 1 + random() % 40;
      for (auto& c : text) c = random() % newline_in == 0 ? '\n' : static_cast<char>(random());
      CAPTURE(round);
      write_file(path, text);
      for (auto const block_bytes : block_sizes) check_blocks(path, text, block_bytes);
    }
  }
  SUBCASE("lines longer than a block and than what is read past it") {
    auto const seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string text;
    for (int line = 0; line < 12; ++line) text += std::string(random() % 20000, 'x') + "\n";
    text += std::string(9000, 'y');
    write_file(path, text);
    for (std::int64_t const block_bytes : {7, 64, 4096, 5000, 1 << 20}) check_blocks(path, text, block_bytes);
  }
  SUBCASE("lines that end near where a read ends") {
    std::string const rest(20000, '\n');
    for (std::size_t const reach : {4161U, 8322U, 16644U})  // the first read of a block of 64 bytes, and two doublings
      for (auto length = reach - 4; length < reach + 4; ++length) {
        auto const text = std::string(length, 'x') + rest;
        write_file(path, text);
        host const h;
        tessera::buffer<char> storage;
        auto const block = line_blocks(path, 64).read(h.exec, 0, storage);
        CHECK(block.text.size() == static_cast<std::int64_t>(length + 1));
      }
  }
}

TEST_CASE("line_blocks of short lines reuse the buffer") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  std::string text;
  for (int line = 0; line < 5000; ++line) text += std::to_string(line) + "\n";
  write_file(path, text);
  host const h;
  line_blocks const blocks(path, 1000);
  tessera::buffer<char> storage;
  blocks.read(h.exec, 0, storage);
  auto const* const data = storage.data();
  for (std::int64_t b = 0; b < blocks.block_count(); ++b) blocks.read(h.exec, b, storage);
  CHECK(storage.data() == data);
  CHECK(storage.capacity_bytes() < 6000);
}

TEST_CASE("line_blocks can be read by many threads at once") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  std::string text;
  for (int line = 0; line < 20000; ++line) text += std::to_string(line * 7919) + "\n";
  write_file(path, text);
  tessera::thread_pool team(3);
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  line_blocks const blocks(path, 1000);
  std::vector<std::string> texts(static_cast<std::size_t>(blocks.block_count()));
  exec.run(blocks.block_count(), [&](std::int64_t b) {
    tessera::buffer<char> storage;
    texts[static_cast<std::size_t>(b)] = text_of(blocks.read(exec, b, storage));
  });
  std::string all;
  for (auto const& t : texts) all += t;
  CHECK(all == text);
}

TEST_CASE("line_blocks count lines for messages") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  auto const text = "a\n\nbc\r\n" + std::string(600000, 'x') + "\nlast";
  write_file(path, text);
  line_blocks const blocks(path, 100);
  for (std::int64_t const offset : {0, 1, 2, 3, 6, 7, 8, 300000, 600007, 600008, 600012})
    CHECK(blocks.count_lines_before(offset) == std::count(text.begin(), text.begin() + offset, '\n'));
  CHECK(blocks.count_lines_before(1 << 30) == 4);
  CHECK(blocks.count_lines_before(-1) == 0);
}

TEST_CASE("line_blocks refuse what they cannot read, by name") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  write_file(path, "a\nb\n");
  host const h;
  tessera::buffer<char> storage;

  CHECK(error_of([&] { line_blocks(folder.file("missing"), 10); }).code() == errc::io_error);
  CHECK(error_of([&] { line_blocks(folder.path(), 10); }).code() == errc::io_error);
  for (std::int64_t const bytes : {0, -1}) {
    auto const e = error_of([&] { line_blocks(path, bytes); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value("block_bytes") == std::to_string(bytes));
  }
  line_blocks const blocks(path, 3);
  CHECK(blocks.block_count() == 2);
  for (std::int64_t const b : {-1, 2}) CHECK(error_of([&] { blocks.read(h.exec, b, storage); }).code() == errc::out_of_range);

  write_file(path, "");
  line_blocks const none(path, 3);
  CHECK(none.block_count() == 0);
  CHECK(error_of([&] { none.read(h.exec, 0, storage); }).code() == errc::out_of_range);
}

TEST_CASE("line_blocks notice a file that changes its length") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  std::string text;
  for (int line = 0; line < 3000; ++line) text += std::to_string(line) + "\n";
  write_file(path, text);
  host const h;
  tessera::buffer<char> storage;
  line_blocks const blocks(path, 1000);

  SUBCASE("shorter: an error that says so") {
    REQUIRE(::truncate(path.c_str(), 2500) == 0);
    auto const e = error_of([&] {
      for (std::int64_t b = 0; b < blocks.block_count(); ++b) blocks.read(h.exec, b, storage);
    });
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("file") == path);
    CHECK(e.value("expected") == std::to_string(text.size()));
    CHECK(e.value("found") == "2500");
    CHECK(blocks.count_lines_before(blocks.file_bytes()) == std::count(text.begin(), text.begin() + 2500, '\n'));
  }
  SUBCASE("longer: what was there when it was opened") {
    std::ofstream(path, std::ios::app) << "more\n";
    std::string all;
    for (std::int64_t b = 0; b < blocks.block_count(); ++b) all += text_of(blocks.read(h.exec, b, storage));
    CHECK(all == text);
  }
}

TEST_CASE("line_blocks of many pieces, which threads read at once") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  std::string text;
  for (int line = 0; line < 400'000; ++line) text += std::to_string(line) + "\n";
  write_file(path, text);
  for (int const threads : {1, 3}) {
    tessera::thread_pool pool(threads);
    tessera::system_memory memory;
    tessera::host_exec const exec(pool, memory);
    tessera::buffer<char> storage;
    for (std::int64_t const block_bytes : {std::int64_t{1} << 20, std::int64_t{1} << 30}) {
      line_blocks const blocks(path, block_bytes);
      std::string all;
      for (std::int64_t b = 0; b < blocks.block_count(); ++b) all += text_of(blocks.read(exec, b, storage));
      CHECK((all == text));
    }
    line_blocks const blocks(path, std::int64_t{1} << 30);
    REQUIRE(::truncate(path.c_str(), 700'000) == 0);
    CHECK(error_of([&] { blocks.read(exec, 0, storage); }).value("found") == "700000");
    write_file(path, text);
  }
}

TEST_CASE("line_blocks stop at a line that no text has") {
  temporary_folder const folder;
  auto const path = folder.file("zeros");
  write_file(path, "first\n");
  REQUIRE(::truncate(path.c_str(), 4 * line_blocks::longest_overhang_bytes) == 0);  // a hole: takes no room
  host const h;
  tessera::buffer<char> storage;
  line_blocks const blocks(path, 1 << 20);
  auto const e = error_of([&] { blocks.read(h.exec, 0, storage); });
  CHECK(e.code() == errc::parse_error);
  CHECK(e.value("file") == path);
  CHECK(e.value("offset") == "6");
  CHECK(blocks.read(h.exec, 1, storage).text.empty());
}
