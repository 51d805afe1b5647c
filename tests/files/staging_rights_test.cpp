// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>

#include <tessera/files/atomic_file.hpp>
#include <tessera/files/atomic_folder.hpp>

#include "../support/forked.hpp"
#include "../support/skip.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace tessera_tests;
using tessera::staged_file;
using tessera::staged_folder;

constexpr ::uid_t nobody = 65534;

bool is_root() { return ::geteuid() == 0; }

// The exit status of `work` in a process of its own, which is no root's; 99 where it throws.
template <class F>
int status_without_root(F const& work) {
  auto const status = forked([&] { return is_root() && ::setuid(nobody) != 0 ? 98 : work(); });
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

void give_away(std::string const& path) {
  if (is_root()) REQUIRE(::lchown(path.c_str(), nobody, nobody) == 0);
}
void set_mode(std::string const& path, ::mode_t mode) { REQUIRE(::chmod(path.c_str(), mode) == 0); }

// No fchmod succeeds from here on, as on a file system that knows no permissions. Whether that could be had.
bool refuse_fchmod() {
  ::sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fchmod, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  ::sock_fprog const program{4, rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("a leftover in which nothing can be removed costs no file outside of it: links are not followed") {
  temporary_folder const parent, elsewhere;
  auto const precious = elsewhere.file("precious"), staging = parent.file(".tessera-staging-new-model.0");
  std::filesystem::create_directories(precious + "/below");
  write_file(precious + "/file", "precious");
  write_file(precious + "/below/file", "precious");
  std::filesystem::create_directories(staging + "/sub");
  std::filesystem::create_directory_symlink(precious, staging + "/link");
  std::filesystem::create_directory_symlink(precious, staging + "/sub/link");
  for (auto const& path : {parent.path(), elsewhere.path(), precious, precious + "/below", precious + "/file", precious + "/below/file",
                           staging, staging + "/link", staging + "/sub", staging + "/sub/link"})
    give_away(path);
  set_mode(staging + "/sub", 0555);
  set_mode(staging, 0555);
  CHECK(status_without_root([&] {
          { staged_folder const folder(parent.path(), "model"); }
          staged_folder(parent.path(), "model").commit();
          return 0;
        }) == 0);
  set_mode(staging, 0755);
  set_mode(staging + "/sub", 0755);
  CHECK(contents(precious + "/file") == "precious");
  CHECK(contents(precious + "/below/file") == "precious");
  CHECK(status_without_root([&] {  // now the links can be removed, and they alone are
          staged_folder const folder(parent.path(), "model");
          return 0;
        }) == 0);
  CHECK(names_in(parent.path()) == std::vector<std::string>{"model"});
  CHECK(contents(precious + "/file") == "precious");
  CHECK(contents(precious + "/below/file") == "precious");
}

TEST_CASE("leftovers of another user are left to that user") {
  if (!is_root()) return skip("needs root, to be two users");
  temporary_folder const parent;
  set_mode(parent.path(), 0777);
  std::filesystem::create_directory(parent.file(".tessera-staging-new-model.0"));
  write_file(parent.file(".tessera-staging-new-model.0/file"), "of root");
  set_mode(parent.file(".tessera-staging-new-model.0"), 0777);
  write_file(parent.file(".tessera-staging-file-1.0"), "of root");
  set_mode(parent.file(".tessera-staging-file-1.0"), 0666);
  CHECK(status_without_root([&] {
          staged_folder const folder(parent.path(), "model");
          staged_file const file(parent.file("file"));
          return 0;
        }) == 0);
  CHECK(names_in(parent.path()) == std::vector<std::string>{".tessera-staging-file-1.0", ".tessera-staging-new-model.0"});
  CHECK(contents(parent.file(".tessera-staging-new-model.0/file")) == "of root");
}

TEST_CASE("staged_file refuses at once to replace another user's file in a sticky folder") {
  if (!is_root()) return skip("needs root, to be two users");
  temporary_folder const parent;
  write_file(parent.file("theirs"), "theirs");
  write_file(parent.file("mine"), "old");
  set_mode(parent.file("theirs"), 0666);
  give_away(parent.file("mine"));
  auto const replaces = [&](std::string const& name) {
    return status_without_root([&] {
      try {
        staged_file file(parent.file(name));
        tessera::write_text(file.path(), "new");
        file.commit();
        return 0;
      } catch (tessera::error const& e) {
        return e.sentence() == "cannot create file" && e.value("reason") == "Operation not permitted" ? 1 : 2;
      }
    });
  };
  set_mode(parent.path(), 01777);
  CHECK(replaces("theirs") == 1);
  CHECK(replaces("mine") == 0);
  CHECK(replaces("fresh") == 0);
  CHECK(names_in(parent.path()) == std::vector<std::string>{"fresh", "mine", "theirs"});
  CHECK(contents(parent.file("theirs")) == "theirs");
  staged_file(parent.file("mine")).commit();  // root may
  set_mode(parent.path(), 0777);
  CHECK(replaces("theirs") == 0);
  write_file(parent.file("theirs"), "theirs");
  set_mode(parent.path(), 01777);
  give_away(parent.path());
  CHECK(replaces("theirs") == 0);
}

TEST_CASE("where permissions cannot be set, staged_file fails at once or not at all") {
  temporary_folder const folder;
  auto const mask = ::umask(022);
  write_file(folder.file("same"), "old");
  write_file(folder.file("other"), "old");
  ::umask(mask);
  set_mode(folder.file("other"), 0600);
  give_away(folder.path());
  give_away(folder.file("same"));
  give_away(folder.file("other"));
  auto const status = status_without_root([&] {
    ::umask(022);
    if (!refuse_fchmod()) return 97;
    staged_file same(folder.file("same"));
    tessera::write_text(same.path(), "new");
    same.commit();
    try {
      staged_file const other(folder.file("other"));
      return 1;
    } catch (tessera::error const& e) {
      return e.sentence() == "cannot set permissions" && e.value("file") == folder.file("other") ? 0 : 2;
    }
  });
  if (status == 97) return skip("no system calls can be refused here");
  CHECK(status == 0);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"other", "same"});
  CHECK(contents(folder.file("same")) == "new");
  CHECK(contents(folder.file("other")) == "old");
}
