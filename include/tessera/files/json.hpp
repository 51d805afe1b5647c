// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Refuses what the parser lets through: a key that occurs twice in one object (the later would win) and nesting without bound.
class json_strictness {
 public:
  explicit json_strictness(std::string const& file) : file_(file) {}

  bool operator()(int depth, nlohmann::json::parse_event_t seen, nlohmann::json& parsed) {
    using event = nlohmann::json::parse_event_t;
    if ((seen == event::object_start || seen == event::array_start) && depth >= deepest)
      throw error(errc::parse_error, "JSON is nested too deep", {{"file", file_}, {"deepest", deepest}});
    if (seen == event::object_start) keys_.emplace_back();
    if (seen == event::object_end) keys_.pop_back();
    if (seen == event::key && !keys_.back().insert(parsed.get_ref<std::string const&>()).second)
      throw error(errc::parse_error, "JSON field occurs twice", {{"file", file_}, {"field", parsed.get_ref<std::string const&>()}});
    return true;
  }

 private:
  static constexpr int deepest = 64;
  std::string const& file_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

// What the JSON library says, without the number that it gives its exceptions.
inline std::string json_reason(nlohmann::json::exception const& e) {
  std::string reason(e.what());
  if (auto const prefix = reason.find("] "); prefix != reason.npos) reason.erase(0, prefix + 2);
  return reason;
}

// The way to the string that cannot be printed, as "options/label".
inline std::string unprintable_field(nlohmann::json const& value) {
  if (!value.is_structured()) return {};
  for (auto const& [key, inner] : value.items()) {
    try {
      inner.dump();
    } catch (nlohmann::json::exception const&) {
      auto const rest = unprintable_field(inner);
      return rest.empty() ? key : key + "/" + rest;
    }
  }
  return {};
}

}  // namespace detail

/// Parses one JSON value; errors name `file`.
/// @throws tessera::error parse_error, naming file and reason, for text that is no JSON, a field that occurs twice, or nesting deeper than
/// 64.
inline nlohmann::json parse_json(std::string_view text, std::string const& file) {
  try {
    detail::json_strictness strictness(file);
    return nlohmann::json::parse(text.begin(), text.end(), [&](int depth, nlohmann::json::parse_event_t seen, nlohmann::json& parsed) {
      return strictness(depth, seen, parsed);
    });
  } catch (nlohmann::json::exception const& e) {
    throw error(errc::parse_error, "not JSON", {{"file", file}, {"reason", detail::json_reason(e)}});
  }
}

/// The text of a JSON value, on one line (indent -1) or indented; errors name `file`.
/// @throws tessera::error invalid_argument, naming file and field, for a string that is not UTF-8.
/// @post parse_json(print_json(value, file), file) == value for finite numbers, nested at most 64 deep
inline std::string print_json(nlohmann::json const& value, std::string const& file, int indent = -1) {
  try {
    return value.dump(indent);
  } catch (nlohmann::json::exception const& e) {
    throw error(errc::invalid_argument, "cannot be written as JSON",
                {{"file", file}, {"field", detail::unprintable_field(value)}, {"reason", detail::json_reason(e)}});
  }
}

/// Reads a JSON file of at most 256 MiB. @throws tessera::error as read_text and parse_json.
inline nlohmann::json read_json(std::string const& path) { return parse_json(read_text(path, std::int64_t{1} << 28), path); }

/// Writes a JSON file, indented. @throws tessera::error as write_text and print_json.
inline void write_json(std::string const& path, nlohmann::json const& value) { write_text(path, print_json(value, path, 2) + "\n"); }

/// The field of that name. @throws tessera::error parse_error, naming file and field, when `object` is none or lacks it.
inline nlohmann::json const& json_field(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const found = object.find(field);  // end() for what is no object
  if (found == object.end()) throw error(errc::parse_error, "JSON field is missing", {{"file", file}, {"field", field}});
  return *found;
}

namespace detail {
[[noreturn]] inline void throw_json_type(nlohmann::json const& value, std::string_view field, std::string const& file,
                                         char const* expected) {
  throw error(errc::parse_error, "JSON field has the wrong type",
              {{"file", file}, {"field", field}, {"expected", expected}, {"found", value.type_name()}});
}

/// Refuses what is no object, and fields that nothing reads.
inline void allow_fields(nlohmann::json const& object, std::initializer_list<std::string_view> fields, std::string const& file,
                         std::string_view where) {
  if (!object.is_object()) throw_json_type(object, where, file, "object");
  for (auto const& [field, value] : object.items())
    if (std::find(fields.begin(), fields.end(), field) == fields.end())
      throw error(errc::parse_error, "JSON field is unknown", {{"file", file}, {"field", field}});
}

/// What f returns. An error of it also names the file.
template <class F>
auto told_of_file(std::string const& file, F const& f) {
  try {
    return f();
  } catch (error const& e) {
    if (!e.value("file").empty()) throw;
    auto values = e.values();
    values.insert(values.begin(), {"file", file});
    throw error(e.code(), e.sentence(), std::move(values));
  }
}
}  // namespace detail

/// The field of that name, an integer of 64 bits; 1.0, "1" and 2^63 are none. @throws tessera::error parse_error.
inline std::int64_t json_integer(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const& value = json_field(object, field, file);
  bool const fits =
      !value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer() || !fits) detail::throw_json_type(value, field, file, "integer");
  return value.get<std::int64_t>();
}

/// The field of that name, a count: an integer from 0 to `most_counted`. @throws tessera::error parse_error.
inline std::int64_t json_count(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const count = json_integer(object, field, file);
  if (count < 0 || count > most_counted)
    throw error(errc::parse_error, "JSON field is no count", {{"file", file}, {"field", field}, {"found", count}, {"most", most_counted}});
  return count;
}

/// The field of that name, a number, integer or not. @throws tessera::error parse_error.
inline double json_number(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const& value = json_field(object, field, file);
  if (!value.is_number()) detail::throw_json_type(value, field, file, "number");
  return value.get<double>();
}

/// The field of that name, true or false. @throws tessera::error parse_error.
inline bool json_boolean(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const& value = json_field(object, field, file);
  if (!value.is_boolean()) detail::throw_json_type(value, field, file, "boolean");
  return value.get<bool>();
}

/// The field of that name, a string. @throws tessera::error parse_error.
inline std::string const& json_string(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const& value = json_field(object, field, file);
  if (!value.is_string()) detail::throw_json_type(value, field, file, "string");
  return value.get_ref<std::string const&>();
}

/// The field of that name, an array. @throws tessera::error parse_error.
inline nlohmann::json const& json_array(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const& value = json_field(object, field, file);
  if (!value.is_array()) detail::throw_json_type(value, field, file, "array");
  return value;
}

/// The field of that name, an object. @throws tessera::error parse_error.
inline nlohmann::json const& json_object(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const& value = json_field(object, field, file);
  if (!value.is_object()) detail::throw_json_type(value, field, file, "object");
  return value;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
