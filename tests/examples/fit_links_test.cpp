// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 5
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#if !defined(TESSERA_FIT_LINKS) || !defined(TESSERA_MPIEXEC)

TEST_CASE("fit_links") { tessera_tests::skip("this build has no MPI, or no examples"); }

#else

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/comm/link_model_file.hpp>
#include <tessera/comm/topology_file.hpp>

#include "launched.hpp"
#include "temporary_folder.hpp"

namespace {

tessera_tests::program_result fitted(int ranks, std::vector<std::string> const& options) {
  std::vector<std::string> command{TESSERA_FIT_LINKS, "--least", "1024", "--most", "65536", "--rounds", "3"};
  command.insert(command.end(), options.begin(), options.end());
  return tessera_tests::launched(ranks, command);
}

}  // namespace

TEST_CASE("fit_links writes a model of the topology that it measured, which predicts") {
  tessera_tests::temporary_folder folder;
  auto const out = folder.file("links.json"), levels = folder.file("topology.json");
  tessera::topology const hosts = tessera::topology::of_hosts(2, 2).with_groups("rack", 1), host = tessera::topology::flat(2);
  tessera::write_topology(levels, hosts);
  for (char const* const messages : {"all", "pair"})
    for (bool const has_file : {false, true}) {
      std::vector<std::string> options{"--out", out, "--messages", messages};
      if (has_file) options.insert(options.end(), {"--topology", levels});
      auto const result = fitted(has_file ? 4 : 2, options);
      CAPTURE(result.output);
      CHECK(result.status == 0);
      CHECK(result.says("2048 bytes: measured"));  // one that was held out
      CHECK(!result.says("1024 bytes: measured"));
      CHECK(result.says("no two ranks share it") == has_file);  // a rack of one host
      auto const model = tessera::read_link_model(out);
      tessera::check_link_model(model, has_file ? hosts : host);
      for (std::size_t l = 0; l < model.links.size(); ++l) {
        CHECK(model.links[l].seconds_per_message + model.links[l].seconds_per_byte > 0);
        CHECK(model.predict(1 << 20, static_cast<std::int64_t>(l)) < 10);
      }
    }
}

TEST_CASE("fit_links refuses by name, on all ranks") {
  tessera_tests::temporary_folder folder;
  auto const out = folder.file("links.json"), levels = folder.file("topology.json");
  tessera::write_topology(levels, tessera::topology::of_hosts(2, 2));
  auto const refused = [&](std::vector<std::string> const& options, char const* part) {
    auto const result = fitted(2, options);
    CAPTURE(result.output);
    CHECK(result.status != 0);
    CHECK(result.says(part));
  };
  refused({"--out", out, "--topology", levels}, "topology 4, ranks 2");
  refused({"--out", folder.file("none/links.json")}, "none/links.json");
  refused({"--out", out, "--most", "2048"}, "--most");
}

#endif
