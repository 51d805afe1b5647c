// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <naive_delimited.hpp>

#include <tessera/data/delimited_layout.hpp>

#include "sample_support.hpp"

namespace delimited_tests {

using sample_tests::sample;

inline naive::outcome<sample> naive_parse(std::string const& text, tessera::sample_schema const& schema,
                                          tessera::delimited_layout const& layout) {
  return naive::parse<sample>(text, schema, layout);
}

/// The layout of Criteo's logs in words that its own parser does not take: the general one reads it.
inline tessera::delimited_layout general_criteo_layout() {
  auto layout = tessera::criteo_layout();
  layout.missing = {"no field of these tests says so"};
  return layout;
}

}  // namespace delimited_tests
