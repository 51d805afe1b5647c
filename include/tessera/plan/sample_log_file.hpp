// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/atomic_file.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr std::int64_t most_log_bytes = std::int64_t{1} << 32;

/// The shortest text that reads back as the same number.
inline std::string exact_text(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}
std::string joined_text(std::vector<std::string> const& parts, char separator);
std::vector<std::string> split_text(std::string_view text, char separator);

/// A line of these fields, whose last field is the checksum of what goes before it.
std::string line_with_checksum(std::vector<std::string> const& fields);

/// Takes the checksum away from the fields of a line. `what` the lines are of; `count`: of the fields without it.
/// @throws tessera::error corrupt_file naming file, line and field, for another number of fields and for a line that was altered.
void take_checksum(std::string const& what, std::string const& file, std::int64_t line, std::vector<std::string>& fields,
                   std::size_t count);

/// A line of a log, with the place for errors.
struct log_line {
  std::string const& file;
  std::int64_t number;  ///< in the file, from 1
  std::vector<std::string> const& names;
  std::vector<std::string> fields;

  [[noreturn]] void refuse(errc code, char const* why, std::size_t field, std::string const& expected) const;
  /// Refuses a field that is not what the samples of this log have there.
  void expect(std::size_t field, std::string const& expected) const {
    if (fields[field] != expected) refuse(errc::incompatible, "samples: a line of other samples", field, expected);
  }
  /// A time: finite and not negative. A field may have several, between spaces.
  std::vector<double> times(std::size_t field, std::size_t count) const;
};

/// A file of samples that grows line by line, as comma-separated values. The first line begins with # and says of what the samples are, the
/// second names the fields. Then there is a line a sample, whose last field is the checksum of what goes before it.
///
/// A process that was killed leaves whole lines, and perhaps a part of the last one, which the next log over the file drops. Lines are not
/// synced: a loss of power may lose the last of them.
class sample_log {
 public:
  /// Opens a file, or makes it. `accept(line)` is called for each line that is there, and refuses those that it does not know.
  /// @throws tessera::error incompatible for a file of other samples, with what was expected and found; corrupt_file naming line and field
  /// for one that was altered; and what `accept` throws. The file has not changed then. io_error.
  template <class Accept>
  sample_log(std::string path, std::string const& about, std::vector<std::string> names, Accept const& accept)
      : path_(std::move(path)), names_(std::move(names)), file_(open(path_, "# " + about, names_, accept)) {}

  void append(std::vector<std::string> const& fields) { file_.append(line_with_checksum(fields)); }

 private:
  template <class Accept>
  static posix_file open(std::string const& path, std::string const& about, std::vector<std::string> const& names, Accept const& accept) {
    auto const head = about + '\n' + joined_text(names, ',') + ",crc32\n";
    std::string text;
    if (std::error_code ignored; std::filesystem::exists(path, ignored)) text = read_text(path, most_log_bytes);
    if (head.starts_with(text)) {
      text = head;
    } else {
      expect_head(path, text, head);
      text.resize(text.rfind('\n') + 1);  // without the part of a line
      std::int64_t number = 3;
      for (auto first = head.size(); first < text.size(); ++number) {
        auto const end = text.find('\n', first);
        accept(checked_line(path, number, names, text.substr(first, end - first)));
        first = end + 1;
      }
    }
    staged_file staged(path);
    auto file = posix_file::create(staged.path());
    file.append(text);
    staged.commit();  // the file that is open has this name now
    return file;
  }

  static void expect_head(std::string const& path, std::string const& text, std::string const& head);

  static log_line checked_line(std::string const& path, std::int64_t number, std::vector<std::string> const& names,
                               std::string const& text);

  std::string path_;
  std::vector<std::string> names_;
  posix_file file_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/plan/sample_log_file.ipp>
#endif
