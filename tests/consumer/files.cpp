// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include <tessera/core/config.hpp>

int files() { return nlohmann::json::parse("{\"zero\": 0}")["zero"].get<int>(); }
