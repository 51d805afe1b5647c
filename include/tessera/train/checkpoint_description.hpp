// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/types.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/train/trainer.hpp>

/// How a checkpoint's manifest describes a model and its training, and how a reader compares that with its own. What is said of tables is
/// said of whole tables, so it does not depend on who holds them.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline constexpr std::int64_t first_version_with_kinds = 3;  // of optimizers and policies

// What the checkpoint has and the model lacks means that they do not belong together.
[[noreturn]] inline void refuse_tensor(safetensors_reader const& in, std::string const& tensor) {
  throw error(errc::incompatible, "checkpoint: a tensor that the model has no place for", {{"file", in.path()}, {"tensor", tensor}});
}

// A file of dense parameters that fits the model. `names` are those of all ranks' parameters.
template <class Model>
void check_parameters(safetensors_reader const& in, Model& model, std::vector<std::string> const& names) {
  for (auto const& b : model.blocks()) in.expect(b.name, safetensors_dtype::f32, b.shape);
  for (auto const& tensor : in.entries())
    if (!tensor.name.starts_with("optimizer.") && std::find(names.begin(), names.end(), tensor.name) == names.end())
      refuse_tensor(in, tensor.name);
}

template <class Model>
void read_parameters(safetensors_reader const& in, Model& model) {
  for (auto const& b : model.blocks()) in.read(b.name, 0, b.values);
}

// What is not in the tensors and yet decides what a model predicts.
template <class Model>
nlohmann::json describe_model(Model const& model, table_places const& places) {
  auto tables = nlohmann::json::array(), features = nlohmann::json::array();
  for (auto const& table : places.tables)
    tables.push_back({{"id", table.id.value},
                      {"init_bound", table.init_bound},
                      {"seed", table.seed.value},
                      {"first_row", table.first_row},
                      {"first_column", table.first_column}});
  auto const outputs = model.source().outputs();
  auto const pooled = model.pooled_outputs();
  for (auto const o : pooled) features.push_back({{"table", outputs[o].table}, {"pooling", name(outputs[o].pooling)}});
  nlohmann::json all{{"tables", std::move(tables)}, {"features", std::move(features)}, {"interaction", Model::interaction_type::name}};
  if constexpr (requires { model.source().towers_text(); })
    if (auto const towers = model.source().towers_text(); !towers.empty()) all["towers"] = towers;
  if (model.sequence_groups().empty()) return all;
  auto const number_of = [&](std::string const& output) {
    return std::find_if(outputs.begin(), outputs.end(), [&](auto const& o) { return o.name == output; }) - outputs.begin();
  };
  auto& groups = all["sequence_groups"] = nlohmann::json::array();
  for (auto const& group : model.sequence_groups()) {
    auto tables_of_group = nlohmann::json::array();
    for (auto const& output : group.outputs) tables_of_group.push_back(outputs[number_of(output)].table);
    auto const target = std::find(pooled.begin(), pooled.end(), number_of(group.target)) - pooled.begin();
    groups.push_back({{"tables", std::move(tables_of_group)},
                      {"pooling", Model::pooling_type::describe(group.pooling)},
                      {"target", group.target.empty() ? -1 : target}});
  }
  return all;
}

inline nlohmann::json describe_kind(table_part const& part) {
  auto const kind = part.kind();
  return {{"optimizer", kind.optimizer}, {"admission", kind.admission}, {"eviction", kind.eviction}};
}

// Whose states there are in the tensors. `kinds` are those of all tables.
template <class Trainer>
nlohmann::json describe_training(Trainer& run, nlohmann::json kinds) {
  auto const name = [](auto const& optimizer) { return optimizer_name_of(optimizer); };
  return {{"tables", std::move(kinds)}, {"dense_optimizer", with_optimizer(run.dense_optimizer(), name)}};
}

// As above of the tables that have parts here; nothing of the others.
template <class Trainer>
nlohmann::json describe_training(Trainer& run, table_places const& places, table_parts const& parts) {
  nlohmann::json kinds(places.tables.size(), nlohmann::json::object());
  for (std::size_t p = 0; p < parts.size(); ++p) kinds[static_cast<std::size_t>(places.parts[p].table)] = describe_kind(*parts[p]);
  return describe_training(run, std::move(kinds));
}

// A list of the description has the fields that are expected of each element.
inline void check_list(nlohmann::json const& found, nlohmann::json const& expected, char const* list, char const* whole,
                       std::string const& file) {
  auto const& theirs = json_array(found, list, file);
  auto const& ours = expected[list];
  auto const text = [](nlohmann::json const& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
  // Checkpoints from before tables could be parts of larger ones do not say so.
  auto const field_of = [&](nlohmann::json const& their, std::string const& field) {
    return field.starts_with("first_") && !their.contains(field) ? nlohmann::json(0) : json_field(their, field, file);
  };
  if (theirs.size() != ours.size())
    throw error(errc::incompatible, std::string("checkpoint: ") + whole + " of another size",
                {{"file", file}, {"field", list}, {"found", theirs.size()}, {"expected", ours.size()}});
  for (std::size_t i = 0; i < ours.size(); ++i)
    for (auto const& [field, value] : ours[i].items())
      if (auto const their = field_of(theirs[i], field); their != value)
        throw error(errc::incompatible, std::string("checkpoint: ") + whole + " of another kind",
                    {{"file", file}, {"field", list}, {"number", i}, {field, text(their)}, {"expected", text(value)}});
}

template <class Model>
void check_description(Model const& model, table_places const& places, nlohmann::json const& state, std::string const& file) {
  auto const& found = json_object(state, "model", file);
  auto const expected = describe_model(model, places);
  if (auto const& interaction = json_string(found, "interaction", file); interaction != Model::interaction_type::name)
    throw error(errc::incompatible, "checkpoint: a model of another kind",
                {{"file", file}, {"interaction", interaction}, {"expected", Model::interaction_type::name}});
  auto const towers_of = [](nlohmann::json const& of) { return of.contains("towers") ? of["towers"] : nlohmann::json("none"); };
  if (auto const theirs = towers_of(found); theirs != towers_of(expected))
    throw error(errc::incompatible, "checkpoint: a model of other towers",
                {{"file", file},
                 {"towers", theirs.is_string() ? theirs.template get<std::string>() : theirs.dump()},
                 {"expected", towers_of(expected).template get<std::string>()}});
  for (char const* list : {"tables", "features"}) check_list(found, expected, list, "a model", file);
  if (expected.contains("sequence_groups"))
    check_list(found, expected, "sequence_groups", "a model", file);
  else if (found.contains("sequence_groups"))
    throw error(errc::incompatible, "checkpoint: a model of another kind",
                {{"file", file}, {"field", "sequence_groups"}, {"expected", "none"}});
}

template <class Trainer>
void check_training(Trainer& run, table_places const& places, table_parts const& parts, manifest const& content, std::string const& file) {
  if (content.version < first_version_with_kinds)
    throw error(errc::incompatible, "checkpoint: its version does not name optimizers and policies; only its model can be read",
                {{"file", file}, {"version", content.version}, {"expected", first_version_with_kinds}});
  auto const& found = json_object(content.state, "training", file);
  auto const expected = describe_training(run, places, parts);
  check_list(found, expected, "tables", "training", file);
  auto const& theirs = json_string(found, "dense_optimizer", file);
  auto const& ours = json_string(expected, "dense_optimizer", file);
  if (theirs != ours)
    throw error(errc::incompatible, "checkpoint: training of another kind",
                {{"file", file}, {"dense_optimizer", theirs}, {"expected", ours}});
}

inline std::vector<step_count> read_table_steps(nlohmann::json const& state, std::size_t expected, std::string const& file) {
  std::vector<step_count> steps;
  for (auto const& value : json_array(state, "table_steps", file)) {
    auto const field = "table_steps[" + std::to_string(steps.size()) + "]";
    steps.emplace_back(json_count({{field, value}}, field, file));
  }
  if (steps.size() != expected)
    throw error(errc::incompatible, "checkpoint: a model of another size",
                {{"file", file}, {"field", "table_steps"}, {"found", steps.size()}, {"expected", expected}});
  return steps;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
