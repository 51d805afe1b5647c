// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything on the host but files/ and what needs its JSON, which is in <tessera/tessera_files.hpp>.
#include <tessera/cluster.hpp>
#include <tessera/comm.hpp>
#include <tessera/core.hpp>
#include <tessera/data.hpp>
#include <tessera/embed.hpp>
#include <tessera/hot.hpp>
#include <tessera/nn.hpp>
#include <tessera/plan.hpp>
#include <tessera/shard.hpp>
#include <tessera/tensor.hpp>
#include <tessera/tower.hpp>
#include <tessera/train.hpp>
