// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// Epochs of FAE's RMC2, a DLRM on the columns of Criteo Kaggle, of dim 16: workers train on one host, and ranks of the other hold the tables. First
// with shuffled batches and no hot rows, then with hot rows that swap, R(50), then with hot rows that stay. All steps are timed, all bytes between
// hosts are counted, and the link's rate is measured in the same run. What hot rows could reach follows from these: a hot batch saves its exchange,
// and a swap costs its bytes.
//
//   sudo bench/testbed/hosts.sh up 2 400mbit
//   sudo bench/testbed/hosts.sh run 2 1 build/release/bench/hot_hot_epoch_bench [SAMPLES A WORKER [BATCHES [BUDGET MB [EXPONENT [fp32|fp16 [SHRINK]]]]]]
//   sudo bench/testbed/hosts.sh down 2
//
// Of N ranks, the first half are workers. Without a launcher there is one rank, which does both. Tables have the rows of Criteo Kaggle over SHRINK.
// Ids follow Zipf's law; the exponent and the budget decide how many samples are hot.

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/mpi_session.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/picked_samples.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/hot.hpp>
#include <tessera/local_model.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/synth/zipf.hpp>
#include <tessera/train/any_source.hpp>

#include "../comm/rank_timing.hpp"

namespace {

using namespace tessera_bench;
using tessera::batch_class;

// Rows of the 26 categorical columns of the Criteo Kaggle data, as the public DLRM code finds them.
constexpr std::int64_t criteo_rows[] = {1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
                                        27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};
constexpr std::int64_t numbers = 13, dim = 16;

struct options {
  std::int64_t samples = 1024, batches = 400, budget = 8 << 20, shrink = 16;
  double exponent = 1.24;
  tessera::codec codec = tessera::codec::fp16;
};

std::string column(std::size_t table) { return "C" + std::to_string(table); }

std::vector<tessera::table_spec> make_specs(options const& o) {
  std::vector<tessera::table_spec> specs;
  for (auto const rows : criteo_rows)
    specs.push_back(tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{static_cast<std::int64_t>(specs.size())},
                                                              .dim = dim,
                                                              .rows = std::max<std::int64_t>(rows / o.shrink, 3),
                                                              .init_bound = 0.01F},
                                                             tessera::sgd{.learning_rate = 0.01F}));
  return specs;
}

tessera::memory_log make_log(tessera::host_exec const& exec, options const& o, std::vector<tessera::table_spec> const& specs, int workers) {
  tessera::sample_schema schema{.label = "click"};
  for (std::int64_t n = 0; n < numbers; ++n) schema.dense.push_back("I" + std::to_string(n));
  for (std::size_t t = 0; t < specs.size(); ++t) schema.sparse.push_back(column(t));
  schema.single = schema.sparse;
  tessera::sample_columns log(schema);
  auto const samples = o.samples * workers * o.batches;
  log.resize(exec, samples);
  std::mt19937_64 random(5);
  auto const uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (auto& label : log.labels()) label = uniform() < 0.25 ? 1.0F : 0.0F;
  for (std::int64_t n = 0; n < numbers; ++n)
    for (std::int64_t i = 0; i < samples; ++i) log.dense()(n, i) = static_cast<float>(uniform());
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const rows = specs[t].table.rows;
    tessera::zipf_distribution const law(rows, o.exponent);
    auto const ids = log.single_ids(static_cast<std::int64_t>(t));
    // Frequent rows lie anywhere: this prime divides no number of rows here.
    for (std::int64_t i = 0; i < samples; ++i) ids[i] = law(uniform) * std::int64_t{1'000'003} % rows;
  }
  return tessera::memory_log(schema, std::move(log), o.samples * workers);
}

/// What the first worker tells ranks that hold tables: the class of the next batch, or -1 at the end.
std::int64_t tell(tessera::host_exec const& exec, tessera::any_communicator& comm, int workers, std::int64_t word) {
  if (comm.size() == workers) return word;
  std::vector<tessera::sent_message> send;
  std::vector<tessera::awaited_message> receive;
  tessera::vector_view<std::int64_t const> const own(&word, 1);
  if (comm.rank() == 0)
    for (int r = workers; r < comm.size(); ++r) send.push_back({r, tessera::message_bytes(own)});
  else if (comm.rank() >= workers)
    receive.push_back({0, sizeof word});
  tessera::any_pending pending;
  comm.begin(exec, {send, receive, "what comes next"}, pending);
  auto const arrived = comm.finish(exec, pending);
  if (arrived.size() > 0) std::memcpy(&word, arrived[0].data(), sizeof word);
  return word;
}

/// A rank that holds tables alone joins in a step.
void join_step(tessera::host_exec const& exec, tessera::any_source& source, batch_class kind) {
  if (auto* const hot = source.get_if<tessera::hot_source<tessera::sharded_tables>>()) return hot->join_step(exec, kind);
  std::vector<std::int64_t> const none(static_cast<std::size_t>(source.outputs().size()));
  auto const ids = tessera::keyed_jagged<>::from_lengths(exec, {}, {}, {}, none);
  std::vector<tessera::matrix_view<float>> out;
  for (auto const& output : source.outputs()) out.push_back({nullptr, 0, output.width});
  std::vector<tessera::matrix_view<float const>> const gradients(out.begin(), out.end());
  tessera::batch_view batch;
  batch.dense = {nullptr, 0, 0};
  batch.sparse = ids.view();
  tessera::any_source_saved saved;
  source.begin(exec, batch, saved);
  source.finish(exec, saved, out);
  source.begin_backward(exec, saved, gradients, {});
  source.finish_backward(exec, saved);
}

/// What an epoch took: seconds of the first worker, bytes of all ranks between hosts.
struct epoch {
  double seconds = 0;
  std::int64_t hot = 0, cold = 0;  // batches, of which so many began a run
  std::int64_t runs = 0;
  double hot_seconds = 0, cold_seconds = 0;  // of batches that did not begin a run
  std::int64_t steady_hot = 0, steady_cold = 0;
  double run_seconds = 0;  // of those that did
  std::int64_t bytes = 0, swap_bytes = 0, moved_rows = 0;

  double steady(bool is_hot) const {
    auto const n = is_hot ? steady_hot : steady_cold;
    return n == 0 ? 0 : (is_hot ? hot_seconds : cold_seconds) / static_cast<double>(n);
  }
};

enum class way { shuffled, swap, stay };

class bench {
 public:
  bench(MPI_Comm world, options const& o)
      : world_(world),
        o_(o),
        mpi_(world),
        workers_(mpi_.size() == 1 ? 1 : mpi_.size() / 2),
        trains_(mpi_.rank() < workers_),
        specs_(make_specs(o)),
        log_(make_log(exec_, o, specs_, workers_)) {
    for (std::size_t t = 0; t < specs_.size(); ++t) features_.push_back({.name = column(t), .table = static_cast<std::int64_t>(t)});
    auto const holders = mpi_.size() == workers_ ? workers_ : mpi_.size() - workers_;
    plan_ = tessera::plan_by_bytes(specs_, holders);
    for (auto& shard : plan_.shards) shard.rank += mpi_.size() - holders;
    // A log this short is profiled whole: a twentieth of it would show few of the rows.
    tessera::sample_reader sample(exec_, log_, {.batch_size = 4096});
    tessera::sample_reader all(exec_, log_, {.batch_size = 4096});
    tessera::stopwatch watch;
    profile_ = tessera::profile_accesses(exec_, sample, features_, specs_);
    auto const hot = choose();
    auto const choosing = watch.lap();
    classes_ = tessera::classify_samples(exec_, all, features_, hot);
    if (mpi_.rank() == 0)
      std::printf(
          "%lld samples in %lld batches, %.1f MB of hot rows, %.1f %% of the samples are hot; profile and choice %.2f s, classes %.2f s\n",
          static_cast<long long>(log_.rows()), static_cast<long long>(o_.batches), static_cast<double>(hot.row_bytes(specs_)) / 1e6,
          100 * static_cast<double>(classes_.hot()) / static_cast<double>(classes_.size()), choosing, watch.lap());
  }

  bool is_first() const { return mpi_.rank() == 0; }
  int workers() const { return workers_; }

  /// Bytes a second from the first worker's host to the other.
  double link_rate() {
    constexpr std::int64_t bytes = 8 << 20;
    if (mpi_.size() == 1) return 0;
    std::vector<std::byte> message(static_cast<std::size_t>(bytes));
    tessera::any_communicator comm = mpi_;
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i) {
      std::vector<tessera::sent_message> send;
      std::vector<tessera::awaited_message> receive;
      if (mpi_.rank() == 0) send.push_back({workers_, tessera::vector_view<std::byte const>(message)});
      if (mpi_.rank() == workers_) receive.push_back({0, bytes});
      seconds.push_back(slowest_seconds(world_, [&] {
        tessera::any_pending pending;
        comm.begin(exec_, {send, receive, "rate of the link"}, pending);
        comm.finish(exec_, pending);
      }));
    }
    return static_cast<double>(bytes) / median(seconds);
  }

  /// An epoch, after the first steps of another one.
  epoch run(way how) {
    tessera::sent_counts sent;
    tessera::any_communicator comm = tessera::counting_communicator<tessera::mpi_communicator>(mpi_, sent);
    auto split = comm.split(exec_, trains_ ? 1 : 0, 0);
    std::optional<tessera::any_communicator> workers;
    if (trains_) workers = split;
    tessera::exchange_codecs const codecs{o_.codec, o_.codec};
    tessera::sharded_tables tables(exec_, comm, specs_, features_, plan_, {.codecs = codecs});
    auto source = [&]() -> tessera::any_source {
      if (how == way::shuffled) return std::move(tables);
      return tessera::hot_source<tessera::sharded_tables>(
          exec_, std::move(tables), specs_, choose(),
          {.workers = workers, .moves = how == way::swap ? tessera::hot_row_moves::swap : tessera::hot_row_moves::stay, .codecs = codecs});
    }();
    tessera::any_communicator words = mpi_;
    if (!trains_) {
      for (;;) {
        auto const word = tell(exec_, words, workers_, 0);
        if (word < 0) break;
        if (word == counts_begin) {
          sent.clear();
          MPI_Barrier(world_);
        } else {
          join_step(exec_, source, static_cast<batch_class>(word));
        }
      }
      return gathered({}, sent);
    }
    tessera::dlrm<tessera::any_source, tessera::eigen_gemm> model(
        exec_, {.dense_features = numbers, .bottom_hidden = {512, 256, 64}, .top_hidden = {512, 256}, .seed = tessera::random_seed{1}},
        std::move(source));
    tessera::trainer trainer(exec_, model, tessera::sgd{.learning_rate = 0.01F}, {.comm = workers});
    auto const of_class = [&](batch_class kind) { return tessera::picked_samples(log_, classes_, kind); };
    auto const hot_log = of_class(batch_class::hot), cold_log = of_class(batch_class::cold);
    tessera::sample_reader_options const options{
        .batch_size = o_.samples * workers_, .order = tessera::sample_order::samples, .slice = {.rank = mpi_.rank(), .ranks = workers_}};
    auto const train = [&](auto& batches, std::int64_t most, epoch* result) {
      auto last = batch_class::mixed;
      std::int64_t steps = 0;
      for (tessera::batch_view batch; steps < most && batches.next(exec_, batch); ++steps) {
        tessera::stopwatch watch;
        tell(exec_, words, workers_, static_cast<std::int64_t>(batch.kind));
        trainer.step(step_exec_, batch);
        auto const seconds = watch.lap();
        if (result == nullptr) continue;
        result->seconds += seconds;
        bool const is_hot = batch.kind == batch_class::hot, begins = how == way::swap && batch.kind != last;
        ++(is_hot ? result->hot : result->cold);
        if (begins) {
          ++result->runs;
          result->run_seconds += seconds;
        } else {
          ++(is_hot ? result->steady_hot : result->steady_cold);
          (is_hot ? result->hot_seconds : result->cold_seconds) += seconds;
        }
        last = batch.kind;
      }
    };
    epoch result;
    auto const both = [&](auto& warm, auto& batches) {
      train(warm, 4, nullptr);
      tell(exec_, words, workers_, counts_begin);
      sent.clear();
      MPI_Barrier(world_);
      train(batches, log_.rows(), &result);
      tell(exec_, words, workers_, -1);
    };
    if (how == way::shuffled) {
      tessera::sample_reader warm(exec_, log_, options), batches(exec_, log_, options);
      both(warm, batches);
    } else {
      tessera::sample_reader hots(exec_, hot_log, options), colds(exec_, cold_log, options), warm(exec_, cold_log, options);
      tessera::class_reader batches(hots, colds, tessera::fixed_schedule(50));
      both(warm, batches);
      if (auto* const hot = model.source().template get_if<tessera::hot_source<tessera::sharded_tables>>())
        result.moved_rows = hot->moved_rows();
    }
    return gathered(result, sent);
  }

 private:
  static constexpr std::int64_t counts_begin = 100;

  tessera::hot_rows choose() const {
    return tessera::choose_hot_rows(exec_, profile_, specs_, {.budget_bytes = o_.budget, .small_table_bytes = (1 << 20) / o_.shrink});
  }
  bool is_elsewhere(int rank) const { return (rank < workers_) != trains_; }
  epoch gathered(epoch result, tessera::sent_counts const& sent) const {
    tessera::sent_counts swaps;
    for (auto const& of : sent)
      if (of.first.starts_with("row_mover") || of.first.starts_with("hot_source")) swaps.insert(of);
    auto const bytes = [&](tessera::sent_counts const& counts) {
      auto const own = tessera::sent_to(counts, [&](int to) { return is_elsewhere(to); }).bytes;
      return static_cast<std::int64_t>(sum_of_ranks(world_, static_cast<double>(own)));
    };
    result.bytes = bytes(sent);
    result.swap_bytes = bytes(swaps);
    return result;
  }

  MPI_Comm world_;
  options o_;
  tessera::mpi_communicator mpi_;
  int workers_;
  bool trains_;
  tessera::serial_team team_;
  tessera::system_memory memory_;
  tessera::arena<tessera::system_memory> arena_{memory_};
  tessera::host_exec exec_{team_, memory_}, step_exec_{team_, arena_};
  std::vector<tessera::table_spec> specs_;
  std::vector<tessera::table_feature> features_;
  tessera::sharding_plan plan_;
  tessera::memory_log log_;
  tessera::access_profile profile_;
  tessera::sample_classes classes_;
};

}  // namespace

int main(int argc, char** argv) {
  tessera::mpi_session mpi(argc, argv);
  options o;
  bool const is_smoke = argc > 1 && argv[1][0] == '-';  // Google Benchmark's options
  auto const number = [&](int at, std::int64_t usual) { return argc > at ? std::max<std::int64_t>(std::atoll(argv[at]), 1) : usual; };
  if (is_smoke) {
    o.samples = 16;
    o.batches = 8;
    o.shrink = 1000;
    o.budget = 1 << 20;
  } else {
    o.samples = number(1, o.samples);
    o.batches = number(2, o.batches);
    o.budget = number(3, 8) << 20;
    if (argc > 4) o.exponent = std::atof(argv[4]);
    if (argc > 5 && std::string_view(argv[5]) == "fp32") o.codec = tessera::codec::fp32;
    o.shrink = number(6, o.shrink);
  }
  bench all(mpi.world(), o);
  auto const rate = all.link_rate();
  auto const shuffled = all.run(way::shuffled), swap = all.run(way::swap), stay = all.run(way::stay);
  if (!all.is_first()) return 0;
  auto const per = [](double whole, std::int64_t n) { return n == 0 ? 0 : whole / static_cast<double>(n); };
  std::printf("%d workers, %lld samples each, the link %.1f MB/s one way\n", all.workers(), static_cast<long long>(o.samples), rate / 1e6);
  std::printf("%-9s %9s %9s %9s %9s %11s %12s %10s %11s\n", "", "epoch s", "batches", "cold ms", "hot ms", "first ms", "MB a batch",
              "MB swaps", "rows moved");
  auto const print = [&](char const* name, epoch const& e) {
    std::printf("%-9s %9.2f %9lld %9.1f %9.1f %11.1f %12.3f %10.2f %11lld\n", name, e.seconds, static_cast<long long>(e.hot + e.cold),
                1e3 * e.steady(false), 1e3 * e.steady(true), 1e3 * per(e.run_seconds, e.runs),
                per(static_cast<double>(e.bytes - e.swap_bytes), e.hot + e.cold) / 1e6, static_cast<double>(e.swap_bytes) / 1e6,
                static_cast<long long>(e.moved_rows));
  };
  print("shuffled", shuffled);
  print("swap", swap);
  print("stay", stay);
  if (rate == 0) return 0;
  // A batch without its exchange, and an epoch of hot batches without theirs and of swaps.
  auto const bytes_of_batch = per(static_cast<double>(shuffled.bytes), shuffled.cold + shuffled.hot);
  auto const step = shuffled.steady(false), without = step - bytes_of_batch / rate;
  auto const bound = [&](epoch const& e) {
    auto const batches = static_cast<double>(e.hot + e.cold);
    return batches * without + static_cast<double>(e.bytes) / rate;
  };
  for (auto const& [name, e] : {std::pair("swap", swap), {"stay", stay}})
    std::printf("%s: %.2f times as fast as shuffled; by its bytes at most %.2f, so %.2f of that; %.2f of the bytes\n", name,
                shuffled.seconds / e.seconds, shuffled.seconds / bound(e), bound(e) / e.seconds,
                static_cast<double>(e.bytes) / static_cast<double>(shuffled.bytes));
}
