// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
// ctest-labels: threads
#include <tessera/data/parquet_log.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/data/hash_text.hpp>
#include <tessera/data/parquet_writer.hpp>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include "arrow_heap.hpp"
#include "foreign_parquet.hpp"
#include "sample_support.hpp"
#include "sanitizers.hpp"

using namespace sample_tests;
using tessera_tests::contents;
using tessera_tests::error_of;

namespace parquet_log_test {

namespace {

std::string write_log(tessera::host_exec const& exec, std::string const& path, table_shape const& shape, std::vector<sample> const& samples,
                      tessera::parquet_writer_options const& options = {}) {
  tessera::sample_columns columns;
  fill(exec, schema_of(shape), samples, columns);
  tessera::parquet_writer writer(path, schema_of(shape), options);
  writer.write(exec, columns.view());
  writer.finish();
  return path;
}

// A file as others write it, with what is to be read from it.
struct foreign_file {
  foreign::file_contents contents;
  std::vector<sample> expected;
};

constexpr float missing = std::numeric_limits<float>::quiet_NaN();

// The bits of a number of this type, and what they are as float and as an integer.
struct drawn_number {
  std::uint64_t bits;
  float as_float;
  std::int64_t as_integer;
};

drawn_number draw(std::mt19937_64& random, foreign::number_type const& type) {
  using foreign::Type;
  if (type.physical == Type::BYTE_ARRAY) {
    auto const number = random() % 60;
    return {number, 0, tessera::hash_text(foreign::text_of(number))};
  }
  if (type.physical == Type::INT96) {
    auto const time = static_cast<std::int64_t>(random() % 8'000'000'000'000'000) - 4'000'000'000'000'000;
    return {static_cast<std::uint64_t>(time), 0, time};
  }
  if (type.physical == Type::INT32 || type.physical == Type::INT64) {
    auto bits = random();
    if (random() % 4 == 0) bits >>= 60;
    if (type.bits < 64) bits &= (std::uint64_t{1} << type.bits) - 1;
    if (type.is_signed && type.bits < 64 && (bits >> (type.bits - 1)) != 0) bits |= ~std::uint64_t{0} << type.bits;
    auto const integer = static_cast<std::int64_t>(bits);
    return {bits, type.is_signed ? static_cast<float>(integer) : static_cast<float>(bits), integer};
  }
  double value = static_cast<double>(static_cast<int>(random() % 2001) - 1000) / 8;
  if (type.physical == Type::BOOLEAN) value = random() % 2 == 0 ? 0 : 1;
  if (type.physical == Type::DOUBLE) value /= 3;
  return {std::bit_cast<std::uint64_t>(value), static_cast<float>(value), 0};
}

std::vector<foreign::number_type> joined(std::vector<foreign::number_type> a, std::vector<foreign::number_type> const& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Row groups of the given sizes, columns of random types and forms; what is named in the schema, shuffled among others.
foreign_file random_foreign(std::mt19937_64& random, std::vector<std::int64_t> const& row_groups, table_shape const& shape) {
  using foreign::Repetition;
  foreign_file file;
  std::int64_t rows = 0;
  for (auto const n : row_groups) rows += n;
  file.expected.resize(static_cast<std::size_t>(rows));
  for (auto& s : file.expected) {
    s.dense.resize(static_cast<std::size_t>(shape.dense));
    s.sparse.resize(static_cast<std::size_t>(shape.sparse));
    s.other_labels.resize(static_cast<std::size_t>(shape.other_labels));
  }
  file.contents.row_groups.resize(row_groups.size());
  auto const pick = [&](std::vector<foreign::number_type> const& types) { return types[random() % types.size()]; };

  auto const ids = joined(foreign::integer_types(), foreign::text_types());
  auto const add_number = [&](std::string const& name, foreign::number_type const& type, bool nulls, auto const& set) {
    bool const optional = nulls || random() % 2 == 0;
    file.contents.fields.push_back(foreign::number_node(name, type, optional ? Repetition::OPTIONAL : Repetition::REQUIRED));
    std::int64_t row = 0;
    for (std::size_t g = 0; g < row_groups.size(); ++g) {
      auto& leaf = file.contents.row_groups[g].emplace_back();
      for (std::int64_t i = 0; i < row_groups[g]; ++i, ++row) {
        bool const null = nulls && random() % 3 == 0;
        leaf.definition.push_back(optional && !null ? 1 : 0);
        leaf.repetition.push_back(0);
        drawn_number number{0, missing, 0};
        if (!null) leaf.values.push_back((number = draw(random, type)).bits);
        set(file.expected[static_cast<std::size_t>(row)], number, null);
      }
    }
  };
  auto const add_list = [&](std::size_t column) {
    auto const form = static_cast<foreign::list_form>(random() % 4);
    auto const type = pick(ids);
    bool const three = form == foreign::list_form::three || form == foreign::list_form::three_of_spark;
    bool const optional_list = form != foreign::list_form::one && random() % 2 == 0, optional_element = three && random() % 2 == 0;
    file.contents.fields.push_back(foreign::list_node("s" + std::to_string(column), type, form, optional_list, optional_element));
    auto const empty = static_cast<std::int16_t>(optional_list), element = static_cast<std::int16_t>(empty + 1 + optional_element);
    std::int64_t row = 0;
    for (std::size_t g = 0; g < row_groups.size(); ++g) {
      auto& leaf = file.contents.row_groups[g].emplace_back();
      for (std::int64_t i = 0; i < row_groups[g]; ++i, ++row) {
        auto const length = random() % 200 == 0 ? 3000 + random() % 3000 : random() % 5;
        if (length == 0) leaf.definition.push_back(random() % 2 == 0 ? 0 : empty);
        if (length == 0) leaf.repetition.push_back(0);
        for (std::size_t k = 0; k < length; ++k) {
          auto const number = draw(random, type);
          leaf.definition.push_back(element);
          leaf.repetition.push_back(k == 0 ? 0 : 1);
          leaf.values.push_back(number.bits);
          file.expected[static_cast<std::size_t>(row)].sparse[column].push_back(number.as_integer);
        }
      }
    }
  };

  auto const numbers = joined(foreign::integer_types(), foreign::float_types());
  std::vector<std::function<void()>> columns;
  columns.push_back([&] {
    add_number("label", pick(numbers), false, [](sample& s, drawn_number n, bool) { s.label = std::bit_cast<std::uint32_t>(n.as_float); });
  });
  for (std::size_t c = 0; c < static_cast<std::size_t>(shape.dense); ++c)
    columns.push_back([&, c] {
      add_number("d" + std::to_string(c), pick(numbers), random() % 2 == 0,
                 [c](sample& s, drawn_number n, bool) { s.dense[c] = std::bit_cast<std::uint32_t>(n.as_float); });
    });
  for (std::size_t c = 0; c < static_cast<std::size_t>(shape.sparse); ++c)
    columns.push_back([&, c] {
      bool const single = static_cast<std::int64_t>(c) >= shape.sparse - shape.single;
      if (!single && random() % 3 != 0) return add_list(c);
      add_number("s" + std::to_string(c), pick(ids), random() % 2 == 0, [c, single](sample& s, drawn_number n, bool null) {
        if (!null || single) s.sparse[c].push_back(null ? tessera::missing_id : n.as_integer);
      });
    });
  columns.push_back([&] { add_number("session", pick(ids), false, [](sample& s, drawn_number n, bool) { s.session = n.as_integer; }); });
  columns.push_back([&] {
    add_number("time", pick(joined(joined(foreign::integer_types(), foreign::time_types()), {foreign::int96_type()})), false,
               [](sample& s, drawn_number n, bool) { s.time = n.as_integer; });
  });
  if (shape.weights)
    columns.push_back([&] {
      add_number("weight", pick(numbers), false,
                 [](sample& s, drawn_number n, bool) { s.weight = std::bit_cast<std::uint32_t>(n.as_float); });
    });
  for (std::size_t c = 0; c < static_cast<std::size_t>(shape.other_labels); ++c)
    columns.push_back([&, c] {
      add_number("l" + std::to_string(c), pick(numbers), false,
                 [c](sample& s, drawn_number n, bool) { s.other_labels[c] = std::bit_cast<std::uint32_t>(n.as_float); });
    });
  for (int i = 0; i < 3; ++i)  // of no interest to us
    columns.push_back([&, i] { add_number("other" + std::to_string(i), pick(numbers), true, [](sample&, drawn_number, bool) {}); });
  std::shuffle(columns.begin(), columns.end(), random);
  for (auto const& add : columns) add();
  return file;
}

// A file of the schema of two rows whose one column is something else.
foreign::file_contents with_column(std::string const& name, foreign::NodePtr const& node, foreign::leaf_values const& values) {
  foreign::file_contents file;
  file.row_groups.emplace_back();
  for (std::string const column : {"label", "d0", "s0", "session", "time"}) {
    if (column == name) {
      if (node == nullptr) continue;
      file.fields.push_back(node);
      file.row_groups[0].push_back(values);
    } else {
      file.fields.push_back(foreign::number_node(column, foreign::integer_types()[6], foreign::Repetition::REQUIRED));
      file.row_groups[0].push_back({{0, 0}, {0, 0}, {1, 2}});
    }
  }
  return file;
}

// A file in memory that counts the bytes that are read.
class counted final : public tessera::detail::arrow_source {
 public:
  counted(std::string const& text, std::int64_t& bytes) : text_(text), bytes_(bytes) {}
  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(text_.size()); }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override {
    bytes_ += bytes;
    return static_cast<std::int64_t>(
        text_.copy(static_cast<char*>(out), static_cast<std::size_t>(bytes), static_cast<std::size_t>(position)));
  }
  tessera::detail::arrow_bytes ReadAt(std::int64_t position, std::int64_t bytes) override {
    bytes_ += bytes;
    return arrow::Buffer::FromString(text_.substr(static_cast<std::size_t>(position), static_cast<std::size_t>(bytes)));
  }

 private:
  std::string text_;
  std::int64_t& bytes_;
};

tessera::sample_schema const small_schema{"label", {"d0"}, {"s0"}, "session", "time"};

}  // namespace

TEST_CASE("parquet_log: files of others, of all types and forms, on any threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  for (int round = 0; round < (tessera_tests::under_sanitizer ? 8 : 25); ++round) {
    CAPTURE(round);
    table_shape shape{0, static_cast<std::int64_t>(random() % 4), 1 + static_cast<std::int64_t>(random() % 5)};
    shape.single = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape.sparse + 1));
    shape.weights = random() % 2 == 0;
    shape.other_labels = static_cast<std::int64_t>(random() % 3);
    std::vector<std::string> files;
    std::vector<sample> expected;
    std::int64_t blocks = 0;
    for (int f = 0; f < 2; ++f) {
      std::vector<std::int64_t> row_groups;
      for (auto n = 1 + random() % 3; n > 0; --n) row_groups.push_back(static_cast<std::int64_t>(random() % (round % 8 == 0 ? 9000 : 40)));
      auto const file = random_foreign(random, row_groups, shape);
      files.push_back(folder.file("foreign" + std::to_string(f)));
      foreign::write_file(files.back(), file.contents, foreign::random_properties(random, random() % 2 == 0));
      expected.insert(expected.end(), file.expected.begin(), file.expected.end());
      blocks += std::count_if(row_groups.begin(), row_groups.end(), [](std::int64_t n) { return n > 0; });
    }
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
      tessera::parquet_log const log(files, schema_of(shape));
      CHECK(log.block_count() == blocks);
      CHECK(read_all(exec, log) == expected);
    });

    // Parts of row groups: in order, and in any order, several of which are under way.
    auto const block_rows = static_cast<std::int64_t>(1 + random() % (round % 8 == 0 ? 2000 : 12));
    tessera::parquet_log const parts(files, schema_of(shape), {.block_rows = block_rows});
    CHECK(parts.largest_block_rows() <= block_rows);
    plain_host h;
    if (round % 2 == 0) CHECK(read_all(h.exec, parts) == expected);
    tessera::sample_columns out;
    for (std::int64_t i = 0; i < 40 && parts.block_count() > 0; ++i) {
      auto const block = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(parts.block_count()));
      for (auto b = block; b < std::min(block + 2, parts.block_count()); ++b) {
        parts.read(h.exec, b, out);
        auto const first = expected.begin() + parts.first_row(b);
        CHECK(samples_of(out.view()) == std::vector<sample>(first, first + parts.rows(b)));
      }
    }
    CHECK(read_all(h.exec, parts) == expected);
  }
}

TEST_CASE("parquet_log: reading again takes no memory, and the same object serves several threads") {
  tessera_tests::temporary_folder folder;
  tessera_tests::pool_host<2> h;
  auto const exec = h.exec();
  std::mt19937_64 random(4);
  table_shape const shape{1000};
  auto const samples = random_samples(random, shape);
  tessera::parquet_log const log({write_log(exec, folder.file("log"), shape, samples, {.row_group_rows = 100})}, schema_of(shape));
  tessera::sample_columns out;
  read_all(exec, log);
  for (int round = 0; round < 2; ++round)
    for (std::int64_t b = 0; b < log.block_count(); ++b) log.read(exec, b, out);
  auto const allocations = h.memory().allocations();
  for (std::int64_t b = log.block_count(); b-- > 0;) log.read(exec, b, out);
  CHECK(h.memory().allocations() == allocations);
  CHECK(samples_of(out.view()) == std::vector<sample>(samples.begin(), samples.begin() + 100));

  std::atomic<int> wrong = 0;
  exec.run(8, [&](std::int64_t i) {
    plain_host own;
    tessera::sample_columns columns;
    log.read(own.exec, i, columns);
    wrong += samples_of(columns.view()) != std::vector<sample>(samples.begin() + i * 100, samples.begin() + (i + 1) * 100);
  });
  CHECK(wrong == 0);

  // Parts of row groups, where each thread goes its own way.
  tessera::parquet_log const parts({folder.file("log")}, schema_of(shape), {.block_rows = 17});
  exec.run(8, [&](std::int64_t i) {
    plain_host own;
    tessera::sample_columns columns;
    for (std::int64_t k = 0; k < 40; ++k) {
      auto const block = (i * 7 + (i % 2 == 0 ? k : 13 * k)) % parts.block_count();
      parts.read(own.exec, block, columns);
      auto const first = samples.begin() + parts.first_row(block);
      wrong += samples_of(columns.view()) != std::vector<sample>(first, first + parts.rows(block));
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("parquet_log: only what the schema names is read, and how is the caller's choice") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  std::mt19937_64 random(4);
  table_shape const shape{2000};
  auto const samples = random_samples(random, shape);
  auto const path = write_log(h.exec, folder.file("log"), shape, samples, {.row_group_rows = 500, .zstd_level = 0});

  std::int64_t bytes = 0;
  std::string opened;
  tessera::parquet_open const open = [&](std::string const& name) {
    opened = name;
    return std::make_shared<counted>(contents(path), bytes);
  };
  tessera::parquet_log const all({"anything"}, schema_of(shape), {.open = open});
  CHECK(opened == "anything");
  bytes = 0;
  CHECK(read_all(h.exec, all) == samples);
  auto const of_all = bytes;
  CHECK(of_all < all.file_bytes());

  tessera::parquet_log const some({"anything"}, tessera::sample_schema{"label", {"d1"}, {"s2"}}, {.open = open});
  bytes = 0;
  auto const read = read_all(h.exec, some);
  CHECK(bytes < of_all / 3);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    CHECK(read[i].dense == std::vector<std::uint32_t>{samples[i].dense[1]});
    CHECK(read[i].sparse[0] == samples[i].sparse[2]);
  }

  auto const of = [&](tessera::parquet_open const& wrong) {
    return error_of([&] { tessera::parquet_log({"anything"}, schema_of(shape), {.open = wrong}); });
  };
  auto const nothing = of([](std::string const&) { return nullptr; });
  CHECK(nothing.code() == tessera::errc::io_error);
  CHECK(nothing.value("file") == "anything");
  auto const thrown =
      of([](std::string const&) -> std::shared_ptr<arrow::io::RandomAccessFile> { throw std::runtime_error("the store is away"); });
  CHECK(thrown.code() == tessera::errc::io_error);
  CHECK(thrown.value("reason") == "the store is away");
}

TEST_CASE("parquet_log: parts of row groups take memory for themselves, and in order each byte is read once") {
  tessera_tests::temporary_folder folder;
  std::mt19937_64 random(5);
  tessera_tests::serial_host writing, h;
  table_shape const shape{.rows = 30'000, .dense = 0, .sparse = 1, .mean_ids = 16};
  auto const samples = random_samples(random, shape);
  auto const path =
      write_log(writing.exec(), folder.file("log"), shape, samples, {.row_group_rows = 1 << 20, .zstd_level = 0, .page_bytes = 4000});
  std::int64_t bytes = 0;
  arrow::ProxyMemoryPool pool(arrow::default_memory_pool());
  tessera::parquet_log const log(
      {path}, {"label", {}, {"s0"}},
      {.block_rows = 500, .open = [&](auto const&) { return std::make_shared<counted>(contents(path), bytes); }, .pool = &pool});
  CHECK(log.block_count() == 60);
  CHECK(log.rows(0) == 500);
  bytes = 0;
  tessera::sample_columns out;
  for (std::int64_t b = 0; b < log.block_count(); ++b) log.read(h.exec(), b, out);
  CHECK(bytes <= log.file_bytes());
  CHECK(4 * (static_cast<std::int64_t>(h.memory().peak_bytes()) + pool.max_memory()) < log.file_bytes());
  bytes = 0;  // all pages are known now
  log.read(h.exec(), 58, out);
  CHECK(bytes < log.file_bytes() / 6);
  CHECK(out.view().sparse[0].length(7) == static_cast<std::int64_t>(samples[58 * 500 + 7].sparse[0].size()));

  tessera::parquet_log const by_bytes({folder.file("log")}, schema_of(shape), {.block_bytes = 100'000});
  CHECK(by_bytes.largest_block_rows() < 1000);
  CHECK(by_bytes.largest_block_rows() > 500);
  using options = tessera::parquet_log_options;
  for (options const& wrong : {options{.block_rows = 0}, options{.block_bytes = 0}})
    CHECK(error_of([&] { tessera::parquet_log({folder.file("log")}, small_schema, wrong); }).code() == tessera::errc::invalid_argument);
}

TEST_CASE("parquet_log: columns of another type, or none") {
  tessera_tests::temporary_folder folder;
  auto const integer = foreign::integer_types()[6];
  auto const real = foreign::float_types()[2];
  auto const required = foreign::Repetition::REQUIRED;
  foreign::leaf_values const two{{0, 0}, {0, 0}, {1, 2}};
  struct wrong_column {
    char const* name;
    foreign::NodePtr node;
    char const* expected;
    char const* found;
  };
  auto const text = foreign::PrimitiveNode::Make("", required, parquet::Type::BYTE_ARRAY, parquet::ConvertedType::UTF8);
  std::vector<wrong_column> const wrong{
      {"label", nullptr, "numbers", "no column of that name"},
      {"s0", nullptr, "integers or texts, or lists of them", "no column of that name"},
      {"d0", foreign::list_node("d0", integer, foreign::list_form::three, true, true), "numbers",
       "optional List of repeated group of optional INT64 Int(bitWidth=64, isSigned=true)"},
      {"d0", foreign::list_node("d0", integer, foreign::list_form::one, true, true), "numbers",
       "repeated INT64 Int(bitWidth=64, isSigned=true)"},
      {"s0", foreign::number_node("s0", real, required), "integers or texts, or lists of them", "DOUBLE"},
      {"s0", foreign::list_node("s0", real, foreign::list_form::three, false, false), "integers or texts, or lists of them",
       "List of repeated group of DOUBLE"},
      {"s0", foreign::number_node("s0", foreign::time_types()[2], required), "integers or texts, or lists of them", "INT32 Date"},
      {"session", foreign::number_node("session", real, required), "integers or texts", "DOUBLE"},
      {"session", foreign::list_node("session", integer, foreign::list_form::three, false, false), "integers or texts",
       "List of repeated group of INT64 Int(bitWidth=64, isSigned=true)"},
      {"time", foreign::number_node("time", foreign::float_types()[0], required), "integers or times", "BOOLEAN"},
      {"d0", foreign::PrimitiveNode::Make("d0", required, foreign::LogicalType::Decimal(9, 2), foreign::Type::INT32), "numbers",
       "INT32 Decimal(precision=9, scale=2)"},
      {"s0",
       foreign::GroupNode::Make("s0", required, {foreign::list_node("list", integer, foreign::list_form::three, false, false)},
                                foreign::LogicalType::List()),
       "integers or texts, or lists of them", nullptr},
  };
  for (auto const& column : wrong) {
    CAPTURE(column.name);
    auto file = with_column(column.name, column.node, two);
    file.row_groups.clear();
    foreign::write_file(folder.file("f"), file, parquet::default_writer_properties());
    auto const e = error_of([&] { tessera::parquet_log({folder.file("f")}, small_schema); });
    CHECK(e.code() == tessera::errc::incompatible);
    CHECK(e.value("file") == folder.file("f"));
    CHECK(e.value("column") == column.name);
    CHECK(e.value("expected") == column.expected);
    if (column.found != nullptr) CHECK(e.value("found") == column.found);
  }
  auto file = with_column("label", nullptr, two);
  file.row_groups.clear();
  for (int i = 0; i < 2; ++i) file.fields.push_back(foreign::number_node("label", real, required));
  foreign::write_file(folder.file("f"), file, parquet::default_writer_properties());
  CHECK(error_of([&] { tessera::parquet_log({folder.file("f")}, small_schema); }).value("found") == "several columns of that name");
  file.fields.pop_back();
  file.fields[0] = foreign::PrimitiveNode::Make("d0", required, parquet::Type::BYTE_ARRAY, parquet::ConvertedType::UTF8);
  foreign::write_file(folder.file("f"), file, parquet::default_writer_properties());
  CHECK(error_of([&] { tessera::parquet_log({folder.file("f")}, small_schema); }).value("found") == "BYTE_ARRAY String");
}

TEST_CASE("parquet_log: a null where none may be names its place") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  auto const integer = foreign::integer_types()[6];
  auto const optional = foreign::Repetition::OPTIONAL;
  auto const check = [&](std::string const& name, foreign::NodePtr const& node, foreign::leaf_values const& values,
                         std::string const& row) {
    auto file = with_column(name, node, values);
    auto good = with_column("", nullptr, {});
    // The second row group has the null; the first has none, whatever the column is.
    auto first = good.row_groups[0];
    for (std::size_t c = 0; c < file.fields.size(); ++c)
      if (file.fields[c]->name() == name) {
        auto const level = static_cast<std::int16_t>(node->is_group() ? 3 : 1);
        first[c].definition = {level, level};
      }
    file.row_groups.insert(file.row_groups.begin(), first);
    auto const path = folder.file("nulls");
    foreign::write_file(path, file, parquet::default_writer_properties());
    tessera::parquet_log const log({path}, small_schema);
    tessera::sample_columns out;
    log.read(h.exec, 0, out);
    auto const e = error_of([&] { log.read(h.exec, 1, out); });
    CHECK(e.code() == tessera::errc::incompatible);
    CHECK(e.sentence() == "parquet_log: a null where none may be");
    CHECK(e.value("file") == path);
    CHECK(e.value("row group") == "1");
    CHECK(e.value("column") == name);
    CHECK(e.value("row") == row);
  };
  for (std::string const name : {"label", "session", "time"}) {
    check(name, foreign::number_node(name, integer, optional), {{1, 0}, {0, 0}, {1}}, "3");
    check(name, foreign::number_node(name, integer, optional), {{0, 1}, {0, 0}, {1}}, "2");
    check(name, foreign::number_node(name, integer, optional), {{0, 0}, {0, 0}, {}}, "2");
  }
  auto const list = foreign::list_node("s0", integer, foreign::list_form::three, true, true);
  check("s0", list, {{3, 3, 2, 1}, {0, 1, 1, 0}, {1, 2}}, "2");
  check("s0", list, {{0, 3, 2}, {0, 0, 1}, {1}}, "3");
  check("s0", list, {{1, 2}, {0, 0}, {}}, "3");
}

TEST_CASE("parquet_log: blocks for processes") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  table_shape const shape{1, 1, 1};
  for (int round = 0; round < 10; ++round) {
    std::vector<std::string> files, files_of_blocks;
    for (int f = 0; f < 1 + round % 4; ++f) {
      tessera::parquet_writer writer(folder.file(std::to_string(f)), schema_of(shape));
      for (auto n = random() % 8; n > 0; --n) {
        tessera::sample_columns columns;
        fill(h.exec, schema_of(shape), random_samples(random, {1 + static_cast<std::int64_t>(random() % 300), 1, 1}), columns);
        writer.write(h.exec, columns.view());
        writer.end_row_group();
        files_of_blocks.push_back(writer.path());
      }
      writer.finish();
      files.push_back(writer.path());
    }
    tessera::parquet_log const log(files, schema_of(shape));
    std::vector<std::string> found;
    for (std::int64_t b = 0; b < log.block_count(); ++b) found.push_back(log.file_of(b));
    CHECK(found == files_of_blocks);
    for (std::int64_t const ranks : {1, 2, 3, 7, 100}) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        auto const blocks = tessera::part_of(log, rank, ranks);
        CHECK(blocks.first == next);
        std::int64_t rows = 0;
        for (std::int64_t b = blocks.first; b < blocks.first + blocks.count; ++b) rows += log.rows(b);
        CHECK(std::abs(static_cast<double>(rows) - static_cast<double>(log.rows()) / static_cast<double>(ranks)) <=
              static_cast<double>(log.largest_block_rows()) + 1);
        next += blocks.count;
      }
      CHECK(next == log.block_count());
    }
    CHECK(error_of([&] { tessera::part_of(log, 2, 2); }).code() == tessera::errc::out_of_range);
    CHECK(error_of([&] { tessera::part_of(log, -1, 2); }).value("part") == "-1");
    tessera::sample_columns out;
    CHECK(error_of([&] { log.read(h.exec, log.block_count(), out); }).code() == tessera::errc::out_of_range);
    CHECK(error_of([&] { log.read(h.exec, -1, out); }).value("block") == "-1");
  }
}

TEST_CASE("parquet_log: other data have another fingerprint") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  std::mt19937_64 random(8);
  auto samples = random_samples(random, {});
  auto const print = [&](std::vector<std::string> const& files) { return tessera::parquet_log(files, schema_of({})).fingerprint(); };
  auto const a = write_log(h.exec, folder.file("a"), {}, samples), again = write_log(h.exec, folder.file("again"), {}, samples);
  samples[50].sparse[0].push_back(1);
  samples[50].sparse[0][0] ^= 1;
  auto const b = write_log(h.exec, folder.file("b"), {}, samples, {.zstd_level = 0});
  samples[50].sparse[0][0] ^= 1;
  auto const c = write_log(h.exec, folder.file("c"), {}, samples, {.zstd_level = 0});
  CHECK(print({a}) == print({again}));
  CHECK(print({b}) != print({c}));  // one bit of one id
  CHECK(print({a}) != print({b}));
  CHECK(print({a, b}) != print({b, a}));
  CHECK(print({a, a}) != print({a}));
}

TEST_CASE("parquet_log: what is no Parquet file, or no longer the one that was opened") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  std::mt19937_64 random(8);
  auto const open = [&](std::vector<std::string> const& files) { return error_of([&] { tessera::parquet_log(files, schema_of({})); }); };
  CHECK(open({}).code() == tessera::errc::invalid_argument);
  auto const path = folder.file("f");
  for (tessera::sample_schema const& wrong :
       {tessera::sample_schema{"l", {"d", "e", "d"}, {"s"}}, tessera::sample_schema{"l", {"e"}, {"d", "d"}},
        tessera::sample_schema{"l", {"e"}, {"s"}, "d", "d"}})
    CHECK(std::string(error_of([&] { tessera::parquet_log({path}, wrong); }).what()) == "parquet_log: a column twice (column d)");
  CHECK(open({path}).code() == tessera::errc::io_error);
  CHECK(open({path}).value("file") == path);
  CHECK(open({folder.path()}).code() == tessera::errc::io_error);
  for (std::string const& text :
       {std::string(), std::string("PAR1"), std::string("label\td0\n0\t1\n"), std::string(100, '\0'),
        std::string("PAR1\xff\xff\xff\xffPAR1"), std::string("PAR1\0\0\0\0PAR1", 12), std::string("PAR1xxxx\4\0\0\0PAR1", 16)}) {
    CAPTURE(text);
    tessera_tests::write_file(path, text);
    CHECK(open({path}).code() == tessera::errc::corrupt_file);
    CHECK(open({path}).value("file") == path);
  }
  tessera_tests::write_file(path, "PAR1xxxx\4\0\0\0PARE" + std::string());
  tessera_tests::write_file(path, std::string("PAR1xxxx\4\0\0\0PARE", 16));
  CHECK(open({path}).code() == tessera::errc::incompatible);

  auto const samples = random_samples(random, {3000});
  write_log(h.exec, path, {3000}, samples);
  tessera::parquet_log const log({path}, schema_of({}));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  tessera::sample_columns out;
  auto const e = error_of([&] { log.read(h.exec, 0, out); });
  CHECK(e.code() == tessera::errc::corrupt_file);
  CHECK(e.value("file") == path);
  CHECK(e.value("row group") == "0");
  CHECK(!e.value("column").empty());
}

}  // namespace parquet_log_test
