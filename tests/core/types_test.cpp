// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <compare>
#include <cstdint>
#include <type_traits>

#include <tessera/core/types.hpp>

using tessera::random_seed;
using tessera::step_count;
using tessera::table_id;

template <class A, class B>
concept comparable = requires(A a, B b) {
  a == b;
}
|| requires(A a, B b) { a < b; };

// Two kinds never mix, and a plain integer becomes one only when asked to.
static_assert(comparable<table_id, table_id>);
static_assert(!comparable<table_id, step_count> && !comparable<table_id, random_seed>);
static_assert(!comparable<table_id, std::int64_t> && !comparable<std::int64_t, table_id>);
static_assert(!std::is_convertible_v<std::int64_t, table_id> && std::is_constructible_v<table_id, std::int64_t>);
static_assert(!std::is_convertible_v<table_id, std::int64_t> && !std::is_constructible_v<std::int64_t, table_id>);
static_assert(!std::is_constructible_v<table_id, step_count> && !std::is_assignable_v<table_id&, step_count>);
static_assert(!std::is_assignable_v<table_id&, std::int64_t>);
static_assert(!std::is_invocable_v<void (*)(table_id), std::int64_t> &&
              !std::is_invocable_v<void (*)(table_id, step_count), step_count, table_id>);
static_assert(std::is_trivially_copyable_v<table_id> && sizeof(table_id) == sizeof(std::int64_t));

TEST_CASE("strong integers compare by value") {
  CHECK(table_id().value == 0);
  CHECK(table_id(3) == table_id(3));
  CHECK(table_id(3) != table_id(4));
  CHECK(table_id(-1) < table_id(0));
  CHECK(random_seed(~std::uint64_t{0}) > random_seed(0));
  CHECK((step_count(1) <=> step_count(2)) == std::strong_ordering::less);
  static_assert(table_id(7).value == 7);
}
