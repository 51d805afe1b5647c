// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
#include <tessera/data/parquet_clustering.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <arrow/builder.h>
#include <arrow/io/file.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <sys/resource.h>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"

using sample_tests::plain_host;
using tessera_tests::error_of;
using tessera_tests::names_in;

namespace parquet_clustering_test {

namespace {

template <class T>
T value(arrow::Result<T> result) {
  REQUIRE(result.ok());
  return *std::move(result);
}
void require(arrow::Status const& status) { REQUIRE(status.ok()); }

std::shared_ptr<arrow::Array> finished(arrow::ArrayBuilder& builder) { return value(builder.Finish()); }

// Rows with columns of many types. `row` tells which row it is.
std::shared_ptr<arrow::Table> make_table(std::mt19937_64& random, std::int64_t first, std::int64_t rows, bool text_sessions) {
  auto const pool = arrow::default_memory_pool();
  arrow::Int32Builder row, small;
  arrow::StringBuilder user;
  arrow::DoubleBuilder real;
  arrow::TimestampBuilder time(arrow::timestamp(arrow::TimeUnit::MILLI, "UTC"), pool);
  auto const list = arrow::list(arrow::field("element", arrow::utf8()));
  arrow::ListBuilder words(pool, std::make_shared<arrow::StringBuilder>(), list);
  arrow::StringDictionaryBuilder kind;
  auto const inner = std::make_shared<arrow::Int16Builder>();
  arrow::StructBuilder pair(arrow::struct_({arrow::field("a", arrow::int16())}), pool, {inner});
  auto& word = static_cast<arrow::StringBuilder&>(*words.value_builder());
  for (std::int64_t i = first; i < first + rows; ++i) {
    auto const session = static_cast<std::int32_t>(random() % 40) - 20;
    require(row.Append(static_cast<std::int32_t>(i)));
    require(small.Append(session));
    require(user.Append("user " + std::to_string(session)));
    require(random() % 4 == 0 ? real.AppendNull() : real.Append(static_cast<double>(random()) / 3));
    require(time.Append(static_cast<std::int64_t>(random() % 50)));
    bool const is_null = random() % 5 == 0;
    require(is_null ? words.AppendNull() : words.Append());
    for (auto n = is_null ? 0 : random() % 3; n > 0; --n) require(word.Append("w" + std::to_string(random() % 9)));
    require(kind.Append(random() % 2 == 0 ? "old" : "new"));
    require(pair.Append());
    require(inner->Append(static_cast<std::int16_t>(random())));
  }
  auto const session = text_sessions ? finished(user) : finished(small);
  auto const kinds = finished(kind);
  auto const schema = arrow::schema({arrow::field("row", arrow::int32(), false), arrow::field("session", session->type()),
                                     arrow::field("real", arrow::float64()), arrow::field("time", time.type()), arrow::field("words", list),
                                     arrow::field("kind", kinds->type()), arrow::field("pair", pair.type())});
  return arrow::Table::Make(schema, {finished(row), session, finished(real), finished(time), finished(words), kinds, finished(pair)});
}

void write_table(std::string const& path, arrow::Table const& table, std::int64_t group_rows) {
  auto const sink = value(arrow::io::FileOutputStream::Open(path));
  auto const how = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  require(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), sink, group_rows, parquet::default_writer_properties(), how));
  require(sink->Close());
}

std::shared_ptr<arrow::Table> read_table(std::string const& path) {
  auto const file = value(arrow::io::ReadableFile::Open(path));
  auto const reader = value(parquet::arrow::OpenFile(file, arrow::default_memory_pool()));
  return value(value(value(reader->GetRecordBatchReader())->ToTable())->CombineChunks());
}

std::string text_of(arrow::Table const& table, int column, std::int64_t row) {
  auto const scalar = value(table.column(column)->GetScalar(row));
  if (scalar->type->id() != arrow::Type::DICTIONARY) return scalar->ToString();
  return value(static_cast<arrow::DictionaryScalar const&>(*scalar).GetEncodedValue())->ToString();
}

std::vector<std::int64_t> integers(arrow::Table const& table, char const* column) {
  return tessera::detail::integers_of(table.GetColumnByName(column)->chunk(0));
}

}  // namespace

TEST_CASE("cluster_by_session of Parquet files: all columns and types, a stable sort, whatever the memory, on any threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  for (bool const text_sessions : {false, true}) {
    auto const first = make_table(random, 0, 700, text_sessions), second = make_table(random, 700, 300, text_sessions);
    std::vector<std::string> const files{folder.file("a"), folder.file("b")};
    write_table(files[0], *first, 200);
    write_table(files[1], *second, 1000);
    auto const all = value(value(arrow::ConcatenateTables({first, second}))->CombineChunks());
    auto const sessions = integers(*all, "session"), times = integers(*all, "time");
    for (std::int64_t const memory : {std::int64_t{40'000}, std::int64_t{1} << 30})
      for (bool const whole : {false, true}) {
        CAPTURE(memory);
        std::string const time = whole == text_sessions ? "" : "time";
        std::vector<std::int64_t> expected(1000);
        std::iota(expected.begin(), expected.end(), 0);
        std::stable_sort(expected.begin(), expected.end(), [&](auto a, auto b) {
          auto const i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
          return sessions[i] != sessions[j] ? sessions[i] < sessions[j] : !time.empty() && times[i] < times[j];
        });
        tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
          auto const path = folder.file("out");
          auto const result = tessera::cluster_by_session(
              exec, files, {"session", time}, path,
              {.memory_bytes = memory, .whole_sessions = whole, .output = {.row_group_rows = 100}, .order = {.batch_size = 100}});
          CHECK(names_in(folder.path()) == std::vector<std::string>{"a", "b", "out"});
          CHECK((result.runs > 2) == (memory == 40'000));
          CHECK(result.rows_read == 1000);
          CHECK(result.output.rows == 1000);
          CHECK(result.output.file_bytes == static_cast<std::int64_t>(std::filesystem::file_size(path)));
          CHECK_FALSE(result.before.is_clustered());
          CHECK(result.after.samples_per_session() > 3 * result.before.samples_per_session());
          if (whole && memory > 40'000) CHECK(result.after.is_clustered());
          auto const sorted = read_table(path);
          REQUIRE(sorted->num_rows() == 1000);
          REQUIRE(sorted->schema()->Equals(*all->schema(), false));
          auto const rows = integers(*sorted, "row");
          CHECK(rows == expected);
          for (int c = 0; c < all->num_columns(); ++c)
            for (std::int64_t i = 0; i < 1000; i += 31)
              CHECK(text_of(*sorted, c, i) == text_of(*all, c, rows[static_cast<std::size_t>(i)]));
        });
      }
  }
}

TEST_CASE("cluster_by_session of Parquet files: what is refused, and a share of the sessions") {
  std::mt19937_64 random(3);
  tessera_tests::temporary_folder folder;
  plain_host h;
  write_table(folder.file("a"), *make_table(random, 0, 100, false), 50);
  write_table(folder.file("b"), *make_table(random, 0, 10, true), 50);
  auto const of = [&](std::vector<std::string> const& files, tessera::session_columns const& by) {
    auto const e = error_of([&] { tessera::cluster_by_session(h.exec, files, by, folder.file("out")); });
    CHECK(names_in(folder.path()) == std::vector<std::string>{"a", "b"});
    return e;
  };
  auto const a = folder.file("a"), b = folder.file("b");
  CHECK(of({}, {"session"}).code() == tessera::errc::invalid_argument);
  CHECK(of({a}, {""}).code() == tessera::errc::invalid_argument);
  CHECK(of({a}, {"visit"}).value("column") == "visit");
  CHECK(of({a}, {"session", "when"}).value("column") == "when");
  CHECK(of({a, b}, {"session"}).code() == tessera::errc::incompatible);
  CHECK(of({a, b}, {"session"}).value("file") == b);
  CHECK(of({a}, {"words"}).code() == tessera::errc::corrupt_file);
  CHECK(of({folder.file("none")}, {"session"}).code() == tessera::errc::io_error);

  tessera::sample_selection const half{.rate = 0.5};
  auto const result = tessera::cluster_by_session(h.exec, {a}, {"session"}, folder.file("out"), {.selection = half});
  auto const sessions = integers(*read_table(a), "session"), kept = integers(*read_table(folder.file("out")), "session");
  CHECK(result.output.rows == std::count_if(sessions.begin(), sessions.end(), [&](auto s) { return half.keeps(s, 0); }));
  CHECK(std::is_sorted(kept.begin(), kept.end()));
}

TEST_CASE("cluster_by_session of Parquet files: too few open files are allowed") {
  std::mt19937_64 random(4);
  tessera_tests::temporary_folder folder;
  plain_host h;
  auto const path = folder.file("a");
  write_table(path, *make_table(random, 0, 3000, false), 500);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  auto few = before;
  few.rlim_cur = std::min<rlim_t>(before.rlim_cur, 64);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  auto const e = error_of([&] { tessera::cluster_by_session(h.exec, {path}, {"session"}, folder.file("out"), {.memory_bytes = 4096}); });
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(e.code() == tessera::errc::io_error);
  CHECK(e.value("allowed") == "64");
  CHECK(std::stoll(std::string(e.value("needed"))) > 64);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"a"});
  CHECK(tessera::cluster_by_session(h.exec, {path}, {"session"}, folder.file("out")).output.rows == 3000);  // of one part
}

}  // namespace parquet_clustering_test
