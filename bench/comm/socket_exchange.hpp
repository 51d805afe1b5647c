// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera_bench {

/// A TCP connection from each rank to each other one, and exchanges over them with nothing above the sockets: what a link gives.
class socket_exchange {
 public:
  explicit socket_exchange(MPI_Comm world) {
    MPI_Comm_rank(world, &rank_);
    MPI_Comm_size(world, &size_);
    sockets_.assign(static_cast<std::size_t>(size_), -1);
    if (size_ == 1) return;
    int const listener = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
    sockaddr_in own{};
    own.sin_family = AF_INET;
    checked(bind(listener, as_address(own), sizeof own), "bind");
    checked(listen(listener, size_), "listen");
    socklen_t length = sizeof own;
    checked(getsockname(listener, as_address(own), &length), "getsockname");
    own.sin_addr = address_of_host();
    std::vector<sockaddr_in> all(sockets_.size());
    MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, world);
    for (int r = 0; r < rank_; ++r) {
      int const one = sockets_[static_cast<std::size_t>(r)] = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
      checked(connect(one, as_address(all[static_cast<std::size_t>(r)]), sizeof own), "connect");
      if (send(one, &rank_, sizeof rank_, 0) != sizeof rank_) throw std::runtime_error("socket_exchange: a rank's number was not sent");
    }
    for (int left = size_ - 1 - rank_; left > 0; --left) {
      int const one = checked(accept(listener, nullptr, nullptr), "accept");
      int peer = -1;
      if (recv(one, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) throw std::runtime_error("socket_exchange: a rank did not say which");
      sockets_[static_cast<std::size_t>(peer)] = one;
    }
    close(listener);
    int const on = 1;
    for (int const one : sockets_)
      if (one >= 0) checked(setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
  }
  socket_exchange(socket_exchange const&) = delete;
  socket_exchange& operator=(socket_exchange const&) = delete;
  ~socket_exchange() {
    for (int const one : sockets_)
      if (one >= 0) close(one);
  }

  /// Sends `bytes` of `from` to each other rank, those for rank r from r * bytes on, and receives as many into `to`.
  void run(std::byte const* from, std::byte* to, std::int64_t bytes) {
    std::vector<std::int64_t> sent(sockets_.size(), 0), received(sockets_.size(), 0);
    sent[static_cast<std::size_t>(rank_)] = received[static_cast<std::size_t>(rank_)] = bytes;
    std::vector<pollfd> waits;
    std::vector<std::size_t> peers;
    for (;;) {
      waits.clear();
      peers.clear();
      for (std::size_t r = 0; r < sockets_.size(); ++r) {
        short const events = static_cast<short>((sent[r] < bytes ? POLLOUT : 0) | (received[r] < bytes ? POLLIN : 0));
        if (events == 0) continue;
        waits.push_back({sockets_[r], events, 0});
        peers.push_back(r);
      }
      if (waits.empty()) return;
      checked(poll(waits.data(), waits.size(), -1), "poll");
      for (std::size_t i = 0; i < waits.size(); ++i) {
        auto const r = peers[i];
        auto const place = static_cast<std::int64_t>(r) * bytes;
        if ((waits[i].revents & POLLOUT) != 0)
          sent[r] += moved(::send(sockets_[r], from + place + sent[r], static_cast<std::size_t>(bytes - sent[r]), MSG_DONTWAIT));
        if ((waits[i].revents & POLLIN) != 0)
          received[r] += moved(::recv(sockets_[r], to + place + received[r], static_cast<std::size_t>(bytes - received[r]), MSG_DONTWAIT));
      }
    }
  }

 private:
  static sockaddr* as_address(sockaddr_in& of) noexcept { return reinterpret_cast<sockaddr*>(&of); }
  static int checked(int result, char const* call) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), call);
    return result;
  }
  static std::int64_t moved(ssize_t bytes) {
    if (bytes >= 0) return bytes;
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw std::system_error(errno, std::generic_category(), "a socket");
  }
  // That of the first interface which others reach; where there is none, all ranks run here.
  static in_addr address_of_host() {
    in_addr found{htonl(INADDR_LOOPBACK)};
    ifaddrs* all = nullptr;
    checked(getifaddrs(&all), "getifaddrs");
    for (auto const* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
      found = reinterpret_cast<sockaddr_in const*>(one->ifa_addr)->sin_addr;
      break;
    }
    freeifaddrs(all);
    return found;
  }

  int rank_ = 0, size_ = 1;
  std::vector<int> sockets_;  // to each other rank
};

}  // namespace tessera_bench
