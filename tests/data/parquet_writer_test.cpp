// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
// ctest-labels: threads
#include <tessera/data/parquet_writer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <csignal>

#include <tessera/data/parquet_log.hpp>

#include <hosts.hpp>
#include <random.hpp>
#include <skip.hpp>
#include <temporary_folder.hpp>

#include "arrow_heap.hpp"
#include "sample_support.hpp"
#include "sanitizers.hpp"

using namespace sample_tests;
using tessera_tests::contents;
using tessera_tests::error_of;

namespace parquet_writer_test {

namespace {

tessera::parquet_written write_all(tessera::host_exec const& exec, std::string const& path, tessera::sample_schema const& schema,
                                   std::vector<sample> const& samples, tessera::parquet_writer_options const& options = {}) {
  tessera::sample_columns columns;
  fill(exec, schema, samples, columns);
  tessera::parquet_writer writer(path, schema, options);
  writer.write(exec, columns.view());
  return writer.finish();
}

bool is_empty(std::string const& folder) { return std::filesystem::is_empty(folder); }

}  // namespace

TEST_CASE("parquet_writer: what is read is what was written, bit for bit, whatever the options, parts and threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::temporary_folder folder;
  std::mt19937_64 random(seed);
  for (table_shape const& shape :
       {table_shape{.rows = 200, .single = 1, .other_labels = 2, .weights = true}, table_shape{50, 0, 3}, table_shape{50, 3, 0},
        table_shape{1}, table_shape{9, 2, 2, 20'000}, table_shape{.rows = 9, .dense = 0, .sparse = 2, .single = 2},
        table_shape{.rows = 9, .dense = 0, .sparse = 0}}) {
    CAPTURE(shape.rows);
    auto const samples = random_samples(random, shape);
    for (tessera::parquet_writer_options const& options :
         {tessera::parquet_writer_options{}, tessera::parquet_writer_options{.row_group_rows = 1},
          tessera::parquet_writer_options{.row_group_rows = 64, .zstd_level = 0, .page_bytes = 1},
          tessera::parquet_writer_options{.row_group_bytes = 1},
          tessera::parquet_writer_options{.row_group_bytes = 5000, .dictionary = true},
          tessera::parquet_writer_options{.zstd_level = -5, .dictionary = true, .other_columns = {"s0", "d1"}},
          tessera::parquet_writer_options{.other_columns = {"s1", "label"}}}) {
      for (bool const named : {true, false}) {
        if (tessera_tests::under_sanitizer && named != (shape.rows != 50)) continue;
        auto const schema = schema_of(shape, named, named);
        auto expected = samples;
        if (!named)
          for (auto& s : expected) s.session = s.time = 0;
        std::string first_bytes;
        tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
          auto const path = folder.file("log.parquet");
          auto const written = write_all(exec, path, schema, samples, options);
          CHECK(written.rows == shape.rows);
          CHECK(written.file_bytes == static_cast<std::int64_t>(std::filesystem::file_size(path)));
          tessera::parquet_log const log({path}, schema);
          CHECK(log.block_count() == written.row_groups);
          CHECK(log.file_bytes() == written.file_bytes);
          CHECK(log.largest_block_rows() <= options.row_group_rows);
          CHECK(read_all(exec, log) == expected);
          auto const bytes = contents(path);
          if (first_bytes.empty()) first_bytes = bytes;
          CHECK(bytes == first_bytes);
        });
      }
    }
  }
}

TEST_CASE("parquet_writer: the parts in which samples come do not matter") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  tessera_tests::pool_host<2> h;
  auto const exec = h.exec();
  table_shape const shape{500};
  auto const samples = random_samples(random, shape);
  auto const schema = schema_of(shape);
  tessera::sample_columns columns;
  fill(exec, schema, samples, columns);
  tessera::parquet_writer_options const options{.row_group_rows = 37, .row_group_bytes = 4000};
  write_all(exec, folder.file("whole"), schema, samples, options);

  tessera::sample_columns part(schema);
  tessera::parquet_writer writer(folder.file("parts"), schema, options);
  for (std::int64_t first = 0; first < shape.rows;) {
    auto const count = std::min<std::int64_t>(shape.rows - first, static_cast<std::int64_t>(random() % 60));
    part.clear();
    part.append(exec, columns.view(), first, count);
    writer.write(exec, part.view());
    first += count;
  }
  auto const written = writer.finish();
  CHECK(written.rows == 500);
  tessera::parquet_log const whole({folder.file("whole")}, schema), parts({folder.file("parts")}, schema);
  REQUIRE(whole.block_count() == parts.block_count());
  for (std::int64_t b = 0; b < whole.block_count(); ++b) {
    CHECK(whole.rows(b) == parts.rows(b));
    CHECK(whole.rows(b) <= 37);
  }
  CHECK(read_all(exec, parts) == samples);

  tessera::parquet_writer ended(folder.file("ended"), schema);
  for (int i = 0; i < 3; ++i) {
    ended.write(exec, columns.view());
    CHECK(ended.open_rows() == 500);
    CHECK(ended.open_bytes() * 3 == written.value_bytes * 3);
    ended.end_row_group();
    ended.end_row_group();  // of none
    CHECK(ended.open_rows() == 0);
  }
  CHECK(ended.finish().row_groups == 3);
  CHECK(tessera::parquet_log({folder.file("ended")}, schema).rows() == 1500);
}

TEST_CASE("parquet_writer: a file without samples") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  auto const schema = schema_of({});
  CHECK(write_all(h.exec, folder.file("none"), schema, {}).rows == 0);
  tessera::parquet_log const log({folder.file("none")}, schema);
  CHECK(log.rows() == 0);
  CHECK(log.block_count() == 0);
}

TEST_CASE("parquet_writer: a name is a whole file's, and one that was not finished leaves nothing") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  std::mt19937_64 random(3);
  auto const samples = random_samples(random, {});
  auto const schema = schema_of({});
  auto const path = folder.file("log.parquet");
  tessera::sample_columns columns;
  fill(h.exec, schema, samples, columns);
  {
    tessera::parquet_writer writer(path, schema, {.row_group_rows = 10});
    writer.write(h.exec, columns.view());
    CHECK_FALSE(std::filesystem::exists(path));
    tessera::parquet_writer moved(std::move(writer));
    moved.write(h.exec, columns.view());
  }
  CHECK(is_empty(folder.path()));

  write_all(h.exec, path, schema, samples);
  auto const before = contents(path);
  {
    tessera::parquet_writer writer(path, schema);
    writer.write(h.exec, columns.view());
    CHECK(contents(path) == before);
    writer.write(h.exec, columns.view());
    writer.finish();
  }
  CHECK(tessera::parquet_log({path}, schema).rows() == 200);

  tessera_tests::write_file(path + ".partial", "somebody else's");
  write_all(h.exec, path, schema, samples);
  CHECK(contents(path) == before);
  CHECK(contents(path + ".partial") == "somebody else's");
  CHECK(tessera_tests::names_in(folder.path()) == std::vector<std::string>{"log.parquet", "log.parquet.partial"});
}

TEST_CASE("parquet_writer: the defaults keep what clustering by session gains, of small ids and of hashed ones") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::temporary_folder folder;
  plain_host h;
  std::mt19937_64 random(seed);
  for (bool const hashed : {false, true}) {
    table_shape const shape{.rows = 4000, .dense = 0, .sparse = 2, .mean_ids = 24, .sessions = 250};
    auto samples = random_samples(random, shape);
    std::map<std::int64_t, sample> of_session;  // a session's lists change with every fourth sample
    for (auto& s : samples) {
      for (auto& list : s.sparse)
        for (auto& id : list) id = hashed ? static_cast<std::int64_t>(random() >> 1) : static_cast<std::int64_t>(random() % 1000);
      auto& last = of_session[s.session];
      random() % 4 == 0 || last.sparse.empty() ? last.sparse = s.sparse : s.sparse = last.sparse;
    }
    auto const bytes_of = [&](tessera::parquet_writer_options const& options) {
      return write_all(h.exec, folder.file("f"), schema_of(shape), samples, options).file_bytes;
    };
    auto const by_time = bytes_of({.page_bytes = 1 << 16});
    std::stable_sort(samples.begin(), samples.end(), [](sample const& a, sample const& b) { return a.session < b.session; });
    CHECK(bytes_of({.page_bytes = 1 << 16}) * 3 < by_time * 2);
    CHECK(static_cast<double>(bytes_of({})) < static_cast<double>(bytes_of({.zstd_level = 1})) * (hashed ? 1.05 : 0.75));
    CHECK(static_cast<double>(bytes_of({})) < static_cast<double>(bytes_of({.dictionary = true})) * 1.05);
  }
}

TEST_CASE("parquet_writer: what it refuses") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  std::mt19937_64 random(3);
  auto const path = folder.file("log.parquet");
  using tessera::sample_schema;
  for (sample_schema const& wrong : {sample_schema{""}, sample_schema{"a", {"b", "b"}}, sample_schema{"a", {"b"}, {"a"}},
                                     sample_schema{"a", {}, {""}}, sample_schema{"a", {}, {}, "a"}, sample_schema{"a", {}, {}, "b", "b"}})
    CHECK(error_of([&] { tessera::parquet_writer(path, wrong); }).code() == tessera::errc::invalid_argument);
  CHECK(error_of([&] { tessera::parquet_writer(path, sample_schema{"a", {"b", "b"}}); }).value("column") == "b");
  for (tessera::parquet_writer_options const& wrong :
       {tessera::parquet_writer_options{.row_group_rows = 0}, tessera::parquet_writer_options{.row_group_bytes = 0},
        tessera::parquet_writer_options{.page_bytes = 0}})
    CHECK(error_of([&] { tessera::parquet_writer(path, schema_of({}), wrong); }).code() == tessera::errc::invalid_argument);
  auto const nowhere = error_of([&] { tessera::parquet_writer(folder.file("none/log"), schema_of({})); });
  CHECK(nowhere.code() == tessera::errc::io_error);
  CHECK(nowhere.value("file") == folder.file("none/log"));
  CHECK(is_empty(folder.path()));

  tessera::parquet_writer writer(path, schema_of({}));
  tessera::sample_columns columns;
  for (table_shape const& wrong : {table_shape{5, 2, 4}, table_shape{5, 3, 5}}) {
    fill(h.exec, schema_of(wrong), random_samples(random, wrong), columns);
    auto const e = error_of([&] { writer.write(h.exec, columns.view()); });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("file") == path);
    CHECK(e.value("dense") == std::to_string(wrong.dense));
    CHECK(e.value("sparse expected") == "4");
  }
  fill(h.exec, schema_of({}, true, false), random_samples(random, {}), columns);
  CHECK(error_of([&] { writer.write(h.exec, columns.view()); }).value("times") == "0");
  fill(h.exec, schema_of({.single = 1}), random_samples(random, {.single = 1}), columns);
  CHECK(error_of([&] { writer.write(h.exec, columns.view()); }).code() == tessera::errc::shape_mismatch);
}

TEST_CASE("parquet_writer: a column that is dense and sparse is one of the file, whose numbers are its ids") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  tessera::sample_schema const schema{.label = "label", .dense = {"x", "n"}, .sparse = {"n"}, .single = {"n"}};
  tessera::sample_columns columns(schema), out;
  columns.resize(h.exec, 4);
  for (std::int64_t i = 0; i < 4; ++i) {
    columns.labels()[i] = 0;
    columns.dense()(0, i) = 0.5F;
    columns.single_ids(0)[i] = i == 2 ? tessera::missing_id : (std::int64_t{1} << 40) + i;
    columns.dense()(1, i) = i == 2 ? std::nanf("") : static_cast<float>(columns.single_ids(0)[i]);
  }
  tessera::parquet_writer writer(folder.file("f"), schema);
  writer.write(h.exec, columns.view());
  writer.finish();
  tessera::parquet_log const log({folder.file("f")}, schema);
  log.read(h.exec, 0, out);
  CHECK(samples_of(out.view()) == samples_of(columns.view()));
  tessera::parquet_log const as_list({folder.file("f")}, {.label = "label", .dense = {"n"}, .sparse = {"n"}});
  as_list.read(h.exec, 0, out);
  CHECK(out.view().sparse[0].length(2) == 0);
  CHECK(std::isnan(out.view().dense(0, 2)));

  columns.dense()(1, 3) = 1;
  tessera::parquet_writer other(folder.file("g"), schema);
  auto const e = error_of([&] { other.write(h.exec, columns.view()); });
  CHECK(e.code() == tessera::errc::incompatible);
  CHECK(e.value("column") == "n");
  CHECK(e.value("row") == "3");
  auto lists = schema;
  lists.single.clear();
  CHECK(error_of([&] { tessera::parquet_writer(folder.file("g"), lists); }).value("column") == "n");
}

TEST_CASE("parquet_writer: pyarrow reads the same, by the page checksums") {
  tessera_tests::temporary_folder folder;
  auto const run = [&](std::string const& script) {
    tessera_tests::write_file(folder.file("script.py"), script);
    auto const command =
        "PYTHONPATH='" TESSERA_SOURCE_DIR "/build/arrow' python3 '" + folder.file("script.py") + "' '" + folder.file("log") + "' 2>&1";
    std::string output;
    auto* const pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    for (std::array<char, 4096> part; auto const n = std::fread(part.data(), 1, part.size(), pipe);) output.append(part.data(), n);
    return std::pair(::pclose(pipe), output);
  };
  if (run("import pyarrow.parquet").first != 0) return tessera_tests::skip("python3 has no pyarrow");

  plain_host h;
  std::mt19937_64 random(11);
  table_shape const shape{.rows = 300, .dense = 1, .sparse = 2, .single = 1, .other_labels = 1, .weights = true};
  auto const samples = random_samples(random, shape);
  std::string expected = "label d0 s0 s1 session time weight l0\n";
  for (auto const& s : samples) {
    for (auto const bits : {s.label, s.dense[0], s.weight, s.other_labels[0]}) expected += std::to_string(bits) + " ";
    for (auto const id : s.sparse[0]) expected += std::to_string(id) + " ";
    expected += (s.sparse[1][0] == tessera::missing_id ? "None" : std::to_string(s.sparse[1][0])) + " ";
    expected += std::to_string(s.session) + " " + std::to_string(s.time) + "\n";
  }
  for (bool const dictionary : {false, true}) {
    write_all(h.exec, folder.file("log"), schema_of(shape), samples, {.row_group_rows = 70, .dictionary = dictionary});
    auto const [status, output] = run(R"(
import struct, sys
import pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1], page_checksum_verification=True)
print(*table.column_names)
bits = lambda x: struct.unpack('<I', struct.pack('<f', x))[0]
for r in table.to_pylist():
  print(*[bits(r[c]) for c in ('label', 'd0', 'weight', 'l0')], *r['s0'], r['s1'], r['session'], r['time'])
)");
    CHECK(status == 0);
    CHECK(output == expected);
  }
}

TEST_CASE("parquet_writer: a device without room") {
  tessera_tests::temporary_folder folder;
  plain_host h;
  std::mt19937_64 random(3);
  table_shape const shape{3000};
  tessera::sample_columns columns;
  fill(h.exec, schema_of(shape), random_samples(random, shape), columns);
  // A limit on the size of files stands for it.
  struct ::rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto const handler = std::signal(SIGXFSZ, SIG_IGN);
  struct ::rlimit const small{20'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto const e = error_of([&] {
    tessera::parquet_writer writer(folder.file("log"), schema_of(shape), {.row_group_rows = 100});
    writer.write(h.exec, columns.view());
    writer.finish();
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(e.code() == tessera::errc::io_error);
  CHECK(e.value("file").starts_with(folder.file(".tessera-staging-file-")));
  CHECK(is_empty(folder.path()));
}

}  // namespace parquet_writer_test
