// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

namespace examples {

std::string text(char const* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

/// The value of an option, for a person: of a number the shortest text that reads back as the same float.
inline std::string shown(nlohmann::json const& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.dump();
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value.get<float>()).ptr};
}

/// Reads a number in decimal that is the whole text, neither infinite nor NaN. The one parser of all options; false where it is none.
template <class T>
bool parse_number(std::string_view text, T& value) {
  auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return false;
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
  return true;
}

/// What the command line says of embedding tables, and --tables of one feature's.
struct table_settings {
  std::int64_t embedding_dim = 16;
  std::string row_format = "fp32";
  std::int64_t hash_table = 0;  // most rows; 0: a dense table
  std::int64_t admit = 1;
  std::string evict = "lru";
  std::string embedding_init = "0.1";
  std::string embedding_optimizer = "rowwise-adagrad";
  float embedding_lr = 0.03F;
  float embedding_weight_decay = 0;
};

/// What the command line says.
struct settings : table_settings {
  // What a checkpoint keeps, and a command line that goes on from it cannot change; as what tables have but for the rate and the decay.
  std::string model = "dlrm";
  std::vector<std::int64_t> bottom{64, 32};
  std::vector<std::int64_t> top{128, 64};
  std::int64_t hash_size = 0;
  std::int64_t min_count = 1;
  std::int64_t vocabulary_limit = 0;
  std::string dense = "standard";
  std::string dense_as_category = "auto";
  std::string tables;  // of --tables, as JSON; what features have of their own
  std::string optimizer = "adam";
  std::int64_t cross_layers = 3;
  std::int64_t cross_rank = 0;
  std::uint64_t seed = 1;
  bool progressive = false;
  // Which columns the files have, and what becomes of them. Lists of columns have commas.
  std::string columns;  // of --columns, as JSON
  std::string label_column = "label";
  std::string dense_columns;
  std::string sparse_columns;
  std::string session_column;
  std::string time_column;
  std::string pooling;
  std::string attention_target;
  std::string share;
  std::int64_t positions = 0;
  std::int64_t max_length = 0;
  std::string order;
  std::string read = "slices";
  std::string tower_module = "none";
  std::int64_t tower_dim = 0;  // 0: that of the rows
  std::int64_t tower_p = 0;
  std::int64_t tower_c = 1;

  // What a checkpoint keeps too, and a command line may change.
  float lr = 0.003F;
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  std::int64_t decay_start = 0;
  std::int64_t decay_steps = 0;
  float clip_norm = 0;
  std::int64_t batch_size = 128;
  std::int64_t epochs = 3;
  std::string dedup = "auto";
  std::string dedup_sums = "merged";
  std::string sums = "ranks";
  std::int64_t chunk_samples = 32;  // of fixed sums

  // What each call says anew.
  std::vector<std::string> train;  // files, folders and patterns
  std::vector<std::string> test;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string checkpoint;
  std::int64_t checkpoint_every = 0;
  bool resume = false;
  bool eval_only = false;
  std::string metrics;
  std::string predict;
  std::string report;
  std::string pipeline = "on";
  std::string ranks = "auto";
  std::string plan = "bytes";
  bool plan_is_given = false;  // on the command line
  std::string plan_samples;    // empty: beside the plan
  std::string codec = "fp32";
  std::string topology;  // empty: hosts as they name themselves
  std::string exchange = "flat";
  std::string towers;
  std::int64_t tower_probe = 200;  // batches
  std::int64_t ids_ahead = 0;      // batches; 0: none
  std::int64_t hot_budget = 0;     // bytes; 0: no hot rows
  std::string hot_schedule = "loss";
  std::string hot_batches = "swap";
  std::int64_t bucket_bytes = 0;  // 0: sums begin when the backward is done
  std::int64_t time_limit = 3600;

  bool speaks = true;                                // not one of the processes that leave it to another
  std::map<std::string, table_settings> own_tables;  // what `tables` says, by feature

  table_settings const& of_table(std::string const& feature) const {
    auto const own = own_tables.find(feature);
    return own == own_tables.end() ? *this : own->second;
  }
  bool has_modules() const { return tower_module != "none"; }
  bool has_hot_rows() const { return hot_budget > 0; }
  bool has_towers() const { return exchange == "sptt" || has_modules(); }
  bool learns_towers() const { return towers == "learn" || towers.starts_with("learn:"); }
  /// Elements of each vector that a tower module makes.
  std::int64_t tower_width() const { return tower_dim > 0 ? tower_dim : embedding_dim; }
  /// Samples by which the dense net runs; 0: all of a batch's.
  std::int64_t chunks() const { return sums == "fixed" ? chunk_samples : 0; }
};

/// Calls f(name of the option, value, whether a later command line may change it) for what --tables may say of a feature's table.
template <class Settings, class F>
void for_each_of_table(Settings& s, F const& f) {
  f("embedding-dim", s.embedding_dim, false);
  f("row-format", s.row_format, false);
  f("hash-table", s.hash_table, false);
  f("admit", s.admit, false);
  f("evict", s.evict, false);
  f("embedding-init", s.embedding_init, false);
  f("embedding-optimizer", s.embedding_optimizer, false);
  f("embedding-lr", s.embedding_lr, true);
  f("embedding-weight-decay", s.embedding_weight_decay, true);
}

/// The same for all that a checkpoint keeps.
template <class Settings, class F>
void for_each_kept(Settings& s, F const& f) {
  f("model", s.model, false);
  for_each_of_table(s, f);
  f("tables", s.tables, false);
  f("bottom", s.bottom, false);
  f("top", s.top, false);
  f("hash-size", s.hash_size, false);
  f("min-count", s.min_count, false);
  f("vocabulary-limit", s.vocabulary_limit, false);
  f("dense", s.dense, false);
  f("dense-as-category", s.dense_as_category, false);
  f("optimizer", s.optimizer, false);
  f("cross-layers", s.cross_layers, false);
  f("cross-rank", s.cross_rank, false);
  f("seed", s.seed, false);
  f("progressive", s.progressive, false);
  f("lr", s.lr, true);
  f("lr-schedule", s.lr_schedule, true);
  f("warmup-steps", s.warmup_steps, true);
  f("decay-start", s.decay_start, true);
  f("decay-steps", s.decay_steps, true);
  f("clip-norm", s.clip_norm, true);
  f("batch-size", s.batch_size, true);
  f("epochs", s.epochs, true);
  f("columns", s.columns, false);
  f("label-column", s.label_column, false);
  f("dense-columns", s.dense_columns, false);
  f("sparse-columns", s.sparse_columns, false);
  f("session-column", s.session_column, false);
  f("time-column", s.time_column, false);
  f("pooling", s.pooling, false);
  f("attention-target", s.attention_target, false);
  f("share", s.share, false);
  f("positions", s.positions, false);
  f("max-length", s.max_length, false);
  f("order", s.order, false);
  f("read", s.read, false);
  f("tower-module", s.tower_module, false);
  f("tower-dim", s.tower_dim, false);
  f("tower-p", s.tower_p, false);
  f("tower-c", s.tower_c, false);
  f("dedup", s.dedup, true);
  f("dedup-sums", s.dedup_sums, true);
  f("sums", s.sums, true);
  f("chunk-samples", s.chunk_samples, true);
}

}  // namespace examples
