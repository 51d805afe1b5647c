// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/click_log.hpp>

#include <string>
#include <vector>

#include <unistd.h>

#include <skip.hpp>

#include "click_support.hpp"

using namespace click_tests;

namespace {

std::vector<click> read_all(tessera::host_exec const& exec, tessera::click_log const& log) {
  std::vector<click> all;
  tessera::buffer<char> text;
  tessera::raw_rows rows;
  std::int64_t next = 0, largest = 0;
  for (std::int64_t block = 0; block < log.block_count(); ++block) {
    log.read(exec, block, text, rows);
    CHECK(log.first_row(block) == next);
    CHECK(log.rows(block) == rows.size());
    CHECK(rows.size() > 0);
    next += rows.size();
    largest = std::max(largest, rows.size());
    auto const some = samples_of(rows.view());
    all.insert(all.end(), some.begin(), some.end());
  }
  CHECK(log.rows() == next);
  CHECK(log.largest_block_rows() == largest);
  return all;
}

}  // namespace

TEST_CASE("click_log: the samples of all files in their order, whatever the blocks") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  temporary_folder folder;
  std::vector<std::string> files;
  std::vector<click> expected;
  for (int const rows : {70, 1, 200}) {
    log_shape shape;
    shape.rows = rows;
    shape.final_newline = rows != 70;  // the next file's first line is a line of its own all the same
    auto const text = random_log(random, shape);
    std::int64_t bad_line = 0;
    auto const some = naive_parse(text, bad_line);
    REQUIRE(some.has_value());
    expected.insert(expected.end(), some->begin(), some->end());
    files.push_back(folder.write(std::to_string(rows) + ".tsv", text));
  }
  for (int const threads : {1, 2})
    for (std::int64_t const block_bytes : {std::int64_t{1}, std::int64_t{77}, std::int64_t{3000}, std::int64_t{1} << 24}) {
      CAPTURE(block_bytes);
      host h(threads);
      tessera::click_statistics statistics;
      tessera::click_log const log(h.exec, files, statistics, {.block_bytes = block_bytes});
      CHECK(log.rows() == 271);
      CHECK(read_all(h.exec, log) == expected);
      CHECK(statistics.rows() == 271);
      tessera::click_log const again(h.exec, files, {.block_bytes = block_bytes});
      CHECK(again.block_count() == log.block_count());
      CHECK(read_all(h.exec, again) == expected);
    }
}

TEST_CASE("click_log: files that cannot be") {
  temporary_folder folder;
  host h;
  auto const open = [&](std::vector<std::string> const& files, std::int64_t block_bytes = 100) {
    return thrown_by([&] { tessera::click_log(h.exec, files, {.block_bytes = block_bytes}); });
  };
  std::mt19937_64 random(1);
  auto const good = folder.write("good.tsv", random_log(random, {}));

  CHECK(open({}).code() == tessera::errc::invalid_argument);
  CHECK(open({good}, 0).code() == tessera::errc::invalid_argument);
  CHECK(open({good}, 0).value("block_bytes") == "0");

  auto const missing = folder.path("missing.tsv");
  CHECK(open({good, missing}).code() == tessera::errc::io_error);
  CHECK(open({good, missing}).value("file") == missing);

  auto const directory = folder.path("");
  CHECK(open({directory}).code() == tessera::errc::io_error);
  CHECK(open({directory}).value("file") == directory);

  auto const empty = folder.write("empty.tsv", "");
  CHECK(open({good, empty}).code() == tessera::errc::parse_error);
  CHECK(open({good, empty}).value("file") == empty);
  CHECK(open({good, empty}).value("line") == "1");

  auto const bad = folder.write("bad.tsv", random_log(random, {}) + "\n" + random_log(random, {}));
  auto const e = open({good, bad});
  CHECK(e.code() == tessera::errc::parse_error);
  CHECK(e.value("file") == bad);
  CHECK(e.value("line") == "101");  // of its file
  CHECK(e.value("field") == "integer 1");
  CHECK(e.value("text") == "\"\"");

  auto const binary = folder.write("binary.tsv", std::string("\x7f"
                                                             "ELF\0\0\0\1",
                                                             8) +
                                                     std::string(5000, '\0'));
  CHECK(open({binary}).code() == tessera::errc::parse_error);
  CHECK(open({binary}).value("file") == binary);
  CHECK(open({binary}).value("line") == "1");
}

TEST_CASE("click_log: a file without the right to read it") {
  temporary_folder folder;
  auto const path = folder.write("secret.tsv", "0");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  if (::access(path.c_str(), R_OK) == 0) return tessera_tests::skip("this user may read every file");
  host h;
  auto const e = thrown_by([&] { tessera::click_log(h.exec, {path}); });
  CHECK(e.code() == tessera::errc::io_error);
  CHECK(e.value("file") == path);
}

TEST_CASE("click_log: a file that changes after it was opened is noticed") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  temporary_folder folder;
  host h;
  auto const text = random_log(random, {});
  auto const path = folder.write("log.tsv", text);
  tessera::click_log const log(h.exec, {path}, {.block_bytes = 1000});
  tessera::buffer<char> bytes;
  tessera::raw_rows rows;
  CHECK(thrown_by([&] { log.read(h.exec, log.block_count(), bytes, rows); }).code() == tessera::errc::out_of_range);
  CHECK(thrown_by([&] { log.read(h.exec, -1, bytes, rows); }).code() == tessera::errc::out_of_range);

  std::filesystem::resize_file(path, text.size() / 2);
  auto const shorter = thrown_by([&] { log.read(h.exec, log.block_count() - 1, bytes, rows); });
  CHECK(shorter.code() == tessera::errc::corrupt_file);
  CHECK(shorter.value("file") == path);

  // As long as before, and all samples, but in shorter lines; zeros before the last line's number fill up what is left.
  std::string other;
  while (other.size() + 200 < text.size()) other += "1" + std::string(39, '\t') + "\n";
  other += "1\t" + std::string(text.size() - other.size() - 40, '0') + std::string(38, '\t');
  REQUIRE(other.size() == text.size());
  folder.write("log.tsv", other);
  auto const changed = thrown_by([&] { log.read(h.exec, 0, bytes, rows); });
  CHECK(changed.code() == tessera::errc::corrupt_file);
  CHECK(changed.value("file") == path);
  CHECK(changed.value("expected rows") == std::to_string(log.rows(0)));
  CHECK_FALSE(changed.value("rows").empty());
  CHECK(changed.value("rows") != changed.value("expected rows"));
}

TEST_CASE("click_log: a block whose bytes change in place is noticed, and no other") {
  temporary_folder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "0\t" + std::to_string(10 + i) + std::string(38, '\t') + "\n";
  auto const path = folder.write("log.tsv", text);
  for (int const threads : {1, 2}) {
    host h(threads);
    tessera::click_log const log(h.exec, {path}, {.block_bytes = 500});
    REQUIRE(log.block_count() > 2);
    tessera::buffer<char> bytes;
    tessera::raw_rows rows;
    auto changed = text;
    changed[text.size() - 41] = '9';  // the last digit of the last integer
    folder.write("log.tsv", changed);
    for (std::int64_t block = 0; block + 1 < log.block_count(); ++block) log.read(h.exec, block, bytes, rows);
    auto const last = thrown_by([&] { log.read(h.exec, log.block_count() - 1, bytes, rows); });
    CHECK(last.code() == tessera::errc::corrupt_file);
    CHECK(last.value("file") == path);
    CHECK(last.sentence() == "click_log: the file has changed since it was opened");
    CHECK_FALSE(last.value("checksum").empty());
    CHECK_FALSE(last.value("expected checksum").empty());
    CHECK(last.value("checksum") != last.value("expected checksum"));
    CHECK(last.value("rows").empty());
    folder.write("log.tsv", text);
    log.read(h.exec, log.block_count() - 1, bytes, rows);
  }
}

TEST_CASE("click_log: the adult data") {
  host h(2);
  auto const folder = std::string(TESSERA_TEST_DATA_DIR) + "/adult/";
  if (!std::filesystem::exists(folder)) return tessera_tests::skip("no " + folder);
  for (std::int64_t const block_bytes : {std::int64_t{1} << 16, std::int64_t{1} << 24}) {
    tessera::click_statistics statistics({.count_categories = true, .count_integers = true});
    tessera::click_log const train(h.exec, {folder + "train.tsv"}, statistics, {.block_bytes = block_bytes});
    tessera::click_log const test(h.exec, {folder + "test.tsv"}, {.block_bytes = block_bytes});
    tessera::click_log const both(h.exec, {folder + "train.tsv", folder + "test.tsv"}, {.block_bytes = block_bytes});
    CHECK(train.rows() == 32561);
    CHECK(test.rows() == 16281);
    CHECK(both.rows() == 32561 + 16281);
    CHECK(statistics.clicks() == 7841);  // UCI: 24.08 % earn more than 50K
    for (std::int64_t c = 0; c < 13; ++c) CHECK((statistics.missing_integers(c) == train.rows()) == (c >= 5));
    for (std::int64_t c = 0; c < 26; ++c) CHECK((statistics.missing_categories(c) == train.rows()) == (c >= 8));
    CHECK(statistics.integer_moments(0).mean == doctest::Approx(38.5816));                       // years of age
    CHECK(statistics.category_values(7).size() + (statistics.missing_categories(7) > 0) == 42);  // countries, one unknown
  }
}

TEST_CASE("click_log: the fingerprint tells other data, and does not depend on the threads") {
  temporary_folder folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "0" + std::string(39, '\t') + "\n";  // more than one piece
  auto const a = folder.write("a", text), b = folder.write("b", "1" + text.substr(1));
  auto const fingerprint = [](int threads, std::vector<std::string> const& files) {
    tessera::thread_pool pool(threads);
    tessera::system_memory memory;
    return tessera::click_log(tessera::host_exec(pool, memory), files).fingerprint();
  };
  CHECK(fingerprint(1, {a, b}) == fingerprint(3, {a, b}));
  CHECK(fingerprint(2, {a, b}) != fingerprint(2, {b, a}));
  CHECK(fingerprint(2, {a}) != fingerprint(2, {b}));
  auto changed = text;
  changed[text.size() - 41] = '1';  // the last label
  CHECK(fingerprint(2, {folder.write("c", changed)}) != fingerprint(2, {a}));
}
