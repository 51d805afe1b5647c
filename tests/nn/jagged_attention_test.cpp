// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 15
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 2
#include "jagged_attention_suite.hpp"

#include <tessera/core/memory.hpp>

#include "temporary_folder.hpp"

namespace {

using tessera::attention_options;
using tessera::errc;
using tessera_tests::attention_case;
using tessera_tests::error_of;
using tessera_tests::same_bits;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

TEST_CASE("jagged_attention matches a double reference") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (bool const causal : {false, true})
    for (std::int64_t const head_dim : {1, 2, 3, 7, 8, 16, 20, 31, 32, 64, 100})
      for (std::int64_t const heads : {1, 2, 3}) {
        CAPTURE(causal);
        CAPTURE(head_dim);
        CAPTURE(heads);
        if (tessera_tests::under_asan && (head_dim % 8 + heads) % 2 == 0) continue;
        attention_case const batch(random, {5, 0, 1, 17, 0, 70, 130, 3, 64, 0}, heads * head_dim, {.heads = heads, .causal = causal});
        batch.check(host.exec());
      }
}

TEST_CASE("jagged_attention: heads wider than a thousand") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  attention_case(random, {5, 0, 70}, 1030, {}).check(host.exec());
}

TEST_CASE("jagged_attention: every length up to some blocks, and other scales") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  std::vector<std::int64_t> lengths(tessera_tests::under_sanitizer ? 70 : 200);
  std::iota(lengths.begin(), lengths.end(), 0);
  for (bool const causal : {false, true}) {
    attention_case(random, lengths, 8, {.heads = 2, .causal = causal, .scale = 0.25F}).check(host.exec());
    attention_case(random, {3, 40, 200}, 6, {.causal = causal, .scale = -2}).check(host.exec(), 1e-4);
  }
}

TEST_CASE("jagged_attention: rows of thousands") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  for (bool const causal : {false, true})
    attention_case(random, {2, tessera_tests::under_sanitizer ? 600 : 3001, 512, 0, 513, 9}, 24, {.heads = 2, .causal = causal})
        .check(host.exec());
}

TEST_CASE("jagged_attention: the reference's gradients are its central differences") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (bool const causal : {false, true}) {
    attention_case const batch(random, {3, 0, 4, 1}, 4, {.heads = 2, .causal = causal});
    auto const expected = batch.reference();
    tessera_tests::reference_attention const reference{2, causal, 1 / std::sqrt(2.0)};
    tessera_tests::doubles q(batch.q), k(batch.k), v(batch.v);
    tessera_tests::doubles const gradient(batch.gradient);
    auto const objective = [&] {
      auto const out = reference.run(q, k, v, gradient, batch.offsets).out;
      double sum = 0;
      for (std::size_t i = 0; i < out.values.size(); ++i) sum += out.values[i] * gradient.values[i];
      return sum;
    };
    auto const check = [&](tessera_tests::doubles& input, tessera_tests::doubles const& analytic) {
      std::vector<double> numeric;
      for (auto& x : input.values) numeric.push_back(tessera_tests::numeric_derivative(x, objective));
      CHECK(tessera_tests::worst_difference(numeric, analytic.values) < 1e-7);
    };
    check(q, expected.q);
    check(k, expected.k);
    check(v, expected.v);
  }
}

TEST_CASE("jagged_attention: 1, 2 and 4 threads give the same bits, though long rows are cut for some") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (bool const causal : {false, true})
    for (auto const& lengths :
         {std::vector<std::int64_t>{tessera_tests::under_sanitizer ? 300 : 1300}, {3, 700, 0, 290, 41, 1, 260, 300}}) {
      attention_case const batch(random, lengths, 20, {.heads = 2, .causal = causal});
      std::vector<attention_case::result> first;
      tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
        auto const r = batch.run(exec);
        if (first.empty()) first.push_back(r);
        CHECK(same_bits(r.out.storage, first[0].out.storage));
        CHECK(same_bits(r.log_sums, first[0].log_sums));
        CHECK(same_bits(r.q.storage, first[0].q.storage));
        CHECK(same_bits(r.k.storage, first[0].k.storage));
        CHECK(same_bits(r.v.storage, first[0].v.storage));
      });
    }
}

// Row `row` of a matrix of all rows' vectors.
std::vector<float> part_of(strided_floats const& m, attention_case const& batch, std::size_t row) {
  std::vector<float> part;
  for (auto i = batch.offsets[row]; i < batch.offsets[row + 1]; ++i)
    for (std::int64_t c = 0; c < m.columns; ++c) part.push_back(m.at(i, c));
  return part;
}

TEST_CASE("jagged_attention: the bits of a row depend on no other row, nor on its place") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  std::vector<std::int64_t> const lengths{33, 0, 500, 64, 1, 90};
  for (bool const causal : {false, true}) {
    attention_case const batch(random, lengths, 12, {.heads = 3, .causal = causal});
    auto const all = batch.run(host.exec());
    // The rows in the opposite order, and each alone.
    attention_case turned(random, {90, 1, 64, 500, 0, 33}, 12, {.heads = 3, .causal = causal});
    for (std::size_t row = 0; row < lengths.size(); ++row) {
      attention_case alone(random, {lengths[row]}, 12, {.heads = 3, .causal = causal});
      for (std::int64_t i = 0; i < lengths[row]; ++i)
        for (std::int64_t c = 0; c < 12; ++c)
          for (auto const member : {&attention_case::q, &attention_case::k, &attention_case::v, &attention_case::gradient}) {
            (alone.*member).at(i, c) = (batch.*member).at(batch.offsets[row] + i, c);
            (turned.*member).at(turned.offsets[lengths.size() - 1 - row] + i, c) = (batch.*member).at(batch.offsets[row] + i, c);
          }
      auto const r = alone.run(host.exec());
      for (auto const member :
           {&attention_case::result::out, &attention_case::result::q, &attention_case::result::k, &attention_case::result::v})
        CHECK(same_bits(part_of(all.*member, batch, row), part_of(r.*member, alone, 0)));
    }
    auto const r = turned.run(host.exec());
    for (std::size_t row = 0; row < lengths.size(); ++row)
      for (auto const member :
           {&attention_case::result::out, &attention_case::result::q, &attention_case::result::k, &attention_case::result::v})
        CHECK(same_bits(part_of(all.*member, batch, row), part_of(r.*member, turned, lengths.size() - 1 - row)));
  }
}

TEST_CASE("jagged_attention: what is causal sees its prefix alone") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  attention_case const whole(random, {200}, 32, {.heads = 2, .causal = true});
  auto const all = whole.run(host.exec());
  for (std::int64_t const length : {1, 16, 63, 64, 65, 150}) {
    attention_case prefix(random, {length}, 32, {.heads = 2, .causal = true});
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t c = 0; c < 32; ++c) {
        prefix.q.at(i, c) = whole.q.at(i, c);
        prefix.k.at(i, c) = whole.k.at(i, c);
        prefix.v.at(i, c) = whole.v.at(i, c);
      }
    auto const r = prefix.run(host.exec());
    float worst = 0;
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t c = 0; c < 32; ++c) worst = std::max(worst, std::fabs(r.out.at(i, c) - all.out.at(i, c)));
    CHECK(worst < 1e-6F);
  }
}

TEST_CASE("jagged_attention: scores of hundreds, of one sign or the other, overflow nothing; NaN stays") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (float const factor : {30.0F, -30.0F}) {
    attention_case batch(random, {100, 7}, 8, {.scale = factor});
    // Whole numbers, so that scores as large as these are exact and the softmax is that of the reference.
    for (auto* m : {&batch.q, &batch.k})
      for (std::int64_t i = 0; i < m->rows; ++i)
        for (std::int64_t c = 0; c < 8; ++c) m->at(i, c) = std::round(m->at(i, c));
    batch.check(host.exec(), 2e-3);
  }
  attention_case batch(random, {40, 5}, 8, {});
  batch.q.at(3, 2) = std::nanf("");
  auto const r = batch.run(host.exec());
  CHECK(std::isnan(r.out.at(3, 0)));
  CHECK(std::isfinite(r.out.at(4, 0)));
  CHECK(std::isnan(r.k.at(0, 0)));
  CHECK(std::isfinite(r.k.at(41, 0)));
}

TEST_CASE("jagged_attention: queries, keys and values may be columns of one matrix, and offsets begin anywhere") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  std::vector<std::int32_t> const offsets{5, 9, 9, 40};
  strided_floats const joined(random, 41, 48, 3), gradient(random, 41, 16, 0);
  strided_floats out(41, 16, 0), gradients(41, 48, 1);
  std::vector<float> log_sums(70);
  tessera::matrix_view<float> const log_sums_view(log_sums.data(), 2, 35);
  auto const in = [&](tessera::matrix_view<float const> m) {
    return tessera::jagged_vectors_view<float const, std::int32_t>{m, offsets.data(), 3};
  };
  auto const part = [&](std::int64_t which) { return in(joined.view().columns_from(which * 16, 16)); };
  auto const to = [&](tessera::matrix_view<float> m) { return tessera::jagged_vectors_view<float, std::int32_t>{m, offsets.data(), 3}; };
  auto const gradient_part = [&](std::int64_t which) { return to(gradients.view().columns_from(which * 16, 16)); };
  attention_options const options{.heads = 2};
  tessera::jagged_attention(host.exec(), part(0), part(1), part(2), options, to(out.view()), log_sums_view);
  tessera::jagged_attention_backward(host.exec(), part(0), part(1), part(2), options, in(out.view()), log_sums_view, in(gradient.view()),
                                     gradient_part(0), gradient_part(1), gradient_part(2));
  CHECK(gradients.gaps_intact());
  CHECK(std::isnan(out.at(4, 0)));  // before the first row and behind the last nothing is written
  CHECK(std::isnan(out.at(40, 0)));
  attention_case apart(random, {4, 0, 31}, 16, options);
  for (std::int64_t i = 0; i < 35; ++i)
    for (std::int64_t c = 0; c < 16; ++c) {
      apart.q.at(i, c) = joined.at(5 + i, c);
      apart.k.at(i, c) = joined.at(5 + i, 16 + c);
      apart.v.at(i, c) = joined.at(5 + i, 32 + c);
      apart.gradient.at(i, c) = gradient.at(5 + i, c);
    }
  auto const expected = apart.run(host.exec());
  CHECK(same_bits(expected.log_sums, log_sums));
  for (std::int64_t i = 0; i < 35; ++i)
    for (std::int64_t c = 0; c < 16; ++c) {
      CHECK(expected.out.at(i, c) == out.at(5 + i, c));
      CHECK(expected.q.at(i, c) == gradients.at(5 + i, c));
      CHECK(expected.k.at(i, c) == gradients.at(5 + i, 16 + c));
      CHECK(expected.v.at(i, c) == gradients.at(5 + i, 32 + c));
    }
  // Without the logarithms the same comes out.
  strided_floats alone(41, 16, 0);
  tessera::jagged_attention(host.exec(), part(0), part(1), part(2), options, to(alone.view()));
  CHECK(same_bits(alone.storage, out.storage));
}

// A matrix of a batch, the same vectors behind others that nobody may read or write.
struct shifted_floats {
  std::int64_t first;
  strided_floats all;
  std::vector<std::int64_t> offsets;

  shifted_floats(strided_floats const& m, std::int64_t first, std::vector<std::int64_t> const& from_0)
      : first(first), all(first + m.rows, m.columns, m.stride - m.columns), offsets(from_0) {
    for (auto& offset : offsets) offset += first;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.columns; ++c) all.at(first + r, c) = m.at(r, c);
  }
  std::int64_t rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  tessera::jagged_vectors_view<float const> in() const { return {all.view(), offsets.data(), rows()}; }
  tessera::jagged_vectors_view<float> to() { return {all.view(), offsets.data(), rows()}; }
  /// Whether they are these, to the bit, and those before them still NaN.
  bool holds(strided_floats const& expected) const {
    bool same = all.gaps_intact();
    for (std::int64_t c = 0; c < all.columns; ++c) {
      for (std::int64_t r = 0; r < first; ++r) same = same && std::isnan(all.at(r, c));
      for (std::int64_t r = 0; r < expected.rows; ++r) same = same && all.at(first + r, c) == expected.at(r, c);
    }
    return same;
  }
};

TEST_CASE("jagged_attention: the offsets of each argument begin where they like") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  for (bool const causal : {false, true})
    for (auto const& lengths : {std::vector<std::int64_t>{3, 0, 70, 1}, {300, 5, 1100}}) {
      attention_case const batch(random, lengths, 12, {.heads = 2, .causal = causal});
      auto const expected = batch.run(host.exec());
      auto const shifted = [&](strided_floats const& m, std::int64_t first) { return shifted_floats(m, first, batch.offsets); };
      auto const nothing = [&](std::int64_t first) { return shifted(strided_floats(batch.q.rows, 12, 1), first); };
      auto const q = shifted(batch.q, 5), k = shifted(batch.k, 0), v = shifted(batch.v, 11), gradient = shifted(batch.gradient, 2);
      auto out = nothing(3), q_gradient = nothing(1), k_gradient = nothing(9), v_gradient = nothing(4);
      std::vector<float> log_sums(expected.log_sums.size());
      tessera::matrix_view<float> const sums(log_sums.data(), 2, batch.q.rows);
      tessera::jagged_attention(host.exec(), q.in(), k.in(), v.in(), batch.options, out.to(), sums);
      tessera::jagged_attention_backward(host.exec(), q.in(), k.in(), v.in(), batch.options, out.in(), sums, gradient.in(), q_gradient.to(),
                                         k_gradient.to(), v_gradient.to());
      CHECK(same_bits(log_sums, expected.log_sums));
      CHECK(out.holds(expected.out));
      CHECK(q_gradient.holds(expected.q));
      CHECK(k_gradient.holds(expected.k));
      CHECK(v_gradient.holds(expected.v));
    }
}

TEST_CASE("jagged_attention: nothing is allocated in a step, and memory does not grow with the square of a length") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const peak_of = [&](std::int64_t length) {
    serial_host host;
    tessera::arena arena(host.memory(), 256);
    auto const exec = host.exec().with_memory(arena);
    attention_case const batch(random, {length}, 8, {});
    std::int64_t after_one = 0;
    for (int step = 0; step < 3; ++step) {
      batch.run(exec);
      if (step == 0) after_one = host.memory().allocations();
    }
    CHECK(after_one > 0);
    CHECK(host.memory().allocations() == after_one);
    return host.memory().peak_bytes();
  };
  CHECK(peak_of(2000) == peak_of(10));
}

TEST_CASE("jagged_attention: what does not fit is refused before anything is written") {
  serial_host host;
  std::vector<float> memory(400, 1.0F), written(400, 7.0F);
  auto const untouched = written;
  std::vector<std::int64_t> const offsets{0, 2, 5}, others{0, 2, 4}, past{0, 2, 6};
  auto const in = [&](std::vector<std::int64_t> const& of, std::int64_t dim) {
    return tessera::jagged_vectors_view<float const>{{memory.data(), 5, dim}, of.data(), 2};
  };
  auto const to = [&](std::vector<std::int64_t> const& of, std::int64_t dim) {
    return tessera::jagged_vectors_view<float>{{written.data(), 5, dim}, of.data(), 2};
  };
  auto const log_sums = [&](std::int64_t heads, std::int64_t vectors) {
    return tessera::matrix_view<float>(written.data() + 200, heads, vectors);
  };
  auto const code = [](auto const& call) { return error_of(call).code(); };
  auto const forward = [&](auto q, auto k, auto v, attention_options const& options, auto out, auto sums) {
    return [=, &host] { tessera::jagged_attention(host.exec(), q, k, v, options, out, sums); };
  };
  auto const good = in(offsets, 4);
  CHECK(code(forward(in(past, 4), good, good, {}, to(offsets, 4), log_sums(1, 5))) == errc::out_of_range);
  CHECK(code(forward(good, in(others, 4), good, {}, to(offsets, 4), log_sums(1, 5))) == errc::shape_mismatch);
  CHECK(code(forward(good, good, in(offsets, 3), {}, to(offsets, 4), log_sums(1, 5))) == errc::shape_mismatch);
  CHECK(code(forward(good, good, good, {}, to(offsets, 8), log_sums(1, 5))) == errc::shape_mismatch);
  CHECK(code(forward(good, good, good, {}, to(offsets, 4), log_sums(1, 4))) == errc::shape_mismatch);
  CHECK(code(forward(good, good, good, {.heads = 2}, to(offsets, 4), log_sums(1, 5))) == errc::shape_mismatch);
  for (std::int64_t const heads : {0, 3, -1}) {
    auto const e = error_of(forward(good, good, good, {.heads = heads}, to(offsets, 4), log_sums(1, 5)));
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value("heads") == std::to_string(heads));
    CHECK(e.value("dim") == "4");
  }
  CHECK(code(forward(good, good, good, {.scale = std::nanf("")}, to(offsets, 4), log_sums(1, 5))) == errc::invalid_argument);
  auto const backward = [&](auto out, auto sums, auto gradient, auto dq, auto dk, auto dv) {
    return [=, &host] { tessera::jagged_attention_backward(host.exec(), good, good, good, {}, out, sums, gradient, dq, dk, dv); };
  };
  auto const g = to(offsets, 4);
  CHECK(code(backward(in(others, 4), log_sums(1, 5), good, g, g, g)) == errc::shape_mismatch);
  CHECK(code(backward(good, tessera::matrix_view<float>{}, good, g, g, g)) == errc::shape_mismatch);
  CHECK(code(backward(good, log_sums(1, 5), in(offsets, 2), g, g, g)) == errc::shape_mismatch);
  CHECK(code(backward(good, log_sums(1, 5), good, to(others, 4), g, g)) == errc::shape_mismatch);
  CHECK(code(backward(good, log_sums(1, 5), good, g, to(others, 4), g)) == errc::shape_mismatch);
  CHECK(code(backward(good, log_sums(1, 5), good, g, g, to(others, 4))) == errc::shape_mismatch);
  CHECK(written == untouched);
}

}  // namespace
