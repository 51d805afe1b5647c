// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A plain second parser of Criteo's layout must accept the same texts, with the same values, and refuse the others at the same line and field
// as the parser of that layout and the general one do.
#include "delimited_common.hpp"

// The first byte: how often the first line is there before the text itself, as lines are parsed by sixteens; the second: bytes a block, and
// which columns. Two bytes of 255: so often that the text is above 64 KiB, which are parsed in pieces.
int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size < 2) return 0;
  auto const body = std::string(fuzz::text_of(data, size).substr(2));
  auto const first_line = body.substr(0, std::min(body.find('\n'), body.size() - 1) + 1);
  std::string text;
  if (first_line.ends_with('\n')) {
    auto const copies = data[0] == 255 && data[1] == 255 ? 70000 / first_line.size() : std::size_t{data[0]} % 64;
    for (std::size_t i = 0; i < copies; ++i) text += first_line;
  }
  text += body;
  auto general = tessera::criteo_layout();
  general.quotes = text.find('"') == text.npos;
  if (!general.quotes) general.missing = {std::string(text.size() + 1, 'x')};
  tessera::sample_schema const some{
      .label = "label", .dense = {"I13", "I2", "I1"}, .sparse = {"C26", "I1", "C1", "I7"}, .single = {"C26", "I1", "C1", "I7"}};
  fuzz::check(text, 64 + data[1] * std::int64_t{16}, data[1] % 2 == 0 ? some : tessera::criteo_schema(),
              {tessera::criteo_layout(), general});
  return 0;
}
