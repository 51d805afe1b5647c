// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/posix_file.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/checkpoint_dense.hpp>
#include <tessera/train/checkpoint_description.hpp>
#include <tessera/train/checkpoint_folder.hpp>
#include <tessera/train/checkpoint_ranks.hpp>
#include <tessera/train/checkpoint_shards.hpp>

/// How one process writes a checkpoint, and how several ranks do.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class Trainer>
void check_savable(Trainer& run, checkpoint_state const& state, std::int64_t keep) {
  if (state.step < 0 || state.step > most_counted || keep < 1 || !state.options.is_object() || !state.position.is_object())
    throw error(errc::invalid_argument, "checkpoint: a step from 0 to 2^62, at least one to keep, options and position as JSON objects",
                {{"step", state.step}, {"keep", keep}, {"options", state.options.type_name()}, {"position", state.position.type_name()}});
  if (run.accumulated() > 0)
    throw error(errc::invalid_argument, "checkpoint: gradients wait for an update, and are no part of a checkpoint",
                {{"step", state.step}, {"micro-batches", run.accumulated()}});
}

// What the manifest says of a checkpoint, but for shards. `kinds` and `table_steps` are those of all tables.
template <class Trainer>
nlohmann::json state_json(Trainer& run, table_places const& places, checkpoint_state const& state, nlohmann::json kinds,
                          nlohmann::json table_steps) {
  auto dense_steps = nlohmann::json::object();
  for (auto const& [group, dense] : run.dense_states()) dense_steps[std::string(group)] = dense->steps().value;
  return {{"step", state.step},
          {"model", describe_model(run.model(), places)},
          {"training", describe_training(run, std::move(kinds))},
          {"options", state.options},
          {"position", state.position},
          {"table_steps", std::move(table_steps)},
          {"dense_steps", std::move(dense_steps)}};
}

// The last files of a checkpoint, then the moment from which it is there.
inline void commit_checkpoint(staged_folder& staged, std::string const& directory, manifest const& content, std::int64_t step,
                              std::int64_t keep) {
  check_all_listed(staged.path(), content);
  write_manifest(staged.path(), content);
  staged.commit();
  prune_step_folders(directory, step_count{step}, keep);
}

// All parts of one process, which has each whole table, in the order of tables.
inline table_parts in_table_order(table_parts parts, table_places const& places) {
  table_parts ordered(places.tables.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    auto const& place = places.parts[p];
    auto const t = static_cast<std::size_t>(place.table);
    if (place.rows == part_place::all_rows || place.rows == places.tables[t].rows) ordered[t] = std::move(parts[p]);
  }
  for (std::size_t t = 0; t < ordered.size(); ++t)
    if (ordered[t] == nullptr || ordered[t]->shape(row_plane::weights).width != places.tables[t].dim)
      throw error(errc::invalid_argument, "checkpoint: a table that does not lie here, and no communicator of those who have it",
                  {{"table", places.tables[t].id.value}});
  return ordered;
}

template <class Trainer, class Extra>
void save_alone(host_exec const& exec, std::string const& directory, Trainer& run, checkpoint_state const& state, std::int64_t keep,
                Extra const& extra) {
  check_savable(run, state, keep);
  staged_folder staged(directory, step_folder_name(step_count{state.step}));
  manifest content{checkpoint_format, one_process_version, {}, {}};
  content.sections = extra(staged.path());
  content.sections.push_back(write_dense(staged.path(), run));
  auto all = run.model().source().parts();
  auto const places = places_of(run.model().source(), all);
  auto const parts = in_table_order(std::move(all), places);
  content.sections.push_back({"tables.safetensors", write_table_file(exec, staged.path() + "/tables.safetensors", parts)});
  auto kinds = nlohmann::json::array(), table_steps = nlohmann::json::array();
  for (auto const& part : parts) {
    kinds.push_back(describe_kind(*part));
    table_steps.push_back(part->steps().value);
  }
  content.state = state_json(run, places, state, std::move(kinds), std::move(table_steps));
  commit_checkpoint(staged, directory, content, state.step, keep);
}

// Leaves the parts that no other rank writes.
inline void leave_out_copies(table_parts& parts, table_places& places) {
  std::size_t kept = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (places.parts[p].is_copy) continue;
    if (kept != p) parts[kept] = std::move(parts[p]);
    places.parts[kept++] = places.parts[p];
  }
  parts.resize(kept);
  places.parts.resize(kept);
}

// Writes the parts of a rank, if it has any. Returns what it tells rank 0 of them.
inline std::string write_rank_file(host_exec const& exec, std::string const& folder, int rank, table_parts const& parts,
                                   table_places const& places) {
  if (parts.empty()) return "{}";
  auto const name = "tables.rank-" + std::to_string(rank) + ".safetensors";
  auto const digest = write_table_file(exec, folder + "/" + name, parts);
  posix_file::open(folder + "/" + name).sync();  // by the machine that wrote it
  auto shards = nlohmann::json::array(), kinds = nlohmann::json::array(), steps = nlohmann::json::array();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    auto const& place = places.parts[p];
    shards.push_back(shard_json({name, static_cast<std::int64_t>(p), place.table, place.first_column, place.columns,
                                 parts[p]->state_layout(), place.first_row, place.rows}));
    kinds.push_back(describe_kind(*parts[p]));
    steps.push_back(parts[p]->steps().value);
  }
  nlohmann::json const message{{"file", name},
                               {"bytes", digest.bytes},
                               {"crc32", digest.crc32},
                               {"shards", std::move(shards)},
                               {"kinds", std::move(kinds)},
                               {"steps", std::move(steps)}};
  return message.dump();
}

// What the messages of all ranks say of tables.
struct files_of_ranks {
  std::vector<manifest_section> sections;
  nlohmann::json shards = nlohmann::json::array(), kinds = nlohmann::json::array(), steps = nlohmann::json::array(),
                 columns = nlohmann::json::array(), rows;  // rows of tables that are cut by rows; null without such

  files_of_ranks(std::string const& folder, std::vector<std::string> const& messages, table_places const& places) {
    for (auto const& table : places.tables) {
      columns.push_back(table.dim);
      kinds.push_back(nullptr);
      steps.push_back(0);
    }
    for (std::size_t r = 0; r < messages.size(); ++r) {
      auto const said = nlohmann::json::parse(messages[r]);
      if (said.contains("file")) add(folder, r, said);
    }
    for (auto const& shard : shards) {
      if (!shard.contains("rows")) continue;
      if (rows.is_null()) rows = nlohmann::json(places.tables.size(), nlohmann::json());
      auto const table = shard["table"].get<std::size_t>();
      rows[table] = places.tables[table].rows;
    }
  }

 private:
  void add(std::string const& folder, std::size_t rank, nlohmann::json const& said) {
    manifest_section const section{said["file"], {said["bytes"], said["crc32"]}};
    std::error_code failure;
    auto const bytes = std::filesystem::file_size(folder + "/" + section.file, failure);
    if (failure || static_cast<std::int64_t>(bytes) != section.digest.bytes)
      throw error(errc::io_error, "checkpoint: a rank's file is not in the folder of rank 0",
                  {{"file", folder + "/" + section.file}, {"rank", rank}, {"reason", "ranks do not share the folder"}});
    sections.push_back(section);
    for (std::size_t p = 0; p < said["shards"].size(); ++p) {
      auto const table = said["shards"][p]["table"].get<std::size_t>();
      if (!kinds[table].is_null() && (kinds[table] != said["kinds"][p] || steps[table] != said["steps"][p]))
        throw error(errc::incompatible, "checkpoint: ranks have trained blocks of a table differently",
                    {{"rank", rank}, {"table", table}, {"steps", said["steps"][p].dump()}, {"steps before", steps[table].dump()}});
      shards.push_back(said["shards"][p]);
      kinds[table] = said["kinds"][p];
      steps[table] = said["steps"][p];
    }
  }
};

// What ranks have agreed on before any of them writes.
template <class Trainer>
void check_savable_on_ranks(host_exec const& exec, any_communicator& comm, Trainer& run, checkpoint_state const& state, std::int64_t keep) {
  std::exception_ptr failure;
  try {
    check_savable(run, state, keep);
  } catch (...) {
    failure = std::current_exception();
  }
  check_same_text(exec, comm, "step " + std::to_string(state.step) + ", checkpoints to keep " + std::to_string(keep),
                  "checkpoint: the same step", failure);
}

// Each rank writes into the folder that rank 0 has made. Rank 0 commits it once all have written, or removes it once all have failed.
template <class Trainer, class Extra>
void save_on_ranks(host_exec const& exec, any_communicator comm, std::string const& directory, Trainer& run, checkpoint_state const& state,
                   std::int64_t keep, Extra const& extra) {
  check_savable_on_ranks(exec, comm, run, state, keep);
  bool const leads = comm.rank() == 0;
  std::optional<staged_folder> staged;
  auto const told = texts_of_ranks(exec, comm, "checkpoint: a folder is made", [&] {
    if (!leads) return std::string();
    staged.emplace(directory, step_folder_name(step_count{state.step}));
    return std::filesystem::path(staged->path()).filename().string();
  });
  auto const folder = (directory.empty() ? "." : directory) + "/" + told[0];
  auto parts = run.model().source().parts();
  auto places = places_of(run.model().source(), parts);
  leave_out_copies(parts, places);
  manifest content{checkpoint_format, checkpoint_version, {}, {}};
  auto const told_of_dense = texts_of_ranks(exec, comm, "checkpoint: dense parameters of towers", [&] { return tell_dense(run); });
  std::vector<told_dense> others;
  auto const messages = texts_of_ranks(exec, comm, "checkpoint: files are written", [&] {
    auto message = write_rank_file(exec, folder, comm.rank(), parts, places);
    if (leads) {
      for (auto const& text : told_of_dense) others.emplace_back(text);
      content.sections = extra(folder);
      content.sections.push_back(write_dense(folder, run, others));
    }
    return message;
  });
  optional_ranks ranks(comm);
  on_all_ranks(exec, ranks, "checkpoint: it is committed", [&] {
    if (!leads) return;
    files_of_ranks files(folder, messages, places);
    content.sections.insert(content.sections.end(), files.sections.begin(), files.sections.end());
    content.state = state_json(run, places, state, std::move(files.kinds), std::move(files.steps));
    for (auto const& other : others)
      for (auto const& [group, steps] : other.steps.items()) content.state["dense_steps"][group] = steps;
    content.state["shards"] = std::move(files.shards);
    content.state["table_columns"] = std::move(files.columns);
    if (!files.rows.is_null()) content.state["table_rows"] = std::move(files.rows);
    shards_of(content, folder + "/manifest.json", errc::invalid_argument);
    commit_checkpoint(*staged, directory, content, state.step, keep);
  });
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
