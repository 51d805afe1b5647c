// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/config.hpp>

int const tessera::TESSERA_THIS_BUILD = 1;
