// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/preprocessing_file.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <tessera/data/preprocessing_fit_file.hpp>

#include "preprocessing_support.hpp"

namespace preprocessing_file_test {

namespace {

using namespace preprocessing_tests;
using namespace tessera_tests;

/// A fitted preprocessing of every kind of step, and its fit before it was finished.
struct fitted_table {
  sample_tests::plain_host host;
  tessera_tests::temporary_folder folder;
  preprocessing unfitted, fitted;

  fitted_table() {
    std::mt19937_64 random(5);
    table data(random, {.rows = 200, .dense = 3, .sparse = 4, .single = 2});
    for (auto& s : data.samples) s.sparse[3] = {missing_id};
    unfitted = preprocessing(
        data.schema, {{{"d0"}, {log_values{}, standardise{}, clip_numbers{.most = 3}}}, {{"d1"}, {fill_missing{1}, bucketise{{}, 5}}}},
        {{{"s0", "s3"}, {truncate_ids{.most = 3}, vocabulary{}}},
         {{"s1", "s2"}, {vocabulary{.min_count = 2, .limit = 20}}, missing_policy::no_id, "shared"},
         {{}, {hash_ids{.size = 9, .seed = 3}}}});
    preprocessing_fit fit(unfitted);
    fit.add(host.exec, data.all(host.exec).view());
    save_preprocessing_fit(folder.file("fit.safetensors"), fit);
    fitted = std::move(fit).finish(host.exec);
  }
};

}  // namespace

TEST_CASE("preprocessing_file: what was fitted comes back as it was, and says so") {
  fitted_table const data;
  auto const section = save_preprocessing(data.folder.path(), data.fitted);
  CHECK(section.file == "preprocessing.safetensors");
  CHECK(section.digest == digest_of(data.folder.file(section.file)));
  auto const back = load_preprocessing(data.host.exec, data.folder.path());
  CHECK(back == data.fitted);
  CHECK(back.is_fitted());
  CHECK(back.dropped() == std::vector<std::string>{"s3"});
  for (char const* column : {"s0", "s1", "s2"}) CHECK(back.sparse().id_count(column) == data.fitted.sparse().id_count(column));
  // One that is not fitted comes back unfitted.
  save_preprocessing(data.folder.path(), data.unfitted);
  auto const unfitted = load_preprocessing(data.host.exec, data.folder.path());
  CHECK(unfitted == data.unfitted);
  CHECK_FALSE(unfitted == data.fitted);
  CHECK_FALSE(unfitted.is_fitted());
  // A fit goes on where it was.
  auto fit = load_preprocessing_fit(data.host.exec, data.folder.file("fit.safetensors"));
  CHECK(fit.rows() == 200);
  CHECK(std::move(fit).finish(data.host.exec) == data.fitted);
}

TEST_CASE("preprocessing_file: what is missing, torn or altered is named") {
  fitted_table const data;
  save_preprocessing(data.folder.path(), data.fitted);
  auto const fitted_path = data.folder.file("preprocessing.safetensors"), fit_path = data.folder.file("fit.safetensors");
  for (auto const& path : {fitted_path, fit_path}) {
    CAPTURE(path);
    bool const is_fit = path == fit_path;
    auto const load = [&] {
      if (is_fit)
        load_preprocessing_fit(data.host.exec, path);
      else
        load_preprocessing(data.host.exec, data.folder.path());
    };
    auto const sound = contents(path);
    for (std::size_t const size : {std::size_t{0}, std::size_t{7}, std::size_t{100}, sound.size() / 2, sound.size() - 1}) {
      write_file(path, sound.substr(0, size));
      CHECK(error_of(load).code() == errc::corrupt_file);
      CHECK(error_of(load).value("file") == path);
    }
    // Every byte of the header altered: refused with the file's name, or read without harm.
    auto const header = static_cast<std::size_t>(static_cast<unsigned char>(sound[0])) + 256 * static_cast<unsigned char>(sound[1]);
    for (std::size_t at = 0; at < 8 + header; at += 3) {
      auto altered = sound;
      altered[at] = static_cast<char>(altered[at] ^ 1);
      write_file(path, altered);
      try {
        load();
      } catch (error const& e) {
        CHECK(e.value("file").starts_with(path));
      }
    }
    safetensors_writer empty(path, {});
    empty.finish();
    CHECK(error_of(load).code() == errc::incompatible);
    std::filesystem::remove(path);
    CHECK(error_of(load).code() == errc::io_error);
  }
}

TEST_CASE("preprocessing_file: rules that say nothing known are named") {
  fitted_table const data;
  auto const path = data.folder.file("preprocessing.safetensors");
  auto const sound = detail::json_of(data.fitted);
  auto const with = [&](auto const& change) {
    auto changed = sound;
    change(changed);
    safetensors_writer out(path, {}, {{"preprocessing", changed.dump()}});
    out.finish();
    return error_of([&] { load_preprocessing(data.host.exec, data.folder.path()); });
  };
  CHECK(with([](auto& j) { j = nlohmann::json::array(); }).code() == errc::parse_error);
  CHECK(with([](auto& j) { j.erase("schema"); }).value("field") == "schema");
  CHECK(with([](auto& j) { j["more"] = 1; }).value("field") == "more");
  CHECK(with([](auto& j) { j["schema"]["label"] = 1; }).value("field") == "schema.label");
  CHECK(with([](auto& j) { j["schema"]["label"] = "d0"; }).value("column") == "d0");
  CHECK(with([](auto& j) { j["dense"][1]["steps"][0] = "cubic"; }).value("field") == "dense[1].steps[0]");
  CHECK(with([](auto& j) { j["sparse"][0]["steps"][0] = "cubic"; }).value("found") == "\"cubic\"");
  CHECK(with([](auto& j) { j["sparse"][0]["missing"] = "no"; }).value("field") == "sparse[0].missing");
  auto const lacking = with([](auto&) {});
  CHECK(lacking.code() == errc::incompatible);
  CHECK(lacking.value("tensor") == "vocabulary.0");
  CHECK(with([](auto& j) { j["dropped-dense"] = {"q"}, j["vocabularies"] = nlohmann::json::array(); }).value("column") == "q");
}

}  // namespace preprocessing_file_test
