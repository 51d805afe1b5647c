// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/core/optimizer_adaptors.hpp>

#include "driven_row.hpp"

namespace {

using namespace tessera;
using tessera_tests::as_double;
using tessera_tests::compare_with;
using tessera_tests::driven_row;

// What changes no gradient has no `gradient_of`, so that a backward need not call it.
template <class O>
concept changes = requires(O const& o) {
  o.gradient_of(0.0F, 0.0F);
};
static_assert(changes<with_weight_decay<sgd>> && changes<with_value_clipping<sgd>>);
static_assert(!changes<with_decoupled_weight_decay<sgd>> && changes<with_decoupled_weight_decay<with_weight_decay<sgd>>>);
static_assert(!changes<with_row_clipping<sgd>> && !changes<with_row_clipping<with_weight_decay<sgd>>>);
static_assert(uses_sum_of_squares<with_weight_decay<with_row_clipping<sgd>>> && !uses_sum_of_squares<with_value_clipping<adam>>);
static_assert(with_weight_decay<adam>::element_state == 2 && with_row_clipping<momentum_sgd>::element_state == 1);

template <class O>
std::vector<float> after_one(O const& optimizer, std::vector<float> const& weights, std::vector<float> const& gradient) {
  driven_row<O> row(optimizer, weights);
  row.step(gradient, 1);
  return row.weights;
}

/// One element of torch.optim.Adam and AdamW in double.
struct reference_adam {
  double m = 0, v = 0;
  double step(double weight, double gradient, std::int64_t t) {
    constexpr double beta1 = 0.75, beta2 = 0.875;
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient * gradient;
    auto const count = static_cast<double>(t);
    return weight - 0.03125 * (m / (1 - std::pow(beta1, count))) / (std::sqrt(v / (1 - std::pow(beta2, count))) + 0.0009765625);
  }
};
constexpr adam plain{.learning_rate = 0.03125F, .beta1 = 0.75F, .beta2 = 0.875F, .epsilon = 0.0009765625F};

}  // namespace

TEST_CASE("with_weight_decay around adam is PyTorch's weight_decay, in float64") {
  compare_with(with_weight_decay{plain, 0.25F}, [a = std::vector<reference_adam>(19)](auto& w, auto const& g, std::int64_t step) mutable {
    for (std::size_t c = 0; c < 19; ++c) w[c] = a[c].step(w[c], as_double(g[c]) + 0.25 * w[c], step);
  });
}

TEST_CASE("with_decoupled_weight_decay around adam is AdamW, in float64") {
  compare_with(with_decoupled_weight_decay{plain, 0.5F},
               [a = std::vector<reference_adam>(19)](auto& w, auto const& g, std::int64_t step) mutable {
                 for (std::size_t c = 0; c < 19; ++c) w[c] = a[c].step(w[c] * (1 - 0.03125 * 0.5), as_double(g[c]), step);
               });
}

TEST_CASE("decay by hand: coupled and decoupled") {
  // 1 - 0.5 (2 + 0.25), and 0.5 (1 - 0.5 * 0.25) - 0.5 * 2.
  CHECK(after_one(with_weight_decay{sgd{0.5F}, 0.25F}, {1}, {2}) == std::vector<float>{-0.125F});
  CHECK(after_one(with_decoupled_weight_decay{sgd{0.5F}, 0.25F}, {1}, {2}) == std::vector<float>{-0.125F});
  // Adagrad's first step is as long as the learning rate whatever the gradient: only the decoupled decay shows.
  CHECK(after_one(with_weight_decay{adagrad{.learning_rate = 0.5F, .epsilon = 0}, 0.25F}, {1}, {2}) == std::vector<float>{0.5F});
  CHECK(after_one(with_decoupled_weight_decay{adagrad{.learning_rate = 0.5F, .epsilon = 0}, 0.25F}, {1}, {2}) ==
        std::vector<float>{0.375F});
}

TEST_CASE("with_value_clipping clips each element; NaN stays") {
  auto const moved = after_one(with_value_clipping{sgd{1}, 0.5F}, {0, 0, 0, 0, 0, 0}, {0.25F, -0.25F, 3, -HUGE_VALF, 0.5F, std::nanf("")});
  CHECK(std::vector<float>(moved.begin(), moved.end() - 1) == std::vector<float>{-0.25F, 0.25F, -0.5F, 0.5F, -0.5F});
  CHECK(std::isnan(moved.back()));
}

TEST_CASE("with_row_clipping scales long rows and leaves others bit by bit") {
  auto const clipped = after_one(with_row_clipping{sgd{1}, 2.5F}, {0, 0}, {3, -4});
  CHECK(clipped[0] == doctest::Approx(-1.5).epsilon(1e-6));
  CHECK(clipped[1] == doctest::Approx(2).epsilon(1e-6));
  std::vector<float> const start{0.3F, 0.7F}, gradient{0.1F, -0.2F};
  CHECK(after_one(with_row_clipping{sgd{0.1F}, 1.0F}, start, gradient) == after_one(sgd{0.1F}, start, gradient));
  CHECK(after_one(with_row_clipping{sgd{1}, 5.0F}, {0, 0}, {3, 4}) == std::vector<float>{-3, -4});
  CHECK(after_one(with_row_clipping{sgd{1}, 1.0F}, start, {0, 0}) == start);
}

TEST_CASE("adaptors nest, the outermost first") {
  // Clip 2 to 1, then add 0.5 * 4; or add first, then clip 4 to 1.
  CHECK(after_one(with_value_clipping{with_weight_decay{sgd{1}, 0.5F}, 1.0F}, {4}, {2}) == std::vector<float>{1});
  CHECK(after_one(with_weight_decay{with_value_clipping{sgd{1}, 1.0F}, 0.5F}, {4}, {2}) == std::vector<float>{3});
  CHECK(after_one(with_row_clipping{with_weight_decay{sgd{1}, 0.5F}, 1.0F}, {4}, {2}) == std::vector<float>{1});
  CHECK(after_one(with_weight_decay{with_row_clipping{sgd{1}, 1.0F}, 0.5F}, {4}, {2}) == std::vector<float>{3});
  // Decoupled decay beside coupled, around which the rate is known all the same.
  CHECK(after_one(with_decoupled_weight_decay{with_weight_decay{sgd{0.5F}, 0.5F}, 1.0F}, {4}, {0}) == std::vector<float>{1});
}

TEST_CASE("rates and initial states pass through adaptors") {
  with_weight_decay nested{with_row_clipping{with_decoupled_weight_decay{adagrad{.learning_rate = 2, .initial_state = 3}, 1.0F}, 1.0F},
                           0.0F};
  CHECK(learning_rate_of(nested) == 2);
  CHECK(initial_state_of(nested) == 3);
  set_learning_rate(nested, 0.25F);
  CHECK(nested.optimizer.optimizer.optimizer.learning_rate == 0.25F);
  // The decoupled decay follows the rate.
  with_decoupled_weight_decay decayed{sgd{1}, 0.5F};
  set_learning_rate(decayed, 0.5F);
  CHECK(after_one(decayed, {4}, {0}) == std::vector<float>{3});
}

TEST_CASE("check_optimizer looks through all adaptors") {
  auto const refused = [](auto const& optimizer, char const* option, char const* value) {
    try {
      check_optimizer(optimizer);
      FAIL("taken: ", option);
    } catch (error const& e) {
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.value(option) == value);
    }
  };
  auto const nan = std::nanf("");
  refused(with_weight_decay{sgd{}, -1.0F}, "decay", "-1");
  refused(with_decoupled_weight_decay{sgd{}, nan}, "decay", "nan");
  refused(with_value_clipping{sgd{}, 0.0F}, "limit", "0");
  refused(with_value_clipping{sgd{}, nan}, "limit", "nan");
  refused(with_row_clipping{sgd{}, -2.0F}, "max_norm", "-2");
  refused(with_row_clipping{sgd{}, 0.0F}, "max_norm", "0");
  refused(with_weight_decay{with_value_clipping{adam{.beta2 = 1}, 1.0F}, 0.1F}, "beta2", "1");
  check_optimizer(with_value_clipping{with_row_clipping{with_weight_decay{sgd{}, 0.0F}, HUGE_VALF}, HUGE_VALF});
}
