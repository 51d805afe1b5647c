// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/criteo_lines.hpp>
#include <tessera/data/criteo_tsv.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "click_support.hpp"

using namespace click_tests;
using namespace std::string_literals;

namespace {

std::vector<click> parse(tessera::host_exec const& exec, std::string const& text) {
  tessera::raw_rows rows;
  tessera::parse_criteo(exec, text, "log.tsv", rows);
  return samples_of(rows.view());
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

TEST_CASE("parse_criteo: values, missing values and spellings") {
  host h;
  auto fields = good_fields();
  fields[2] = "";
  fields[3] = "-2147483647";
  fields[4] = "2147483647";
  fields[5] = "-0";
  fields[6] = "007";
  fields[14] = "ffffffff";
  fields[15] = "DeadBeef";
  fields[16] = "";
  fields[17] = "a";
  fields[39] = "";
  auto const parsed = parse(h.exec, join(fields) + "\n");
  REQUIRE(parsed.size() == 1);
  CHECK(parsed[0].label == 1);
  CHECK(parsed[0].integers[0] == 1);
  CHECK(parsed[0].integers[1] == tessera::click_layout::missing_integer);
  CHECK(parsed[0].integers[2] == -2147483647);
  CHECK(parsed[0].integers[3] == 2147483647);
  CHECK(parsed[0].integers[4] == 0);
  CHECK(parsed[0].integers[5] == 7);
  CHECK(parsed[0].integers[12] == 13);
  CHECK(parsed[0].categories[0] == 0xffffffff);
  CHECK(parsed[0].categories[1] == 0xdeadbeef);
  CHECK(parsed[0].categories[2] == tessera::click_layout::missing_category);
  CHECK(parsed[0].categories[3] == 10);
  CHECK(parsed[0].categories[4] == 0x15);
  CHECK(parsed[0].categories[25] == tessera::click_layout::missing_category);
}

TEST_CASE("parse_criteo: line ends") {
  host h;
  auto const line = join(good_fields());
  auto const empty_last = with(39, "");
  auto const three = parse(h.exec, line + "\n" + line + "\n" + empty_last + "\n");
  REQUIRE(three.size() == 3);
  CHECK(three[2].categories[25] == tessera::click_layout::missing_category);
  CHECK(parse(h.exec, "").empty());
  for (auto const& text : {line + "\r\n" + line + "\r\n" + empty_last + "\r\n", line + "\n" + line + "\n" + empty_last,
                           line + "\r\n" + line + "\n" + empty_last + "\r"}) {
    CAPTURE(text);
    CHECK(parse(h.exec, text) == three);
  }
  // Nothing but a label, and nothing behind the last byte.
  std::string const all_missing = "0" + std::string(39, '\t');
  for (auto const& text : {all_missing, all_missing + "\r", all_missing + "\n"}) CHECK(parse(h.exec, text).size() == 1);
}

TEST_CASE("parse_criteo: what is refused, with line, field and text") {
  struct refused {
    std::string line;
    std::string field;
    std::string text;
    std::string sentence;
  };
  auto short_line = good_fields();
  short_line.resize(39);
  auto const fewer = "fewer than 40 fields"s, label = "a label other than 0 or 1"s, no_integer = "not an integer"s,
             large = "an integer beyond 2147483647"s, no_hex = "not a hexadecimal category"s, long_hex = "more than 8 hexadecimal digits"s;
  std::vector<refused> const cases = {
      {"", "integer 1", "\"\"", fewer},
      {"0", "integer 1", "\"0\"", fewer},
      {"0\t1\t2", "integer 3", "\"0\\t1\\t2\"", fewer},
      {join(short_line), "category 26", "", fewer},
      {join(good_fields()) + "\t", "field 41", "", "more than 40 fields"},
      {join(good_fields()) + "\t7\t8", "field 41", "", "more than 40 fields"},
      {join(good_fields()) + join(good_fields()), "field 41", "", "more than 40 fields"},
      {with(0, ""), "label", "\"\"", label},
      {with(0, "2"), "label", "\"2\"", label},
      {with(0, "-1"), "label", "\"-1\"", label},
      {with(0, "01"), "label", "\"01\"", label},
      {with(0, "1.0"), "label", "\"1.0\"", label},
      {with(1, "x"), "integer 1", "\"x\"", no_integer},
      {with(3, "1.5"), "integer 3", "\"1.5\"", no_integer},
      {with(3, "+5"), "integer 3", "\"+5\"", no_integer},
      {with(3, " 5"), "integer 3", "\" 5\"", no_integer},
      {with(3, "5 "), "integer 3", "\"5 \"", no_integer},
      {with(3, "-"), "integer 3", "\"-\"", no_integer},
      {with(3, "--5"), "integer 3", "\"--5\"", no_integer},
      {with(3, "1e5"), "integer 3", "\"1e5\"", no_integer},
      {with(13, "NULL"), "integer 13", "\"NULL\"", no_integer},
      {with(13, "2147483648"), "integer 13", "\"2147483648\"", large},
      {with(13, "-2147483648"), "integer 13", "\"-2147483648\"", large},
      {with(13, "99999999999999999999999999"), "integer 13", "\"99999999999999999999999999\"", large},
      {with(13, "18446744073709551617"), "integer 13", "\"18446744073709551617\"", large},
      {with(14, "0000000g"), "category 1", "\"0000000g\"", no_hex},
      {with(20, "g"), "category 7", "\"g\"", no_hex},
      {with(20, "0x12"), "category 7", "\"0x12\"", no_hex},
      {with(20, "-1"), "category 7", "\"-1\"", no_hex},
      {with(20, "123456789"), "category 7", "\"123456789\"", long_hex},
      {with(39, "12 "), "category 26", "\"12 \"", no_hex},
      {with(39, "1\r2"), "category 26", "\"1\\x0d2\"", no_hex},
      {with(20, "12\0 4"s), "category 7", "\"12\\x00 4\"", no_hex},
      {with(0, "\0"s), "label", "\"\\x00\"", label},
      {with(5, "\xff\x7f"), "integer 5", "\"\\xff\\x7f\"", no_integer},
      {"\x7f"
       "ELF\x01\0\0\0"s,
       "integer 1", "\"\\x7fELF\\x01\\x00\\x00\\x00\"", fewer},
      {with(20, std::string(100, 'z')), "category 7", "\"" + std::string(64, 'z') + "\"...", no_hex},
  };
  auto const good = join(good_fields()) + "\n";
  host h(2);
  for (auto const& c : cases)
    for (auto const& end : {"\n"s, "\r\n"s, "\n" + good, ""s}) {
      if (end.empty() && c.line.empty()) continue;  // no line at all
      CAPTURE(c.line);
      CAPTURE(end);
      auto const e = thrown_by([&] { parse(h.exec, good + good + c.line + end); });
      CHECK(e.code() == tessera::errc::parse_error);
      CHECK(std::string(e.what()).find(c.sentence) != std::string::npos);
      CHECK(e.value("file") == "log.tsv");
      CHECK(e.value("line") == "3");
      CHECK(e.value("field") == c.field);
      if (!c.text.empty()) CHECK(e.value("text") == c.text);
    }
  auto const e = thrown_by([&] { parse(h.exec, good + "\n" + good); });  // a blank line among others
  CHECK(e.value("line") == "2");
}

TEST_CASE("parse_criteo: a bad last field ends with the text") {
  host h;
  // The text ends where its memory ends: a read past it is for the address sanitizer to see.
  for (auto const& line :
       {with(39, "123456789"), with(39, "1234567g"), "0\t-"s, "0\t1"s, "0\t1\t"s, "0"s, "-"s, "\r"s, "\t"s, std::string(38, '\t')}) {
    std::vector<char> const exact(line.begin(), line.end());
    tessera::raw_rows rows;
    CHECK(thrown_by([&] { tessera::parse_criteo(h.exec, exact, "log.tsv", rows); }).value("line") == "1");
  }
  for (auto const& line : {with(39, "12345678"), with(39, "1"), with(39, "")}) {
    std::vector<char> const exact(line.begin(), line.end());
    tessera::raw_rows rows;
    tessera::parse_criteo(h.exec, exact, "log.tsv", rows);
    CHECK(rows.size() == 1);
  }
}

TEST_CASE("read_criteo: random logs as the naive parser reads them, whatever blocks and threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  temporary_folder folder;
  host hosts[] = {host(1), host(2), host(3)};
  for (int round = 0; round < 12; ++round) {
    log_shape shape;
    shape.rows = round == 0 ? 3000 : 1 + static_cast<int>(random() % 700);
    shape.missing = static_cast<double>(random() % 10) / 9;
    shape.odd_spellings = true;
    shape.distinct_values = 100000;
    shape.newline = random() % 2 == 0 ? "\n" : "\r\n";
    shape.final_newline = random() % 2 == 0;
    auto const text = random_log(random, shape);
    std::int64_t bad_line = 0;
    auto const expected = naive_parse(text, bad_line);
    REQUIRE(expected.has_value());
    REQUIRE(static_cast<int>(expected->size()) == shape.rows);
    auto const path = folder.write("log.tsv", text);
    for (auto& h : hosts) {
      CHECK(parse(h.exec, text) == *expected);
      auto const size = static_cast<std::int64_t>(text.size());
      for (auto const block_bytes :
           {1 + static_cast<std::int64_t>(random() % 300), 1 + static_cast<std::int64_t>(random() % 5000), size, 10 * size}) {
        CAPTURE(block_bytes);
        tessera::line_blocks const file(path, block_bytes);
        tessera::buffer<char> bytes;
        tessera::raw_rows rows;
        std::vector<click> all;
        for (std::int64_t block = 0; block < file.block_count(); ++block) {
          tessera::read_criteo(h.exec, file, block, bytes, rows);
          auto const some = samples_of(rows.view());
          all.insert(all.end(), some.begin(), some.end());
        }
        CHECK(all == *expected);
      }
    }
  }
}

TEST_CASE("parse_criteo: lines that begin where the work is cut") {
  host h(2);
  auto const text = lines_of_64_bytes(5000);
  REQUIRE(text.size() == 64 * 5000);
  auto const parsed = parse(h.exec, text);
  REQUIRE(parsed.size() == 5000);
  bool same = true;
  for (int i = 0; i < 5000; ++i) same = same && parsed[static_cast<std::size_t>(i)].integers[0] == i;
  CHECK(same);
}

TEST_CASE("read_criteo: the first of several bad lines, with its number in the file") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  temporary_folder folder;
  log_shape shape;
  shape.rows = 4000;  // many pieces
  std::vector<std::string> lines;
  std::istringstream in(random_log(random, shape));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (int round = 0; round < 5; ++round) {
    auto broken = lines;
    std::size_t first = lines.size();
    for (int i = 0; i < 30; ++i) {
      auto const at = random() % lines.size();
      first = std::min(first, at);
      broken[at] = "broken " + std::to_string(at);
    }
    std::string text;
    for (auto const& line : broken) text += line + "\n";
    auto const path = folder.write("log.tsv", text);
    host hosts[] = {host(1), host(2), host(4)};
    reversed_team reversed;
    for (auto const& exec : {hosts[0].exec, hosts[1].exec, hosts[2].exec, tessera::host_exec(reversed, hosts[0].memory)}) {
      for (std::int64_t const block_bytes : {std::int64_t{10000}, std::int64_t{1} << 30}) {
        auto const e = thrown_by([&] {
          tessera::line_blocks const file(path, block_bytes);
          tessera::buffer<char> bytes;
          tessera::raw_rows rows;
          for (std::int64_t block = 0; block < file.block_count(); ++block) tessera::read_criteo(exec, file, block, bytes, rows);
        });
        CHECK(e.value("file") == path);
        CHECK(e.value("line") == std::to_string(first + 1));
        CHECK(e.value("text") == "\"broken " + std::to_string(first) + "\"");
      }
    }
  }
}

TEST_CASE("parse_criteo: random mutations are read as the naive parser reads them, or refused at the same line") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  host h(2);
  log_shape shape;
  std::string const likely = "\t\n\r-0129afgAFG \0\xff"s;
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
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
    std::vector<char> const exact(text.begin(), text.end());
    std::int64_t bad_line = 0;
    auto const expected = naive_parse(text, bad_line);
    tessera::raw_rows rows;
    CAPTURE(round);
    try {
      tessera::parse_criteo(h.exec, exact, "log.tsv", rows);
      ++accepted;
      REQUIRE(expected.has_value());
      REQUIRE(samples_of(rows.view()) == *expected);
    } catch (tessera::error const& e) {
      REQUIRE(e.code() == tessera::errc::parse_error);
      REQUIRE(!expected.has_value());
      REQUIRE(e.value("line") == std::to_string(bad_line));
      REQUIRE(!e.value("field").empty());
      REQUIRE(std::string(e.what()).find("not a sample") == std::string::npos);  // every refusal has its reason
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < 3000);
}

TEST_CASE("parse_criteo: every byte in every place of a field among many lines, as the naive parser has it") {
  host h(2);
  std::vector<std::string> fields_tried;
  for (int byte = 0; byte < 256; ++byte) {
    auto const c = static_cast<char>(byte);
    for (auto const& text :
         {std::string(1, c), c + "1234567"s, "1234567"s + c, "123"s + c + "567"s, "1234"s + c + "678"s, std::string(8, c)})
      fields_tried.push_back(text);
  }
  for (auto const* const text :
       {"",         "-",         "--",       "-0",        "-1",         "-1234567",   "-12345678",   "-123456789", "12345678",
        "99999999", "123456789", "00000001", "000000001", "2147483647", "2147483648", "-2147483647", "\t",         "\t\t",
        "1\n",      "\n",        "\r",       "1\r",       "abcdef12",   "ABCDEF12",   "abcdefg1",    "@AFG`afg"})
    fields_tried.emplace_back(text);
  std::string before, after;
  for (int i = 0; i < 21; ++i) before += join(good_fields()) + "\n";
  for (int i = 0; i < 40; ++i) after += join(good_fields()) + "\n";
  int accepted = 0;
  for (auto const& field_text : fields_tried)
    for (std::size_t const field : {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{14}, std::size_t{39}}) {
      auto const text = before + with(field, field_text) + "\n" + after;
      CAPTURE(field_text);
      CAPTURE(field);
      std::int64_t bad_line = 0;
      auto const expected = naive_parse(text, bad_line);
      if (expected) {
        REQUIRE(parse(h.exec, text) == *expected);
        ++accepted;
      } else {
        REQUIRE(thrown_by([&] { parse(h.exec, text); }).value("line") == std::to_string(bad_line));
      }
    }
  CHECK(accepted > 100);
}

TEST_CASE("parse_criteo: tabs among 64 characters are found by words as one by one") {
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
    same = same && tessera::detail::tab_bits(text.data()) == expected && tessera::detail::tab_bits_by_words(text.data()) == expected;
  }
  CHECK(same);
}

TEST_CASE("parse_criteo: any number of lines, short ones first, ends where its memory ends") {
  host h;
  std::string const short_line = "1" + std::string(39, '\t');
  for (int count = 1; count < 70; ++count)
    for (auto const& end : {"\n"s, "\r\n"s})
      for (bool const final_end : {true, false}) {
        std::string text;
        for (int i = 0; i < count; ++i) text += (i % 3 == 2 ? join(good_fields()) : short_line) + (i + 1 < count || final_end ? end : "");
        std::vector<char> const exact(text.begin(), text.end());
        std::int64_t bad_line = 0;
        tessera::raw_rows rows;
        tessera::parse_criteo(h.exec, exact, "log.tsv", rows);
        CHECK(samples_of(rows.view()) == naive_parse(text, bad_line));
      }
  // A line of one byte stands before: its fields' last characters lie at the very beginning of the memory.
  std::string text = "\n";
  for (int i = 0; i < 40; ++i) text += short_line + "\n";
  std::vector<char> const exact(text.begin(), text.end());
  tessera::raw_rows rows;
  CHECK(thrown_by([&] { tessera::parse_criteo(h.exec, exact, "log.tsv", rows); }).value("line") == "1");
}

TEST_CASE("parse_criteo: noise is refused") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  host h(2);
  for (int round = 0; round < 50; ++round) {
    std::string noise(1 + random() % 300000, '\0');
    if (round % 2 == 0)
      for (auto& byte : noise) byte = static_cast<char>(random());
    tessera::raw_rows rows;
    CHECK(thrown_by([&] { tessera::parse_criteo(h.exec, noise, "noise", rows); }).code() == tessera::errc::parse_error);
  }
}
