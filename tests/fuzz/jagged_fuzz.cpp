// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Batches of any row counts and offsets: `validate` says which are sound. The others are refused by every operation and lookup; of a sound one,
// a chain of operations gives what is written here row by row, and a lookup and its backward what sums in double precision give.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/memory_adaptors.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/sequence_lookup.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/padded.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/transform_ids.hpp>
#include <tessera/tensor/truncate_rows.hpp>

#include "fuzz_support.hpp"
#include "jagged_model.hpp"

using fuzz::batch_view;
using fuzz::number_source;
using fuzz::plain_batch;
using fuzz::plain_row;
using fuzz::require;
using fuzz::rows_of;
using tessera::host_exec;

namespace {

using batch = tessera::keyed_jagged<>;

template <class F>
bool is_refused(F const& f) {
  try {
    f();
    return false;
  } catch (tessera::error const& e) {
    require(e.code() != tessera::errc::out_of_memory, "memory suffices for small batches");
    return true;
  }
}

std::vector<std::int64_t> take_numbers(number_source& from, std::int64_t most, std::int64_t least_value, std::int64_t bound) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(from.below(most + 1)));
  for (auto& number : numbers) number = least_value + from.below(bound - least_value);
  return numbers;
}

// What an operation makes of a batch, on both sides; nothing where it is refused.
using expected = std::optional<plain_batch>;

template <class F>
expected for_each_key(plain_batch const& in, F const& f) {
  plain_batch out;
  for (std::size_t key = 0; key < in.size(); ++key)
    if (!f(key, out.emplace_back())) return std::nullopt;
  return out;
}

plain_row part(plain_row const& row, std::size_t first, std::size_t last) {
  auto const cut = [&](auto const& all) {
    return all.empty() ? all
                       : std::remove_cvref_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                                            all.begin() + static_cast<std::ptrdiff_t>(last));
  };
  return {cut(row.ids), cut(row.weights)};
}

void push(plain_row& to, plain_row const& from, std::size_t i) {
  to.ids.push_back(from.ids[i]);
  if (!from.weights.empty()) to.weights.push_back(from.weights[i]);
}

// One operation on a batch: `run` is refused, or its result is `expected`. Nothing where the operation left the batch as it was.
class operation {
 public:
  operation(host_exec const& exec, batch_view in, plain_batch const& model, number_source& from)
      : exec_(exec), in_(in), model_(model), from_(from) {}

  std::optional<batch> apply(plain_batch& result) {
    switch (from_.below(10)) {
      case 0: return permute(result);
      case 1: return slice(result);
      case 2: return select(result);
      case 3: return truncate(result);
      case 4: return concat_rows_of(result);
      case 5: return concat_keys_of(result);
      case 6: return bucketize(result);
      case 7: return deduplicate(result);
      case 8: return mask(result);
      default: return transform(result);
    }
  }

  // Nothing of an unsound view may be read or copied.
  void refuse_all() {
    auto const key_count = in_.keys;
    std::vector<std::int64_t> order(static_cast<std::size_t>(key_count));
    for (std::int64_t key = 0; key < key_count; ++key) order[static_cast<std::size_t>(key)] = key;
    std::vector<std::int64_t> const first_row{0};
    std::vector<std::uint8_t> const flags(static_cast<std::size_t>(in_.room), 1);
    std::array<batch_view, 2> const twice{in_, in_};
    require(is_refused([&] { tessera::permute_keys(exec_, in_, order); }), "permute_keys refuses an unsound batch");
    require(is_refused([&] { tessera::slice_rows(exec_, in_, 0, 1); }), "slice_rows refuses an unsound batch");
    require(is_refused([&] { tessera::select_rows(exec_, in_, first_row); }), "select_rows refuses an unsound batch");
    require(is_refused([&] { tessera::truncate_rows(exec_, in_, 2, tessera::kept_values::first); }),
            "truncate_rows refuses an unsound batch");
    require(is_refused([&] { tessera::concat_rows(exec_, twice); }), "concat_rows refuses an unsound batch");
    require(is_refused([&] { tessera::concat_keys(exec_, twice); }), "concat_keys refuses an unsound batch");
    require(is_refused([&] { tessera::bucketize(exec_, in_, 3, tessera::hashed_buckets{}); }), "bucketize refuses an unsound batch");
    require(is_refused([&] { tessera::deduplicate(exec_, in_, order); }), "deduplicate refuses an unsound batch");
    require(is_refused([&] { tessera::masked_select(exec_, in_, flags); }), "masked_select refuses an unsound batch");
  }

 private:
  template <class F>
  std::optional<batch> compare(expected const& wanted, plain_batch& result, F const& run) {
    std::optional<batch> found;
    bool const refused = is_refused([&] { found = run(); });
    require(refused == !wanted.has_value(), "an operation is refused where its arguments do not fit, and only there");
    if (refused) return std::nullopt;
    auto const view = std::as_const(*found).view();
    tessera::validate(view, found->room());
    require(fuzz::plain(view) == *wanted, "an operation gives the rows that it should");
    result = *wanted;
    return found;
  }

  std::optional<batch> permute(plain_batch& result) {
    auto const order = take_numbers(from_, 6, -1, in_.keys + 1);
    expected wanted(std::in_place);
    for (auto const key : order) {
      if (key < 0 || key >= in_.keys) {
        wanted.reset();
        break;
      }
      wanted->push_back(model_[static_cast<std::size_t>(key)]);
    }
    return compare(wanted, result, [&] { return tessera::permute_keys(exec_, in_, order); });
  }

  std::optional<batch> slice(plain_batch& result) {
    auto const first = from_.below(6) - 1, count = from_.below(6) - 1;
    auto const wanted = for_each_key(model_, [&](std::size_t key, std::vector<plain_row>& out) {
      if (first < 0 || count < 0 || first + count > rows_of(model_, key)) return false;
      out.assign(model_[key].begin() + first, model_[key].begin() + first + count);
      return true;
    });
    return compare(wanted, result, [&] { return tessera::slice_rows(exec_, in_, first, count); });
  }

  std::optional<batch> select(plain_batch& result) {
    auto const indices = take_numbers(from_, 8, -1, 8);
    auto const wanted = for_each_key(model_, [&](std::size_t key, std::vector<plain_row>& out) {
      for (auto const row : indices) {
        if (row < 0 || row >= rows_of(model_, key)) return false;
        out.push_back(model_[key][static_cast<std::size_t>(row)]);
      }
      return true;
    });
    return compare(wanted, result, [&] { return tessera::select_rows(exec_, in_, indices); });
  }

  std::optional<batch> truncate(plain_batch& result) {
    auto const most = from_.below(7) - 1;
    auto const kept = from_.below(2) == 0 ? tessera::kept_values::first : tessera::kept_values::last;
    if (most < 0) return compare(std::nullopt, result, [&] { return tessera::truncate_rows(exec_, in_, most, kept); });
    auto const wanted = for_each_key(model_, [&](std::size_t key, std::vector<plain_row>& out) {
      for (auto const& row : model_[key]) {
        auto const size = row.ids.size(), length = std::min(size, static_cast<std::size_t>(most));
        out.push_back(kept == tessera::kept_values::first ? part(row, 0, length) : part(row, size - length, size));
      }
      return true;
    });
    return compare(wanted, result, [&] { return tessera::truncate_rows(exec_, in_, most, kept); });
  }

  std::optional<batch> concat_rows_of(plain_batch& result) {
    auto wanted = model_;
    for (std::size_t key = 0; key < wanted.size(); ++key) wanted[key].insert(wanted[key].end(), model_[key].begin(), model_[key].end());
    std::array<batch_view, 2> const twice{in_, in_};
    return compare(wanted, result, [&] { return tessera::concat_rows(exec_, twice); });
  }

  std::optional<batch> concat_keys_of(plain_batch& result) {
    auto wanted = model_;
    wanted.insert(wanted.end(), model_.begin(), model_.end());
    std::array<batch_view, 2> const twice{in_, in_};
    return compare(wanted, result, [&] { return tessera::concat_keys(exec_, twice); });
  }

  std::optional<batch> bucketize(plain_batch& result) {
    auto const buckets = from_.below(5), block = from_.below(6);
    auto const outside = from_.below(2) == 0 ? tessera::outside_blocks::refuse : tessera::outside_blocks::spread;
    std::vector<std::int64_t> positions(static_cast<std::size_t>(in_.size()));
    auto const run = [&] {
      return tessera::bucketize(exec_, in_, buckets, tessera::block_buckets{.block_size = block, .outside = outside}, positions);
    };
    if (buckets == 0 || block == 0) return compare(std::nullopt, result, run);
    expected wanted(std::in_place, model_.size() * static_cast<std::size_t>(buckets));
    for (std::size_t key = 0; key < model_.size() && wanted; ++key)
      for (auto const& row : model_[key]) {
        for (std::size_t bucket = 0; bucket < static_cast<std::size_t>(buckets) && wanted; ++bucket)
          (*wanted)[bucket * model_.size() + key].emplace_back();
        for (std::size_t i = 0; i < row.ids.size() && wanted; ++i) {
          auto const id = row.ids[i];
          bool const inside = id >= 0 && id < buckets * block;
          if (!inside && outside == tessera::outside_blocks::refuse) {
            wanted.reset();
            break;
          }
          auto const bits = static_cast<std::uint64_t>(id), count = static_cast<std::uint64_t>(buckets);
          auto const bucket = static_cast<std::size_t>(inside ? bits / static_cast<std::uint64_t>(block) : bits % count);
          auto& to = (*wanted)[bucket * model_.size() + key].back();
          push(to, row, i);
          to.ids.back() = inside ? id % block : static_cast<std::int64_t>(bits / count);
        }
        if (!wanted) break;
      }
    auto found = compare(wanted, result, run);
    if (found && in_.weighted()) {
      auto const view = std::as_const(*found).view();
      for (std::size_t i = 0; i < positions.size(); ++i)
        require(view.weights[positions[i]] == in_.weights[in_.first_value() + static_cast<std::int64_t>(i)],
                "positions say where a value went");
    }
    return found;
  }

  // Samples that are alike have one row in each group, and expanding gives the batch again.
  std::optional<batch> deduplicate(plain_batch& result) {
    auto const sizes = take_numbers(from_, 3, 0, 4);
    bool fits = true;
    std::int64_t grouped = 0;
    for (auto const size : sizes) fits = fits && size > 0 && (grouped += size) <= in_.keys;
    for (auto const& rows : model_) fits = fits && rows.size() == model_[0].size();
    auto const wanted = fits ? expected(model_) : std::nullopt;
    return compare(wanted, result, [&] {
      auto const once = tessera::deduplicate(exec_, in_, sizes);
      auto const view = once.view();
      tessera::validate(view, once.distinct().room());
      for (auto const& group : view.groups) {
        auto const distinct = fuzz::plain(view.rows_of(group));
        std::int64_t seen = 0;
        for (std::int64_t sample = 0; sample < view.samples; ++sample) {
          require(group.inverse[sample] <= seen, "distinct rows stand in the order of their first sample");
          seen = std::max(seen, group.inverse[sample] + 1);
        }
        require(seen == view.rows(group), "each distinct row has a sample");
        for (std::int64_t a = 0; a < seen; ++a)
          for (std::int64_t b = a + 1; b < seen; ++b) {
            bool same = true;
            for (auto const& rows : distinct) same = same && rows[static_cast<std::size_t>(a)] == rows[static_cast<std::size_t>(b)];
            require(!same, "distinct rows differ");
          }
      }
      return tessera::expand(exec_, once.view());
    });
  }

  std::optional<batch> mask(plain_batch& result) {
    std::vector<std::uint8_t> flags(static_cast<std::size_t>(in_.size() + (from_.below(32) == 0 ? 1 : 0)));
    for (auto& flag : flags) flag = static_cast<std::uint8_t>(from_.below(3));
    auto const fits = static_cast<std::int64_t>(flags.size()) == in_.size();
    std::size_t next = 0;
    auto const wanted = for_each_key(model_, [&](std::size_t key, std::vector<plain_row>& out) {
      for (auto const& row : model_[key]) {
        auto& to = out.emplace_back();
        for (std::size_t i = 0; i < row.ids.size(); ++i)
          if (flags[next++] != 0) push(to, row, i);
      }
      return true;
    });
    return compare(fits ? wanted : std::nullopt, result, [&] { return tessera::masked_select(exec_, in_, flags); });
  }

  std::optional<batch> transform(plain_batch& result) {
    auto const f = [](std::int64_t key, std::int64_t id) { return id ^ key; };
    auto wanted = model_;
    for (std::size_t key = 0; key < wanted.size(); ++key)
      for (auto& row : wanted[key])
        for (auto& id : row.ids) id = f(static_cast<std::int64_t>(key), id);
    return compare(wanted, result, [&] {
      std::array<batch_view, 1> const once{in_};
      auto copy = tessera::concat_keys(exec_, once);
      tessera::transform_ids(exec_, copy.view(), f);
      return copy;
    });
  }

  host_exec const& exec_;
  batch_view in_;
  plain_batch const& model_;
  number_source& from_;
};

// Each key's rows as a matrix, and back as far as they fit.
void check_padding(host_exec const& exec, batch_view in, plain_batch const& model, number_source& from) {
  auto const columns = from.below(6);
  auto const kept = from.below(2) == 0 ? tessera::kept_values::first : tessera::kept_values::last;
  for (std::int64_t key = 0; key < in.keys; ++key) {
    auto const& rows = model[static_cast<std::size_t>(key)];
    std::vector<std::int64_t> padded(rows.size() * static_cast<std::size_t>(columns), 7), lengths;
    tessera::matrix_view<std::int64_t> const matrix{padded.data(), static_cast<std::int64_t>(rows.size()), columns, columns};
    tessera::to_padded(exec, in.key(key), matrix, -5, kept);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      auto const& ids = rows[row].ids;
      auto const length = std::min(ids.size(), static_cast<std::size_t>(columns));
      lengths.push_back(static_cast<std::int64_t>(length));
      auto const* const first = ids.data() + (kept == tessera::kept_values::first ? 0 : ids.size() - length);
      auto const* const out = padded.data() + row * static_cast<std::size_t>(columns);
      require(std::equal(first, first + length, out), "to_padded copies what it keeps");
      require(std::all_of(out + length, out + columns, [](auto id) { return id == -5; }), "to_padded pads the rest");
    }
    auto const again = tessera::from_padded(exec, matrix, lengths);
    auto const wanted = tessera::truncate_rows(exec, in.key(key), columns, kept);
    require(equal(again.view(), wanted.view()), "from_padded takes back what to_padded wrote");
  }
}

using table = tessera::dense_table<float>;
constexpr std::int64_t table_rows = 12;
constexpr float learning_rate = 0.5F;

struct matrices {
  std::vector<std::vector<float>> storage;
  std::vector<tessera::matrix_view<float>> out;
  std::vector<tessera::matrix_view<float const>> in;

  void add(std::int64_t rows, std::int64_t dim) {
    storage.emplace_back(static_cast<std::size_t>(rows * dim), -9.0F);
    out.push_back({storage.back().data(), rows, dim, dim});
    in.push_back(out.back());
  }
};

// Sums of few products of small numbers: what floats may differ by from doubles.
void require_near(float found, double wanted, double magnitude, char const* what) {
  require(std::abs(static_cast<double>(found) - wanted) <= 1e-5 * (1 + magnitude), what);
}

// Two tables, the features over them in turn; the same lookup by hand.
class lookup {
 public:
  lookup(host_exec const& exec, batch_view in, plain_batch const& model, number_source& from) : exec_(exec), in_(in), model_(model) {
    std::int64_t const dims[] = {1, 3, 4, 8, 17};
    for (std::int64_t t = 0; t < 2; ++t) {
      tables_.emplace_back(
          exec,
          tessera::table_options{
              .id = tessera::table_id(t), .dim = dims[from.below(5)], .rows = table_rows, .init_bound = 1, .seed = tessera::random_seed(3)},
          optimizer_);
      auto const weights = std::as_const(tables_.back()).weights();
      before_.emplace_back(weights.data(), weights.data() + table_rows * tables_.back().dim());
    }
    for (std::int64_t key = 0; key < in.keys; ++key) {
      features_.push_back({.table = key % 2, .pooling = static_cast<tessera::pooling>(from.below(3))});
      sequence_features_.push_back(key % 2);
    }
    options_.out_of_range = from.below(2) == 0 ? tessera::out_of_range_ids::refuse : tessera::out_of_range_ids::zero;
    pooled_ = from.below(2) == 0;
    for (auto& change : gradient_) change = static_cast<float>(from.take<std::int8_t>()) / 64;
  }

  void refuse() {
    matrices none;
    for (std::int64_t key = 0; key < in_.keys; ++key) none.add(4, tables_[static_cast<std::size_t>(key % 2)].dim());
    tessera::lookup_saved saved;
    require(is_refused([&] { tessera::pooled_lookup(exec_, tables_, features_, in_, none.out, saved); }),
            "pooled_lookup refuses an unsound batch");
    require(is_refused([&] { tessera::sequence_lookup(exec_, tables_, sequence_features_, in_, none.out, saved); }),
            "sequence_lookup refuses an unsound batch");
  }

  void check() {
    std::int64_t lacking = 0;
    bool maximum = false;
    for (std::size_t key = 0; key < model_.size(); ++key) {
      maximum = maximum || features_[key].is_largest();
      for (auto const& row : model_[key])
        for (auto const id : row.ids) lacking += id < 0 || id >= table_rows;
    }
    std::int64_t counted = 0;
    options_.out_of_range_count = &counted;
    bool const fits = (lacking == 0 || options_.out_of_range == tessera::out_of_range_ids::zero) && !(pooled_ && maximum && in_.weighted());
    tessera::lookup_saved saved;
    matrices vectors;
    for (std::size_t key = 0; key < model_.size(); ++key) {
      auto rows = rows_of(model_, key);
      if (!pooled_) rows = in_.key(static_cast<std::int64_t>(key)).size();
      vectors.add(rows, table_of(key).dim());
    }
    bool const refused = is_refused([&] {
      if (pooled_)
        tessera::pooled_lookup(exec_, tables_, features_, in_, vectors.out, saved, options_);
      else
        tessera::sequence_lookup(exec_, tables_, sequence_features_, in_, vectors.out, saved, options_);
    });
    require(refused == !fits, "a lookup is refused for ids out of range and weighted maxima, and only for these");
    if (refused) return;
    if (options_.out_of_range == tessera::out_of_range_ids::zero) require(counted == lacking, "ids out of range are counted");

    for (auto const& t : before_) wanted_.emplace_back(t.begin(), t.end());
    for (auto const& t : before_) magnitude_.emplace_back(t.size(), 1.0);
    matrices gradients;
    for (auto const& matrix : vectors.out) gradients.add(matrix.rows(), matrix.columns());
    for (std::size_t key = 0; key < model_.size(); ++key) {
      fill(gradients.out[key]);
      if (pooled_)
        compare_pooled(key, vectors.in[key], gradients.in[key]);
      else
        compare_sequence(key, vectors.in[key], gradients.in[key]);
    }
    if (pooled_)
      tessera::pooled_lookup_backward(exec_, tables_, features_, saved, gradients.in, optimizer_);
    else
      tessera::sequence_lookup_backward(exec_, tables_, sequence_features_, saved, gradients.in, optimizer_);
    for (std::size_t t = 0; t < tables_.size(); ++t)
      for (std::size_t i = 0; i < wanted_[t].size(); ++i)
        require_near(tables_[t].weights().data()[i], wanted_[t][i], magnitude_[t][i], "a backward moves the rows as it should");
  }

 private:
  table const& table_of(std::size_t key) const noexcept { return tables_[key % 2]; }

  void fill(tessera::matrix_view<float> out) {
    for (std::int64_t row = 0; row < out.rows(); ++row)
      for (std::int64_t c = 0; c < out.columns(); ++c) out(row, c) = gradient_[next_++ % std::size(gradient_)];
  }

  // The element of a row as it was before, 0 of a row that is not there.
  double element(std::size_t key, std::int64_t id, std::int64_t c) const {
    if (id < 0 || id >= table_rows) return 0;
    return static_cast<double>(before_[key % 2][static_cast<std::size_t>(id * table_of(key).dim() + c)]);
  }
  void descend(std::size_t key, std::int64_t id, std::int64_t c, double gradient) {
    if (id < 0 || id >= table_rows) return;
    auto const at = static_cast<std::size_t>(id * table_of(key).dim() + c);
    wanted_[key % 2][at] -= static_cast<double>(learning_rate) * gradient;
    magnitude_[key % 2][at] += std::abs(gradient);
  }

  void compare_pooled(std::size_t key, tessera::matrix_view<float const> found, tessera::matrix_view<float const> gradient) {
    for (std::int64_t r = 0; r < found.rows(); ++r) {
      auto const& row = model_[key][static_cast<std::size_t>(r)];
      auto const count = row.ids.size();
      for (std::int64_t c = 0; c < found.columns(); ++c) {
        auto const change = static_cast<double>(gradient(r, c));
        if (features_[key].is_largest()) {
          std::size_t winner = 0;
          for (std::size_t i = 1; i < count; ++i)
            if (element(key, row.ids[i], c) > element(key, row.ids[winner], c)) winner = i;
          require_near(found(r, c), count == 0 ? 0 : element(key, row.ids[winner], c), 0, "a maximum is the largest");
          if (count > 0) descend(key, row.ids[winner], c, change);
          continue;
        }
        double const scale = features_[key].pooling == tessera::pooling::mean && count > 0 ? 1 / static_cast<double>(count) : 1;
        double sum = 0, magnitude = 0;
        for (std::size_t i = 0; i < count; ++i) {
          double const weight = row.weights.empty() ? 1 : static_cast<double>(row.weights[i]);
          sum += weight * element(key, row.ids[i], c);
          magnitude += std::abs(weight);
          descend(key, row.ids[i], c, scale * weight * change);
        }
        require_near(found(r, c), scale * sum, magnitude, "a bag's vector is its sum or mean");
      }
    }
  }

  void compare_sequence(std::size_t key, tessera::matrix_view<float const> found, tessera::matrix_view<float const> gradient) {
    std::int64_t at = 0;
    for (auto const& row : model_[key])
      for (auto const id : row.ids) {
        for (std::int64_t c = 0; c < found.columns(); ++c) {
          require_near(found(at, c), element(key, id, c), 0, "an id's vector is its row");
          descend(key, id, c, static_cast<double>(gradient(at, c)));
        }
        ++at;
      }
  }

  host_exec const& exec_;
  batch_view in_;
  plain_batch const& model_;
  tessera::sgd optimizer_{learning_rate};
  std::vector<table> tables_;
  std::vector<tessera::pooled_feature> features_;
  std::vector<std::int64_t> sequence_features_;
  tessera::lookup_options options_;
  bool pooled_ = false;
  float gradient_[7] = {};
  std::size_t next_ = 0;
  std::vector<std::vector<float>> before_;
  std::vector<std::vector<double>> wanted_, magnitude_;
};

bool is_valid(batch_view view) {
  return !is_refused([&] { tessera::validate(view, view.room); });
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  number_source from(fuzz::text_of(data, size));
  tessera::serial_team team;
  tessera::system_memory system;
  tessera::limited_memory memory(system, std::size_t{1} << 28);
  host_exec const exec(team, memory);

  auto const loose = fuzz::take_batch(from);
  require(is_valid(loose.view()) == loose.is_valid(), "validate says which batches are sound");
  if (!loose.is_valid()) {
    plain_batch const none;
    operation(exec, loose.view(), none, from).refuse_all();
    lookup(exec, loose.view(), none, from).refuse();
    return 0;
  }

  auto view = loose.view();
  auto model = fuzz::plain(view);
  std::vector<batch> results;  // what `view` shows last
  for (auto steps = from.below(7); steps > 0 && view.size() < 1000 && view.keys < 20; --steps) {
    plain_batch result;
    auto made = operation(exec, view, model, from).apply(result);
    if (!made) continue;
    results.push_back(std::move(*made));
    view = std::as_const(results.back()).view();
    model = std::move(result);
  }
  check_padding(exec, view, model, from);
  lookup(exec, view, model, from).check();
  return 0;
}
