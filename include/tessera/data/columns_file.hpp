// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/derived_columns.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/rules_file.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a user says of their files: which columns there are, which further columns are made of them, and what becomes of each.
struct data_description {
  sample_schema schema;                                   ///< of the files
  std::vector<derived_column> derived{};                  ///< further columns
  std::vector<dense_rule> dense{};                        ///< of the schema's dense columns
  std::vector<sparse_rule> sparse{};                      ///< of the schema's sparse columns and the derived ones
  std::optional<delimited_layout> layout = std::nullopt;  ///< of text files

  friend bool operator==(data_description const&, data_description const&) = default;
};

namespace detail {

inline char const* name_of(id_format format) noexcept {
  switch (format) {
    case id_format::decimal: return "decimal";
    case id_format::hexadecimal: return "hexadecimal";
    case id_format::text: return "text";
    case id_format::automatic: break;
  }
  return "automatic";
}
inline id_format id_format_of(placed_json const& json) {
  auto const name = json.text();
  for (auto const format : {id_format::automatic, id_format::decimal, id_format::hexadecimal, id_format::text})
    if (name == name_of(format)) return format;
  json.refuse("automatic, decimal, hexadecimal or text");
}

inline char character_of(placed_json const& json) {
  auto const text = json.text();
  if (text.size() != 1) json.refuse("one character");
  return text[0];
}

// What the JSON does not say is as in `layout`.
inline delimited_layout layout_of(placed_json const& json, delimited_layout layout) {
  json.allow({"delimiter", "header", "columns", "quotes", "list-separator", "missing", "ids", "binary-labels"});
  if (auto const field = json.find("delimiter")) layout.delimiter = character_of(*field);
  if (auto const field = json.find("columns")) {
    layout.columns = field->texts();
    layout.header = false;
  }
  if (auto const field = json.find("header")) layout.header = field->boolean();
  if (auto const field = json.find("quotes")) layout.quotes = field->boolean();
  if (auto const field = json.find("list-separator")) layout.list_separator = character_of(*field);
  if (auto const field = json.find("missing")) layout.missing = field->texts();
  if (auto const field = json.find("ids")) layout.ids = id_format_of(*field);
  if (auto const field = json.find("binary-labels")) layout.binary_labels = field->boolean();
  return layout;
}

inline nlohmann::json json_of(delimited_layout const& layout) {
  delimited_layout const usual;
  nlohmann::json json{{"delimiter", std::string(1, layout.delimiter)}};
  if (layout.header) json["header"] = true;
  if (!layout.columns.empty()) json["columns"] = layout.columns;
  if (layout.quotes) json["quotes"] = true;
  if (layout.list_separator != usual.list_separator) json["list-separator"] = std::string(1, layout.list_separator);
  if (!layout.missing.empty()) json["missing"] = layout.missing;
  if (layout.binary_labels) json["binary-labels"] = true;
  if (layout.ids != usual.ids) json["ids"] = name_of(layout.ids);
  return json;
}

// What a file says of one column of ids, derived or not. Without anything but its name it has the rule of all others.
inline void read_sparse_rule(placed_json const& json, std::string const& name, sparse_rule const& others, std::vector<sparse_rule>& rules) {
  auto const steps = json.find("steps"), share = json.find("share"), missing = json.find("missing");
  if (!steps && !share && !missing) return;
  auto& rule = rules.emplace_back(others);
  rule.columns = {name};
  if (steps) rule.steps = id_steps_of(*steps);
  if (share) rule.share = share->text();
  if (missing) rule.missing = missing_policy_of(*missing);
}

inline void read_dense(placed_json const& json, data_description& to) {
  for (auto const& column : json.items()) {
    if (column.value().is_string()) {
      to.schema.dense.push_back(column.text());
      continue;
    }
    column.allow({"name", "steps"});
    to.schema.dense.push_back(column.at("name").text());
    if (auto const steps = column.find("steps")) to.dense.push_back({{to.schema.dense.back()}, dense_steps_of(*steps)});
  }
}

inline void read_sparse(placed_json const& json, sparse_rule const& others, data_description& to) {
  for (auto const& column : json.items()) {
    if (column.value().is_string()) {
      to.schema.sparse.push_back(column.text());
      to.schema.single.push_back(to.schema.sparse.back());
      continue;
    }
    column.allow({"name", "list", "format", "steps", "share", "missing"});
    auto const name = column.at("name").text();
    to.schema.sparse.push_back(name);
    auto const list = column.find("list");
    if (!list || !list->boolean()) to.schema.single.push_back(name);
    if (auto const format = column.find("format")) {
      if (!to.layout) format->refuse("a field \"file\" beside it, as it is text files that have a format of ids");
      to.layout->format_of[name] = id_format_of(*format);
    }
    read_sparse_rule(column, name, others, to.sparse);
  }
}

inline void read_derived(placed_json const& json, sparse_rule const& others, data_description& to) {
  for (auto const& column : json.items()) {
    column.allow({"name", "ngram", "most-pairs", "combine", "steps", "share", "missing"});
    auto const name = column.at("name").text();
    auto const ngram = column.find("ngram"), combine = column.find("combine"), most = column.find("most-pairs");
    if (ngram.has_value() == combine.has_value()) column.refuse("either ngram or combine");
    if (ngram) {
      auto const parts = ngram->texts();
      if (parts.size() != 2) ngram->refuse("two columns");
      column_ngram made{name, parts[0], parts[1]};
      if (most) made.most_pairs = most->integer();
      to.derived.emplace_back(std::move(made));
    } else {
      if (most) most->refuse("ngram beside it");
      to.derived.emplace_back(combined_columns{name, combine->texts()});
    }
    read_sparse_rule(column, name, others, to.sparse);
  }
}

inline data_description description_of(placed_json const& json, delimited_layout const& usual) {
  json.allow({"label", "dense", "dense-steps", "sparse", "sparse-steps", "derived", "session", "time", "weight", "other-labels", "file"});
  data_description result;
  result.schema.label = json.at("label").text();
  if (auto const field = json.find("session")) result.schema.session = field->text();
  if (auto const field = json.find("time")) result.schema.time = field->text();
  if (auto const field = json.find("weight")) result.schema.weight = field->text();
  if (auto const field = json.find("other-labels")) result.schema.other_labels = field->texts();
  if (auto const field = json.find("file")) result.layout = layout_of(*field, usual);
  sparse_rule others;
  auto const sparse_steps = json.find("sparse-steps"), dense_steps = json.find("dense-steps");
  if (sparse_steps) others.steps = id_steps_of(*sparse_steps);
  if (auto const field = json.find("dense")) read_dense(*field, result);
  if (auto const field = json.find("sparse")) read_sparse(*field, others, result);
  if (auto const field = json.find("derived")) read_derived(*field, others, result);
  if (dense_steps) result.dense.push_back({{}, dense_steps_of(*dense_steps)});
  if (sparse_steps) result.sparse.push_back(std::move(others));
  if (result.layout) check_layout("columns file", *result.layout);
  check_schema("columns file", result.schema);
  preprocessing const checked(schema_with(result.schema, result.derived), result.dense, result.sparse);
  return result;
}

template <class Rule>
Rule const* rule_of(std::vector<Rule> const& rules, std::string const& column) noexcept {
  for (auto const& rule : rules)
    if (std::find(rule.columns.begin(), rule.columns.end(), column) != rule.columns.end()) return &rule;
  return nullptr;
}
template <class Rule>
Rule const* rule_of_others(std::vector<Rule> const& rules) noexcept {
  for (auto const& rule : rules)
    if (rule.columns.empty()) return &rule;
  return nullptr;
}

inline void write_sparse_rule(nlohmann::json& column, std::vector<sparse_rule> const& rules, std::string const& name) {
  auto const* rule = rule_of(rules, name);
  auto const* const others = rule_of_others(rules);
  // "sparse-steps" say no more than steps.
  if (rule == nullptr && others != nullptr && (!others->share.empty() || others->missing != sparse_rule{}.missing)) rule = others;
  if (rule == nullptr) return;
  column["steps"] = json_of_steps(rule->steps);
  if (!rule->share.empty()) column["share"] = rule->share;
  if (rule->missing != sparse_rule{}.missing) column["missing"] = name_of(rule->missing);
}

inline nlohmann::json json_of(data_description const& d) {
  nlohmann::json json{{"label", d.schema.label}};
  auto dense = nlohmann::json::array(), sparse = nlohmann::json::array(), derived = nlohmann::json::array();
  // A column of which there is nothing to say is its name alone.
  auto const shortened = [](nlohmann::json column) { return column.size() == 1 ? column["name"] : column; };
  for (auto const& name : d.schema.dense) {
    nlohmann::json column{{"name", name}};
    if (auto const* const rule = rule_of(d.dense, name)) column["steps"] = json_of_steps(rule->steps);
    dense.push_back(shortened(std::move(column)));
  }
  for (auto const& name : d.schema.sparse) {
    nlohmann::json column{{"name", name}};
    if (!d.schema.is_single(name)) column["list"] = true;
    if (d.layout)
      if (auto const found = d.layout->format_of.find(name); found != d.layout->format_of.end()) column["format"] = name_of(found->second);
    write_sparse_rule(column, d.sparse, name);
    sparse.push_back(shortened(std::move(column)));
  }
  for (auto const& made : d.derived) {
    nlohmann::json column;
    if (auto const* const combined = std::get_if<combined_columns>(&made)) {
      column = {{"name", combined->name}, {"combine", combined->columns}};
    } else if (auto const* const ngram = std::get_if<column_ngram>(&made)) {
      column = {{"name", ngram->name}, {"ngram", nlohmann::json::array({ngram->first, ngram->second})}};
      if (ngram->most_pairs != column_ngram{}.most_pairs) column["most-pairs"] = ngram->most_pairs;
    }
    write_sparse_rule(column, d.sparse, column["name"].get<std::string>());
    derived.push_back(std::move(column));
  }
  if (!dense.empty()) json["dense"] = std::move(dense);
  if (!sparse.empty()) json["sparse"] = std::move(sparse);
  if (!derived.empty()) json["derived"] = std::move(derived);
  if (auto const* const rule = rule_of_others(d.dense)) json["dense-steps"] = json_of_steps(rule->steps);
  if (auto const* const rule = rule_of_others(d.sparse)) json["sparse-steps"] = json_of_steps(rule->steps);
  if (!d.schema.session.empty()) json["session"] = d.schema.session;
  if (!d.schema.time.empty()) json["time"] = d.schema.time;
  if (!d.schema.weight.empty()) json["weight"] = d.schema.weight;
  if (!d.schema.other_labels.empty()) json["other-labels"] = d.schema.other_labels;
  if (d.layout) json["file"] = json_of(*d.layout);
  return json;
}

}  // namespace detail

/// Reads a description of data files from a JSON file:
///
///     {"label": "click",
///      "dense": ["age", {"name": "price", "steps": ["log", {"clip": [0, 10]}, "missing-indicator"]}],
///      "sparse": ["item", "hour", {"name": "history", "list": true, "steps": [{"truncate": 50}, {"hash": 100000}], "share": "item"},
///                 {"name": "places", "list": true, "format": "text"}],
///      "derived": [{"name": "item x hour", "ngram": ["item", "hour"]}, {"name": "all", "combine": ["history", "places"]}],
///      "session": "visit", "time": "at", "weight": "w", "other-labels": ["like"],
///      "file": {"delimiter": ",", "header": true, "list-separator": "|", "missing": ["NA"]}}
///
/// - A column of ids is single unless it says `"list": true`. Its `"format"` is automatic, decimal, hexadecimal or text. Its `"missing"` is
///   own-id or no-id.
/// - `"dense-steps"` and `"sparse-steps"` are the steps of the columns that have none of their own.
/// - Steps of numbers are "log", "standardise", "missing-indicator", {"clip": [least, most]}, {"bucketise": [boundaries]}, {"bucketise":
///   buckets} and {"fill": number}. A bound that is null is not there.
/// - Fitted steps of numbers are {"standardise": {"mean": m, "deviation": d}} and {"bucketise": {"buckets": n, "boundaries":
///   [boundaries]}}.
/// - Steps of ids without options are {"truncate": most}, {"hash": size}, {"modulo": size}, {"clip": [least, most]}, {"bins": [boundaries]}
///   and "vocabulary".
/// - Steps of ids with options are {"truncate": {"most": n, "keep": "first"}}, {"hash": {"size": n, "seed": s, "as-key": name}} and
///   {"vocabulary": {"min-count": n, "limit": n}}.
/// - `"file"` describes text files by the members of `delimited_layout`: "delimiter", "header", "columns", "quotes", "list-separator",
///   "missing", "ids" and "binary-labels". A member that it leaves out is as in `usual`. A layout with "columns" has no header.
///
/// @throws tessera::error io_error. parse_error naming file, field and value, for what is no JSON, an unknown field, or a value that cannot
/// be. invalid_argument naming file, column and value, as `check_schema`, `check_layout`, `schema_with` and `preprocessing`.
inline data_description read_columns_file(std::string const& path, delimited_layout const& usual = {}) {
  auto const json = read_json(path);
  return detail::naming_file(path, [&] { return detail::description_of({json, path}, usual); });
}

/// Reads a description from JSON that is part of something else, which errors call `where`. @throws tessera::error parse_error,
/// invalid_argument as `read_columns_file`.
inline data_description parse_columns(nlohmann::json const& json, std::string const& where, delimited_layout const& usual = {}) {
  return detail::naming_file(where, [&] { return detail::description_of({json, where}, usual); });
}

/// Returns a description as JSON. @post `parse_columns` of the result gives the description again, where `write_columns_file` says so of
/// `read_columns_file`.
inline nlohmann::json columns_json(data_description const& description) { return detail::json_of(description); }

/// Writes a description. Rules of several columns become one rule a column.
/// @post `read_columns_file` gives the description again where three things hold. Each rule names one column, in the order of schema and
/// derived columns. The rule of all others comes last and says steps alone. A layout has formats only of columns that the schema names as
/// sparse.
/// @throws tessera::error io_error; invalid_argument for a name that is not UTF-8.
inline void write_columns_file(std::string const& path, data_description const& description) {
  write_json(path, detail::json_of(description));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
