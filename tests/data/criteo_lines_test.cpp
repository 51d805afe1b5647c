// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/criteo_lines.hpp>
#include <tessera/data/delimited_text.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "click_support.hpp"
#include "delimited_support.hpp"
#include "sanitizers.hpp"

using namespace click_tests;
using namespace delimited_tests;
using namespace std::string_literals;

namespace criteo_lines_test {

namespace {

auto const layout = tessera::criteo_layout(), general = general_criteo_layout();

std::vector<sample> parse_exact(tessera::host_exec const& exec, std::string const& text, tessera::sample_schema const& schema,
                                tessera::delimited_layout const& by) {
  std::vector<char> const exact(text.begin(), text.end());  // a read past the end is for the address sanitizer to see
  tessera::sample_columns columns;
  tessera::parse_delimited(exec, exact, "log.tsv", schema, by, columns);
  return sample_tests::samples_of(columns.view());
}

// By Criteo's own parser, the general one and the naive one: the same samples, or the same line and field refused. Returns whether there
// are samples.
bool agree(tessera::host_exec const& exec, std::string const& text, tessera::sample_schema const& schema) {
  auto const expected = naive_parse(text, schema, layout);
  for (auto const& by : {layout, general}) {
    try {
      auto const found = parse_exact(exec, text, schema, by);
      REQUIRE(expected.bad_line == 0);
      REQUIRE(found == expected.samples);
    } catch (tessera::error const& e) {
      REQUIRE(e.code() == tessera::errc::parse_error);
      REQUIRE(e.value("line") == std::to_string(expected.bad_line));
      REQUIRE(e.value("field") == expected.bad_field);
      REQUIRE(e.sentence() != "delimited_log: not a sample");
    }
  }
  return expected.bad_line == 0;
}

// Numbers that are ids too, in another order and fewer than there are.
tessera::sample_schema mixed_schema() {
  return {.label = "label", .dense = {"I13", "I2", "I1"}, .sparse = {"C26", "I1", "C1", "I7"}, .single = {"C26", "I1", "C1", "I7"}};
}

// The last chunk first.
struct reversed_team {
  static constexpr int size() { return 1; }
  static void run(std::int64_t chunks, tessera::chunk_function f) {
    while (chunks > 0) f(--chunks);
  }
};

std::vector<std::string> good_fields() {
  std::vector<std::string> fields{"1"};
  for (int i = 1; i <= 13; ++i) fields.push_back(std::to_string(i));
  for (int c = 1; c <= 26; ++c) fields.push_back("000000" + std::to_string(10 + c));
  return fields;
}
std::string join(std::vector<std::string> const& fields) {
  std::string line;
  for (auto const& field : fields) line += (line.empty() && &field == &fields[0] ? "" : "\t") + field;
  return line;
}
std::string with(std::size_t field, std::string const& text) {
  auto fields = good_fields();
  fields[field] = text;
  return join(fields);
}

}  // namespace

TEST_CASE("Criteo's layout: values, missing values and spellings, among lines that are read together") {
  host h;
  auto fields = good_fields();
  fields[1] = "-12345678";
  fields[2] = "";
  fields[3] = "-2147483647";
  fields[5] = "-0";
  fields[6] = "007";
  fields[7] = "1.5";
  fields[14] = "ffffffff";
  fields[15] = "DeadBeef";
  fields[16] = "";
  fields[17] = "a";
  fields[39] = "";
  auto const schema = tessera::criteo_schema();
  for (int const around : {0, 40}) {
    std::string more;
    for (int i = 0; i < around; ++i) more += join(good_fields()) + "\n";
    tessera::sample_columns columns;
    tessera::parse_delimited(h.exec, more + join(fields) + "\n" + more, "log", schema, layout, columns);
    REQUIRE(columns.size() == 2 * around + 1);
    auto const view = columns.view();
    auto const dense = [&](std::int64_t i) { return view.dense.row(i - 1)[around]; };
    auto const category = [&](std::int64_t c) { return view.sparse[c - 1].row(around)[0]; };
    CHECK(view.labels[around] == 1);
    CHECK(dense(1) == -12345678.0F);
    CHECK(std::isnan(dense(2)));
    CHECK(dense(3) == -2147483648.0F);
    CHECK(std::bit_cast<std::uint32_t>(dense(5)) == 0x80000000);
    CHECK(dense(6) == 7);
    CHECK(dense(7) == 1.5F);
    CHECK(dense(13) == 13);
    CHECK(category(1) == 0xffffffff);
    CHECK(category(2) == 0xdeadbeef);
    CHECK(category(3) == tessera::missing_id);
    CHECK(category(4) == 10);
    CHECK(category(5) == 0x15);
    CHECK(category(26) == tessera::missing_id);
  }
}

TEST_CASE("Criteo's layout: random logs as the naive parser reads them, whatever the threads and columns") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  host hosts[] = {host(1), host(2), host(3)};
  reversed_team reversed;
  for (int round = 0; round < 5; ++round) {
    log_shape shape;
    shape.rows = round == 0 ? 1500 : 1 + static_cast<int>(random() % 400);
    shape.missing = static_cast<double>(random() % 10) / 9;
    shape.odd_spellings = round % 2 == 0;  // not always the same parser
    shape.distinct_values = 100000;
    shape.newline = random() % 2 == 0 ? "\n" : "\r\n";
    shape.final_newline = random() % 2 == 0;
    auto const text = random_log(random, shape);
    for (auto const& schema : {tessera::criteo_schema(), mixed_schema()}) {
      auto const expected = naive_parse(text, schema, layout);
      REQUIRE(static_cast<int>(expected.samples.size()) == shape.rows);
      for (auto& h : hosts)
        for (auto const& by : {layout, general}) CHECK(parse_exact(h.exec, text, schema, by) == expected.samples);
      CHECK(parse_exact(tessera::host_exec(reversed, hosts[0].memory), text, schema, layout) == expected.samples);
    }
  }
}

TEST_CASE("Criteo's layout: columns that are used otherwise than there are read all the same") {
  host h;
  std::mt19937_64 random(1);
  log_shape shape;
  shape.rows = 100;
  shape.missing = 0;
  auto const text = random_log(random, shape);
  using tessera::sample_schema;
  for (auto const& schema : {sample_schema{.label = "I1", .dense = {"label"}}, sample_schema{.label = "label", .sparse = {"C1", "I2"}},
                             sample_schema{.label = "label", .session = "I3", .time = "I4", .weight = "I5"},
                             sample_schema{.label = "label", .dense = {}, .other_labels = {"I6"}}})
    CHECK(parse_exact(h.exec, text, schema, layout) == naive_parse(text, schema, layout).samples);
  auto texts = tessera::criteo_layout();
  texts.format_of["C1"] = tessera::id_format::text;
  texts.format_of["I1"] = tessera::id_format::text;
  CHECK(parse_exact(h.exec, text, mixed_schema(), texts) == naive_parse(text, mixed_schema(), texts).samples);
}

TEST_CASE("Criteo's layout: lines that begin where the work is cut") {
  host h(2);
  auto const text = lines_of_64_bytes(5000);
  REQUIRE(text.size() == 64 * 5000);
  auto const parsed = parse_exact(h.exec, text, tessera::criteo_schema(), layout);
  REQUIRE(parsed.size() == 5000);
  bool same = true;
  for (int i = 0; i < 5000; ++i) same = same && std::bit_cast<float>(parsed[static_cast<std::size_t>(i)].dense[0]) == static_cast<float>(i);
  CHECK(same);
}

TEST_CASE("Criteo's layout: random mutations are read as the naive parser reads them, or refused at the same place") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  host h(2);
  log_shape shape;
  std::string const likely = "\t\n\r-0129afgAFG \0\xff"s;
  int accepted = 0;
  constexpr int rounds = tessera_tests::fewer(600);
  for (int round = 0; round < rounds; ++round) {
    shape.rows = 1 + static_cast<int>(random() % 60);  // more than are taken at once, and fewer
    shape.odd_spellings = round % 4 == 0;
    shape.newline = round % 3 == 0 ? "\r\n" : "\n";
    shape.final_newline = round % 5 != 0;
    auto text = random_log(random, shape);
    for (auto mutations = 1 + random() % 3; mutations > 0 && !text.empty(); --mutations) {
      auto const at = random() % text.size();
      auto const byte = random() % 2 == 0 ? likely[random() % likely.size()] : static_cast<char>(random());
      switch (random() % 4) {
        case 0: text[at] = byte; break;
        case 1: text.insert(at, 1, byte); break;
        case 2: text.erase(at, 1); break;
        default: text.resize(at); break;
      }
    }
    CAPTURE(text);
    accepted += agree(h.exec, text, round % 2 == 0 ? tessera::criteo_schema() : mixed_schema());
  }
  CHECK(accepted > 0);
  CHECK(accepted < rounds);
}

TEST_CASE("Criteo's layout: every byte in every place of a field among many lines") {
  host h(2);
  std::vector<std::string> fields_tried;
  for (int byte = 0; byte < 256; byte += tessera_tests::under_sanitizer ? 9 : byte < 0x70 ? 1 : 3) {
    auto const c = static_cast<char>(byte);
    for (auto const& text : {std::string(1, c), c + "1234567"s, "1234567"s + c, "1234"s + c + "678"s, std::string(8, c)})
      fields_tried.push_back(text);
  }
  for (auto const* const text :
       {"",         "-",         "--",       "-0",        "-1",         "-1234567",   "-12345678",   "-123456789", "12345678",
        "99999999", "123456789", "00000001", "000000001", "2147483647", "2147483648", "-2147483647", "\t",         "\t\t",
        "1\n",      "\n",        "\r",       "1\r",       "abcdef12",   "ABCDEF12",   "abcdefg1",    "@AFG`afg"})
    fields_tried.emplace_back(text);
  std::string before, after;
  for (int i = 0; i < 4; ++i) before += join(good_fields()) + "\n";
  for (int i = 0; i < 13; ++i) after += join(good_fields()) + "\n";
  int accepted = 0;
  for (auto const& field_text : fields_tried)
    for (std::size_t const field : {std::size_t{0}, std::size_t{1}, std::size_t{14}, std::size_t{20}, std::size_t{39}}) {
      CAPTURE(field_text);
      CAPTURE(field);
      accepted += agree(h.exec, before + with(field, field_text) + "\n" + after, mixed_schema());
    }
  CHECK(accepted > tessera_tests::fewer(100));
}

TEST_CASE("bits_equal: characters among 64 are found by words as one by one") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  bool same = true;
  for (int round = 0; round < 20'000; ++round) {
    std::string text(64, '\0');
    for (auto& c : text)
      c = random() % 4 == 0 ? '\t' : random() % 3 == 0 ? "\x08\x0a\x89\x8a\xff"[random() % 5] : static_cast<char>(random());
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < 64; ++i) expected |= std::uint64_t{text[i] == '\t'} << i;
    same = same && tessera::detail::bits_equal(text.data(), '\t') == expected &&
           tessera::detail::bits_equal_by_words(text.data(), '\t') == expected;
  }
  CHECK(same);
}

TEST_CASE("Criteo's layout: any number of lines, short ones first, ends where its memory ends") {
  host h;
  std::string const short_line = "1" + std::string(39, '\t');
  for (int count = 1; count < 70; ++count)
    for (auto const& end : {"\n"s, "\r\n"s})
      for (bool const final_end : {true, false}) {
        std::string text;
        for (int i = 0; i < count; ++i) text += (i % 3 == 2 ? join(good_fields()) : short_line) + (i + 1 < count || final_end ? end : "");
        CHECK(agree(h.exec, text, mixed_schema()));
      }
  // A line of one byte stands before: its fields' last characters lie at the very beginning of the memory.
  std::string text = "\n";
  for (int i = 0; i < 40; ++i) text += short_line + "\n";
  CHECK_FALSE(agree(h.exec, text, mixed_schema()));
}

TEST_CASE("Criteo's layout: noise is refused") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  host h(2);
  for (int round = 0; round < 20; ++round) {
    std::string noise(1 + random() % 300000, '\0');
    if (round % 2 == 0)
      for (auto& byte : noise) byte = static_cast<char>(random());
    CHECK(thrown_by([&] { parse_exact(h.exec, noise, tessera::criteo_schema(), layout); }).code() == tessera::errc::parse_error);
  }
}

}  // namespace criteo_lines_test
