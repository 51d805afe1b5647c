// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/files/posix_file.hpp>

#include "temporary_folder.hpp"

using tessera::errc;
using tessera::posix_file;
using tessera_tests::contents;
using tessera_tests::error_of;
using tessera_tests::temporary_folder;
using tessera_tests::write_file;

TEST_CASE("posix_file reads at any offset what was written at any offset") {
  temporary_folder const folder;
  auto const path = folder.file("data");
  {
    auto file = posix_file::create(path);
    file.append(std::string("hello "));
    file.append(std::string("world"));
    file.write_at(0, std::string("J"));
    file.append(std::string("!"));
    file.write_at(20, std::string("far"));
    file.sync();
    CHECK(file.size() == 23);
    file.close();
  }
  CHECK(contents(path) == "Jello world!" + std::string(8, '\0') + "far");

  auto const file = posix_file::open(path);
  CHECK(file.path() == path);
  CHECK(file.size() == 23);
  std::string text(5, '?');
  CHECK(file.read_at(6, tessera::vector_view<char>(text)) == 5);
  CHECK(text == "world");
  CHECK(file.read_at(20, tessera::vector_view<char>(text)) == 3);
  CHECK(file.read_at(23, tessera::vector_view<char>(text)) == 0);
  CHECK(file.read_at(1000, tessera::vector_view<char>(text)) == 0);
  CHECK(file.read_at(0, tessera::vector_view<char>()) == 0);
}

TEST_CASE("posix_file is empty after create, whatever was there") {
  temporary_folder const folder;
  write_file(folder.file("data"), "old");
  posix_file::create(folder.file("data")).close();
  CHECK(contents(folder.file("data")).empty());
}

TEST_CASE("posix_file moves with its descriptor") {
  temporary_folder const folder;
  write_file(folder.file("a"), "a");
  write_file(folder.file("b"), "bb");
  auto a = posix_file::open(folder.file("a"));
  auto b = posix_file::open(folder.file("b"));
  a = std::move(b);
  CHECK(a.size() == 2);
  posix_file const c(std::move(a));
  CHECK(c.size() == 2);
}

TEST_CASE("posix_file refuses what is no regular file, with path and reason") {
  temporary_folder const folder;
  auto const refused = [](auto const& call, std::string const& path) {
    auto const e = error_of(call);
    CHECK(e.code() == errc::io_error);
    CHECK(e.value("file") == path);
    return std::string(e.value("reason"));
  };
  auto const open = [&](std::string const& path) { return refused([&] { posix_file::open(path); }, path); };
  auto const create = [&](std::string const& path) { return refused([&] { posix_file::create(path); }, path); };

  CHECK(open(folder.file("missing")) == "No such file or directory");
  CHECK(open(folder.path()) == "Is a directory");
  CHECK(open("") == "No such file or directory");
  CHECK(open(std::string("a\0b", 3)) == "Invalid argument");
  CHECK(open("/dev/null") == "not a regular file");
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK(open(folder.file("pipe")) == "not a regular file");  // and does not wait for a writer
  CHECK(create(folder.file("pipe")) != "");
  CHECK(create(folder.path()) == "Is a directory");
  CHECK(create(folder.file("missing/data")) == "No such file or directory");
  write_file(folder.file("file"), "");
  CHECK(create(folder.file("file/data")) == "Not a directory");
}

TEST_CASE("posix_file reports what the system refuses to read or write") {
  temporary_folder const folder;
  auto const path = folder.file("data");
  write_file(path, "text");
  auto reader = posix_file::open(path);
  CHECK(error_of([&] { reader.append(std::string("x")); }).code() == errc::io_error);
  std::string out(1, '?');
  CHECK(error_of([&] { reader.read_at(-1, tessera::vector_view<char>(out)); }).value("reason") == "Invalid argument");
  reader.close();
  CHECK(error_of([&] { reader.size(); }).code() == errc::io_error);
  CHECK(error_of([&] { reader.sync(); }).code() == errc::io_error);
  CHECK(error_of([&] { reader.close(); }).code() == errc::io_error);
}

TEST_CASE("posix_file reports a full disk after a short write") {
  temporary_folder const folder;
  auto file = posix_file::create(folder.file("data"));
  auto* const old_handler = ::signal(SIGXFSZ, SIG_IGN);
  struct ::rlimit old_limit {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  auto limit = old_limit;
  limit.rlim_cur = 1000;  // a file size limit stands for the disk's
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  std::string reason = "nothing was thrown";
  try {
    file.append(std::string(3000, 'x'));
  } catch (tessera::error const& e) {
    reason = e.value("reason");
  }
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  ::signal(SIGXFSZ, old_handler);
  CHECK(reason == "File too large");
  CHECK(file.size() == 1000);
}

TEST_CASE("transfer_fully goes on after short moves and signals") {
  auto const seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::string source(1000, '?');
  for (auto& c : source) c = static_cast<char>(random());
  std::string sink;
  auto const moved = tessera::detail::transfer_fully(1000, [&](std::int64_t done) -> std::int64_t {
    CHECK(done == static_cast<std::int64_t>(sink.size()));
    if (random() % 3 == 0) {
      errno = EINTR;
      return -1;
    }
    auto const piece = std::min<std::size_t>(1 + random() % 40, source.size() - sink.size());
    sink += source.substr(sink.size(), piece);
    return static_cast<std::int64_t>(piece);
  });
  CHECK(moved == 1000);
  CHECK(sink == source);

  int calls = 0;
  CHECK(tessera::detail::transfer_fully(10, [&](std::int64_t) { return calls++ == 0 ? 4 : 0; }) == 4);
  auto const fails = [](std::int64_t done) {
    errno = EIO;
    return done == 0 ? 4 : -1;
  };
  CHECK(tessera::detail::transfer_fully(10, fails) == -1);
}

TEST_CASE("read_text and write_text are inverse, and a limit holds") {
  temporary_folder const folder;
  auto const path = folder.file("text");
  std::string const text("a\0\r\n\xff", 5);
  tessera::write_text(path, text);
  CHECK(tessera::read_text(path, 5) == text);
  auto const e = error_of([&] { tessera::read_text(path, 4); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("file") == path);
  tessera::write_text(path, "");
  CHECK(tessera::read_text(path, 0).empty());
}
