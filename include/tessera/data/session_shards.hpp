// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/data/session_sampling.hpp>
#include <tessera/files/atomic_folder.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `write_session_shards`.
struct session_shards_options {
  std::int64_t shards = 8;               ///< files to be written, at least 1
  sample_key key = sample_key::session;  ///< what decides a shard; by sample a log is spread without regard to sessions
  random_seed seed{0};                   ///< seed of the hash that decides a shard
  sample_selection selection = {};       ///< which samples are written
  parquet_writer_options writer = {};
};

/// What `write_session_shards` has written.
struct session_shards {
  std::vector<std::string> paths;        ///< (shards,)
  std::vector<parquet_written> written;  ///< (shards,), of each path
  std::int64_t rows_read = 0;            ///< samples of the source

  /// How many samples were written.
  std::int64_t rows() const noexcept {
    std::int64_t sum = 0;
    for (auto const& shard : written) sum += shard.rows;
    return sum;
  }
};

namespace detail {

inline std::string shard_name(std::int64_t shard) {
  auto const digits = std::to_string(shard);
  return "shard-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + ".parquet";
}

// Rows of samples by the shard they go to, in order; `of_shard[s]` keeps its memory.
inline void spread_rows(sample_columns_view samples, std::int64_t first_row, session_shards_options const& options,
                        std::vector<std::vector<std::int64_t>>& of_shard) {
  for (auto& rows : of_shard) rows.clear();
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    auto const session = samples.sessions.empty() ? 0 : samples.sessions[i];
    if (!options.selection.keeps(session, first_row + i)) continue;
    of_shard[static_cast<std::size_t>(shard_of(options.key, session, first_row + i, options.shards, options.seed))].push_back(i);
  }
}

}  // namespace detail

/// Spreads samples over Parquet files, `parent`/`name`/shard-00000.parquet and so on. By session, all samples of a session go into one
/// file. Within a file samples keep their order.
///
/// The folder appears whole or not at all, in place of one that was there. A shard without samples has a file too. In memory is one block
/// of the source, with a copy of what one shard gets of the block. Each shard adds what was compressed of a row group. Source: RecD (see
/// `sample_selection`), section 4.1, "Log sharding".
/// @throws what the source and `parquet_writer` throw; tessera::error io_error. invalid_argument for fewer shards than 1, for a rate
/// outside [0, 1], and for a source without sessions where shards or selection need them.
template <sample_source Source>
session_shards write_session_shards(host_exec const& exec, Source const& source, std::string const& parent, std::string const& name,
                                    session_shards_options const& options = {}) {
  sample_schema const& schema = source.schema();
  validate(options.selection);
  if (options.shards < 1) throw error(errc::invalid_argument, "write_session_shards: shards", {{"shards", options.shards}});
  detail::check_choice("write_session_shards", "key", options.key, sample_key::sample);
  bool const by_session =
      options.key == sample_key::session || (options.selection.key == sample_key::session && options.selection.rate < 1);
  if (by_session && schema.session.empty()) throw error(errc::invalid_argument, "write_session_shards: the schema has no session");

  staged_folder folder(parent, name);
  session_shards result;
  std::vector<parquet_writer> writers;
  writers.reserve(static_cast<std::size_t>(options.shards));
  for (std::int64_t shard = 0; shard < options.shards; ++shard) {
    writers.emplace_back(folder.path() + "/" + detail::shard_name(shard), schema, options.writer);
    result.paths.push_back(folder.target() + "/" + detail::shard_name(shard));
  }

  sample_columns samples(schema), part(schema);
  std::vector<std::vector<std::int64_t>> of_shard(writers.size());
  for (std::int64_t block = 0; block < source.block_count(); ++block) {
    source.read(exec, block, samples);
    result.rows_read += samples.size();
    detail::spread_rows(samples.view(), source.first_row(block), options, of_shard);
    for (std::size_t shard = 0; shard < writers.size(); ++shard) {
      if (of_shard[shard].empty()) continue;
      part.clear();
      part.append(exec, samples.view(), of_shard[shard]);
      writers[shard].write(exec, part.view());
    }
  }
  for (auto& writer : writers) result.written.push_back(writer.finish());
  writers.clear();
  folder.commit();
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
