// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/communicator.ipp>
#include <tessera/comm/link_model.ipp>
#include <tessera/comm/topology.ipp>
