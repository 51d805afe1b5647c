// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/network_samples.hpp>
#include <tessera/plan/plan_random.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How networks of costs are trained. The defaults are the published ones. Source: Zha et al., MLSys 2023, Appendix F.
struct fit_options {
  std::int64_t epochs = 1000;
  std::int64_t batch_samples = 512;
  float learning_rate = 0.001F;       ///< of Adam
  float last_learning_rate = 0.001F;  ///< of the last epoch; between the two it is linear in the epochs
  double validation_fraction = 0.1;   ///< of the samples: they choose the epoch whose parameters are kept
  double test_fraction = 0.1;         ///< of the samples: nothing is chosen by them
  std::int64_t starts = 1;            ///< trainings, each from its own random parameters, in its own order of samples
  double most_error_over_best = 2;    ///< a start is kept where its validation error is at most so many times that of the best start
  random_seed seed{};
};

/// Units behind a ReLU that were 0 for every validation sample.
struct dead_units {
  std::string layer;
  std::int64_t dead = 0, units = 0;
};

/// How one training went. Errors are mean squared errors over all targets, in the targets' unit squared, at the epoch that was kept.
struct fit_report {
  std::int64_t start = 0;
  std::int64_t epoch = 0;  ///< whose parameters are kept, from 0
  double training_error = 0, validation_error = 0, test_error = 0;
  std::vector<dead_units> dead{};
  bool is_kept = false;

  /// Over all layers.
  std::int64_t dead_count() const noexcept {
    std::int64_t sum = 0;
    for (auto const& layer : dead) sum += layer.dead;
    return sum;
  }
};

/// The numbers of samples that networks learn from, are chosen by, and are tested on; disjoint, in random order.
struct sample_split {
  std::vector<std::int64_t> training, validation, test;

  /// @throws tessera::error invalid_argument for fractions that are not in [0, 1) or leave no training or validation sample.
  static sample_split of(std::int64_t samples, fit_options const& options) {
    auto const valid = [](double fraction) { return fraction >= 0 && fraction < 1; };
    auto const count = [&](double fraction) { return static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(samples))); };
    if (!valid(options.validation_fraction) || !valid(options.test_fraction))
      throw error(errc::invalid_argument, "fit_cost_network: a fraction outside [0, 1)",
                  {{"validation_fraction", options.validation_fraction}, {"test_fraction", options.test_fraction}});
    auto const validation = count(options.validation_fraction), test = count(options.test_fraction);
    if (validation < 1 || validation + test >= samples)
      throw error(errc::invalid_argument, "fit_cost_network: too few samples to train on and to validate by",
                  {{"samples", samples}, {"validation", validation}, {"test", test}});
    auto const order = detail::random_sequence(options.seed, 0, 1).permutation(samples);
    sample_split split;
    split.validation.assign(order.begin(), order.begin() + validation);
    split.test.assign(order.begin() + validation, order.begin() + validation + test);
    split.training.assign(order.begin() + validation + test, order.end());
    return split;
  }
};

/// Networks that were trained on the same samples, those of the starts that were kept, the best first; and how each start went.
template <cost_network Network>
struct fitted_networks {
  std::vector<Network> networks;
  std::vector<fit_report> reports;  ///< (starts,), in their order
  sample_split split;
};

/// Predicts the targets of some samples: `out` gets those of a sample after those of the one before.
template <cost_network Network, gemm_policy Gemm>
void predict_samples(host_exec const& exec, Gemm const& gemm, Network const& network, network_samples const& samples,
                     vector_view<std::int64_t const> which, std::vector<float>& out) {
  constexpr std::int64_t piece = 4096;
  detail::network_batch batch;
  cost_network_saved saved;
  out.clear();
  for (std::int64_t first = 0; first < which.size(); first += piece) {
    batch.gather(samples, which.slice(first, std::min(piece, which.size() - first)));
    auto const count = network.outputs(batch.rows());
    auto const before = out.size();
    out.resize(before + static_cast<std::size_t>(count));
    network.forward(exec, gemm, batch.rows(), {out.data() + before, count}, saved);
  }
}

namespace detail {

// The mean squared error of a network over some samples; 0 for none.
template <class Network, class Gemm>
double error_over(host_exec const& exec, Gemm const& gemm, Network const& network, network_samples const& samples,
                  vector_view<std::int64_t const> which) {
  std::vector<float> predicted;
  predict_samples(exec, gemm, network, samples, which, predicted);
  double sum = 0;
  std::size_t p = 0;
  for (auto const s : which)
    for (auto t = samples.first_target[static_cast<std::size_t>(s)]; t < samples.first_target[static_cast<std::size_t>(s) + 1]; ++t)
      sum += std::pow(static_cast<double>(predicted[p++]) - static_cast<double>(samples.targets[static_cast<std::size_t>(t)]), 2);
  return predicted.empty() ? 0 : sum / static_cast<double>(predicted.size());
}

template <class Network, class Gemm>
std::vector<dead_units> find_dead_units(host_exec const& exec, Gemm const& gemm, Network const& network, network_samples const& samples,
                                        vector_view<std::int64_t const> which) {
  network_batch batch;
  cost_network_saved saved;
  batch.gather(samples, which);
  std::vector<float> out(static_cast<std::size_t>(network.outputs(batch.rows())));
  network.forward(exec, gemm, batch.rows(), out, saved);
  std::vector<dead_units> result;
  network.visit_relus(saved, [&](std::string const& layer, matrix_view<float const> values) {
    auto& dead = result.emplace_back(dead_units{layer, 0, values.columns()});
    for (std::int64_t c = 0; c < values.columns(); ++c) {
      bool lives = false;
      for (std::int64_t r = 0; r < values.rows() && !lives; ++r) lives = values(r, c) != 0;
      dead.dead += !lives;
    }
  });
  return result;
}

inline void check_fit(fit_options const& options) {
  auto const refuse = [](char const* why, char const* what, auto value) {
    throw error(errc::invalid_argument, std::string("fit_cost_network: ") + why, {{what, value}});
  };
  if (options.epochs < 1) refuse("at least one epoch", "epochs", options.epochs);
  if (options.batch_samples < 1) refuse("at least one sample a batch", "batch_samples", options.batch_samples);
  if (options.starts < 1) refuse("at least one start", "starts", options.starts);
  if (!(options.most_error_over_best >= 1)) refuse("the best start is kept", "most_error_over_best", options.most_error_over_best);
}

template <class Network>
void check_samples(network_samples const& samples, Network const& network) {
  if (samples.width != network.input_width())
    throw error(errc::shape_mismatch, "fit_cost_network: samples of another width than the network's",
                {{"width", samples.width}, {"network", network.input_width()}});
  if (auto const outputs = network.outputs(samples.rows_view()); outputs != samples.first_target.back())
    throw error(errc::shape_mismatch, "fit_cost_network: another number of targets than the network gives",
                {{"targets", samples.first_target.back()}, {"network", outputs}});
}

// Trains one network in place, and leaves it with the parameters of its best epoch.
template <class Network, class Gemm>
fit_report train_network(host_exec const& exec, Gemm const& gemm, Network& network, network_samples const& samples,
                         sample_split const& split, std::int64_t start, fit_options const& options) {
  fit_report report{.start = start, .validation_error = std::numeric_limits<double>::infinity()};
  adam optimizer{.learning_rate = options.learning_rate};
  auto const parameters = network.parameters();
  dense_optimizer_state state(exec, parameters.size(), optimizer);
  std::vector<float> gradient(static_cast<std::size_t>(parameters.size())), best(parameters.begin(), parameters.end()), out, of_out;
  auto order = split.training;
  random_sequence random(options.seed, static_cast<std::uint64_t>(start), 2);
  network_batch batch;
  cost_network_saved saved;
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    auto const passed = options.epochs == 1 ? 0.0F : static_cast<float>(epoch) / static_cast<float>(options.epochs - 1);
    optimizer.learning_rate = options.learning_rate + passed * (options.last_learning_rate - options.learning_rate);
    random.shuffle(order);
    vector_view<std::int64_t const> const all(order);
    for (std::int64_t first = 0; first < all.size(); first += options.batch_samples) {
      batch.gather(samples, all.slice(first, std::min(options.batch_samples, all.size() - first)));
      out.resize(batch.targets.size());
      of_out.resize(batch.targets.size());
      network.forward(exec, gemm, batch.rows(), out, saved);
      mean_squared_error(exec, out, batch.targets, of_out);
      network.backward(exec, gemm, saved, of_out, gradient);
      dense_update(exec, parameters, vector_view<float const>(gradient), state, optimizer);
    }
    auto const validation = error_over(exec, gemm, network, samples, split.validation);
    if (validation < report.validation_error) {
      report.validation_error = validation;
      report.epoch = epoch;
      std::copy(parameters.begin(), parameters.end(), best.begin());
    }
  }
  std::copy(best.begin(), best.end(), parameters.begin());
  report.training_error = error_over(exec, gemm, network, samples, split.training);
  report.test_error = error_over(exec, gemm, network, samples, split.test);
  report.dead = find_dead_units(exec, gemm, network, samples, split.validation);
  return report;
}

}  // namespace detail

/// Trains networks by Adam on the mean squared error, each from its own start, and keeps of each the epoch of the least validation error.
///
/// `make(seed)` gives a new network with random parameters. The features and targets of `samples` are taken as they are: normalise them
/// first. The same samples, options and networks give the same bits for any number of threads.
/// @throws tessera::error invalid_argument for options that cannot be, as `sample_split::of`, and where no start has a finite error;
/// shape_mismatch for samples of another width, or another number of targets, than the network's.
template <gemm_policy Gemm, class Make>
auto fit_cost_networks(host_exec const& exec, Gemm const& gemm, network_samples const& samples, Make const& make,
                       fit_options const& options = {}) {
  using network = decltype(make(options.seed));
  detail::check_fit(options);
  fitted_networks<network> result;
  result.split = sample_split::of(samples.samples(), options);
  std::vector<network> trained;
  for (std::int64_t start = 0; start < options.starts; ++start) {
    // Streams of one seed: starts differ, and a start does not depend on how many there are.
    auto const words = philox(options.seed, static_cast<std::uint64_t>(start), 3, 0);
    auto one = make(random_seed{std::uint64_t{words[0]} << 32 | words[1]});
    detail::check_samples(samples, one);
    result.reports.push_back(detail::train_network(exec, gemm, one, samples, result.split, start, options));
    trained.push_back(std::move(one));
  }
  std::vector<std::size_t> order(trained.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  auto const error_of = [&](std::size_t i) { return result.reports[i].validation_error; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return error_of(a) < error_of(b); });
  if (!std::isfinite(error_of(order.front())))
    throw error(errc::invalid_argument, "fit_cost_network: no start has a finite error", {{"starts", options.starts}});
  for (auto const i : order) {
    if (!(error_of(i) <= options.most_error_over_best * error_of(order.front()))) continue;
    result.reports[i].is_kept = true;
    result.networks.push_back(std::move(trained[i]));
  }
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
