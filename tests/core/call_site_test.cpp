// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <tessera/core/call_site.hpp>

using tessera::call_site;

namespace {

constexpr call_site where(call_site site = call_site::here()) { return site; }
template <class T>
call_site where_template(T const&, call_site site = call_site::here()) {
  return site;
}
call_site passed_on(call_site site = call_site::here()) { return where(site); }

struct made_somewhere {
  call_site site;
  explicit made_somewhere(call_site site = call_site::here()) : site(site) {}
};

}  // namespace

TEST_CASE("a defaulted call_site is the caller's file and line") {
  CHECK(where().line == __LINE__);
  CHECK(where_template(1).line == __LINE__);
  CHECK(passed_on().line == __LINE__);
  CHECK(made_somewhere().site.line == __LINE__);
  CHECK(std::string(where().file) == __FILE__);
  CHECK(std::string(passed_on().file) == __FILE__);
  CHECK(std::string(made_somewhere().site.file) == __FILE__);
}

TEST_CASE("a call_site is known when compiling, and says nothing by itself") {
  static_assert(where().line == __LINE__);
  static_assert(call_site{}.line == 0 && *call_site{}.file == '\0');
  CHECK(call_site::here().line == __LINE__);
}
