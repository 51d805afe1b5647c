// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Times steps of features with and without a group, fits to them the costs by which `recommend_groups` decides, and prints those: a
// `dedupe_costs` of this machine. Then it times other steps, near the line between worth it and not among them, and prints what they save
// beside what is predicted for them. A step copies a batch from columns, looks up, pools by sum, and updates rows by SGD, on one thread.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../inputs.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t samples = 2048, table_rows = 100'000;
constexpr double samples_per_session = 16.5;

struct shape {
  std::int64_t features, length, dim;  // length: of lists in the mean
  double factor;                       // how many times fewer ids in distinct lists
};

/// Lists in the order of sessions; all features of the shape change together.
struct columns {
  columns(shape const& s, std::uint64_t seed) : values(static_cast<std::size_t>(s.features)), offsets(values.size()) {
    draws draw(seed);
    auto const stays = (1 - 1 / s.factor) * samples_per_session / (samples_per_session - 1);
    std::vector<std::vector<std::int64_t>> list(values.size());
    for (auto& of : offsets) of.push_back(0);
    for (std::int64_t i = 0; i < samples; ++i) {
      bool const is_new = i == 0 || draw.unit() < 1 / samples_per_session;
      sessions.push_back(is_new ? i : sessions.back());
      bool const changes = is_new || draw.unit() >= stays;
      for (std::size_t f = 0; f < list.size(); ++f) {
        if (changes) {
          list[f].resize(static_cast<std::size_t>(1 + draw.below(2 * s.length - 1)));
          for (auto& id : list[f]) id = draw.below(table_rows);
        }
        values[f].insert(values[f].end(), list[f].begin(), list[f].end());
        offsets[f].push_back(static_cast<std::int64_t>(values[f].size()));
      }
    }
  }

  std::vector<tessera::jagged_view<std::int64_t const>> views() const {
    std::vector<tessera::jagged_view<std::int64_t const>> result;
    for (std::size_t f = 0; f < values.size(); ++f) result.push_back({values[f].data(), offsets[f].data(), samples});
    return result;
  }

  std::vector<std::vector<std::int64_t>> values, offsets;
  std::vector<std::int64_t> sessions;
};

/// Seconds that this thread has worked: neighbours count less in them than in those of a clock.
double worked_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Nanoseconds a sample.
struct timing {
  double plain, grouped;
  double saving() const { return 1 - grouped / plain; }
};

class steps {
 public:
  explicit steps(shape const& s) : shape_(s), host_(1) {
    vectors_.resize(static_cast<std::size_t>(s.features * samples * s.dim), 0.01F);
    gradients_ = vectors_;
    for (std::int64_t f = 0; f < s.features; ++f) {
      tables_.emplace_back(host_.exec,
                           tessera::table_options{.id = tessera::table_id{f}, .dim = s.dim, .rows = table_rows, .init_bound = 0.1F}, sgd_);
      features_.push_back({.table = f});
      out_.emplace_back(vectors_.data() + f * samples * s.dim, samples, s.dim);
      of_out_.emplace_back(gradients_.data() + f * samples * s.dim, samples, s.dim);
    }
    for (std::uint64_t b = 0; b < 4; ++b) batches_.emplace_back(s, b);
  }

  /// The fastest of several rounds over all batches, with and without by turns.
  timing fastest() {
    std::vector<std::int64_t> const none, one{shape_.features};
    timing best{1e300, 1e300};
    auto const ids = 4 * samples * shape_.features * (shape_.length + 2);
    auto const rounds = std::clamp<std::int64_t>(40'000'000 / ids, 8, 100);
    for (std::int64_t round = 0; round < rounds; ++round) {
      best.plain = std::min(best.plain, round_of(none));
      best.grouped = std::min(best.grouped, round_of(one));
    }
    return best;
  }

  /// What is predicted of the first batch.
  tessera::dedupe_reason predicted(tessera::dedupe_costs const& costs) const {
    tessera::recommend_groups_options options;
    options.samples_per_session = samples_per_session;
    options.least_saving = -1e9;
    options.dim = static_cast<double>(shape_.dim);
    options.costs = costs;
    auto const views = batches_[0].views();
    return tessera::recommend_groups(host_.exec, views, batches_[0].sessions, options).features[0];
  }

 private:
  double round_of(std::vector<std::int64_t> const& groups) {
    auto const start = worked_seconds();
    for (auto const& batch : batches_) {
      auto const views = batch.views();
      auto const made =
          tessera::deduplicate(host_.step, tessera::vector_view<tessera::jagged_view<std::int64_t const> const>(views), groups);
      tessera::deduplicated_lookup(host_.step, tables_, features_, made.view(), out_, saved_);
      tessera::deduplicated_lookup_backward(host_.step, tables_, features_, saved_, of_out_, sgd_);
    }
    return 1e9 * (worked_seconds() - start) / static_cast<double>(samples * static_cast<std::int64_t>(batches_.size()));
  }

  shape shape_;
  machine host_;
  tessera::sgd sgd_{.learning_rate = 1e-3F};
  std::vector<tessera::dense_table<>> tables_;
  std::vector<tessera::pooled_feature> features_;
  std::vector<float> vectors_, gradients_;
  std::vector<tessera::matrix_view<float>> out_;
  std::vector<tessera::matrix_view<float const>> of_out_;
  std::vector<columns> batches_;
  tessera::deduplicated_saved saved_;
};

constexpr std::size_t unknowns = 8;
using coefficients = std::array<double, unknowns>;

/// Least squares of relative errors, no cost below zero: each cost in turn is set to its best with the others held.
class fit {
 public:
  void add(coefficients const& of, double ns, double weight) {
    for (std::size_t i = 0; i < unknowns; ++i) {
      right_[i] += of[i] * ns * weight * weight;
      for (std::size_t j = 0; j < unknowns; ++j) left_[i][j] += of[i] * of[j] * weight * weight;
    }
  }
  coefficients solve() const {
    coefficients x{};
    for (int round = 0; round < 100'000; ++round)
      for (std::size_t i = 0; i < unknowns; ++i) {
        double rest = right_[i];
        for (std::size_t j = 0; j < unknowns; ++j) rest -= j == i ? 0 : left_[i][j] * x[j];
        x[i] = std::max(0.0, rest / left_[i][i]);
      }
    return x;
  }

 private:
  std::array<coefficients, unknowns> left_{};
  coefficients right_{};
};

void print_header() {
  std::printf("%8s %6s %4s %6s | %10s %10s | %8s %8s\n", "features", "length", "dim", "factor", "plain, ns", "grouped", "saves %",
              "said %");
}
void print(shape const& s, timing const& t, double said) {
  std::printf("%8lld %6lld %4lld %6.2f | %10.1f %10.1f | %8.1f %8.1f\n", static_cast<long long>(s.features),
              static_cast<long long>(s.length), static_cast<long long>(s.dim), s.factor, t.plain, t.grouped, 100 * t.saving(), 100 * said);
  std::fflush(stdout);
}

}  // namespace

int main() {
  std::vector<std::pair<shape, timing>> timed;
  fit costs;
  for (std::int64_t const features : {1, 4})
    for (std::int64_t const length : {1, 3, 12, 50})
      for (std::int64_t const dim : {16, 64})
        for (double const factor : {1.0, 1.9, 5.0}) {
          shape const s{features, length, dim, factor};
          auto const t = steps(s).fastest();
          timed.emplace_back(s, t);
          auto const keys = static_cast<double>(features), ids = keys * static_cast<double>(length), floats = static_cast<double>(dim),
                     gone = 1 - 1 / factor;
          costs.add({keys, ids, ids * floats, (1 - gone) * ids * floats, 0, 0, 0, 0}, t.plain, 1 / t.plain);
          // Twice the weight: the sign of this decides.
          costs.add({gone * keys, gone * ids, gone * ids * floats, 0, -1, -ids, -keys, -keys * floats}, t.plain - t.grouped, 2 / t.plain);
        }
  auto const x = costs.solve();
  tessera::dedupe_costs const found{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
  std::printf(
      "{.lookup_ns_per_list = %.3g, .lookup_ns_per_id = %.3g, .lookup_ns_per_float = %.3g, .memory_ns_per_float = %.3g,\n"
      " .dedupe_ns_per_sample = %.3g, .dedupe_ns_per_id = %.3g, .expand_ns_per_list = %.3g, .expand_ns_per_float = %.3g}\n\nFitted to:\n",
      x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
  print_header();
  for (auto const& [s, t] : timed) print(s, t, steps(s).predicted(found).saving);
  std::printf("\nNot fitted to:\n");
  print_header();
  for (auto const& s : {shape{1, 1, 16, 1.9},
                        {1, 1, 16, 3},
                        {1, 1, 16, 8},
                        {2, 2, 16, 1.5},
                        {2, 2, 32, 3},
                        {1, 5, 16, 1.2},
                        {1, 5, 16, 1.5},
                        {1, 20, 16, 1.05},
                        {1, 20, 16, 1.3},
                        {3, 30, 128, 1.1},
                        {3, 30, 128, 2.5},
                        {1, 50, 16, 5}}) {
    steps of(s);
    print(s, of.fastest(), of.predicted(found).saving);
  }
}
