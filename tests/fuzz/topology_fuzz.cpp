// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A topology, and a link model, of any JSON is refused by an error that names the file, or is the same after it was written again. What a topology says
// of its ranks agrees with what it says of its domains.
#include <tessera/comm/link_model_file.hpp>
#include <tessera/comm/topology_file.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz_support.hpp"

using fuzz::require;

namespace {

template <class Parse>
auto parsed(std::string_view text, Parse const& parse) -> std::optional<decltype(parse(text, std::string()))> {
  try {
    return parse(text, std::string("input.json"));
  } catch (tessera::error const& e) {
    require(e.code() == tessera::errc::parse_error || e.code() == tessera::errc::invalid_argument, "the code of refused JSON");
    require(e.value("file") == "input.json", "refused JSON is named");
    return std::nullopt;
  }
}

void check(tessera::topology const& t) {
  for (std::int64_t level = 0; level < t.levels(); ++level) {
    require(t.level(t.name(level)) == level, "a level is found by its name");
    std::int64_t ranks = 0;
    for (std::int64_t domain = 0; domain < t.domains(level); ++domain) {
      auto const of = t.ranks_of(level, domain);
      for (std::int64_t i = 0; i < of.size(); ++i) {
        require(t.domain_of(level, of[i]) == domain && t.index_in_domain(level, of[i]) == i, "a rank is where its domain says");
        require(t.shared_level(of[0], of[i]) <= level, "ranks of a domain share its level");
      }
      ranks += of.size();
    }
    require(ranks == t.ranks(), "each rank is in one domain");
    if (t.is_even(level)) require(static_cast<std::int64_t>(t.peer_order(level).size()) == ranks, "each rank has a place in peer order");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  auto const text = fuzz::text_of(data, size);
  if (auto const t = parsed(text, tessera::parse_topology)) {
    check(*t);
    auto const again = parsed(tessera::print_json(tessera::topology_json(*t), "again"), tessera::parse_topology);
    require(again.has_value() && *again == *t, "a topology is read as it was written");
  }
  if (auto const m = parsed(text, tessera::parse_link_model)) {
    auto const again = parsed(tessera::print_json(tessera::link_model_json(*m), "again"), tessera::parse_link_model);
    require(again.has_value() && *again == *m, "a link model is read as it was written");
    for (std::size_t i = 0; i < m->links.size(); ++i)
      require(m->predict(1 << 20, static_cast<std::int64_t>(i)) >= m->predict(0, static_cast<std::int64_t>(i)), "more bytes take no less");
  }
  return 0;
}
