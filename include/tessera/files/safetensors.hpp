// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/posix_file.hpp>
#include <tessera/files/safetensors_header.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

/// Writes a safetensors file: https://github.com/huggingface/safetensors, section "Format". A file is refused by every reader until
/// `finish` has written its header.
///
/// Tensors are declared first and filled in pieces after. A tensor is filled from its first byte to its last; tensors may take turns. A
/// table larger than memory can so be written row block by row block, beside its optimizer state. In the file, tensors of wider elements
/// come first, so that each is aligned to its element.
class safetensors_writer {
 public:
  /// @throws tessera::error invalid_argument, naming the tensor, for an empty name, "__metadata__", a name used twice, a negative extent,
  /// or 2^62 bytes and more. Also for names or metadata that are not UTF-8, and a header longer than the format allows. io_error.
  safetensors_writer(std::string path, std::vector<safetensors_tensor> tensors, safetensors_metadata const& metadata = {})
      : entries_(lay_out(path, std::move(tensors))),
        by_name_(sort_names(path, entries_)),
        header_(detail::print_safetensors_header(entries_, metadata, path)),
        progress_(entries_.size()),
        file_(posix_file::create(std::move(path))) {}

  std::string const& path() const noexcept { return file_.path(); }

  /// Writes the next values of a tensor.
  /// @throws tessera::error invalid_argument, naming tensor, expected and found, for an unknown tensor, another element type, or more
  /// values than declared; io_error.
  template <class T>
  void append(std::string_view tensor, vector_view<T> values) {
    auto const& entry = entries_[find(tensor)];
    if (constexpr auto dtype = safetensors_dtype_of<std::remove_const_t<T>>(); entry.dtype != dtype)
      throw error(errc::invalid_argument, "safetensors_writer: wrong element type",
                  {{"file", path()}, {"tensor", tensor}, {"expected", name(entry.dtype)}, {"found", name(dtype)}});
    append_bytes(tensor, as_bytes(values));
  }

  /// As above for bytes of any element type; a piece may end inside an element.
  void append_bytes(std::string_view tensor, vector_view<char const> bytes) {
    auto const i = find(tensor);
    auto const& entry = entries_[i];
    auto& done = progress_[i];
    if (bytes.size() > entry.bytes - done.bytes)
      throw error(errc::invalid_argument, "safetensors_writer: more than the tensor holds",
                  {{"file", path()}, {"tensor", tensor}, {"expected", entry.bytes}, {"found", done.bytes + bytes.size()}});
    file_.write_at(data_begin() + entry.offset + done.bytes, bytes);
    crc32_sum sum(done.crc32);
    sum.update(bytes);
    done = {done.bytes + bytes.size(), sum.value()};
  }

  /// Writes the header and closes the file; returns size and checksum of the file. It does not sync.
  /// @throws tessera::error invalid_argument, naming the tensor, unless every tensor is full; io_error.
  file_digest finish() {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (progress_[i].bytes != entries_[i].bytes)
        throw error(errc::invalid_argument, "safetensors_writer: tensor is not full",
                    {{"file", path()}, {"tensor", entries_[i].name}, {"expected", entries_[i].bytes}, {"found", progress_[i].bytes}});
    std::array<char, length_bytes> length{};
    for (std::size_t i = 0; i < length_bytes; ++i) length[i] = static_cast<char>(header_.size() >> (8 * i) & 0xff);
    file_.write_at(length_bytes, header_);
    file_.write_at(0, length);
    file_.close();

    file_digest whole{data_begin(), crc32_join(crc32_of(length), crc32_of(header_), static_cast<std::int64_t>(header_.size()))};
    for (auto const& piece : progress_) whole = {whole.bytes + piece.bytes, crc32_join(whole.crc32, piece.crc32, piece.bytes)};
    return whole;
  }

 private:
  static constexpr std::int64_t length_bytes = 8;
  static constexpr std::int64_t largest_data_bytes = std::int64_t{1} << 62;

  std::int64_t data_begin() const noexcept { return length_bytes + static_cast<std::int64_t>(header_.size()); }

  std::size_t find(std::string_view tensor) const {
    auto const found = std::lower_bound(by_name_.begin(), by_name_.end(), tensor,
                                        [&](std::size_t i, std::string_view name) { return entries_[i].name < name; });
    if (found == by_name_.end() || entries_[*found].name != tensor)
      throw error(errc::invalid_argument, "safetensors_writer: no tensor of that name", {{"file", path()}, {"tensor", tensor}});
    return *found;
  }

  [[noreturn]] static void refuse(std::string const& path, std::string const& tensor, char const* sentence) {
    throw error(errc::invalid_argument, sentence, {{"file", path}, {"tensor", tensor}});
  }

  // Wider elements first, in order of declaration among equals.
  static std::vector<safetensors_entry> lay_out(std::string const& path, std::vector<safetensors_tensor> tensors) {
    std::stable_sort(tensors.begin(), tensors.end(),
                     [](auto const& a, auto const& b) { return element_bytes(a.dtype) > element_bytes(b.dtype); });
    std::vector<safetensors_entry> entries;
    std::int64_t end = 0;
    for (auto& t : tensors) {
      if (t.name.empty() || t.name == "__metadata__") refuse(path, t.name, "safetensors_writer: not a name for a tensor");
      auto const bytes = detail::tensor_bytes(t.dtype, t.shape);
      if (!bytes || *bytes > largest_data_bytes - end) refuse(path, t.name, "safetensors_writer: shape without a size that fits");
      entries.push_back({std::move(t), end, *bytes});
      end += *bytes;
    }
    return entries;
  }

  static std::vector<std::size_t> sort_names(std::string const& path, std::vector<safetensors_entry> const& entries) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < entries.size(); ++i) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return entries[a].name < entries[b].name; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (entries[order[i - 1]].name == entries[order[i]].name)
        refuse(path, entries[order[i]].name, "safetensors_writer: two tensors of one name");
    return order;
  }

  std::vector<safetensors_entry> entries_;  // in file order
  std::vector<std::size_t> by_name_;
  std::string header_;
  std::vector<file_digest> progress_;  // of what is written of each entry
  posix_file file_;
};

/// Reads a safetensors file. The constructor checks the whole header. Data is read on demand with pread into the caller's memory. A tensor
/// may be larger than memory, and threads may read through one object at once.
/// @post `read` gives back what a `safetensors_writer` was given
class safetensors_reader {
 public:
  /// @throws tessera::error io_error; corrupt_file, parse_error or incompatible, saying what is wrong, for a file that is no safetensors.
  explicit safetensors_reader(std::string path) : file_(posix_file::open(std::move(path))) {
    auto const file_bytes = file_.size();
    std::array<char, 8> length{};
    if (file_.read_at(0, length) < 8)
      throw error(errc::corrupt_file, "safetensors: too short for a header", {{"file", this->path()}, {"bytes", file_bytes}});
    std::uint64_t header_bytes = 0;
    for (std::size_t i = 0; i < length.size(); ++i) header_bytes |= std::uint64_t{static_cast<unsigned char>(length[i])} << (8 * i);
    auto const largest = std::min(detail::safetensors_longest_header, file_bytes - 8);
    if (file_bytes < 8 || header_bytes < 2 || header_bytes > static_cast<std::uint64_t>(largest))
      throw error(errc::corrupt_file, "safetensors: impossible header length",
                  {{"file", this->path()}, {"found", header_bytes}, {"largest", largest}});
    std::string text(static_cast<std::size_t>(header_bytes), '\0');
    read_fully(8, {text.data(), static_cast<std::int64_t>(text.size())}, "the header");
    data_begin_ = 8 + static_cast<std::int64_t>(header_bytes);
    if (text.front() != '{') throw error(errc::corrupt_file, "safetensors: the header does not begin with {", {{"file", this->path()}});
    header_ = parse_safetensors_header(text, file_bytes - data_begin_, this->path());
  }

  std::string const& path() const noexcept { return file_.path(); }
  /// All tensors, in ascending order of name.
  std::vector<safetensors_entry> const& entries() const noexcept { return header_.entries; }
  /// The free text of the header, by name.
  safetensors_metadata const& metadata() const noexcept { return header_.metadata; }

  /// The tensor of that name, or nullptr.
  safetensors_entry const* find(std::string_view tensor) const noexcept {
    auto const found =
        std::lower_bound(entries().begin(), entries().end(), tensor, [](auto const& e, std::string_view name) { return e.name < name; });
    return found == entries().end() || found->name != tensor ? nullptr : &*found;
  }

  /// The tensor of that name. @throws tessera::error incompatible, naming file and tensor, when there is none.
  safetensors_entry const& at(std::string_view tensor) const {
    if (auto const* const found = find(tensor)) return *found;
    throw error(errc::incompatible, "safetensors: no tensor of that name", {{"file", path()}, {"tensor", tensor}});
  }

  /// The tensor of that name, type and shape. @throws tessera::error incompatible, naming file, tensor, expected and found.
  safetensors_entry const& expect(std::string_view tensor, safetensors_dtype dtype, std::vector<std::int64_t> const& shape) const {
    auto const& entry = at(tensor);
    if (entry.dtype != dtype || entry.shape != shape)
      throw error(errc::incompatible, "safetensors: tensor of another type or shape",
                  {{"file", path()},
                   {"tensor", tensor},
                   {"expected", std::string(name(dtype)) + " " + detail::shape_text(shape)},
                   {"found", std::string(name(entry.dtype)) + " " + detail::shape_text(entry.shape)}});
    return entry;
  }

  /// Reads elements [first, first + out.size()) of a tensor, counted row-major.
  /// @throws tessera::error incompatible for another element type; out_of_range past the tensor's end; corrupt_file when the file has
  /// become shorter; io_error. The values name file and tensor.
  template <class T>
  void read(std::string_view tensor, std::int64_t first, vector_view<T> out) const {
    auto const& entry = at(tensor);
    if (constexpr auto dtype = safetensors_dtype_of<T>(); entry.dtype != dtype)
      throw error(errc::incompatible, "safetensors: wrong element type",
                  {{"file", path()}, {"tensor", tensor}, {"expected", name(dtype)}, {"found", name(entry.dtype)}});
    if (first < 0 || first > entry.elements() || out.size() > entry.elements() - first)
      throw error(errc::out_of_range, "safetensors: past the end of the tensor",
                  {{"file", path()}, {"tensor", tensor}, {"first", first}, {"count", out.size()}, {"elements", entry.elements()}});
    read_bytes(entry, first * static_cast<std::int64_t>(sizeof(T)), as_writable_bytes(out));
  }

  /// Reads bytes [first, first + out.size()) of one of `entries()`, of any element type.
  void read_bytes(safetensors_entry const& entry, std::int64_t first, vector_view<char> out) const {
    if (first < 0 || first > entry.bytes || out.size() > entry.bytes - first)
      throw error(errc::out_of_range, "safetensors: past the end of the tensor",
                  {{"file", path()}, {"tensor", entry.name}, {"first", first}, {"count", out.size()}, {"bytes", entry.bytes}});
    read_fully(data_begin_ + entry.offset + first, out, entry.name);
  }

 private:
  void read_fully(std::int64_t offset, vector_view<char> out, std::string_view what) const {
    auto const found = file_.read_at(offset, out);
    if (found < out.size())
      throw error(errc::corrupt_file, "safetensors: the file became shorter while it was read",
                  {{"file", path()}, {"tensor", what}, {"offset", offset}, {"expected", out.size()}, {"found", found}});
  }

  posix_file file_;
  std::int64_t data_begin_ = 0;
  safetensors_header header_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
