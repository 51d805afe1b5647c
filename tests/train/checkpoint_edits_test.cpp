// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/types.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/train/checkpoint.hpp>

#include "../support/hosts.hpp"
#include "temporary_folder.hpp"
#include "trainer_setup.hpp"

namespace checkpoint_edits_test {

namespace {

using namespace tessera;
using namespace tessera_tests;

constexpr auto largest_count = std::numeric_limits<std::int64_t>::max();
constexpr auto impossible_counts = {std::int64_t{-1}, most_counted + 1, largest_count};

/// One checkpoint in a folder, edited by somebody who gets every checksum right.
template <class Store>
struct edited_checkpoint {
  using run = small_run<Store, rowwise_adagrad, adam>;

  serial_host host;
  host_exec exec = host.exec();
  temporary_folder folder;
  std::string path = folder.path() + "/" + step_folder_name(step_count{3});
  std::string manifest_file = path + "/manifest.json";

  edited_checkpoint() {
    run writer(exec, {0.05F}, {0.01F});
    writer.train(exec, 0, 3);
    save_checkpoint(exec, folder.path(), writer.run, {.step = 3}, 1, [](std::string const& into) {
      write_file(into + "/more.bin", "caller's own bytes");
      return std::vector<manifest_section>{{"more.bin", digest_of(into + "/more.bin")}};
    });
  }

  template <class Edit>
  void edit_manifest(Edit const& edit) const {
    auto content = read_manifest(path, "tessera.checkpoint", 3);
    edit(content);
    write_manifest(path, content);
  }

  std::vector<std::int64_t> numbers_of(std::string const& tensor) const {
    safetensors_reader const in(path + "/tables.safetensors");
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(in.at(tensor).elements()));
    in.read(tensor, 0, vector_view<std::int64_t>(numbers));
    return numbers;
  }
  /// Other numbers in place of as many.
  void write_numbers(std::string const& tensor, std::vector<std::int64_t> const& numbers) const {
    auto const file = path + "/tables.safetensors";
    auto bytes = contents(file);
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    auto const at = sizeof header + header + static_cast<std::size_t>(safetensors_reader(file).at(tensor).offset);
    std::memcpy(bytes.data() + at, numbers.data(), numbers.size() * sizeof(std::int64_t));
    write_file(file, bytes);
    edit_manifest([&](manifest& content) {
      for (auto& section : content.sections) section.digest = digest_of(path + "/" + section.file);
    });
  }

  template <class Other = Store>
  error refusal() {
    small_run<Other, rowwise_adagrad, adam> reader(exec, {0.05F}, {0.01F});
    return error_of([&] { load_trainer(exec, open_newest_checkpoint(folder.path()), reader.run); });
  }
  template <class Other = Store>
  void check_taken() {
    small_run<Other, rowwise_adagrad, adam> reader(exec, {0.05F}, {0.01F});
    load_trainer(exec, open_newest_checkpoint(folder.path()), reader.run);
    reader.train(exec, 3, 5);
  }
};

using lfu_table = hash_table<float, admit_by_frequency, evict_lfu>;

}  // namespace

TEST_CASE("a section that the manifest does not list is refused by name") {
  for (std::string const section : {"dense.safetensors", "tables.safetensors", "more.bin"}) {
    CAPTURE(section);
    edited_checkpoint<dense_table<>> checkpoint;
    checkpoint.edit_manifest(
        [&](manifest& content) { std::erase_if(content.sections, [&](auto const& listed) { return listed.file == section; }); });
    auto const e = error_of([&] { open_newest_checkpoint(checkpoint.folder.path()); });
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.sentence() == "checkpoint: a section that its manifest does not list");
    CHECK(e.value("section") == section);
    CHECK(e.value("file") == checkpoint.path + "/" + section);
    if (section == "more.bin") continue;
    std::filesystem::remove(checkpoint.path + "/" + section);
    CHECK(error_of([&] { open_newest_checkpoint(checkpoint.folder.path()); }).value("section") == section);
  }
  edited_checkpoint<dense_table<>> checkpoint;
  checkpoint.check_taken();
  write_file(checkpoint.path + "/stray", "");
  CHECK(error_of([&] { open_newest_checkpoint(checkpoint.folder.path()); }).value("section") == "stray");
}

TEST_CASE("a file that a save leaves without a section is refused before there is a checkpoint") {
  edited_checkpoint<dense_table<>> checkpoint;
  edited_checkpoint<dense_table<>>::run run(checkpoint.exec, {0.05F}, {0.01F});
  auto const e = error_of([&] {
    save_checkpoint(checkpoint.exec, checkpoint.folder.path(), run.run, {.step = 6}, 1, [](std::string const& into) {
      write_file(into + "/forgotten", "");
      return std::vector<manifest_section>();
    });
  });
  CHECK(e.value("section") == "forgotten");
  CHECK(open_newest_checkpoint(checkpoint.folder.path()).state.step == 3);
}

TEST_CASE("a checkpoint from before tables could be parts of larger ones is one of whole tables") {
  edited_checkpoint<dense_table<>> checkpoint;
  checkpoint.edit_manifest([](manifest& content) {
    for (auto& table : content.state["model"]["tables"]) {
      CHECK(table.erase("first_row") == 1);
      CHECK(table.erase("first_column") == 1);
    }
  });
  checkpoint.check_taken();
  checkpoint.edit_manifest([](manifest& content) { content.state["model"]["tables"][1]["first_row"] = 8; });
  auto const e = checkpoint.refusal();
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("first_row") == "8");
}

TEST_CASE("ids that repeat are refused, naming the table and the id") {
  edited_checkpoint<hash_table<>> checkpoint;
  checkpoint.check_taken<dense_table<>>();
  auto const sound = checkpoint.numbers_of("table.2.ids");
  REQUIRE(sound.size() > 3);
  for (std::size_t const at : {std::size_t{0}, sound.size() / 2, sound.size() - 2}) {
    auto ids = sound;
    ids.back() = ids[at];
    checkpoint.write_numbers("table.2.ids", ids);
    for (auto const& e : {checkpoint.refusal(), checkpoint.refusal<dense_table<>>()}) {
      CHECK(e.code() == errc::corrupt_file);
      CHECK(e.sentence() == "table file: an id twice");
      CHECK(e.value("file") == checkpoint.path + "/tables.safetensors");
      CHECK(e.value("table") == "2");
      CHECK(e.value("id") == std::to_string(ids.back()));
    }
  }
  for (auto const outside : {std::int64_t{-1}, std::int64_t{300}, largest_count}) {
    auto ids = sound;
    ids.front() = outside;
    checkpoint.write_numbers("table.2.ids", ids);
    auto const e = checkpoint.refusal<dense_table<>>();
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("id") == std::to_string(outside));
  }
  checkpoint.write_numbers("table.2.ids", sound);
  checkpoint.check_taken<dense_table<>>();
  checkpoint.check_taken();
}

TEST_CASE("step counts from which nothing goes on are refused, naming file, field and value") {
  edited_checkpoint<dense_table<>> checkpoint;
  struct step_field {
    char const* name;
    char const* place;  // in the manifest's state
  };
  for (auto const& field : {step_field{"step", "/step"}, {"table_steps[1]", "/table_steps/1"}, {"bottom", "/dense_steps/bottom"}}) {
    CAPTURE(field.name);
    auto const edit = [&](std::int64_t value) {
      checkpoint.edit_manifest([&](manifest& content) { content.state[nlohmann::json::json_pointer(field.place)] = value; });
    };
    for (auto const count : impossible_counts) {
      CAPTURE(count);
      edit(count);
      auto const e = checkpoint.refusal();
      CHECK(e.code() == errc::parse_error);
      CHECK(e.value("file") == checkpoint.manifest_file);
      CHECK(e.value("field") == field.name);
      CHECK(e.value("found") == std::to_string(count));
    }
    for (auto const count : {std::int64_t{0}, most_counted}) {
      CAPTURE(count);
      edit(count);
      checkpoint.check_taken();
    }
    edit(3);
  }
}

TEST_CASE("a refused step count leaves parameters as they were") {
  edited_checkpoint<dense_table<>> checkpoint;
  checkpoint.edit_manifest([](manifest& content) { content.state["dense_steps"]["top"] = -1; });
  edited_checkpoint<dense_table<>>::run reader(checkpoint.exec, {0.05F}, {0.01F}, {}, 1234);
  auto const before = reader.predictions(checkpoint.exec);
  CHECK(error_of([&] { load_trainer(checkpoint.exec, open_newest_checkpoint(checkpoint.folder.path()), reader.run); }).value("found") ==
        "-1");
  CHECK(reader.predictions(checkpoint.exec) == before);
}

TEST_CASE("clocks and counts of policies from which nothing goes on are refused by tensor and value") {
  edited_checkpoint<lfu_table> checkpoint;
  auto const refused = [&](std::string const& tensor, std::size_t word, char const* name) {
    auto const sound = checkpoint.numbers_of(tensor);
    REQUIRE(sound.size() > word);
    for (auto const count : impossible_counts) {
      CAPTURE(tensor);
      CAPTURE(count);
      auto words = sound;
      words[word] = count;
      checkpoint.write_numbers(tensor, words);
      auto const e = checkpoint.refusal();
      CHECK(e.value("file") == checkpoint.path + "/tables.safetensors");
      CHECK(e.value("tensor") == tensor);
      CHECK(e.value(name) == std::to_string(count));
    }
    checkpoint.write_numbers(tensor, sound);
    checkpoint.check_taken();
  };
  refused("table.2.clock", 0, "batch");
  refused("table.2.clock", 1, "time was set");
  refused("table.2." + std::string(evict_lfu::name), 0, "count");
  refused("table.2." + std::string(admit_by_frequency::name), 1, "count");
}

}  // namespace checkpoint_edits_test
