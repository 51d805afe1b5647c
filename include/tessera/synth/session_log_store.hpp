// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <arrow/result.h>
#include <arrow/util/compression.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/session_sampling.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `session_log_store`.
struct session_log_store_options {
  std::int64_t shards = 8;                           ///< at least 1
  sample_key key = sample_key::session;              ///< a hash of this decides a message's shard
  random_seed seed{0};                               ///< seed of that hash
  std::int64_t block_bytes = std::int64_t{1} << 18;  ///< a shard compresses when its messages have so many bytes, at least 1
  int zstd_level = 1;                                ///< level of compression
};

/// Counts what went through a `session_log_store`.
struct session_log_bytes {
  std::int64_t messages = 0;    ///< samples
  std::int64_t raw = 0;         ///< bytes of all messages
  std::int64_t compressed = 0;  ///< bytes of all compressed blocks
  std::int64_t blocks = 0;      ///< compressed blocks

  /// Returns raw over compressed bytes; 1 where nothing was compressed.
  double ratio() const noexcept { return compressed == 0 ? 1 : static_cast<double>(raw) / static_cast<double>(compressed); }
};

/// Measures what compression gains in a store that buffers logs between servers and tables, when messages are spread by session.
///
/// Each sample is a message. A shard takes its messages in order and compresses them by zstd, block after block; the store keeps counts alone.
/// A message has label and dense values in 4 bytes each, session and time in 8. Of each list it has the number of ids in 4 bytes, and each id
/// in 8. The heap gives the memory: a raw and a compressed block for each shard, and 8 bytes for each sample of a call. What a shard gains
/// depends on how many sessions are open in it at once, and how many messages a block has. One thread at a time uses an object.
/// Source: RecD (see `sample_selection`), section 4.1, "Log sharding".
class session_log_store {
 public:
  /// Makes a store without messages.
  /// @throws tessera::error invalid_argument for shards or block_bytes below 1, and where Arrow refuses the compression.
  explicit session_log_store(session_log_store_options options = {}) : options_(options) {
    if (options.shards < 1 || options.block_bytes < 1)
      throw error(errc::invalid_argument, "session_log_store: options", {{"shards", options.shards}, {"block_bytes", options.block_bytes}});
    detail::check_choice("session_log_store", "key", options.key, sample_key::sample);
    for (std::int64_t i = 0; i < options.shards; ++i) {
      auto& shard = shards_.emplace_back();
      auto codec = arrow::util::Codec::Create(arrow::Compression::ZSTD, options.zstd_level);
      if (!codec.ok())
        throw error(errc::invalid_argument, "session_log_store: no such compression",
                    {{"zstd_level", options.zstd_level}, {"reason", codec.status().message()}});
      shard.codec = std::move(*codec);
    }
  }

  /// Sends samples to the shards; each shard is one chunk of work. `first_row` is the number of the first sample, which only sharding by sample
  /// reads.
  /// @throws tessera::error shape_mismatch, before anything is sent, for samples without sessions where messages are spread by session.
  /// Throws io_error when zstd fails; the counts are of no use after that.
  void append(host_exec const& exec, sample_columns_view samples, std::int64_t first_row) {
    bool const by_session = options_.key == sample_key::session;
    if (by_session && samples.sessions.size() != samples.size())
      throw error(errc::shape_mismatch, "session_log_store: a session a sample, where messages are spread by session",
                  {{"sessions", samples.sessions.size()}, {"samples", samples.size()}});
    for (auto& shard : shards_) shard.rows.clear();
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      auto const shard = shard_of(options_.key, by_session ? samples.sessions[i] : 0, first_row + i, options_.shards, options_.seed);
      shards_[static_cast<std::size_t>(shard)].rows.push_back(i);
    }
    exec.run(options_.shards, [&](std::int64_t number) {
      auto& shard = shards_[static_cast<std::size_t>(number)];
      for (auto const row : shard.rows) {
        add_message(shard, samples, row);
        if (static_cast<std::int64_t>(shard.block.size()) >= options_.block_bytes) compress(shard);
      }
    });
  }

  /// Compresses what is left and returns the counts of all messages. @throws tessera::error io_error when zstd fails.
  session_log_bytes finish(host_exec const& exec) {
    exec.run(options_.shards, [&](std::int64_t number) {
      if (auto& shard = shards_[static_cast<std::size_t>(number)]; !shard.block.empty()) compress(shard);
    });
    session_log_bytes sum;
    for (auto const& shard : shards_) {
      sum.messages += shard.bytes.messages;
      sum.raw += shard.bytes.raw;
      sum.compressed += shard.bytes.compressed;
      sum.blocks += shard.bytes.blocks;
    }
    return sum;
  }

 private:
  struct shard_state {
    std::unique_ptr<arrow::util::Codec> codec;
    std::vector<std::int64_t> rows;  // the shard's samples of a call
    std::vector<char> block;
    std::vector<std::uint8_t> compressed;
    session_log_bytes bytes;
  };

  template <class T>
  static void add(std::vector<char>& block, T const* values, std::int64_t count) {
    auto const* const bytes = reinterpret_cast<char const*>(values);
    block.insert(block.end(), bytes, bytes + count * static_cast<std::int64_t>(sizeof(T)));
  }

  static void add_message(shard_state& shard, sample_columns_view samples, std::int64_t row) {
    auto& block = shard.block;
    auto const before = block.size();
    add(block, &samples.labels[row], 1);
    for (std::int64_t c = 0; c < samples.dense.rows(); ++c) add(block, samples.dense.row(c) + row, 1);
    if (!samples.sessions.empty()) add(block, &samples.sessions[row], 1);
    if (!samples.times.empty()) add(block, &samples.times[row], 1);
    for (auto const& rows : samples.sparse) {
      auto const ids = rows.row(row);
      auto const count = static_cast<std::uint32_t>(ids.size());
      add(block, &count, 1);
      add(block, ids.data(), ids.size());
    }
    ++shard.bytes.messages;
    shard.bytes.raw += static_cast<std::int64_t>(block.size() - before);
  }

  static void compress(shard_state& shard) {
    auto const bytes = static_cast<std::int64_t>(shard.block.size());
    auto const* const input = reinterpret_cast<std::uint8_t const*>(shard.block.data());
    auto const room = shard.codec->MaxCompressedLen(bytes, input);
    shard.compressed.resize(static_cast<std::size_t>(room));
    auto const written = shard.codec->Compress(bytes, input, room, shard.compressed.data());
    if (!written.ok()) throw error(errc::io_error, "session_log_store: cannot compress", {{"reason", written.status().message()}});
    shard.bytes.compressed += *written;
    ++shard.bytes.blocks;
    shard.block.clear();
  }

  session_log_store_options options_;
  std::vector<shard_state> shards_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
