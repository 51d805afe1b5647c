// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/session_sampling.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <random.hpp>
#include <temporary_folder.hpp>

using tessera::random_seed;
using tessera::sample_key;
using tessera::sample_selection;

TEST_CASE("sample_selection: the share that was asked for, of sessions or of samples") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr std::int64_t sessions = 20'000, length = 5;
  for (double const rate : {0.0, 0.01, 0.5, 0.9, 1.0})
    for (sample_key const key : {sample_key::session, sample_key::sample}) {
      sample_selection const selection{rate, key, random_seed{seed}};
      std::int64_t kept = 0, whole = 0;
      for (std::int64_t s = 0; s < sessions; ++s) {
        std::int64_t of_session = 0;
        for (std::int64_t i = 0; i < length; ++i) of_session += selection.keeps(s, s * length + i);
        kept += of_session;
        whole += of_session == length;
        if (key == sample_key::session) CHECK((of_session == 0 || of_session == length));
      }
      auto const draws = static_cast<double>(key == sample_key::session ? sessions : sessions * length);
      auto const deviation = std::sqrt(rate * (1 - rate) / draws);
      CHECK(std::abs(static_cast<double>(kept) / (sessions * length) - rate) <= 6 * deviation);
      if (key == sample_key::sample) CHECK(std::abs(static_cast<double>(whole) / sessions - std::pow(rate, 5)) <= 0.02);
    }
}

TEST_CASE("sample_selection: the same draw for the same seed, another for another, and independent of shards") {
  std::int64_t same = 0, both = 0, in_shard = 0;
  constexpr std::int64_t sessions = 40'000;
  for (std::int64_t s = -sessions / 2; s < sessions / 2; ++s) {
    sample_selection const a{0.5, sample_key::session, random_seed{1}}, b{0.5, sample_key::session, random_seed{2}};
    CHECK(a.keeps(s, 0) == a.keeps(s, 77));
    same += a.keeps(s, 0) == b.keeps(s, 0);
    bool const first_shard = tessera::shard_of(sample_key::session, s, 0, 2, random_seed{1}) == 0;
    in_shard += first_shard;
    both += first_shard && a.keeps(s, 0);
  }
  CHECK(std::abs(same - sessions / 2) < 6 * 100);
  CHECK(std::abs(in_shard - sessions / 2) < 6 * 100);
  CHECK(std::abs(both - sessions / 4) < 6 * 87);
}

TEST_CASE("sample_selection: extremes, and what is no share") {
  auto const most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (auto const id : {most, least, std::int64_t{0}}) {
    CHECK(sample_selection{}.keeps(id, id));
    CHECK_FALSE(sample_selection{0}.keeps(id, id));
    CHECK(tessera::shard_of(sample_key::session, id, 0, 1) == 0);
    auto const shard = tessera::shard_of(sample_key::sample, 0, id, 7);
    CHECK(shard >= 0);
    CHECK(shard < 7);
  }
  for (double const wrong : {-0.1, 1.1, std::nan("")})
    CHECK(tessera_tests::error_of([&] { tessera::validate(sample_selection{wrong}); }).code() == tessera::errc::invalid_argument);
}
