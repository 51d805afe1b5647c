// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The kind of an error; its values say more.
enum class errc {
  invalid_argument,  ///< a value outside what the function accepts
  shape_mismatch,    ///< extents that do not fit together
  out_of_range,      ///< an id or index past its bound
  parse_error,       ///< text that is not what its format says; values name file, line and field
  io_error,          ///< the operating system refused; values name the path and its reason
  corrupt_file,      ///< bytes that do not match their manifest or header
  incompatible,      ///< well-formed data for another model, version or set of options
  out_of_memory,
  device_error,  ///< a device or its driver refused; values name the call, its place and the reason
  rank_failed,   ///< another rank failed, or an exchange with it; values name the rank, the operation and the reason
  timed_out,     ///< ranks did not come within the time limit; values name the ranks, the operation and the limit
};

/// The name of a code, as "out of range".
constexpr std::string_view name(errc code) noexcept {
  switch (code) {
    case errc::invalid_argument: return "invalid argument";
    case errc::shape_mismatch: return "shape mismatch";
    case errc::out_of_range: return "out of range";
    case errc::parse_error: return "parse error";
    case errc::io_error: return "i/o error";
    case errc::corrupt_file: return "corrupt file";
    case errc::incompatible: return "incompatible";
    case errc::out_of_memory: return "out of memory";
    case errc::device_error: return "device error";
    case errc::rank_failed: return "rank failed";
    case errc::timed_out: return "timed out";
  }
  return "error";
}

/// One named value of an error, as text.
struct error_value {
  std::string name;
  std::string value;

  /// A value that is text.
  error_value(std::string name, std::string value) : name(std::move(name)), value(std::move(value)) {}
  /// A value that is text.
  error_value(std::string name, std::string_view value) : name(std::move(name)), value(value) {}
  /// A value that is text.
  error_value(std::string name, char const* value) : name(std::move(name)), value(value) {}
  /// A value that is a number.
  template <class T>
    requires std::is_arithmetic_v<T> error_value(std::string name, T value) : name(std::move(name)), value(text(value)) {}

   private:
    template <class T>
    static std::string text(T value) {
      if constexpr (std::is_floating_point_v<T>) {
        char digits[32];  // std::to_string would show 1e-9 as 0.000000
        std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(value));
        return digits;
      } else {
        return std::to_string(value);
      }
    }
};

/// What the library throws: a code, a sentence, and the values that were wrong.
///
/// `what()` reads "pooled_lookup: id out of range (table 3, id 17, rows 10)". It shows control characters of values as `\x00` or `\x0a`,
/// while `values()` has them as they were. Copying never throws.
class error : public std::runtime_error {
 public:
  /// An error with this code and sentence; `values` are named for the reader.
  error(errc code, std::string_view sentence, std::vector<error_value> values = {});

  /// The kind of the error.
  errc code() const noexcept { return code_; }
  /// `what()` without the values.
  std::string_view sentence() const noexcept { return std::string_view(what()).substr(0, sentence_size_); }
  /// The values that were wrong.
  std::vector<error_value> const& values() const noexcept { return *values_; }

  /// The value of that name, or an empty string.
  std::string_view value(std::string_view name) const noexcept {
    for (auto const& v : *values_)
      if (v.name == name) return v.value;
    return {};
  }

 private:
  static std::string text(std::string_view sentence, std::vector<error_value> const& values);

  // A name may come from a file: a NUL would end the message, a line feed or an escape sequence would be obeyed by who shows it.
  static void append_shown(std::string_view text, std::string& to);

  errc code_;
  std::size_t sentence_size_;
  std::shared_ptr<std::vector<error_value> const> values_;
};

namespace detail {
/// Refuses a number that is no value of its enumeration, whose values are 0 … `last`.
template <class Enum>
void check_choice(char const* call, char const* what, Enum choice, Enum last) {
  if (choice < Enum{} || choice > last)
    throw error(errc::invalid_argument, std::string(call) + ": no such " + what,
                {{what, static_cast<std::underlying_type_t<Enum>>(choice)}});
}
}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/core/error.ipp>
#endif
