// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
#include <tessera/synth/parquet_meter.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_writer.hpp>

#include <hosts.hpp>
#include <temporary_folder.hpp>

#include "../data/sample_support.hpp"

using namespace sample_tests;

TEST_CASE("read_meter: what a log reads is counted, and takes its time") {
  tessera_tests::temporary_folder folder;
  tessera_tests::pool_host<2> h;
  auto const exec = h.exec();
  std::mt19937_64 random(6);
  table_shape const shape{5000};
  auto const samples = random_samples(random, shape);
  tessera::sample_columns columns;
  fill(exec, schema_of(shape), samples, columns);
  tessera::parquet_writer writer(folder.file("log"), schema_of(shape), {.row_group_rows = 1000});
  writer.write(exec, columns.view());
  auto const bytes = writer.finish().file_bytes;

  tessera::read_meter counter;
  tessera::parquet_log const log({folder.file("log")}, schema_of(shape), {.open = tessera::metered(counter)});
  auto const of_footer = counter.bytes();
  CHECK(of_footer > 0);
  CHECK(read_all(exec, log) == samples);
  CHECK(counter.bytes() - of_footer < bytes);
  CHECK(counter.bytes() - of_footer > bytes * 8 / 10);
  CHECK(counter.reads() >= 5 * 10);  // a read a column chunk

  // Half a second for the data, whatever the threads.
  tessera::read_meter slow(2 * (counter.bytes() - of_footer));
  tessera::parquet_log const throttled({folder.file("log")}, schema_of(shape), {.open = tessera::metered(slow)});
  auto const start = std::chrono::steady_clock::now();
  CHECK(read_all(exec, throttled) == samples);
  std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - start;
  CHECK(seconds.count() > 0.45);

  CHECK(tessera_tests::error_of([] { tessera::read_meter(-1); }).value("bytes_per_second") == "-1");
  CHECK(tessera_tests::error_of([&] {
          tessera::parquet_log({folder.file("none")}, schema_of(shape), {.open = tessera::metered(slow)});
        }).code() == tessera::errc::io_error);
}
