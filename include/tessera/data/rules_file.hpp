// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/data/dense_steps.hpp>
#include <tessera/data/sparse_steps.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// A value in a JSON file that knows its place there, for messages. Refers to the value.
class placed_json {
 public:
  placed_json(nlohmann::json const& value, std::string file, std::string field = {})
      : value_(&value), file_(std::move(file)), field_(std::move(field)) {}

  nlohmann::json const& value() const noexcept { return *value_; }

  /// @throws tessera::error parse_error naming file and field, what was found there and what was expected.
  [[noreturn]] void refuse(std::string const& expected) const {
    throw error(errc::parse_error, "JSON field is not what it must be",
                {{"file", file_},
                 {"field", field_},
                 {"expected", expected},
                 {"found", value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}});
  }
  /// Refuses what is no object, and fields that are not among these.
  void allow(std::initializer_list<char const*> fields) const {
    if (!value_->is_object()) refuse("object");
    for (auto const& [name, inner] : value_->items())
      if (std::none_of(fields.begin(), fields.end(), [&name = name](char const* field) { return name == field; })) {
        std::string known;
        for (auto const* field : fields) known += (known.empty() ? "" : ", ") + std::string(field);
        throw error(errc::parse_error, "JSON field is unknown", {{"file", file_}, {"field", path(name)}, {"known", known}});
      }
  }
  /// The field of that name, or none.
  std::optional<placed_json> find(std::string const& name) const {
    if (!value_->is_object()) refuse("object");
    auto const found = value_->find(name);
    if (found == value_->end()) return {};
    return placed_json(*found, file_, path(name));
  }
  placed_json at(std::string const& name) const {
    if (auto found = find(name)) return *found;
    throw error(errc::parse_error, "JSON field is missing", {{"file", file_}, {"field", path(name)}});
  }
  std::vector<placed_json> items() const {
    if (!value_->is_array()) refuse("array");
    std::vector<placed_json> result;
    for (auto const& item : *value_) result.emplace_back(item, file_, field_ + "[" + std::to_string(result.size()) + "]");
    return result;
  }
  /// The one field of an object.
  std::pair<std::string, placed_json> only() const {
    if (!value_->is_object() || value_->size() != 1) refuse("a name, or an object of one field");
    return {value_->begin().key(), placed_json(value_->begin().value(), file_, path(value_->begin().key()))};
  }

  std::string text() const {
    if (!value_->is_string()) refuse("string");
    return value_->get<std::string>();
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> result;
    for (auto const& item : items()) result.push_back(item.text());
    return result;
  }
  bool boolean() const {
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }
  std::int64_t integer() const {
    bool const fits = !value_->is_number_unsigned() ||
                      value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!value_->is_number_integer() || !fits) refuse("integer");
    return value_->get<std::int64_t>();
  }
  std::uint64_t bits() const {
    if (!value_->is_number_unsigned()) refuse("integer from 0 on");
    return value_->get<std::uint64_t>();
  }
  double number() const {
    if (!value_->is_number()) refuse("number");
    return value_->get<double>();
  }
  /// A number, or null: `open`.
  float bound(float open) const { return value_->is_null() ? open : static_cast<float>(number()); }

 private:
  std::string path(std::string const& name) const { return field_.empty() ? name : field_ + "." + name; }

  nlohmann::json const* value_;
  std::string file_, field_;
};

// A bound that is infinite has no number in JSON.
inline nlohmann::json json_of_bound(float bound) { return std::isinf(bound) ? nlohmann::json(nullptr) : nlohmann::json(double{bound}); }

inline nlohmann::json json_of(dense_step const& step) {
  if (std::holds_alternative<log_values>(step)) return "log";
  if (std::holds_alternative<indicate_missing>(step)) return "missing-indicator";
  if (auto const* const s = std::get_if<standardise>(&step)) {
    if (*s == standardise{}) return "standardise";
    return {{"standardise", {{"mean", s->mean}, {"deviation", s->deviation}}}};
  }
  if (auto const* const s = std::get_if<clip_numbers>(&step))
    return {{"clip", nlohmann::json::array({json_of_bound(s->least), json_of_bound(s->most)})}};
  if (auto const* const s = std::get_if<fill_missing>(&step)) return {{"fill", double{s->value}}};
  auto const& s = std::get<bucketise>(step);
  auto boundaries = nlohmann::json::array();
  for (auto const boundary : s.boundaries) boundaries.push_back(double{boundary});
  if (s.buckets == 0) return {{"bucketise", std::move(boundaries)}};
  if (s.boundaries.empty()) return {{"bucketise", s.buckets}};
  return {{"bucketise", {{"buckets", s.buckets}, {"boundaries", std::move(boundaries)}}}};
}

inline nlohmann::json json_of(id_step const& step) {
  if (auto const* const s = std::get_if<truncate_ids>(&step)) {
    if (s->kept == kept_values::last) return {{"truncate", s->most}};
    return {{"truncate", {{"most", s->most}, {"keep", "first"}}}};
  }
  if (auto const* const s = std::get_if<hash_ids>(&step)) {
    if (s->seed == 0 && s->as_key.empty()) return {{"hash", s->size}};
    nlohmann::json options{{"size", s->size}};
    if (s->seed != 0) options["seed"] = s->seed;
    if (!s->as_key.empty()) options["as-key"] = s->as_key;
    return {{"hash", std::move(options)}};
  }
  if (auto const* const s = std::get_if<modulo_ids>(&step)) return {{"modulo", s->size}};
  if (auto const* const s = std::get_if<clip_ids>(&step)) return {{"clip", nlohmann::json::array({s->least, s->most})}};
  if (auto const* const s = std::get_if<bin_ids>(&step)) return {{"bins", s->boundaries}};
  auto const& s = std::get<vocabulary>(step);
  if (s == vocabulary{}) return "vocabulary";
  nlohmann::json options = nlohmann::json::object();
  if (s.min_count != 1) options["min-count"] = s.min_count;
  if (s.limit != 0) options["limit"] = s.limit;
  return {{"vocabulary", std::move(options)}};
}

inline dense_step dense_step_of(placed_json const& json) {
  char const* const known = "log, standardise, clip, bucketise, fill or missing-indicator";
  if (json.value().is_string()) {
    auto const name = json.text();
    if (name == "log") return log_values{};
    if (name == "standardise") return standardise{};
    if (name == "missing-indicator") return indicate_missing{};
    json.refuse(known);
  }
  auto const [name, options] = json.only();
  auto const boundaries = [](placed_json const& list) {
    std::vector<float> result;
    for (auto const& boundary : list.items()) result.push_back(static_cast<float>(boundary.number()));
    return result;
  };
  if (name == "standardise") {
    options.allow({"mean", "deviation"});
    return standardise{options.at("mean").number(), options.at("deviation").number()};
  }
  if (name == "clip") {
    auto const bounds = options.items();
    if (bounds.size() != 2) options.refuse("two bounds");
    return clip_numbers{bounds[0].bound(clip_numbers{}.least), bounds[1].bound(clip_numbers{}.most)};
  }
  if (name == "fill") return fill_missing{static_cast<float>(options.number())};
  if (name == "bucketise") {
    if (options.value().is_array()) return bucketise{boundaries(options), 0};
    if (!options.value().is_object()) return bucketise{{}, options.integer()};
    options.allow({"buckets", "boundaries"});
    return bucketise{boundaries(options.at("boundaries")), options.at("buckets").integer()};
  }
  json.refuse(known);
}

inline id_step id_step_of(placed_json const& json) {
  char const* const known = "truncate, hash, modulo, clip, bins or vocabulary";
  if (json.value().is_string()) {
    if (json.text() == "vocabulary") return vocabulary{};
    json.refuse(known);
  }
  auto const [name, options] = json.only();
  bool const is_object = options.value().is_object();
  if (name == "truncate") {
    if (!is_object) return truncate_ids{.most = options.integer()};
    options.allow({"most", "keep"});
    truncate_ids result{.most = options.at("most").integer()};
    if (auto const keep = options.find("keep")) {
      auto const which = keep->text();
      if (which != "first" && which != "last") keep->refuse("first or last");
      result.kept = which == "first" ? kept_values::first : kept_values::last;
    }
    return result;
  }
  if (name == "hash") {
    if (!is_object) return hash_ids{.size = options.integer()};
    options.allow({"size", "seed", "as-key"});
    hash_ids result{.size = options.at("size").integer()};
    if (auto const seed = options.find("seed")) result.seed = seed->bits();
    if (auto const key = options.find("as-key")) result.as_key = key->text();
    return result;
  }
  if (name == "modulo") return modulo_ids{.size = options.integer()};
  if (name == "clip") {
    auto const bounds = options.items();
    if (bounds.size() != 2) options.refuse("two bounds");
    return clip_ids{bounds[0].integer(), bounds[1].integer()};
  }
  if (name == "bins") {
    bin_ids result{};
    for (auto const& boundary : options.items()) result.boundaries.push_back(boundary.integer());
    return result;
  }
  if (name == "vocabulary") {
    options.allow({"min-count", "limit"});
    vocabulary result{};
    if (auto const count = options.find("min-count")) result.min_count = count->integer();
    if (auto const limit = options.find("limit")) result.limit = limit->integer();
    return result;
  }
  json.refuse(known);
}

template <class Step>
nlohmann::json json_of_steps(std::vector<Step> const& steps) {
  auto result = nlohmann::json::array();
  for (auto const& step : steps) result.push_back(json_of(step));
  return result;
}
inline std::vector<dense_step> dense_steps_of(placed_json const& json) {
  std::vector<dense_step> steps;
  for (auto const& step : json.items()) steps.push_back(dense_step_of(step));
  return steps;
}
inline std::vector<id_step> id_steps_of(placed_json const& json) {
  std::vector<id_step> steps;
  for (auto const& step : json.items()) steps.push_back(id_step_of(step));
  return steps;
}

inline char const* name_of(missing_policy policy) noexcept { return policy == missing_policy::own_id ? "own-id" : "no-id"; }
inline missing_policy missing_policy_of(placed_json const& json) {
  auto const name = json.text();
  if (name != "own-id" && name != "no-id") json.refuse("own-id or no-id");
  return name == "own-id" ? missing_policy::own_id : missing_policy::no_id;
}

/// Calls f, and adds the file to what it throws of rules and schemas.
template <class F>
auto naming_file(std::string const& file, F const& f) {
  try {
    return f();
  } catch (error const& e) {
    if (!e.value("file").empty()) throw;
    auto values = e.values();
    values.emplace(values.begin(), "file", file);
    throw error(e.code(), e.sentence(), std::move(values));
  }
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
