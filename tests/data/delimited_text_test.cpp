// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/delimited_text.hpp>

#include <string>
#include <vector>

#include "click_support.hpp"
#include "delimited_support.hpp"

using namespace click_tests;
using namespace delimited_tests;
using namespace std::string_literals;
using tessera::delimited_layout;
using tessera::id_format;
using tessera::sample_schema;

namespace delimited_text_test {

namespace {

std::vector<sample> parse(tessera::host_exec const& exec, std::string const& text, sample_schema const& schema,
                          delimited_layout const& layout) {
  std::vector<char> const exact(text.begin(), text.end());  // a read past the end is for the address sanitizer to see
  tessera::sample_columns columns;
  tessera::parse_delimited(exec, exact, "log", schema, layout, columns);
  return sample_tests::samples_of(columns.view());
}

// As the naive parser has it, or refused at the same place.
bool agrees(tessera::host_exec const& exec, std::string const& text, sample_schema const& schema, delimited_layout const& layout) {
  auto const expected = naive_parse(text, schema, layout);
  try {
    return parse(exec, text, schema, layout) == expected.samples && expected.bad_line == 0;
  } catch (tessera::error const& e) {
    CHECK(e.code() == tessera::errc::parse_error);
    CHECK(e.sentence() != "delimited_log: not a sample");  // every refusal has its reason
    INFO(e.what());
    CHECK(e.value("field") == expected.bad_field);
    return e.value("line") == std::to_string(expected.bad_line);
  }
}

struct random_table {
  sample_schema schema{};
  delimited_layout layout{};
  std::string text{};
};

// Columns of every kind in any order, among some that the schema does not name.
random_table draw(std::mt19937_64& random, int rows) {
  auto const below = [&](std::size_t n) { return random() % n; };
  auto const one_of = [&](auto const& values) { return values[below(values.size())]; };
  random_table table;
  auto& schema = table.schema;
  auto& layout = table.layout;
  auto& text = table.text;
  layout.delimiter = one_of(",\t;|"s);
  layout.list_separator = one_of(layout.delimiter == '|' ? " :"s : " |"s);
  layout.header = below(2) == 0;
  layout.quotes = below(2) == 0;
  if (below(2) == 0) layout.missing = {"NA", "-"};
  layout.ids = static_cast<id_format>(below(4));
  schema.label = "y";
  std::vector<std::string> names{"y", "skipped"};
  for (std::size_t i = below(3); i > 0; --i) schema.dense.push_back("d" + std::to_string(i));
  for (std::size_t i = below(4); i > 0; --i) {
    schema.sparse.push_back("s" + std::to_string(i));
    layout.format_of["s" + std::to_string(i)] = static_cast<id_format>(below(4));
    if (below(2) == 0) schema.single.push_back(schema.sparse.back());
  }
  if (below(3) == 0) schema.session = "session";
  if (below(3) == 0) schema.time = "time";
  if (below(3) == 0) schema.weight = "weight";
  if (below(3) == 0) schema.other_labels = {"z"};
  for (auto const* columns : {&schema.dense, &schema.sparse, &schema.other_labels})
    names.insert(names.end(), columns->begin(), columns->end());
  for (auto const& name : {schema.session, schema.time, schema.weight})
    if (!name.empty()) names.push_back(name);
  if (below(2) == 0) {  // numbers and ids at once
    schema.dense.push_back("both");
    schema.sparse.push_back("both");
    schema.single.push_back("both");
    names.push_back("both");
  }
  std::shuffle(names.begin(), names.end(), random);

  auto const integer = [&] { return std::to_string(static_cast<std::int64_t>(random()) >> below(64)); };
  auto const number = [&] {
    static std::vector<std::string> const spellings{"0",    "1",   "-0",  "007",    ".5",    "5.",       "-1.25",      "1e3",
                                                    "1E-3", "0.1", "nan", "3.4e38", "1e-50", "16777217", "123456.789", "-0.000123"};
    return below(3) == 0 ? one_of(spellings)
                         : std::to_string(static_cast<std::int64_t>(random()) >> (24 + below(40))) + "." + std::to_string(below(1000));
  };
  auto const id = [&](std::string const& name) {
    switch (layout.format(name)) {
      case id_format::decimal: return integer();
      case id_format::hexadecimal: return "0123456789abcdefABCDEF0"s.substr(below(20), 1 + below(4)) + (below(4) == 0 ? "deadBEEF" : "");
      default: return below(2) == 0 ? integer() : "word "s.substr(layout.list_separator == ' ' ? 5 : 0) + std::to_string(below(100)) + "é";
    }
  };
  auto const field = [&](std::string const& name) {
    bool const sparse = std::find(schema.sparse.begin(), schema.sparse.end(), name) != schema.sparse.end();
    bool const may_miss = sparse || name[0] == 'd' || name == "skipped";
    std::string value;
    if (may_miss && below(5) == 0) {
      value = layout.missing.empty() || below(2) == 0 ? "" : one_of(layout.missing);
    } else if (name == "both") {
      value = std::to_string(below(100000));
    } else if (sparse) {
      value = id(name);
      if (!schema.is_single(name))
        for (auto more = below(4); more > 0; --more) value += layout.list_separator + id(name);
    } else if (name == "skipped") {
      value = layout.quotes && below(2) == 0 ? "a \"b\"\""s + layout.delimiter + " c" : "anything";
    } else {
      if (name == schema.session && below(2) == 0) return "visit-"s + std::to_string(below(100));
      do value = name == schema.session || name == schema.time ? integer() : number();
      while (value == "nan" && !may_miss);
    }
    bool const quoted = layout.quotes && (below(4) == 0 || value.find_first_of("\""s + layout.delimiter) != std::string::npos);
    if (!quoted) return value;
    std::string result = "\"";
    for (auto const c : value) result += c == '"' ? "\"\"" : std::string(1, c);
    return result + "\"";
  };
  auto const newline = below(2) == 0 ? "\n"s : "\r\n"s;
  auto const join = [&](auto const& of) {
    for (std::size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : std::string(1, layout.delimiter)) + of(names[i]);
  };
  if (layout.header)
    join([](auto const& name) { return name; }), text += newline;
  else
    layout.columns = names;
  for (int row = 0; row < rows; ++row) {
    join(field);
    if (row + 1 < rows || below(2) == 0) text += newline;
  }
  return table;
}

}  // namespace

TEST_CASE("parse_delimited: random tables of any layout, and changed ones, as the naive parser has them, whatever the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  host hosts[] = {host(1), host(2), host(3)};
  auto const likely = "\t\n\r-\"0129.e|,;: \0\xff"s;
  for (int round = 0; round < 150; ++round) {
    auto table = draw(random, round < 3 ? 1200 : 1 + static_cast<int>(random() % 30));
    CAPTURE(table.text.substr(0, 400));
    auto const& exec = hosts[static_cast<std::size_t>(round) % 3].exec;
    auto const expected = naive_parse(table.text, table.schema, table.layout);
    REQUIRE(expected.bad_line == 0);
    REQUIRE(agrees(exec, table.text, table.schema, table.layout));
    if (round < 3)
      for (auto& h : hosts) REQUIRE(parse(h.exec, table.text, table.schema, table.layout) == expected.samples);
    auto const from = table.layout.header ? table.text.find('\n') + 1 : 0;
    for (int change = 0; change < 8 && from < table.text.size(); ++change) {
      auto text = table.text;
      auto const at = from + random() % (text.size() - from);
      auto const byte = likely[random() % likely.size()];
      switch (random() % 4) {
        case 0: text[at] = byte; break;
        case 1: text.insert(at, 1, byte); break;
        case 2: text.erase(at, 1); break;
        default: text.resize(at); break;
      }
      CAPTURE(text);
      REQUIRE(agrees(exec, text, table.schema, table.layout));
    }
  }
}

TEST_CASE("parse_delimited: a text of lists in many pieces has the first of its bad lines named") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  sample_schema const schema{.label = "y", .dense = {"d"}, .sparse = {"list"}};
  delimited_layout const layout{.delimiter = ',', .columns = {"y", "list", "d"}};
  host hosts[] = {host(1), host(2), host(4)};
  for (int round = 0; round < 4; ++round) {
    std::vector<std::string> lines;
    for (int i = 0; i < 20'000; ++i)
      lines.push_back("1," + std::to_string(random() % 1000) + (random() % 2 == 0 ? "|7" : "") + ",0." + std::to_string(i));
    auto first = lines.size();
    for (int i = 0; i < 10; ++i) {
      auto const at = random() % lines.size();
      lines[at] = at % 2 == 0 ? "1,1|2|3" : "1,1|x|,3";
      first = std::min(first, at);
    }
    std::string text;
    for (auto const& line : lines) text += line + "\n";
    for (auto& h : hosts) {
      auto const e = thrown_by([&] { parse(h.exec, text, schema, layout); });
      CHECK(e.value("line") == std::to_string(first + 1));
      CHECK(e.value("field") == (first % 2 == 0 ? "d" : "list"));
    }
  }
}

TEST_CASE("parse_delimited: what is refused, with line, field, text and reason") {
  sample_schema const schema{
      .label = "y", .dense = {"d"}, .sparse = {"auto", "dec", "hex", "list"}, .session = "session", .single = {"auto", "dec", "hex"}};
  delimited_layout const layout{.delimiter = ',',
                                .columns = {"y", "d", "auto", "dec", "hex", "list", "session", "other"},
                                .quotes = true,
                                .missing = {"NA"},
                                .format_of = {{"dec", id_format::decimal}, {"hex", id_format::hexadecimal}, {"list", id_format::decimal}}};
  struct refused {
    std::string line, field, text, sentence;
  };
  auto const fewer = "fewer fields than columns"s, more = "more fields than columns"s, no_number = "not a number"s,
             missing = "a value is missing"s, no_integer = "not an integer"s, wide = "an integer beyond 64 bits"s;
  std::vector<refused> const cases = {
      {"", "d", "\"\"", fewer},
      {"1,2,3", "dec", "\"1,2,3\"", fewer},
      {"x,2,3", "dec", "\"x,2,3\"", fewer},
      {"1,2,3,4,5,6,7", "other", "\"1,2,3,4,5,6,7\"", fewer},
      {"1,2,3,4,5,6,7,8,", "field 9", "\"1,2,3,4,5,6,7,8,\"", more},
      {"1,2,3,4,5,6,7,8,9,10", "field 9", "", more},
      {",2,3,4,5,6,7,8", "y", "\"\"", missing},
      {"NA,2,3,4,5,6,7,8", "y", "\"NA\"", missing},
      {"1,2,3,4,5,6,,8", "session", "\"\"", missing},
      {"x,2,3,4,5,6,7,8", "y", "\"x\"", no_number},
      {"1, 2,3,4,5,6,7,8", "d", "\" 2\"", no_number},
      {"1,+2,3,4,5,6,7,8", "d", "\"+2\"", no_number},
      {"1,-,3,4,5,6,7,8", "d", "\"-\"", no_number},
      {"1,1.2.3,3,4,5,6,7,8", "d", "\"1.2.3\"", no_number},
      {"1,0x10,3,4,5,6,7,8", "d", "\"0x10\"", no_number},
      {"1,1e999,3,4,5,6,7,8", "d", "\"1e999\"", "a number beyond floating point of 32 bits"},
      {"1,-4e38,3,4,5,6,7,8", "d", "\"-4e38\"", "a number beyond floating point of 32 bits"},
      {"1,inf,3,4,5,6,7,8", "d", "\"inf\"", "a number that is not finite"},
      {"1,2,3,4.0,5,6,7,8", "dec", "\"4.0\"", no_integer},
      {"1,2,3,-,5,6,7,8", "dec", "\"-\"", no_integer},
      {"1,2,3,9223372036854775808,5,6,7,8", "dec", "\"9223372036854775808\"", wide},
      {"1,2,3,-9223372036854775808,5,6,7,8", "dec", "\"-9223372036854775808\"", wide},  // the missing id
      {"1,2,3,4,0x5,6,7,8", "hex", "\"0x5\"", "not a hexadecimal id"},
      {"1,2,3,4,8000000000000000,6,7,8", "hex", "\"8000000000000000\"", "a hexadecimal id of more than 63 bits"},
      {"1,2,3,4,00000000000000001,6,7,8", "hex", "\"00000000000000001\"", "a hexadecimal id of more than 63 bits"},
      {"1,2,3,4,5,6||7,7,8", "list", "\"6||7\"", "an id of a list is missing"},
      {"1,2,3,4,5,6|NA,7,8", "list", "\"6|NA\"", "an id of a list is missing"},
      {"1,2,3,4,5,6|x|7,7,8", "list", "\"6|x|7\"", no_integer},
      {"1,2,\"3,4,5,6,7,8", "auto", "\"1,2,\"3,4,5,6,7,8\"", "a quote that is not closed"},
      {"1,2,\"3\"x,4,5,6,7,8", "auto", "\"1,2,\"3\"x,4,5,6,7,8\"", "text behind a closing quote"},
      {"1,2,\"3\"\"\",4,5,6,7", "other", "", fewer},
      {"1,\"a\tb\x01\",3,4,5,6,7,8", "d", "\"a\\tb\\x01\"", no_number},
      {"1,2,3," + std::string(100, 'z') + ",5,6,7,8", "dec", "\"" + std::string(64, 'z') + "\"...", no_integer},
  };
  auto const good = "1,,,,,,0,\n"s;
  host h(2);
  for (auto const& c : cases)
    for (auto const& end : {"\n"s, "\r\n"s, "\n" + good, ""s}) {
      if (end.empty() && c.line.empty()) continue;  // no line at all
      CAPTURE(c.line);
      auto const e = thrown_by([&] { parse(h.exec, good + good + c.line + end, schema, layout); });
      CHECK(e.code() == tessera::errc::parse_error);
      CHECK(e.sentence() == "delimited_log: " + c.sentence);
      CHECK(e.value("file") == "log");
      CHECK(e.value("line") == "3");
      CHECK(e.value("field") == c.field);
      if (!c.text.empty()) CHECK(e.value("text") == c.text);
    }
}

TEST_CASE("parse_delimited: headers, and columns that are not there") {
  sample_schema const schema{.label = "y", .dense = {"d"}};
  delimited_layout layout{.delimiter = ',', .header = true, .quotes = true};
  host h;
  auto const one = parse(h.exec, "y,d\n1,2\n", schema, layout);
  CHECK(one.size() == 1);
  CHECK(parse(h.exec, "\xef\xbb\xbf\"d\",,\"a \"\"b\"\"\",y\r\n2,,,1", schema, layout) == one);
  CHECK(parse(h.exec,
              "\xef\xbb\xbf"
              "1,2\n",
              schema, {.delimiter = ',', .columns = {"y", "d"}}) == one);
  CHECK(parse(h.exec, "y,d\n", schema, layout).empty());
  CHECK(parse(h.exec, "d,y", schema, layout).empty());
  auto const lacks = thrown_by([&] { parse(h.exec, "y,e,f\n1,2,3\n", schema, layout); });
  CHECK(lacks.code() == tessera::errc::incompatible);
  CHECK(lacks.value("file") == "log");
  CHECK(lacks.value("column") == "d");
  CHECK(lacks.value("columns") == "y, e, f");
  CHECK(thrown_by([&] { parse(h.exec, "y,d,d\n", schema, layout); }).value("column") == "d");
  CHECK(parse(h.exec, "y,d,e,e\n1,2,3,4", schema, layout) == one);  // nobody asks for e
  CHECK(thrown_by([&] { parse(h.exec, "", schema, layout); }).sentence() == "delimited_log: a file without its header");
  CHECK(thrown_by([&] { parse(h.exec, "y,\"d\n1,2\n", schema, layout); }).value("line") == "1");

  auto const refused = [&](delimited_layout const& bad) {
    auto const e = thrown_by([&] { parse(h.exec, "1,2\n", schema, bad); });
    CHECK(e.code() == tessera::errc::invalid_argument);
  };
  refused({});
  refused({.header = true, .columns = {"y", "d"}});
  refused({.delimiter = '\n', .header = true});
  refused({.delimiter = '"', .header = true, .quotes = true});
  refused({.delimiter = '|', .header = true});
  refused({.header = true, .list_separator = '\r'});
  layout = {.delimiter = ',', .columns = {"y", "d"}};
  CHECK(thrown_by([&] { parse(h.exec, "1,2\n", {.label = ""}, layout); }).code() == tessera::errc::invalid_argument);
  CHECK(parse(h.exec, "", schema, layout).empty());
}

TEST_CASE("read_number: short numbers are rounded as long ones are") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  bool same = true;
  for (int round = 0; round < 50'000; ++round) {
    auto text = std::to_string(random() >> (24 + random() % 40));
    text = text.substr(0, 1 + random() % 11);
    if (random() % 2 == 0) text.insert(random() % (text.size() + 1), 1, '.');
    if (random() % 2 == 0) text.insert(0, 1, '-');
    float read = 0;
    if (tessera::detail::read_number(text, read) != nullptr) continue;
    same = same && std::bit_cast<std::uint32_t>(read) == std::bit_cast<std::uint32_t>(std::strtof(text.c_str(), nullptr));
  }
  CHECK(same);
}

TEST_CASE("hash_text: the same for ever, from 0 on, and others for other texts") {
  CHECK(tessera::hash_text("") == 8147104208329303767);
  CHECK(tessera::hash_text("a") == 693893244714770689);
  CHECK(tessera::hash_text("electronics") == 8004228784312069133);
  std::vector<std::int64_t> hashes;
  std::string text;
  for (int length = 0; length < 40; ++length) {
    for (int i = 0; i < length; ++i) {
      auto other = text;
      other[static_cast<std::size_t>(i)] = 'b';
      hashes.push_back(tessera::hash_text(other));
    }
    hashes.push_back(tessera::hash_text(text));
    text += 'a';
  }
  hashes.push_back(tessera::hash_text("\0"s));
  hashes.push_back(tessera::hash_text("\0\0"s));
  auto const all = hashes.size();
  CHECK(*std::min_element(hashes.begin(), hashes.end()) >= 0);
  std::sort(hashes.begin(), hashes.end());
  CHECK(static_cast<std::size_t>(std::unique(hashes.begin(), hashes.end()) - hashes.begin()) == all);
}

}  // namespace delimited_text_test
