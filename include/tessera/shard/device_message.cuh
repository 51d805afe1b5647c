// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/shard/device_message.hpp>
#include <tessera/shard/word_copies.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The layouts of messages of so many blocks that came to a device, one from each rank. It calls `wait()`, then waits for the headers, once for
/// all. @throws tessera::error as `device_message::read`
template <device_execution Exec, class BringsWeights, class Wait>
std::vector<device_message> read_messages(Exec const& exec, std::vector<vector_view<std::byte const>> const& received, std::size_t blocks,
                                          BringsWeights const& brings_weights, Wait const& wait) {
  auto const words = device_message::header_words(blocks);
  auto const count = static_cast<std::int64_t>(received.size());
  // One after the other, and then on the host.
  buffer<std::int64_t, Exec> there(exec, count * words);
  word_copies gathered;
  for (std::int64_t r = 0; r < count; ++r) {
    auto const& message = received[static_cast<std::size_t>(r)];
    if (message.size() < words * 8)
      throw error(errc::incompatible, "device_exchange: ids that cannot be read", {{"from rank", r}, {"bytes", message.size()}});
    gathered.add(reinterpret_cast<std::int64_t const*>(message.data()), there.data() + r * words, words);
  }
  gathered.launch(exec);
  wait();
  std::vector<std::int64_t> headers(static_cast<std::size_t>(there.size()));
  exec.copy_out(headers.data(), there.data(), headers.size() * sizeof headers[0]);
  std::vector<device_message> messages;
  for (std::int64_t r = 0; r < count; ++r)
    messages.push_back(device_message::read({headers.data() + r * words, words}, blocks, received[static_cast<std::size_t>(r)].size(),
                                            static_cast<int>(r), brings_weights));
  return messages;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
