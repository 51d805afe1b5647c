// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-target: tessera::mpi

// Measures messages between the ranks of MPI's launcher, fits what a message and a byte cost at each level of a topology, and writes that as
// a link model. Sizes that were not fitted are printed as predicted beside as measured.
//
//   mpirun -n 8 --hostfile hosts fit_links --out links.json

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/link_model.hpp>
#include <tessera/comm/link_model_file.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/topology_file.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>

namespace {

using comm_type = tessera::mpi_communicator;

struct settings {
  std::string out, topology, messages = "all";
  std::int64_t least = 1024, most = 1 << 20;
  int rounds = 9;
};

/// Messages between ranks that share a level and none further in: which ranks send to which at once.
class link_meter {
 public:
  link_meter(tessera::host_exec const& exec, comm_type& comm, tessera::topology const& ranks) : exec_(exec), comm_(comm), ranks_(ranks) {}

  /// The ranks that a rank shares the level with. Where ranks share the innermost with nobody, each does with itself.
  std::vector<int> peers(int rank, std::int64_t level) const {
    std::vector<int> found;
    for (int other = 0; other < comm_.size(); ++other)
      if (other != rank && ranks_.shared_level(rank, other) == level) found.push_back(other);
    if (level == 0 && !has_pair(0)) found.push_back(rank);
    return found;
  }
  bool has_pair(std::int64_t level) const { return first_pair(level).has_value(); }

  /// Seconds of a message that a rank sends while no other does, half of what it takes there and back: the median of some rounds. The first
  /// two ranks of the level send it. All ranks call this, as what follows.
  double alone(std::int64_t level, std::int64_t bytes, int rounds) {
    auto const pair = first_pair(level).value_or(std::pair(0, 0));
    auto const own = comm_.rank();
    if (pair.first == pair.second) return at_once(level, bytes, rounds);
    return median(rounds, bytes,
                  [&] {
                    if (own == pair.first) {
                      send({pair.second}, bytes);
                      receive(pair.second, bytes);
                    } else if (own == pair.second) {
                      receive(pair.first, bytes);
                      send({pair.first}, bytes);
                    }
                  }) /
           2;
  }

  /// Seconds a message while each rank exchanges messages with all others of its level: what the slowest takes, by as many as the most that
  /// a rank sends.
  double at_once(std::int64_t level, std::int64_t bytes, int rounds) {
    std::size_t most = 1;
    for (int r = 0; r < comm_.size(); ++r) most = std::max(most, peers(r, level).size());
    auto const others = peers(comm_.rank(), level);
    return median(rounds, bytes, [&] { exchange(others, others, bytes); }) / static_cast<double>(most);
  }

 private:
  std::optional<std::pair<int, int>> first_pair(std::int64_t level) const {
    for (int a = 0; a < comm_.size(); ++a)
      for (int b = a + 1; b < comm_.size(); ++b)
        if (ranks_.shared_level(a, b) == level) return std::pair(a, b);
    return std::nullopt;
  }

  void send(std::vector<int> const& to, std::int64_t bytes) { exchange(to, {}, bytes); }
  void receive(int from, std::int64_t bytes) { exchange({}, {from}, bytes); }
  void exchange(std::vector<int> const& to, std::vector<int> const& from, std::int64_t bytes) {
    if (to.empty() && from.empty()) return;
    if (static_cast<std::int64_t>(memory_.size()) < bytes) memory_.resize(static_cast<std::size_t>(bytes));
    std::vector<tessera::sent_message> sent;
    std::vector<tessera::awaited_message> awaited;
    for (int const rank : to) sent.push_back({rank, {memory_.data(), bytes}});
    for (int const rank : from) awaited.push_back({rank, bytes});
    comm_.begin(exec_, {sent, awaited, "fit_links: a message"}, pending_);
    comm_.finish(exec_, pending_);
  }

  /// Seconds of f on the slowest rank. Short ones are repeated, so that the clock and who begins first do not matter. Round 0 does not count: memory is new
  /// in it.
  template <class F>
  double median(int rounds, std::int64_t bytes, F const& f) {
    auto const repeats = static_cast<int>(std::clamp<std::int64_t>((1 << 18) / std::max<std::int64_t>(bytes, 1), 1, 64));
    std::vector<double> times;
    for (int round = 0; round <= rounds; ++round) {
      tessera::barrier(exec_, comm_);
      tessera::stopwatch watch;
      for (int i = 0; i < repeats; ++i) f();
      double const own = watch.lap() / repeats;
      double slowest = 0;
      for (auto const& of_rank : tessera::all_gather<double>(exec_, comm_, {&own, 1}, times_)) slowest = std::max(slowest, of_rank[0]);
      if (round > 0) times.push_back(slowest);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  }

  tessera::host_exec exec_;
  comm_type& comm_;
  tessera::topology const& ranks_;
  std::vector<std::byte> memory_;
  tessera::mpi_pending pending_, times_;
};

/// What was measured, by whether messages were alone or at once: every other size is fitted, those between are predicted.
struct measurements {
  std::vector<tessera::link_sample> fitted, held_out;
};

measurements measure(link_meter& meter, std::int64_t level, settings const& s, bool at_once) {
  measurements all;
  bool is_fitted = true;
  for (auto bytes = s.least; bytes <= s.most; bytes *= 2, is_fitted = !is_fitted) {
    auto const seconds = at_once ? meter.at_once(level, bytes, s.rounds) : meter.alone(level, bytes, s.rounds);
    (is_fitted ? all.fitted : all.held_out).push_back({level, bytes, seconds});
  }
  return all;
}

void print(tessera::link_model const& model, std::int64_t level, measurements const& of, char const* how) {
  auto const& link = model.links[static_cast<std::size_t>(level)];
  double squares = 0;
  for (auto const& sample : of.held_out) {
    auto const predicted = model.predict(sample.bytes, level), off = predicted / sample.seconds - 1;
    squares += off * off;
    std::printf("%-10s %-8s %9lld bytes: measured %11.2f us, predicted %11.2f us, %+4.0f %%\n", link.level.c_str(), how,
                static_cast<long long>(sample.bytes), 1e6 * sample.seconds, 1e6 * predicted, 100 * off);
  }
  std::printf("%-10s %-8s %.3g us a message, %.3g ns a byte; off by %.0f %% where fitted, %.0f %% where held out\n", link.level.c_str(),
              how, 1e6 * link.seconds_per_message, 1e9 * link.seconds_per_byte, 100 * link.relative_error,
              100 * std::sqrt(squares / static_cast<double>(of.held_out.size())));
}

void fit(tessera::host_exec const& exec, comm_type& comm, settings const& s) {
  std::exception_ptr failure;
  std::optional<tessera::topology> ranks;
  try {
    if (!s.topology.empty()) {
      ranks = tessera::read_topology(s.topology);
      tessera::check_topology(*ranks, comm.size());
    }
  } catch (std::exception const&) {
    failure = std::current_exception();
  }
  tessera::check_same_text(exec, comm, ranks ? tessera::topology_json(*ranks).dump() : "the hosts", "fit_links: the topology", failure);
  if (!ranks) ranks = tessera::detect_topology(exec, comm);
  bool const shows = comm.rank() == 0;
  std::vector<std::string> names;
  for (std::int64_t l = 0; l < ranks->levels(); ++l) names.push_back(ranks->name(l));
  if (ranks->levels() == 0 || ranks->domains(ranks->levels() - 1) > 1) names.emplace_back("network");
  if (shows) std::printf("%d ranks; medians of %d rounds, of messages at once and alone\n", comm.size(), s.rounds);

  link_meter meter(exec, comm, *ranks);
  std::map<std::string, tessera::link_model> models;
  for (std::size_t l = 0; l < names.size(); ++l) {
    auto const level = static_cast<std::int64_t>(l);
    if (level > 0 && !meter.has_pair(level)) {
      if (shows) std::printf("%-10s no two ranks share it and none further in: the costs of %s\n", names[l].c_str(), names[l - 1].c_str());
      for (auto& [how, model] : models) {
        model.links.push_back(model.links.back());
        model.links.back().level = names[l];
      }
      continue;
    }
    for (bool const at_once : {true, false}) {
      char const* const how = at_once ? "all" : "pair";
      auto of = measure(meter, level, s, at_once);
      auto& model = models[how];
      for (auto& sample : of.fitted) sample.level = 0;
      model.links.push_back(tessera::fit_link_model({names[l]}, of.fitted).links[0]);
      if (shows) print(model, level, of, how);
    }
  }
  try {
    if (shows) tessera::write_link_model(s.out, models[s.messages]);
  } catch (std::exception const&) {
    failure = std::current_exception();
  }
  tessera::barrier(exec, comm, "fit_links: writing", failure);
}

/// Fails on all ranks where it does on one.
void run(comm_type& comm, settings const& s) {
  tessera::serial_team team;
  tessera::system_memory memory;
  try {
    fit(tessera::host_exec(team, memory), comm, s);
  } catch (std::exception const& e) {
    comm.fail(e.what());
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures messages between ranks and fits what they cost at each level of a topology.", "fit_links");
  settings s;
  app.add_option("--out", s.out, "The link model to write")->required()->type_name("FILE.json");
  app.add_option("--topology", s.topology, "Levels and their domains, as docs/ranks.md has them; else the hosts, as they name themselves")
      ->type_name("FILE.json");
  app.add_option(
         "--messages", s.messages,
         "Which the model is of: all, of all ranks of a level at once, as an exchange sends them; pair, of two ranks while others wait")
      ->check(CLI::IsMember({"all", "pair"}))
      ->capture_default_str();
  app.add_option("--least", s.least, "Bytes of the smallest message")->check(CLI::Range(1, 1 << 28))->capture_default_str();
  app.add_option("--most", s.most, "Bytes of the largest; sizes double, and every other one is held out")
      ->check(CLI::Range(8, 1 << 30))
      ->capture_default_str();
  app.add_option("--rounds", s.rounds, "Times that each is measured")->check(CLI::Range(1, 1000))->capture_default_str();
  try {
    app.parse(argc, argv);
    if (s.most / 4 < s.least) throw CLI::ValidationError("--most", "at least four times --least");
    tessera::mpi_session mpi(argc, argv);
    comm_type comm(mpi.world());
    run(comm, s);
    return 0;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "fit_links: %s\n", e.what());
    return 1;
  }
}
