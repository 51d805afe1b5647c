// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/tensor/deduplicate.hpp>

#include "embed_support.hpp"
#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

/// What every embedding source does. A model of the concept is tested by a `Maker`:
///
///     struct maker {
///       using source_type = …;
///       static source_type make(execution_type const&, source_problem const&);   // float rows that start as `initial_row` says, each table with sgd
///       static constexpr bool refuses_ids;                                       // of tables with fewer rows
///       static void change(source_problem&);                                     // if there: what is other in the problem
///       static constexpr tessera::shared_gradients sums;                         // if there: the one kind that it knows
///     };
///
/// A source that owns parameters has some with which it gives each feature's vectors as they are, in outputs of the features' keys.
///
/// All that is known of a source is what it gives, so rows are read by `predict`. Of a source on a device, batches lie there, and what kernels
/// find wrong is told when it is waited for; none pools by maximum there.
namespace embed_tests {

inline constexpr std::int64_t source_ids = 40;

/// Tables and what is made of a batch's keys.
struct source_problem {
  std::vector<tessera::table_options> tables;
  std::vector<float> rates;
  std::vector<tessera::table_feature> features;
  tessera::shared_gradients sums = tessera::shared_gradients::merged;
  std::int64_t ids = source_ids;  ///< whose rows `all_rows` reads
};

/// Calls f with an execution to test sources of: a header for a device adds its own.
template <class Exec>
struct with_execution;
template <>
struct with_execution<tessera::host_exec> {
  template <class F>
  static void run(std::mt19937_64&, F const& f) {
    tessera_tests::pool_host<2> host;
    f(host.exec());
  }
};

inline source_problem usual_problem(tessera::shared_gradients sums = tessera::shared_gradients::merged) {
  using tessera::pooling;
  source_problem problem;
  problem.sums = sums;
  for (std::int64_t const dim : {5, 16, 3, 130, 16})
    problem.tables.push_back({.id = tessera::table_id{20 + static_cast<std::int64_t>(problem.tables.size())},
                              .dim = dim,
                              .rows = source_ids,
                              .init_bound = 0.5F,
                              .seed = tessera::random_seed{4}});
  problem.rates = {0.5F, 0.25F, 1, 0.125F, 0.5F};
  // In two groups where there are any, of keys [0, 3) and [3, 4); tables 0 and 1 are read twice, pooled and as sequences.
  problem.features = {{.name = "a", .table = 0},
                      {.name = "b", .table = 1, .sequence = true},
                      {.name = "c", .table = 2, .pooling = pooling::max},
                      {.name = "d", .table = 0, .sequence = true},
                      {.name = "e", .table = 1, .pooling = pooling::mean},
                      {.name = "f", .table = 3, .sequence = true},
                      {.name = "g", .table = 4}};
  return problem;
}

using source_rows = std::vector<std::vector<std::vector<std::int64_t>>>;  // [key][sample] -> ids

/// That which such sources can have.
template <class Maker>
source_problem problem_of(tessera::shared_gradients sums = tessera::shared_gradients::merged) {
  auto problem = usual_problem(sums);
  if (tessera::device_execution<typename Maker::source_type::execution_type>) problem.features[2].pooling = tessera::pooling::sum;
  if constexpr (requires { Maker::change(problem); }) Maker::change(problem);
  return problem;
}

/// The kinds of sums that they know.
template <class Maker>
std::vector<tessera::shared_gradients> sums_of() {
  if constexpr (requires { Maker::sums; }) return {Maker::sums};
  return {tessera::shared_gradients::merged, tessera::shared_gradients::expanded};
}

/// Keys [0, 4) often repeat the row of an earlier sample, all of a group together.
inline source_rows draw_rows_of_keys(std::mt19937_64& random, std::size_t samples, std::size_t keys) {
  source_rows rows(keys, std::vector<std::vector<std::int64_t>>(samples));
  for (std::size_t i = 0; i < samples; ++i) {
    std::size_t const earlier[] = {i == 0 ? 0 : random() % i, i == 0 ? 0 : random() % i};
    bool const repeats[] = {i > 0 && random() % 2 == 0, i > 0 && random() % 2 == 0};
    for (std::size_t key = 0; key < rows.size(); ++key) {
      std::size_t const group = key < 3 ? 0 : 1;
      rows[key][i] = key < 4 && repeats[group] ? rows[key][earlier[group]]
                                               : tessera_tests::random_integers<std::int64_t>(random, random() % 5, 0, source_ids - 1);
    }
  }
  return rows;
}
/// Of the usual problem's keys.
inline source_rows draw_source_rows(std::mt19937_64& random, std::size_t samples) { return draw_rows_of_keys(random, samples, 7); }

/// Numbers of the host where an execution has its memory.
template <class T, class Exec>
tessera::buffer<T, Exec> put_where(Exec const& exec, std::vector<T> const& values) {
  if constexpr (tessera::device_execution<Exec>) {
    return tessera::to_device(exec, values);
  } else {
    tessera::buffer<T> result(exec, static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), result.begin());
    return result;
  }
}
/// Throws what kernels found wrong.
template <class Exec>
void wait_for(Exec const& exec) {
  if constexpr (tessera::device_execution<Exec>) exec.synchronize();
}

/// Blocks of vectors on the host, and where a source reads or writes them: the same memory, where it is the host's.
template <class Exec>
class source_blocks {
  static constexpr bool on_device = tessera::device_execution<Exec>;

 public:
  void add(Exec const& exec, std::int64_t rows, std::int64_t width) {
    auto const stride = width + 2;
    memory_.emplace_back(static_cast<std::size_t>(rows * stride), 7.0F);
    here_.push_back({memory_.back().data(), rows, width, stride});
    if constexpr (on_device) there_memory_.push_back(put_where(exec, memory_.back()));
    there_.push_back({on_device ? there_memory_.back().data() : memory_.back().data(), rows, width, stride});
    const_there_.push_back(there_.back());
  }
  std::vector<tessera::matrix_view<float>> const& here() const { return here_; }
  std::vector<tessera::matrix_view<float>> const& there() const { return there_; }
  std::vector<tessera::matrix_view<float const>> const& const_there() const { return const_there_; }

  /// From here to there, and back.
  void send(Exec const& exec) const {
    if constexpr (on_device)
      for (std::size_t i = 0; i < memory_.size(); ++i)
        if (!memory_[i].empty()) exec.copy_in(there_[i].data(), memory_[i].data(), memory_[i].size() * sizeof(float));
  }
  void fetch(Exec const& exec) const {
    wait_for(exec);
    if constexpr (on_device)
      for (std::size_t i = 0; i < memory_.size(); ++i)
        if (!memory_[i].empty()) exec.copy_out(here_[i].data(), there_[i].data(), memory_[i].size() * sizeof(float));
  }

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<tessera::buffer<float, Exec>> there_memory_;
  std::vector<tessera::matrix_view<float>> here_, there_;
  std::vector<tessera::matrix_view<float const>> const_there_;
};

/// A batch as a source sees it, each row a sample or in groups, with blocks for what comes out and what goes in. Weights, if any, go by id.
template <class Exec>
class source_batch {
 public:
  source_batch(Exec const& exec, source_problem const& problem, source_rows rows, bool grouped, bool weighted = false)
      : exec_(exec), rows_(std::move(rows)), samples_(static_cast<std::int64_t>(rows_.empty() ? 0 : rows_[0].size())), grouped_(grouped) {
    std::vector<tessera::feature_rows<>> keys;
    for (std::size_t key = 0; key < rows_.size(); ++key) {
      std::vector<std::vector<float>> weights;
      for (auto const& row : rows_[key]) {
        if (!weighted) break;
        auto& of_row = weights.emplace_back();
        for (auto const id : row) of_row.push_back(0.3F * static_cast<float>(id % 7) - 0.5F);
      }
      keys.emplace_back(problem.features[key].name, rows_[key], std::move(weights));
    }
    plain_ = tessera::keyed_jagged<>::from_rows(host_.exec(), keys);
    std::vector<std::int64_t> const groups{3, 1};
    if (grouped) shared_ = tessera::deduplicate(host_.exec(), std::as_const(plain_).view(), groups);
    if constexpr (on_device) {
      plain_there_ = decltype(plain_there_)::copy_of(exec, plain_);
      if (grouped) shared_there_ = decltype(shared_there_)::copy_of(exec, shared_);
    }
    auto const batch = host_view();
    for (std::size_t key = 0; key < problem.features.size(); ++key) {
      auto const& feature = problem.features[key];
      auto const width = problem.tables[static_cast<std::size_t>(feature.table)].dim;
      auto const k = static_cast<std::int64_t>(key);
      bool const expands = problem.sums == tessera::shared_gradients::expanded;
      out_.add(exec, feature.sequence ? batch.sparse.key(k).size() : samples_, width);
      gradients_.add(exec,
                     !feature.sequence ? samples_
                     : expands         ? std::as_const(plain_).view().key(k).size()
                                       : batch.sparse.key(k).size(),
                     width);
    }
  }

  /// Where the source is, and on the host.
  tessera::batch_view view() const {
    if constexpr (on_device)
      return view_of(plain_there_, shared_there_);
    else
      return host_view();
  }
  tessera::batch_view host_view() const { return view_of(plain_, shared_); }

  source_rows const& rows() const { return rows_; }
  std::int64_t samples() const { return samples_; }
  std::vector<tessera::matrix_view<float>> const& out() const { return out_.there(); }
  std::vector<tessera::matrix_view<float const>> const& gradients() const { return gradients_.const_there(); }
  /// The same in the order of a source's outputs.
  template <class Source>
  std::vector<tessera::matrix_view<float>> const& out_of(Source const& source) const {
    return in_order(source, out(), ordered_out_);
  }
  template <class Source>
  std::vector<tessera::matrix_view<float const>> const& gradients_of(Source const& source) const {
    return in_order(source, gradients(), ordered_gradients_);
  }
  /// Room for the gradients of its parameters.
  template <class Source>
  tessera::vector_view<float> of_parameters(Source const& source) const {
    of_parameters_.resize(exec_, source.parameter_count());
    return of_parameters_.view();
  }
  /// What came out, on the host.
  std::vector<tessera::matrix_view<float>> const& given() const {
    out_.fetch(exec_);
    return out_.here();
  }
  /// Likewise what goes in.
  std::vector<tessera::matrix_view<float>> const& gradient_blocks() const { return gradients_.here(); }
  /// Which row of its key a sample has.
  std::int64_t row_of(std::int64_t key, std::int64_t sample) const {
    auto const inverse = host_view().inverse_keyed().inverse(key);
    return inverse.empty() ? sample : inverse[sample];
  }
  template <class F>
  void fill_gradients(F next) const {
    for (auto const& block : gradients_.here())
      for (std::int64_t r = 0; r < block.rows(); ++r)
        for (std::int64_t c = 0; c < block.columns(); ++c) block(r, c) = next();
    gradients_.send(exec_);
  }

 private:
  static constexpr bool on_device = tessera::device_execution<Exec>;

  template <class Source, class Matrix>
  static std::vector<Matrix> const& in_order(Source const& source, std::vector<Matrix> const& of_features, std::vector<Matrix>& blocks) {
    blocks.clear();
    for (auto const& output : source.outputs()) blocks.push_back(of_features[static_cast<std::size_t>(output.key)]);
    return blocks;
  }

  template <class Plain, class Shared>
  tessera::batch_view view_of(Plain const& plain, Shared const& shared) const {
    tessera::batch_view batch;
    batch.dense = {nullptr, samples_, 0};
    batch.sparse = grouped_ ? shared.distinct().view() : plain.view();
    if (grouped_) batch.groups = shared.view().groups;
    return batch;
  }

  Exec exec_;
  tessera_tests::serial_host host_;
  source_rows rows_;
  std::int64_t samples_;
  bool grouped_;
  tessera::keyed_jagged<> plain_;
  tessera::inverse_keyed_jagged<> shared_;
  tessera::keyed_jagged<std::int64_t, std::int64_t, Exec> plain_there_;           // on a device
  tessera::inverse_keyed_jagged<std::int64_t, std::int64_t, Exec> shared_there_;  // on a device
  source_blocks<Exec> out_, gradients_;
  mutable std::vector<tessera::matrix_view<float>> ordered_out_;
  mutable std::vector<tessera::matrix_view<float const>> ordered_gradients_;
  mutable tessera::buffer<float, Exec> of_parameters_;
};

/// The same in double, row by row as the definition says.
class naive_source {
 public:
  explicit naive_source(source_problem problem) : problem_(std::move(problem)) {}

  std::vector<double> const& row(std::int64_t table, std::int64_t id) {
    auto const found = rows_.find({table, id});
    if (found != rows_.end()) return found->second;
    auto const first = initial_row(problem_.tables[static_cast<std::size_t>(table)], id);
    return rows_[{table, id}] = std::vector<double>(first.begin(), first.end());
  }

  /// Whether the blocks of a batch show what these rows give.
  template <class Exec>
  bool gives(source_batch<Exec> const& batch) {
    auto const view = batch.host_view();
    auto const& given = batch.given();
    for (std::size_t key = 0; key < problem_.features.size(); ++key) {
      auto const& feature = problem_.features[key];
      auto const k = static_cast<std::int64_t>(key);
      auto const& block = given[key];
      auto const bags = view.sparse.key(k);
      if (feature.sequence) {
        for (std::int64_t i = 0; i < block.rows(); ++i)
          if (!is_close(block, i, row(feature.table, bags.values[bags.offsets[0] + i]))) return false;
        continue;
      }
      for (std::int64_t i = 0; i < batch.samples(); ++i)
        if (!is_close(block, i, pooled(feature, batch.rows()[key][static_cast<std::size_t>(i)]))) return false;
    }
    return true;
  }

  /// What the batch's gradients do to each row, added to what is there.
  template <class Exec>
  void add_gradients(source_batch<Exec> const& batch) {
    auto const view = batch.host_view();
    bool const expanded = problem_.sums == tessera::shared_gradients::expanded;
    for (std::size_t key = 0; key < problem_.features.size(); ++key) {
      auto const& feature = problem_.features[key];
      auto const k = static_cast<std::int64_t>(key);
      auto const& gradient = batch.gradient_blocks()[key];
      auto const bags = view.sparse.key(k);
      if (feature.sequence && !expanded) {
        for (std::int64_t i = 0; i < gradient.rows(); ++i) add(feature.table, bags.values[bags.offsets[0] + i], gradient, i, 1);
        continue;
      }
      std::int64_t value = 0;
      for (std::int64_t i = 0; i < batch.samples(); ++i) {
        auto const& ids = batch.rows()[key][static_cast<std::size_t>(i)];
        for (std::size_t p = 0; p < ids.size(); ++p) {
          if (feature.sequence)
            add(feature.table, ids[p], gradient, value++, 1);
          else if (feature.pooling == tessera::pooling::max)
            add_winner(feature, ids, p, gradient, i);
          else
            add(feature.table, ids[p], gradient, i,
                feature.pooling == tessera::pooling::mean ? 1.0 / static_cast<double>(ids.size()) : 1.0);
        }
      }
    }
  }
  /// One step with what was added.
  void update() {
    for (auto const& [where, sum] : sums_) {
      auto& weights = rows_[where];
      for (std::size_t c = 0; c < sum.size(); ++c)
        weights[c] -= static_cast<double>(problem_.rates[static_cast<std::size_t>(where.first)]) * sum[c];
    }
    sums_.clear();
  }

 private:
  using place = std::pair<std::int64_t, std::int64_t>;

  static bool is_close(tessera::matrix_view<float> const& block, std::int64_t r, std::vector<double> const& expected) {
    for (std::size_t c = 0; c < expected.size(); ++c)
      if (!(std::abs(static_cast<double>(block(r, static_cast<std::int64_t>(c))) - expected[c]) < 2e-5 * (1 + std::abs(expected[c]))))
        return false;
    return true;
  }

  std::vector<double> pooled(tessera::table_feature const& feature, std::vector<std::int64_t> const& ids) {
    std::vector<double> result(static_cast<std::size_t>(problem_.tables[static_cast<std::size_t>(feature.table)].dim), 0.0);
    for (std::size_t p = 0; p < ids.size(); ++p) {
      auto const& weights = row(feature.table, ids[p]);
      for (std::size_t c = 0; c < result.size(); ++c)
        result[c] = feature.pooling != tessera::pooling::max ? result[c] + weights[c]
                    : p == 0                                 ? weights[c]
                                                             : std::max(result[c], weights[c]);
    }
    if (feature.pooling == tessera::pooling::mean && !ids.empty())
      for (auto& x : result) x /= static_cast<double>(ids.size());
    return result;
  }

  std::vector<double>& sum_of(std::int64_t table, std::int64_t id) {
    row(table, id);
    auto& sum = sums_[{table, id}];
    sum.resize(static_cast<std::size_t>(problem_.tables[static_cast<std::size_t>(table)].dim), 0.0);
    return sum;
  }
  void add(std::int64_t table, std::int64_t id, tessera::matrix_view<float const> const& gradient, std::int64_t r, double scale) {
    auto& sum = sum_of(table, id);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += scale * static_cast<double>(gradient(r, static_cast<std::int64_t>(c)));
  }
  // Of each column, the first id of the bag that has the largest element.
  void add_winner(tessera::table_feature const& feature, std::vector<std::int64_t> const& ids, std::size_t p,
                  tessera::matrix_view<float const> const& gradient, std::int64_t r) {
    auto const dim = static_cast<std::size_t>(problem_.tables[static_cast<std::size_t>(feature.table)].dim);
    for (std::size_t c = 0; c < dim; ++c) {
      std::size_t winner = 0;
      for (std::size_t q = 1; q < ids.size(); ++q)
        if (row(feature.table, ids[q])[c] > row(feature.table, ids[winner])[c]) winner = q;
      if (winner == p) sum_of(feature.table, ids[p])[c] += static_cast<double>(gradient(r, static_cast<std::int64_t>(c)));
    }
  }

  source_problem problem_;
  std::map<place, std::vector<double>> rows_, sums_;
};

/// All rows of all tables, as a source predicts them: a batch of single ids, one sample an id.
template <class Exec, class Source>
std::vector<float> all_rows(Exec const& exec, source_problem const& problem, Source const& source) {
  source_rows rows(problem.features.size(), std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(problem.ids)));
  for (auto& key : rows)
    for (std::int64_t id = 0; id < problem.ids; ++id) key[static_cast<std::size_t>(id)] = {id};
  source_batch const probe(exec, problem, rows, false);
  source.predict(exec, probe.view(), probe.out_of(source));
  std::vector<float> all;
  for (auto const& block : probe.given())
    for (std::int64_t r = 0; r < block.rows(); ++r) all.insert(all.end(), block.row(r), block.row(r) + block.columns());
  return all;
}

template <class Exec, class Source>
void forward(Exec const& exec, Source& source, source_batch<Exec> const& batch, typename Source::saved_type& saved) {
  source.begin(exec, batch.view(), saved);
  source.finish(exec, saved, batch.out_of(source));
}
template <class Exec, class Source>
void begin_backward(Exec const& exec, Source& source, source_batch<Exec> const& batch, typename Source::saved_type& saved) {
  if constexpr (tessera::owns_parameters<Source>)
    source.begin_backward(exec, saved, batch.gradients_of(source), batch.of_parameters(source));
  else
    source.begin_backward(exec, saved, batch.gradients_of(source));
}
template <class Exec, class Source>
void backward(Exec const& exec, Source& source, source_batch<Exec> const& batch, typename Source::saved_type& saved) {
  begin_backward(exec, source, batch, saved);
  source.finish_backward(exec, saved);
}

/// Runs f(exec, random).
template <class F>
void with_random_host(F const& f) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  f(host.exec(), random);
}

/// With the execution that the maker's sources run by.
template <class Maker, class F>
void with_random_execution(F const& f) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  with_execution<typename Maker::source_type::execution_type>::run(random, [&](auto const& exec) { f(exec, random); });
}

template <class Maker>
void check_source_against_naive() {
  with_random_execution<Maker>([](auto const& exec, std::mt19937_64& random) {
    std::normal_distribution<float> draw;
    for (auto const sums : sums_of<Maker>())
      for (bool const grouped : {false, true}) {
        CAPTURE(grouped);
        CAPTURE(static_cast<int>(sums));
        auto const problem = problem_of<Maker>(sums);
        auto source = Maker::make(exec, problem);
        naive_source naive(problem);
        typename Maker::source_type::saved_type saved;
        for (int step = 0; step < 4; ++step) {
          source_batch const batch(exec, problem, draw_source_rows(random, step == 2 ? 0 : 1 + random() % 60), grouped);
          batch.fill_gradients([&] { return draw(random); });
          source.predict(exec, batch.view(), batch.out_of(source));
          CHECK(naive.gives(batch));
          forward(exec, source, batch, saved);
          CHECK(naive.gives(batch));
          backward(exec, source, batch, saved);
          naive.add_gradients(batch);
          naive.update();
        }
        source_batch const last(exec, problem, draw_source_rows(random, 50), grouped);
        source.predict(exec, last.view(), last.out_of(source));
        CHECK(naive.gives(last));
      }
  });
}

template <class Maker>
void check_source_in_flight() {
  with_random_execution<Maker>([](auto const& exec, std::mt19937_64& random) {
    std::normal_distribution<float> draw;
    auto const problem = problem_of<Maker>();
    auto source = Maker::make(exec, problem);
    naive_source naive(problem);
    source_batch const first(exec, problem, draw_source_rows(random, 30), true), second(exec, problem, draw_source_rows(random, 20), false);
    for (auto const* batch : {&first, &second}) batch->fill_gradients([&] { return draw(random); });
    typename Maker::source_type::saved_type of_first, of_second;
    source.begin(exec, first.view(), of_first);
    source.begin(exec, second.view(), of_second);
    source.finish(exec, of_second, second.out_of(source));
    source.finish(exec, of_first, first.out_of(source));
    CHECK(naive.gives(first));
    CHECK(naive.gives(second));
    naive.add_gradients(first);
    naive.add_gradients(second);  // whose maxima are those of the rows that it read
    backward(exec, source, first, of_first);
    backward(exec, source, second, of_second);
    naive.update();
    source_batch const last(exec, problem, draw_source_rows(random, 50), false);
    source.predict(exec, last.view(), last.out_of(source));
    CHECK(naive.gives(last));
  });
}

template <class Maker>
void check_source_gradients_handed_out() {
  with_random_execution<Maker>([](auto const& exec, std::mt19937_64& random) {
    std::normal_distribution<float> draw;
    using source_type = typename Maker::source_type;
    auto const problem = problem_of<Maker>();
    auto fused = Maker::make(exec, problem), handed = Maker::make(exec, problem), accumulating = Maker::make(exec, problem);
    typename source_type::saved_type saved;
    typename source_type::gradients_type sum, more;
    naive_source naive(problem);
    source_batch const first(exec, problem, draw_source_rows(random, 30), true), second(exec, problem, draw_source_rows(random, 20), true);
    for (auto const* batch : {&first, &second}) {
      batch->fill_gradients([&] { return draw(random); });
      forward(exec, fused, *batch, saved);
      backward(exec, fused, *batch, saved);
      forward(exec, handed, *batch, saved);
      begin_backward(exec, handed, *batch, saved);
      handed.gradients(exec, saved, sum);
      handed.apply(exec, sum);
      CHECK(same_bits(all_rows(exec, problem, fused), all_rows(exec, problem, handed)));
    }
    for (auto const* batch : {&first, &second}) {
      forward(exec, accumulating, *batch, saved);
      CHECK(naive.gives(*batch));  // nothing has changed before the step
      naive.add_gradients(*batch);
      begin_backward(exec, accumulating, *batch, saved);
      accumulating.gradients(exec, saved, batch == &first ? sum : more);
    }
    tessera::add_row_gradients(exec, sum, more);
    accumulating.apply(exec, sum);
    naive.update();
    source_batch const last(exec, problem, draw_source_rows(random, 50), true);
    accumulating.predict(exec, last.view(), last.out_of(accumulating));
    CHECK(naive.gives(last));
  });
}

template <class Maker>
void check_source_prepared() {
  with_random_execution<Maker>([](auto const& exec, std::mt19937_64& random) {
    std::normal_distribution<float> draw;
    for (auto const sums : sums_of<Maker>()) {
      auto const problem = problem_of<Maker>(sums);
      auto plain = Maker::make(exec, problem), ahead = Maker::make(exec, problem);
      typename Maker::source_type::saved_type saved;
      typename Maker::source_type::prepared_type prepared;
      for (int step = 0; step < 3; ++step) {
        source_batch const batch(exec, problem, draw_source_rows(random, 25), step > 0);
        batch.fill_gradients([&] { return draw(random); });
        forward(exec, plain, batch, saved);
        backward(exec, plain, batch, saved);
        ahead.prepare(exec, batch.view(), prepared);
        ahead.begin(exec, batch.view(), saved, prepared);
        ahead.finish(exec, saved, batch.out_of(ahead));
        backward(exec, ahead, batch, saved);
        CHECK(same_bits(all_rows(exec, problem, plain), all_rows(exec, problem, ahead)));
      }
    }
  });
}

/// Written to a file and read into a fresh source, it goes on as if it had never stopped.
template <class Maker>
void check_source_files() {
  with_random_execution<Maker>([](auto const& exec, std::mt19937_64& random) {
    std::normal_distribution<float> draw;
    auto const problem = problem_of<Maker>();
    auto source = Maker::make(exec, problem), fresh = Maker::make(exec, problem);
    typename Maker::source_type::saved_type saved;
    tessera_tests::temporary_folder folder;
    for (int step = 0; step < 6; ++step) {
      source_batch const batch(exec, problem, draw_source_rows(random, 25), step % 2 == 0);
      batch.fill_gradients([&] { return draw(random); });
      forward(exec, source, batch, saved);
      backward(exec, source, batch, saved);
      if (step > 2) {
        forward(exec, fresh, batch, saved);
        backward(exec, fresh, batch, saved);
      }
      if (step == 2) {
        auto const written = source.parts();
        auto read = fresh.parts();
        auto const places = tessera::places_of(source, written);
        CHECK(places.tables.size() == problem.tables.size());
        tessera_tests::serial_host host;
        tessera::write_table_file(host.exec(), folder.file("tables"), written);
        tessera::table_file_reader(folder.file("tables"), read, tessera::table_content::all).read(host.exec());
        for (std::size_t t = 0; t < read.size(); ++t) {
          CHECK(written[t]->steps().value == 3);
          read[t]->set_steps(written[t]->steps());
          CHECK(read[t]->rows() == written[t]->rows());
          CHECK(read[t]->kind().optimizer == "sgd");
          CHECK(read[t]->options().id == problem.tables[static_cast<std::size_t>(places.parts[t].table)].id);
        }
      }
      if (step >= 2) CHECK(same_bits(all_rows(exec, problem, source), all_rows(exec, problem, fresh)));
    }
  });
}

template <class Maker>
void check_source_refusals() {
  with_random_execution<Maker>([](auto const& exec, std::mt19937_64& random) {
    using tessera_tests::error_of;
    auto const problem = problem_of<Maker>();
    auto source = Maker::make(exec, problem);
    typename Maker::source_type::saved_type saved;
    source_batch const batch(exec, problem, draw_source_rows(random, 12), true), other(exec, problem, draw_source_rows(random, 13), false);
    batch.fill_gradients([] { return 1.0F; });
    auto const before = all_rows(exec, problem, source);
    auto const refuses = [&](tessera::errc code, auto const& call) {
      auto const e = error_of([&] {
        call();
        wait_for(exec);
      });
      CHECK(e.code() == code);
      CHECK(same_bits(all_rows(exec, problem, source), before));
    };
    using tessera::errc;
    refuses(errc::invalid_argument, [&] { source.finish(exec, saved, batch.out_of(source)); });
    refuses(errc::invalid_argument, [&] { begin_backward(exec, source, batch, saved); });
    refuses(errc::invalid_argument, [&] { source.finish_backward(exec, saved); });
    auto narrow = batch.view();
    narrow.sparse.keys -= 1;
    refuses(errc::shape_mismatch, [&] { source.begin(exec, narrow, saved); });
    refuses(errc::shape_mismatch, [&] { source.predict(exec, narrow, batch.out_of(source)); });
    source.begin(exec, batch.view(), saved);
    refuses(errc::invalid_argument, [&] { begin_backward(exec, source, batch, saved); });  // not finished
    refuses(errc::shape_mismatch, [&] { source.finish(exec, saved, other.out_of(source)); });
    source.finish(exec, saved, batch.out_of(source));
    refuses(errc::shape_mismatch, [&] { begin_backward(exec, source, other, saved); });
    refuses(errc::invalid_argument, [&] { source.finish_backward(exec, saved); });  // has not begun
    // A group whose inverse names no row.
    auto const* const whole = batch.host_view().groups[0].inverse;
    std::vector<std::int64_t> inverse(whole, whole + batch.samples());
    inverse.back() = batch.samples() + 1;
    auto const inverse_there = put_where(exec, inverse);
    auto broken = batch.view();
    auto groups = std::vector<tessera::row_group>(broken.groups.begin(), broken.groups.end());
    groups[0].inverse = inverse_there.data();
    broken.groups = groups;
    refuses(errc::out_of_range, [&] {
      source.begin(exec, broken, saved);
      source.finish(exec, saved, batch.out_of(source));
    });
    if (Maker::refuses_ids)
      for (auto const id : {source_ids, std::int64_t{-1}, largest_id, smallest_id}) {
        auto rows = draw_source_rows(random, 6);
        rows[4][5].push_back(id);
        source_batch const unknown(exec, problem, rows, false);
        refuses(errc::out_of_range, [&] {
          source.begin(exec, unknown.view(), saved);
          source.finish(exec, saved, unknown.out_of(source));
        });
        refuses(errc::out_of_range, [&] { source.predict(exec, unknown.view(), unknown.out_of(source)); });
      }
    // And it goes on.
    naive_source naive(problem);
    forward(exec, source, other, saved);
    CHECK(naive.gives(other));
  });
}

/// Parameters of a source that owns some stay where they are, and have gradients that differences confirm.
template <class Maker>
void check_source_parameters() {
  if constexpr (tessera::owns_parameters<typename Maker::source_type>)
    with_random_execution<Maker>([](auto const& exec, std::mt19937_64& random) {
      std::normal_distribution<float> draw;
      auto const problem = problem_of<Maker>();
      auto source = Maker::make(exec, problem);
      std::vector<tessera::vector_view<float>> values;
      std::int64_t of_groups = 0, of_blocks = 0;
      for (auto const& group : source.groups()) {
        of_groups += group.values.size();
        values.push_back(group.values);
      }
      for (auto const& block : source.blocks()) of_blocks += block.values.size();
      CHECK(of_groups == source.parameter_count());
      CHECK(of_blocks == source.parameter_count());
      auto moved = std::move(source);
      auto const groups = moved.groups();
      for (std::size_t g = 0; g < values.size(); ++g) CHECK(groups[g].values.data() == values[g].data());

      source_batch const batch(exec, problem, draw_source_rows(random, 30), true);
      batch.fill_gradients([&] { return draw(random); });
      typename Maker::source_type::saved_type saved;
      forward(exec, moved, batch, saved);
      auto const of_parameters = batch.of_parameters(moved);
      std::fill(of_parameters.begin(), of_parameters.end(), std::nanf(""));
      moved.begin_backward(exec, saved, batch.gradients_of(moved), of_parameters);
      typename Maker::source_type::gradients_type sum;
      moved.gradients(exec, saved, sum);  // rows stay as they are
      // What comes out, times its gradient, along a direction of all parameters.
      auto const along = [&] {
        moved.predict(exec, batch.view(), batch.out_of(moved));
        double product = 0;
        for (std::size_t key = 0; key < batch.given().size(); ++key) {
          auto const& out = batch.given()[key];
          if (problem.features[key].sequence) continue;  // they pass by
          for (std::int64_t r = 0; r < out.rows(); ++r)
            for (std::int64_t c = 0; c < out.columns(); ++c)
              product += static_cast<double>(out(r, c)) * static_cast<double>(batch.gradient_blocks()[key](r, c));
        }
        return product;
      };
      double expected = 0;
      std::vector<float> step;
      for (auto const gradient : of_parameters) {
        step.push_back(0.01F * draw(random));
        expected += static_cast<double>(step.back()) * static_cast<double>(gradient);
      }
      auto const move = [&](float by) {
        std::size_t i = 0;
        for (auto const& group : groups)
          for (auto& value : group.values) value += by * step[i++];
      };
      move(1);
      auto const ahead = along();
      move(-2);
      auto const behind = along();
      CHECK((ahead - behind) / 2 == doctest::Approx(expected).epsilon(1e-2));
    });
}

}  // namespace embed_tests

/// All of them for one model: `TESSERA_EMBEDDING_SOURCE_TESTS("local tables", maker)`.
#define TESSERA_EMBEDDING_SOURCE_TESTS(name, maker)                                                               \
  static_assert(tessera::embedding_source<maker::source_type>);                                                   \
  TEST_CASE(name ": as naive float64, plain and in groups") { embed_tests::check_source_against_naive<maker>(); } \
  TEST_CASE(name ": two batches in flight") { embed_tests::check_source_in_flight<maker>(); }                     \
  TEST_CASE(name ": gradients handed out") { embed_tests::check_source_gradients_handed_out<maker>(); }           \
  TEST_CASE(name ": prepared ahead, the same bits") { embed_tests::check_source_prepared<maker>(); }              \
  TEST_CASE(name ": written, read, and trained on, the same bits") { embed_tests::check_source_files<maker>(); }  \
  TEST_CASE(name ": parameters of its own, if any") { embed_tests::check_source_parameters<maker>(); }            \
  TEST_CASE(name ": what is refused is named and changes nothing") { embed_tests::check_source_refusals<maker>(); }
