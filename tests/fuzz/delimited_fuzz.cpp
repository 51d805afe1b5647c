// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A plain second parser of delimited text must accept the same texts, with the same values, and refuse the others at the same line and field.
#include "delimited_common.hpp"

// The first byte: which layout; the second: bytes a block.
int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size < 2) return 0;
  tessera::sample_schema const schema{.label = "y",
                                      .dense = {"d", "both"},
                                      .sparse = {"id", "hex", "list", "texts", "both"},
                                      .session = "session",
                                      .time = "time",
                                      .weight = "weight",
                                      .other_labels = {"z"},
                                      .single = {"id", "hex", "both"}};
  tessera::delimited_layout layout;
  layout.delimiter = (data[0] & 1) != 0 ? ',' : '\t';
  layout.header = (data[0] & 2) != 0;
  layout.quotes = (data[0] & 4) != 0;
  if ((data[0] & 8) != 0) layout.missing = {"NA"};
  layout.format_of = {{"hex", tessera::id_format::hexadecimal}, {"list", tessera::id_format::decimal}, {"texts", tessera::id_format::text}};
  std::vector<std::string> const names{"y", "d", "id", "list", "unused", "hex", "texts", "session", "time", "both", "weight", "z"};
  std::string text;
  if (layout.header)
    for (auto name = names.rbegin(); name != names.rend(); ++name) text += *name + (*name == "y" ? '\n' : layout.delimiter);
  else
    layout.columns = names;
  text += fuzz::text_of(data, size).substr(2);
  fuzz::check(text, 1 + data[1] * std::int64_t{4}, schema, {layout});
  return 0;
}
