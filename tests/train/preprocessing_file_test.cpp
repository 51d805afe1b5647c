// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <tessera/data/click_log.hpp>
#include <tessera/train/preprocessing_file.hpp>

#include "temporary_folder.hpp"

namespace {

using namespace tessera;
using namespace tessera_tests;

/// 200 random samples; some fields missing, integer 13 and category 26 always.
std::string random_log() {
  std::mt19937 random(5);
  std::string text;
  for (int row = 0; row < 200; ++row) {
    text += random() % 3 == 0 ? '1' : '0';
    for (int i = 0; i < 13; ++i) {
      text += '\t';
      if (i < 12 && random() % 8 != 0) text += std::to_string(static_cast<int>(random() % 40) - 5);
    }
    for (int c = 0; c < 26; ++c) {
      text += '\t';
      char hex[16];
      std::snprintf(hex, sizeof hex, "%x", static_cast<unsigned>(random() % 30 * 0x1234567));
      if (c < 25 && random() % 8 != 0) text += hex;
    }
    text += '\n';
  }
  return text;
}

struct fitted_log {
  serial_team team;
  system_memory memory;
  host_exec exec{team, memory};
  temporary_folder folder;
  std::optional<click_log> log;
  std::optional<preprocessing> fitted;

  explicit fitted_log(preprocessing_options const& options) {
    auto const path = folder.file("log.tsv");
    write_file(path, random_log());
    click_statistics statistics(preprocessing::needed_statistics(options));
    log.emplace(exec, std::vector<std::string>{path}, statistics);
    fitted = preprocessing::fit(exec, statistics, options);
  }

  /// Every number that a model would see.
  std::vector<double> transformed(preprocessing const& by) const {
    buffer<char> text;
    raw_rows rows;
    log->read(exec, 0, text, rows);
    auto const n = rows.size();
    std::vector<std::int64_t> picked(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) picked[static_cast<std::size_t>(i)] = i;
    std::vector<float> dense(static_cast<std::size_t>(n * by.dense_features())), labels(static_cast<std::size_t>(n));
    std::vector<std::int64_t> ids(static_cast<std::size_t>(n * by.sparse_features()));
    by.transform(exec, rows.view(), picked, {dense.data(), n, by.dense_features()}, labels, {ids.data(), by.sparse_features(), n});
    std::vector<double> all(dense.begin(), dense.end());
    all.insert(all.end(), labels.begin(), labels.end());
    for (auto const id : ids) all.push_back(static_cast<double>(id));
    return all;
  }
};

void comes_back(preprocessing_options const& options) {
  fitted_log const data(options);
  auto const section = save_preprocessing(data.folder.path(), *data.fitted);
  CHECK(section.file == "preprocessing.safetensors");
  CHECK(section.digest == digest_of(data.folder.file(section.file)));
  auto const back = load_preprocessing(data.exec, data.folder.path());
  CHECK(back == *data.fitted);
  CHECK(back.dropped() == std::vector<std::string>{"integer 13", "category 26"});
  CHECK(data.transformed(back) == data.transformed(*data.fitted));
  // Another one is another one.
  auto state = data.fitted->state();
  state.dense_means[0] += 1e-12;
  CHECK_FALSE(preprocessing(data.exec, state) == *data.fitted);
}

}  // namespace

TEST_CASE("a fitted preprocessing comes back as it was") {
  SUBCASE("vocabularies") { comes_back({.dense = dense_scaling::log}); }
  SUBCASE("frequent values, standardised") { comes_back({.dense = dense_scaling::standard, .min_count = 4}); }
  SUBCASE("integers as categories") { comes_back({.dense = dense_scaling::standard, .dense_as_category = true}); }
  SUBCASE("the most frequent values in bounded memory") {
    comes_back({.dense = dense_scaling::log, .dense_as_category = true, .min_count = 2, .vocabulary_limit = 7});
  }
  SUBCASE("hashed") { comes_back({.dense = dense_scaling::log, .dense_as_category = true, .hash_size = 1000}); }
}

TEST_CASE("what is missing, torn or altered is named") {
  fitted_log const data({.dense = dense_scaling::standard});
  auto const& folder = data.folder;
  auto const path = folder.file("preprocessing.safetensors");
  save_preprocessing(folder.path(), *data.fitted);
  auto const sound = contents(path);
  auto const refusal = [&] { return error_of([&] { load_preprocessing(data.exec, folder.path()); }); };

  SUBCASE("no file") {
    std::filesystem::remove(path);
    CHECK(refusal().code() == errc::io_error);
    CHECK(refusal().value("file") == path);
  }
  SUBCASE("torn") {
    for (std::size_t const size : {std::size_t{0}, std::size_t{7}, std::size_t{100}, sound.size() / 2, sound.size() - 1}) {
      write_file(path, sound.substr(0, size));
      CHECK(refusal().code() == errc::corrupt_file);
      CHECK(refusal().value("file") == path);
    }
  }
  SUBCASE("every byte of the header flipped: refused, or read without harm") {
    auto const data_begin = sound.find("vocabulary.9") + 200;
    for (std::size_t at = 0; at < data_begin; ++at) {
      auto altered = sound;
      altered[at] = static_cast<char>(altered[at] ^ 1);
      write_file(path, altered);
      try {
        auto const read = load_preprocessing(data.exec, folder.path());
        CHECK(read.sparse_features() <= 25);
      } catch (error const& e) {
        CHECK(std::string_view(e.what()).size() > 10);
      }
    }
  }
  SUBCASE("column numbers that cannot be") {
    auto altered = sound;
    altered[altered.size() - 1] = '\x7f';  // tensors of one width stand in the order of their declaration: the last vocabulary's last value
    write_file(path, altered);
    CHECK_FALSE(load_preprocessing(data.exec, folder.path()) == *data.fitted);
    auto const header_bytes = static_cast<std::size_t>(static_cast<unsigned char>(sound[0])) + 256 * static_cast<unsigned char>(sound[1]);
    altered = sound;
    altered[8 + header_bytes] = 77;  // the first dense column
    write_file(path, altered);
    CHECK(refusal().code() == errc::invalid_argument);
    CHECK(refusal().value("columns") == "dense");
  }
  SUBCASE("no options") {
    safetensors_writer out(path, {});
    out.finish();
    CHECK(refusal().code() == errc::incompatible);
    CHECK(refusal().sentence() == "preprocessing: a file without options");
  }
  SUBCASE("options that say nothing known") {
    auto const with = [&](char const* options) {
      safetensors_writer out(path, {}, {{"options", options}});
      out.finish();
      return refusal();
    };
    CHECK(with("{").code() == errc::parse_error);
    CHECK(with("{").value("file") == path + ", options");
    CHECK(with("{}").value("field") == "dense");
    CHECK(with(R"({"dense": "cubic"})").code() == errc::incompatible);
    CHECK(with(R"({"dense": "cubic"})").value("found") == "cubic");
    CHECK(with(R"({"dense": "log", "dense_as_category": 1})").value("field") == "dense_as_category");
    CHECK(with(R"({"dense": "log", "dense_as_category": false, "min_count": "1"})").value("field") == "min_count");
    CHECK(with(R"({"dense": "log", "dense_as_category": false, "min_count": 1, "hash_size": 0})").value("field") == "vocabulary_limit");
    auto const lacking = with(R"({"dense": "log", "dense_as_category": false, "min_count": 1, "hash_size": 0, "vocabulary_limit": 0})");
    CHECK(lacking.code() == errc::incompatible);
    CHECK(lacking.value("tensor") == "dense_columns");
  }
}
