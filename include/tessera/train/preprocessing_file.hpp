// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
inline std::string vocabulary_tensor(std::size_t feature) { return "vocabulary." + std::to_string(feature); }
}  // namespace detail

/// Writes a fitted preprocessing as `preprocessing.safetensors`: `dense_columns`, `dense_means`, `dense_deviations`, `sparse_columns`,
/// `vocabulary.<sparse feature>`, and the options as metadata. @throws tessera::error io_error.
inline manifest_section save_preprocessing(std::string const& folder, preprocessing const& fitted) {
  auto const& state = fitted.state();
  auto const length = [](auto const& v) { return std::vector<std::int64_t>{static_cast<std::int64_t>(v.size())}; };
  std::vector<safetensors_tensor> tensors{{"dense_columns", safetensors_dtype::i64, length(state.dense_columns)},
                                          {"dense_means", safetensors_dtype::f64, length(state.dense_means)},
                                          {"dense_deviations", safetensors_dtype::f64, length(state.dense_deviations)},
                                          {"sparse_columns", safetensors_dtype::i64, length(state.sparse_columns)}};
  for (std::size_t f = 0; f < state.vocabularies.size(); ++f)
    tensors.push_back({detail::vocabulary_tensor(f), safetensors_dtype::i64, length(state.vocabularies[f])});
  auto const& options = state.options;
  nlohmann::json const described{{"dense", options.dense == dense_scaling::log ? "log" : "standard"},
                                 {"dense_as_category", options.dense_as_category},
                                 {"min_count", options.min_count},
                                 {"hash_size", options.hash_size},
                                 {"vocabulary_limit", options.vocabulary_limit}};
  auto const path = folder + "/preprocessing.safetensors";
  safetensors_writer out(path, std::move(tensors), {{"options", print_json(described, path)}});
  out.append("dense_columns", vector_view(state.dense_columns));
  out.append("dense_means", vector_view(state.dense_means));
  out.append("dense_deviations", vector_view(state.dense_deviations));
  out.append("sparse_columns", vector_view(state.sparse_columns));
  for (std::size_t f = 0; f < state.vocabularies.size(); ++f) out.append(detail::vocabulary_tensor(f), vector_view(state.vocabularies[f]));
  return {"preprocessing.safetensors", out.finish()};
}

/// Reads it back. @throws tessera::error io_error; corrupt_file, parse_error, incompatible or invalid_argument naming what is wrong.
inline preprocessing load_preprocessing(host_exec const& exec, std::string const& folder) {
  safetensors_reader const in(folder + "/preprocessing.safetensors");
  auto const described = in.metadata().find("options");
  if (described == in.metadata().end()) throw error(errc::incompatible, "preprocessing: a file without options", {{"file", in.path()}});
  auto const where = in.path() + ", options";
  auto const options = parse_json(described->second, where);
  preprocessing_state state{};
  auto const& scaling = json_string(options, "dense", where);
  if (scaling != "log" && scaling != "standard")
    throw error(errc::incompatible, "preprocessing: unknown scaling", {{"file", in.path()}, {"field", "dense"}, {"found", scaling}});
  state.options = {.dense = scaling == "log" ? dense_scaling::log : dense_scaling::standard,
                   .dense_as_category = json_boolean(options, "dense_as_category", where),
                   .min_count = json_integer(options, "min_count", where),
                   .hash_size = json_integer(options, "hash_size", where),
                   .vocabulary_limit = json_integer(options, "vocabulary_limit", where)};
  auto const read = [&](std::string const& tensor, auto& values) {
    values.resize(static_cast<std::size_t>(in.at(tensor).elements()));
    in.read(tensor, 0, vector_view(values));
  };
  read("dense_columns", state.dense_columns);
  read("dense_means", state.dense_means);
  read("dense_deviations", state.dense_deviations);
  read("sparse_columns", state.sparse_columns);
  state.vocabularies.resize(state.sparse_columns.size());
  for (std::size_t f = 0; f < state.vocabularies.size(); ++f) read(detail::vocabulary_tensor(f), state.vocabularies[f]);
  return preprocessing(exec, std::move(state));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
