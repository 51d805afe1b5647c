// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of core/: executions, memory, threads, views, optimizers, row formats, and what runs over plain arrays.
#include <tessera/core/background_thread.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/call_list.hpp>
#include <tessera/core/call_site.hpp>
#include <tessera/core/check_finite.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/dlpack.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/exact_sum.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/fixed_divisor.hpp>
#include <tessera/core/float_bits.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/key_parts.hpp>
#include <tessera/core/linked_numbers.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/memory_adaptors.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/register_bytes.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/run_length_encode.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/segmented_reduce.hpp>
#include <tessera/core/select.hpp>
#include <tessera/core/square_root.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/unique.hpp>
#include <tessera/core/update_rules.hpp>
#include <tessera/core/view.hpp>
