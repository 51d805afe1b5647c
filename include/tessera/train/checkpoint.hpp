// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/trainer.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a checkpoint holds beside its tensors.
struct checkpoint_state {
  std::int64_t step = 0;                               ///< batches trained
  nlohmann::json options = nlohmann::json::object();   ///< how the caller set up the model and the run
  nlohmann::json position = nlohmann::json::object();  ///< where the caller's reader goes on
};

namespace detail {

inline constexpr char const* checkpoint_format = "tessera.checkpoint";
inline constexpr std::int64_t checkpoint_version = 3;
inline constexpr std::int64_t first_version_with_kinds = 3;  // of optimizers and policies

inline std::string plane_tensor(std::string_view group) { return "optimizer." + std::string(group); }

// What the checkpoint has and the model lacks means that they do not belong together.
[[noreturn]] inline void refuse_tensor(safetensors_reader const& in, std::string const& tensor) {
  throw error(errc::incompatible, "checkpoint: a tensor that the model has no place for", {{"file", in.path()}, {"tensor", tensor}});
}

// A file of dense parameters that fits the model.
template <class Model>
void check_parameters(safetensors_reader const& in, Model& model) {
  auto const blocks = model.blocks();
  for (auto const& b : blocks) in.expect(b.name, safetensors_dtype::f32, b.shape);
  for (auto const& tensor : in.entries())
    if (!tensor.name.starts_with("optimizer.") &&
        std::none_of(blocks.begin(), blocks.end(), [&](auto const& b) { return b.name == tensor.name; }))
      refuse_tensor(in, tensor.name);
}

template <class Model>
void read_parameters(safetensors_reader const& in, Model& model) {
  for (auto const& b : model.blocks()) in.read(b.name, 0, b.values);
}

// What is not in the tensors and yet decides what a model predicts.
template <class Model>
nlohmann::json describe_model(Model const& model, table_parts const& parts) {
  auto tables = nlohmann::json::array(), features = nlohmann::json::array();
  for (auto const& part : parts) {
    auto const& table = part->options();
    tables.push_back({{"id", table.id.value},
                      {"init_bound", table.init_bound},
                      {"seed", table.seed.value},
                      {"first_row", table.first_row},
                      {"first_column", table.first_column}});
  }
  auto const outputs = model.source().outputs();
  auto const pooled = model.pooled_outputs();
  for (auto const o : pooled) features.push_back({{"table", outputs[o].table}, {"pooling", name(outputs[o].pooling)}});
  nlohmann::json all{{"tables", std::move(tables)}, {"features", std::move(features)}, {"interaction", Model::interaction_type::name}};
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

// Whose states there are in the tensors.
template <class Trainer>
nlohmann::json describe_training(Trainer& run, table_parts const& parts) {
  auto const name = [](auto const& optimizer) { return optimizer_name_of(optimizer); };
  auto tables = nlohmann::json::array();
  for (auto const& part : parts) {
    auto const kind = part->kind();
    tables.push_back({{"optimizer", kind.optimizer}, {"admission", kind.admission}, {"eviction", kind.eviction}});
  }
  return {{"tables", std::move(tables)}, {"dense_optimizer", with_optimizer(run.dense_optimizer(), name)}};
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
void check_description(Model const& model, table_parts const& parts, nlohmann::json const& state, std::string const& file) {
  auto const& found = json_object(state, "model", file);
  auto const expected = describe_model(model, parts);
  if (auto const& interaction = json_string(found, "interaction", file); interaction != expected["interaction"])
    throw error(errc::incompatible, "checkpoint: a model of another kind",
                {{"file", file}, {"interaction", interaction}, {"expected", Model::interaction_type::name}});
  for (char const* list : {"tables", "features"}) check_list(found, expected, list, "a model", file);
  if (expected.contains("sequence_groups"))
    check_list(found, expected, "sequence_groups", "a model", file);
  else if (found.contains("sequence_groups"))
    throw error(errc::incompatible, "checkpoint: a model of another kind",
                {{"file", file}, {"field", "sequence_groups"}, {"expected", "none"}});
}

template <class Trainer>
void check_training(Trainer& run, table_parts const& parts, manifest const& content, std::string const& file) {
  if (content.version < first_version_with_kinds)
    throw error(errc::incompatible, "checkpoint: its version does not name optimizers and policies; only its model can be read",
                {{"file", file}, {"version", content.version}, {"expected", first_version_with_kinds}});
  auto const& found = json_object(content.state, "training", file);
  auto const expected = describe_training(run, parts);
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

// Whatever is read from the folder is a section, and so has been compared with its checksum. Hidden files are a file system's or a desktop's.
inline void check_all_listed(std::string const& folder, manifest const& content) {
  auto const check = [&](std::string const& name) {
    if (std::none_of(content.sections.begin(), content.sections.end(), [&](auto const& section) { return section.file == name; }))
      throw error(errc::corrupt_file, "checkpoint: a section that its manifest does not list",
                  {{"file", folder + "/" + name}, {"section", name}});
  };
  for (char const* name : {"dense.safetensors", "tables.safetensors"}) check(name);
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (auto const name = entry->path().filename().string(); name != "manifest.json" && !name.starts_with('.')) check(name);
  if (failure) throw_io_error("cannot list folder", folder, failure.message());
}

template <class Trainer>
manifest_section write_dense(std::string const& folder, Trainer& run) {
  std::vector<safetensors_tensor> tensors;
  auto const blocks = run.model().blocks();
  auto const states = run.dense_states();
  for (auto const& b : blocks) tensors.push_back({b.name, safetensors_dtype::f32, b.shape});
  for (auto const& [group, state] : states) tensors.push_back({plane_tensor(group), safetensors_dtype::f32, {state->planes().size()}});
  safetensors_writer out(folder + "/dense.safetensors", std::move(tensors));
  for (auto const& b : blocks) out.append(b.name, vector_view<float const>{b.values.data(), b.values.size()});
  for (auto const& [group, state] : states)
    out.append(plane_tensor(group), vector_view<float const>{state->planes().data(), state->planes().size()});
  return {"dense.safetensors", out.finish()};
}

}  // namespace detail

/// Writes a checkpoint into `directory`, as a folder `step-<12 digits>` that appears whole or not at all. The trainer does not change.
/// The call returns when the files are synced. It then keeps the newest `keep` checkpoints, at least 1.
/// - `dense.safetensors` holds the dense parameters by name, and the states of their optimizer as `optimizer.<group>`.
/// - `tables.safetensors` holds of table n `table.<n>.weight` (rows, dim), `.state`, and `.ids` where the store is hashed.
/// - `manifest.json` holds options, position, step counts, kinds of optimizers and policies, and each file's size and checksum.
/// - `extra(folder)` may write more files there. It returns the sections of all of them, a `std::vector<manifest_section>`.
///
/// @pre No gradients are accumulated, so the call is not between `accumulate` and `update`.
/// @post After `load_trainer` of this checkpoint, another trainer of the same setup goes on to the bits of `run`, as `load_trainer` says.
/// @throws tessera::error io_error. invalid_argument for accumulated gradients, or a state or a `keep` out of range.
/// corrupt_file for a file of `extra` without a section, or a subfolder. The checkpoints before stay as they were then.
/// Names that begin with a dot are not looked at.
template <class Trainer, class Extra>
void save_checkpoint(host_exec const& exec, std::string const& directory, Trainer& run, checkpoint_state const& state, std::int64_t keep,
                     Extra const& extra) {
  if (state.step < 0 || state.step > most_counted || keep < 1 || !state.options.is_object() || !state.position.is_object())
    throw error(errc::invalid_argument, "checkpoint: a step from 0 to 2^62, at least one to keep, options and position as JSON objects",
                {{"step", state.step}, {"keep", keep}, {"options", state.options.type_name()}, {"position", state.position.type_name()}});
  if (run.accumulated() > 0)
    throw error(errc::invalid_argument, "checkpoint: gradients wait for an update, and are no part of a checkpoint",
                {{"step", state.step}, {"micro-batches", run.accumulated()}});
  staged_folder staged(directory, step_folder_name(step_count{state.step}));
  manifest content{detail::checkpoint_format, detail::checkpoint_version, {}, {}};
  content.sections = extra(staged.path());
  content.sections.push_back(detail::write_dense(staged.path(), run));
  auto const parts = run.model().source().parts();
  content.sections.push_back({"tables.safetensors", write_table_file(exec, staged.path() + "/tables.safetensors", parts)});
  auto table_steps = nlohmann::json::array(), dense_steps = nlohmann::json::object();
  for (auto const& part : parts) table_steps.push_back(part->steps().value);
  for (auto const& [group, dense] : run.dense_states()) dense_steps[std::string(group)] = dense->steps().value;
  content.state = {{"step", state.step},
                   {"model", detail::describe_model(run.model(), parts)},
                   {"training", detail::describe_training(run, parts)},
                   {"options", state.options},
                   {"position", state.position},
                   {"table_steps", std::move(table_steps)},
                   {"dense_steps", std::move(dense_steps)}};
  detail::check_all_listed(staged.path(), content);
  write_manifest(staged.path(), content);
  staged.commit();
  prune_step_folders(directory, step_count{state.step}, keep);
}
/// Writes a checkpoint without files of the caller's.
template <class Trainer>
void save_checkpoint(host_exec const& exec, std::string const& directory, Trainer& run, checkpoint_state const& state,
                     std::int64_t keep = 1) {
  save_checkpoint(exec, directory, run, state, keep, [](std::string const&) { return std::vector<manifest_section>(); });
}

/// A checkpoint that was found whole. Each file in its folder was read and has its checksum, but for the manifest and hidden names.
struct open_checkpoint {
  std::string folder;      ///< path of the checkpoint's folder
  manifest content;        ///< what its manifest says
  checkpoint_state state;  ///< what `save_checkpoint` was given
};

/// Opens the newest checkpoint of a directory, or the checkpoint that the path itself names. It reads all files once.
/// @post `state` is what `save_checkpoint` was given.
/// @throws tessera::error io_error where there is no checkpoint. corrupt_file naming the section that is torn or altered.
/// corrupt_file also for a file or subfolder that the manifest does not list, unless its name begins with a dot.
/// parse_error naming a field of the manifest that is not valid. incompatible for a format or version that is not known.
/// If there is an older checkpoint, the error names it, and its own path opens it.
inline open_checkpoint open_newest_checkpoint(std::string const& directory) {
  auto const steps = list_step_folders(directory);
  auto const folder = steps.empty() ? directory : steps.back().path;
  std::error_code ignored;
  if (steps.empty() && !std::filesystem::exists(folder + "/manifest.json", ignored))
    throw error(errc::io_error, "checkpoint: none in this folder", {{"folder", directory}});
  try {
    open_checkpoint found{folder, read_manifest(folder, detail::checkpoint_format, detail::checkpoint_version), {}};
    detail::check_all_listed(folder, found.content);
    verify_sections(folder, found.content);
    auto const file = folder + "/manifest.json";
    found.state.step = json_count(found.content.state, "step", file);
    found.state.options = json_object(found.content.state, "options", file);
    found.state.position = json_object(found.content.state, "position", file);
    return found;
  } catch (error const& e) {
    if (steps.size() < 2) throw;
    auto values = e.values();
    values.emplace_back("checkpoint before", steps[steps.size() - 2].path);
    throw error(e.code(), std::string(e.sentence()), std::move(values));
  }
}

/// Reads the parameters and rows of a checkpoint into a new model of the same kind, without the states of optimizers and policies.
/// The same kind means the same shapes, features, sequence groups and tables, each table with its id, seed and init_bound.
/// Optimizers and policies of the model may be others than those of the checkpoint.
/// @pre The files are as `open_newest_checkpoint` found them.
/// @post The model predicts what the saved model predicted.
/// @throws tessera::error incompatible naming the tensor or field that does not fit, or a table that may hold fewer rows.
/// invalid_argument for a hashed table that has rows already. Nothing has changed then.
/// The model may be half read where a file cannot be read, where an id comes twice, or where a dense table lacks the id.
template <class Model>
void load_model(host_exec const& exec, open_checkpoint const& from, Model& model) {
  auto parts = model.source().parts();
  detail::check_description(model, parts, from.content.state, from.folder + "/manifest.json");
  safetensors_reader const dense(from.folder + "/dense.safetensors");
  detail::check_parameters(dense, model);
  table_file_reader const tables(from.folder + "/tables.safetensors", parts, table_content::weights);
  detail::read_parameters(dense, model);
  tables.read(exec);
}

/// Reads a checkpoint into a trainer of the same kind, so that training goes on from there.
/// The same kind means a model as `load_model` takes it, and optimizers and policies of the same kinds.
/// Rates and limits stay those of the trainer.
/// Dense and hashed stores read what the other wrote, where rows neither wait for admission nor leave.
/// @pre The files are as `open_newest_checkpoint` found them.
/// @post Steps have the bits of the run that was saved, as if it had not stopped. `trainer_options::clip_norm` says where they may not.
/// @throws tessera::error as `load_model`. incompatible also for optimizers or policies of another kind, naming table and both kinds.
/// invalid_argument for a table whose clock is past the checkpoint's. The trainer is half read then.
template <class Trainer>
void load_trainer(host_exec const& exec, open_checkpoint const& from, Trainer& run) {
  auto const file = from.folder + "/manifest.json";
  auto& model = run.model();
  auto const states = run.dense_states();
  auto parts = model.source().parts();
  detail::check_description(model, parts, from.content.state, file);
  detail::check_training(run, parts, from.content, file);
  auto const table_steps = detail::read_table_steps(from.content.state, parts.size(), file);
  std::vector<step_count> dense_steps;
  for (auto const& [group, state] : states)
    dense_steps.emplace_back(json_count(json_object(from.content.state, "dense_steps", file), group, file));
  safetensors_reader const dense(from.folder + "/dense.safetensors");
  detail::check_parameters(dense, model);
  for (auto const& [group, state] : states) dense.expect(detail::plane_tensor(group), safetensors_dtype::f32, {state->planes().size()});
  table_file_reader const tables(from.folder + "/tables.safetensors", parts, table_content::all);
  detail::read_parameters(dense, model);
  tables.read(exec);
  for (std::size_t g = 0; g < states.size(); ++g) {
    dense.read(detail::plane_tensor(states[g].group), 0, states[g].state->planes());
    states[g].state->set_steps(dense_steps[g]);
  }
  for (std::size_t t = 0; t < table_steps.size(); ++t) parts[t]->set_steps(table_steps[t]);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
