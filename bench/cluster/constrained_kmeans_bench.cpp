// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// k-means with clusters as even as can be, on one thread: sizes of n / k rounded down to n / k rounded up, 16 dims. Without arguments it says
// what a start and what one assignment take. bench/peers/clustering.py runs it beside the package k-means-constrained:
//   --write FILE N K SEED STARTS   a set of points and starting centres, which k-means++ draws. Odd seeds: N points uniform in a cube; even
//                                  seeds: normal about K centres, of which some have ten times as many as others
//   --run FILE START               clusters from that start; labels go into FILE.labels; prints seconds, iterations and inertia
//   --assign FILE START            one assignment to that start's centres: labels of the least squared distances into FILE.labels; prints its
//                                  seconds, and the least sum of the peer's costs, which are distances times 1000, rounded

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cluster/constrained_kmeans.hpp>
#include <tessera/cluster/min_cost_flow.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>

namespace {

using namespace tessera;

constexpr std::int64_t dims = 16;

// Of the processor, so that a busy machine tells little less than a quiet one.
struct processor_watch {
  std::clock_t start = std::clock();
  double seconds() const { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; }
};

struct point_file {
  std::int64_t n = 0, k = 0, starts = 0;
  std::vector<double> points;   // (n, dims)
  std::vector<double> centres;  // (starts, k, dims)

  matrix_view<double const> view() const { return {points.data(), n, dims}; }
  matrix_view<double const> start(std::int64_t s) const { return {centres.data() + s * k * dims, k, dims}; }
};

class draws {
 public:
  explicit draws(std::uint64_t seed) : seed_(seed) {}
  double uniform() { return detail::uniform_double(philox(seed_, next_++, 0, 0)); }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  random_seed seed_;
  std::uint64_t next_ = 0;
};

point_file make_set(host_exec const& exec, std::int64_t n, std::int64_t k, std::uint64_t seed, std::int64_t starts) {
  draws draw(seed);
  point_file set{n, k, starts, {}, {}};
  std::vector<double> middles(static_cast<std::size_t>(k * dims));
  for (auto& x : middles) x = 4 * draw.uniform();
  for (std::int64_t p = 0; p < n; ++p) {
    auto const crowded = draw.uniform() < 0.75;  // three quarters of the points are in a quarter of the blobs
    auto const blob = static_cast<std::int64_t>(draw.uniform() * static_cast<double>(crowded ? (k + 3) / 4 : k));
    for (std::int64_t j = 0; j < dims; ++j)
      set.points.push_back(seed % 2 == 1 ? draw.uniform() : middles[static_cast<std::size_t>(blob * dims + j)] + draw.normal());
  }
  detail::kmeans_seeding seeding(exec, set.points.data(), n, dims, k);
  set.centres.resize(static_cast<std::size_t>(starts * k * dims));
  for (std::int64_t s = 0; s < starts; ++s) seeding.draw(random_seed(seed), s, set.centres.data() + s * k * dims);
  return set;
}

template <class T>
void write(std::ofstream& out, std::vector<T> const& values) {
  out.write(reinterpret_cast<char const*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}
void write_set(std::string const& path, point_file const& set) {
  std::ofstream out(path, std::ios::binary);
  write(out, std::vector<std::int64_t>{set.n, set.k, set.starts, dims});
  write(out, set.points);
  write(out, set.centres);
  if (!out) throw std::runtime_error("cannot write " + path);
}
point_file read_set(std::string const& path) {
  std::ifstream in(path, std::ios::binary);
  std::int64_t header[4] = {};
  in.read(reinterpret_cast<char*>(header), sizeof header);
  point_file set{header[0], header[1], header[2], {}, {}};
  set.points.resize(static_cast<std::size_t>(set.n * dims));
  set.centres.resize(static_cast<std::size_t>(set.starts * set.k * dims));
  in.read(reinterpret_cast<char*>(set.points.data()), static_cast<std::streamsize>(set.points.size() * sizeof(double)));
  in.read(reinterpret_cast<char*>(set.centres.data()), static_cast<std::streamsize>(set.centres.size() * sizeof(double)));
  if (!in || header[3] != dims) throw std::runtime_error("cannot read " + path);
  return set;
}
void write_labels(std::string const& path, std::vector<std::int32_t> const& labels) {
  std::ofstream out(path + ".labels", std::ios::binary);
  write(out, labels);
}

constrained_kmeans_options even(point_file const& set) {
  constrained_kmeans_options options;
  options.least = set.n / set.k;
  options.most = divide_up(set.n, set.k);
  return options;
}

struct timed_run {
  double seconds;
  kmeans_result result;
};
timed_run run(host_exec const& exec, point_file const& set, std::int64_t start, std::int64_t iterations = 300) {
  auto options = even(set);
  options.kmeans.iterations = iterations;
  processor_watch const watch;
  auto result = constrained_kmeans_from(exec, set.view(), set.start(start), options);
  return {watch.seconds(), std::move(result)};
}

// The optimum in the costs of k-means-constrained.
std::int64_t least_peer_cost(host_exec const& exec, point_file const& set, std::int64_t start) {
  std::vector<std::int64_t> costs;
  for (std::int64_t p = 0; p < set.n; ++p)
    for (std::int64_t c = 0; c < set.k; ++c)
      costs.push_back(
          std::llround(1000 * std::sqrt(detail::squared_distance(set.points.data() + p * dims, set.start(start).row(c), dims))));
  std::vector<size_bounds> const bounds(static_cast<std::size_t>(set.k), {set.n / set.k, divide_up(set.n, set.k)});
  std::vector<std::int64_t> prices(static_cast<std::size_t>(set.k));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(set.n), -1);
  return assign_within_bounds(exec, {costs.data(), set.n, set.k}, bounds, prices, labels).cost;
}

void show_times(host_exec const& exec) {
  bool const smoke = std::getenv("TESSERA_BENCH_SMOKE") != nullptr;
  struct shape {
    std::int64_t n, k;
  };
  for (auto const& s : std::vector<shape>{{1000, 32}, {5000, 50}}) {
    auto const set = make_set(exec, smoke ? s.n / 20 : s.n, smoke ? s.k / 4 : s.k, 2, 3);
    for (std::int64_t start = 0; start < 3; ++start) {
      auto const one = run(exec, set, start, 1), all = run(exec, set, start);
      std::printf("n %lld, k %lld, start %lld: one assignment %.2f ms, %lld iterations %.1f ms, inertia %.6g\n",
                  static_cast<long long>(set.n), static_cast<long long>(set.k), static_cast<long long>(start), 1e3 * one.seconds,
                  static_cast<long long>(all.result.iterations), 1e3 * all.seconds, all.result.inertia);
    }
  }
}

}  // namespace

int main(int count, char** words) {
  serial_team team;
  system_memory memory;
  host_exec const exec(team, memory);
  std::string const mode = count > 1 ? words[1] : "";
  auto const number = [&](int i) { return std::atoll(words[i]); };
  try {
    if (mode == "--write" && count == 7) {
      write_set(words[2], make_set(exec, number(3), number(4), static_cast<std::uint64_t>(number(5)), number(6)));
    } else if (mode == "--run" && count == 4) {
      auto const timed = run(exec, read_set(words[2]), number(3));
      write_labels(words[2], timed.result.labels);
      std::printf("{\"seconds\": %.9g, \"iterations\": %lld, \"inertia\": %.17g}\n", timed.seconds,
                  static_cast<long long>(timed.result.iterations), timed.result.inertia);
    } else if (mode == "--assign" && count == 4) {
      auto const set = read_set(words[2]);
      auto const timed = run(exec, set, number(3), 1);
      write_labels(words[2], timed.result.labels);
      std::printf("{\"seconds\": %.9g, \"peer_cost\": %lld}\n", timed.seconds,
                  static_cast<long long>(least_peer_cost(exec, set, number(3))));
    } else {
      show_times(exec);
    }
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
