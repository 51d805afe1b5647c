// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Element types of the safetensors format.
enum class safetensors_dtype : std::uint8_t { boolean, u8, i8, f8_e5m2, f8_e4m3, i16, u16, f16, bf16, i32, u32, f32, f64, i64, u64 };

namespace detail {
struct safetensors_dtype_facts {
  std::string_view name;  // as in the file
  std::int64_t bytes;     // of one element
};
inline constexpr std::array<safetensors_dtype_facts, 15> safetensors_dtypes{{{"BOOL", 1},
                                                                             {"U8", 1},
                                                                             {"I8", 1},
                                                                             {"F8_E5M2", 1},
                                                                             {"F8_E4M3", 1},
                                                                             {"I16", 2},
                                                                             {"U16", 2},
                                                                             {"F16", 2},
                                                                             {"BF16", 2},
                                                                             {"I32", 4},
                                                                             {"U32", 4},
                                                                             {"F32", 4},
                                                                             {"F64", 8},
                                                                             {"I64", 8},
                                                                             {"U64", 8}}};
}  // namespace detail

/// The format's name of a type, as "F32".
constexpr std::string_view name(safetensors_dtype dtype) noexcept {
  return detail::safetensors_dtypes[static_cast<std::size_t>(dtype)].name;
}
/// The bytes of an element.
constexpr std::int64_t element_bytes(safetensors_dtype dtype) noexcept {
  return detail::safetensors_dtypes[static_cast<std::size_t>(dtype)].bytes;
}

/// The element type that holds values of T: float, double, bool and integers.
template <class T>
constexpr safetensors_dtype safetensors_dtype_of() noexcept {
  using enum safetensors_dtype;
  if constexpr (std::is_same_v<T, float>) {
    return f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return f64;
  } else if constexpr (std::is_same_v<T, bool>) {
    return boolean;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr bool negative = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return negative ? i8 : u8;
    if constexpr (sizeof(T) == 2) return negative ? i16 : u16;
    if constexpr (sizeof(T) == 4) return negative ? i32 : u32;
    return negative ? i64 : u64;
  } else {
    static_assert(detail::dependent_false<T>, "safetensors: no element type for this; pass bytes for fp16, bf16 and fp8");
  }
}

/// A tensor as a writer declares it. An empty shape is one element.
struct safetensors_tensor {
  std::string name;
  safetensors_dtype dtype = safetensors_dtype::f32;
  std::vector<std::int64_t> shape;
};

/// A tensor in a file. Its bytes are [offset, offset + bytes) of the data, which follows the header.
struct safetensors_entry : safetensors_tensor {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;

  /// The number of elements.
  std::int64_t elements() const noexcept { return bytes / element_bytes(dtype); }
};

/// Free text of a file's header, by name.
using safetensors_metadata = std::map<std::string, std::string, std::less<>>;

namespace detail {

inline constexpr std::int64_t safetensors_longest_header = 100'000'000;  // what the format's own library reads

inline std::string shape_text(std::vector<std::int64_t> const& shape) {
  std::string text = "[";
  for (auto const extent : shape) text.append(text.size() > 1 ? ", " : "").append(std::to_string(extent));
  return text + "]";
}

// Nothing for a negative extent or a size past 64 bits.
inline std::optional<std::int64_t> tensor_bytes(safetensors_dtype dtype, std::vector<std::int64_t> const& shape) noexcept {
  auto bytes = element_bytes(dtype);
  for (auto const extent : shape) {
    if (extent < 0 || (extent != 0 && bytes > std::numeric_limits<std::int64_t>::max() / extent)) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

// The header as text, a multiple of 8 bytes long.
inline std::string print_safetensors_header(std::vector<safetensors_entry> const& entries, safetensors_metadata const& metadata,
                                            std::string const& file) {
  auto header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (auto const& e : entries)
    header[e.name] = {{"dtype", name(e.dtype)}, {"shape", e.shape}, {"data_offsets", {e.offset, e.offset + e.bytes}}};
  auto text = print_json(header, file);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (auto const bytes = static_cast<std::int64_t>(text.size()); bytes > safetensors_longest_header)
    throw error(errc::invalid_argument, "safetensors: header too long",
                {{"file", file}, {"bytes", bytes}, {"limit", safetensors_longest_header}});
  return text;
}

inline std::int64_t natural_number(nlohmann::json const& value, std::string const& file, std::string const& tensor, char const* field) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw error(errc::corrupt_file, "safetensors: not a natural number of 63 bits", {{"file", file}, {"tensor", tensor}, {"field", field}});
  return value.get<std::int64_t>();
}

inline safetensors_entry parse_safetensors_entry(std::string const& tensor, nlohmann::json const& description, std::string const& file) {
  auto const where = file + ", tensor " + tensor;
  safetensors_entry entry;
  entry.name = tensor;
  auto const& dtype = json_string(description, "dtype", where);
  auto const* const known =
      std::find_if(safetensors_dtypes.begin(), safetensors_dtypes.end(), [&](safetensors_dtype_facts const& d) { return d.name == dtype; });
  if (known == safetensors_dtypes.end())
    throw error(errc::incompatible, "safetensors: unknown element type", {{"file", file}, {"tensor", tensor}, {"dtype", dtype}});
  entry.dtype = static_cast<safetensors_dtype>(known - safetensors_dtypes.begin());
  for (auto const& extent : json_array(description, "shape", where)) entry.shape.push_back(natural_number(extent, file, tensor, "shape"));

  auto const& offsets = json_array(description, "data_offsets", where);
  if (offsets.size() != 2)
    throw error(errc::corrupt_file, "safetensors: data_offsets are not two",
                {{"file", file}, {"tensor", tensor}, {"found", offsets.size()}});
  entry.offset = natural_number(offsets[0], file, tensor, "data_offsets");
  entry.bytes = natural_number(offsets[1], file, tensor, "data_offsets") - entry.offset;
  auto const expected = tensor_bytes(entry.dtype, entry.shape);
  if (!expected || *expected != entry.bytes)
    throw error(errc::corrupt_file, "safetensors: size does not match the shape",
                {{"file", file},
                 {"tensor", tensor},
                 {"dtype", name(entry.dtype)},
                 {"shape", shape_text(entry.shape)},
                 {"expected", expected ? std::to_string(*expected) : "more than 63 bits"},
                 {"found", entry.bytes}});
  return entry;
}

// The format wants the tensors to cover the data without a hole or an overlap.
inline void check_safetensors_cover(std::vector<safetensors_entry> const& entries, std::int64_t data_bytes, std::string const& file) {
  std::vector<safetensors_entry const*> by_offset;
  by_offset.reserve(entries.size());
  for (auto const& e : entries) by_offset.push_back(&e);
  std::sort(by_offset.begin(), by_offset.end(),
            [](auto const* a, auto const* b) { return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes; });
  std::int64_t end = 0;
  for (auto const* e : by_offset) {
    if (e->offset != end)
      throw error(errc::corrupt_file, "safetensors: hole or overlap before a tensor",
                  {{"file", file}, {"tensor", e->name}, {"expected", end}, {"found", e->offset}});
    if (e->bytes > data_bytes - end)
      throw error(errc::corrupt_file, "safetensors: tensor lies past the end of the file",
                  {{"file", file}, {"tensor", e->name}, {"offset", e->offset}, {"bytes", e->bytes}, {"data bytes", data_bytes}});
    end += e->bytes;
  }
  if (end != data_bytes)
    throw error(errc::corrupt_file, "safetensors: bytes that no tensor claims", {{"file", file}, {"expected", end}, {"found", data_bytes}});
}

}  // namespace detail

/// The content of a safetensors header, checked: entries by name, in ascending order.
struct safetensors_header {
  std::vector<safetensors_entry> entries;
  safetensors_metadata metadata;
};

/// Parses and checks the JSON of a header that `data_bytes` bytes follow; errors name `file` and tensor.
/// @throws tessera::error parse_error for text that is no such JSON. corrupt_file for offsets and shapes that do not fit together or the
/// data. incompatible for an unknown element type.
inline safetensors_header parse_safetensors_header(std::string_view text, std::int64_t data_bytes, std::string const& file) {
  auto const json = parse_json(text, file);
  if (!json.is_object())
    throw error(errc::parse_error, "safetensors: the header is no JSON object", {{"file", file}, {"found", json.type_name()}});
  safetensors_header header;
  for (auto const& [key, value] : json.items()) {
    if (key == "__metadata__") {
      json_object(json, key, file);
      for (auto const& [field, unused] : value.items()) header.metadata.emplace(field, json_string(value, field, file));
    } else {
      header.entries.push_back(detail::parse_safetensors_entry(key, value, file));
    }
  }
  detail::check_safetensors_cover(header.entries, data_bytes, file);
  return header;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
