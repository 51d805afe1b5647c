// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera::inline TESSERA_ABI {

/// What is beside the tensors of a checkpoint.
struct checkpoint_state {
  std::int64_t step = 0;                               // batches trained
  nlohmann::json options = nlohmann::json::object();   // how the model and the run were set up
  nlohmann::json position = nlohmann::json::object();  // where the data goes on
};

namespace detail {

inline constexpr char const* checkpoint_format = "tessera.checkpoint";
inline constexpr std::int64_t checkpoint_version = 1;
inline constexpr std::int64_t rows_per_write = 4096;

inline std::string table_tensor(std::size_t table, char const* part) { return "table." + std::to_string(table) + "." + part; }
inline std::string plane_tensor(std::size_t state) { return "optimizer." + std::to_string(state); }

// (rows, width) of float rows that a table has somewhere; `row(slot)` points to each.
template <class Row>
void write_rows(host_exec const& exec, safetensors_writer& out, std::string const& tensor, std::int64_t rows, std::int64_t width,
                Row const& row) {
  buffer<float> piece(exec, std::min(rows, rows_per_write) * width);
  for (std::int64_t first = 0; first < rows; first += rows_per_write) {
    auto const count = std::min(rows - first, rows_per_write);
    for (std::int64_t i = 0; i < count; ++i) std::copy_n(row(first + i), width, piece.data() + i * width);
    out.append(tensor, vector_view<float const>{piece.data(), count * width});
  }
}

template <class Store>
manifest_section write_tables(host_exec const& exec, std::string const& folder, std::vector<Store> const& tables) {
  std::vector<safetensors_tensor> tensors;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto const rows = tables[t].rows(), width = tables[t].state_layout().width(tables[t].dim());
    tensors.push_back({table_tensor(t, "weight"), safetensors_dtype::f32, {rows, tables[t].dim()}});
    if (width > 0) tensors.push_back({table_tensor(t, "state"), safetensors_dtype::f32, {rows, width}});
    if (!Store::slots_are_ids) tensors.push_back({table_tensor(t, "ids"), safetensors_dtype::i64, {rows}});
  }
  safetensors_writer out(folder + "/tables.safetensors", std::move(tensors));
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto const& table = tables[t];
    auto const width = table.state_layout().width(table.dim());
    write_rows(exec, out, table_tensor(t, "weight"), table.rows(), table.dim(), [&](std::int64_t slot) { return table.row(slot); });
    if (width > 0)
      write_rows(exec, out, table_tensor(t, "state"), table.rows(), width, [&](std::int64_t slot) { return table.state(slot); });
    if constexpr (!Store::slots_are_ids) out.append(table_tensor(t, "ids"), table.ids());
  }
  return {"tables.safetensors", out.finish()};
}

// What the checkpoint has and the model lacks means that they do not belong together.
inline void refuse_tensor(safetensors_reader const& in, std::string const& tensor) {
  if (in.find(tensor) != nullptr)
    throw error(errc::incompatible, "checkpoint: a tensor that the model has no place for", {{"file", in.path()}, {"tensor", tensor}});
}

// Row r of the file goes to the row of its id, so either kind of store reads what either wrote.
template <class Store>
void read_tables(host_exec const& exec, std::string const& folder, std::vector<Store>& tables, bool with_state) {
  safetensors_reader const in(folder + "/tables.safetensors");
  refuse_tensor(in, table_tensor(tables.size(), "weight"));
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto& table = tables[t];
    auto const dim = table.dim(), width = table.state_layout().width(dim);
    if (!Store::slots_are_ids && table.rows() > 0)
      throw error(errc::invalid_argument, "checkpoint: the table has rows already",
                  {{"file", in.path()}, {"table", t}, {"rows", table.rows()}});
    auto const& shape = in.at(table_tensor(t, "weight")).shape;
    auto const rows = shape.empty() ? 0 : shape[0];
    in.expect(table_tensor(t, "weight"), safetensors_dtype::f32, {rows, dim});
    bool const has_state = with_state && width > 0;
    if (with_state && !has_state) refuse_tensor(in, table_tensor(t, "state"));
    if (has_state) in.expect(table_tensor(t, "state"), safetensors_dtype::f32, {rows, width});
    bool const has_ids = in.find(table_tensor(t, "ids")) != nullptr;
    if (has_ids) in.expect(table_tensor(t, "ids"), safetensors_dtype::i64, {rows});
    if (Store::slots_are_ids && !has_ids && rows != table.rows())
      throw error(errc::incompatible, "checkpoint: a table of another size",
                  {{"file", in.path()}, {"table", t}, {"rows", rows}, {"expected", table.rows()}});
    auto const most = std::min(rows, rows_per_write);
    buffer<std::int64_t> ids(exec, most), slots(exec, most);
    buffer<float> values(exec, most * std::max(dim, width));
    for (std::int64_t first = 0; first < rows; first += rows_per_write) {
      auto const count = std::min(rows - first, rows_per_write);
      for (std::int64_t i = 0; i < count; ++i) ids[i] = first + i;
      if (has_ids) in.read(table_tensor(t, "ids"), first, ids.view().slice(0, count));
      table.locate(exec, std::as_const(ids).view().slice(0, count), slots.view().slice(0, count), {});
      for (std::int64_t i = 0; i < count; ++i)
        if (slots[i] < 0)
          throw error(errc::incompatible, "checkpoint: the table has no row for an id",
                      {{"file", in.path()}, {"table", t}, {"id", ids[i]}, {"rows", table.rows()}});
      in.read(table_tensor(t, "weight"), first * dim, values.view().slice(0, count * dim));
      for (std::int64_t i = 0; i < count; ++i) std::copy_n(values.data() + i * dim, dim, table.row(slots[i]));
      if (!has_state) continue;
      in.read(table_tensor(t, "state"), first * width, values.view().slice(0, count * width));
      for (std::int64_t i = 0; i < count; ++i) std::copy_n(values.data() + i * width, width, table.state(slots[i]));
    }
  }
}

template <class Model>
void read_parameters(std::string const& folder, Model& model) {
  safetensors_reader const in(folder + "/dense.safetensors");
  auto const blocks = model.blocks();
  for (auto const& b : blocks) in.expect(b.name, safetensors_dtype::f32, b.shape);
  for (auto const& tensor : in.entries())
    if (!tensor.name.starts_with("optimizer.") &&
        std::none_of(blocks.begin(), blocks.end(), [&](auto const& b) { return b.name == tensor.name; }))
      refuse_tensor(in, tensor.name);
  for (auto const& b : blocks) in.read(b.name, 0, b.values);
}

// What is not in the tensors and yet decides what a model predicts.
template <class Model>
nlohmann::json describe_model(Model const& model) {
  auto tables = nlohmann::json::array(), features = nlohmann::json::array();
  for (auto const& table : model.tables())
    tables.push_back({{"id", table.options().id.value}, {"init_bound", table.options().init_bound}, {"seed", table.options().seed.value}});
  for (auto const& feature : model.features())
    features.push_back({{"table", feature.table}, {"pooling", feature.pooling == pooling::sum ? "sum" : "mean"}});
  return {{"tables", std::move(tables)}, {"features", std::move(features)}};
}

template <class Model>
void check_description(Model const& model, nlohmann::json const& state, std::string const& file) {
  auto const& found = json_object(state, "model", file);
  auto const expected = describe_model(model);
  for (char const* list : {"tables", "features"}) {
    auto const& theirs = json_array(found, list, file);
    auto const& ours = expected[list];
    if (theirs.size() != ours.size())
      throw error(errc::incompatible, "checkpoint: a model of another size",
                  {{"file", file}, {"field", list}, {"found", theirs.size()}, {"expected", ours.size()}});
    for (std::size_t i = 0; i < ours.size(); ++i)
      for (auto const& [field, value] : ours[i].items())
        if (json_field(theirs[i], field, file) != value)
          throw error(errc::incompatible, "checkpoint: a model of another kind",
                      {{"file", file}, {"field", list}, {"number", i}, {field, theirs[i][field].dump()}, {"expected", value.dump()}});
  }
}

inline std::vector<step_count> read_steps(nlohmann::json const& state, char const* field, std::size_t expected, std::string const& file) {
  std::vector<step_count> steps;
  for (auto const& value : json_array(state, field, file)) steps.emplace_back(json_integer({{field, value}}, field, file));
  if (steps.size() != expected)
    throw error(errc::incompatible, "checkpoint: a model of another size",
                {{"file", file}, {"field", field}, {"found", steps.size()}, {"expected", expected}});
  return steps;
}

template <class Trainer>
manifest_section write_dense(std::string const& folder, Trainer& run) {
  std::vector<safetensors_tensor> tensors;
  auto const blocks = run.model().blocks();
  auto const states = run.dense_states();
  for (auto const& b : blocks) tensors.push_back({b.name, safetensors_dtype::f32, b.shape});
  for (std::size_t s = 0; s < states.size(); ++s)
    tensors.push_back({plane_tensor(s), safetensors_dtype::f32, {states[s]->planes().size()}});
  safetensors_writer out(folder + "/dense.safetensors", std::move(tensors));
  for (auto const& b : blocks) out.append(b.name, vector_view<float const>{b.values.data(), b.values.size()});
  for (std::size_t s = 0; s < states.size(); ++s)
    out.append(plane_tensor(s), vector_view<float const>{states[s]->planes().data(), states[s]->planes().size()});
  return {"dense.safetensors", out.finish()};
}

}  // namespace detail

/// Writes a checkpoint into `directory`, as a folder `step-<12 digits>` that appears whole or not at all: `dense.safetensors` (parameters
/// by name, `optimizer.<n>`), `tables.safetensors` (`table.<n>.weight` (rows, dim), `.state`, and `.ids` where the store is hashed) and
/// `manifest.json` (options, position, step counts, sizes and checksums). `extra(folder)` may write more files there and returns their
/// sections. Keeps the newest `keep` checkpoints, at least 1. Nothing of the trainer changes; synchronous.
/// @throws tessera::error io_error, invalid_argument: the checkpoints before stay as they were.
template <class Trainer, class Extra>
void save_checkpoint(host_exec const& exec, std::string const& directory, Trainer& run, checkpoint_state const& state, std::int64_t keep,
                     Extra const& extra) {
  if (state.step < 0 || keep < 1 || !state.options.is_object() || !state.position.is_object())
    throw error(errc::invalid_argument, "checkpoint: a step from 0 on, at least one to keep, options and position as JSON objects",
                {{"step", state.step}, {"keep", keep}, {"options", state.options.type_name()}, {"position", state.position.type_name()}});
  staged_folder staged(directory, step_folder_name(step_count{state.step}));
  manifest content{detail::checkpoint_format, detail::checkpoint_version, {}, {}};
  content.sections = extra(staged.path());
  content.sections.push_back(detail::write_dense(staged.path(), run));
  content.sections.push_back(detail::write_tables(exec, staged.path(), run.model().tables()));
  auto table_steps = nlohmann::json::array(), dense_steps = nlohmann::json::array();
  for (auto const& table : run.model().tables()) table_steps.push_back(table.steps().value);
  for (auto const* dense : run.dense_states()) dense_steps.push_back(dense->steps().value);
  content.state = {{"step", state.step},         {"model", detail::describe_model(run.model())}, {"options", state.options},
                   {"position", state.position}, {"table_steps", std::move(table_steps)},        {"dense_steps", std::move(dense_steps)}};
  write_manifest(staged.path(), content);
  staged.commit();
  prune_step_folders(directory, step_count{state.step}, keep);
}

/// A checkpoint found whole: every section has been read and matches its checksum.
struct open_checkpoint {
  std::string folder;
  manifest content;
  checkpoint_state state;
};

/// Opens the newest checkpoint of a directory, or the checkpoint that the path itself is.
/// @throws tessera::error io_error where there is none; corrupt_file naming the section that is torn or altered and the checkpoint
/// before, which may be opened by its own path.
inline open_checkpoint open_newest_checkpoint(std::string const& directory) {
  auto const steps = list_step_folders(directory);
  auto const folder = steps.empty() ? directory : steps.back().path;
  std::error_code ignored;
  if (steps.empty() && !std::filesystem::exists(folder + "/manifest.json", ignored))
    throw error(errc::io_error, "checkpoint: none in this folder", {{"folder", directory}});
  try {
    open_checkpoint found{folder, read_manifest(folder, detail::checkpoint_format, detail::checkpoint_version), {}};
    verify_sections(folder, found.content);
    auto const file = folder + "/manifest.json";
    found.state.step = json_integer(found.content.state, "step", file);
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

/// Reads a checkpoint's parameters into a fresh model of the same shape, tables (id, seed, init_bound: what rows not yet seen will be)
/// and features; its optimizer states stay unread.
/// @throws tessera::error incompatible naming the tensor or field that does not fit, invalid_argument for a hashed table that has rows
/// already; the model may then be half read.
template <class Model>
void load_model(host_exec const& exec, open_checkpoint const& from, Model& model) {
  detail::check_description(model, from.content.state, from.folder + "/manifest.json");
  detail::read_parameters(from.folder, model);
  detail::read_tables(exec, from.folder, model.tables(), false);
}

/// Reads a checkpoint into a trainer whose model and optimizers are of the same shape: training goes on as if it had never stopped.
/// @throws as `load_model`.
template <class Trainer>
void load_trainer(host_exec const& exec, open_checkpoint const& from, Trainer& run) {
  auto const file = from.folder + "/manifest.json";
  auto& model = run.model();
  auto const states = run.dense_states();
  detail::check_description(model, from.content.state, file);
  auto const table_steps = detail::read_steps(from.content.state, "table_steps", model.tables().size(), file);
  auto const dense_steps = detail::read_steps(from.content.state, "dense_steps", states.size(), file);
  detail::read_parameters(from.folder, model);
  detail::read_tables(exec, from.folder, model.tables(), true);
  safetensors_reader const dense(from.folder + "/dense.safetensors");
  for (std::size_t s = 0; s < states.size(); ++s) {
    auto const planes = states[s]->planes();
    dense.expect(detail::plane_tensor(s), safetensors_dtype::f32, {planes.size()});
    dense.read(detail::plane_tensor(s), 0, planes);
    states[s]->set_steps(dense_steps[s]);
  }
  for (std::size_t t = 0; t < table_steps.size(); ++t) model.tables()[t].set_steps(table_steps[t]);
}

}  // namespace tessera::inline TESSERA_ABI
