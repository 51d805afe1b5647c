// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <tessera/files/atomic_file.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/posix_file.hpp>

#include "../support/forked.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::errc;
using tessera::staged_file;
using tessera_tests::contents;
using tessera_tests::error_of;
using tessera_tests::forked;
using tessera_tests::names_in;
using tessera_tests::temporary_folder;
using tessera_tests::write_file;

// No more than `count` files can be opened from here on.
void leave_handles(int count) {
  auto const next = ::dup(STDERR_FILENO);
  ::close(next);
  struct ::rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<::rlim_t>(next + count);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

::mode_t permissions_of(std::string const& path) {
  struct ::stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

}  // namespace

TEST_CASE("staged_file appears whole, under its name, with the commit") {
  temporary_folder const folder;
  staged_file file(folder.file("out"));
  CHECK(file.target() == folder.file("out"));
  CHECK(contents(file.path()).empty());
  tessera::write_text(file.path(), "new");
  CHECK_FALSE(std::filesystem::exists(folder.file("out")));
  file.commit();
  CHECK(file.path().empty());
  CHECK(names_in(folder.path()) == std::vector<std::string>{"out"});
  CHECK(contents(folder.file("out")) == "new");
}

TEST_CASE("staged_file leaves nothing without a commit, and what was there as it was") {
  temporary_folder const folder;
  write_file(folder.file("old"), "old");
  for (std::string const name : {"old", "fresh"}) {
    staged_file file(folder.file(name));
    tessera::write_text(file.path(), "half");
    staged_file const moved(std::move(file));
    CHECK(contents(moved.path()) == "half");
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"old"});
  CHECK(contents(folder.file("old")) == "old");
}

TEST_CASE("staged_file has a name of its own, however many are written at once and whatever stands there") {
  temporary_folder const folder;
  write_file(folder.file("precious"), "precious");
  auto const own = ".tessera-staging-file-" + std::to_string(::getpid()) + ".";
  write_file(folder.file("x.partial"), "of somebody");
  std::filesystem::create_symlink("precious", folder.file(own + "0"));
  staged_file first(folder.file("x")), second(folder.file("x"));
  CHECK(first.path() != second.path());
  CHECK(first.path() != folder.file(own + "0"));
  tessera::write_text(first.path(), "first");
  tessera::write_text(second.path(), "second");
  first.commit();
  CHECK(contents(folder.file("x")) == "first");
  second.commit();
  CHECK(contents(folder.file("x")) == "second");
  CHECK(contents(folder.file("precious")) == "precious");
  CHECK(names_in(folder.path()) == std::vector<std::string>{own + "0", "precious", "x", "x.partial"});
}

TEST_CASE("staged_file takes names of all lengths that the file system takes, and refuses longer ones") {
  temporary_folder const folder;
  for (std::size_t const length : {1U, 247U, 248U, 255U}) {
    auto const name = std::string(length, 'n');
    staged_file file(folder.file(name));
    file.commit();
    CHECK(names_in(folder.path()) == std::vector<std::string>{name});
    std::filesystem::remove(folder.file(name));
  }
  auto const name = folder.file(std::string(256, 'n'));
  auto const e = error_of([&] { staged_file{name}; });
  CHECK(e.code() == errc::io_error);
  CHECK(e.value("file") == name);
  CHECK(e.value("reason") == "File name too long");
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("staged_file keeps the permissions of what it replaces; a new file has those that the process gives") {
  temporary_folder const folder;
  auto const mask = ::umask(027);
  staged_file(folder.file("new")).commit();
  ::umask(mask);
  CHECK(permissions_of(folder.file("new")) == 0640);
  for (::mode_t const mode : {0600U, 0666U, 0444U, 0711U}) {
    REQUIRE(::chmod(folder.file("new").c_str(), mode) == 0);
    staged_file(folder.file("new")).commit();
    CHECK(permissions_of(folder.file("new")) == mode);
  }
}

TEST_CASE("staged_file refuses to commit where another file was put in its place") {
  temporary_folder folder;
  auto const target = folder.file("result");
  write_file(target, "before");
  tessera::staged_file staged(target);
  auto const path = staged.path();
  write_file(folder.file("other"), "after");
  std::filesystem::rename(folder.file("other"), path);
  CHECK_THROWS_WITH_AS(staged.commit(), doctest::Contains("another file was put in place"), tessera::error);
  CHECK(contents(target) == "before");
}

TEST_CASE("staged_file replaces a link, and leaves what it leads to") {
  temporary_folder const folder;
  write_file(folder.file("precious"), "precious");
  for (std::string const target : {"precious", "nowhere", "link"}) {
    std::filesystem::create_symlink(target, folder.file("link"));
    staged_file file(folder.file("link"));
    tessera::write_text(file.path(), "new");
    file.commit();
    CHECK(std::filesystem::is_regular_file(std::filesystem::symlink_status(folder.file("link"))));
    CHECK(contents(folder.file("link")) == "new");
    std::filesystem::remove(folder.file("link"));
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"precious"});
  CHECK(contents(folder.file("precious")) == "precious");
}

TEST_CASE("staged_file refuses names and places that are none") {
  temporary_folder const folder;
  for (std::string const& name : {std::string(), std::string("."), std::string(".."), std::string("x/"), std::string("a\0b", 3),
                                  std::string(".tessera-staging-file-1.0")})
    CHECK(error_of([&] { staged_file(folder.file(name)); }).code() == errc::invalid_argument);
  CHECK(error_of([&] { staged_file(""); }).code() == errc::invalid_argument);
  CHECK(error_of([&] { staged_file(folder.file(std::string("a\0b/c", 5))); }).code() == errc::io_error);
  write_file(folder.file("file"), "x");
  std::filesystem::create_directory(folder.file("folder"));
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  for (auto const& [name, reason] : std::vector<std::pair<std::string, std::string>>{{"folder", "Is a directory"},
                                                                                     {"pipe", "not a regular file"},
                                                                                     {"file/below", "Not a directory"},
                                                                                     {"missing/file", "No such file or directory"}}) {
    auto const path = folder.file(name);
    auto const e = error_of([&] { staged_file{path}; });
    CHECK(e.code() == errc::io_error);
    CHECK(e.value("file") == path);
    CHECK(e.value("reason") == reason);
  }
  CHECK(error_of([&] { staged_file("/dev/null"); }).value("reason") == "not a regular file");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"file", "folder", "pipe"});
}

TEST_CASE("staged_file removes what the dead left, not what the living hold or what is no file") {
  temporary_folder const folder;
  CHECK(WIFSIGNALED(forked([&] {
    staged_file const file(folder.file("x"));
    tessera::write_text(file.path(), "half");
    return ::raise(SIGKILL);
  })));
  CHECK(names_in(folder.path()).size() == 1);
  std::filesystem::create_directory(folder.file(".tessera-staging-file-folder"));
  REQUIRE(::mkfifo(folder.file(".tessera-staging-file-pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink("nowhere", folder.file(".tessera-staging-file-link"));
  staged_file const mine(folder.file("x"));
  CHECK(names_in(folder.path()).size() == 4);
  CHECK(forked([&] {
          staged_file const another(folder.file("x"));
          return 0;
        }) == 0);
  CHECK(std::filesystem::exists(mine.path()));
}

TEST_CASE("what fails for want of handles leaves neither a staged file nor a staged folder") {
  for (int handles = 0; handles < 6; ++handles) {
    CAPTURE(handles);
    temporary_folder const parent;
    CHECK(WIFEXITED(forked([&]() -> int {
      leave_handles(handles);
      staged_file file(parent.file("file"));
      tessera::write_text(file.path(), "text");
      throw 0;
    })));
    CHECK(names_in(parent.path()).empty());
    CHECK(WIFEXITED(forked([&]() -> int {
      leave_handles(handles);
      tessera::staged_folder folder(parent.path(), "folder");
      std::filesystem::create_directories(folder.path() + "/a/b/c");
      std::vector<tessera::posix_file> files;
      for (char const* const name : {"/1", "/a/2", "/a/b/3", "/a/b/c/4"})
        files.push_back(tessera::posix_file::create(folder.path() + name));
      for (auto& file : files) file.append(std::string("text"));
      staged_file aside(parent.file("file"));
      throw 0;
    })));
    CHECK(names_in(parent.path()).empty());
  }
}
