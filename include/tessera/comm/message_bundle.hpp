// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// A message that travels in a bundle with others.
struct bundled_message {
  std::int32_t from = 0, to = 0;  // ranks
  std::int64_t bytes = 0;         // of a failure, of its text
  std::uint32_t operation = 0;    // its number
  std::uint32_t failed = 0;       // 1: the text of a failure is there in place of the message
};
static_assert(sizeof(bundled_message) == 24 && alignof(bundled_message) <= message_alignment);

// Such a message, with where its bytes are.
struct bundle_part {
  bundled_message head;
  std::byte const* bytes;
};

constexpr std::int64_t aligned_message(std::int64_t bytes) noexcept { return divide_up(bytes, message_alignment) * message_alignment; }

// What a bundle of so many messages begins with.
constexpr std::int64_t bundle_heads_bytes(std::int64_t messages) noexcept {
  constexpr auto each = static_cast<std::int64_t>(sizeof(bundled_message));
  return messages == 0 ? 0 : aligned_message(static_cast<std::int64_t>(sizeof messages) + messages * each);
}

// Which of a host's ranks carries what goes from there to another host, and what comes from that.
constexpr std::int64_t carrier_index(std::int64_t host, std::int64_t other, std::int64_t hosts, std::int64_t ranks_of_host) noexcept {
  return (other - host - 1 + hosts) % hosts % ranks_of_host;
}

// A bundle: the number of messages, what is said of each, then the bytes of each, which begin at multiples of 64. Of no messages: nothing.
inline void write_bundle(host_exec const& exec, std::vector<bundle_part> const& parts, buffer<std::byte>& bundle) {
  auto const count = static_cast<std::int64_t>(parts.size());
  constexpr auto each = static_cast<std::int64_t>(sizeof(bundled_message));
  auto const heads = bundle_heads_bytes(count);
  auto bytes = heads;
  for (auto const& part : parts) bytes += aligned_message(part.head.bytes);
  bundle.resize(exec, bytes);
  if (count == 0) return;
  std::memset(bundle.data() + heads - message_alignment, 0, message_alignment);  // so that no byte is sent that was never written
  std::memcpy(bundle.data(), &count, sizeof count);
  auto* head = bundle.data() + sizeof count;
  auto* to = bundle.data() + heads;
  for (auto const& part : parts) {
    std::memcpy(head, &part.head, sizeof part.head);
    head += each;
    for_each_piece(exec, part.head.bytes, std::int64_t{1} << 20, [&](std::int64_t first, std::int64_t last) {
      std::memcpy(to + first, part.bytes + first, static_cast<std::size_t>(last - first));
    });
    auto const room = aligned_message(part.head.bytes);
    std::memset(to + part.head.bytes, 0, static_cast<std::size_t>(room - part.head.bytes));
    to += room;
  }
}

// Calls f(part) for each message of a bundle, in order. @throws tessera::error incompatible for bytes that are none.
template <class F>
void read_bundle(vector_view<std::byte const> bundle, F const& f) {
  if (bundle.empty()) return;
  auto const refuse = [&] { throw error(errc::incompatible, "communicator: no bundle of messages", {{"bytes", bundle.size()}}); };
  std::int64_t count = 0;
  constexpr auto each = static_cast<std::int64_t>(sizeof(bundled_message));
  if (bundle.size() < message_alignment) refuse();
  std::memcpy(&count, bundle.data(), sizeof count);
  if (count < 1 || count > bundle.size() / each) refuse();
  auto at = bundle_heads_bytes(count);
  if (at > bundle.size()) refuse();
  for (std::int64_t i = 0; i < count; ++i) {
    bundle_part part{};
    std::memcpy(&part.head, bundle.data() + sizeof count + i * each, sizeof part.head);
    if (part.head.bytes < 0 || part.head.bytes > bundle.size() - at) refuse();
    part.bytes = bundle.data() + at;
    at += aligned_message(part.head.bytes);
    f(part);
  }
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
