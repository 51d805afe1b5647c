// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of comm/ but MPI's and NCCL's communicators, and what reads and writes files: communicators, collectives, codecs, topologies.
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/error_feedback.hpp>
#include <tessera/comm/link_model.hpp>
#include <tessera/comm/message_bundle.hpp>
#include <tessera/comm/named_ranks_communicator.hpp>
#include <tessera/comm/nccl_pending.hpp>
#include <tessera/comm/nccl_protocol.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/comm/row_encoding.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/sum_tree.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/thread_pending.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>
