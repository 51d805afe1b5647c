// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tessera_tests {

/// Says that the running test case cannot be tried here, and why; the caller returns: `return tessera_tests::skip("…");`.
/// Call it before the first SUBCASE: a return inside one hides those that follow from doctest.
/// A program whose every matched case was skipped exits with 77, which ctest reports as skipped.
void skip(std::string const& reason);

}  // namespace tessera_tests
