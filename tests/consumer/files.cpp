// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tessera_files.hpp>

int files() { return tessera::parse_json("{\"zero\": 0}", "text")["zero"].get<int>(); }
