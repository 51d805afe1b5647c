// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/preprocessing_file.hpp>
#include <tessera/data/preprocessing_fit.hpp>
#include <tessera/data/rules_file.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline std::string fit_tensor(char const* what, std::size_t column) { return std::string(what) + "." + std::to_string(column); }

template <class T>
std::vector<T> read_tensor(safetensors_reader const& in, std::string const& name) {
  std::vector<T> values(static_cast<std::size_t>(in.at(name).elements()));
  in.read(name, 0, vector_view(values));
  return values;
}

}  // namespace detail

/// Writes what a fit knows so far as a safetensors file. Another process can then merge it, or this process go on later.
/// @post `load_preprocessing_fit` gives a fit that comes to the same preprocessing.
/// @throws tessera::error io_error; invalid_argument for a name that is not UTF-8.
inline void save_preprocessing_fit(std::string const& path, preprocessing_fit const& fit) {
  auto dense = nlohmann::json::array(), sparse = nlohmann::json::array();
  std::vector<safetensors_tensor> tensors;
  std::vector<std::vector<std::uint64_t>> keys(fit.dense().size());
  std::vector<std::vector<double>> values(fit.dense().size());
  for (std::size_t c = 0; c < fit.dense().size(); ++c) {
    auto const& column = fit.dense()[c];
    dense.push_back({{"present", column.present},
                     {"count", column.numbers.count},
                     {"sum", column.numbers.sum.parts()},
                     {"squares", column.numbers.squares.parts()}});
    if (column.sample.empty()) continue;
    for (auto const& e : column.sample[0].entries()) {
      keys[c].push_back(e.key);
      values[c].push_back(e.value);
    }
    auto const n = static_cast<std::int64_t>(keys[c].size());
    tensors.push_back({detail::fit_tensor("sample.keys", c), safetensors_dtype::u64, {n}});
    tensors.push_back({detail::fit_tensor("sample.values", c), safetensors_dtype::f64, {n}});
  }
  for (std::size_t c = 0; c < fit.sparse().size(); ++c) {
    auto const& column = fit.sparse()[c];
    auto const unheld = column.counts.empty() ? 0 : column.counts[0].unheld();
    sparse.push_back({{"present", column.present}, {"unheld", unheld}});
    if (column.counts.empty()) continue;
    auto const n = column.counts[0].size();
    tensors.push_back({detail::fit_tensor("values", c), safetensors_dtype::i64, {n}});
    tensors.push_back({detail::fit_tensor("counts", c), safetensors_dtype::i64, {n}});
    if (column.counts[0].limit() > 0) tensors.push_back({detail::fit_tensor("missed", c), safetensors_dtype::i64, {n}});
  }
  nlohmann::json const described{
      {"preprocessing", detail::json_of(fit.unfitted())},           {"first-row", fit.first_row()}, {"rows", fit.rows()},
      {"quantile-sample-size", fit.options().quantile_sample_size}, {"dense", std::move(dense)},    {"sparse", std::move(sparse)}};
  safetensors_writer out(path, std::move(tensors), {{"fit", print_json(described, path)}});
  for (std::size_t c = 0; c < fit.dense().size(); ++c) {
    if (fit.dense()[c].sample.empty()) continue;
    out.append(detail::fit_tensor("sample.keys", c), vector_view<std::uint64_t const>(keys[c]));
    out.append(detail::fit_tensor("sample.values", c), vector_view<double const>(values[c]));
  }
  for (std::size_t c = 0; c < fit.sparse().size(); ++c) {
    if (fit.sparse()[c].counts.empty()) continue;
    auto const& counts = fit.sparse()[c].counts[0];
    out.append(detail::fit_tensor("values", c), counts.values());
    out.append(detail::fit_tensor("counts", c), counts.counts());
    if (counts.limit() > 0) out.append(detail::fit_tensor("missed", c), counts.missed());
  }
  out.finish();
}

/// Reads what `save_preprocessing_fit` wrote. The counts are in `exec`'s memory, which outlives the fit.
/// @throws tessera::error io_error; corrupt_file, parse_error, incompatible or invalid_argument naming file and what is wrong.
inline preprocessing_fit load_preprocessing_fit(host_exec const& exec, std::string const& path) {
  safetensors_reader const in(path);
  auto const text = detail::json_in_metadata(in, "fit");
  return detail::naming_file(path, [&] {
    detail::placed_json const described(text, path + ", fit");
    described.allow({"preprocessing", "first-row", "rows", "quantile-sample-size", "dense", "sparse"});
    auto const unfitted =
        detail::preprocessing_of(exec, described.at("preprocessing"), [](std::size_t) { return std::vector<std::int64_t>{}; });
    preprocessing_fit fit(unfitted, {.first_row = described.at("first-row").integer(),
                                     .quantile_sample_size = described.at("quantile-sample-size").integer()});
    std::vector<dense_column_fit> dense;
    for (auto const& column : described.at("dense").items()) {
      auto const c = dense.size();
      column.allow({"present", "count", "sum", "squares"});
      auto& to = dense.emplace_back();
      to.present = column.at("present").integer();
      to.numbers.count = column.at("count").integer();
      for (auto const& part : column.at("sum").items()) to.numbers.sum.add(part.number());
      for (auto const& part : column.at("squares").items()) to.numbers.squares.add(part.number());
      if (in.find(detail::fit_tensor("sample.keys", c)) == nullptr) continue;
      auto const keys = detail::read_tensor<std::uint64_t>(in, detail::fit_tensor("sample.keys", c));
      auto const values = detail::read_tensor<double>(in, detail::fit_tensor("sample.values", c));
      if (keys.size() != values.size())
        throw error(errc::incompatible, "preprocessing_fit: a sample with as many keys as values",
                    {{"file", path}, {"column", c}, {"keys", keys.size()}, {"values", values.size()}});
      std::vector<quantile_sample::entry> entries;
      for (std::size_t i = 0; i < keys.size(); ++i) entries.push_back({keys[i], values[i]});
      to.sample.emplace_back(fit.options().quantile_sample_size, std::move(entries));
    }
    std::vector<sparse_column_fit> sparse;
    for (auto const& column : described.at("sparse").items()) {
      auto const c = sparse.size();
      column.allow({"present", "unheld"});
      auto& to = sparse.emplace_back();
      to.present = column.at("present").integer();
      if (in.find(detail::fit_tensor("values", c)) == nullptr) continue;
      auto const values = detail::read_tensor<std::int64_t>(in, detail::fit_tensor("values", c));
      auto const counts = detail::read_tensor<std::int64_t>(in, detail::fit_tensor("counts", c));
      std::vector<std::int64_t> missed;
      auto const limit = c < fit.sparse().size() && !fit.sparse()[c].counts.empty() ? fit.sparse()[c].counts[0].limit() : 0;
      if (limit > 0) missed = detail::read_tensor<std::int64_t>(in, detail::fit_tensor("missed", c));
      to.counts.push_back(value_counts::from_parts(exec, limit, values, counts, missed, column.at("unheld").integer()));
    }
    fit.restore(described.at("rows").integer(), std::move(dense), std::move(sparse));
    return fit;
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
