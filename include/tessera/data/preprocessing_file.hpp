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
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/rules_file.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline nlohmann::json json_of(sample_schema const& schema) {
  return {{"label", schema.label}, {"dense", schema.dense},   {"sparse", schema.sparse}, {"session", schema.session},
          {"time", schema.time},   {"weight", schema.weight}, {"single", schema.single}, {"other-labels", schema.other_labels}};
}

inline sample_schema schema_of(placed_json const& json) {
  json.allow({"label", "dense", "sparse", "session", "time", "weight", "single", "other-labels"});
  return {.label = json.at("label").text(),
          .dense = json.at("dense").texts(),
          .sparse = json.at("sparse").texts(),
          .session = json.at("session").text(),
          .time = json.at("time").text(),
          .weight = json.at("weight").text(),
          .other_labels = json.at("other-labels").texts(),
          .single = json.at("single").texts()};
}

/// All of a preprocessing but the values of vocabularies.
inline nlohmann::json json_of(preprocessing const& p) {
  auto dense = nlohmann::json::array(), sparse = nlohmann::json::array(), vocabularies = nlohmann::json::array();
  for (auto const& rule : p.dense().rules()) dense.push_back({{"name", rule.columns.front()}, {"steps", json_of_steps(rule.steps)}});
  for (auto const& rule : p.sparse().rules())
    sparse.push_back(
        {{"name", rule.columns.front()}, {"steps", json_of_steps(rule.steps)}, {"missing", name_of(rule.missing)}, {"share", rule.share}});
  for (std::int64_t v = 0; v < p.sparse().vocabularies(); ++v) vocabularies.push_back(p.sparse().vocabulary_name(v));
  return {{"schema", json_of(p.schema())},
          {"dense", std::move(dense)},
          {"sparse", std::move(sparse)},
          {"dropped-dense", p.dense().dropped()},
          {"dropped-sparse", p.sparse().dropped()},
          {"vocabularies", std::move(vocabularies)}};
}

/// `values_of(number)`: the values of a vocabulary.
template <class Values>
preprocessing preprocessing_of(host_exec const& exec, placed_json const& json, Values const& values_of) {
  json.allow({"schema", "dense", "sparse", "dropped-dense", "dropped-sparse", "vocabularies"});
  auto schema = schema_of(json.at("schema"));
  check_schema("preprocessing", schema);
  std::vector<dense_rule> dense;
  for (auto const& rule : json.at("dense").items()) {
    rule.allow({"name", "steps"});
    dense.push_back({{rule.at("name").text()}, dense_steps_of(rule.at("steps"))});
  }
  std::vector<sparse_rule> sparse;
  for (auto const& rule : json.at("sparse").items()) {
    rule.allow({"name", "steps", "missing", "share"});
    sparse.push_back(
        {{rule.at("name").text()}, id_steps_of(rule.at("steps")), missing_policy_of(rule.at("missing")), rule.at("share").text()});
  }
  std::vector<fitted_vocabulary> vocabularies;
  for (auto& name : json.at("vocabularies").texts()) vocabularies.push_back({std::move(name), values_of(vocabularies.size())});
  dense_pipeline dense_part(schema.dense, dense, json.at("dropped-dense").texts());
  sparse_pipeline sparse_part(exec, schema, sparse, vocabularies, json.at("dropped-sparse").texts());
  return preprocessing(std::move(schema), std::move(dense_part), std::move(sparse_part));
}

inline std::string vocabulary_tensor(std::size_t number) { return "vocabulary." + std::to_string(number); }

/// The JSON in a file's metadata. @throws tessera::error incompatible where there is none.
inline nlohmann::json json_in_metadata(safetensors_reader const& in, std::string const& name) {
  auto const found = in.metadata().find(name);
  if (found == in.metadata().end()) throw error(errc::incompatible, "preprocessing: a file without its " + name, {{"file", in.path()}});
  return parse_json(found->second, in.path() + ", " + name);
}

}  // namespace detail

/// Writes a preprocessing as `preprocessing.safetensors` in a folder, and returns the file's section of a manifest. Rules, schema and
/// dropped columns are JSON in the file's metadata. The values of vocabulary 0, 1, … are the tensors `vocabulary.0`, `vocabulary.1`, ….
/// @post `load_preprocessing` gives an equal preprocessing. @throws tessera::error io_error; invalid_argument for a name that is not UTF-8.
inline manifest_section save_preprocessing(std::string const& folder, preprocessing const& fitted) {
  auto const& sparse = fitted.sparse();
  auto const path = folder + "/preprocessing.safetensors";
  std::vector<safetensors_tensor> tensors;
  for (std::int64_t v = 0; v < sparse.vocabularies(); ++v)
    tensors.push_back(
        {detail::vocabulary_tensor(static_cast<std::size_t>(v)), safetensors_dtype::i64, {sparse.vocabulary_values(v).size()}});
  safetensors_writer out(path, std::move(tensors), {{"preprocessing", print_json(detail::json_of(fitted), path)}});
  for (std::int64_t v = 0; v < sparse.vocabularies(); ++v)
    out.append(detail::vocabulary_tensor(static_cast<std::size_t>(v)), sparse.vocabulary_values(v));
  return {"preprocessing.safetensors", out.finish()};
}

/// Reads what `save_preprocessing` wrote. The vocabularies are in `exec`'s memory, which outlives the result.
/// @throws tessera::error io_error; corrupt_file, parse_error, incompatible or invalid_argument naming file and what is wrong.
inline preprocessing load_preprocessing(host_exec const& exec, std::string const& folder) {
  safetensors_reader const in(folder + "/preprocessing.safetensors");
  auto const described = detail::json_in_metadata(in, "preprocessing");
  return detail::naming_file(in.path(), [&] {
    return detail::preprocessing_of(exec, {described, in.path() + ", preprocessing"}, [&](std::size_t number) {
      auto const name = detail::vocabulary_tensor(number);
      std::vector<std::int64_t> values(static_cast<std::size_t>(in.at(name).elements()));
      in.read(name, 0, vector_view(values));
      return values;
    });
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
