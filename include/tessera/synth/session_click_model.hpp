// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/synth/alias_table.hpp>
#include <tessera/synth/planted_model.hpp>
#include <tessera/synth/session_options.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Returns random word i of the stream that a key names, by SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014.
template <std::integral I>
constexpr std::uint64_t random_word(std::uint64_t key, I i) noexcept {
  return mix_bits(key + (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15);
}

// Names a sample.
struct sample_stream {
  std::uint64_t session;  // the key of the session's streams
  std::int64_t number;    // the sample's number in the session
};

// Says how often an id comes and how strong its effects are. Features with the same ids and exponent share one law.
struct id_law {
  std::int64_t ids;
  alias_table table;            // draws ids; has one number alone where all ids are equally probable
  std::vector<float> strength;  // (ids,); empty where each is 1

  id_law(session_feature const& feature, session_clicks_options const& options) : ids(feature.ids), table(weights(feature, options.seed)) {
    if (feature.exponent == 0) return;
    for (auto const rank : ranks(ids, options.seed))
      strength.push_back(static_cast<float>(strength_of_rank(rank, options.head_ids, options.tail_decay)));
  }

  std::int64_t operator()(std::uint64_t bits) const noexcept {
    return strength.empty() ? static_cast<std::int64_t>(draw_below(bits, static_cast<std::uint64_t>(ids))) : table(bits);
  }
  float strength_of(std::int64_t id) const noexcept { return strength.empty() ? 1.0F : strength[static_cast<std::size_t>(id)]; }

 private:
  // Returns the rank of each id. Ranks are shuffled, so that the order of ids says nothing.
  static std::vector<std::uint32_t> ranks(std::int64_t ids, random_seed seed) {
    std::vector<std::uint32_t> rank(static_cast<std::size_t>(ids));
    std::iota(rank.begin(), rank.end(), 0U);
    shuffle(vector_view<std::uint32_t>(rank), [&](std::int64_t i) { return random_word(seed.value ^ 0x72616e6b, i); });
    return rank;
  }
  static std::vector<double> weights(session_feature const& feature, random_seed seed) {
    if (feature.exponent == 0) return {1};
    std::vector<double> weights;
    for (auto const rank : ranks(feature.ids, seed)) weights.push_back(std::pow(rank + 1.0, -feature.exponent));
    return weights;
  }
};

// Draws sessions, features and labels of session clicks, by pure functions of the options. An object never changes, so any number of threads
// may use it.
//
// A chain is a group of features, or one feature without a group. The lists of a chain depend on its count alone: the new ids since the
// session's first sample, where the count is 0. A sequence is a window, which begins at the count, of an endless stream of ids. Any other
// feature has one stream for each count, and its list is the beginning of that stream.
class session_click_model {
 public:
  static constexpr std::int64_t latent_dim = 8;
  static constexpr std::int64_t rows_per_piece = 32;
  using latent = std::array<float, latent_dim>;

  session_click_model(host_exec const& exec, session_clicks_options options) : options_(std::move(options)) {
    check_options(options_);
    target_ = target_of(options_);
    auto const seed = mix_bits(options_.seed.value);
    for (std::size_t purpose = 0; purpose < keys_.size(); ++purpose) keys_[purpose] = random_word(seed, purpose);
    for (std::int64_t k = 0; k < options_.dense_features; ++k)
      dense_.slopes.push_back(2 * uniform_double(random_word(keys_[slope_words], k)) - 1);
    dense_.bend = 0.5;
    sizes_.emplace_back(session_size_weights(options_.mean_samples, options_.spread, options_.most_samples));
    std::map<std::int64_t, std::size_t> chain_of_group;
    std::map<std::pair<std::int64_t, double>, std::size_t> known_laws;
    for (std::size_t f = 0; f < options_.features.size(); ++f) {
      auto const& feature = options_.features[f];
      auto const [group, first] =
          chain_of_group.emplace(feature.group < 0 ? -1 - static_cast<std::int64_t>(f) : feature.group, chains_.size());
      if (first)
        chains_.push_back({random_word(keys_[chain_words], group->first), static_cast<std::uint32_t>(feature.most_new),
                           static_cast<std::uint64_t>((1 - feature.stays) * 0x1p32)});
      auto const [law, is_new] = known_laws.emplace(std::pair(feature.ids, feature.exponent), laws_.size());
      if (is_new) laws_.emplace_back(feature, options_);
      features_.push_back({random_word(keys_[id_words], f), random_word(keys_[length_words], group->first),
                           random_word(keys_[effect_words], f), group->second, law->second, alias_table(length_weights(feature)),
                           feature.least_length, feature.kind == session_feature_kind::sequence});
    }
    calibrate(exec);
  }

  session_clicks_options const& options() const noexcept { return options_; }
  std::int64_t feature_count() const noexcept { return static_cast<std::int64_t>(features_.size()); }
  std::int64_t chain_count() const noexcept { return static_cast<std::int64_t>(chains_.size()); }
  std::int64_t chain_of(std::int64_t f) const noexcept { return static_cast<std::int64_t>(features_[at(f)].chain); }

  std::uint64_t session_key(std::int64_t session) const noexcept { return random_word(keys_[session_words], session); }
  std::int64_t session_id(std::int64_t session) const noexcept {
    return static_cast<std::int64_t>(random_word(keys_[id_of_session], session));
  }
  std::int64_t samples_of(std::int64_t session) const noexcept { return 1 + sizes_[0](session_key(session) ^ keys_[size_words]); }
  std::uint64_t window_word(std::int64_t window, std::int64_t i) const noexcept {
    return random_word(random_word(keys_[window_words], window), i);
  }

  // Returns by how many ids a chain changes at a sample; 0 where the chain stays. @pre the sample is not its session's first.
  std::uint32_t change(std::int64_t chain, sample_stream sample) const noexcept {
    auto const& c = chains_[at(chain)];
    auto const word = random_word(sample.session ^ c.key, sample.number);
    if (word >> 32 >= c.changes) return 0;
    return 1 + static_cast<std::uint32_t>((word & 0xFFFFFFFF) * c.most_new >> 32);
  }

  // Returns how many ids feature f has at a count of its chain.
  std::int64_t length(std::int64_t f, std::uint64_t session, std::uint32_t count) const noexcept {
    auto const& feature = features_[at(f)];
    return feature.least_length + feature.lengths(random_word(session ^ feature.length_key, feature.is_sequence ? 0 : count));
  }

  // Draws the list of feature f at a count of its chain; `ids` has the length of the list.
  void draw_ids(std::int64_t f, std::uint64_t session, std::uint32_t count, vector_view<std::int64_t> ids) const noexcept {
    auto const& law = laws_[features_[at(f)].law];
    auto const [key, first] = stream_of(f, session, count);
    for (std::int64_t k = 0; k < ids.size(); ++k) ids[k] = law(random_word(key, first + static_cast<std::uint64_t>(k)));
  }

  // Calls out(k, x) for each dense feature k, and returns the logit's dense part before scaling.
  template <class Out>
  double draw_dense(sample_stream sample, Out const& out) const noexcept {
    auto const key = random_word(sample.session ^ keys_[dense_words], sample.number);
    auto const uniform = [key, i = 0]() mutable { return uniform_double(random_word(key, i++)); };
    auto const round = [](double x) { return static_cast<float>(x); };
    return dense_.draw(uniform, round, out);
  }

  // Returns the target's latent vector at a count of its chain. The vector has length 1; rare ids make it shorter, an empty list zero.
  latent target_latent(sample_stream sample, std::uint32_t count) const noexcept {
    latent sum{};
    if (target_ < 0) return sum;
    auto const& feature = features_[at(target_)];
    auto const& law = laws_[feature.law];
    auto const [key, first] = stream_of(target_, sample.session, count);
    auto const n = length(target_, sample.session, count);
    float strength = 0, squares = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      auto const id = law(random_word(key, first + static_cast<std::uint64_t>(k)));
      auto const s = law.strength_of(id);
      auto const v = latent_of(feature.effect_key, id);
      for (std::size_t d = 0; d < v.size(); ++d) sum[d] += s * v[d];
      strength += s / static_cast<float>(n);
    }
    for (auto const x : sum) squares += x * x;
    if (squares > 0)
      for (auto& x : sum) x *= strength / std::sqrt(squares);
    return sum;
  }

  bool has_linear(std::int64_t f) const noexcept { return options_.features[at(f)].linear > 0; }
  bool has_interest(std::int64_t f) const noexcept { return target_ >= 0 && f != target_ && options_.features[at(f)].interest > 0; }
  std::int64_t target_chain() const noexcept { return target_ < 0 ? -1 : chain_of(target_); }

  // Returns the mean weight of a feature's ids before scaling; 0 for no ids.
  double linear(std::int64_t f, vector_view<std::int64_t const> ids) const noexcept {
    auto const& feature = features_[at(f)];
    double sum = 0;
    for (auto const id : ids)
      sum += static_cast<double>(laws_[feature.law].strength_of(id)) * (2 * uniform_double(random_word(feature.effect_key, id)) - 1);
    return ids.empty() ? 0 : sum / static_cast<double>(ids.size());
  }

  // Returns how similar a feature's ids are to the target, before scaling: the mean of max(0, <v(id), target>)^2. No mean of vectors
  // determines that number.
  double interest(std::int64_t f, vector_view<std::int64_t const> ids, latent const& target) const noexcept {
    auto const& feature = features_[at(f)];
    double sum = 0;
    for (auto const id : ids) {
      auto const v = latent_of(feature.effect_key, id);
      float product = 0;
      for (std::size_t k = 0; k < v.size(); ++k) product += v[k] * target[k];
      product = std::max(product, 0.0F);
      sum += static_cast<double>(laws_[feature.law].strength_of(id) * product * product);
    }
    return ids.empty() ? 0 : sum / static_cast<double>(ids.size());
  }

  double linear_scale(std::int64_t f) const noexcept { return linear_scales_[at(f)]; }
  double interest_scale(std::int64_t f) const noexcept { return interest_scales_[at(f)]; }
  double dense_scale() const noexcept { return dense_scale_; }
  double bias() const noexcept { return bias_; }
  // Draws whether the sample is clicked.
  bool label(sample_stream sample, double logit) const noexcept {
    return uniform_double(random_word(sample.session ^ keys_[label_words], sample.number)) < click_probability(logit);
  }

  std::size_t bytes() const noexcept {
    std::size_t sum = sizeof(*this) + sizes_[0].bytes();
    for (auto const& f : features_) sum += sizeof(f) + f.lengths.bytes();
    for (auto const& law : laws_) sum += law.table.bytes() + law.strength.capacity() * sizeof(float);
    return sum;
  }

 private:
  enum : std::size_t {
    session_words,
    id_of_session,
    size_words,
    window_words,
    chain_words,
    length_words,
    id_words,
    effect_words,
    dense_words,
    slope_words,
    label_words,
    purposes
  };

  struct chain {
    std::uint64_t key;
    std::uint32_t most_new;
    std::uint64_t changes;  // the probability of a change, times 2^32
  };
  struct drawn_feature {
    std::uint64_t id_key, length_key, effect_key;
    std::size_t chain, law;
    alias_table lengths;  // draws a length less least_length
    std::int64_t least_length;
    bool is_sequence;
  };

  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  // Returns the key of the stream that has the list's ids, and the number of the first word.
  std::pair<std::uint64_t, std::uint64_t> stream_of(std::int64_t f, std::uint64_t session, std::uint32_t count) const noexcept {
    auto const& feature = features_[at(f)];
    auto const key = mix_bits(session ^ feature.id_key);
    if (feature.is_sequence) return {key, count};
    return {random_word(key, count), 0};
  }

  // Returns the latent vector of an id, each element uniform in [-1, 1).
  static latent latent_of(std::uint64_t key, std::int64_t id) noexcept {
    latent v;
    auto low = random_word(~key, 2 * id), high = random_word(~key, 2 * id + 1);
    for (std::size_t k = 0; k < 4; ++k) {
      v[k] = static_cast<float>(static_cast<std::int16_t>(low >> 16 * k)) * 0x1p-15F;
      v[k + 4] = static_cast<float>(static_cast<std::int16_t>(high >> 16 * k)) * 0x1p-15F;
    }
    return v;
  }

  // Sets scales and bias so that signals and base rate are those of the options. Measures them on first samples of sessions that no log has.
  void calibrate(host_exec const& exec) {
    constexpr std::int64_t n = 1 << 12, first_session = std::int64_t{1} << 62;
    auto const features = feature_count();
    buffer<double> dense(exec, n), linears(exec, features * n), interests(exec, features * n), logits(exec, n);
    for_each_piece(exec, n, rows_per_piece, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> ids;
      for (auto i = begin; i < end; ++i) {
        sample_stream const sample{session_key(first_session + i), 0};
        dense[i] = draw_dense(sample, [](std::int64_t, float) {});
        auto const target = target_latent(sample, 0);
        for (std::int64_t f = 0; f < features; ++f) {
          linears[f * n + i] = interests[f * n + i] = 0;
          if (!has_linear(f) && !has_interest(f)) continue;
          ids.resize(at(length(f, sample.session, 0)));
          draw_ids(f, sample.session, 0, ids);
          if (has_linear(f)) linears[f * n + i] = linear(f, ids);
          if (has_interest(f)) interests[f * n + i] = interest(f, ids, target);
        }
      }
    });
    std::fill(logits.begin(), logits.end(), 0.0);
    dense_scale_ = options_.dense_signal * one_over_deviation(dense.view());
    for (std::int64_t i = 0; i < n; ++i) logits[i] = dense_scale_ * dense[i];
    linear_scales_ = scale_to(exec, options_.linear_signal, linears.view(), logits.view(), &session_feature::linear);
    interest_scales_ = scale_to(exec, options_.interest_signal, interests.view(), logits.view(), &session_feature::interest);
    bias_ = find_bias(logits.view(), options_.base_rate);
  }

  // Returns a factor for each feature's values (features, samples): features get their shares, and the sum the deviation `signal`. Adds the
  // sum to the logits (samples,).
  std::vector<double> scale_to(host_exec const& exec, double signal, vector_view<double const> values, vector_view<double> logits,
                               double session_feature::*share) const {
    auto const n = logits.size();
    std::vector<double> scales;
    buffer<double> sums(exec, n);
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t f = 0; f < feature_count(); ++f) {
      auto const of_feature = values.slice(f * n, n);
      scales.push_back(options_.features[at(f)].*share * one_over_deviation(of_feature));
      for (std::int64_t i = 0; i < n; ++i) sums[i] += scales.back() * of_feature[i];
    }
    auto const scale = signal * one_over_deviation(sums.view());
    for (auto& s : scales) s *= scale;
    for (std::int64_t i = 0; i < n; ++i) logits[i] += scale * sums[i];
    return scales;
  }

  // Returns 0 where all values are the same.
  static double one_over_deviation(vector_view<double const> values) noexcept {
    auto const variance = variance_of(values);
    return variance > 1e-20 ? 1 / std::sqrt(variance) : 0;
  }

  session_clicks_options options_;
  std::int64_t target_ = -1;
  std::array<std::uint64_t, purposes> keys_{};
  std::vector<alias_table> sizes_;  // one table, which draws a session's samples less one
  std::vector<chain> chains_;
  std::vector<drawn_feature> features_;
  std::vector<id_law> laws_;
  dense_part dense_;
  std::vector<double> linear_scales_, interest_scales_;  // by feature
  double dense_scale_ = 0, bias_ = 0;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
