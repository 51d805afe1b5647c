// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/delimited_log.hpp>

#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <skip.hpp>

#include "click_support.hpp"
#include "delimited_support.hpp"

using namespace click_tests;
using namespace delimited_tests;
using tessera::delimited_layout;
using tessera::delimited_log;
using tessera::sample_schema;

namespace delimited_log_test {

namespace {

auto const criteo = tessera::criteo_layout();

delimited_log open_criteo(host const& h, std::vector<std::string> const& files, std::int64_t block_bytes = std::int64_t{1} << 24) {
  return {h.exec, files, tessera::criteo_schema(), criteo, {.block_bytes = block_bytes}};
}

void append(std::vector<sample>& to, std::vector<sample> const& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

TEST_CASE("delimited_log: the samples of all files in their order, whatever the blocks, and shown while it is opened") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_tests::temporary_folder folder;
  std::vector<std::string> files;
  std::vector<sample> expected;
  for (int const rows : {70, 1, 100}) {
    log_shape shape;
    shape.rows = rows;
    shape.final_newline = rows != 70;  // the next file's first line is a line of its own all the same
    auto const text = random_log(random, shape);
    append(expected, naive_parse(text, tessera::criteo_schema(), criteo).samples);
    files.push_back(folder.write(std::to_string(rows) + ".tsv", text));
  }
  for (int const threads : {1, 2})
    for (std::int64_t const block_bytes : {std::int64_t{77}, std::int64_t{3000}, std::int64_t{1} << 24}) {
      CAPTURE(block_bytes);
      host h(threads);
      std::vector<sample> seen;
      delimited_log const log(h.exec, files, tessera::criteo_schema(), criteo,
                              [&](tessera::sample_columns_view samples) { append(seen, sample_tests::samples_of(samples)); },
                              {.block_bytes = block_bytes});
      CHECK(log.rows() == 171);
      CHECK(log.schema() == tessera::criteo_schema());
      CHECK(sample_tests::read_all(h.exec, log) == expected);
      CHECK(seen == expected);
      CHECK(log.file_of(0) == files.front());
      CHECK(log.file_of(log.block_count() - 1) == files.back());
    }
}

TEST_CASE("delimited_log: files whose headers have other orders, with lists and quotes, in blocks smaller than a line") {
  click_tests::temporary_folder folder;
  host h(2);
  sample_schema const schema{.label = "y", .dense = {"age"}, .sparse = {"seen", "item"}, .time = "t", .single = {"item"}};
  delimited_layout const layout{.delimiter = ',', .header = true, .quotes = true};
  std::string one = "y,age,seen,item,t\n", other = "t,\"item\",unused,seen,y,age\r\n";
  for (int i = 0; i < 50; ++i) {
    auto const n = std::to_string(i);
    one += "1," + n + ".5," + (i % 3 == 0 ? "" : n + "|7") + ",\"a, " + n + "\"," + n + "\n";
    other += n + ",,\"\"," + n + ",0.25,NaN" + (i < 49 ? "\r\n" : "");
  }
  auto expected = naive_parse(one, schema, layout).samples;
  REQUIRE(expected.size() == 50);
  append(expected, naive_parse(other, schema, layout).samples);
  auto const none = folder.write("none.csv", "age,y,item,seen,t\n");
  std::vector<std::string> const files{folder.write("one.csv", one), none, folder.write("other.csv", other)};
  for (std::int64_t const block_bytes : {1, 40, 1000, 1 << 20}) {
    CAPTURE(block_bytes);
    delimited_log const log(h.exec, files, schema, layout, {.block_bytes = block_bytes});
    CHECK(sample_tests::read_all(h.exec, log) == expected);
  }
  CHECK(delimited_log(h.exec, {none}, schema, layout).block_count() == 0);

  auto const lacks = thrown_by([&] { delimited_log(h.exec, {files[0], folder.write("x.csv", "y,age\n")}, schema, layout); });
  CHECK(lacks.code() == tessera::errc::incompatible);
  CHECK(lacks.value("file") == folder.path("x.csv"));
  CHECK(lacks.value("column") == "t");
  auto const bad = thrown_by([&] {
    delimited_log(h.exec, {files[0], folder.write("x.csv", other + "\r\n1,2,3,4,5\r\n")}, schema, layout, {.block_bytes = 100});
  });
  CHECK(bad.value("file") == folder.path("x.csv"));
  CHECK(bad.value("line") == "52");
  CHECK(bad.value("field") == "age");
}

TEST_CASE("delimited_log: files that cannot be") {
  click_tests::temporary_folder folder;
  host h;
  auto const open = [&](std::vector<std::string> const& files, std::int64_t block_bytes = 100) {
    return thrown_by([&] { open_criteo(h, files, block_bytes); });
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
  CHECK(e.value("field") == "I1");
  CHECK(e.value("text") == "\"\"");

  auto const binary = folder.write("binary.tsv", std::string("\x7f"
                                                             "ELF\0\0\0\1",
                                                             8) +
                                                     std::string(5000, '\0'));
  CHECK(open({binary}).code() == tessera::errc::parse_error);
  CHECK(open({binary}).value("file") == binary);
  CHECK(open({binary}).value("line") == "1");

  sample_schema const numbers{.label = "y", .dense = {"x"}, .weight = "w", .other_labels = {"z"}};
  for (std::string const line : {"nan,1,1,1", "1,1,nan,1", "1,1,1,-nan"}) {
    auto const unnamed = folder.write("nan.csv", "y,x,w,z\n1,nan,1,1\n" + line + "\n");
    auto const found = thrown_by([&] { delimited_log(h.exec, {unnamed}, numbers, {.delimiter = ',', .header = true}); });
    CHECK(found.code() == tessera::errc::parse_error);
    CHECK(found.value("line") == "3");
  }

  CHECK(thrown_by([&] { delimited_log(h.exec, {good}, {.label = "label", .dense = {"x"}}, criteo); }).value("column") == "x");
  CHECK(thrown_by([&] { delimited_log(h.exec, {good}, {.label = ""}, criteo); }).code() == tessera::errc::invalid_argument);
  CHECK(thrown_by([&] { delimited_log(h.exec, {good}, tessera::criteo_schema(), {}); }).code() == tessera::errc::invalid_argument);
}

TEST_CASE("delimited_log: a file without the right to read it") {
  click_tests::temporary_folder folder;
  auto const path = folder.write("secret.tsv", "0");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  if (::access(path.c_str(), R_OK) == 0) return tessera_tests::skip("this user may read every file");
  host h;
  auto const e = thrown_by([&] { open_criteo(h, {path}); });
  CHECK(e.code() == tessera::errc::io_error);
  CHECK(e.value("file") == path);
}

TEST_CASE("delimited_log: a file that becomes shorter, or a block whose bytes change in place, is noticed, and no other block") {
  click_tests::temporary_folder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "0\t" + std::to_string(10 + i) + std::string(38, '\t') + "\n";
  auto const path = folder.write("log.tsv", text);
  for (int const threads : {1, 2}) {
    host h(threads);
    auto const log = open_criteo(h, {path}, 500);
    REQUIRE(log.block_count() > 2);
    tessera::sample_columns columns;
    CHECK(thrown_by([&] { log.read(h.exec, log.block_count(), columns); }).code() == tessera::errc::out_of_range);
    CHECK(thrown_by([&] { log.read(h.exec, -1, columns); }).code() == tessera::errc::out_of_range);
    auto changed = text;
    changed[text.size() - 41] = '9';  // the last digit of the last integer
    folder.write("log.tsv", changed);
    for (std::int64_t block = 0; block + 1 < log.block_count(); ++block) log.read(h.exec, block, columns);
    auto const last = thrown_by([&] { log.read(h.exec, log.block_count() - 1, columns); });
    CHECK(last.code() == tessera::errc::corrupt_file);
    CHECK(last.value("file") == path);
    CHECK(last.sentence() == "delimited_log: the file has changed since it was opened");
    CHECK_FALSE(last.value("checksum").empty());
    CHECK_FALSE(last.value("expected checksum").empty());
    CHECK(last.value("checksum") != last.value("expected checksum"));
    folder.write("log.tsv", text.substr(0, text.size() / 2));
    auto const shorter = thrown_by([&] { log.read(h.exec, log.block_count() - 1, columns); });
    CHECK(shorter.code() == tessera::errc::corrupt_file);
    CHECK(shorter.value("file") == path);
    folder.write("log.tsv", text);
    log.read(h.exec, log.block_count() - 1, columns);
  }
}

TEST_CASE("delimited_log: blocks are read by several threads at once, and again without an allocation") {
  std::mt19937_64 random(3);
  click_tests::temporary_folder folder;
  log_shape shape;
  shape.rows = 300;
  auto const text = random_log(random, shape);
  host h;
  auto const log = open_criteo(h, {folder.write("log.tsv", text)}, 5000);
  auto const expected = naive_parse(text, tessera::criteo_schema(), criteo).samples;
  std::vector<sample> found[2];
  std::vector<std::thread> threads;
  for (auto& mine : found)
    threads.emplace_back([&] {
      sample_tests::plain_host own;
      tessera::sample_columns columns;
      for (std::int64_t block = 0; block < log.block_count(); ++block) {
        log.read(own.exec, block, columns);
        append(mine, sample_tests::samples_of(columns.view()));
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(found[0] == expected);
  CHECK(found[1] == expected);

  tessera::sample_columns columns;
  std::int64_t allocations = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::int64_t block = 0; block < log.block_count(); ++block) log.read(h.exec, block, columns);
    if (epoch == 0) allocations = h.memory.allocations();
  }
  CHECK(h.memory.allocations() == allocations);
}

TEST_CASE("delimited_log: the adult data") {
  host h(2);
  auto const folder = std::string(TESSERA_TEST_DATA_DIR) + "/adult/";
  if (!std::filesystem::exists(folder)) return tessera_tests::skip("no " + folder);
  std::int64_t clicks = 0;
  double years = 0;
  std::vector<std::int64_t> there(39);
  auto const count = [&](tessera::sample_columns_view samples) {
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      clicks += samples.labels[i] != 0;
      years += static_cast<double>(samples.dense(0, i));
      for (std::int64_t c = 0; c < 13; ++c) there[static_cast<std::size_t>(c)] += !std::isnan(samples.dense(c, i));
      for (std::int64_t c = 0; c < 26; ++c) there[static_cast<std::size_t>(13 + c)] += samples.sparse[c].row(i)[0] != tessera::missing_id;
    }
  };
  delimited_log const train(h.exec, {folder + "train.tsv"}, tessera::criteo_schema(), criteo, count, {.block_bytes = 1 << 16});
  auto const both = open_criteo(h, {folder + "train.tsv", folder + "test.tsv"});
  CHECK(train.rows() == 32561);
  CHECK(both.rows() == 32561 + 16281);
  CHECK(clicks == 7841);  // UCI: 24.08 % earn more than 50K
  CHECK(years / static_cast<double>(train.rows()) == doctest::Approx(38.5816));
  for (std::size_t c = 0; c < 39; ++c) CHECK((there[c] == 0) == (c >= 13 ? c >= 21 : c >= 5));
}

TEST_CASE("delimited_log: the fingerprint tells other data, and does not depend on the threads") {
  click_tests::temporary_folder folder;
  std::string text;
  for (int i = 0; i < 8'000; ++i) text += "0" + std::string(39, '\t') + "\n";  // more than one piece
  auto const a = folder.write("a", text), b = folder.write("b", "1" + text.substr(1));
  auto const fingerprint = [](int threads, std::vector<std::string> const& files) {
    return open_criteo(host(threads), files).fingerprint();
  };
  CHECK(fingerprint(1, {a, b}) == fingerprint(3, {a, b}));
  CHECK(fingerprint(2, {a, b}) != fingerprint(2, {b, a}));
  CHECK(fingerprint(2, {a}) != fingerprint(2, {b}));
  auto changed = text;
  changed[text.size() - 41] = '1';  // the last label
  CHECK(fingerprint(2, {folder.write("c", changed)}) != fingerprint(2, {a}));
}

}  // namespace delimited_log_test
