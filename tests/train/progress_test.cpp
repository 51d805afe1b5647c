// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include <tessera/train/progress.hpp>

namespace progress_test {

namespace {

using tessera::progress;

/// A file that remembers what was written.
class output {
 public:
  output() : file_(std::tmpfile()) { REQUIRE(file_ != nullptr); }
  output(output const&) = delete;
  ~output() { std::fclose(file_); }

  std::FILE* file() const { return file_; }
  std::string text() const {
    std::fflush(file_);
    std::rewind(file_);
    std::string all;
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) all += static_cast<char>(c);
    return all;
  }

 private:
  std::FILE* file_;
};

bool holds(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

constexpr char const* take_line = "\r\033[K";

}  // namespace

TEST_CASE("elsewhere than on a terminal, progress is plain lines") {
  output out;
  {
    progress bar(out.file(), false, 200);
    bar.show(50, "loss 0.5000");
    bar.show(200, "loss 0.2500");
    bar.clear();
  }
  auto const text = out.text();
  CHECK_FALSE(holds(text, "\033"));
  CHECK_FALSE(holds(text, "\r"));
  auto const second = text.find('\n') + 1;
  REQUIRE(second > 1);
  CHECK(holds(text.substr(0, second), "[######..................]  25%"));
  CHECK(holds(text.substr(0, second), "loss 0.5000"));
  CHECK(holds(text.substr(0, second), "samples/s"));
  CHECK(holds(text.substr(second), "[########################] 100%"));
  CHECK(holds(text.substr(second), "0:00 left"));
  CHECK(text.find('\n', second) == text.size() - 1);
}

TEST_CASE("without a total, progress says what is done, and no share of it") {
  output out;
  {
    progress clock(out.file(), false, 0);
    clock.show(50, "50 rows");
  }
  auto const text = out.text();
  CHECK(text.starts_with("50 rows  "));
  CHECK(text.ends_with(" samples/s\n"));
  CHECK_FALSE(holds(text, "%"));
  CHECK_FALSE(holds(text, "left"));
}

TEST_CASE("on a terminal, one line is drawn over itself, and taken away in the end") {
  output out;
  {
    progress bar(out.file(), true, 200);
    bar.show(50, "first");
    bar.show(100, "second");
  }
  auto const text = out.text();
  CHECK_FALSE(holds(text, "\n"));
  CHECK(text.starts_with(take_line));
  CHECK(text.ends_with(take_line));
  auto const second = text.find(take_line, 1);
  CHECK(holds(text.substr(0, second), "25%"));
  CHECK(holds(text.substr(0, second), "first"));
  CHECK(holds(text.substr(second), "50%"));
  CHECK(holds(text.substr(second), "second"));
  // A line wider than the terminal must not wrap, or the next drawing would leave half of it; wrapping is on again afterwards.
  for (std::size_t at = 0; (at = text.find("\033[?7l", at)) != std::string::npos; ++at)
    CHECK(text.find("\033[?7h", at) != std::string::npos);
  CHECK(holds(text, "\033[?7l"));
}

TEST_CASE("where nothing was drawn, nothing is cleared") {
  for (bool const is_terminal : {true, false}) {
    output out;
    { progress const bar(out.file(), is_terminal, 10); }
    CHECK(out.text().empty());
    {
      progress bar(out.file(), is_terminal, 10);
      bar.clear();
      bar.clear();
    }
    CHECK(out.text().empty());
  }
  output out;
  progress bar(out.file(), true, 10);
  bar.show(1, "");
  bar.clear();
  auto const once = out.text();
  bar.clear();
  CHECK(out.text() == once);
}

TEST_CASE("the time left follows from the rate so far") {
  using clock = progress::clock;
  output out;
  auto const before = clock::now();
  progress bar(out.file(), false, 5001);
  auto const made = clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  auto const least = std::chrono::duration<double>(clock::now() - made).count() * 5000;
  bar.show(1, "");
  auto const most = std::chrono::duration<double>(clock::now() - before).count() * 5000;
  auto const text = out.text();
  long minutes = -1, seconds = -1;
  auto const at = text.find("%  ");
  REQUIRE(at != std::string::npos);
  REQUIRE(std::sscanf(text.c_str() + at + 3, "%ld:%2ld left", &minutes, &seconds) == 2);
  CHECK(seconds < 60);
  auto const left = static_cast<double>(60 * minutes + seconds);
  CHECK(left >= least - 1);
  CHECK(left <= most);
  CHECK(holds(text, "  0%"));
}

TEST_CASE("one hundred per cent is the end alone, and numbers past it do no harm") {
  output out;
  progress bar(out.file(), false, 1000000);
  bar.show(999999, "");
  CHECK(holds(out.text(), "[#######################.]  99%"));
  bar.show(1000001, "");
  bar.show(0, "");
  progress(out.file(), false, 0).show(0, "");
  auto const text = out.text();
  CHECK(holds(text, "[########################] 100%  0:00 left"));
  CHECK(holds(text, "[........................]   0%  0:00 left"));
}

TEST_CASE("a terminal is due ten times a second, a file seldom") {
  output out;
  progress terminal(out.file(), true, 10), file(out.file(), false, 10);
  CHECK_FALSE(file.due());
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  CHECK(terminal.due());
  CHECK_FALSE(file.due());
  terminal.show(1, "");
  auto const shown = progress::clock::now();
  bool const due = terminal.due();
  if (progress::clock::now() - shown < std::chrono::milliseconds(50)) CHECK_FALSE(due);
}

TEST_CASE("what was done before counts in the share, not in the rate") {
  output out;
  progress bar(out.file(), false, 200, 100);
  bar.show(100, "");
  CHECK(holds(out.text(), " 50%"));
  CHECK(holds(out.text(), " 0 samples/s"));
}

}  // namespace progress_test
