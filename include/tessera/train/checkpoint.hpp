// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/train/checkpoint_description.hpp>
#include <tessera/train/checkpoint_folder.hpp>
#include <tessera/train/checkpoint_ranks.hpp>
#include <tessera/train/checkpoint_shards.hpp>
#include <tessera/train/checkpoint_writing.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes a checkpoint into `directory`, as a folder `step-<12 digits>` that appears whole or not at all. The trainer does not change.
/// The call returns when the files are synced. It then keeps the newest `keep` checkpoints, at least 1.
/// - `dense.safetensors` holds the dense parameters by name, and the states of their optimizer as `optimizer.<group>`.
/// - `tables.safetensors` holds of table n `table.<n>.weight` (rows, dim), `.state`, and `.ids` where the store is hashed.
/// - `manifest.json` holds options, position, step counts, kinds of optimizers and policies, and each file's size and checksum.
/// - `extra(folder)` may write more files there. It returns the sections of all of them, a `std::vector<manifest_section>`.
///
/// Ranks that train together all call it, with a directory that they share (`check_shared_folder`). Its name may differ from rank to rank.
/// - `tables.rank-<r>.safetensors` then holds the parts of rank r in the place of `tables.safetensors`, n being the number of the part.
/// - `manifest.json` says of each part which rows and columns of which table it is, in "shards". What it says of tables is of whole ones.
/// - Rank 0 writes all else and alone calls `extra`. Its options and position are those that count.
/// - The manifest is written last, once all ranks have written their files. Where one rank throws, all throw, and nothing is committed.
///
/// @pre No gradients are accumulated, so the call is not between `accumulate` and `update`.
/// @post After `load_trainer` of this checkpoint, another trainer of the same setup goes on to the bits of `run`, as `load_trainer` says.
/// @throws tessera::error io_error. invalid_argument for accumulated gradients, or a state or a `keep` out of range.
/// corrupt_file for a file of `extra` without a section, or a subfolder. The checkpoints before stay as they were then.
/// On ranks also invalid_argument for blocks of a table that overlap, as where each rank has all tables, and for parameters of one rank.
/// On ranks also incompatible for another step on another rank, and rank_failed, naming the rank, where another rank throws.
/// Names that begin with a dot are not looked at.
template <class Trainer, class Extra>
void save_checkpoint(host_exec const& exec, std::string const& directory, Trainer& run, checkpoint_state const& state, std::int64_t keep,
                     Extra const& extra) {
  auto const ranks = detail::ranks_of(run);
  if (ranks && ranks->size() > 1)
    detail::save_on_ranks(exec, *ranks, directory, run, state, keep, extra);
  else
    detail::save_alone(exec, directory, run, state, keep, extra);
}
/// Writes a checkpoint without files of the caller's.
template <class Trainer>
void save_checkpoint(host_exec const& exec, std::string const& directory, Trainer& run, checkpoint_state const& state,
                     std::int64_t keep = 1) {
  save_checkpoint(exec, directory, run, state, keep, [](std::string const&) { return std::vector<manifest_section>(); });
}

/// What could not be read as it was saved.
struct load_report {
  /// Numbers of the tables whose row-wise states are of other columns than those that were saved. A plan that cuts columns otherwise makes
  /// such ones. The state of a row is then the mean over the saved blocks, by how many of its columns lie in each.
  std::vector<std::int64_t> averaged_tables;
};

/// Reads the parameters and rows of a checkpoint into a new model of the same kind, without the states of optimizers and policies.
/// The same kind means the same shapes, features, sequence groups and tables, each table with its id, seed and init_bound.
/// Optimizers and policies of the model may be others than those of the checkpoint.
///
/// One process or any number of ranks may have saved it, and may load it, under any plan. Ranks on which the model's tables lie all call it.
/// Each reads what its parts need. Where one rank throws, all throw: the others rank_failed.
/// @pre The files are as `open_newest_checkpoint` found them.
/// @post The model predicts what the saved model predicted.
/// @throws tessera::error incompatible naming the tensor or field that does not fit, or a table that may hold fewer rows.
/// incompatible also, naming the table, where blocks of columns of int8 rows with scales of their own would have to be joined.
/// invalid_argument for a hashed table that has rows already. Nothing has changed then, on any rank.
/// The model may be half read where a file cannot be read, where an id comes twice, or where a dense table lacks the id.
template <class Model>
void load_model(host_exec const& exec, open_checkpoint const& from, Model& model) {
  auto parts = model.source().parts();
  auto ranks = detail::ranks_of_source(model.source());
  std::optional<safetensors_reader> dense;
  std::optional<table_file_reader> tables;
  auto const names = detail::dense_names(exec, ranks, model);
  detail::on_all_ranks(exec, ranks, "checkpoint: it fits the model", [&] {
    auto const places = places_of(std::as_const(model).source(), parts);
    detail::check_description(model, places, from.content.state, from.folder + "/manifest.json");
    dense.emplace(from.folder + "/dense.safetensors");
    detail::check_parameters(*dense, model, names);
    tables.emplace(detail::stored_parts(from.folder, from.content, places, parts), parts, table_content::weights);
  });
  detail::on_all_ranks(exec, ranks, "checkpoint: it is read", [&] {
    detail::read_parameters(*dense, model);
    tables->read(exec);
  });
}

/// Reads a checkpoint into a trainer of the same kind, so that training goes on from there.
/// The same kind means a model as `load_model` takes it, and optimizers and policies of the same kinds.
/// Rates and limits stay those of the trainer.
/// Dense and hashed stores read what the other wrote, where rows neither wait for admission nor leave.
///
/// Ranks that train together all call it, as `load_model` says. The report is the same on all of them.
/// @pre The files are as `open_newest_checkpoint` found them.
/// @post Steps have the bits of the run that was saved, as if it had not stopped. `trainer_options::clip_norm` says where they may not.
/// On other ranks or under another plan this holds for rows, where gradients have the same bits and the report is empty.
/// @throws tessera::error as `load_model`. incompatible also for optimizers or policies of another kind, naming table and both kinds.
/// invalid_argument for a table whose clock is past the checkpoint's. The trainer is half read then.
template <class Trainer>
load_report load_trainer(host_exec const& exec, open_checkpoint const& from, Trainer& run) {
  auto const file = from.folder + "/manifest.json";
  auto& model = run.model();
  auto const states = run.dense_states();
  auto parts = model.source().parts();
  auto const places = places_of(std::as_const(model).source(), parts);
  auto ranks = detail::ranks_of(run);
  std::vector<step_count> table_steps, dense_steps;
  std::optional<safetensors_reader> dense;
  std::optional<table_file_reader> tables;
  auto const names = detail::dense_names(exec, ranks, model);
  detail::on_all_ranks(exec, ranks, "checkpoint: it fits the trainer", [&] {
    detail::check_description(model, places, from.content.state, file);
    detail::check_training(run, places, parts, from.content, file);
    table_steps = detail::read_table_steps(from.content.state, places.tables.size(), file);
    for (auto const& [group, state] : states)
      dense_steps.emplace_back(json_count(json_object(from.content.state, "dense_steps", file), group, file));
    dense.emplace(from.folder + "/dense.safetensors");
    detail::check_parameters(*dense, model, names);
    for (auto const& [group, state] : states) dense->expect(detail::plane_tensor(group), safetensors_dtype::f32, {state->planes().size()});
    tables.emplace(detail::stored_parts(from.folder, from.content, places, parts), parts, table_content::all);
  });
  detail::on_all_ranks(exec, ranks, "checkpoint: it is read", [&] {
    detail::read_parameters(*dense, model);
    tables->read(exec);
    for (std::size_t g = 0; g < states.size(); ++g) {
      dense->read(detail::plane_tensor(states[g].group), 0, states[g].state->planes());
      states[g].state->set_steps(dense_steps[g]);
    }
    for (std::size_t p = 0; p < parts.size(); ++p) parts[p]->set_steps(table_steps[static_cast<std::size_t>(places.parts[p].table)]);
  });
  return {detail::numbers_of_ranks(exec, ranks, tables->averaged_tables())};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
