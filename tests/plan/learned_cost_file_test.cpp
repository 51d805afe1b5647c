// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 2
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/learned_cost_file.hpp>
#include <tessera/plan/plan_prediction.hpp>

#include "hosts.hpp"
#include "learned_cost_support.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace learned_cost_file_test {

using namespace learned_cost_support;
using tessera::errc;
using tessera::learned_cost;
using tessera::load_learned_cost;
using tessera_tests::temporary_folder;

namespace {

/// A model whose networks have random parameters.
learned_cost random_cost(std::mt19937_64& random, tessera::host_exec const& exec, tessera::shard_features kind, int networks) {
  auto const width = static_cast<std::int64_t>(tessera::shard_feature_names(kind).size());
  auto const statistics = [&](std::int64_t features) {
    tessera::feature_statistics result;
    result.means = tessera_tests::random_floats(random, static_cast<std::size_t>(features));
    for (auto const mean : result.means) result.deviations.push_back(1 + mean * mean);
    return result;
  };
  auto const seed = [&] { return tessera::random_seed(random()); };
  std::vector<tessera::sum_network> sums;
  std::vector<tessera::set_network> forward, backward;
  for (int n = 0; n < networks; ++n) {
    sums.emplace_back(exec, tessera::sum_network::options{{width, 6, 4}, {4, 5, 1}, networks > 1, seed()});
    forward.emplace_back(exec, tessera::set_network::options{{7, 4}, {15, 5, 1}, seed()});
    backward.emplace_back(exec, tessera::set_network::options{{7, 3}, {13, 1}, seed()});
  }
  return {tessera::describe_machine(exec),
          "rowwise_adagrad",
          4096,
          {kind, statistics(width), std::move(sums), 2.5, {0.1, 1.7}},
          {statistics(7), std::move(forward), 0.3, {0.2, 1.1}},
          {statistics(7), std::move(backward), 4, {0.3, 1.3}}};
}

/// A file of a folder with one text in place of another, and the manifest's checksum made right.
void replace_in_manifest(std::string const& folder, std::string const& from, std::string const& to) {
  auto content = tessera::read_manifest(folder, "tessera.learned_cost", 1000);
  auto text = content.state.dump();
  auto const place = text.find(from);
  REQUIRE(place != text.npos);
  content.state = nlohmann::json::parse(text.replace(place, from.size(), to));
  tessera::write_manifest(folder, content);
}

}  // namespace

TEST_CASE("learned costs: saved and loaded, the same bits; another model has another digest") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  temporary_folder const folder;
  auto const pool = random_pool(random, 5);
  std::string last;
  for (auto const kind : {tessera::shard_features::published, tessera::shard_features::logarithmic}) {
    auto const cost = random_cost(random, host.exec(), kind, kind == tessera::shard_features::published ? 1 : 3);
    auto const path = folder.file("model");
    tessera::save_learned_cost(path, cost);
    auto const again = load_learned_cost(host.exec(), path);
    CHECK(again.machine == cost.machine);
    CHECK(again.optimizer == "rowwise_adagrad");
    CHECK(again.compute.features() == kind);
    CHECK(again.compute.statistics() == cost.compute.statistics());
    CHECK(again.compute.interval() == cost.compute.interval());
    CHECK(again.forward.unit_ms() == cost.forward.unit_ms());
    CHECK(again.backward.interval() == cost.backward.interval());
    CHECK(again.batch_samples == 4096);
    double stated = 0;
    for (auto const& interval : {cost.compute.interval(), cost.forward.interval(), cost.backward.interval()})
      stated = std::max(stated, interval.factor * interval.relative_noise);
    CHECK(tessera::stated_error(again) == stated);
    CHECK(again.compute.predict(pool) == cost.compute.predict(pool));
    std::vector<float> const dims{10, 200, 30}, starts{0, 1, 3};
    CHECK(again.forward.predict(dims, starts, 512) == cost.forward.predict(dims, starts, 512));
    CHECK(again.backward.predict(dims, {}, 512) == cost.backward.predict(dims, {}, 512));
    std::vector<std::int64_t> const devices{0, 2, 1, 0, 0};
    CHECK(tessera::costs_of_devices(again, pool, devices, 3) == tessera::costs_of_devices(cost, pool, devices, 3));
    CHECK(tessera::learned_cost_digest(path) != last);
    last = tessera::learned_cost_digest(path);
    CHECK(last.size() == 16);
    CHECK(last.find_first_not_of("0123456789abcdef") == last.npos);
    tessera::save_learned_cost(path, again);
    CHECK(tessera::learned_cost_digest(path) == last);
  }
}

TEST_CASE("learned costs: tables that were not measured are refused by name") {
  std::mt19937_64 random(5);
  tessera_tests::serial_host host;
  temporary_folder const folder;
  tessera::save_learned_cost(folder.file("model"), random_cost(random, host.exec(), tessera::shard_features::logarithmic, 1));
  auto const cost = load_learned_cost(host.exec(), folder.file("model"));
  auto pool = random_pool(random, 3);
  auto const refused = [&](char const* field, char const* expected, char const* found) {
    auto const e = tessera_tests::error_of([&] { tessera::check_measured_tables(cost, pool); });
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("field") == field);
    CHECK(e.value("expected") == expected);
    CHECK(e.value("found") == found);
  };
  refused("optimizer", "rowwise_adagrad", "sgd");
  for (auto& table : pool) table.optimizer = "rowwise_adagrad";
  CHECK_NOTHROW(tessera::check_measured_tables(cost, pool));
  pool[2].row_format = "float16";
  refused("row_format", "float", "float16");
}

TEST_CASE("learned costs: another version, feature order or machine is refused by name") {
  std::mt19937_64 random(3);
  tessera_tests::serial_host host;
  temporary_folder const folder;
  auto const path = folder.file("model");
  auto const cost = random_cost(random, host.exec(), tessera::shard_features::logarithmic, 2);
  auto const refused = [&](errc code, char const* what, std::string const& value, tessera::load_cost_options const& options = {}) {
    try {
      load_learned_cost(host.exec(), path, options);
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CAPTURE(std::string(e.what()));
      CHECK(e.code() == code);
      CHECK(e.value(what) == value);
      CHECK(e.value("file").starts_with(path));
    }
  };
  auto const altered = [&](std::string const& from, std::string const& to) {
    tessera::save_learned_cost(path, cost);
    replace_in_manifest(path, from, to);
  };
  altered("\"log_rows\",\"log_dim\"", "\"log_dim\",\"log_rows\"");
  refused(errc::incompatible, "position", "0");
  refused(errc::incompatible, "found", "log_dim");
  altered(",\"bin_16\"]", "]");
  refused(errc::incompatible, "found", "nothing");
  altered("\"logarithmic\"", "\"quadratic\"");
  refused(errc::incompatible, "found", "quadratic");
  altered("\"sent_mb\",\"received_mb\"", "\"received_mb\",\"sent_mb\"");
  refused(errc::incompatible, "expected", "sent_mb");
  altered("\"threads\":1", "\"threads\":7");
  refused(errc::incompatible, "field", "threads");
  refused(errc::incompatible, "measured on", "7");
  CHECK(load_learned_cost(host.exec(), path, {.of_this_machine = false}).machine.threads == 7);
  altered("\"processor\":\"", "\"processor\":\"Other ");
  refused(errc::incompatible, "field", "processor");
  altered("\"networks\":2", "\"networks\":3");
  refused(errc::incompatible, "tensor", "backward.2.device.0.weight");
  altered("\"networks\":2", "\"networks\":0");
  refused(errc::parse_error, "field", "networks");
  altered("\"head_widths\":[4,5,1]", "\"head_widths\":[4,6,1]");
  refused(errc::incompatible, "tensor", "compute.0.head.0.weight");
  altered("\"head_widths\":[4,5,1]", "\"head_widths\":[5,5,1]");
  refused(errc::invalid_argument, "width", "5");
  altered("\"unit_ms\":2.5", "\"unit_ms\":\"long\"");
  refused(errc::parse_error, "field", "unit_ms");

  tessera::save_learned_cost(path, cost);
  auto content = tessera::read_manifest(path, "tessera.learned_cost", 1);
  content.version = 2;
  tessera::write_manifest(path, content);
  refused(errc::incompatible, "found", "2");
  content.version = 1;
  content.format = "tessera.checkpoint";
  tessera::write_manifest(path, content);
  refused(errc::incompatible, "found", "tessera.checkpoint");

  tessera::save_learned_cost(path, cost);
  auto bytes = tessera_tests::contents(path + "/networks.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  tessera_tests::write_file(path + "/networks.safetensors", bytes);
  refused(errc::corrupt_file, "section", "networks.safetensors");
  std::filesystem::remove(path + "/networks.safetensors");
  refused(errc::corrupt_file, "found", "nothing");
  CHECK_THROWS_AS(load_learned_cost(host.exec(), folder.file("none")), tessera::error);
}

TEST_CASE("learned costs: networks of one part that differ in shape are not saved") {
  std::mt19937_64 random(4);
  tessera_tests::serial_host host;
  temporary_folder const folder;
  auto cost = random_cost(random, host.exec(), tessera::shard_features::published, 1);
  std::vector<tessera::set_network> networks;
  networks.emplace_back(host.exec(), tessera::set_network::options{{7, 4}, {15, 5, 1}});
  networks.emplace_back(host.exec(), tessera::set_network::options{{7, 5}, {17, 1}});
  cost.forward = {cost.forward.statistics(), std::move(networks), 0.3, {}};
  CHECK_THROWS_WITH_AS(tessera::save_learned_cost(folder.file("model"), cost),
                       "save_learned_cost: networks of one part differ in shape (part forward, network 1)", tessera::error);
  CHECK(tessera_tests::names_in(folder.path()).empty());
}

}  // namespace learned_cost_file_test
