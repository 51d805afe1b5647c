// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("options of train_ctr") { tessera_tests::skip("the examples are not built"); }

#else

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>

#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

using option_ranges = std::vector<std::pair<std::string, std::string>>;

}  // namespace

TEST_CASE("an integer that is not wholly decimal or out of its range is refused, and the range named") {
  small_data const data;
  std::string const counted = "1 to 4611686018427387904", counted_from_0 = "0 to 4611686018427387904";
  for (auto const& [name, limits] : option_ranges{{"--seed", "0 to 18446744073709551615"},
                                                  {"--threads", "1 to 4096"},
                                                  {"--batch-size", "1 to 16777216"},
                                                  {"--epochs", "1 to 1000000000"},
                                                  {"--checkpoint-every", counted},
                                                  {"--embedding-dim", "1 to 65536"},
                                                  {"--bottom", "1 to 2147483647"},
                                                  {"--top", "1 to 2147483647"},
                                                  {"--hash-size", "1 to 1099511627776"},
                                                  {"--min-count", counted},
                                                  {"--vocabulary-limit", "0 to 1099511627776"},
                                                  {"--cross-layers", "0 to 536870911"},
                                                  {"--cross-rank", "0 to 536870911"},
                                                  {"--warmup-steps", counted_from_0},
                                                  {"--decay-start", counted_from_0},
                                                  {"--decay-steps", counted_from_0},
                                                  {"--max-length", counted}}) {
    std::string const option = name, range = limits;  // clang 14 captures no structured binding
    CAPTURE(option);
    // One reader for all: each option shows its range, the first one what is no integer.
    auto const values = option == "--seed" ? arguments{"", " 1", "1 ", "0x10", "1.5", "1e3", "-1", "+1", "nan", "18446744073709551616"}
                                           : arguments{"1e3", "18446744073709551616"};
    for (auto const& value : values) {
      CAPTURE(value);
      auto const result = data.run({option, value, "--checkpoint", data.folder.file("checkpoints")});
      check_refused(result, {option + ": not an integer from " + range + ": " + value + "\n"});
    }
  }
}

TEST_CASE("a number that is not wholly decimal or out of its range is refused, and the range named") {
  small_data const data;
  for (auto const& [name, limits] : option_ranges{{"--lr", "from 1e-45 to 1e+30"},
                                                  {"--embedding-lr", "from 1e-45 to 1e+30"},
                                                  {"--clip-norm", "from 1e-45 to 1e+30, or 0"},
                                                  {"--embedding-weight-decay", "from 1e-45 to 1e+06, or 0"},
                                                  {"--embedding-init", "from 1e-45 to 1e+30, or 0"}}) {
    std::string const option = name, range = limits;
    CAPTURE(option);
    auto const values = option == "--lr" ? arguments{"", " 1", "1 ", "0x10", "-1", "+1", "nan", "inf", "1e999", "1e38", "1e-50", "0,5"}
                                         : arguments{"nan", "1e38"};
    for (auto const& value : values) {
      CAPTURE(value);
      check_refused(data.run({option, value}), {option + ": ", " a number " + range + ": " + value + "\n"});
    }
  }
}

TEST_CASE("an empty path is refused with its option") {
  small_data const data;
  for (std::string const option : {"--checkpoint", "--predict", "--metrics", "--report"})
    check_refused(data.run({option, ""}), {option, "an empty path"});
}

TEST_CASE("what numbers mean does not depend on how they are written") {
  small_data const data;
  auto const trained = [&](arguments options) {
    auto const checkpoints = data.folder.file("checkpoints");
    std::filesystem::remove_all(checkpoints);
    options.insert(options.end(), {"--epochs", "1", "--checkpoint", checkpoints});
    auto const result = data.run(options);
    REQUIRE_MESSAGE(result.status == 0, result.output);
    return tensors_of(checkpoints);
  };
  CHECK(trained({"--seed", "010", "--lr", "0.0030", "--batch-size", "0064", "--bottom", "016"}) ==
        trained({"--seed", "10", "--lr", "3e-3", "--batch-size", "64", "--bottom", "16"}));
}

TEST_CASE("the largest weight decay leaves every state a number") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  auto const result = data.run({"--embedding-weight-decay", "1e6", "--epochs", "2", "--checkpoint", checkpoints});
  REQUIRE_MESSAGE(result.status == 0, result.output);
  tessera::safetensors_reader const tables(tessera::list_step_folders(checkpoints).back().path + "/tables.safetensors");
  for (auto const& entry : tables.entries()) {
    std::int64_t size = 1;
    for (auto const extent : entry.shape) size *= extent;
    std::vector<float> values(static_cast<std::size_t>(size));
    tables.read(entry.name, 0, tessera::vector_view<float>(values));
    CHECK_MESSAGE(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }), entry.name);
  }
}

TEST_CASE("optimizer states that are no numbers end training, though every prediction is one") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  for (arguments const& options : {arguments{"--embedding-init", "1e14"},
                                   {"--embedding-init", "1e14", "--embedding-optimizer", "adagrad"},
                                   {"--embedding-lr", "1e14", "--lr", "1e-30"}}) {
    auto with = options;
    with.insert(with.end(), {"--embedding-weight-decay", "1e6", "--epochs", "1"});
    check_refused(data.run(with), {"training diverged, an optimizer state of table C1 is no number: lower --lr or --embedding-lr (step 8"});
    with.insert(with.end(), {"--checkpoint", checkpoints});
    check_refused(data.run(with), {"training diverged, an optimizer state of table C1 is no number"});
    CHECK(tessera::list_step_folders(checkpoints).empty());
  }
}

TEST_CASE("rows that are no numbers end training, though the last batch has none of them") {
  temporary_folder const folder;
  auto const checkpoints = folder.file("checkpoints"), file = folder.file("two.tsv");
  std::string const no_integers(13, '\t'), no_categories(25, '\t');
  write_file(file, "0\t3" + no_integers + "a" + no_categories + "\n" + "1\t5" + no_integers + "b" + no_categories + "\n");
  for (std::string const format : {"fp32", "int8"}) {  // the second step's rates are 0
    CAPTURE(format);
    auto const result = train_ctr(file, file,
                                  {"--row-format",
                                   format,
                                   "--batch-size",
                                   "1",
                                   "--epochs",
                                   "1",
                                   "--dense-as-category",
                                   "off",
                                   "--embedding-init",
                                   "1e4",
                                   "--embedding-lr",
                                   "1e30",
                                   "--embedding-weight-decay",
                                   "1e6",
                                   "--embedding-optimizer",
                                   "sgd",
                                   "--optimizer",
                                   "sgd",
                                   "--lr",
                                   "1e-30",
                                   "--lr-schedule",
                                   "linear",
                                   "--decay-steps",
                                   "2",
                                   "--checkpoint",
                                   checkpoints});
    check_refused(result, {"training diverged, a weight of table C1 is no number: lower --lr or --embedding-lr (step 2"});
    CHECK(tessera::list_step_folders(checkpoints).empty());
  }
}

TEST_CASE("training that diverges in the step before a test or a checkpoint says what other divergence says, with its rates") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  auto const refused = [&](arguments more, std::vector<std::string> parts) {
    more.insert(more.end(), {"--threads", "1", "--checkpoint", checkpoints});
    parts.insert(parts.begin(), {"training diverged, a prediction is no number: lower --lr or --embedding-lr (step "});
    auto const result = data.run(more);
    check_refused(result, parts);
    CHECK_FALSE(result.says("exact_auc"));
    CHECK(tessera::list_step_folders(checkpoints).empty());
  };
  refused({"--lr", "1e30", "--batch-size", "1000"}, {"step 1", "--lr 1e+30", "--embedding-lr 0.03"});
  refused({"--embedding-lr", "1e30", "--batch-size", "1000"}, {"step 1", "--lr 0.003", "--embedding-lr 1e+30"});
  refused({"--lr", "1e30", "--batch-size", "1000", "--checkpoint-every", "1"}, {"step 1", "--lr 1e+30"});
}

TEST_CASE("a list of widths has one number between two commas, and no brackets") {
  small_data const data;
  for (std::string const option : {"--bottom", "--top"})
    for (auto const& [given, refused] :
         option_ranges{{"64,,32", ""}, {",64", ""}, {"64,", ""}, {"[64,32]", "[64"}, {"64,x", "x"}, {"64, 32", " 32"}}) {
      std::string const list = given, part = refused;
      CAPTURE(list);
      check_refused(data.run({option, list}), {option + ": not an integer from 1 to 2147483647: " + part + " in " + list + "\n"});
    }
}

TEST_CASE("numbers that differ from a checkpoint's are shown so that they differ") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  REQUIRE(data.run({"--epochs", "1", "--checkpoint", checkpoints}).status == 0);
  auto const result = data.run({"--resume", "--lr", "0.0030000003", "--checkpoint", checkpoints});
  CHECK(result.status == 0);
  CHECK_MESSAGE(result.says("--lr: 0.0030000003 instead of the checkpoint's 0.003\n"), result.output);
}

TEST_CASE("a table that no memory holds is refused by the options that ask for it") {
  small_data const data;
  for (std::string const dim : {"64", "65536"})  // more than an address space, and more than a table may ask for
    check_refused(data.run({"--hash-size", "1099511627776", "--embedding-dim", dim}),
                  {"option --hash-size, --vocabulary-limit or --embedding-dim: no memory for a table", "rows 1099511627777", "dim " + dim});
}

#endif
