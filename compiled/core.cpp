// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/error.ipp>
#include <tessera/core/thread_team.ipp>
