// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/synth/planted_model.hpp>
#include <tessera/synth/zipf.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// One sparse feature of planted clicks: each sample has a bag of ids that follow a Zipf law.
struct planted_feature {
  std::int64_t ids = 1000;        ///< ids are 0 … ids - 1
  double exponent = 1.05;         ///< exponent of the Zipf law
  std::int64_t shortest_bag = 1;  ///< a bag has at least so many ids
  std::int64_t longest_bag = 1;   ///< a bag has at most so many ids
  double more = 1;                ///< probability of each further id up to longest_bag: 1 fixes the length, less makes it geometric
  std::int64_t block = 0;         ///< only features of one block interact; blocks have any numbers from 0
};

/// Options of `planted_clicks`: the features, and the planted model that decides clicks.
struct planted_clicks_options {
  std::vector<planted_feature> features{};  ///< the sparse features, in the order of the batch's keys
  std::int64_t dense_features = 4;          ///< columns of dense features
  std::int64_t latent_dim = 1;              ///< elements of the vectors whose dot products are the interactions; at most 16
  std::int64_t classes = 0;    ///< of each block, one a sample; at most latent_dim, and at most a feature's ids; 0: bags are independent
  double class_share = 0.9;    ///< probability that a bag follows the class of its block; share of the class in a vector
  double base_rate = 0.25;     ///< share of samples with a click, above 0 and below 1
  double dense_signal = 1;     ///< standard deviation of the logit's dense part
  double linear_signal = 0.7;  ///< standard deviation of the logit's linear part, which single ids decide
  double interaction_signal = 0.6;  ///< standard deviation of the logit's interaction part, which pairs of bags decide
  double head_ids = 20;             ///< an id of rank r > head_ids has effects weakened by (head_ids / r)^tail_decay
  double tail_decay = 1.5;          ///< exponent of that decay, 0 to 100
  random_seed seed{};               ///< seed of model and samples
};

/// Owns samples that `planted_clicks` made. Move-only.
class planted_samples {
 public:
  /// Returns how many samples there are.
  std::int64_t size() const noexcept { return labels_.size(); }
  /// Shows the true logits, (samples,), until the samples change. No other ranking has a higher expected AUC.
  vector_view<float const> logits() const noexcept { return logits_.view(); }
  /// Shows the samples as a model reads them, until the samples change. `sample_ids` are their numbers in the generator.
  batch_view view() const noexcept {
    batch_view batch;
    batch.dense = {dense_.data(), size(), dense_features_};
    batch.labels = labels_.view();
    batch.sparse = {ids_.data(), nullptr, offsets_.data(), first_row_.data(), std::max<std::int64_t>(0, first_row_.size() - 1)};
    batch.sample_ids = sample_ids_.view();
    return batch;
  }
  /// Returns the bytes of memory in use.
  std::size_t bytes() const noexcept {
    return dense_.capacity_bytes() + labels_.capacity_bytes() + logits_.capacity_bytes() + ids_.capacity_bytes() +
           offsets_.capacity_bytes() + first_row_.capacity_bytes() + sample_ids_.capacity_bytes();
  }

 private:
  friend class planted_clicks;

  std::int64_t dense_features_ = 0;
  buffer<float> dense_;  // (samples, dense features)
  buffer<float> labels_, logits_;
  buffer<std::int64_t> ids_;
  buffer<std::int64_t> offsets_;
  buffer<std::int64_t> first_row_;
  buffer<std::int64_t> sample_ids_;
};

/// Generates clicks whose best possible ranking is known. Bags have ids that follow Zipf laws, and a planted model decides labels.
///
/// A sample is a pure function of the options and its number. So any part can be made anywhere and in any order, with memory for that part
/// alone. Dense features are standard normal, rounded to thousandths. A label is 1 with probability sigmoid(logit), where
///   logit = bias + dense part + Σ_f mean of w_f(id) + Σ_{f<g} <v_f, v_g>.
/// v_f is the mean of v_f(id) over the bag, less its mean over samples. The first sum is the linear part, and an empty bag adds nothing to it.
/// The second sum is the interaction part, over pairs of one block. The dense part is linear in the features, plus a multiple of
/// |first feature|.
///
/// With classes, each block of a sample has a class, all equally likely. The id of rank r is of class r % classes. A bag that follows its
/// block's class has ids of that class alone, otherwise any. Of the vector of an id, `class_share` is the unit vector of its class and the
/// rest its own. So features of a block are alike in most samples, and clicks come where they are: an id alone says little.
///
/// Weights and vectors are uniform, drawn by seed, feature and rank. The parts are scaled to their signals, and the bias fits the base rate;
/// both are measured on samples that `generate` cannot return. Ids are a scrambling of ranks, so that their order says nothing. An object
/// never changes, so any number of threads may use it.
class planted_clicks {
 public:
  /// The largest latent_dim.
  static constexpr std::int64_t most_latent_dim = 16;
  /// Dense features are multiples of this number.
  static constexpr double dense_unit = 0.001;

  /// Draws the planted model. @throws tessera::error invalid_argument naming the option that is out of range, and its feature.
  planted_clicks(host_exec const& exec, planted_clicks_options options) : options_(std::move(options)) {
    check();
    for (std::int64_t f = 0; f < feature_count(); ++f) {
      auto const& feature = options_.features[at(f)];
      ranks_.emplace_back(feature.ids, feature.exponent);
      by_block_.push_back(f);
      scrambles_.emplace_back(feature.ids, mix_bits(options_.seed.value) + static_cast<std::uint64_t>(f) * 0x9E3779B97F4A7C15);
    }
    std::stable_sort(by_block_.begin(), by_block_.end(), [&](std::int64_t f, std::int64_t g) { return block_of(f) < block_of(g); });
    double squares = 0;
    for (std::int64_t k = 0; k < options_.dense_features; ++k) {
      auto const slope = 2 * detail::uniform_stream(options_.seed, static_cast<std::uint64_t>(k), slope_words)() - 1;
      dense_.slopes.push_back(slope);
      squares += slope * slope;
    }
    dense_.bend = std::sqrt(squares) / 2;
    calibrate(exec);
  }

  /// Returns the options that the model was made with.
  planted_clicks_options const& options() const noexcept { return options_; }
  /// Returns the number of dense features.
  std::int64_t dense_features() const noexcept { return options_.dense_features; }
  /// Returns the number of sparse features.
  std::int64_t feature_count() const noexcept { return static_cast<std::int64_t>(options_.features.size()); }

  /// Replaces what `out` holds by samples first … first + count - 1. The call allocates only when `out` grows.
  /// @throws tessera::error invalid_argument unless 0 <= first and first + count <= 2^62.
  void generate(host_exec const& exec, std::int64_t first, std::int64_t count, planted_samples& out) const {
    if (first < 0 || count < 0 || count > calibration_samples_begin - first)
      throw error(errc::invalid_argument, "planted_clicks: samples", {{"first", first}, {"count", count}});
    lay_out(exec, first, count, out);
    for_each_piece(exec, count, samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      std::array<double, 1 + most_latent_dim> effects{};
      for (auto i = begin; i < end; ++i) {
        auto const sample = first + i;
        parts total;
        for (auto const f : by_block_) {
          auto const row = f * count + i;
          bag_effects(sample, f, {out.ids_.data() + out.offsets_[row], out.offsets_[row + 1] - out.offsets_[row]}, effects.data());
          total.add(block_of(f), effects.data(), centers_.data() + f * options_.latent_dim, options_.latent_dim);
        }
        float* const dense = out.dense_.data() + i * dense_features();
        auto const logit = bias_ + dense_scale_ * draw_dense(sample, [&](std::int64_t k, double x) { dense[k] = static_cast<float>(x); }) +
                           linear_scale_ * total.linear + interaction_scale_ * total.interaction();
        out.logits_[i] = static_cast<float>(logit);
        out.labels_[i] =
            detail::uniform_stream(options_.seed, static_cast<std::uint64_t>(sample), label_words)() < detail::click_probability(logit);
        out.sample_ids_[i] = sample;
      }
    });
  }

 private:
  static constexpr std::uint32_t slope_words = 0x736c6f70, dense_words = 0x64656e73, label_words = 0x6c61626c;
  // And the number of the feature, or of the block.
  static constexpr std::uint32_t length_words = 0x10000000, id_words = 0x20000000, effect_words = 0x30000000;
  static constexpr std::uint32_t class_words = 0x40000000;
  static constexpr std::int64_t samples_per_piece = 256;
  static constexpr std::int64_t calibration_samples = 1 << 14;
  static constexpr std::int64_t calibration_samples_begin = std::int64_t{1} << 62;  // behind all that `generate` returns

  // A logit's sums over features, before scaling. Features of a block are added one after the other.
  struct parts {
    double linear = 0;
    double of_blocks = 0;  // Σ_{f<g} <v_f, v_g> of the blocks before
    std::int64_t block = 0;
    double squares = 0;                         // Σ |v_f|² of the block
    std::array<double, most_latent_dim> sum{};  // Σ v_f of the block

    void add(std::int64_t of_block, double const* effects, double const* center, std::int64_t dim) noexcept {
      if (of_block != block) {
        of_blocks = interaction();
        block = of_block;
        squares = 0;
        sum = {};
      }
      linear += effects[0];
      for (std::int64_t k = 0; k < dim; ++k) {
        auto const v = effects[1 + k] - center[k];
        sum[at(k)] += v;
        squares += v * v;
      }
    }
    double interaction() const noexcept {
      double square = 0;
      for (auto const s : sum) square += s * s;
      return of_blocks + (square - squares) / 2;
    }
  };

  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  std::int64_t block_of(std::int64_t f) const noexcept { return options_.features[at(f)].block; }

  void check() const {
    auto const& o = options_;
    auto const refuse = [](char const* option, auto value) {
      throw error(errc::invalid_argument, std::string("planted_clicks: option ") + option, {{option, value}});
    };
    detail::check_planted(o, refuse);
    for (std::size_t f = 0; f < o.features.size(); ++f) {
      auto const& feature = o.features[f];
      if (feature.ids < 1 || feature.ids > zipf_distribution::most_ranks)
        throw error(errc::invalid_argument, "planted_clicks: number of ids of a feature",
                    {{"feature", f}, {"ids", feature.ids}, {"least", 1}, {"most", zipf_distribution::most_ranks}});
      if (!(feature.exponent >= 0 && feature.exponent <= zipf_distribution::most_exponent))
        throw error(errc::invalid_argument, "planted_clicks: exponent of a feature",
                    {{"feature", f}, {"exponent", feature.exponent}, {"least", 0}, {"most", zipf_distribution::most_exponent}});
      if (feature.shortest_bag < 0 || feature.longest_bag < feature.shortest_bag || feature.longest_bag > 1 << 20 ||
          !(feature.more >= 0 && feature.more <= 1))
        throw error(errc::invalid_argument, "planted_clicks: bag length of a feature",
                    {{"feature", f}, {"shortest_bag", feature.shortest_bag}, {"longest_bag", feature.longest_bag}, {"more", feature.more}});
      if (feature.block < 0 || feature.block >= 1 << 20)
        throw error(errc::invalid_argument, "planted_clicks: block of a feature", {{"feature", f}, {"block", feature.block}});
      if (o.classes > feature.ids)
        throw error(errc::invalid_argument, "planted_clicks: more classes than a feature has ids",
                    {{"feature", f}, {"ids", feature.ids}, {"classes", o.classes}});
    }
    if (o.classes < 0 || o.classes > o.latent_dim) refuse("classes", o.classes);
    if (!(o.class_share >= 0 && o.class_share <= 1)) refuse("class_share", o.class_share);
    if (o.latent_dim < 0 || o.latent_dim > most_latent_dim) refuse("latent_dim", o.latent_dim);
    if (!(o.interaction_signal >= 0 && o.interaction_signal <= 100)) refuse("interaction_signal", o.interaction_signal);
  }

  std::int64_t bag_length(std::int64_t sample, std::int64_t f) const noexcept {
    auto const& feature = options_.features[at(f)];
    if (feature.more == 1) return feature.longest_bag;
    detail::uniform_stream uniform(options_.seed, static_cast<std::uint64_t>(sample), length_words + static_cast<std::uint32_t>(f));
    auto length = feature.shortest_bag;
    while (length < feature.longest_bag && uniform() < feature.more) ++length;
    return length;
  }

  // Draws a bag's ids; effects[0]: mean weight; effects[1 …]: mean vector; before centring and scaling.
  void bag_effects(std::int64_t sample, std::int64_t f, vector_view<std::int64_t> ids, double* effects) const noexcept {
    auto const classes = options_.classes;
    std::fill_n(effects, 1 + options_.latent_dim, 0.0);
    detail::uniform_stream uniform(options_.seed, static_cast<std::uint64_t>(sample), id_words + static_cast<std::uint32_t>(f));
    auto const follows = classes > 0 && uniform() < options_.class_share;
    auto const of_block = follows ? class_of(sample, block_of(f)) : 0;
    for (auto& id : ids) {
      auto rank = ranks_[at(f)](uniform);
      if (follows) rank += of_block - rank % classes;
      if (rank >= options_.features[at(f)].ids) rank -= classes;
      id = scrambles_[at(f)](rank);
      auto const size = detail::strength_of_rank(rank, options_.head_ids, options_.tail_decay) / static_cast<double>(ids.size());
      auto const share = classes > 0 ? options_.class_share : 0;
      add_effects(static_cast<std::uint64_t>(rank), f, size, 1 - share, effects);
      if (classes > 0) effects[1 + rank % classes] += size * share;
    }
  }

  std::int64_t class_of(std::int64_t sample, std::int64_t block) const noexcept {
    detail::uniform_stream uniform(options_.seed, static_cast<std::uint64_t>(sample), class_words + static_cast<std::uint32_t>(block));
    return static_cast<std::int64_t>(uniform() * static_cast<double>(options_.classes));  // below them: uniform() <= 1 - 2^-53
  }

  // Adds what an id has as its own, uniform: a weight in ±size, a vector's elements in ±size * share.
  void add_effects(std::uint64_t rank, std::int64_t f, double size, double share, double* effects) const noexcept {
    random_block words{};
    for (std::int64_t k = 0; k <= options_.latent_dim; ++k) {
      if (k % 4 == 0) words = philox(options_.seed, rank, effect_words + static_cast<std::uint32_t>(f), static_cast<std::uint32_t>(k / 4));
      effects[k] += size * (k == 0 ? 1 : share) * static_cast<double>(uniform_symmetric(words[static_cast<int>(k % 4)], 1));
    }
  }

  // Calls out(k, x) for each dense feature; returns the dense part before scaling.
  template <class Out>
  double draw_dense(std::int64_t sample, Out const& out) const noexcept {
    detail::uniform_stream const uniform(options_.seed, static_cast<std::uint64_t>(sample), dense_words);
    auto const round = [](double x) { return std::round(x / dense_unit) * dense_unit; };
    return dense_.draw(uniform, round, out);
  }

  // Sets centers, scales and bias to what makes the options true of the calibration samples.
  void calibrate(host_exec const& exec) {
    constexpr auto n = calibration_samples;
    auto const width = 1 + options_.latent_dim;
    std::int64_t longest = 0;
    for (auto const& feature : options_.features) longest = std::max(longest, feature.longest_bag);
    buffer<double> effects(exec, n * feature_count() * width), dense(exec, n), linear(exec, n), interaction(exec, n);
    for_each_piece(exec, n, samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> ids(at(longest));
      for (auto i = begin; i < end; ++i) {
        auto const sample = calibration_samples_begin + i;
        dense[i] = draw_dense(sample, [](std::int64_t, double) {});
        for (std::int64_t f = 0; f < feature_count(); ++f)
          bag_effects(sample, f, {ids.data(), bag_length(sample, f)}, effects.data() + (i * feature_count() + f) * width);
      }
    });
    centers_.assign(at(feature_count() * options_.latent_dim), 0);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t f = 0; f < feature_count(); ++f)
        for (std::int64_t k = 0; k < options_.latent_dim; ++k)
          centers_[at(f * options_.latent_dim + k)] += effects[(i * feature_count() + f) * width + 1 + k] / n;
    for (std::int64_t i = 0; i < n; ++i) {
      parts total;
      for (auto const f : by_block_)
        total.add(block_of(f), effects.data() + (i * feature_count() + f) * width, centers_.data() + f * options_.latent_dim,
                  options_.latent_dim);
      linear[i] = total.linear;
      interaction[i] = total.interaction();
    }
    dense_scale_ = scale_to(options_.dense_signal, dense.view());
    linear_scale_ = scale_to(options_.linear_signal, linear.view());
    interaction_scale_ = scale_to(options_.interaction_signal, interaction.view());
    for (std::int64_t i = 0; i < n; ++i)
      linear[i] = dense_scale_ * dense[i] + linear_scale_ * linear[i] + interaction_scale_ * interaction[i];
    bias_ = detail::find_bias(linear.view(), options_.base_rate);
  }

  // What to multiply values with so that their standard deviation is `signal`; 0 where they are all the same.
  static double scale_to(double signal, vector_view<double const> values) noexcept {
    auto const variance = detail::variance_of(values);
    return variance > 1e-12 ? signal / std::sqrt(variance) : 0;
  }

  void lay_out(host_exec const& exec, std::int64_t first, std::int64_t count, planted_samples& out) const {
    out.dense_features_ = dense_features();
    out.dense_.resize(exec, count * dense_features());
    out.labels_.resize(exec, count);
    out.logits_.resize(exec, count);
    out.sample_ids_.resize(exec, count);
    out.offsets_.resize(exec, feature_count() * count + 1);
    out.first_row_.resize(exec, feature_count() + 1);
    for (std::int64_t f = 0; f <= feature_count(); ++f) out.first_row_[f] = f * count;
    auto const rows = feature_count() * count;
    for_each_piece(exec, rows, samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; ++row) out.offsets_[row + 1] = bag_length(first + row % count, row / count);
    });
    out.offsets_[0] = 0;
    for (std::int64_t row = 0; row < rows; ++row) out.offsets_[row + 1] += out.offsets_[row];
    out.ids_.resize(exec, out.offsets_[rows]);
  }

  planted_clicks_options options_;
  std::vector<zipf_distribution> ranks_;     // by feature
  std::vector<detail::scramble> scrambles_;  // by feature: rank to id
  std::vector<std::int64_t> by_block_;       // features, those of a block one after the other
  detail::dense_part dense_;
  std::vector<double> centers_;  // (features, latent dim): mean vectors
  double bias_ = 0, dense_scale_ = 0, linear_scale_ = 0, interaction_scale_ = 0;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
